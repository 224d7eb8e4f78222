"""The family of primitives that work element by element on operands of one shape and dtype.

Scalars are operands of any of them: literals broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.primitives.axes import broadcast_p, moveaxis
from ftrans.primitives.family import by_lower, check_kind, elementwise_cost, plain
from ftrans.primitives.namespace import by_lax
from ftrans.primitives.record import Absent, New, Primitive, Sample


def common_type(name: str, types: Sequence[ArrayType]) -> ArrayType:
    """Returns the one type of elementwise operands, scalars aside; raises where they differ."""
    strong = [t for t in types if not t.weak]
    first = strong[0] if strong else types[0].update()
    for t in types:
        if t.dtype != first.dtype:
            raise DTypeError(
                f"{name}: operands have different dtypes.\n  operands: {', '.join(map(str, types))}"
            )
        if not t.weak and t.shape != first.shape:
            raise ShapeError(
                f"{name}: operands have different shapes.\n  operands: {', '.join(map(str, types))}"
            )
    return first


def align(size: int, operands: Sequence[Any], dims: Sequence[int | None]) -> tuple[list, int]:
    """Gives all operands of an elementwise primitive the mapped axis, at one place.

    Scalars stay as they are, since they broadcast.
    """
    mapped = {dim for dim in dims if dim is not None}
    dim = mapped.pop() if len(mapped) == 1 else 0
    out = []
    for operand, at in zip(operands, dims, strict=True):
        t = type_of(operand)
        if at is not None:
            out.append(moveaxis(operand, at, dim))
        elif t.weak:
            out.append(operand)
        else:
            shape = (*t.shape[:dim], size, *t.shape[dim:])
            axes = tuple(axis for axis in range(t.ndim + 1) if axis != dim)
            out.append(broadcast_p(operand, shape=shape, axes=axes))
    return out, dim


def fold_fills(primitive: Primitive, scope: Any, operands: Any, types: Any, params: Any) -> Any:
    """Takes constants into an elementwise equation, as scalars, or computes it where all are.

    A *fill* is a literal broadcast to a shape.
    """
    fills = scope.fills
    arrays = filled = 0
    for operand in operands:
        if type(operand) is not Literal:
            arrays += 1
            filled += operand in fills
    if arrays and not filled:
        return None
    taken = [a if type(a) is Literal else fills.get(a, a) for a in operands]
    if arrays > filled:
        return New(primitive, tuple(taken), params)
    (result,) = types
    with np.errstate(all="ignore"):
        value = primitive.lower(np, *(literal.array for literal in taken), **params)
    literal = Literal(np.asarray(value).astype(result.dtype).item(), result.dtype)
    if result.shape == ():
        return literal
    return New(broadcast_p, (literal,), {"shape": result.shape, "axes": ()})


def elementwise(
    name: str,
    *,
    lower: Callable[..., Any] | str,
    jvp: Any,
    kinds: str,
    arity: int | None = None,
    dtype: Callable[[np.dtype], Any] | None = None,
    infer: Callable[..., ArrayType] | None = None,
    domain: tuple[float, float] | None = (-2.0, 2.0),
    samples: Sequence[Sample] = (),
    tags: Sequence[str] = (),
    rewrite: Callable[..., Any] | Absent | None = None,
    **declared: Any,
) -> Primitive:
    """Declares a primitive that works element by element on operands of one shape and dtype.

    Args:
        name: the name.
        lower: `(xp, *arrays, **params) -> array`, or the name of a function of NumPy and
            `jax.numpy`, or else of `jax.lax`.
        jvp: the rules; their number is the number of operands.
        kinds: letters of the dtypes that it takes, see `Primitive`.
        arity: the number of operands, where `jvp` does not say it.
        dtype: the dtype of the result from that of the operands; the same where None.
        infer: replaces the inference altogether.
        domain: the open interval from which the samples of real operands are drawn; none are where
            it is None, and where there is `infer`.
        samples: further samples, edge cases among them.
        tags: further tags; an "involution" undoes itself.
        rewrite: an identity; constants are folded first, unless it is `Absent`.
        **declared: what else `plain` takes: `transpose` where it is linear, and `source`.
    """
    arity = arity or len(jvp)
    if isinstance(lower, str):
        lower, declared["host"] = _by_name(lower)

    def infer_type(*types: ArrayType, **params: Any) -> ArrayType:
        if len(types) != arity:
            raise TypeError(f"{name} takes {arity} operands, not {len(types)}.")
        t = common_type(name, types)
        check_kind(name, kinds, t)
        return t.update(dtype=dtype(t.dtype)) if dtype else t

    def batch(size: int, operands: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        aligned, dim = align(size, operands, dims)
        return primitive(*aligned, **params), dim

    def simpler(scope: Any, operands: Any, types: Any, params: Any) -> Any:
        folded = fold_fills(primitive, scope, operands, types, params)
        if folded is not None:
            return folded
        if "involution" in tags:
            inner = scope.definition(operands[0])
            return inner.operands[0] if inner and inner.primitive is primitive else None
        return rewrite(scope, operands, types, params) if callable(rewrite) else None

    def draw() -> list[Sample]:
        generator = np.random.default_rng(0)
        drawn = [
            Sample(tuple(generator.uniform(*domain, size=shape) for _ in range(arity)))
            for shape in ((), (3,), (2, 3), (0, 2))
            if domain and not infer
        ]
        return [*drawn, *samples]

    primitive = plain(
        name,
        tags=["elementwise", *tags],
        kinds=kinds,
        infer=infer or infer_type,
        lower=lower,
        jvp=jvp,
        batch=batch,
        rewrite=rewrite if isinstance(rewrite, Absent) else simpler,
        cost=elementwise_cost,
        samples=draw,
        **declared,
    )
    return primitive


def _by_name(function: str) -> tuple[Callable[..., Any], Callable[..., Any] | Absent]:
    """Returns the lowering to a function, and what makes that of NumPy itself."""
    own = getattr(np, function, None)
    if own is None:
        return lambda xp, *arrays: by_lax(xp, function, *arrays), by_lower
    return lambda xp, *arrays: getattr(xp, function)(*arrays), lambda *types: own


def transcendental(
    name: str,
    *jvp: Callable[..., Any],
    lower: Callable[..., Any] | str | None = None,
    kinds: str = "fc",
    tags: Sequence[str] = (),
    dlmf: str | None = None,
    **declared: Any,
) -> Primitive:
    """Declares an elementwise primitive that takes tens of operations an element: it is costly.

    Args:
        name: the name.
        *jvp: the rules, one per operand.
        lower: as `elementwise` takes it; None stands for the name.
        kinds: as `elementwise` takes them.
        tags: further tags.
        dlmf: where the formula stands in the Digital Library of Mathematical Functions.
        **declared: what else `elementwise` takes.
    """
    if dlmf:
        declared["source"] = f"https://dlmf.nist.gov/{dlmf}"
    tags = ["costly", *tags]
    return elementwise(name, lower=lower or name, jvp=jvp, kinds=kinds, tags=tags, **declared)
