"""What the array API lets a library ask of this namespace: `__array_namespace_info__`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ftrans.numpy.dtypes import isdtype
from ftrans.numpy.promotion import default_dtype
from ftrans.runtime.device import get_default_device

_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


class Info:
    """What `__array_namespace_info__()` returns; the answers are those of the array API's 2024.12.

    Example:
        >>> Info().dtypes(kind="complex floating")
        {'complex64': dtype('complex64'), 'complex128': dtype('complex128')}
    """

    def capabilities(self) -> dict[str, Any]:
        """Says what depends on values, which are not always known: under `vmap` and `jit`."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Any:
        """Returns the device where arrays are created; None stands for NumPy's arrays."""
        return get_default_device()

    def devices(self) -> list[Any]:
        """Returns the devices where arrays can lie; None stands for NumPy's arrays."""
        return [None, *jax.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Returns the dtypes that Python's numbers take, and that of indices; on every device."""
        return {
            "real floating": default_dtype(float),
            "complex floating": default_dtype(complex),
            "integral": default_dtype(int),
            "indexing": np.dtype("int32"),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """Returns the dtypes by their names, or those of a kind as for `isdtype`."""
        found = {name: np.dtype(name) for name in _NAMES}
        return {n: d for n, d in found.items() if kind is None or isdtype(d, kind)}
