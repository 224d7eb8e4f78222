"""Functions of arrays that are there, run at once by the program that was traced for their types.

To record what they do, and to run it where its value is asked for, takes three times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.config import PINNED, config
from ftrans.errors import CheckError
from ftrans.ir import ArrayType, Program, Tracer, make_tracer, type_of
from ftrans.ir.dtype import NUMERIC
from ftrans.ir.leap import maker_of, results_of
from ftrans.ir.stack import state
from ftrans.ir.trail import Trail
from ftrans.numpy.bounds import looks
from ftrans.numpy.calls import add_argument
from ftrans.numpy.views import relation
from ftrans.primitives.observe import observing
from ftrans.runtime.cache import Remembered, keep
from ftrans.runtime.jaxlink import CONCRETE, host_view, is_jax_tracing, to_jax, x64
from ftrans.runtime.run import FEW, run_at_once

Function = Callable[..., Any]

_SEEN = 8
"""So often a function is called for what it is given, which takes as long as to trace it."""

_MANY = 16
"""Of so many settings of one function a program is made; those of others move from call to call."""


class Of(NamedTuple):
    """Says what stands for arrays: tensors, or they themselves.

    Attributes:
        kind: the type of that.
        type: returns the type of one.
        array: returns its array, or None where that is not there.
        begin: returns a frame of its own to trace in.
        made: returns what stands for an array of some type.
        eager: whether functions compute by themselves what they are given. Then only what recurs is
            traced.
    """

    kind: type
    type: Callable[[Any], ArrayType]
    array: Callable[[Any], np.ndarray | None]
    begin: Callable[[], Any]
    made: Callable[[np.ndarray, ArrayType], Any]
    eager: bool = False

    def takes(self, kind: type) -> bool:
        """Whether that is such, or may stand beside such: NumPy's arrays beside those of JAX."""
        return kind is self.kind or (kind is np.ndarray and self.eager)

    @property
    def own(self) -> bool:
        """Whether results are the caller's own, but for views, which are left to the function."""
        return self.kind is np.ndarray


class Ready(NamedTuple):
    """Is what a function does for arrays of some types.

    Attributes:
        program: computes its results, and behind these what else is looked at.
        kind: makes what it returns of a list of these; None where it returns the only one.
        checks: what is to hold of which array.
        after: what is to hold of what is computed behind the results.
        constants: arrays that it makes of its settings, which the program takes besides.
    """

    program: Program
    kind: Callable[[Any], Any] | None
    checks: Sequence[tuple[int, Callable[[Any], None]]]
    after: Sequence[Callable[[Any], None]]
    constants: Sequence[np.ndarray]

    @property
    def is_small(self) -> bool:
        """Whether NumPy computes it in little time, and calls nothing of the user's."""
        sizes = [t.size for equation in self.program.equations for t in equation.types]
        is_plain = not any(e.primitive.is_higher_order for e in self.program.equations)
        return is_plain and not self.program.holds_functions and sum(sizes) <= 4 * FEW

    def run(self, arrays: Sequence[np.ndarray], own: bool) -> list[np.ndarray]:
        """Returns the results for arrays, which they may share memory with unless they are own."""
        for place, holds in self.checks:
            holds(arrays[place])
        found = run_at_once(self.program, [*arrays, *self.constants], own)
        for holds in reversed(self.after):
            holds(found.pop())
        return found


_ONWARD, _SHORT = 32, 16
"""So many operations are computed at once that nobody looks at; what is recorded for a look that is
shorter than that could have been."""


def may_go_on() -> bool:
    """Tells whether one more operation is to be computed at once, as values are looked at.

    A chain that is looked at where it ends is recorded, and run as one.
    """
    state.unseen += 1
    return state.unseen <= _ONWARD


def looked_at(before: Any, array: Any) -> np.ndarray:
    """Returns an array that somebody looks at; `before` is it where it was there already."""
    if before is array:
        state.unseen = 0
    return np.asarray(array)


def looked_after(count: int) -> None:
    """Notes that somebody looks at what so many operations were recorded for."""
    if count < _SHORT:
        state.unseen = 0


_ready: Any = Remembered(4096)
"""What is ready for each call, None where nothing is; or how often it was seen so far."""

_settings = Remembered(1024)


