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


def without_warnings(calls: bool) -> AbstractContextManager[Any]:
    """Returns a scope without floating-point warnings of NumPy's.

    Args:
        calls: whether functions of users may run in it.
    """
    if _VARIABLE is None:
        silent = partial(np.errstate, all="ignore")
        return Scope(silent) if calls else silent()
    return _Silent() if calls else _Silence()


def _variable_of_errors() -> tuple[ContextVar[Any] | None, Any]:
    """Returns where NumPy keeps what is warned of, and what says that nothing is."""
    here, silent = copy_context(), copy_context()
    silent.run(np.seterr, all="ignore")
    changed = [(v, x) for v, x in silent.items() if v not in here or here[v] is not x]
    return changed[0] if len(changed) == 1 else (None, None)


_VARIABLE, _SILENT = _variable_of_errors()


class _Silence:
    """Is `np.errstate(all="ignore")` at a tenth of its cost."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _VARIABLE.set(_SILENT)  # type: ignore[union-attr]

    def __exit__(self, *exception: object) -> None:
        _VARIABLE.reset(self._token)  # type: ignore[union-attr]


class _Silent(Scope):
    """Is the same where functions of users may run."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token: Any = None

    def begin(self) -> None:
        if self._token is None:
            self._token = _VARIABLE.set(_SILENT)  # type: ignore[union-attr]

    def end(self) -> None:
        if self._token is not None:
            token, self._token = self._token, None
            _VARIABLE.reset(token)  # type: ignore[union-attr]
