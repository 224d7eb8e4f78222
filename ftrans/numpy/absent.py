"""What to write in the place of functions that are not there, of which JAX has most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.special

from ftrans.errors import MissingAttributeError
from ftrans.traceback import boundary

_SPELLED = {
    "as_tensor": "asarray",
    "bmm": "matmul",
    "cat": "concatenate",
    "clamp": "clip",
    "from_numpy": "asarray",
    "mm": "matmul",
    "mv": "matvec",
    "no_grad": "stop_gradient",
    "tensor": "array",
}
"""PyTorch's names for functions that are there."""


def instead_of(place: str) -> str:
    """Returns the code to write for a function that is not there.

    Args:
        place: where JAX would have it, "numpy.interp".
    """
    target: Any = jax
    for part in place.split("."):
        target = getattr(target, part, None)
    if callable(target):
        return f"Write ftrans.external.jax(jax.{place})(...), which JAX differentiates"
    return "Write it with functions of ftrans.numpy, or call it by ftrans.external"


def attributes_of(home: str) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module, which says what to write for a name that is not there.

    Args:
        home: the module in ftrans, "numpy" or "numpy.linalg".
    """

    @boundary
    def missing(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'ftrans.{home}' has no attribute {name!r}")
        fix = instead_of(f"{home}.{name}")
        if name in _SPELLED:
            fix = f"Write ftrans.numpy.{_SPELLED[name]}(...)"
        elif name.startswith("rand"):
            fix = "Draw numbers with NumPy, np.random.default_rng(seed).normal(size=n)"
        raise MissingAttributeError(f"ftrans.{home} has no attribute {name!r}.\n  {fix}.")

    return missing
