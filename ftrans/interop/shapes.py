"""JAX's primitives of arrays that are ours but for a form: they rearrange, contract and factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

import ftrans.primitives as p
from ftrans.interop.importer import Importer, NoCounterpart, Rule, broadcast, shape_of
from ftrans.ir import Literal, type_of
from ftrans.primitives.axes import inverse
from ftrans.primitives.shape import part


def declaring(table: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """Returns what declares rules in a table, of primitives of JAX's whose operands are arrays."""

    def rule(*names: str) -> Callable[[Rule], Rule]:
        def declare(function: Rule) -> Rule:
            def of_arrays(importer: Importer, equation: Any, *operands: Any) -> Any:
                arrays = [importer.array(x) for x in operands]
                return function(equation, *arrays, **equation.params)

            table.update(dict.fromkeys(names, of_arrays))
            return of_arrays

        return declare

    return rule


RULES: dict[str, Rule] = {}
_rule = declaring(RULES)


def ints(values: Sequence[Any]) -> tuple[int, ...]:
    """Returns Python's own integers."""
    return tuple(map(int, values))


def result_shape(equation: Any) -> tuple[int, ...]:
    """Returns the shape of the first result."""
    return ints(equation.outvars[0].aval.shape)


# ------------------------------------------------------------------------------------ rearranging


@_rule("broadcast_in_dim")
def _broadcast(
    equation: Any, x: Any, *more: Any, shape: Any, broadcast_dimensions: Any, **_: Any
) -> Any:
    return broadcast(x, ints(shape), ints(broadcast_dimensions))


@_rule("reshape", "squeeze", "expand_dims")
def _reshape(equation: Any, x: Any, *more: Any, **params: Any) -> Any:
    if "new_sizes" in params and params["dimensions"] is not None:
        raise NoCounterpart
    return p.reshape_p(x, shape=result_shape(equation))


