"""What classes of primitives share: the cost, the inference and the batching of a family."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.dtype import is_half, is_inexact
from ftrans.primitives.record import Absent, Cost, New, Primitive, Sample

__all__ = [
    "elementwise",
    "elementwise_cost",
    "free_cost",
    "in_single",
    "moveaxis",
    "no_identity",
    "no_programs",
    "normal",
    "one_pass_cost",
    "structural",
    "total_bytes",
]

no_programs = Absent("it carries no program")
no_identity = Absent("no identity makes it simpler")
not_linear = Absent("it is not linear")


def total_bytes(*groups: Sequence[ArrayType]) -> int:
    """Returns the bytes of all values of these types."""
    return sum(t.nbytes for group in groups for t in group)


def elementwise_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts one operation for each element of the results."""
    return Cost(sum(t.size for t in results), total_bytes(operands, results))


def one_pass_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts one operation for each element of the first operand."""
    return Cost(operands[0].size, total_bytes(operands, results))


def free_cost(operands: Any, results: Any, params: Any) -> Cost:
    """Counts no arithmetic: the data are moved."""
    return Cost(0, total_bytes(operands, results))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns reproducible normal samples in float64."""
    return np.random.default_rng(seed + math.prod(shape)).normal(size=shape)


def _kind(dtype: np.dtype) -> str:
    return "f" if dtype.kind == "V" or dtype.name == "bfloat16" else dtype.kind


def check_kind(name: str, kinds: str, *types: ArrayType) -> None:
    """Raises unless every type is among the kinds that a primitive takes."""
    for t in types:
        if _kind(t.dtype) not in kinds:
            words = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
            raise DTypeError(
                f"{name}: takes {', '.join(words[k] for k in kinds)} arrays.\n"
                f"  operand: {t}\n"
                f"  Convert it first: x.astype('float32')."
            )


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


def in_single(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a lowering that computes in single precision for operands in half precision."""

    def lowered(xp: Any, x: Any, **params: Any) -> Any:
        if is_half(x.dtype):
            return lower(xp, xp.asarray(x).astype(np.float32), **params).astype(x.dtype)
        return lower(xp, x, **params)

    return lowered


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """Moves one axis of a strict operand, where it has to move at all."""
    from ftrans.primitives.shape import transpose_p

    if source == destination:
        return x
    order = [axis for axis in range(type_of(x).ndim) if axis != source]
    order.insert(destination, source)
    return transpose_p(x, permutation=tuple(order))


def align(size: int, operands: Sequence[Any], dims: Sequence[int | None]) -> tuple[list, int]:
    """Gives all operands of an elementwise primitive the mapped axis, at one place.

    Scalars stay as they are, since they broadcast.
    """
    from ftrans.primitives.shape import broadcast_p

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
    from ftrans.primitives.shape import broadcast_p

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
    lower: Callable[..., Any],
    jvp: Any,
    kinds: str,
    arity: int | None = None,
    transpose: Any = not_linear,
    dtype: Callable[[np.dtype], Any] | None = None,
    infer: Callable[..., ArrayType] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    samples: Sequence[Sample] = (),
    tags: Sequence[str] = (),
    rewrite: Callable[..., Any] | None = None,
    source: str | None = None,
) -> Primitive:
    """Declares a primitive that works element by element on operands of one shape and dtype.

    Args:
        name: the name.
        lower: `(xp, *arrays, **params) -> array`.
        jvp: the rules; their number is the number of operands.
        kinds: letters of the dtypes that it takes, see `Primitive`.
        arity: the number of operands, where `jvp` does not say it.
        transpose: the rules where it is linear.
        dtype: the dtype of the result from that of the operands; the same where None.
        infer: replaces the inference altogether.
        domain: the open interval from which the samples of real operands are drawn.
        samples: further samples, edge cases among them.
        tags: further tags.
        rewrite: an identity; constants are folded first, whatever it is.
        source: where the derivative is to be found.
    """
    if arity is None:
        arity = len(jvp)

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
        return fold_fills(primitive, scope, operands, types, params) or (
            rewrite(scope, operands, types, params) if rewrite else None
        )

    def draw() -> list[Sample]:
        generator = np.random.default_rng(0)
        drawn = [
            Sample(tuple(generator.uniform(*domain, size=shape) for _ in range(arity)))
            for shape in ((), (3,), (2, 3), (0, 2))
        ]
        return [*([] if infer else drawn), *samples]

    primitive = Primitive(
        name=name,
        tags=frozenset({"elementwise", *tags}),
        kinds=kinds,
        infer=infer or infer_type,
        lower=lower,
        jvp=jvp,
        linearize=no_programs,
        transpose=transpose,
        batch=batch,
        prune=no_programs,
        rewrite=simpler,
        cost=elementwise_cost,
        samples=draw,
        source=source,
        multiple=False,
    )
    return primitive


def structural(
    name: str,
    *,
    infer: Callable[..., ArrayType],
    lower: Callable[..., Any],
    jvp: Any,
    transpose: Any,
    batch: Callable[..., Any],
    samples: Sequence[Sample],
    tags: Sequence[str] = (),
    kinds: str = "biufc",
    cost: Callable[..., Cost] = free_cost,
    rewrite: Callable[..., Any] | Absent = no_identity,
) -> Primitive:
    """Declares a primitive that moves elements about and computes nothing."""
    return Primitive(
        name=name,
        tags=frozenset({"structural", *tags}),
        kinds=kinds,
        infer=infer,
        lower=lower,
        jvp=jvp,
        linearize=no_programs,
        transpose=transpose,
        batch=batch,
        prune=no_programs,
        rewrite=rewrite,
        cost=cost,
        samples=lambda: list(samples),
        source=None,
        multiple=False,
    )


def is_differentiable(x: Any) -> bool:
    """Tells whether a value can have a tangent."""
    return not isinstance(x, Literal) and is_inexact(type_of(x).dtype)
