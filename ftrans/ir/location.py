"""Where in the user's source an equation comes from: kept cheaply, looked up when printed."""

from __future__ import annotations

import dis
import linecache
import sys
import warnings
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from ftrans.traceback import LIBRARIES


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


class Called(Location):
    """Is the location of all equations that one call of a function recorded.

    Attributes:
        name: that of the function.
        turn: tells calls from the same place apart that follow each other, as in a loop.
        size: how many values it recorded.
        returned: which of these it returned, in order.
    """

    __slots__ = ("name", "returned", "size", "turn")

    def __init__(self, location: Location, *about: Any):
        super().__init__(location.code, location.offset)
        self.name, self.turn, self.size, self.returned = about


# What is handed to one of these, as in jax.tree.map(fnp.sin, x), is called from the user's line.
_PASSED_OVER = LIBRARIES | {"ftrans"}

# Keyed by the identity of the code object, which the Location keeps alive.
_locations: dict[tuple[Any, ...], Any] = {}
_MOST = 100_000

passed_over: dict[str, bool] = {}
"""Whether the code of a file is passed over: one lookup for each Python frame of a call."""


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """Returns the innermost Python frame that runs code of neither ftrans nor its libraries.

    Args:
        frame: where to begin; None for the caller.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        passed = passed_over.get(frame.f_code.co_filename)
        if passed is None:
            passed = is_passed_over(frame)
        if not passed:
            return frame
        frame = frame.f_back
    return None


def user_place(frame: FrameType | None = None) -> tuple[int, int]:
    """Returns the identity of the user's code that is running now, and the instruction in it."""
    frame = user_frame(frame)
    return (0, 0) if frame is None else (id(frame.f_code), frame.f_lasti)


def warn_user(text: str, category: type[Warning]) -> None:
    """Warns of the line of the user's that runs, once, as Python does it by default."""
    frame: Any = user_frame()
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, *where, registry)


def is_passed_over(frame: FrameType) -> bool:
    """Tells it by the name of the module, and remembers it where the file has only one."""
    name = frame.f_globals.get("__name__") or ""
    passed = name.partition(".")[0] in _PASSED_OVER
    filename = frame.f_code.co_filename
    if not filename.startswith("<"):  # "<string>" is the file of many a module
        if len(passed_over) > 4096:
            passed_over.clear()
        passed_over[filename] = passed
    return passed


_PRECALL, _CALL = map(dis.opmap.get, ("PRECALL", "CALL"))


@lru_cache(4096)
def twin_of(code: CodeType, offset: int) -> int | None:
    """Returns where else a call may be at the same place; None where there is no such.

    Python 3.11 calls what is written in C, like `sum`, by one instruction at first, and by the one
    before once the code was run a few times.
    """
    if _PRECALL is None:
        return None
    code_of, step = code.co_code, 4  # each has two bytes, and as many to remember something in
    if code_of[offset] == _PRECALL:
        return offset + step
    is_call = code_of[offset] == _CALL and offset >= step and code_of[offset - step] == _PRECALL
    return offset - step if is_call else None


def here(frame: FrameType | None = None) -> Location | None:
    """Returns the location in the user's code that is running now, or from which `frame` was."""
    frame = user_frame(frame)
    return None if frame is None else location_of(frame.f_code, frame.f_lasti)


def location_of(code: CodeType, offset: int) -> Location:
    """Returns the one location for an instruction."""
    key = (id(code), offset)
    location = _locations.get(key)
    if location is None:
        if len(_locations) >= _MOST:
            _locations.clear()  # locations in use live on; the next ones are other objects
        location = _locations.setdefault(key, Location(code, offset))
    return location


def place_call(steps: Any, start: int, name: str, stop: int, codes: list[int]) -> None:
    """Gives all steps of a call that are new the one location of it.

    Args:
        steps: what is recorded so far.
        start: how many of these are not of the call.
        name: that of the function.
        stop: the value after its last one.
        codes: the values that it returned.
    """
    called, place, first = steps[start].location, steps[-1].location, steps[start].code
    if type(called) is not Called or called.name != name:  # else another call began alike
        before: Any = steps[start - 1].location if start else None
        again = type(before) is Called and before.code is place.code
        turn = again and before.offset == place.offset and not before.turn
        returned = tuple([code - first for code in codes if code >= first])
        key = (id(place.code), place.offset, name, turn, stop - first, returned)
        called = _locations.get(key)
        if called is None:
            called = _locations.setdefault(key, Called(place, *key[2:]))
    for step in steps[start:]:
        if type(step.location) is Location:
            step.location = called


def forget_locations() -> None:
    """Forgets the locations, and with them the code of functions that are gone."""
    _locations.clear()
