"""Where arrays are created: they are NumPy's, unless a device of JAX's is asked for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ftrans.errors import ArgumentError
from ftrans.runtime.jaxlink import x64

_default: Any = None


def get_default_device() -> Any:
    """Returns where creation functions put arrays: None for NumPy's, which they make at first.

    Example:
        >>> get_default_device() is None
        True
    """
    return _default


def set_default_device(device: Any) -> None:
    """Sets where creation functions of `ftrans.numpy` put arrays that are said no device.

    At first they make NumPy arrays, which the CPU computes with. On an accelerator set it once, so
    that what is created lies there. What a traced function creates belongs to its program, which
    runs where the arguments of the function lie; and what is made of an array, as by `zeros_like`,
    follows that array.

    Args:
        device: a `jax.Device`, a `jax.sharding.Sharding`, or the name of a platform, "cpu", "gpu"
            or "tpu", for the first device of it; None for NumPy arrays.

    Raises:
        ArgumentError: for anything else, and where there is no such platform.

    Example:
        >>> import ftrans.numpy as fnp
        >>> set_default_device("cpu")
        >>> fnp.zeros(2)
        Array([0., 0.], dtype=float32)
        >>> set_default_device(None)
        >>> fnp.zeros(2)
        array([0., 0.], dtype=float32)
    """
    global _default
    _default = _place(device)


def _place(device: Any) -> Any:
    """Returns the device or sharding that is meant, or None."""
    if device is None or isinstance(device, (jax.Device, jax.sharding.Sharding)):
        return device
    if not isinstance(device, str):
        raise ArgumentError(
            f"A device is a jax.Device, a jax.sharding.Sharding or the name of a platform.\n"
            f"  device: {device!r:.60} ({type(device).__name__})\n"
            f"  Write device=jax.devices()[0], or device='cpu'; device=None asks for none."
        )
    try:
        return jax.local_devices(backend=device)[0]
    except RuntimeError:
        there = sorted({d.platform for d in jax.local_devices()} | {"cpu"})
        raise ArgumentError(
            f"JAX finds no device of this platform.\n  device: {device!r}\n"
            f"  Write {' or '.join(f'device={name!r}' for name in there)}."
        ) from None


def placed(x: Any, device: Any = None) -> Any:
    """Returns an array that lies on a device, or, where none is asked for, on the default one.

    An array of JAX moves only where it is asked for.
    """
    place = _place(device)
    if place is None:
        place = None if isinstance(x, jax.Array) else _default
    if place is None:
        return x
    with x64():
        # JAX may go on to read a NumPy array where it lies
        return jax.device_put(np.array(x) if isinstance(x, np.ndarray) else x, place)
