"""What a custom rule returned, as arrays of exactly the types that they must have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import RuleError
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.numpy.promotion import as_array, broadcast_to, cast, is_array, is_scalar, is_weak
from ftrans.primitives import reshape_p, sum_p
from ftrans.pytree import describe


def chosen(value: Any, expected: ArrayType, weak: bool) -> Any:
    """Returns a cotangent in the expected dtype where it belongs to a Python number.

    Nobody has chosen the dtype of that.
    """
    inexact = is_scalar(value) or (is_array(value) and type_of(value).is_inexact)
    return cast(as_array(value), expected.dtype) if weak and inexact else value


def fit(label: str, value: Any, expected: ArrayType, like: str, reduced: bool = False) -> Any:
    """Returns what a rule returned as an array of exactly the type that it must have.

    Args:
        label: names what it is, for the error: "F.backward (file:line): the gradient of x".
        value: what was returned.
        expected: its type.
        like: says whose type that is, for the error.
        reduced: whether a value that `expected` broadcasts to is summed to it.

    Raises:
        RuleError: where it is no array, or has another shape or dtype.
    """
    if type(value) is np.ndarray and value.shape == expected.shape:
        if value.dtype == expected.dtype:
            return value
    elif not (is_array(value) or is_scalar(value)):
        value = _from_elsewhere(label, value, expected)
    weak = is_weak(value)
    array = as_array(value)
    t = type_of(array)
    if t.shape != expected.shape:
        if weak and t.shape == ():
            array = broadcast_to(array, expected.shape)
        elif reduced and _reduces(t.shape, expected.shape):
            array = _summed(array, expected.shape)
        else:
            raise RuleError(
                f"{label} has the wrong shape.\n  returned: {t}\n  {like}: {expected}\n"
                f"  Return an array of shape {expected.shape}."
            )
    if t.dtype != expected.dtype:
        if weak and (expected.is_inexact or not t.is_inexact):
            return cast(array, expected.dtype)
        raise RuleError(
            f"{label} has the wrong dtype.\n  returned: {t}\n  {like}: {expected}\n"
            f"  Convert it: .astype({expected.dtype.name!r})."
        )
    if isinstance(array, Tracer) and array.weak:
        return cast(array, expected.dtype)
    return array


def _from_elsewhere(label: str, value: Any, expected: ArrayType) -> Any:
    if hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
        return as_array(value)
    raise RuleError(
        f"{label} is no array.\n  returned: {describe(value)}\n"
        f"  Return {expected}, or None where it is zero."
    )


def _reduces(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tells whether a sum over axes leads from one shape to another that broadcasts to it."""
    extra = len(shape) - len(target)
    return extra >= 0 and all(n in (1, shape[extra + axis]) for axis, n in enumerate(target))


def _summed(array: Any, target: tuple[int, ...]) -> Any:
    shape = type_of(array).shape
    extra = len(shape) - len(target)
    axes = (
        *range(extra),
        *(extra + axis for axis, n in enumerate(target) if n == 1 and shape[extra + axis] != 1),
    )
    array = sum_p(array, axes=axes) if axes else array
    return reshape_p(array, shape=target) if type_of(array).shape != target else array
