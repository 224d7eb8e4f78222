"""Interrupts while compiled code runs that calls Python: they wait where they would be lost.

Python looks for signals where a function begins, before the first `try` of its body. What is raised
there in a function that C calls goes to C, which drops it: a loop would go on with results that
nobody has written; and while XLA is running, that is where most interrupts are noticed. So there
they are put off, until the `try` is reached or the program has ended.
"""

from __future__ import annotations

# The public module spends microseconds on making members of enums.
import _signal  # type: ignore[import]
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

entries: set[CodeType] = set()
"""The code of the functions that C calls."""

_waiting: list[Callable[[int, FrameType | None], Any]] = []
"""The handlers of interrupts that were put off."""

_main = threading.main_thread().ident


def begin() -> Any:
    """Puts interrupts off from now on; returns what `end` is to be given."""
    if threading.get_ident() != _main:
        return None  # signals are handled in the main thread
    other: Any = _signal.getsignal(_signal.SIGINT)
    if not callable(other):
        return None

    def patient(number: int, frame: FrameType | None) -> None:
        """Leaves interrupts to the other handler, but where they would be lost."""
        if frame is not None and frame.f_code in entries:
            _waiting.append(other)
        else:
            other(number, frame)

    _signal.signal(_signal.SIGINT, patient)
    return patient, other


def end(begun: Any) -> None:
    """Ends that, and raises what is left."""
    if begun is not None:
        patient, other = begun
        if _signal.getsignal(_signal.SIGINT) is patient:
            _signal.signal(_signal.SIGINT, other)
        raise_waiting()


def raise_waiting() -> None:
    """Raises what was put off."""
    while _waiting and threading.get_ident() == _main:
        _waiting.pop()(_signal.SIGINT, None)
