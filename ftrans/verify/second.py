"""Higher derivatives: the pullback is a function too, of the point and of the cotangents.

Its derivatives are held against its own differences. That a rule cannot be differentiated twice is
noted: its author may have said so.
"""

from __future__ import annotations

from typing import Any

from ftrans.func.jvp import jvp
from ftrans.func.vjp import vjp
from ftrans.verify.call import Call
from ftrans.verify.derivatives import check_slopes
from ftrans.verify.trial import Trial

__all__ = ["check_higher", "pulled", "pushed"]

_NAMES = {2: "second", 3: "third", 4: "fourth"}


def pulled(trial: Trial) -> Call:
    """Returns the pullback as a call of the floating arguments and of cotangents."""
    size = len(trial.call.values)

    def pullback(*operands: Any) -> list[Any]:
        back = vjp(trial.select, *operands[:size])[1]
        return list(back(list(operands[size:])))

    return Call(pullback, (*trial.call.values, *trial.cotangents("second")))


def pushed(trial: Trial) -> Call:
    """Returns the pushforward as a call of the floating arguments and of their tangents."""
    size = len(trial.call.values)

    def pushforward(*operands: Any) -> list[Any]:
        return list(jvp(trial.select, tuple(operands[:size]), tuple(operands[size:]))[1])

    return Call(pushforward, (*trial.call.values, *trial.tangents("second")))


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
        if number == 2:
            _check_forward(reference, trial, check)
        trial = found[0]


def _check_forward(reference: Trial, trial: Trial, check: str) -> None:
    """Holds the derivatives of the pushforward, which may go by a rule of its own, against it."""
    missing = "not twice differentiable"
    found: list[Trial] = []
    with trial.guarded(check, "jvp", missing):
        found.append(Trial(pushed(reference), trial.report, trial.sample))
    if found:
        count = len(trial.values)
        found[0].call.labels = [*trial.call.labels, *(f"tangent {i}" for i in range(count))]
        check_slopes(found[0], check, missing)


_TIMES = {2: "twice", 3: "three times", 4: "four times"}
