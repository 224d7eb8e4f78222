"""The transpose of a `custom` equation that stands in a linear program.

For what its inputs are linear in, it is the author's `backward`, or the transpose of the author's
`jvp`; for what `forward` captured, that of `forward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.errors import TransposeError
from ftrans.ir import Program
from ftrans.primitives.axes import broadcast_p, zeros
from ftrans.primitives.control.common import (
    fill_zeros,
    needed_inputs,
    pick,
    present,
    restrict,
    spread,
    unknown,
)
from ftrans.primitives.record import Linear, scalar
from ftrans.primitives.rules.custom_spec import Rule, Spec, look_up
from ftrans.primitives.rules.missing import missing_cotangents, tied_p


def transpose_custom(transforms: Any, cts: Any, *operands: Any, **params: Any) -> list[Any]:
    """Is the transpose rule, see `Recursive`; the params are those of the equation."""
    rule = Rule(**params).with_linear_jvp(transforms)
    forward, backward, forward_mode, variants, spec, _ = rule
    n, inputs = spec.outs, len(forward.inputs)
    found: list[Any] = [None] * len(operands)
    xs, captured = operands[: spec.arity], operands[spec.arity : inputs]

    def by_code(xs: Sequence[Any], captured: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """Returns the cotangents by the code of `forward`."""
        rest = [None] * (len(forward.outputs) - len(cts))
        return transforms.pull_back(forward, [*xs, *captured], [*cts, *rest])

    if (rule.is_absent and spec.missing is None) or any(present(cts[n:])):
        found[:inputs] = by_code(xs, captured, cts)
        return found
    if any(unknown(captured)):
        # for what was captured, forward says what it is, the inputs being held
        found[spec.arity : inputs] = by_code(_held(xs), captured, cts)[spec.arity :]
    linear = unknown(xs)
    if not any(linear):
        return found
    given = fill_zeros(cts[:n], forward.output_types[:n], spec.smooth)
    if rule.is_absent:
        found[: spec.arity] = missing_cotangents(
            [*given, *operands[spec.arity :]], xs, spec.missing or ""
        )
        return found
    references = spec.pulled if backward is not None else spec.pushed
    outs = _without_linear(transforms, forward, operands, references, spec)
    values = look_up(references, operands, outs, n)
    if backward is not None:
        pattern = present(cts[:n])
        if pattern in spec.patterns:
            backward = variants[spec.patterns.index(pattern)]
        wanted = tuple(pick(linear, spec.gives))
        needed = needed_inputs(backward, wanted)
    else:
        wanted = needed = (True,) * len(forward_mode.inputs)  # type: ignore[union-attr]
    lacking = [isinstance(x, Linear) or x is None for x in values]
    if any(lacking) and backward is not None:
        # a check of the forward call, which there is not
        first = len(needed) - len(values)
        for i, is_lacking in enumerate(lacking):
            if is_lacking and _only_ties(backward, first + i):
                values[i], lacking[i] = broadcast_p(scalar(True, bool), shape=(), axes=()), False
    if any(pick(lacking, needed[len(needed) - len(values) :])):
        # where the rule does not help, the code does: as of a linear function whose derivative is
        # written as the function itself, of the tangent
        try:
            if _calls_out(forward):
                raise TransposeError("it calls what is not traced")
            found[: spec.arity] = by_code(xs, _held(captured), cts[:n])[: spec.arity]
        except TransposeError as error:
            raise TransposeError(
                f"{spec.name}: it is transposed as a linear function, but its rule depends on the "
                f"values of what it would be linear in, and neither is its code linear:\n  {error}"
            ) from None
        return found
    if backward is not None:
        program = restrict(transforms, backward, needed, wanted)
        cotangents = transforms.replay(program, pick([*given, *values], needed))
        by_input = spread(spread(cotangents, wanted), spec.gives)
    else:
        tangents = [Linear(t) for t in pick(forward.inputs[: spec.arity], spec.takes)]
        unused = [None] * (0 if spec.lasting else n)
        back = transforms.pull_back(forward_mode, [*tangents, *values], [*unused, *given])
        by_input = spread(back[: len(tangents)], spec.takes)
    for i, ct in enumerate(by_input):
        if linear[i]:
            found[i] = ct
    return found


def _calls_out(program: Program) -> bool:
    """Tells whether a program calls what is no program, which has no transpose of its own."""
    return any(
        "external" in equation.primitive.tags or any(map(_calls_out, equation.params.programs()))
        for equation in program.equations
    )


def _only_ties(program: Program, number: int) -> bool:
    """Tells whether an input is nothing but what values are tied to."""
    uses = [e for e in program.equations if number in e.operands]
    return all(e.primitive is tied_p and e.operands[0] != number for e in uses) and (
        number not in program.outputs
    )


def _held(operands: Sequence[Any]) -> list[Any]:
    """Returns operands with zeros in the place of what is `Linear`."""
    return [zeros(x.type) if isinstance(x, Linear) else x for x in operands]


def _without_linear(
    transforms: Any, forward: Program, operands: Any, references: Any, spec: Spec
) -> list[Any]:
    """Returns results and what is saved, as far as they do not depend on `Linear` operands."""
    inputs = len(forward.inputs)
    n = spec.outs
    wanted = [i if kind == "result" else n + i for kind, i in references if kind != "operand"]
    outs: list[Any] = [None] * len(forward.outputs)
    for i in wanted:
        mask = tuple(j == i for j in range(len(outs)))
        needed = needed_inputs(forward, mask)
        taken = pick(operands[:inputs], needed)
        if not any(unknown(taken)):
            program = restrict(transforms, forward, needed, mask)
            (outs[i],) = transforms.replay(program, taken)
    return outs
