"""Says in an error of XLA or NumPy which transform and which line of the user's it comes from."""

from __future__ import annotations

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
