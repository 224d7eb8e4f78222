"""From what users write to strict operands: arrays, one dtype, one shape.

Promotion is that of the array API, with the float of the pair where an integer meets a float, as in
JAX and PyTorch. Python scalars are weak: they take the dtype of the arrays that they meet, and only
change its kind where they must; alone, a float is a float64. Every front-end function begins here.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.config import config
from ftrans.errors import DTypeError, ShapeError
from ftrans.ir import ArrayType, Literal, Tracer, make_tracer, type_of
from ftrans.ir.dtype import NUMERIC, complex_of, is_complex, is_float, is_inexact
from ftrans.ir.stack import is_tracing, state
from ftrans.numpy.axes import broadcast_to
from ftrans.primitives import broadcast_p, concatenate_p, convert_p, reshape_p, scalar
from ftrans.runtime.jaxlink import is_key, x64
from ftrans.traceback import OnTape

CONCRETE = (np.ndarray, np.generic, jax.Array)


_FOREIGN = (np.ma.MaskedArray, np.matrix)
"""Subclasses of `np.ndarray` whose arithmetic is not that of arrays."""

# What is an array or a scalar by its type, remembered by the type: asking an abstract class such as
# jax.Array is slow, and asked at every operand.
_array_types: set[type] = {np.ndarray}
_scalar_types: frozenset[type] = frozenset({bool, int, float, complex})


def is_array(x: Any) -> bool:
    """Tells whether `x` is a traced value, or a NumPy or JAX array of numbers or booleans."""
    kind = type(x)
    if kind is Tracer:
        return True
    if kind in _array_types:
        return x.dtype in NUMERIC or is_numeric(x.dtype)
    if kind in _scalar_types:
        return False
    if kind in OnTape.types:
        raise OnTape
    if not isinstance(x, CONCRETE) or isinstance(x, _FOREIGN):
        return False
    _array_types.add(kind)
    return is_numeric(x.dtype)


def is_numeric(dtype: Any) -> bool:
    """Tells whether a dtype is one of numbers or booleans that XLA has, in its byte order.

    Strings, objects, random keys and extended precision are not.
    """
    if not isinstance(dtype, np.dtype):
        return False
    if dtype.kind in "fc":
        return dtype.isnative and dtype.itemsize <= (16 if dtype.kind == "c" else 8)
    return (dtype.kind in "biu" and dtype.isnative) or is_float(dtype)


_FLOATS = frozenset(map(np.dtype, ("float16", "float32", "float64", "complex64", "complex128")))


def is_float_array(x: Any) -> bool:
    """Tells, where it is quickly told, whether `x` is an array of floating point; else False."""
    kind = type(x)
    if kind is Tracer:
        return x.type.is_inexact
    return kind in _array_types and x.dtype in _FLOATS


def is_scalar(x: Any) -> bool:
    """Tells whether `x` is a Python scalar, which promotes weakly."""
    return type(x) in _scalar_types or (
        isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)
    )


def default_dtype(kind: type) -> np.dtype:
    """Returns the dtype of what is created of Python scalars of this type."""
    real = config.default_dtype
    if kind is bool:
        return np.dtype(bool)
    if issubclass(kind, int):
        return np.dtype("int64" if real == np.float64 else "int32")
    return real if issubclass(kind, float) else complex_of(real)


_LONG, _DOUBLE = np.dtype("int64"), np.dtype("float64")


def wide() -> np.dtype:
    """Returns the dtype of floats that meet integers: float64; the default, as tensors have it."""
    return config.default_dtype if state.of_tensors else _DOUBLE


def scalar_dtype(kind: type) -> np.dtype:
    """Returns the dtype of a Python scalar of this type that meets no array: floats are double."""
    if issubclass(kind, int):
        return default_dtype(kind)
    return _DOUBLE if issubclass(kind, float) else complex_of(_DOUBLE)


@cache
def promote_dtypes(x: np.dtype, y: np.dtype) -> np.dtype:
    """Returns the dtype to which two arrays are promoted."""
    try:
        with x64():
            return np.dtype(jnp.promote_types(x, y))
    except ValueError:
        raise DTypeError(
            f"{x.name} and {y.name} are not promoted to a common dtype: eight bits hold too little."
            f"\n  Convert one of them: x.astype({(x if x.itemsize > 1 else y).name!r})."
        ) from None


def _scalar_kind(x: Any) -> type:
    """Returns bool, int, float or complex for a weak operand."""
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, (Tracer, np.ndarray)):
        dtype = type_of(x).dtype
        return complex if is_complex(dtype) else float if is_float(dtype) else int
    for kind in (bool, int, float):
        if isinstance(x, kind):
            return kind
    return complex


def is_weak(x: Any) -> bool:
    """Tells whether an operand promotes as a Python scalar does; sequences of Python floats do.

    So do NumPy's numbers, where they meet tensors.
    """
    if isinstance(x, Tracer):
        return x.weak
    if isinstance(x, (list, tuple)):
        leaves = jax.tree_util.tree_leaves(x)
        return all(map(is_scalar, leaves)) and _scalar_kind_of(leaves) not in (bool, int)
    return is_scalar(x) or (state.of_tensors and isinstance(x, np.generic))


def _scalar_kind_of(xs: Sequence[Any]) -> type:
    """Returns the kind of several weak operands together, that of an empty sequence for none."""
    return max(map(_scalar_kind, xs), key=(bool, int, float, complex).index, default=float)


def result_type(*xs: Any) -> np.dtype:
    """Returns the dtype to which operands are promoted.

    Example:
        >>> result_type(np.zeros(3, "int8"), 2.0)
        dtype('float64')
        >>> result_type(np.zeros(3, "float16"), 2.0)
        dtype('float16')
    """
    return _common(xs, [is_weak(x) for x in xs])


def promoted(*xs: Any, dtype: Any = None) -> list[Any]:
    """Returns strict operands of one dtype, each of its own shape."""
    taken = [x if is_scalar(x) else as_array(x) for x in xs]
    common = _common(taken, list(map(is_weak, xs))) if dtype is None else np.dtype(dtype)
    return [as_array(x, common) for x in taken]


def _common(xs: Sequence[Any], weak: Sequence[bool]) -> np.dtype:
    """Is `result_type`, for operands that are said to be weak or not."""
    firm = [type_of(x) for x, is_loose in zip(xs, weak, strict=True) if not is_loose]
    dtype = _of_firm(firm) if firm else None
    if dtype is not None and not any(weak):
        return dtype
    kind = _scalar_kind_of([x for x, is_loose in zip(xs, weak, strict=True) if is_loose])
    if dtype is None:
        # what was a number to JAX may be narrower than one of ours
        traced = [x.type.dtype for x in xs if isinstance(x, Tracer) and x.type.is_inexact]
        dtype = reduce(promote_dtypes, traced) if traced else scalar_dtype(kind)
    if kind is complex:
        return complex_of(dtype if is_inexact(dtype) else wide())
    if kind is float and not is_inexact(dtype):
        return wide()
    if kind is int and dtype.kind == "b":
        return _LONG if state.of_tensors else default_dtype(int)
    return dtype


def _of_firm(types: Sequence[ArrayType]) -> np.dtype:
    """Returns the dtype of arrays together; tensors without dimensions give no more than a kind."""
    ranked = [t.dtype for t in types if t.shape] if state.of_tensors else None
    if not ranked or len(ranked) == len(types):
        return reduce(promote_dtypes, [t.dtype for t in types])
    found = reduce(promote_dtypes, ranked)
    number = reduce(promote_dtypes, [t.dtype for t in types if not t.shape])
    if _kind(found) >= _kind(number):
        return found
    if _kind(found) == _kind(_DOUBLE):
        return complex_of(found)
    return promote_dtypes(found, number)


def _kind(dtype: np.dtype) -> int:
    """Returns a number for booleans, integers, floats and complex numbers, in this order."""
    return 3 if is_complex(dtype) else 2 if is_float(dtype) else int(dtype.kind != "b")


def created_dtype(*xs: Any) -> np.dtype:
    """Returns the dtype of what is created of numbers: the default where all are Python's."""
    python = all(map(is_scalar, xs))
    return default_dtype(_scalar_kind_of(xs)) if python else result_type(*xs)


