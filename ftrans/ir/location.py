"""Where in the user's source an equation comes from: kept cheaply, looked up when printed."""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType

from ftrans.traceback import LIBRARIES

__all__ = ["Location", "forget_locations", "here", "user_frame"]


class Location:
    """Is one position in a code object; one object per position, so that equality is identity.

    Attributes:
        code: the code object of the user's function.
        offset: the index of the instruction within it.
    """

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int):
        self.code = code
        self.offset = offset

    @property
    def filename(self) -> str:
        """The path of the source file, as Python knows it."""
        return self.code.co_filename

    @property
    def function(self) -> str:
        """The qualified name of the function."""
        return self.code.co_qualname

    @property
    def line(self) -> int:
        """The number of the line, counted from 1."""
        for start, stop, line in self.code.co_lines():
            if start <= self.offset < stop and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def source(self) -> str:
        """The text of the line, stripped; empty where the source is not to be had."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} ({self.function})"

    def __repr__(self) -> str:
        return f"<{self}>"


# What is handed to one of these, as in jax.tree.map(fnp.sin, x), is called from the user's line.
_PASSED_OVER = LIBRARIES | {"ftrans"}

# Keyed by the identity of the code object, which the Location keeps alive.
_locations: dict[tuple[int, int], Location] = {}


def user_frame() -> FrameType | None:
    """Returns the innermost Python frame that runs code of neither ftrans nor its libraries."""
    frame = sys._getframe(1)
    while frame is not None:
        if (frame.f_globals.get("__name__") or "").partition(".")[0] not in _PASSED_OVER:
            return frame
        frame = frame.f_back
    return None


def here() -> Location | None:
    """Returns the location in the user's code that is running now."""
    frame = user_frame()
    if frame is None:
        return None
    key = (id(frame.f_code), frame.f_lasti)
    location = _locations.get(key)
    if location is None:
        location = _locations.setdefault(key, Location(frame.f_code, frame.f_lasti))
    return location


def forget_locations() -> None:
    """Lets go of the code objects of all locations that no program refers to."""
    _locations.clear()
