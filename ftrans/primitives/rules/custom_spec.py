"""How the parts of a `custom` equation belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ftrans.ir import Program
from ftrans.primitives.control.common import Mask


class Spec(NamedTuple):
    """Says how the parts of a `custom` equation belong together.

    A *reference* is where a rule finds what it captured: `("operand" | "result" | "saved", i)`.

    Attributes:
        name: how errors call it.
        arity: the number of inputs among the operands.
        smooth: for each result whether it has a tangent.
        gives: for each input whether `backward` returns a cotangent for it.
        takes: for each input whether `forward_mode` takes a tangent for it.
        pulled: what `backward` captured, which it takes after the cotangents of smooth results.
        pushed: what `forward_mode` captured, which it takes after the tangents.
        missing: the error where a derivative is needed and there is no rule; None where `forward`
            is differentiated then.
        batch: the author's rule for batches, see `WrittenBatch` in `custom/batching.py`, or None.
        patterns: for each of the `variants` of `backward` which results have a cotangent.
        lasting: whether derivatives of derivatives of results are by the rules again, as PyTorch
            has it; else they are those of `forward`, as JAX has it.
        linear: where JAX is to transpose it, how many inputs, the last ones, the smooth results
            are linear in, jointly.
        holds: whether `forward` holds constant what it captured.
    """

    name: str
    arity: int
    smooth: Mask
    gives: Mask = ()
    takes: Mask = ()
    pulled: tuple[tuple[str, int], ...] = ()
    pushed: tuple[tuple[str, int], ...] = ()
    missing: str | None = None
    batch: Any = None
    patterns: tuple[Mask, ...] = ()
    lasting: bool = True
    linear: int = 0
    holds: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def holds_functions(self) -> bool:
        """Whether it refers to a function of the author's."""
        return self.batch is not None

    @property
    def traces_anew(self) -> bool:
        """Whether its rule for batches is to be traced each time it is asked for."""
        return self.batch is not None and self.batch.traces_anew

    @property
    def outs(self) -> int:
        """The number of results."""
        return len(self.smooth)


class Rule(NamedTuple):
    """Is what the params of a `custom` equation say."""

    forward: Program
    backward: Program | None
    forward_mode: Program | None
    variants: tuple[Program, ...]
    spec: Spec
    saved: bool

    @property
    def is_absent(self) -> bool:
        """Whether the author gave no rule, so that `forward` is differentiated, or nothing is."""
        return self.backward is None and self.forward_mode is None

    @property
    def is_linear(self) -> bool:
        """Whether it is the derivative of a rule, and so its own."""
        return self.forward is self.forward_mode

    def with_linear_jvp(self, transforms: Any) -> Rule:
        """Returns the rule with a `forward_mode` that is linear, or raises where it is needed."""
        if self.forward_mode is None or self.is_linear:
            return self
        first = 0 if self.spec.lasting else self.spec.outs
        found = transforms.linear_rule(self.forward_mode, sum(self.spec.takes), first)
        return self._replace(forward_mode=found)


def look_up(
    references: Sequence[tuple[str, int]], operands: Sequence[Any], outs: Sequence[Any], count: int
) -> list[Any]:
    """Returns the values that references stand for; `outs` are results and what is saved."""
    found = {"operand": operands, "result": outs, "saved": outs[count:]}
    return [found[kind][i] for kind, i in references]
