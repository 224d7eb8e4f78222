"""Scopes around functions, generators and coroutines, which they leave while these wait."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any


def running_in(scope: AbstractContextManager[Any], function: Callable[..., Any]) -> Any:
    """Returns what calls a function in a scope that may be entered again."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with scope:
            return function(*args, **kwargs)

    def generating(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _resumed(scope, function(*args, **kwargs)))  # type: ignore

    async def awaiting(*args: Any, **kwargs: Any) -> Any:
        return await _resumed(scope, function(*args, **kwargs))

    if inspect.isgeneratorfunction(function):
        return generating
    return awaiting if inspect.iscoroutinefunction(function) else called


@types.coroutine
def _resumed(scope: AbstractContextManager[Any], inner: Any) -> Any:
    """Runs a generator, or what is awaited, in a scope, but not what happens while it waits."""
    step, given = inner.send, None
    while True:
        try:
            with scope:
                value = step(given)
        except StopIteration as stop:
            return stop.value
        try:
            step, given = inner.send, (yield value)
        except GeneratorExit:
            with scope:
                inner.close()
            raise
        except BaseException as error:
            step, given = inner.throw, error
