"""Compiles in another thread while calls go on being interpreted, for those who ask for it.

One thread at a time, which ends when nothing is left to do. It is no daemon: Python waits at its
exit for the compilation under way, and what is queued behind it is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_queue: deque[tuple[Any, Callable[[], Any]]] = deque()
_lock = threading.Lock()
_idle = threading.Condition(_lock)
_worker: threading.Thread | None = None


def submit(state: Any, build: Callable[[], Any]) -> bool:
    """Queues a compilation; False where the state waits for one already."""
    global _worker
    with _lock:
        if state.pending:
            return False
        try:
            state.pending = True
            _queue.append((state, build))
            if _worker is None or not _worker.is_alive():
                _worker = threading.Thread(target=_work, name="ftrans-compile", daemon=False)
                _worker.start()
        except BaseException:
            state.pending = False  # an interrupt: the next call asks again
            raise
    return True


def wait(timeout: float | None = None) -> bool:
    """Waits until nothing is being compiled; returns whether that came true in time."""
    with _idle:
        return _idle.wait_for(lambda: _worker is None, timeout)


def _work() -> None:
    global _worker
    while True:
        with _idle:
            if not _queue or not threading.main_thread().is_alive():
                for state, _ in _queue:
                    state.pending = False
                _queue.clear()
                _worker = None
                _idle.notify_all()
                return
            state, build = _queue.popleft()
        try:
            build()
        except BaseException as error:
            # told by a warning when the program is called next
            state.failure = f"{type(error).__name__}: {error}"
        finally:
            state.pending = False
        del state, build
