"""From Python functions to programs: a frame opened, the outputs collected."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from sys import getrefcount
from time import perf_counter
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.errors import ArgumentError, StructureError, UnsupportedError
from ftrans.interpreters.fold import folded, folds_of
from ftrans.ir import Abstract, ArrayType, Params, Program, Tracer, bind
from ftrans.ir.frame import Frame, settled
from ftrans.ir.location import here
from ftrans.ir.source import Opaque
from ftrans.ir.stack import FORWARD, Asks, differentiated, opened, state
from ftrans.ir.trail import Trail
from ftrans.numpy.promotion import as_array, is_array, is_scalar, weakly
from ftrans.primitives import call_p, tied_p
from ftrans.pytree import Skeleton, describe, split
from ftrans.runtime import keep, note_trace, run
from ftrans.runtime.faults import raise_ours
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax
from ftrans.runtime.outlived import settle

F = TypeVar("F", bound=Callable[..., Any])


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name by which programs and errors call a function."""
    if type(function) is FunctionType and "__ftrans_name__" not in function.__dict__:
        name = function.__name__
        return "lambda" if name == "<lambda>" else name
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    name = getattr(function, "__ftrans_name__", name)
    return "lambda" if name == "<lambda>" else name


def named(function: F, name: str) -> F:
    """Gives a transformed function the name by which programs and errors call it: "grad(f)"."""
    function.__ftrans_name__ = name  # type: ignore[attr-defined]
    return function


class Staged(NamedTuple):
    """Is a traced function.

    Attributes:
        program: its inputs are those declared, then those captured.
        captured: the values that were captured.
        outputs: how the outputs make the result.
        weak: which outputs promote as Python scalars do, where anything is traced around it.
    """

    program: Program
    captured: list[Any]
    outputs: Skeleton
    weak: list[bool]

    def operands(self, inputs: Sequence[tuple[ArrayType, Any, bool]]) -> list[Any]:
        """Returns what the program takes: the values of these inputs, and what was captured."""
        return [source for _, source, _ in inputs] + self.captured


def stage(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[tuple[ArrayType, Any, bool]],
    *,
    closed: bool = False,
    once: bool = False,
    order: int = 0,
    randomness: str | None = None,
    passed: Callable[[Any], bool] = is_array,
    by_jax: bool = False,
    folds: bool = False,
    has_aux: bool = False,
    axes: tuple[tuple[Hashable, int], ...] = (),
) -> Staged:
    """Traces `function` into a program.

    Args:
        name: names the frame.
        function: takes one traced value per input; its result is a pytree.
        inputs: for each input its type, its source and whether it is weak.
        closed: whether all that happens inside stays inside.
        once: whether the result is kept, as by `jit`, rather than traced again at each call; then
            Python scalars are constants of the program, in functions traced inside as well.
        order: what it adds to the derivatives that are wanted, see `Asks`.
        randomness: what a `vmap` was told of it.
        passed: which leaves of the result are outputs; the others pass through as they are.
        by_jax: whether it is known to close over what JAX is tracing.
        folds: whether what repeats in the program is folded; not in what is kept, which is as it
            was written.
        has_aux: whether the result is a pair, of which the second part is not differentiated.
        axes: the names of the axes that it is traced along, with their sizes.
    """
    # taken at once, since to ask a thread for one costs as much as to ask ten objects
    local = vars(state)
    stack, place, trail = local["stack"], local["place"], local["trail"]
    depth = len(stack)
    began = perf_counter()
    if not depth:
        local["began"], local["folds"] = None, ()
    kind = Frame if once or (stack and not isinstance(stack[-1], Trail)) else Trail
    frame = kind(name, closed)
    frame.caller = sys._getframe()
    frame.differentiates = 1 if order else 0
    if kind is Frame and not once:
        frame.made = []
    returned = False
    try:
        frame.push()
        if by_jax:
            local["by_jax"] = True
        if closed and not depth:
            # what JAX differentiates around a loop of ours needs the rules of what is called in it
            order = FORWARD
        if order:
            frame.asks = differentiated(frame.asks, order)
        if randomness is not None and randomness != frame.asks.randomness:
            frame.asks = frame.asks._replace(randomness=randomness)
        if axes:
            frame.axes = tuple([name for name, _ in axes])
            frame.asks = frame.asks._replace(
                axes=tuple({**dict(frame.asks.axes), **dict(axes)}.items())
            )
        tracers = frame.declare(inputs)
        frame.ties = True
        local["place"] = None  # locations are those of the user's code again
        local["trail"] = frame if kind is Trail else None
        result = function(*tracers)
        results, outputs = split(result, passed)
        outs = list(map(as_array, results))
        if frame.effect is not None:
            outs = _tied(frame, outs)
        weak: list[bool] = []
        if depth or closed:  # outside of all frames nobody asks
            weak = [x.weak if type(x) is Tracer else is_scalar(x) for x in results]
        program, captured = frame.close(outs)
        # what refers to the frame from here on is what outlives the function
        tracers = result = results = outs = None  # type: ignore[assignment]
        returned = True
    except ValueError as error:
        raise_ours(error)
        raise
    finally:
        # by depth: an interrupt between two frames cannot leave one of them open
        del stack[depth:]
        local["place"], local["trail"] = place, trail
        try:
            if not returned or getrefcount(frame) - len(frame.captured) > 2:
                frame.entered = here(frame.caller)
                if returned and not once:
                    settle(frame)
            frame.release()
        finally:
            # once more, in case that an interrupt came between; what is done is not done again
            if frame.sources:
                frame.release()
    if not depth and not once:
        local["began"] = began  # what is kept is not run by this call, as what failed is not
    if not depth and local["by_jax"] and local["asked"]:
        # of the rules that were called before that was seen JAX may ask more than was traced
        return stage(
            name,
            function,
            inputs,
            closed=closed,
            once=once,
            order=order,
            randomness=randomness,
            passed=passed,
            by_jax=True,
            folds=folds,
            has_aux=has_aux,
            axes=axes,
        )
    keep(program)
    # what is looked for is told by its place in the program as it is written
    if folds and config.fold and kind is Trail and not config.check_nan:
        program = folded(program, *_kinds(stack, inputs, captured, outputs, has_aux, bool(order)))
        local["folds"] += folds_of(program)
    return Staged(program, captured, outputs, weak)


