"""The arrays that a function closes over, as far as its code shows them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np


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
            pending += _held_by(found)
        elif isinstance(found, (tuple, list)):
            pending += found
        elif callable(getattr(found, "__wrapped__", None)):
            pending.append(found.__wrapped__)


def _held_by(function: FunctionType) -> list[Any]:
    """Returns what the code of a function refers to by name."""
    known = function.__globals__
    if known.get("__name__", "").partition(".")[0] in ("jax", "numpy", "ftrans"):
        return []
    names = [name for name in function.__code__.co_names if name in known]
    return [
        *[known[name] for name in names],
        *[_content(cell) for cell in function.__closure__ or ()],
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ]


def _content(cell: Any) -> Any:
    """Returns what is in a cell; None where that is not there yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