def as_array(x: Any, dtype: Any = None, alone: Callable[[type], np.dtype] | None = None) -> Any:
    """Returns a strict operand: a traced value, a NumPy array or a `jax.Array`.

    Args:
        x: an array, a Python scalar, or nested sequences of them.
        dtype: the dtype to convert to; None keeps that of an array.
        alone: says which dtype Python scalars have then, by their type; None means
            `scalar_dtype`.

    Raises:
        DTypeError: where `x` is no array, naming what it is.
    """
    if type(x) is Tracer and dtype is None:
        return x
    dtype = None if dtype is None else np.dtype(dtype)
    if type(x) in _array_types or isinstance(x, (Tracer, *CONCRETE)):
        if not is_array(x):
            raise _unfit(x)
        if isinstance(x, np.generic):
            x = np.asarray(x)
        return x if dtype is None else cast(x, dtype)
    if is_scalar(x):
        dtype = dtype or (alone or scalar_dtype)(_scalar_kind(x))
        _check_fits("asarray", x, dtype)
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype)
    if isinstance(x, (list, tuple, range)):
        return _from_sequence(list(x) if type(x) is range else x, dtype, alone or scalar_dtype)
    if type(x) in OnTape.types:
        raise OnTape
    if isinstance(x, numbers.Number) or hasattr(x, "__array__"):
        array = np.asarray(x)
        if is_numeric(array.dtype):
            return array if dtype is None else array.astype(dtype)
    raise DTypeError(
        f"A value of type {type(x).__name__} is no array.\n"
        f"  value: {x!r:.60}\n"
        f"  Pass a NumPy array, a jax.Array or a Python scalar."
    )


