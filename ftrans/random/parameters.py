"""What generators make of the parameters that users pass: numbers, arrays, lists and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.numpy.creation import asarray
from ftrans.numpy.promotion import is_scalar, result_type
from ftrans.random.distributions import is_weak, parameter
from ftrans.random.keys import shape_of
from ftrans.traceback import OnTape


def listed(x: Any) -> Any:
    """Returns a list as an array, and all else as it is."""
    if type(x) in OnTape.types:
        raise OnTape
    return asarray(x) if isinstance(x, (list, tuple)) else x


def dtype_for(*parameters: Any) -> Any:
    """Returns the dtype of what is drawn with these parameters; None for the default one."""
    arrays = [x for x in parameters if not is_weak(x)]
    return result_type(*arrays) if arrays else None


def fitted(name: str, size: Any, whole: bool = False, **parameters: Any) -> tuple[Any, ...]:
    """Returns the shape of a draw, and its parameters as numbers or arrays.

    Args:
        name: that of the method, for errors.
        size: what was asked for; None for what the parameters broadcast to.
        whole: whether they may be integers.
        **parameters: what was passed.

    Raises:
        ShapeError: where the parameters do not broadcast, or not to the size.
    """
    found = [parameter(name, label, x, whole) for label, x in parameters.items()]
    types = [type_of(x) for x in found if not is_scalar(x)]
    wanted = None if size is None else shape_of(name, "size", size)
    try:
        shape = np.broadcast_shapes(*[t.shape for t in types])
        fits = wanted is None or np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        shape, fits = (), False
    if not fits:
        raise ShapeError(
            f"{name}: the parameters do not broadcast{'' if wanted is None else ' to the size'}.\n"
            + f"  parameters: {', '.join(map(str, types))}\n"
            + ("" if wanted is None else f"  size: {wanted}\n")
            + "  Leave the size out for the shape of the parameters, or give them axes: x[:, None]."
        )
    return (shape if wanted is None else wanted), *found


def as_own(x: Any) -> Any:
    """Returns a scalar of NumPy's as an array."""
    return np.asarray(x) if isinstance(x, np.generic) else x
