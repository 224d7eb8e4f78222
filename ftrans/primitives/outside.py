"""What a function of the user's finds that the library calls: settings as they are outside of it.

While the library computes, warnings of NumPy are off, and JAX keeps double precision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

__all__ = ["Scope", "call_of_the_user", "without_warnings"]


class _Open(threading.local):
    scopes: tuple[Scope, ...] = ()


_open = _Open()


class Scope:
    """Sets something for a block in which functions of users may run, which do not see it.

    Where none may, what `make` returns is enough, and costs less.

    Args:
        make: returns the context manager that sets it.
    """

    __slots__ = ("_before", "_entered", "_make")

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]):
        self._make = make
        self._entered: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        self._before = _open.scopes
        self._begin()
        _open.scopes = (*self._before, self)

    def __exit__(self, *exception: object) -> None:
        _open.scopes = self._before
        self._end()

    def _begin(self) -> None:
        # what is interrupted may be begun or ended twice
        if self._entered is None:
            entered = self._make()
            entered.__enter__()
            self._entered = entered

    def _end(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)

    @staticmethod
    def left(scopes: tuple[Scope, ...], function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Calls a function as outside of these scopes, all that are open."""
        try:
            for scope in reversed(scopes):
                scope._end()
            _open.scopes = ()
            return function(*arrays)
        finally:
            for scope in scopes:
                scope._begin()
            _open.scopes = scopes


def call_of_the_user(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Calls a function of the user's, with the settings as the user has them."""
    scopes = _open.scopes
    return Scope.left(scopes, function, arrays) if scopes else function(*arrays)


def without_warnings(calls: bool) -> AbstractContextManager[Any]:
    """Returns a scope without floating-point warnings of NumPy's.

    Args:
        calls: whether functions of users may run in it.
    """
    return Scope(_silent) if calls else _silent()


def _silent() -> AbstractContextManager[Any]:
    return np.errstate(all="ignore")
