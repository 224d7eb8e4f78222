"""Ranges: parts of a program that are events, by the will of its author, or as a backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from ftrans.autograd.profiler.collector import run_pending
from ftrans.autograd.profiler.events import USER
from ftrans.ir.location import here
from ftrans.primitives.observe import observing

F = TypeVar("F", bound=Callable[..., Any])


class record_function(ContextDecorator):
    """Makes a block, or each call of a function, one event of a profile.

    What is written in it is run in it. In a function that is traced, where nothing runs, the event
    is the tracing.

    Args:
        name: its name.
        args: a text about it, for the reader of the code.

    Example:
        >>> from ftrans import autograd, tensor
        >>> x = tensor([1.0, 2.0])
        >>> with autograd.profiler.profile() as prof:
        ...     with record_function("double"):
        ...         y = x * 2
        >>> [event.name for event in prof.function_events]
        ['double', 'tensors', 'mul']
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._entered: list[Any] = []

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)  # each call of a function has its own

    def __enter__(self) -> record_function:
        by: Any = observing.by
        if by is not None:
            run_pending()
        self._entered.append((by, by and by.begin(self.name, here(), (), USER)))
        return self

    def __exit__(self, *error: object) -> None:
        by, event = self._entered.pop()
        if by is not None:
            if error[0] is None:
                run_pending()
            by.end(event)


def backward_pass(function: F) -> F:
    """Makes each call of a function of the engine an event, where there is a profile."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        by: Any = observing.by
        if by is None:
            return function(*args, **kwargs)
        with by.backward(here()):
            return function(*args, **kwargs)

    return called  # type: ignore[return-value]
