"""A thread that compiles, one program after the other, while calls go on being interpreted.

It ends when nothing is left to do. It is no daemon: Python waits at its exit for the compilation
under way, and what is queued behind it is dropped. A fork waits as well, since what the thread has
locked would stay locked in the child.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

_queue: deque[Callable[[], None]] = deque()
_queueing = threading.Lock()
_working = threading.RLock()
_worker: threading.Thread | None = None

if hasattr(os, "register_at_fork"):
    _end = _working.release
    os.register_at_fork(before=_working.acquire, after_in_parent=_end, after_in_child=_end)


def submit(job: Callable[[], None]) -> None:
    """Has the thread do something, which raises nothing, after all that it was told before."""
    global _worker
    with _queueing:
        _queue.append(job)
        try:
            if _worker is None or not _worker.is_alive():
                _worker = threading.Thread(target=_work, name="ftrans-compile", daemon=False)
                _worker.start()
        except BaseException:  # no thread can be started, or an interrupt
            _queue.remove(job)
            raise


def _work() -> None:
    global _worker
    while True:
        with _queueing:
            if not _queue or not threading.main_thread().is_alive():
                _queue.clear()
                _worker = None
                return
            job = _queue.popleft()
        with _working:
            job()
        del job


def finished(timeout: float) -> bool:
    """Waits for the thread; tells whether it came to an end within so many seconds."""
    worker = _worker
    if worker is not None:
        worker.join(timeout)
    return _worker is None
