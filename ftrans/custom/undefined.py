"""Calls of `backward` with None for all cotangents.

No transform makes them, since what comes of them has to be zero; PyTorch's engine does. Where
somebody listens, they are made beside those with which `backward` is traced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ftrans.errors import ConcretizationError
from ftrans.ir import Tracer
from ftrans.ir.source import evaluated
from ftrans.ir.stack import state
from ftrans.runtime.jaxlink import foreign

__all__ = ["Undefined", "is_listening", "listening", "note"]


class Undefined(NamedTuple):
    """Is what a `backward` has done with None for all cotangents.

    Attributes:
        label: names it.
        error: what it raised, or None.
        gradients: what it returned for each input; None for zero, and for what has no value yet.
    """

    label: str
    error: Exception | None
    gradients: list[np.ndarray | None]


class _Listener(threading.local):
    found: list[Undefined] | None = None
    depth = 0


_listener = _Listener()


@contextmanager
def listening() -> Iterator[list[Undefined]]:
    """Collects what is found in a block: of the calls in the functions that are traced in it.

    Those deeper inside, in the rules of others or in `jit`, do not count.
    """
    before = _listener.found, _listener.depth
    _listener.found, _listener.depth = [], len(state.stack) + 1
    try:
        yield _listener.found
    finally:
        _listener.found, _listener.depth = before


def is_listening() -> bool:
    """Tells whether somebody listens to a call that is recorded now."""
    return _listener.found is not None and len(state.stack) == _listener.depth


def note(label: str, backward: Callable[[], Sequence[Any]]) -> None:
    """Calls `backward` without cotangents, and tells who listens what it did."""
    gradients: list[np.ndarray | None] = []
    error = None
    try:
        gradients = [None if ct is None else _value(ct) for ct in backward()]
    except Exception as raised:
        error = raised
    if _listener.found is not None:
        _listener.found.append(Undefined(label, error, gradients))


def _value(x: Any) -> np.ndarray | None:
    if type(x) is not Tracer:
        return np.asarray(x)
    try:
        with evaluated(lambda value: not foreign([value]), examples=False):
            return np.asarray(x.value())
    except ConcretizationError:
        return None
