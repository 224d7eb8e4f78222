"""What is traced in this thread: the stack of frames, and the place that equations are given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ftrans.ir.location import Location, here

if TYPE_CHECKING:
    from ftrans.ir.frame import Frame

F = TypeVar("F", bound="Frame")


class _State(threading.local):
    stack: list[Frame]
    place: tuple[Location | None] | None
    """The location that interpreters give to what they record; None to look at the Python stack."""
    trail: Frame | None
    """The innermost frame, where it is a `Trail` in which the user's own code records."""

    began: float | None
    """When the outermost trace began whose program is not run yet."""

    examples: bool
    """Whether inputs that have no value are evaluated by an example of one."""

    has_value: Callable[[Any], bool] | None
    """Tells which of the arrays outside may be asked for their values; None for all."""

    by_jax: bool
    """Whether JAX is known to trace what is closed over, though it may be seen later."""

    falls_short: bool
    """Whether a rule was called with fewer rules inside it than JAX may ask for."""

    def __init__(self) -> None:
        self.by_jax = False
        self.falls_short = False
        self.examples = False
        self.has_value = None
        self.stack = []
        self.place = None
        self.trail = None
        self.began = None


state = _State()


def is_tracing() -> bool:
    """Tells whether this thread is inside a traced function."""
    return bool(state.stack)


def current_frame() -> Frame | None:
    """Returns the innermost frame of this thread."""
    return state.stack[-1] if state.stack else None


@contextmanager
def opened(frame: F) -> Iterator[F]:
    """Pushes a frame of an interpreter for the length of the block, whatever happens in it."""
    stack, trail = state.stack, state.trail
    depth = len(stack)
    try:
        state.trail = None
        frame.push()
        yield frame
    finally:
        # By depth: an interrupt between two frames cannot leave one of them open.
        del stack[depth:]
        state.trail = trail
        try:
            frame.release()
        finally:
            # once more, in case that an interrupt came between; what is done is not done again
            frame.release()


@contextmanager
def untraced() -> Iterator[None]:
    """Lets a block run as outside of all that is traced at present."""
    before = state.stack, state.place, state.trail, state.began
    state.stack, state.place, state.trail, state.began = [], None, None, None
    try:
        yield
    finally:
        state.stack, state.place, state.trail, state.began = before


class Placing:
    """Sets the location of what is recorded, step by step, and restores the former one at the end.

    A loop over equations enters it once and calls `move` for each of them.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> Placing:
        self._before = state.place, state.trail
        state.trail = None
        return self

    def move(self, location: Location | None) -> None:
        """Gives `location` to what is recorded from now on."""
        state.place = (location,)

    def __exit__(self, *exc: object) -> None:
        state.place, state.trail = self._before


def recording_place() -> Location | None:
    """Returns the location that is given to what is recorded now."""
    return here() if state.place is None else state.place[0]
