"""Keeps what compiled code calls alive for exactly as long as it can be called.

A *ticket* is the number by which compiled code names a callee. It is held by the jaxpr that it is
an attribute of, and by every executable, as a state that XLA deletes together with it. XLA does so
in any thread, also while Python ends: so its deleter is C's `time`, which writes into the state
that it is gone, and what is gone is let go of when the next executable is made.
"""

from __future__ import annotations

import ctypes
import itertools
import secrets
import threading
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np

from ftrans.runtime.cache import on_clear

_RECENT = 256
"""How many tickets are held of which no executable was made yet: their jaxpr may be gone before XLA
has compiled it."""


class Ticket(np.int64):
    """Is a number that keeps what it stands for alive."""

    callee: Any


# Not from 1: an executable from a cache on disk must not find a callee of this process.
_numbers = itertools.count(secrets.randbits(62))
_known: weakref.WeakValueDictionary[int, Ticket] = weakref.WeakValueDictionary()
_recent: OrderedDict[int, Ticket] = OrderedDict()
_states: dict[int, tuple[Any, Ticket]] = {}
"""For each executable, by the address of its state: the state, and the ticket that it holds."""
_free: list[Any] = []
"""States that nobody has, in memory that is never freed: XLA may write when Python has ended."""
_lock = threading.RLock()


def issue(callee: Any) -> Ticket:
    """Returns a new ticket for a callee."""
    sweep()
    ticket = Ticket(next(_numbers) & (1 << 62) - 1)
    ticket.callee = callee
    with _lock:
        _known[int(ticket)] = _recent[int(ticket)] = ticket
        gone = _recent.popitem(last=False) if len(_recent) > _RECENT else None
    del gone
    return ticket


def called(number: int) -> Any:
    """Returns the callee of a ticket; None where nothing holds it."""
    ticket = _known.get(number)
    return None if ticket is None else ticket.callee


def hold(number: int) -> int:
    """Holds a ticket for an executable; returns the address of its state, 0 if there is none."""
    sweep()
    ticket = _known.get(number)
    if ticket is None:
        return 0
    with _lock:
        if not _free:
            _free.append(ctypes.c_int64())
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(_free[0]))
        state = _free.pop()
        state.value = 0
        _states[ctypes.addressof(state)] = state, ticket
        _recent.pop(number, None)
    return ctypes.addressof(state)


def sweep() -> None:
    """Lets go of the tickets of executables that are gone."""
    with _lock:
        dead = [address for address, (state, _) in _states.items() if state.value]
        gone = [_states.pop(address) for address in dead]
        _free.extend(state for state, _ in gone)
    del gone  # after the lock is left, since anything may hang on tickets


@on_clear
def _forget() -> None:
    with _lock:
        gone = list(_recent.values())
        _recent.clear()
    del gone
    sweep()
