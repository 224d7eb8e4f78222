"""Keeps ftrans's own frames out of the tracebacks that users read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from ftrans.config import config
from ftrans.errors import FtransError

__all__ = ["boundary"]

P = ParamSpec("P")
T = TypeVar("T")

_EXPECTED = (FtransError, TypeError, ValueError, IndexError, OverflowError)


def boundary(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps a public function so that errors leave it without the frames of ftrans.

    What looks like a fault of ftrans itself keeps them, and so does everything while
    `ftrans.config.traceback` is "full".
    """

    @functools.wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if config.traceback == "short":
                kept, ours = _split(error.__traceback__)
                if isinstance(error, _EXPECTED) or not ours:
                    error.__traceback__ = kept
            if isinstance(error, ValueError) and "read-only" in str(error):
                _explain_read_only(error)
            raise

    return entered


_READ_ONLY = (
    "ftrans: arrays that a traced function uses are read-only until it returns, since they are "
    "read when its program runs.\nWrite into a copy instead: b = a.copy()."
)


def _explain_read_only(error: ValueError) -> None:
    if _READ_ONLY not in getattr(error, "__notes__", ()):
        error.add_note(_READ_ONLY)


def _split(entry: TracebackType | None) -> tuple[TracebackType | None, bool]:
    """Returns the entries of a traceback that are not of ftrans, and whether the last one is."""
    foreign: list[TracebackType] = []
    ours = False
    while entry is not None:
        name = entry.tb_frame.f_globals.get("__name__", "")
        ours = name == "ftrans" or name.startswith("ftrans.")
        if not ours:
            foreign.append(entry)
        entry = entry.tb_next
    kept = None
    for item in reversed(foreign):
        kept = TracebackType(kept, item.tb_frame, item.tb_lasti, item.tb_lineno)
    return kept, ours
