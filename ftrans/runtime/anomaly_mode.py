"""Anomaly mode: what makes a NaN raises, and says where it was recorded."""

from __future__ import annotations

import warnings
from contextlib import ContextDecorator

from ftrans.config import config
from ftrans.ir.stack import state


class set_detect_anomaly:
    """Turns anomaly mode on or off at once; as a block, for the length of that.

    In this mode a run that returns a NaN, as a value or as a gradient, raises; with tensors, and
    under all transforms. The error names the operation that was the first to make one, and the line
    on which it was recorded. The mode is that of all threads.

    Args:
        mode: whether it is on.
        check_nan: whether a NaN raises.

    Raises:
        AnomalyError: where a NaN is made.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([-1.0], requires_grad=True)
        >>> with set_detect_anomaly(True):
        ...     x.sqrt().sum().backward()
        Traceback (most recent call last):
        ...
        ftrans.errors.AnomalyError: Function 'SqrtBackward0' returned nan values in its 0th output.
        ...
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._before = _mode
        _set(bool(mode), check_nan)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        try:
            if config.check_nan and state.tape and not state.stack and error[0] is None:
                state.tape.flush()  # what the block has recorded is run in it, and looked at
        finally:
            _set(*self._before)


class detect_anomaly(ContextDecorator):
    """Is `set_detect_anomaly(True, check_nan)` as a block or a decorator, with a warning."""

    def __init__(self, check_nan: bool = True):
        self._check_nan = check_nan
        self._blocks: list[set_detect_anomaly] = []
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._blocks.append(set_detect_anomaly(True, self._check_nan))

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().__exit__(*error)


_mode = (False, True)


def _set(mode: bool, check_nan: bool) -> None:
    global _mode
    _mode = mode, check_nan
    config.check_nan = mode and check_nan


def is_anomaly_enabled() -> bool:
    """Tells whether anomaly mode is on."""
    return _mode[0]


def is_anomaly_check_nan_enabled() -> bool:
    """Tells whether a NaN raises in anomaly mode."""
    return _mode[1]
