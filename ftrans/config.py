"""Settings: the default dtype, how programs are run, and whether every program is checked.

Each is read when it is used, so that a change takes effect with the next call.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, Literal, get_args

import numpy as np

Execution = Literal["auto", "measured", "compile", "interpret"]
Lowering = Literal["auto", "splice", "replay"]
HostCalls = Literal["auto", "ffi", "callback"]
PINNED = ("compile", "interpret")
"""The roads that `execution` may pin."""

_WORDS = {
    "execution": get_args(Execution),
    "lowering": get_args(Lowering),
    "host_calls": get_args(HostCalls),
}
"""The settings that are one of some words."""


def default_cache_dir() -> str | None:
    """Returns a directory among the user's caches, or None where there are none."""
    home = os.path.expanduser("~")
    if home in ("~", "/") or not os.path.isabs(home):
        return None
    of_system = {"darwin": f"{home}/Library/Caches", "win32": os.environ.get("LOCALAPPDATA")}
    named = os.environ.get("XDG_CACHE_HOME", "")  # which counts where it is absolute
    caches = named if os.path.isabs(named) else of_system.get(sys.platform)
    return os.path.join(caches or f"{home}/.cache", "ftrans")


class _Config:
    """Holds the settings, each an attribute.

    Attributes:
        execution: "auto" interprets what is cheap or seldom seen and compiles the rest, by
            estimates alone, so that all processes do alike. "measured" goes by what runs take, and
            compiles in another thread while calls go on: sooner fast, but which call is the first
            compiled one depends on timing. "compile" and "interpret" pin the choice.
        lowering: how programs become JAX's before they are compiled. "splice" copies jaxprs of
            single equations together; "replay" traces them by `jax.numpy`, which takes longer;
            "auto" splices where the release of JAX takes it. What is compiled already stays.
        host_calls: how compiled code calls Python functions. "ffi" has XLA call them on the CPU
            without JAX; "callback" goes through `jax.pure_callback`, which takes five times as long
            and works everywhere; "auto" takes the former where it works.
        check: whether every program is checked before it is run, and what is taken over from an
            earlier call is traced anew and compared; on where the environment variable
            FTRANS_CHECK is "1".
        check_nan: whether a run that returns a NaN raises; see `autograd.detect_anomaly`.
        cache_entries: how many programs are remembered.
        cache_bytes: how many bytes of compiled code are.
        compilation_cache_dir: where compiled code is kept between processes that took more than
            half a second to compile; None for nowhere. At first it is what the environment variable
            FTRANS_CACHE_DIR names, nowhere if that is empty, else a directory among the user's
            caches.
        fold: whether what repeats in a traced program, as the turns of a Python loop do, is folded
            into loops and blocks, which are transformed and compiled once. Off: Jacobians of what
            works element by element, and maps of loops with much data, would cost more.
        skip_python: whether a call of a transform leaves out its function, where that is proven to
            do what it did before.
        traceback: "short" hides ftrans's own frames from tracebacks, "full" shows them; full
            where the environment variable FTRANS_TRACEBACK says so.
    """

    def __init__(self) -> None:
        self.execution: Execution = "auto"
        self.check_nan = False
        self.lowering: Lowering = "auto"
        self.host_calls: HostCalls = "auto"
        self.check: bool = os.environ.get("FTRANS_CHECK", "") == "1"
        self.cache_entries: int = 4096
        self.cache_bytes: int = 1 << 30
        self.fold: bool = False
        self.skip_python: bool = True
        named = os.environ.get("FTRANS_CACHE_DIR")
        self.compilation_cache_dir: str | os.PathLike[str] | None = (
            default_cache_dir() if named is None else named or None
        )
        self.traceback: Literal["short", "full"] = (
            "full" if os.environ.get("FTRANS_TRACEBACK") == "full" else "short"
        )
        self.default_dtype: np.dtype = np.dtype("float32")

    def __setattr__(self, name: str, value: Any) -> None:
        words = _WORDS.get(name)
        if words and value not in words:
            raise ValueError(f"config.{name}: {value!r} is none of {', '.join(words)}.")
        if name == "compilation_cache_dir" and not isinstance(
            value, (str, os.PathLike, type(None))
        ):
            raise ValueError(f"config.{name}: {value!r} is no path, and not None.")
        super().__setattr__(name, value)


config = _Config()
"""The settings of this process."""


def get_default_dtype() -> np.dtype:
    """Returns the dtype that creation functions give to real numbers; float32 at first.

    Example:
        >>> get_default_dtype()
        dtype('float32')
    """
    return config.default_dtype


def set_default_dtype(dtype: Any) -> None:
    """Sets the dtype that creation functions give to real numbers.

    Integers follow: int64 beside float64, int32 otherwise.

    Args:
        dtype: a real floating-point dtype.

    Raises:
        TypeError: for any other dtype.
    """
    import ml_dtypes

    new = np.dtype(dtype)
    if new.kind != "f" and new != np.dtype(ml_dtypes.bfloat16):
        raise TypeError(f"set_default_dtype: {new} is not a real floating-point dtype.")
    if new == np.float64:
        # ftrans is always imported with JAX; only this warning would make the settings import it
        jax = sys.modules.get("jax")
        if jax is not None and not jax.config.read("jax_enable_x64"):
            warnings.warn(
                "ftrans computes in float64 from now on, but JAX's own x64 flag is off: JAX "
                "functions that take the results fall to float32. To switch it on, write "
                "jax.config.update('jax_enable_x64', True).",
                stacklevel=2,
            )
    config.default_dtype = new
