"""`jit` against the same un-jitted: values, gradients and tangents, compiled once."""

from __future__ import annotations

from typing import Any

from ftrans.errors import MissingRuleError, TransposeError
from ftrans.func.jit import jit
from ftrans.func.vjp import vjp
from ftrans.verify.call import host
from ftrans.verify.trial import Trial

__all__ = ["check_jit"]

JIT = "jit against un-jitted"


def check_jit(trial: Trial) -> None:
    """Compiles the function together with its gradient, and holds both against un-jitted ones."""
    cotangents = trial.cotangents("jit") if trial.values else []

    def value(*values: Any) -> list[Any]:
        return trial.call(*values)

    def both(*values: Any) -> list[Any]:
        back = vjp(trial.select, *values)[1]
        return [*trial.call(*values), *back(cotangents)]

    with trial.guarded(JIT, "jit"):
        function = both if trial.outputs and trial.values else value
        try:
            expected = [host(x) for x in function(*trial.call.values)]
        except (MissingRuleError, TransposeError):
            function = value
            expected = [host(x) for x in value(*trial.call.values)]
        got = [host(x) for x in jit(function)(*trial.call.values)]
        count = len(trial.leaves)
        labels = [f"output {i}" for i in range(count)]
        labels += [f"gradient of {label}" for label in trial.call.labels]
        what = "jit gives something else"
        # compiled code may order sums in another way
        again = lambda seed: function(*trial.shaken(seed))  # noqa: E731
        trial.same(JIT, what, got, expected, labels, slack=20, again=again)