@_rule("slice")
def _slice(equation: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    step = (1,) * len(start_indices) if strides is None else ints(strides)
    return p.slice_p(x, start=ints(start_indices), stop=ints(limit_indices), step=step)


@_rule("split")
def _split(equation: Any, x: Any, *, sizes: Any, axis: int) -> Any:
    ends = np.cumsum(ints(sizes))
    return [part(x, axis, int(end) - int(n), int(end)) for n, end in zip(sizes, ends, strict=True)]


@_rule("unstack")
def _unstack(equation: Any, x: Any, *, axis: int, **_: Any) -> Any:
    shape = result_shape(equation)
    return [p.reshape_p(part(x, axis, i, i + 1), shape=shape) for i in range(shape_of(x)[axis])]


@_rule("stack")
def _stack(equation: Any, *xs: Any, axis: int, **_: Any) -> Any:
    shape = list(result_shape(equation))
    shape[axis] = 1
    return p.concatenate_p(*[p.reshape_p(x, shape=tuple(shape)) for x in xs], axis=int(axis))


@_rule("tile")
def _tile(equation: Any, x: Any, *, reps: Any) -> Any:
    shape = shape_of(x)
    wide = tuple([n for pair in zip(ints(reps), shape, strict=True) for n in pair])
    tiled = p.broadcast_p(x, shape=wide, axes=tuple(range(1, 2 * len(shape), 2)))
    return p.reshape_p(tiled, shape=result_shape(equation))


def _pad(importer: Importer, equation: Any, x: Any, value: Any) -> Any:
    low, high, interior = zip(*equation.params["padding_config"], strict=True) or ((), (), ())
    sizes = {"low": ints(low), "high": ints(high), "interior": ints(interior)}
    x = importer.array(x)
    if type(value) is Literal:
        return p.pad_p(x, **sizes, value=value.value)
    padded = p.pad_p(x, **sizes, value=0)
    none = p.broadcast_p(p.scalar(False, bool), shape=shape_of(x), axes=())
    mask = p.pad_p(none, **sizes, value=True)
    return p.select_p(mask, broadcast(value, shape_of(padded)), padded)


RULES["pad"] = _pad


# --------------------------------------------------------------------------------------- reducing


@_rule("argmax", "argmin")
def _find(equation: Any, x: Any, *, axes: Any, index_dtype: Any) -> Any:
    (axis,) = axes
    primitive = getattr(p, f"{equation.primitive.name}_p")
    return p.convert_p(primitive(x, axis=int(axis)), dtype=np.dtype(index_dtype))


# ------------------------------------------------------------------------------ order and products


@_rule("top_k")
def _top_k(equation: Any, x: Any, *, k: int, axis: int = -1, **_: Any) -> Any:
    axis = int(axis) % len(shape_of(x))
    # equal ones keep their order, so the last of what is reversed is the first of them
    backwards = p.rev_p(x, axes=(axis,))
    places = p.rev_p(p.iota_p(shape=shape_of(x), dtype=np.dtype("int32"), axis=axis), axes=(axis,))
    found = p.sort_p(backwards, places, axis=axis, keys=1)
    size = shape_of(x)[axis]
    return [p.rev_p(part(y, axis, size - int(k), size), axes=(axis,)) for y in found]


def _in_result(equation: Any, *operands: Any) -> list[Any]:
    """Returns operands in the dtype of the result."""
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    return [x if type_of(x).dtype == dtype else p.convert_p(x, dtype=dtype) for x in operands]


@_rule("dot_general")
def _dot(equation: Any, x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    contract, batch = [tuple(map(ints, pair)) for pair in dimension_numbers]
    return p.dot_p(*_in_result(equation, x, y), contract=contract, batch=batch)


@_rule("conv_general_dilated")
def _conv(
    equation: Any,
    x: Any,
    kernel: Any,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> Any:
    x, kernel = _in_result(equation, x, kernel)
    found = p.conv_p(
        p.transpose_p(x, permutation=ints(dimension_numbers.lhs_spec)),
        p.transpose_p(kernel, permutation=ints(dimension_numbers.rhs_spec)),
        strides=ints(window_strides),
        padding=tuple(map(ints, padding)),
        lhs_dilation=ints(lhs_dilation),
        rhs_dilation=ints(rhs_dilation),
        feature_groups=int(feature_group_count),
        batch_groups=int(batch_group_count),
    )
    return p.transpose_p(found, permutation=inverse(ints(dimension_numbers.out_spec)))


# ----------------------------------------------------------------------------------------- factors


@_rule("qr")
def _qr(equation: Any, x: Any, *, full_matrices: bool, pivoting: bool, **_: Any) -> Any:
    if pivoting:
        raise NoCounterpart
    return p.qr_p(x, full=full_matrices)


@_rule("eigh")
def _eigh(
    equation: Any, x: Any, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any, **_: Any
) -> Any:
    if subset_by_index is not None or not sort_eigenvalues:
        raise NoCounterpart
    values, vectors = p.eigh_p(x, lower=lower)
    return vectors, values


@_rule("svd")
def _svd(
    equation: Any, x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, **_: Any
) -> Any:
    if subset_by_index is not None:
        raise NoCounterpart
    if not compute_uv:
        return p.svd_p(x, full=False, vectors=False)
    left, values, right = p.svd_p(x, full=full_matrices, vectors=True)
    return values, left, right


@_rule("fft")
def _fft(equation: Any, x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    kind = jax.lax.FftType(fft_type).name.lower()
    return getattr(p, f"{kind}_p")(x, sizes=ints(fft_lengths))


# ------------------------------------------------------------------------------------------ places


def _placed(x: Any, sharding: Any) -> Any:
    if isinstance(sharding, NamedSharding):
        if isinstance(sharding.mesh, Mesh):
            return p.place_p(x, sharding=sharding, names=None)
        if not sharding.mesh.empty:  # else it is that which is set
            return p.place_p(x, sharding=sharding.spec, names=None)
    return x


_rule("sharding_constraint")(lambda equation, x, *, sharding, **_: _placed(x, sharding))
_rule("reshard")(lambda equation, x, *, dst_sharding, **_: _placed(x, dst_sharding))
_rule("device_put")(lambda equation, *xs, devices, **_: list(map(_placed, xs, devices)))
