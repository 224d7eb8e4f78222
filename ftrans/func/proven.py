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
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.func.anew import closed_over, converted, memo_of_code
from ftrans.func.memo import MARK, MOST, Mark, Memo, memo_of, origin
from ftrans.func.proof import ARRAYS, CONSTANTS, Proof, Refused, compare, frozen, is_array, traced
from ftrans.interop.callee import static_key
from ftrans.ir.dtype import NUMERIC
from ftrans.ir.stack import state
from ftrans.primitives.observe import observing
from ftrans.pytree import has_dicts, has_hash, orders_in, split
from ftrans.runtime.choice import plan_of
from ftrans.runtime.explain import note_python
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax
from ftrans.runtime.segments import price_of

_AFTER = 16
"""How many calls alike there were before a program for them is made, which takes as long."""

_OFTEN = 50
"""In so many calls of a function what it costs to trace it has to pay for compiling it anew."""

_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""What NumPy does of itself where a result is not finite."""

_debugging = getattr(sys, "monitoring", None)


class _Reader:
    guards: Callable[[FunctionType, bool], Any]
    """Returns guards of what a function reads; raises `Refused`. Given by a layer above.

    For one that is made anew at each call they say nothing of itself and of data in its cells.
    """


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
            run, memo = functools.partial(transformed, *args, **kwargs), memo_of(base)
            if memo.is_new:
                return _call_of_code(memo, name, mark, transformed, run, args, kwargs)
            return _call(memo, name, mark, transformed, run, args, kwargs)

        mark = called.__dict__[MARK] = Mark(weakref.ref(called), base, places)
        return called

    return decorate


def _call(
    memo: Memo,
    name: str,
    mark: Mark,
    function: Callable[..., Any],
    run: Callable[[], Any],
    args: Any,
    kwargs: Any,
    is_anew: bool = False,
) -> Any:
    """Returns the result of a call by what is known of others alike, or else of running it.

    Args:
        memo: what is known.
        name: that of the transformed function.
        mark: what it is made of.
        function: takes the arguments, and is traced where a program is made.
        run: runs it.
        args: what it is given.
        kwargs: what it is given by name.
        is_anew: whether that is also what the user's function closes over, see `converted`.
    """
    known: Any = None
    if memo.reason:
        note_python(memo.reason)
        return run()
    try:
        signature = _signature(mark.places, args, kwargs)
        if signature is not None:
            known = memo.calls.get(signature[0], 0)
    except Exception:  # what a registered container holds beside leaves has no equality
        signature = None
    if signature is None:
        note_python("")
        return run()
    key, values = signature
    if type(known) is Proof:
        if known.guards.hold():
            operands = known.operands(values)
            if operands is not None:
                if config.check:
                    known.check(function, args, kwargs)
                return known.run(operands)
            note_python("an index is negative, or out of bounds")
            return run()
        _ceased(memo, key)
        known = 0
    note_python(known if type(known) is str else "")
    if type(known) is str:
        return run()
    count = known + 1 if type(known) is int else 1
    if count >= _AFTER:
        return _learn(memo, key, name, mark.base, function, run, args, kwargs, values, is_anew)
    result = run()
    if not known and len(memo.calls) >= MOST:
        memo.make_room()
    memo.calls[key] = count
    return result


def _call_of_code(
    own: Memo,
    name: str,
    mark: Mark,
    function: Callable[..., Any],
    run: Callable[[], Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """Returns the result of a call by what is known of other functions of the same code.

    It is the first call of a function, or one of many of which the code is proven.
    """
    own.is_new, base, found = False, mark.base, closed_over(mark.base)
    if found is None:
        note_python("")
        return run()
    data, held = found
    memo = memo_of_code(base.__code__, held)
    if memo.reason:
        note_python(memo.reason)
        return run()
    own.is_new = not memo.is_new
    mark = Mark(mark.called, base, (mark.places, memo.token_of([base.__globals__, *held])))
    return _call(memo, name, mark, converted(function, base), run, (args, data), kwargs, True)


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
    if _may_change(structure):
        if not _is_tree(given, set()):
            return None
        if has_dicts(structure):
            key.append(orders_in(given))
    values = []
    for x in leaves:
        kind = type(x)
        if kind in ARRAYS:
            if x.dtype not in NUMERIC:
                return None
            # whether a reshape is a view, which is written to, depends on how an array lies
            lies = x.strides if kind is np.ndarray else None
            if lies is None and x.weak_type:
                return None
            key += (kind, x.shape, x.dtype, lies)
            values.append(x)
        elif kind in CONSTANTS:
            if x != x:  # of which there are several, and none equal
                return None
            key.append(static_key(x))
        elif is_jax(x) and not is_traced_by_jax(x):
            ARRAYS.add(kind)
            return _signature(places, args, kwargs)
        else:
            return None
    return tuple(key), values


@functools.lru_cache(1024)
def _may_change(structure: Any) -> bool:
    """Tells whether there are containers in a pytree that may be written to."""
    kind, _ = structure.node_data() or (None, None)
    return kind in (dict, list) or any(map(_may_change, structure.children()))


def _is_tree(value: Any, seen: set[int]) -> bool:
    """Tells whether no container is in two places, and the keys of all dicts are strings.

    What is written to in one place would be seen in the other; other keys may be equal, or alike.
    """
    kind = type(value)
    if kind is not tuple:
        if id(value) in seen:
            return False
        seen.add(id(value))
        if kind is dict:
            if not {str}.issuperset(map(type, value)):
                return False
            value = value.values()
    return all(_is_tree(x, seen) for x in value if type(x) in _CONTAINERS)


_CONTAINERS = frozenset({tuple, list, dict})


def _ceased(memo: Memo, key: Any) -> None:
    """Forgets a proof that holds no longer."""
    memo.calls.pop(key, None)
    memo.left -= 1
    if not memo.left:
        memo.give_up("what it reads changes")


def _learn(
    memo: Memo,
    key: Any,
    name: str,
    base: FunctionType,
    function: Callable[..., Any],
    run: Callable[[], Any],
    args: Any,
    kwargs: Any,
    values: list[Any],
    is_anew: bool,
) -> Any:
    """Calls a function; makes the program for calls alike, and holds it against what it returns."""
    guards = kept = None
    try:
        guards, kept = reader.guards(base, is_anew), frozen((args, kwargs))
    except Exception as error:
        # that of a module or an object which is looked at, too: the call is to go on
        memo.give_up(str(error) or type(error).__name__)
    before, state.ran = state.ran, (None, ())
    demanded, began = state.demanded, perf_counter()
    try:
        result = run()
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
    if frozen((args, kwargs)) != kept:
        memo.calls[key] = "it changes its arguments"
        return result
    if not guards.hold():
        memo.calls[key] = "it changes what it reads"
        return result
    try:
        order = _order(values, ran)
        staged, beside = traced(name, function, args, kwargs, order)
        found, returned = split(result, is_array)
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
        compare(proof.run(operands), found)
        if not guards.hold():
            raise Refused("it changes what it reads")
        memo.calls[key], memo.is_new = proof, False
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
