"""What an opaque `forward` leaves outside of its context, where a traced rule would read it.

It is called when the program is run, and a traced rule once, before: the rule would see what an
earlier call has left, in every call from then on. So it has to be found out, and said.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from ftrans.errors import RuleError
from ftrans.external.captures import defined, used_by
from ftrans.traceback import LIBRARIES


def left_by(call: Callable[[], Any], functions: Sequence[Any]) -> tuple[Any, tuple[str, ...]]:
    """Calls a function; returns what it returns, and the names under which others find what it did.

    What is only made by the first call, as a table is that is kept, does not count; what is
    written into does, since the second call may write the same.

    Args:
        call: the function.
        functions: the others.
    """
    before = seen_by(functions)
    found = call()
    after = seen_by(functions)
    if not changed(before, after):
        return found, ()
    written = {name for name, kept in after.items() if _written(before.get(name, []), kept)}
    call()
    return found, tuple(sorted(written.union(changed(after, seen_by(functions)))))


def seen_by(functions: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns the numbers and arrays that functions find outside of their arguments, by names."""
    uses = used_by([inspect.unwrap(function) for function in functions], deep=True)
    return {
        name: [_kept(x) for x in _inside(value) if _is_number(x)]
        for name, value in uses
        if type(value) is not FunctionType or value.__dict__
    }


def _inside(value: Any) -> list[Any]:
    """Returns a value, or what containers, and classes and objects of the user's, have in them."""
    found, pending, seen = [], [value], set()
    while pending and len(seen) < _MOST:
        x = pending.pop()
        if id(x) in seen or isinstance(x, ModuleType):
            continue
        seen.add(id(x))
        if isinstance(x, dict):
            pending += x.values()
        elif isinstance(x, (list, tuple, set, frozenset, deque)):
            pending += x
        elif _is_number(x) or not hasattr(x, "__dict__") or _is_of_library(type(x)):
            found.append(x)
        else:
            pending += [item for name, item in vars(x).items() if not name.startswith("_ftrans_")]
    return found


_MOST = 1000
"""How many objects are looked into at most."""


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


_LIBRARIES = LIBRARIES | {"ftrans"}


def _is_number(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, jax.Array, float, complex)) or (
        hasattr(x, "__dlpack__")
    )


_LARGE = 1 << 20
"""Up to so many bytes, arrays are looked into."""


def _kept(x: Any) -> tuple[Any, Any]:
    small = isinstance(x, np.ndarray) and x.nbytes <= _LARGE
    return x, x.copy() if small else None


def changed(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> tuple[str, ...]:
    """Returns the names of what is not as it was, between two times that `seen_by` was asked."""
    return tuple(name for name in after if not _same(before.get(name, []), after[name]))


def _written(before: list[Any], after: list[Any]) -> bool:
    arrays = {id(x): copy for x, copy in before if copy is not None}
    return any(
        id(x) in arrays and arrays[id(x)].tobytes() != copy.tobytes()
        for x, copy in after
        if copy is not None
    )


def _same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(
        x is y and (x_copy is None or x_copy.tobytes() == y_copy.tobytes())
        for (x, x_copy), (y, y_copy) in zip(before, after, strict=True)
    )


def may_encode(left: Sequence[Any], functions: Sequence[Any], given: Sequence[Any]) -> bool:
    """Tells whether texts or long integers that functions have left may hold values.

    Those may that neither the code nor an argument, of those that are no arrays, says. An integer
    of 31 bits is taken for one that counts, or names a place, as arrays of integers are.
    """
    texts = {x for x in left if type(x) in _TEXTS or (type(x) is int and abs(x) >> 31)}
    if not texts:
        return False
    functions = [inspect.unwrap(function) for function in functions]
    used = [value for _, value in used_by(functions, deep=True)]
    said = [x for value in (*given, *used) for x in _inside(value)]
    for function in (*functions, *used):
        if type(function) is FunctionType:
            said += _constants(function.__code__)
    return not texts <= {x for x in said if type(x) in (*_TEXTS, int)}


_TEXTS = (str, bytes)


def _constants(code: CodeType) -> Iterator[Any]:
    """Yields the constants of a code, and of those inside it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        else:
            yield from _inside(constant)


def came_too_late(name: str, label: str, method: Any, names: Sequence[str]) -> RuleError:
    """Returns the error for a traced rule that may use what an opaque `forward` leaves."""
    return RuleError(
        f"{label}: it may use what {name}.forward leaves outside of the context, by "
        f"{', '.join(names)}.\n"
        f"  It is traced before that is there, and would get what an earlier call has left.\n"
        f"  it is defined at {defined(method)}\n"
        f"  Save it on the context: ctx.save_for_backward(...), or ctx.name = value."
    )
