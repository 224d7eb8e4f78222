"""Where arrays are created: they are NumPy's, unless a device of JAX's is asked for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ftrans.errors import ArgumentError
from ftrans.runtime.jaxlink import is_traced_by_jax, x64

_default: Any = None


class Device(str):
    """Is the name of where an array lies, with PyTorch's parts: "cpu", "cuda:1".

    Example:
        >>> Device("cuda", 1).type, Device("cuda:1").index
        ('cuda', 1)
    """

    __slots__ = ()

    def __new__(cls, type: str, index: int | None = None) -> Device:
        """Returns the device of a type, such as "cuda", with an index or with one in its name."""
        return super().__new__(cls, type if index is None else f"{type}:{index}")

    @property
    def type(self) -> str:
        """The platform."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which one of its platform; None for the first."""
        number = self.partition(":")[2]
        return int(number) if number else None


CPU = Device("cpu")


def device_of(x: Any) -> Device:
    """Returns the name of the device that an array lies on; "cpu" for those of NumPy."""
    if type(x) is np.ndarray or not isinstance(x, jax.Array) or is_traced_by_jax(x):
        return CPU
    found = min(x.devices(), key=lambda device: device.id)
    if found.platform == "cpu":
        return CPU
    kind = "cuda" if found.platform == "gpu" else found.platform
    return Device(kind, jax.local_devices(backend=found.platform).index(found))


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
            or "tpu", for the first device of it, "gpu:1" for the second; None for NumPy arrays.

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
        return jax.local_devices(backend=Device(device).type)[Device(device).index or 0]
    except (RuntimeError, IndexError, ValueError):
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
