"""PyTorch's settings: of how tensors are shown, and those that have no effect here."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ftrans.config import set_default_dtype
from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.numpy import torch_kinds
from ftrans.traceback import boundary


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Says how tensors are shown, by `numpy.set_printoptions`: so arrays are shown like that too.

    Args:
        precision: how many digits stand behind the point.
        threshold: of how many elements on only some are shown.
        edgeitems: how many of these, on either side.
        linewidth: how many characters a line has.
        profile: "default", "short" or "full", which all that is not given is as of.
        sci_mode: whether numbers have exponents; None for where they are large or small.
    """
    profiles = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, np.inf, 3, 80)}
    if profile not in (None, *profiles):
        raise ArgumentError(
            f"set_printoptions: there is no profile {profile!r}.\n"
            f"  Write one of {', '.join(map(repr, profiles))}."
        )
    given = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems,
        "linewidth": linewidth,
    }  # fmt: skip
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if profile is not None:
        options = dict(zip(given, profiles[profile], strict=True)) | options
    if options.get("threshold") == np.inf:
        options["threshold"] = sys.maxsize
    digits = options.get("precision", np.get_printoptions()["precision"])
    shown: Any = {"float_kind": lambda x: f"{x:.{digits}e}"} if sci_mode else None
    np.set_printoptions(**options, formatter=shown, suppress=sci_mode is False)


def _ignored(*args: Any, **kwargs: Any) -> None:
    """Has no effect here: there is nothing to set."""


def autocast(device_type: Any = None, dtype: Any = None, enabled: bool = True, **_: Any) -> Any:
    """Is a scope in which nothing is cast, if it is not enabled.

    Raises:
        UnsupportedError: where it is.
    """
    if enabled:
        raise UnsupportedError(
            "autocast: operations compute in the types of their operands.\n"
            "  Write x.to(torch.float16) where that is wanted, or leave the line out."
        )
    return _as_ever()


@contextlib.contextmanager
def _as_ever() -> Iterator[None]:
    yield


def as_it_is(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Decorates the methods of a `Function` with what they do where nothing is cast: nothing."""
    return (lambda given: given) if function is None else function


AMP: dict[str, Any] = {
    "autocast": boundary(autocast), "custom_fwd": as_it_is, "custom_bwd": as_it_is,
}  # fmt: skip
"""Names of `torch.amp`, and of `torch.cuda.amp`."""

CHECKPOINTS: dict[str, Any] = dict.fromkeys(
    ("set_checkpoint_early_stop", "set_checkpoint_debug_enabled"), lambda enable: _as_ever()
)
"""Names of `torch.utils.checkpoint`: blocks without effect."""

_IGNORED = """
    set_num_threads set_num_interop_threads use_deterministic_algorithms
    set_float32_matmul_precision set_flush_denormal
"""
SETTINGS: dict[str, Any] = {
    **dict.fromkeys(_IGNORED.split(), _ignored),
    "get_num_threads": lambda: os.cpu_count() or 1,
    "set_default_tensor_type": lambda t: set_default_dtype(torch_kinds.dtype_of(t)),
    "set_printoptions": boundary(set_printoptions),
    "autocast": AMP["autocast"],
    "is_autocast_enabled": lambda device_type=None: False,
    "typename": torch_kinds.typename,
    "newaxis": None,
    "contiguous_format": "torch.contiguous_format",
    "preserve_format": "torch.preserve_format",
    "channels_last": "torch.channels_last",
    "channels_last_3d": "torch.channels_last_3d",
    "strided": "torch.strided",
}
"""Settings, and names that are asked for or said, but say nothing of tensors here."""
