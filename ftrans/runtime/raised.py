"""Carries what Python code raises through compiled programs that call it.

XLA passes on a text, not an exception. So the exception is kept here under a mark, the mark
travels in the text, and whoever gets XLA's error raises the original, with the user's traceback.
"""

from __future__ import annotations

import itertools
import re
import threading
import traceback
from collections import OrderedDict

_KEPT = 64
"""How many exceptions are kept that nobody has asked for, as where JAX runs the program."""

_MARK = re.compile(r"\[ftrans:raised:(\d+)\]")
_numbers = itertools.count(1)
_errors: OrderedDict[int, BaseException] = OrderedDict()
_lock = threading.Lock()


def keep_raised(error: BaseException) -> str:
    """Keeps an exception that was raised in a call from compiled code.

    Returns:
        The text of the error that XLA is to report, with a mark in it.
    """
    number = next(_numbers)
    with _lock:
        _errors[number] = error
        while len(_errors) > _KEPT:
            _errors.popitem(last=False)
    text = "".join(traceback.format_exception(error))
    return f"[ftrans:raised:{number}] a Python function raised\n{text}"


def is_marked(error: BaseException) -> bool:
    """Tells whether an error of XLA's stands for an exception that is kept."""
    return bool(_errors) and _MARK.search(str(error)) is not None


def raised(error: BaseException) -> BaseException | None:
    """Returns the exception behind an error of XLA's, once; None where there is none.

    Raise it after the `except` block has been left: inside, Python would make the error of XLA its
    context, in the place of the context that it has.
    """
    if not _errors:
        return None
    for mark in _MARK.findall(str(error)):
        with _lock:
            found = _errors.pop(int(mark), None)
        if found is not None:
            return found
    return None
