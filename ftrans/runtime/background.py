"""A thread that compiles, one program after the other, while calls go on being interpreted.

It ends when nothing is left to do. It is no daemon: Python waits at its exit for the compilation
under way, and what is queued behind it is dropped. A fork waits as well, since what the thread has
locked would stay locked in the child. That interprets, if XLA was in use: it would wait for threads
that are not there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from ftrans.runtime.jaxlink import has_started

_queue: deque[Callable[[], None]] = deque()
_queueing = threading.Lock()
_working = threading.RLock()
_worker: threading.Thread | None = None

_forked = False


def is_forked() -> bool:
    """Tells whether this process is a fork of one that had used XLA."""
    return _forked


def _before_fork() -> None:
    _working.acquire()
    _queueing.acquire()


def _after_fork() -> None:
    _queueing.release()
    _working.release()


def _in_child() -> None:
    global _forked
    _forked = _forked or has_started()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def submit(job: Callable[[], None]) -> bool:
    """Has the thread do something, which raises nothing, after all that it was told before.

    It is False where there can be no such thread.
    """
    global _worker
    if _forked:
        return False
    with _queueing:
        _queue.append(job)
        try:
            if _worker is None or not _worker.is_alive():
                worker = threading.Thread(target=_work, name="ftrans-compile", daemon=False)
                worker.start()
                _worker = worker
        except RuntimeError:  # there are too many threads, or Python is about to exit
            _queue.remove(job)
            return False
        except BaseException:  # an interrupt
            _queue.remove(job)
            raise
    return True


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
