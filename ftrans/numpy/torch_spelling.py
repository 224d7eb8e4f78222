"""PyTorch's names of arguments, and NumPy's for the same, which PyTorch takes as well."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ftrans.numpy.composite import arguments_of

Function = Callable[..., Any]

_OTHERWISE = {
    "k": "diagonal", "shift": "shifts", "dim": "axis", "keepdim": "keepdims",
    "dim0": "axis0", "dim1": "axis1",
}  # fmt: skip


def names_of(function: Function) -> dict[str, str]:
    """Returns what other names of keyword arguments are called by a function."""
    positional, by_name = arguments_of(function)
    taken = {*positional, *by_name}
    axis = "axes" if "axes" in taken else "axis"
    names = {"dim": axis, "dims": axis, "keepdim": "keepdims"}
    names |= {old: new for new, old in _OTHERWISE.items() if new in taken}
    return {name: target for name, target in names.items() if name not in taken}


def spelled(function: Function) -> Function:
    """Has a function take NumPy's names of arguments that it has under PyTorch's."""
    names = names_of(function)
    if not names.keys() & {"axis", "keepdims", "axis0"}:
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        return function(*args, **kwargs)

    return called
