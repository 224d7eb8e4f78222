"""What an opaque `forward` leaves outside of its context, where a traced rule would read it.

It is called when the program is run, and a traced rule once, before: the rule would see what an
earlier call has left, in every call from then on. So it has to be found out, and said.
"""

from __future__ import annotations

import array
import ctypes
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias
from zlib import crc32

import jax
import numpy as np

from ftrans.errors import RuleError
from ftrans.external.captures import defined, used_by
from ftrans.primitives.rules.external import Same
from ftrans.traceback import LIBRARIES

Seen: TypeAlias = dict[str, list[tuple[Same, int | None]]]
_LIBRARIES = LIBRARIES | {"ftrans"}


def left_by(
    call: Callable[[], Any], functions: Sequence[Any], known: set[str]
) -> tuple[Any, tuple[str, ...]]:
    """Calls a function; returns what it returns, and the names under which others find what it did.

    What is only made by the first call, as a table is that is kept, does not count.

    Args:
        call: the function.
        functions: the others.
        known: as for `effects`.
    """
    before, found, after = seen_by(functions), call(), seen_by(functions)
    if not effects(before, after, known):
        return found, ()
    call()
    return found, tuple(sorted(known.union(_changed(after, seen_by(functions)))))


def effects(before: Seen, after: Seen, known: set[str]) -> tuple[str, ...]:
    """Returns the names of what is not as it was, between two times that `seen_by` was asked.

    Args:
        before: what was seen at first.
        after: what was seen then.
        known: what was written into by earlier calls, and is since the next may write the same.
    """
    for name, kept in after.items():
        sums = dict(before.get(name, ()))
        if any(sums.get(x, found) != found for x, found in kept):
            known.add(name)
    return (*known.intersection(after), *_changed(before, after))


def _changed(before: Seen, after: Seen) -> list[str]:
    return [name for name, kept in after.items() if before.get(name, []) != kept]


def seen_by(functions: Sequence[Any]) -> Seen:
    """Returns the numbers and arrays that functions find outside of their arguments, by names."""
    uses = used_by([inspect.unwrap(function) for function in functions], deep=True)
    return {
        name: [_kept(x) for x in inside(value) if _is_number(x)]
        for name, value in uses
        if type(value) is not FunctionType or value.__dict__
    }


def inside(value: Any) -> list[Any]:
    """Returns a value, or what containers and objects of the user's hold; of keys their texts."""
    found: list[Any] = []
    pending, seen = [value], dict[int, Any]()  # which keeps alive what it knows by identity
    while pending and len(seen) < _MOST:
        x = pending.pop()
        if id(x) in seen:
            continue
        seen[id(x)] = x
        if isinstance(x, dict):
            pending += [*x.values(), *_spelled(x)]
        elif isinstance(x, slice):
            pending += _spelled((x.start, x.stop, x.step))
        elif isinstance(x, (list, tuple, set, frozenset, deque)):
            pending += x
        elif isinstance(x, ContextVar):
            pending.append(x.get(None))
        elif isinstance(x, ModuleType):
            pending += [] if _is_of_library(x.__name__) else filter(_is_number, vars(x).values())
        elif _is_number(x) or _is_of_library(type(x).__module__):
            found.append(x)
        else:
            names = [*getattr(x, "__dict__", ()), *getattr(type(x), "__slots__", ())]
            pending += [getattr(x, name, None) for name in names if not name.startswith("_ftrans_")]
            found += [] if names else [x]
    return found


_MOST = 1000
"""How many objects are looked into at most."""


def _spelled(keys: Iterable[Any]) -> list[Any]:
    flat = [x for key in keys for x in (_spelled(key) if isinstance(key, tuple) else [key])]
    return [repr(x) if _is_number(x) else x for x in flat]


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def _is_number(x: Any) -> bool:
    return isinstance(x, (np.generic, jax.Array, float, complex, *_BUFFERS)) or (
        hasattr(type(x), "__dlpack__")
    )


_BUFFERS = np.ndarray, bytearray, memoryview, array.array, ctypes.Array


def _kept(x: Any) -> tuple[Same, int | None]:
    """Returns which value it is, and where it can be written to a sum of a megabyte of it."""
    if not isinstance(x, _BUFFERS):
        return Same(x), None
    flat = np.asarray(x).ravel()  # who writes to a larger array writes to most of it
    return Same(x), crc32(flat[:: 1 + (flat.nbytes >> 20)].tobytes())


def may_encode(left: Sequence[Any], functions: Sequence[Any], given: Sequence[Any]) -> bool:
    """Tells whether texts or long integers that functions have left may hold values.

    Those may that neither the code nor an argument, of those that are no arrays, says. An integer
    of 31 bits is taken for one that counts, or names a place, as arrays of integers are.
    """
    texts = {x for x in left if type(x) in (str, bytes) or (type(x) is int and abs(x) >> 31)}
    if not texts:
        return False
    functions = [inspect.unwrap(function) for function in functions]
    used = [value for _, value in used_by(functions, deep=True)]
    said = [x for value in (*given, *used) for x in inside(value)]
    for function in (*functions, *used):
        if type(function) is FunctionType:
            said += _constants(function.__code__)
    numbers = {repr(x) for x in said if type(x) in (float, complex)}
    return not texts - numbers <= {x for x in said if type(x) in (str, bytes, int)}


def _constants(code: CodeType) -> Iterator[Any]:
    """Yields the constants of a code, and of those inside it."""
    for constant in code.co_consts:
        inner = isinstance(constant, CodeType)
        yield from _constants(constant) if inner else inside(constant)


def came_too_late(name: str, label: str, method: Any, names: Sequence[str]) -> RuleError:
    """Returns the error for a traced rule that may use what an opaque `forward` leaves."""
    return RuleError(
        f"{label}: it may use what {name}.forward leaves outside of the context, by "
        f"{', '.join(names)}.\n"
        f"  It is traced before that is there, and would get what an earlier call has left.\n"
        f"  it is defined at {defined(method)}\n"
        f"  Save it on the context: ctx.save_for_backward(...), or ctx.name = value."
    )
