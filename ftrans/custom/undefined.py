"""Calls of `backward` with None for all cotangents.

No transform makes them, since what comes of them has to be zero; PyTorch's engine does. Where
somebody listens, they can be made beside those with which `backward` is traced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ftrans.ir.stack import state

Heard = Callable[[str, Callable[[], Sequence[Any]]], None]
"""Is told the name of a `backward`, and how to call it without cotangents."""


class _Listener(threading.local):
    heard: Heard | None = None
    depth = 0


_listener = _Listener()


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Tells of each `backward` that is traced in the block, called by the functions traced there.

    Those deeper inside, in the rules of others or in `jit`, do not count.
    """
    before = _listener.heard, _listener.depth
    _listener.heard, _listener.depth = heard, len(state.stack) + 1
    try:
        yield
    finally:
        _listener.heard, _listener.depth = before


def is_listening() -> bool:
    """Tells whether somebody listens to a call that is recorded now."""
    return _listener.heard is not None and len(state.stack) == _listener.depth


def note(label: str, backward: Callable[[], Sequence[Any]]) -> None:
    """Tells who listens of a `backward`."""
    if _listener.heard is not None:
        _listener.heard(label, backward)
