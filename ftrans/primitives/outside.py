"""What a function of the user's finds that the library calls: settings as they are outside of it.

While the library computes, warnings of NumPy are off, and JAX keeps double precision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import numpy as np


class _Open(threading.local):
    scopes: tuple[Scope, ...] = ()


_open = _Open()


class Scope:
    """Sets something for a block in which functions of users may run, which do not see it.

    Where none may, what `make` returns is enough, and costs less.

    Args:
        make: returns the context manager that sets it.
        again: whether a context manager may be entered again.
    """

    __slots__ = ("_again", "_before", "_entered", "_made", "_make")

    def __init__(self, make: Callable[[], AbstractContextManager[Any]], again: bool = False):
        self._make = make
        self._again = again
        self._made: Any = None
        self._entered = False

    def __enter__(self) -> None:
        self._before = _open.scopes
        self.begin()
        _open.scopes = (*self._before, self)

    def __exit__(self, *exception: object) -> None:
        _open.scopes = self._before
        self.end()

    def begin(self) -> None:
        """Sets it."""
        # what is interrupted may be begun or ended twice
        if not self._entered:
            if self._made is None or not self._again:
                self._made = self._make()
            self._made.__enter__()
            self._entered = True

    def end(self) -> None:
        """Undoes that."""
        if self._entered:
            self._entered = False
            self._made.__exit__(None, None, None)


def call_of_the_user(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Calls a function of the user's, with the settings as the user has them."""
    scopes = _open.scopes
    if not scopes:
        return function(*arrays)
    try:
        for scope in scopes[::-1]:
            scope.end()
        _open.scopes = ()
        return function(*arrays)
    finally:
        for scope in scopes:
            scope.begin()
        _open.scopes = scopes


def silently(calls: bool, function: Callable[..., Any], /, *args: Any) -> Any:
    """Calls a function without floating-point warnings of NumPy's.

    Whenever it is interrupted, what is warned of is afterwards what it was before. So nothing here
    is left to the end of a `with`, which Python may interrupt where it begins.

    Args:
        calls: whether functions of users may run in it.
        function: called with `args`.
        *args: its arguments.
    """
    if _VARIABLE is None:
        silent = partial(np.errstate, all="ignore")
        with Scope(silent) if calls else silent():
            return function(*args)
    if not calls:
        return copy_context().run(_silenced, function, args)
    scopes, before = _open.scopes, _VARIABLE.get()
    scope = _Silent(before)
    try:
        scope.begin()
        _open.scopes = (*scopes, scope)
        return function(*args)
    finally:
        _open.scopes = scopes
        _VARIABLE.set(before)


def _variable_of_errors() -> tuple[ContextVar[Any] | None, Any]:
    """Returns where NumPy keeps what is warned of, and what says that nothing is."""
    here, silent = copy_context(), copy_context()
    silent.run(np.seterr, all="ignore")
    changed = [(v, x) for v, x in silent.items() if v not in here or here[v] is not x]
    return changed[0] if len(changed) == 1 else (None, None)


_VARIABLE, _SILENT = _variable_of_errors()


def _silenced(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    _VARIABLE.set(_SILENT)  # type: ignore[union-attr]
    return function(*args)


class _Silent(Scope):
    """Is a scope in which nothing is warned of, where functions of users may run."""

    __slots__ = ("_outside",)

    def __init__(self, before: Any) -> None:
        self._outside = before

    def begin(self) -> None:
        _VARIABLE.set(_SILENT)  # type: ignore[union-attr]

    def end(self) -> None:
        _VARIABLE.set(self._outside)  # type: ignore[union-attr]
