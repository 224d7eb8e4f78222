"""Errors of a run: which transform and which line of the user's they come from, and whose they are.

XLA passes on a text where Python code that it calls raises, not the exception. So that is kept here
under a mark, the mark travels in the text, and whoever gets XLA's error raises the original, with
the user's traceback.
"""

from __future__ import annotations

import itertools
import re
import threading
import traceback
from collections import OrderedDict

from ftrans.errors import FtransError
from ftrans.ir import Program


def raise_ours(error: ValueError) -> None:
    """Raises our error where NumPy has raised another in its place, as for `array[i] = x`."""
    cause = error.__cause__
    if isinstance(cause, FtransError) and _REPLACED in str(error):
        error.__cause__ = None
        raise cause.with_traceback(error.__traceback__) from None


_REPLACED = "setting an array element with a sequence"


def explain_failure(error: Exception, program: Program, was_compiled: bool) -> None:
    """Adds to an error raised by a run what was run, with what, and the likely place.

    Args:
        error: what was raised.
        program: what was run.
        was_compiled: whether XLA ran it; else the equation that failed has been named already.
    """
    if isinstance(error, FtransError):
        return
    inputs = ", ".join(map(str, program.inputs)) or "nothing"
    lines = [
        f"ftrans: raised when {program.name} was run {'compiled' if was_compiled else 'by NumPy'}",
        f"  inputs: {inputs}",
    ]
    if was_compiled:
        lines += _largest(program)
    error.add_note("\n".join(lines))


def _largest(program: Program) -> list[str]:
    """Names the equation with the largest result, which is what memory most likely lacks for."""
    sizes = [sum(t.nbytes for t in equation.types) for equation in program.equations]
    if not sizes:
        return []
    index = sizes.index(max(sizes))
    equation, place = program.equations[index], program.locations[index]
    result = ", ".join(map(str, equation.types))
    found = [f"  largest result: {result}, of {equation.primitive.name}"]
    return [*found, f"  {place}: {place.source}"] if place else found


# ----------------------------------------------------------- through compiled programs and back

_KEPT = 64
"""How many exceptions are kept that nobody has asked for, as where JAX runs the program."""

_MARK = re.compile(r"\[ftrans:raised:(\d+)\]")
_INTERRUPTED = re.compile(r"^INTERNAL: CpuCallback error[\s\S]*^KeyboardInterrupt\b", re.MULTILINE)
"""An interrupt that came in JAX's own call of Python."""

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
    text = str(error)
    for mark in _MARK.findall(text) if _errors else ():
        with _lock:
            found = _errors.pop(int(mark), None)
        if found is not None:
            return found
    return KeyboardInterrupt() if _INTERRUPTED.search(text) else None
