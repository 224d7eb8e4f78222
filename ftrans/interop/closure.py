"""What a function closes over: what its cells hold, and arrays, as far as its code shows them."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_KNOWN = {"jax", "numpy", "ftrans"}
"""Libraries whose functions hold no arrays that somebody writes to."""


UNSET = object()
"""What stands for the contents of a cell that holds nothing yet, or nothing any more."""


def content(cell: Any) -> Any:
    """Returns what a cell of a closure holds; `UNSET` where it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yields a code and all inside of it: of functions and loops that are written there."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_in(const)


def names_in(code: CodeType) -> Iterator[str]:
    """Yields the names that a code asks of anything, as attributes or of what is global."""
    for inner in codes_in(code):
        yield from inner.co_names


def arrays_of(function: Any) -> Iterator[np.ndarray]:
    """Yields the arrays of NumPy that a function, and those that it calls, close over.

    They are found in cells, defaults, globals and bound arguments; not inside of objects.
    """
    seen: set[int] = set()
    pending = [function]
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, np.ndarray):
            yield found
        elif isinstance(found, functools.partial):
            pending += [found.func, *found.args, *found.keywords.values()]
        elif isinstance(found, FunctionType):
            if found.__globals__.get("__name__", "").partition(".")[0] in _KNOWN:
                continue
            with contextlib.suppress(ValueError):  # of a cell that holds nothing yet
                inner, known, *_ = inspect.getclosurevars(found)
                pending += [*inner.values(), *known.values()]
            pending += [*(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values()]
        elif isinstance(found, (tuple, list)):
            pending += found
        elif callable(getattr(found, "__wrapped__", None)):
            pending.append(found.__wrapped__)