def _kinds(
    stack: Sequence[Any],
    inputs: Sequence[Any],
    captured: Sequence[Any],
    outputs: Skeleton,
    has_aux: bool,
    order: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tells which inputs and outputs take part in a derivative together, see `flow`.

    An outer derivative may be by any of the inputs, of any of the outputs, and `jacrev` takes one
    output after the other; all arguments of the innermost take part in that.
    """
    sources = [*[source for _, source, _ in inputs], *captured]
    outer = any(frame.differentiates for frame in stack) or any(map(is_traced_by_jax, sources))
    main = outputs.structure.children()[0].num_leaves if has_aux else len(outputs.leaves)
    count = outputs.arrays if outer else sum(leaf is None for leaf in outputs.leaves[:main])
    ends = tuple([1 << i if i < count else 0 for i in range(outputs.arrays)])
    if not outer:
        kinds = [int(order and t.is_inexact) for t, _, _ in inputs] + [0] * len(captured)
        return tuple(kinds), ends
    part = [t.is_inexact for t, _, _ in inputs]
    part += [type(x) is Tracer or is_traced_by_jax(x) for x in captured]
    return tuple([int(takes) << i for i, takes in enumerate(part)]), ends


def _tied(frame: Frame, outs: list[Any]) -> list[Any]:
    """Returns results that are not there before the calls that were recorded have been made."""
    done, frame.effect = frame.effect, None  # which refers to the frame
    if not outs:
        raise UnsupportedError(
            f"{frame.name}: it calls debug.print, but returns no array, so nobody would run it.\n"
            f"  Return an array from it."
        )
    return [tied_p(x, done) for x in outs]


def abstract_inputs(types: Sequence[ArrayType], reason: str) -> list[tuple[ArrayType, Any, bool]]:
    """Returns inputs for `stage` that have no values."""
    source = Abstract(reason)
    return [(t.update(), source, t.weak) for t in types]


def known_inputs(values: Sequence[Any]) -> list[tuple[ArrayType, Any, bool]]:
    """Returns inputs for `stage` whose values are these arrays, traced values or scalars."""
    declared = []
    for value in values:
        kind = type(value)
        if kind is Tracer:
            declared.append((value.type, value, value.weak))
        elif kind is np.ndarray and is_array(value):
            declared.append((ArrayType(value.shape, value.dtype), value, False))
        else:
            array = as_array(value)
            if type(array) is np.ndarray:
                array.setflags(write=False)  # what stands for a scalar is not to be written to
            declared.append((ArrayType(array.shape, array.dtype), array, is_scalar(value)))
    return declared


def sources(inputs: Sequence[tuple[ArrayType, Any, bool]]) -> list[Any]:
    """Returns the values of declared inputs, as operands for `apply`."""
    return [source for _, source, _ in inputs]


def wants_jax(*trees: Any) -> bool | None:
    """Tells whether results are to be `jax.Array`s: None where the arguments hold no array.

    Inside a traced function that is for whoever runs the program to tell: it is None as well.
    """
    found: bool | None = None
    if state.stack:
        return None
    for leaf in tree.tree_leaves(trees):
        if type(leaf) is np.ndarray:
            found = False
        elif is_jax(settled(leaf)):
            return True
        elif is_array(leaf) or is_scalar(leaf):
            found = False
    return found


def apply(
    program: Program,
    operands: Sequence[Any],
    as_jax: bool | None = None,
    *,
    traced: bool = True,
    weak: Sequence[bool] = (),
) -> Sequence[Any]:
    """Calls a program: records the call where something traces, else runs it.

    Args:
        program: the program.
        operands: values for its inputs.
        as_jax: whether results are to be `jax.Array`s; None follows the operands.
        traced: whether the program was traced for this call, not for an earlier one.
        weak: which of the first results promote as Python scalars do, where they are traced.
    """
    local = vars(state)
    if local["stack"]:
        found = bind(call_p, operands, Params({"program": program}))
        if True not in weak:
            return found
        return [weakly(x, w) for x, w in zip_longest(found, weak, fillvalue=False)]
    began = local["began"]
    if began is not None:
        # it may be that of a call that failed after it was traced
        note_trace(perf_counter() - began if traced else None, local["folds"])
        local["began"] = None
    if local["ran"] is not None:
        local["ran"] = program, operands
    return run(program, operands, as_jax)


def split_aux(function: str, result: Any) -> tuple[Any, Any]:
    """Returns value and aux of a function that was said to return both.

    Raises:
        StructureError: where it does not return a pair.
    """
    if not (isinstance(result, tuple) and len(result) == 2):
        raise StructureError(
            f"{function}: with has_aux=True the function returns a pair (value, aux).\n"
            f"  returned: {describe(result)}\n"
            f"  Write return value, aux."
        )
    return result


_RANDOMNESS = ("error", "different", "same")


def check_randomness(function: str, randomness: Any) -> None:
    """Raises unless `randomness` is one of those that PyTorch has.

    Raises:
        ArgumentError: otherwise.
    """
    if randomness not in _RANDOMNESS:
        raise ArgumentError(
            f"{function}: randomness={randomness!r} is none of {', '.join(_RANDOMNESS)}.\n"
            f"  Write randomness='different' to draw for each example, 'same' for all of them."
        )


def check_chunk_size(function: str, chunk_size: Any) -> None:
    """Raises unless `chunk_size` is None or a positive int.

    Raises:
        ArgumentError: otherwise.
    """
    if chunk_size is not None and not (is_whole(chunk_size) and chunk_size > 0):
        raise ArgumentError(
            f"{function}: chunk_size must be None or an int of at least 1.\n"
            f"  chunk_size: {describe(chunk_size)}\n  Leave it out to compute all at once."
        )


def is_whole(x: Any) -> bool:
    """Tells whether a value is an integer, of Python or NumPy."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _no_array(x: Tracer) -> Any:
    raise Opaque


@contextmanager
def rule_frame(
    name: str,
    inputs: Sequence[tuple[ArrayType, Any, bool]],
    asks: Asks | None = None,
    closed: bool = False,
) -> Iterator[tuple[Frame, list[Tracer]]]:
    """Opens the frame of one method, in which the user's code records; yields it and its inputs.

    Args:
        name: names the frame.
        inputs: as for `Frame.declare`.
        asks: what is asked inside; None for what is asked outside.
        closed: as for `Frame`.
    """
    stack, place = state.stack, state.place
    kind = Frame if stack and not isinstance(stack[-1], Trail) else Trail
    frame = kind(name, closed, here())
    frame.rule, frame.differentiates = _no_array, -1
    with opened(frame):
        frame.floor = frame.depth  # what is created in it is of it, so that a call is like the next
        if asks is not None:
            frame.asks = asks
        given = frame.declare(inputs)
        try:
            state.place, state.trail = None, frame if kind is Trail else None
            yield frame, given
        finally:
            state.place = place
