"""Higher derivatives: the pullback is a function too, of the point and of the cotangents.

Its derivatives are held against its own differences. That a rule cannot be differentiated twice is
noted: its author may have said so.
"""

from __future__ import annotations

from typing import Any

from ftrans.custom.verify.call import Call
from ftrans.custom.verify.derivatives import check_slopes
from ftrans.custom.verify.trial import Trial
from ftrans.func.vjp import vjp

__all__ = ["check_higher", "pulled"]

_NAMES = {2: "second", 3: "third", 4: "fourth"}


def pulled(trial: Trial) -> Call:
    """Returns the pullback as a call of the floating arguments and of cotangents."""
    size = len(trial.call.values)

    def pullback(*operands: Any) -> list[Any]:
        back = vjp(trial.select, *operands[:size])[1]
        return list(back(list(operands[size:])))

    return Call(pullback, (*trial.call.values, *trial.cotangents("second")))


def check_higher(trial: Trial, order: int) -> None:
    """Holds the derivatives of orders 2, 3, ... against differences of those one order lower."""
    if not trial.outputs or not trial.values:
        return
    for number in range(2, order + 1):
        check = f"{_NAMES.get(number, f'{number}th')} derivative"
        reference = trial.reference()
        if reference is None:
            trial.note(check, "not checked: the function does not take double precision")
            return
        found: list[Trial] = []
        with trial.guarded(check, "backward", f"not {_TIMES.get(number, number)} differentiable"):
            found.append(Trial(pulled(reference), trial.report, trial.sample))
        if not found:
            return
        names = [*trial.call.labels, *(f"cotangent {i}" for i in range(len(trial.outputs)))]
        found[0].call.labels = names
        check_slopes(found[0], check, f"not {_TIMES.get(number, number)} differentiable")
        trial = found[0]


_TIMES = {2: "twice", 3: "three times", 4: "four times"}
