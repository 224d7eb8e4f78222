"""Calls of transforms that need not run Python: the function is proven to do the same again.

An un-jitted transform runs its function at each call, since that may read what has changed. Where
its code shows what it reads (`custom/guards.py`), and it asked for no value when it was traced with
all its arrays unknown, there is one program for all calls with arguments of these types, for as
long as what it reads is as it was. After some calls that program is made, held against what the
last call returned, and run in the place of the function from then on.

What a proof leaves out: who looks at the function while it runs (a debugger, `np.errstate`), for
whom it is run; `sys.setprofile`; warnings about values that are no longer computed by Python; how
NumPy prints arrays; and arrays of JAX over memory that somebody writes to, or that were deleted,
since they are taken for what cannot change.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FunctionType
from typing import Any, NamedTuple

import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.errors import CheckError
from ftrans.func.beside import Beside, Remade, remade
from ftrans.func.memo import MARK, MOST, Mark, Memo, memo_of, origin
from ftrans.func.staging import Staged, known_inputs, stage
from ftrans.func.unseen import by_library, checks_values
from ftrans.interop.callee import static_key
from ftrans.ir.dtype import NUMERIC
from ftrans.ir.stack import state
from ftrans.primitives.observe import observing
from ftrans.pytree import has_dicts, has_hash, orders_in, split
from ftrans.runtime import note_trace, run
from ftrans.runtime.choice import plan_of
from ftrans.runtime.explain import SKIPPED, note_python
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax, on_cpu
from ftrans.runtime.segments import price_of

_AFTER = 16
"""How many calls alike there were before a program for them is made, which takes as long."""

_OFTEN = 50
"""In so many calls of a function what it costs to trace it has to pay for compiling it anew."""

_PLAIN = (tuple, list, dict, type(None))
_arrays: set[type] = {np.ndarray}
_constants = frozenset({bool, int, float, complex, str})

_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""What NumPy does of itself where a result is not finite."""

_debugging = getattr(sys, "monitoring", None)


class Refused(Exception):
    """Says why a function is not proven to do the same again."""


class _Reader:
    guards: Callable[[FunctionType], Any]
    """Returns guards of what a function reads; raises `Refused`. Given by a layer above."""


reader = _Reader()


@functools.lru_cache(maxsize=256, typed=True)
def _known_place(*place: Any) -> Any:
    """Returns `static_key` of options without a walk over them each time a transform is made."""
    return static_key(place)