def call_on(
    frame: Trail, function: Function, args: Any, kwargs: Any, of_tensors: bool = True
) -> Any:
    """Calls a function of values of a frame, the only one then; they may stand for tensors."""
    stack, outer, inner = state.stack, (state.trail, state.of_tensors), (frame.depth, frame.asks)
    try:
        frame.push()
        state.trail, state.of_tensors = frame, of_tensors
        return function(*args, **kwargs)
    finally:
        stack.clear()
        frame.depth, frame.asks = inner
        state.trail, state.of_tensors = outer


def at_once(
    function: Function, args: Any, kwargs: Any, by: tuple[Any, ...], of: Of
) -> list[Any] | Any:
    """Returns what a function returns of arrays that are there; None where it is to be recorded.

    Args:
        function: does no more than to record equations.
        args: its arguments.
        kwargs: those by name.
        by: where the function is made anew at each call, what it is made of.
        of: says what stands for arrays.
    """
    if config.execution in PINNED or config.check_nan or observing.by:
        return None
    key: list[Any] = [by[0] if by else function, of.kind, config.default_dtype, len(args), *kwargs]
    arrays: list[np.ndarray] = []
    for x in (*args, *kwargs.values()):
        if not _add(key, arrays, x, of):
            return None
    if not arrays or not (len(by) < 2 or add_argument(key, None, by[1:])):
        return None
    call = tuple(key)
    found = _ready.get(call, 0)
    if type(found) is int and of.eager and found < _SEEN:
        _ready[call] = found + 1
        _ready.bound()
        return None
    ready: Any = found
    expected = None
    if type(found) is int or config.check:
        if of.eager:
            expected = function(*args, **kwargs)
        ready = _learnt(call, arrays, lambda: _traced(function, args, kwargs, of), of.own)
    if ready is None:
        return expected
    results = [*map(of.made, ready.run(arrays, of.own), ready.program.output_types)]
    if expected is not None:
        if maker_of(expected) != ready.kind or not _agree(results_of(expected), results):
            _ready[call] = None
        return expected
    return results[0] if ready.kind is None else ready.kind(results)