def _unfit(x: Any) -> DTypeError:
    """Returns the error for an array that cannot be computed with, saying what to pass instead."""
    if isinstance(x, np.ma.MaskedArray):
        fix = "A mask would be lost. Pass x.filled(value), or x.data and x.mask as two arrays."
    elif isinstance(x, np.matrix):
        fix = "Its * and ** are not those of arrays. Pass np.asarray(x), and write @ for products."
    elif is_key(x):
        fix = "It is a key of random numbers. Write jax.random.key_data(x) for its words."
    elif x.dtype.kind in "biufc":
        native = x.dtype.newbyteorder("=")
        wide = "complex128" if native.kind == "c" else "float64"
        fix = f"Convert it: x.astype({native.name if is_numeric(native) else wide!r})."
    else:
        fix = "Convert it to an array of numbers."
    return DTypeError(
        f"An array of this kind is not computed with.\n"
        f"  x: {type(x).__name__} of dtype {x.dtype!s}, shape {x.shape}\n  {fix}"
    )


def _from_sequence(
    x: Sequence[Any], dtype: np.dtype | None, alone: Callable[[type], np.dtype]
) -> Any:
    """Builds an array from nested sequences; from traced values by stacking them."""
    leaves = jax.tree_util.tree_leaves(x)
    if not OnTape.types.isdisjoint(map(type, leaves)):
        raise OnTape
    if not any(isinstance(leaf, (Tracer, jax.Array)) for leaf in leaves):
        array = np.asarray(x)
        if not is_numeric(array.dtype):
            raise DTypeError(f"A sequence of dtype {array.dtype} is no array: {x!r:.60}")
        if dtype is None and not any(is_array(leaf) for leaf in leaves):
            kinds = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
            dtype = alone(kinds[array.dtype.kind])
        if dtype is not None and array.size and array.dtype.kind in "iu":
            for extreme in (array.min(), array.max()):
                _check_fits("array", int(extreme), dtype)
        return array if dtype is None else array.astype(dtype)
    items = [item if is_scalar(item) else as_array(item) for item in x]
    shapes = {() if is_scalar(item) else type_of(item).shape for item in items}
    if len(shapes) > 1:
        raise ShapeError(f"array: the rows of a sequence have different shapes: {sorted(shapes)}.")
    rows = [
        broadcast_p(row, shape=(1,), axes=())
        if isinstance(row, Literal)
        else reshape_p(row, shape=(1, *type_of(row).shape))
        for row in unify("array", *items)
    ]
    stacked = concatenate_p(*rows, axis=0)
    return stacked if dtype is None else cast(stacked, dtype)