def proven(
    name: str, func: Callable[..., Any], *place: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator for what a transform makes of a function: skips Python where it may.

    Args:
        name: that of the transformed function.
        func: what it transforms.
        place: names the transform, with all its options.
    """
    base, places = origin(func)
    is_lasting = has_hash(place)  # else its options may be written to
    if is_lasting:
        plain = tuple not in map(type, place)  # in which 1 and True would be one
        places = (_known_place(*place) if plain else static_key(place), *places)

    def decorate(transformed: Callable[..., Any]) -> Callable[..., Any]:
        if type(base) is not FunctionType or not is_lasting:
            return transformed

        def called(*args: Any, **kwargs: Any) -> Any:
            local = vars(state)
            if local["stack"] or local["of_tensors"] or not config.skip_python or _is_watched():
                return transformed(*args, **kwargs)
            memo = memo_of(base)
            note_python(memo.reason)
            if memo.reason:
                return transformed(*args, **kwargs)
            known: Any = None
            try:
                signature = _signature(places, args, kwargs)
                if signature is not None:
                    known = memo.calls.get(signature[0], 0)
            except Exception:  # what a registered container holds beside leaves has no equality
                signature = None
            if signature is None:
                return transformed(*args, **kwargs)
            key, values = signature
            if type(known) is Proof:
                if known.guards.hold():
                    if config.check:
                        known.check(transformed, args, kwargs)
                    operands = known.operands(values)
                    if operands is not None:
                        return known.run(operands)
                    note_python("an index is negative, or out of bounds")
                    return transformed(*args, **kwargs)
                _ceased(memo, key)
                known = 0
            if type(known) is str:
                note_python(known)
                return transformed(*args, **kwargs)
            count = known + 1 if type(known) is int else 1
            if count >= _AFTER:
                return _learn(memo, key, name, base, transformed, args, kwargs, values)
            result = transformed(*args, **kwargs)
            if not known and len(memo.calls) >= MOST:
                memo.make_room()
            memo.calls[key] = count
            return result

        called.__dict__[MARK] = Mark(weakref.ref(called), base, places)
        return called

    return decorate


def _is_watched() -> bool:
    """Tells whether somebody looks at what Python runs: a debugger, or NumPy's own errors."""
    if observing.by is not None or sys.gettrace() is not None or np.geterr() != _ERRORS:
        return True
    return _debugging is not None and any(map(_debugging.get_tool, (0, 1)))


def _signature(
    places: tuple[Any, ...], args: Any, kwargs: Any
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Returns what calls that are alike have in common, and the arrays; None for other values."""
    given = (args, kwargs) if kwargs else args
    leaves, structure = tree.tree_flatten(given)
    key: list[Any] = [places, bool(kwargs), structure, config.default_dtype]
    if has_dicts(structure):
        if not _has_plain_keys(given):
            return None
        key.append(orders_in(given))
    values = []
    for x in leaves:
        kind = type(x)
        if kind in _arrays:
            if x.dtype not in NUMERIC:
                return None
            # whether a reshape is a view, which is written to, depends on how an array lies
            lies = x.strides if kind is np.ndarray else None
            if lies is None and x.weak_type:
                return None
            key += (kind, x.shape, x.dtype, lies)
            values.append(x)
        elif kind in _constants:
            if x != x:  # of which there are several, and none equal
                return None
            key.append(static_key(x))
        elif is_jax(x) and not is_traced_by_jax(x):
            _arrays.add(kind)
            return _signature(places, args, kwargs)
        else:
            return None
    return tuple(key), values


def _has_plain_keys(value: Any) -> bool:
    """Tells whether the keys of all dicts are strings: others may be equal to these, or alike."""
    kind = type(value)
    if kind is dict:
        return {str}.issuperset(map(type, value)) and all(map(_has_plain_keys, value.values()))
    return kind not in (tuple, list) or all(map(_has_plain_keys, value))


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
        given, captured = [values[number] for number in self.order], self.staged.captured
        made = captured if self.beside is None else self.beside.of(given, captured)
        return None if made is None else [*given, *made]

    def run(self, operands: list[Any]) -> Any:
        """Returns the result of a call."""
        note_trace(None)
        note_python(SKIPPED)
        staged = self.staged
        return staged.outputs.build(run(staged.program, operands, self.as_jax))

    def check(self, transformed: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Raises where the function, traced anew, does something else.

        Raises:
            CheckError: there.
        """
        now, beside = _traced(self.name, transformed, args, kwargs, self.order)
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


def _ceased(memo: Memo, key: Any) -> None:
    """Forgets a proof that holds no longer."""
    memo.calls.pop(key, None)
    memo.left -= 1
    if not memo.left:
        memo.reason = "what it reads changes"


def _learn(
    memo: Memo,
    key: Any,
    name: str,
    base: FunctionType,
    transformed: Callable[..., Any],
    args: Any,
    kwargs: Any,
    values: list[Any],
) -> Any:
    """Calls a function; makes the program for calls alike, and holds it against what it returns."""
    guards = kept = None
    try:
        guards, kept = reader.guards(base), _kept((args, kwargs))
    except Exception as error:
        # that of a module or an object which is looked at, too: the call is to go on
        memo.reason = str(error) or type(error).__name__
    before, state.ran = state.ran, (None, ())
    demanded, began = state.demanded, perf_counter()
    try:
        result = transformed(*args, **kwargs)
        program, ran = state.ran
        took = perf_counter() - began
    finally:
        state.ran = before
    if guards is None:
        return result
    # what has an effect must not be run once more to find that out
    if state.demanded != demanded:
        memo.calls[key] = "it asks for a value, or draws"
        return result
    if _kept((args, kwargs)) != kept:
        memo.calls[key] = "it changes its arguments"
        return result
    if not guards.hold():
        memo.calls[key] = "it changes what it reads"
        return result
    try:
        order = _order(values, ran)
        staged, beside = _traced(name, transformed, args, kwargs, order)
        found, returned = split(result, _is_array)
        kinds = {type(x) is not np.ndarray for x in found}
        as_jax = kinds.pop() if len(kinds) == 1 else None
        proof = Proof(name, guards, staged, order, as_jax, beside)
        if program is not None:
            had, has = plan_of(program).state, plan_of(staged.program).state
            compiling = price_of(plan_of(staged.program).final(staged.program)).compiling
            if had.executable is not None and had is not has and took * _OFTEN < compiling:
                raise Refused("it would have to be compiled anew")
        if kinds or staged.outputs != returned or not returned.is_constant:
            raise Refused("its result holds what is no array")
        operands = proof.operands(values)
        if operands is None:
            raise Refused("an index is negative")
        _compare(proof.run(operands), found)
        if not guards.hold():
            raise Refused("it changes what it reads")
        memo.calls[key] = proof
    except Exception as error:
        # whatever the function raises that does not expect its arrays to be unknown
        memo.calls[key] = str(error).partition("\n")[0] or type(error).__name__
    return result


def _order(values: Sequence[Any], ran: Sequence[Any]) -> list[int]:
    """Returns the numbers of arrays in the order in which the program of the call took them.

    The program that is made then is most often the same, and what is compiled of that serves it.
    """
    places = {id(x): place for place, x in enumerate(ran)}
    return sorted(range(len(values)), key=lambda i: places.get(id(values[i]), len(ran)))


def _traced(
    name: str, transformed: Callable[..., Any], args: Any, kwargs: Any, order: Sequence[int]
) -> tuple[Staged, Remade | None]:
    """Traces a call with the arrays of these numbers among its arguments unknown.

    It returns besides how indices are made of these.

    Raises:
        Refused: where it asks for a value, or changes its arguments.
    """
    if not _is_plain((args, kwargs)):
        raise Refused("an argument is an object that is neither an array nor a container")
    values, skeleton = split((args, kwargs), _is_array)
    noted: Beside | None = None

    def call(*tracers: Any) -> Any:
        nonlocal noted
        noted = state.beside = Beside(tracers[0].frame) if tracers else None
        filled = list(values)
        for number, tracer in zip(order, tracers, strict=True):
            filled[number] = tracer
        given = skeleton.build(filled)
        indices, kept = [tracer.index for tracer in tracers], _kept(given)
        result = transformed(*given[0], **given[1])
        is_written = indices != [tracer.index for tracer in tracers]
        if is_written or _kept(given) != kept:
            raise Refused("it changes its arguments")
        return result

    def indices(*tracers: Any) -> Any:
        call(*tracers)
        return noted and noted.taken

    before, inputs = state.demanded, known_inputs([values[number] for number in order])
    try:
        staged, beside = stage(name, call, inputs), None
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
    if by_library(staged.program, not any(map(is_jax, [*values, *staged.captured]))):
        raise Refused("it computes with an argument that is not traced")
    if checks_values(plan_of(staged.program).final(staged.program), len(order)):
        raise Refused("what it is given is checked, where it is known")
    return staged, beside


def _kept(value: Any) -> Any:
    """Returns what is compared of arguments before and after a call: all but elements of arrays."""
    if type(value) is dict:
        return id(value), tuple([(type(key), key, _kept(x)) for key, x in value.items()])
    if type(value) in (tuple, list):
        return type(value) is tuple or id(value), tuple(map(_kept, value))
    return static_key(value) if _is_constant(value) else id(value)


def _is_array(x: Any) -> bool:
    return type(x) in _arrays


def _is_constant(x: Any) -> bool:
    return type(x) in _constants


def _is_plain(value: Any) -> bool:
    """Tells whether a pytree is made of the containers of Python's alone."""
    if type(value) is dict:  # whose keys of other kinds may be equal, as 1 and True
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    if type(value) in _PLAIN:
        return all(map(_is_plain, value or ()))
    return _is_array(value) or _is_constant(value)


def _compare(result: Any, expected: Sequence[Any]) -> None:
    """Raises unless a result is what the function has returned, but for rounding.

    Raises:
        Refused: there.
    """
    found, _ = split(result, _is_array)
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
