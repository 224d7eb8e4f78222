"""How the operands of an external call are made those of a batched one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.errors import RuleError
from ftrans.external.arrays import leaves_of
from ftrans.interpreters import batch
from ftrans.ir import ArrayType, Equation, Literal, Params, Program, type_of
from ftrans.ir.stack import state
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives.axes import expand, moveaxis
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.rules.external import Callee, external_p
from ftrans.primitives.shape import reshape_p
from ftrans.pytree import describe

BatchRule = Callable[[int, Sequence[Any], Sequence[int | None]], tuple[list[Any], list[int | None]]]
"""Records a batch: of its size, the operands and where they are mapped the results, and where."""


def moved(operands: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Returns operands with mapped axes in front; the others stay as they are."""
    return [
        x if dim is None else moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True)
    ]


def expanded(size: int, operands: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Returns operands with mapped axes in front, and an axis of size 1 where nothing is mapped."""
    return [
        _expanded(x) if dim is None else x
        for x, dim in zip(moved(operands, dims), dims, strict=True)
    ]


def _expanded(x: Any) -> Any:
    if isinstance(x, Literal):
        return expand(x, 1)
    return reshape_p(x, shape=(1, *type_of(x).shape))


def repeated(size: int, operands: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Returns operands that all have the batch in front."""
    return [
        expand(x, size) if dim is None else x
        for x, dim in zip(moved(operands, dims), dims, strict=True)
    ]


def batch_rule(
    name: str,
    rule: Callable[..., Any],
    structure: Any,
    outs: Any,
    types: Sequence[ArrayType],
) -> BatchRule:
    """Returns what records what a user's rule does with a batch.

    Args:
        name: how errors call the function that the rule belongs to.
        rule: `(axis_size, in_batched, *args) -> (out, out_batched)`.
        structure: that of the arguments, of positional and keyword ones.
        outs: that of the results.
        types: those of the results for one example.
    """

    def record(
        size: int, operands: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[list[Any], list[int | None]]:
        given = [x.array if isinstance(x, Literal) else x for x in moved(operands, dims)]
        args, kwargs = structure.unflatten(given)
        flags, _ = structure.unflatten([dim is not None for dim in dims])
        if kwargs:
            raise RuleError(
                f"{name}: its rule for vmap takes no keyword arguments.\n"
                f"  given: {', '.join(kwargs)}\n  Pass them by position."
            )
        before, state.place = state.place, None  # locations are those of the rule
        try:
            found = rule(size, list(flags), *args)
        finally:
            state.place = before
        is_pair = isinstance(found, (tuple, list)) and len(found) == 2
        out, batched = found if is_pair else (None, None)
        if isinstance(batched, (bool, np.bool_)):
            batched = [batched] * len(types)
        elif is_pair:
            batched = leaves_of(name, outs, batched, "out_batched")
        if batched is None or not all(isinstance(b, (bool, np.bool_)) for b in batched):
            raise RuleError(
                f"{name}: its rule for vmap must return the results, and for each whether it is "
                f"batched.\n  returned: {describe(found)}\n"
                f"  results: {', '.join(map(str, types))}\n"
                f"  Write return out, True, or for a tuple of results return (a, b), (True, True)."
            )
        values = leaves_of(name, outs, out)
        arrays = []
        for i, (out, is_batched, t) in enumerate(zip(values, batched, types, strict=True)):
            expected = t.update(shape=(size, *t.shape)) if is_batched else t
            if not (is_array(out) or is_scalar(out)):
                raise RuleError(
                    f"{name}: result {i} of its rule for vmap is no array.\n"
                    f"  returned: {type(out).__name__}\n  expected: {expected}"
                )
            array = as_array(out, expected.dtype) if is_scalar(out) else as_array(out)
            if type_of(array) is not expected.update():
                raise RuleError(
                    f"{name}: result {i} of its rule for vmap does not have the type that it must "
                    f"have.\n  returned: {type_of(array)}\n  expected: {expected}\n"
                    f"  A batched result has the mapped axis, of size {size}, in front."
                )
            arrays.append(array)
        return arrays, [0 if b else None for b in batched]

    return record


def alone(callee: Callee, types: Sequence[ArrayType]) -> Program:
    """Returns the program that does nothing but call it, on operands of these types."""
    count = len(types)
    equation = Equation(external_p, tuple(range(count)), Params(callee=callee), callee.types)
    return Program.make(
        types, [equation], range(count, count + len(callee.types)), name=callee.name
    )


def by_rule(callee: Callee, arrays: Sequence[Any], call: Callable[..., Any]) -> Sequence[Any]:
    """Calls what JAX is to batch as the callee says, and not as JAX would.

    Args:
        callee: whose `batch` is the rule.
        arrays: values that JAX traces.
        call: computes the results.
    """
    program = alone(callee, [ArrayType(array.shape, array.dtype) for array in arrays])
    every = (True,) * len(callee.types)
    wrapped = jax.custom_batching.custom_vmap(lambda *given: list(call(*given)))

    @wrapped.def_vmap
    def _(size: int, mapped: Sequence[bool], *given: Any) -> tuple[list[Any], list[bool]]:
        batched, _ = batch(program, size, tuple(0 if m else None for m in mapped), every)
        return evaluate(jnp, batched, given), list(every)

    return wrapped(*arrays)
