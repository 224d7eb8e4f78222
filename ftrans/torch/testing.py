"""What tests are written with, under the names of `torch.testing`."""

from __future__ import annotations

from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.autograd.tensor import Tensor
from ftrans.errors import ArgumentError
from ftrans.traceback import boundary

__all__ = ["assert_close"]


_DIGITS = {"float16": 1e-3, "bfloat16": 1.6e-2, "float32": 1.3e-6, "float64": 1e-7,
           "complex64": 1.3e-6, "complex128": 1e-7}  # fmt: skip
"""The relative differences that `torch.testing` takes for equal, by dtype."""


@boundary
def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | None = None,
) -> None:
    """Raises unless tensors, or what is in containers of them, are equal up to rounding.

    Args:
        actual: a tensor, an array, a number, or a pytree of them.
        expected: what it should be.
        rtol: the relative difference that is allowed; by default that of the dtype.
        atol: the absolute difference; 1e-7 for 64 bits and 1e-5 for fewer; 0 for integers.
        equal_nan: whether NaN equals NaN.
        check_dtype: whether dtypes have to be equal.
        msg: the text of the error.

    Raises:
        AssertionError: where they are not close.
        ArgumentError: where only one of `rtol` and `atol` is given.
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("assert_close: rtol and atol must both be specified, or neither.")
    found, structure = tree.tree_flatten_with_path(actual)
    wanted, other = tree.tree_flatten(expected)
    if structure != other:
        raise AssertionError(msg or f"The structures differ:\n  {structure}\n  {other}")
    for (path, x), y in zip(found, wanted, strict=True):
        a, b = (np.asarray(_value(v)) for v in (x, y))
        at = f"\n  at {tree.keystr(path)}" if path else ""
        if a.shape != b.shape:
            problem = f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}."
        elif check_dtype and a.dtype != b.dtype and hasattr(x, "dtype"):
            problem = f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}."
        else:
            each = [_DIGITS.get(v.dtype.name, 0.0) for v in (a, b)]
            least = 1e-7 if max(each) <= 1e-7 else 1e-5
            r = max(each) if rtol is None else rtol
            t = (least if max(each) else 0.0) if atol is None else atol
            wide = np.result_type(a, b, np.float64) if max(each) else np.result_type(a, b)
            a, b = a.astype(wide), b.astype(wide)
            wrong = ~np.isclose(a, b, rtol=r, atol=t, equal_nan=equal_nan)
            if not wrong.any():
                continue
            far = np.abs(np.subtract(a, b, dtype=np.result_type(wide, np.int8))).max()
            problem = (
                f"Tensor-likes are not close!\n  Mismatched elements: {wrong.sum()} / {wrong.size}"
                f"\n  Greatest absolute difference: {far} (up to {t} allowed, {r} relative)"
            )
        raise AssertionError(msg or problem + at)


def _value(x: Any) -> Any:
    return x.numpy(force=True) if type(x) is Tensor else x