def cast(x: Any, dtype: Any) -> Any:
    """Converts a strict operand to a dtype, where it has another one."""
    dtype = np.dtype(dtype)
    t = type_of(x)
    if t.dtype == dtype:
        return weakly(x, False)
    return convert_p(x, dtype=dtype)


def weakly(x: Any, weak: bool) -> Any:
    """Returns a traced value as one that promotes weakly, or not."""
    is_other = type(x) is Tracer and x.weak != weak
    return make_tracer(x.frame, x.index, x.type, weak=weak) if is_other else x


def inexact(x: Any) -> Any:
    """Returns a strict operand of floating point, which Python integers take at float64.

    Arrays of integers and booleans take the default dtype.
    """
    operand = as_array(x)
    if type_of(operand).is_inexact:
        return operand
    return cast(operand, wide() if is_weak(x) else config.default_dtype)


def filled(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns a strict operand of one value."""
    one = scalar(value, dtype)
    return broadcast_p(one, shape=shape, axes=()) if is_tracing() else np.full(shape, one.array)


def unify(name: str, *xs: Any, dtype: Any = None, to_inexact: bool = False) -> list[Any]:
    """Returns strict operands of one dtype and one shape; Python scalars become literals.

    Args:
        name: the function, for errors.
        xs: arrays, sequences and Python scalars.
        dtype: the common dtype; None promotes.
        to_inexact: whether integers and booleans are converted to floating point, as by `inexact`.

    Raises:
        ShapeError: where the shapes do not broadcast.
    """
    taken = [x if is_array(x) or is_scalar(x) else as_array(x) for x in xs]
    loose = [is_weak(x) for x in xs]
    weak = all(loose)
    common = _common(taken, loose) if dtype is None else np.dtype(dtype)
    if to_inexact and not is_inexact(common):
        common = wide() if weak else config.default_dtype
    if all(is_scalar(x) for x in taken):
        return [as_array(x, common) for x in taken]
    shape = common_shape(name, taken)
    out = []
    for x in taken:
        if is_scalar(x):
            _check_fits(name, x, common)
            out.append(scalar(x, common))
            continue
        out.append(weakly(broadcast_to(cast(as_array(x), common), shape), weak))
    return out


def common_shape(name: str, xs: Sequence[Any]) -> tuple[int, ...]:
    """Returns the shape to which strict operands broadcast; Python scalars take any.

    Raises:
        ShapeError: where they do not.
    """
    shapes = {type_of(x).shape for x in xs if not is_scalar(x)}
    if len(shapes) == 1:
        return shapes.pop()
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        lines = "".join(
            f"\n  operand {i}: {x if is_scalar(x) else type_of(x)}" for i, x in enumerate(xs)
        )
        raise ShapeError(
            f"{name}: shapes do not broadcast.{lines}\n"
            f"  Sizes are matched from the last axis on; x[:, None] adds an axis of size 1."
        ) from None


def _check_fits(name: str, x: Any, dtype: np.dtype) -> None:
    """Raises where a Python integer does not fit the integer dtype that it meets."""
    if dtype.kind in "iu" and type(x) is int:
        info = np.iinfo(dtype)
        if not info.min <= x <= info.max:
            raise OverflowError(f"{name}: {x} does not fit into {dtype}.")