def _agree(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Tells whether results are those that a function returns by itself, NumPy's to the bit."""
    for x, y in zip(expected, found, strict=True):
        if type(x) is not type(y) or x.dtype != y.dtype or x.shape != y.shape:
            return False
        if type(x) is np.ndarray and not (
            x.strides == y.strides and np.array_equal(x, y, x.dtype.kind in "fc")
        ):
            return False
    return True


def _add(key: list[Any], arrays: list[np.ndarray], x: Any, of: Of) -> bool:
    """Adds an argument to the key of a call, and to its arrays; False where it is not there."""
    kind = type(x)
    if of.takes(kind):
        array = of.array(x)
        if array is None or array.size > FEW:
            return False
        key.append(of.type(x))
        arrays.append(array)
        return True
    if kind is tuple or kind is list:
        key += (kind, len(x))
        return all(_add(key, arrays, item, of) for item in x)
    return add_argument(key, None, x)


def _lowered(frame: Any, given: list[Tracer], x: Any, of: Of) -> Any:
    """Returns an argument with values of a frame in the place of arrays, which `given` gets."""
    if type(x) is tuple or type(x) is list:
        return type(x)([_lowered(frame, given, y, of) for y in x])
    if of.takes(type(x)):
        x = frame.input(of.type(x), of.array(x))
        given.append(x)
    return x


def _traced(function: Function, args: Any, kwargs: Any, of: Of) -> Ready | None:
    """Returns what a function does for arrays of these types; None where it does more."""
    given: list[Tracer] = []
    frame = of.begin()
    frame.closed = True  # so that a draw is refused before a generator has moved

    lowered = [_lowered(frame, given, x, of) for x in args]
    keywords = {name: _lowered(frame, given, x, of) for name, x in kwargs.items()}
    try:
        result = call_on(frame, function, lowered, keywords, not of.eager)
    except Exception:
        return None  # whoever records it is told
    results = results_of(result)
    is_pure = not frame.demands and [x.index for x in given] == [~i for i in range(len(given))]
    if not is_pure or any(type(x) is not Tracer or x.frame is not frame for x in results):
        return None
    if of.own and any(relation(x, y) != _NO_VIEW for x in results for y in given):
        return None
    if any(holds is looks for _, holds in frame.checks):
        return None
    later = [(make_tracer(frame, i, frame.type(i)), holds) for i, holds in frame.checks if i >= 0]
    program, operands = frame.close([*results, *[x for x, _ in later]])
    constants, checks = operands[len(given) :], [(~i, holds) for i, holds in frame.checks if i < 0]
    if any(type(x) is not np.ndarray for x in constants):
        return None
    after = [holds for _, holds in later]
    return Ready(keep(program), maker_of(result), checks, after, constants)


def _learnt(
    key: tuple[Any, ...],
    arrays: Sequence[np.ndarray],
    make: Callable[[], Ready | None],
    own: bool,
) -> Ready | None:
    """Returns what a function does; None where it is to be recorded.

    Args:
        key: the function, the types of the arrays, and all else that what it does depends on.
        arrays: the arrays.
        make: traces it; returns None where that shows that it looks at values, or has an effect.
        own: whether results are to share memory with nothing else.

    Raises:
        CheckError: under `config.check`, where it does something else than when it was traced.
    """
    found = _ready.get(key, 0)
    if type(found) is int:
        settings = _settings.find((key[0], *[(x.shape, x.dtype) for x in arrays]), set)
        if len(settings) >= _MANY:
            return None
        settings.add(key)
        made = make()
        found = _ready[key] = made if made is not None and made.is_small else None
        _ready.bound()
    elif config.check and found is not None and (again := make()) is not None:
        pairs = zip(found.run(arrays, own), again.run(arrays, own), strict=True)
        if again.kind != found.kind or not all(
            np.array_equal(x, y, x.dtype.kind in "fc") for x, y in pairs
        ):
            raise CheckError(
                f"{key[0]}: a function that was traced for these types does something else.\n"
                f"  It reads what is neither an argument of it nor a constant, and has changed."
            )
    return found  # type: ignore[no-any-return]


class _Apart(Trail):
    """Is a frame of values that stand for NumPy's arrays, which are given to what it makes.

    They are not held, as none is read after the function has returned.
    """

    __slots__ = ()

    def input(self, type: ArrayType, source: Any, weak: bool = False) -> Tracer:
        """Adds an input for an array."""
        self.step_to(type)
        self.input_types.append(type)
        self.sources.append(source)
        return make_tracer(self, ~(len(self.sources) - 1), type, weak)

    def capture(self, value: Any) -> Tracer:
        """Returns the input that stands for an array."""
        return self.input(type_of(value), value)

    def require(self, code: int, holds: Callable[[Any], None]) -> None:
        """Notes what is to hold of an array."""
        self.checks.append((code, holds))


def _begun() -> _Apart:
    frame = _Apart("arrays")
    frame.begin()
    return frame


def _known(x: np.ndarray) -> np.ndarray | None:
    return x if x.dtype in NUMERIC else None


def _handed_back(x: np.ndarray, _: ArrayType) -> Any:
    with x64():
        return to_jax(x)


_OF_ARRAYS = Of(np.ndarray, type_of, _known, _begun, lambda x, _: x, eager=True)
_NO_VIEW = (False, False, False)


def _viewed(x: Any) -> np.ndarray | None:
    return _known(x) if type(x) is np.ndarray else host_view(x, FEW)


@functools.cache
def _of_jax(kind: type) -> Of:
    return Of(kind, type_of, _viewed, _begun, _handed_back, eager=True)


def _of(x: Any) -> Of | None:
    """Returns what an argument says of the arrays that a function is given."""
    kind = type(x)
    if (kind is list or kind is tuple) and x:
        kind = type(x[0])
    if kind is np.ndarray:
        return _OF_ARRAYS
    return _of_jax(kind) if kind in CONCRETE and not is_jax_tracing() else None


def of_arrays(function: Function, args: Any, kwargs: Any) -> Any:
    """Returns what a function returns that is given arrays of NumPy's, or of JAX's, at once."""
    if not state.stack:
        of = None
        for x in args:
            of = _of(x) or of
            if of is not None and of is not _OF_ARRAYS:
                break  # with one of JAX's all are
        found = None if of is None else at_once(function, args, kwargs, (), of)
        if found is not None:
            return found
    return function(*args, **kwargs)
