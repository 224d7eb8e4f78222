"""What a function of the user's finds that the library calls: settings as they are outside of it.

While the library computes, warnings of NumPy are off, and JAX keeps double precision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from typing import Any

import numpy as np


class _Open(threading.local):
    scopes: tuple[Scope, ...] = ()
    context: Context | None = None
    """That of the user, where the library has left it, and may call functions of the user's."""


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
    scopes, context = _open.scopes, _open.context
    if context is None and not scopes:
        return function(*arrays)
    try:
        for scope in scopes[::-1]:
            scope.end()
        _open.scopes, _open.context = (), None
        return function(*arrays) if context is None else context.run(function, *arrays)
    finally:
        for scope in scopes:
            scope.begin()
        _open.scopes, _open.context = scopes, context


_silent = copy_context()
_silent.run(np.seterr, all="ignore")


def silently(calls: bool, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of the library's without floating-point warnings of NumPy's.

    They belong to the context, and to change that costs a tenth of what `np.errstate` does.

    Args:
        calls: whether functions of users may run in it.
        function: the function, and what it takes.
        *args: that.
    """
    if not calls or _open.context is not None:
        return _silent.copy().run(function, *args)
    _open.context = copy_context()
    try:
        return _silent.copy().run(function, *args)
    finally:
        _open.context = None
