"""What all calls of one signature do: the program, how it is made, and what stands against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import CheckError
from ftrans.func.beside import Beside, Remade, remade
from ftrans.func.staging import Staged, known_inputs, stage
from ftrans.func.unseen import by_library, checks_values
from ftrans.interop.callee import static_key
from ftrans.ir.stack import state
from ftrans.pytree import split
from ftrans.runtime import run
from ftrans.runtime.choice import plan_of
from ftrans.runtime.explain import note_skipped
from ftrans.runtime.jaxlink import is_jax, on_cpu

_PLAIN = (tuple, list, dict, type(None))
ARRAYS: set[type] = {np.ndarray}
CONSTANTS = frozenset({bool, int, float, complex, str})


class Refused(Exception):
    """Says why a function is not proven to do the same again."""


class Proof(NamedTuple):
    """Is what all calls of one signature do.

    Attributes:
        name: that of the transformed function.
        guards: what must be as it was.
        staged: the program, what it captured, and how the result is made.
        order: the numbers of the arrays that the program takes.
        as_jax: whether results are `jax.Array`s; None where they follow what is given.
        beside: how indices are made of the arrays; None where there are none.
    """

    name: str
    guards: Any
    staged: Staged
    order: list[int]
    as_jax: bool | None
    beside: Remade | None

    def operands(self, values: list[Any]) -> list[Any] | None:
        """Returns what the program takes for these arrays; None where Python is to look at one."""
        given, captured = list(map(values.__getitem__, self.order)), self.staged.captured
        made = captured if self.beside is None else self.beside.of(given, captured)
        return None if made is None else [*given, *made]

    def run(self, operands: list[Any]) -> Any:
        """Returns the result of a call."""
        note_skipped()
        staged = self.staged
        return staged.outputs.build(run(staged.program, operands, self.as_jax))

    def check(self, transformed: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Raises where the function, traced anew, does something else.

        Raises:
            CheckError: there.
        """
        now, beside = traced(self.name, transformed, args, kwargs, self.order)
        before, captured = self.staged, self.staged.captured
        if beside is not None and self.beside is not None:  # which are those of these arguments
            made = {place: now.captured[place] for place in beside.places}
            captured = [made.get(i, x) for i, x in enumerate(captured)]
        same = (
            now.program.structure is before.program.structure
            and now.outputs == before.outputs
            and len(now.captured) == len(captured)
            and all(map(_equal, now.captured, captured))
            and (beside and beside.places) == (self.beside and self.beside.places)
        )
        if not same:
            raise CheckError(
                f"{self.name}: its function was not run, since it was proven to do the same "
                f"again; it does something else.\n"
                f"  program was: {before.program}\n  program is: {now.program}\n"
                f"  It reads: {self.guards.reads}; and what has changed, which was not seen."
            )


def _equal(x: Any, y: Any) -> bool:
    return x is y or np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind in "fc")


def traced(
    name: str, transformed: Callable[..., Any], args: Any, kwargs: Any, order: Sequence[int]
) -> tuple[Staged, Remade | None]:
    """Traces a call with the arrays of these numbers among its arguments unknown.

    It returns besides how indices are made of these.

    Raises:
        Refused: where it asks for a value, or changes its arguments.
    """
    if not _is_plain((args, kwargs)):
        raise Refused("an argument is an object that is neither an array nor a container")
    values, skeleton = split((args, kwargs), is_array)
    noted: Beside | None = None

    def call(*tracers: Any) -> Any:
        nonlocal noted
        noted = state.beside = Beside(tracers[0].frame) if tracers else None
        filled = list(values)
        for number, tracer in zip(order, tracers, strict=True):
            filled[number] = tracer
        given = skeleton.build(filled)
        indices, kept = [tracer.index for tracer in tracers], frozen(given)
        result = transformed(*given[0], **given[1])
        is_written = indices != [tracer.index for tracer in tracers]
        if is_written or frozen(given) != kept:
            raise Refused("it changes its arguments")
        return result

    def results(*tracers: Any) -> Any:
        result = call(*tracers)
        if noted is not None:
            noted.end()
        return result

    def indices(*tracers: Any) -> Any:
        call(*tracers)
        return noted and noted.end()

    before, inputs = state.demanded, known_inputs([values[number] for number in order])
    try:
        staged, beside = stage(name, results, inputs), None
        if noted is not None and noted.made:
            if not on_cpu(values):
                raise Refused("an array on a device is an index")
            first = noted
            taken = stage(name, indices, inputs)
            beside = remade(first, taken.program, len(inputs), staged.captured)
            if beside is None:
                raise Refused("it computes an index")
    finally:
        state.beside = None
    if state.demanded != before:
        raise Refused("it asks for a value, or draws")
    if staged.program.calls_host or staged.program.traces_anew:
        raise Refused("it calls what is no program")
    given = [*map(values.__getitem__, order), *staged.captured]
    if by_library(staged.program, list(map(is_jax, given))):
        raise Refused("it computes with an argument that is not traced")
    if checks_values(plan_of(staged.program).final(staged.program), len(order)):
        raise Refused("what it is given is checked, where it is known")
    return staged, beside


def frozen(value: Any) -> Any:
    """Returns what is compared of arguments before and after a call: all but elements of arrays."""
    if type(value) is dict:
        return id(value), tuple([(type(key), key, frozen(x)) for key, x in value.items()])
    if type(value) in (tuple, list):
        return type(value) is tuple or id(value), tuple(map(frozen, value))
    return static_key(value) if _is_constant(value) else id(value)


def is_array(x: Any) -> bool:
    """Tells whether a leaf is an array that a proof takes for unknown."""
    return type(x) in ARRAYS


def _is_constant(x: Any) -> bool:
    return type(x) in CONSTANTS


def _is_plain(value: Any) -> bool:
    """Tells whether a pytree is made of the containers of Python's alone."""
    if type(value) is dict:  # whose keys of other kinds may be equal, as 1 and True
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    if type(value) in _PLAIN:
        return all(map(_is_plain, value or ()))
    return is_array(value) or _is_constant(value)


def compare(result: Any, expected: Sequence[Any]) -> None:
    """Raises unless a result is what the function has returned, but for rounding.

    Raises:
        Refused: there.
    """
    found, _ = split(result, is_array)
    for x, y in zip(found, expected, strict=True):
        a, b = np.asarray(x), np.asarray(y)
        if type(x) is not type(y) or a.shape != b.shape or a.dtype != b.dtype:
            raise Refused("the types of its results depend on what is traced")
        if a.dtype.kind in "fc":
            size = float(np.finfo(a.dtype).eps) ** 0.75
            with np.errstate(all="ignore"):
                scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
            same = np.allclose(a, b, rtol=size, atol=size * scale, equal_nan=True)
        else:
            same = np.array_equal(a, b)
        if not same:
            raise Refused("its results depend on what is traced")
