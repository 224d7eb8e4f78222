"""What is traced in this thread: the frames, what they ask of rules, the place of equations."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ftrans.ir.location import Location, here
from ftrans.traceback import after_interrupts

if TYPE_CHECKING:
    from ftrans.ir.frame import Frame

F = TypeVar("F", bound="Frame")

PAST = sys.maxsize
"""The depth of a frame that is no more: a tape that was run, or what holds a value of another."""


class Asks(NamedTuple):
    """Is what a frame asks of the custom rules that are called in it, and in frames inside.

    Attributes:
        order: how many derivatives of them are wanted, in halves: `REVERSE` and `FORWARD` say what
            a transform adds. Inside a `backward` it is 2 less, inside a `jvp` 1, which may be
            transposed. Not positive where no rule is traced.
        only_reverse: whether nothing but gradients is asked for, so that a `backward` is enough.
        randomness: what the innermost `vmap` was told of randomness.
        by_jax: whether JAX may differentiate the whole besides, which says nothing of that.
        axes: the names of the axes that it is traced along, with their sizes, the innermost last.
    """

    order: int = 0
    only_reverse: bool = True
    randomness: str = "error"
    by_jax: bool = False
    axes: tuple[tuple[Hashable, int], ...] = ()

    def fewer(self, count: int) -> Asks:
        """Returns the same for so many halves of a derivative less."""
        return self._replace(order=self.order - count)


NOTHING = Asks()
REVERSE = 2
FORWARD = 4  # forward mode may transpose a rule that it goes through
_BY_JAX = 8


def asks() -> Asks:
    """Returns what is asked of a rule that is called now."""
    found = state.stack[-1].asks if state.stack else NOTHING
    if not state.by_jax:
        state.asked = True
    elif not found.by_jax:
        return _asks_by_jax(found)
    return found


@functools.lru_cache(maxsize=256)
def differentiated(outside: Asks, order: int) -> Asks:
    """Returns what is asked inside of a transform that adds to the order."""
    reverse = outside.only_reverse and order <= REVERSE
    return outside._replace(order=outside.order + order, only_reverse=reverse)


@functools.lru_cache(maxsize=256)
def _asks_by_jax(found: Asks) -> Asks:
    return found._replace(order=found.order + _BY_JAX, only_reverse=False, by_jax=True)


class _State(threading.local):
    stack: list[Frame]
    place: tuple[Location | None] | None
    """The location that interpreters give to what they record; None to look at the Python stack."""
    trail: Frame | None
    """The innermost frame, where it is a `Trail` in which the user's own code records."""

    began: float | None
    """When the outermost trace began whose program is not run yet."""

    folds: tuple[Any, ...]
    """What was folded in it."""

    examples: bool
    """Whether inputs that have no value are evaluated by an example of one."""

    has_value: Callable[[Any], bool] | None
    """Tells which of the arrays outside may be asked for their values; None for all."""

    by_jax: bool
    """Whether what is traced depends on values that JAX is tracing, as far as it was seen."""

    asked: bool
    """Whether a rule was called before that was seen."""

    tape: Any
    """The frame in which operations on tensors are recorded, below all others; None at first."""

    grad: bool
    """Whether what is recorded there is to be differentiated."""

    grad_mode: bool
    """Whether that is so outside of inference mode: what a user has asked for."""

    inference: bool
    """Whether tensors that are made are to take part in no derivative."""

    of_tensors: bool
    """Whether what is traced stands for tensors, so that its methods mean what theirs do."""

    demanded: int
    """How often a value was asked for, or drawn, while it was traced."""

    unseen: int
    """How many operations on tensors were computed at once since a value was looked at."""

    ran: Any
    """The program that the outermost call ran, and on what, where that is asked for; or None."""

    beside: Any
    """Takes what is computed of arguments beside a trace, see `func/beside.py`; or None."""

    held: Any
    """Notes what is traced while it is not, see `runtime/outlived.py`; None outside of that."""

    modes: list[Any]
    """The grad modes that were entered, with what was before each."""

    saving: tuple[Any, ...]
    """The hooks for what tensors save for a backward, the outermost first."""

    unsaving: str | None
    """Why there must be none, if there must not."""

    def __init__(self) -> None:
        self.by_jax = False
        self.asked = False
        self.examples = False
        self.has_value = None
        self.stack = []
        self.place = None
        self.trail = None
        self.began = None
        self.folds = ()
        self.tape = None
        self.grad = self.grad_mode = True
        self.inference = self.of_tensors = False
        self.demanded = self.unseen = 0
        self.ran = None
        self.beside = None
        self.held = None
        self.modes = []
        self.saving = ()
        self.unsaving = None

    def for_this_call(self) -> None:
        """Notes that what is traced is for this call alone: it draws, or knows a value."""
        self.demanded += 1
        for frame in self.stack:
            frame.demands += 1


state = _State()


def is_tracing() -> bool:
    """Tells whether this thread is inside a traced function."""
    return bool(state.stack)


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
        if state.stack is stack:  # not so where this was interrupted, and is ended late
            state.trail = trail
        try:
            frame.release()
        finally:
            # once more, in case that an interrupt came between; what is done is not done again
            frame.release()


_OUTSIDE = {"place": None, "trail": None, "began": None, "folds": ()}
_OUTSIDE |= {"by_jax": False, "asked": False}


def _settle() -> None:
    """Closes all frames, where nothing is to be traced any more."""
    stack, state.stack = state.stack, []
    state.__dict__.update(_OUTSIDE)
    for frame in reversed(stack):
        frame.release()


after_interrupts.append(_settle)


class untraced:
    """Lets a block run as outside of all that is traced at present."""

    __slots__ = ("_before",)
    _outside = _OUTSIDE

    def __enter__(self) -> None:
        held = state.__dict__  # one look-up for all that this thread has
        self._before = held.copy()
        held.update(self._outside, stack=[])

    def __exit__(self, *exc: object) -> None:
        held, before = state.__dict__, self._before
        tape = before["tape"] if "tape" in self._outside else held["tape"]
        # it may have been run in the block, where somebody asked for a value
        before["tape"] = None if tape is not None and tape.depth == PAST else tape
        held.update(before)


class apart(untraced):
    """Lets a block of the user's run so, with a tape of its own, which may be run and ended."""

    __slots__ = ()
    _outside = _OUTSIDE | {"tape": None}


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
