"""Products of tensors that take certain ranks, as PyTorch's do, where NumPy's take any."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ftrans.numpy as fnp
from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.numpy.methods import named
from ftrans.numpy.promotion import as_array

Function = Callable[..., Any]


def _of_ranks(*ranks: int) -> Callable[[Function], Function]:
    """Decorates a function of operands of these ranks, which raises for others."""

    def decorated(function: Function) -> Function:
        def product(*operands: Any, **others: Any) -> Any:
            given = [as_array(x) for x in (*operands, *others.values())]
            types = [type_of(x) for x in given]
            if len(types) == len(ranks) and tuple([t.ndim for t in types]) != ranks:
                found = "\n".join([f"  {t}" for t in types])
                raise ShapeError(
                    f"{function.__name__}: takes {_named(ranks)}.\n{found}\n"
                    f"  Write {_INSTEAD[function.__name__]}."
                )
            return function(*operands, **others)

        product.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return named(product, function.__name__, function.__doc__)

    return decorated


def _named(ranks: tuple[int, ...]) -> str:
    what = {1: "vectors", 2: "matrices", 3: "batches of matrices"}
    if len(set(ranks)) == 1:
        return what[ranks[0]]
    return "a matrix and a vector"


_INSTEAD = {
    **dict.fromkeys(("mm", "mv", "bmm"), "x @ y, which takes any ranks"),
    **dict.fromkeys(("dot", "vdot"), "x @ y, or (x * y).sum()"),
    **dict.fromkeys(("outer", "ger"), "x[..., :, None] * y[..., None, :]"),
    "trace": "x.diagonal(dim1=-2, dim2=-1).sum(-1)",
}


@_of_ranks(2, 2)
def mm(input: Any, mat2: Any) -> Any:
    """Returns the product of two matrices."""
    return fnp.matmul(input, mat2)


@_of_ranks(2, 1)
def mv(input: Any, vec: Any) -> Any:
    """Returns the product of a matrix and a vector."""
    return fnp.matmul(input, vec)


@_of_ranks(3, 3)
def bmm(input: Any, mat2: Any) -> Any:
    """Returns the products of two batches of matrices, of one size."""
    if (m := input.shape[0]) != (n := mat2.shape[0]):
        raise ShapeError(
            f"bmm: both have as many matrices.\n  input: {m}\n  mat2: {n}\n"
            f"  Write x @ y, which broadcasts."
        )
    return fnp.matmul(input, mat2)


@_of_ranks(1, 1)
def dot(input: Any, tensor: Any) -> Any:
    """Returns the sum of the products of the elements of two vectors."""
    return fnp.dot(input, tensor)


@_of_ranks(1, 1)
def vdot(input: Any, other: Any) -> Any:
    """Does as `dot`, of the conjugates of those of the first."""
    return fnp.vdot(input, other)


@_of_ranks(1, 1)
def outer(input: Any, vec2: Any) -> Any:
    """Returns the products of each element of a vector with each of another one."""
    return fnp.outer(input, vec2)


@_of_ranks(1, 1)
def ger(input: Any, vec2: Any) -> Any:
    """Is `outer`."""
    return fnp.outer(input, vec2)


@_of_ranks(2)
def trace(input: Any) -> Any:
    """Returns the sum of the elements of the diagonal of a matrix."""
    return fnp.trace(input)


UNTWINNED = mm, mv, bmm, dot, vdot, outer, ger, trace
