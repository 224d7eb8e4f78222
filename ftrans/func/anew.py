"""Functions that are made anew at each call: one code, and what it closes over as arguments.

`func.grad(lambda p: loss(p, x))` in a step is another function each time, of which nothing is
known. Its code is known, and so is what it does with values like `x`. Arrays, numbers and
containers of these, which it closes over, count as arguments; all else has to be the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ftrans.func.memo import MEMO, Memo, memo_of
from ftrans.interop.closure import UNSET, content
from ftrans.runtime.cache import on_clear
from ftrans.runtime.jaxlink import is_jax

_MOST, _VALUES = 64, 200
"""Of how many codes calls are remembered, and how much data a function may close over."""

memos: dict[int, tuple[CodeType, Memo]] = {}
"""What is known of the functions of a code, by its identity."""

on_clear(memos.clear)

_DATA = frozenset({np.ndarray, bool, int, float, complex, str, tuple, list, dict, type(None)})


def memo_of_code(code: CodeType, held: Iterable[Any]) -> Memo:
    """Returns what is known of the calls of functions of a code.

    A proof keeps alive what it is about. So it goes with a function that is closed over, where
    there is one that closes over something itself; else it is among the few that are remembered.
    """
    owner = next((x for x in held if type(x) is FunctionType and x.__closure__), None)
    table = memos if owner is None else memo_of(owner).codes
    found = table.get(id(code))
    if found is None:
        if len(table) >= _MOST:
            table.pop(next(iter(table)), None)
        found = table[id(code)] = code, Memo(code)
    return found[1]


def is_data(value: Any) -> bool:
    """Tells whether what a function closes over counts as an argument."""
    return type(value) in _DATA or is_jax(value)


def closed_over(base: FunctionType) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Returns what a function closes over: data, and all else, with None in the place of these.

    None stands for a function that has more than its code and that, or a lot of data.
    """
    if base.__defaults__ or base.__kwdefaults__ or len(base.__dict__) - (MEMO in base.__dict__):
        return None
    contents = [content(cell) for cell in base.__closure__ or ()]
    if any(x is UNSET for x in contents) or _left(contents, _VALUES) < 0:
        return None
    held = [None if is_data(x) else x for x in contents]
    return tuple([x if is_data(x) else None for x in contents]), held


def _left(value: Any, most: int) -> int:
    """Returns how many more values there may be than in a container; negative for too many."""
    if type(value) is dict:
        value = value.values()
    elif type(value) not in (list, tuple):
        return most
    for x in value:
        if most <= 0:  # also where containers refer to each other
            return -1
        most = _left(x, most - 1)
    return most


def converted(transformed: Callable[..., Any], base: FunctionType) -> Callable[..., Any]:
    """Returns a transformed function as one of its arguments, a tuple, and of what it closes over.

    Args:
        transformed: what transforms have made of a function.
        base: that function.
    """
    contents = [content(cell) for cell in base.__closure__ or ()]

    def called(args: tuple[Any, ...], data: tuple[Any, ...], /, **kwargs: Any) -> Any:
        pairs = zip(contents, data, strict=True)
        cells = tuple([CellType(given if is_data(x) else x) for x, given in pairs])
        made = FunctionType(base.__code__, base.__globals__, base.__name__, None, cells)
        return _with(transformed, {base: made})(*args, **kwargs)

    return called


def _with(function: Any, known: dict[Any, Any]) -> Any:
    """Returns a function of ours with others in the place of those that it closes over."""
    if type(function) is not FunctionType or function in known:
        return known.get(function, function)
    known[function] = function
    if function.__closure__ and function.__globals__["__name__"].startswith("ftrans."):
        before = list(map(content, function.__closure__))
        after = [_with(x, known) for x in before]
        if any(x is not y for x, y in zip(before, after, strict=True)):
            code, space, cells = function.__code__, function.__globals__, map(CellType, after)
            made = FunctionType(code, space, function.__name__, function.__defaults__, tuple(cells))
            made.__kwdefaults__ = function.__kwdefaults__
            made.__dict__.update(function.__dict__)
            known[function] = made
    return known[function]
