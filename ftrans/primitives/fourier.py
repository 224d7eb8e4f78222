"""Discrete Fourier transforms along the last axes: `fft`, `ifft`; of real arrays `rfft`, `irfft`.

Inverse transforms divide by the number of elements, as in NumPy's default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType
from ftrans.ir.dtype import real_of
from ftrans.primitives.axes import to_front
from ftrans.primitives.conversion import conj_p, real_p
from ftrans.primitives.family import check_kind, in_single, normal, plain, total_bytes
from ftrans.primitives.logic import eq_p, or_p, select_p
from ftrans.primitives.matrices import times
from ftrans.primitives.record import LINEAR, Cost, Primitive, Sample, operand_type, scalar
from ftrans.primitives.shape import iota_p, pad_p

Sizes = tuple[int, ...]


def _half(sizes: Sizes) -> Sizes:
    """Returns the sizes of what a transform of real numbers keeps."""
    return (*sizes[:-1], sizes[-1] // 2 + 1)


def _transform(
    name: str, kinds: str, transpose: Callable[..., Any], *shapes: tuple[Sizes, Sizes]
) -> Primitive:
    """Declares a transform.

    Args:
        name: the name, NumPy's for one axis.
        kinds: the dtypes that it takes.
        transpose: takes the cotangent, the type of the operand and `sizes`.
        *shapes: those of operands to try it on, with `sizes`.
    """

    def infer(x: ArrayType, *, sizes: Sizes) -> ArrayType:
        check_kind(name, kinds, x)
        first = x.ndim - len(sizes)
        taken = _half(sizes) if name == "irfft" else sizes
        if not sizes or 0 in sizes or first < 0 or x.shape[first:] != taken:
            raise ShapeError(f"{name}: the last axes are not those of {sizes}.\n  operand: {x}")
        complex_dtype = np.result_type(x.dtype, np.complex64)
        dtype = real_of(complex_dtype) if name == "irfft" else complex_dtype
        return ArrayType((*x.shape[:first], *(_half(sizes) if name == "rfft" else sizes)), dtype)

    def lower(xp: Any, x: Any, *, sizes: Sizes) -> Any:
        if xp is not np:
            from jax import lax

            return lax.fft(x, lax.FftType[name.upper()], sizes)
        return getattr(np.fft, f"{name}n")(x, sizes, axes=tuple(range(-len(sizes), 0)))

    def batch(size: int, operands: Any, dims: Any, *, sizes: Sizes) -> tuple[Any, int]:
        return primitive(to_front(size, operands[0], dims[0]), sizes=sizes), 0

    primitive = plain(
        name,
        tags=["fourier"],
        kinds=kinds,
        infer=infer,
        lower=in_single(lower),
        jvp=LINEAR,
        transpose=[lambda ct, x, *, sizes: transpose(ct, operand_type(x), sizes)],
        batch=batch,
        cost=_cost,
        samples=[Sample((normal(*shape),), {"sizes": sizes}) for shape, sizes in shapes],
    )
    return primitive


def _cost(operands: Any, results: Any, params: Any) -> Cost:
    size = max(operands[0].size, results[0].size)
    count = math.log2(max(math.prod(params["sizes"]), 2))
    return Cost(int(5 * size * count), total_bytes(operands, results))


def _of_rfft(ct: Any, t: ArrayType, sizes: Sizes) -> Any:
    nothing = (0,) * t.ndim
    high = (*nothing[1:], sizes[-1] - (sizes[-1] // 2 + 1))
    return real_p(
        fft_p(pad_p(ct, low=nothing, high=high, interior=nothing, value=0.0), sizes=sizes)
    )


def _of_irfft(ct: Any, t: ArrayType, sizes: Sizes) -> Any:
    # an element that stands for its conjugate as well counts twice
    found, scale = rfft_p(ct, sizes=sizes), 1 / math.prod(sizes)
    column = iota_p(shape=t.shape, dtype=np.dtype("int32"), axis=t.ndim - 1)
    alone = eq_p(column, scalar(0, "int32"))
    if sizes[-1] % 2 == 0:
        alone = or_p(alone, eq_p(column, scalar(t.shape[-1] - 1, "int32")))
    return conj_p(select_p(alone, times(found, scale), times(found, 2 * scale)))


_line, _plane, _empty = ((2, 6), (6,)), ((3, 2, 6), (2, 6)), ((0, 4), (4,))

fft_p = _transform("fft", "c", lambda ct, t, sizes: fft_p(ct, sizes=sizes), _line, _plane, _empty)
ifft_p = _transform(
    "ifft", "c", lambda ct, t, sizes: ifft_p(ct, sizes=sizes), _line, _plane, _empty
)
rfft_p = _transform("rfft", "f", _of_rfft, _line, ((2, 5), (2, 5)), _empty)
irfft_p = _transform("irfft", "c", _of_irfft, ((2, 4), (6,)), ((2, 3), (2, 5)))
