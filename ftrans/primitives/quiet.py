"""Floating-point warnings of NumPy: off where the library computes, the user's in their code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Quiet", "call_of_the_user"]


class _Innermost(threading.local):
    quiet: Quiet | None = None


_innermost = _Innermost()


class Quiet:
    """Turns the warnings off for a block of the library's, in which functions of users may run.

    Where none may, `np.errstate(all="ignore")` does, for less.
    """

    __slots__ = ("_scope",)

    _scope: np.errstate | None

    def __enter__(self) -> None:
        self._scope = None
        if _innermost.quiet is None:
            self._begin()

    def __exit__(self, *exception: object) -> None:
        self._end()

    def _begin(self) -> None:
        self._scope = np.errstate(all="ignore")
        self._scope.__enter__()
        _innermost.quiet = self

    def _end(self) -> None:
        if self._scope is not None:
            _innermost.quiet = None
            self._scope.__exit__(None, None, None)

    def interrupted(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Calls a function as outside of the block."""
        self._end()
        try:
            return function(*arrays)
        finally:
            self._begin()


def call_of_the_user(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Calls a function of the user's, with the warnings as the user has set them."""
    quiet = _innermost.quiet
    return function(*arrays) if quiet is None else quiet.interrupted(function, arrays)
