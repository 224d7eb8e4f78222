"""Python numbers made of traced values: they are constants, and one is told so once for a place."""

from __future__ import annotations

import dis
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

import numpy as np

from ftrans.errors import GradientCutWarning, ShapeError
from ftrans.ir import Tracer
from ftrans.ir.location import Location, location_of, user_frame
from ftrans.numpy.advice import is_storing, stored
from ftrans.numpy.promotion import is_array
from ftrans.numpy.protocols import is_differentiated, may_have_gradient
from ftrans.runtime.cache import on_clear


def only_element(x: Any, what: Any) -> Any:
    """Returns the only element of a traced value as a Python scalar.

    Args:
        x: a traced value.
        what: names the use, for errors: "bool()".
    """
    if x.type.size != 1:
        raise ShapeError(
            f"{what}: takes an array of one element.\n  x: {x.type}\n"
            f"  Reduce it first: x.sum(), x.any(), x.all(), or read one: x[0]."
        )
    return np.asarray(x.value(what)).item()


def number_of(x: Any, what: str) -> Any:
    """Is `only_element`, where Python goes on to compute with it."""
    place = _place(x, what)
    number = only_element(x, what)
    if place is not None:
        _warn_of_cut(x, what, *place)
    return number


def numbers_of(x: Any, what: str) -> np.ndarray:
    """Returns the array behind a traced value, with whose elements Python goes on to compute."""
    place = _place(x, what)
    array = np.asarray(x.value(what))
    if place is not None:
        _warn_of_cut(x, what, *place)
    return array


def scalar_of(x: Any, what: str) -> Any:
    """Returns the Python or NumPy number behind a scalar, of a traced one its value."""
    if isinstance(x, Tracer):
        return numbers_of(x, what)[()]
    return np.asarray(x)[()] if is_array(x) else x


_warned: set[Location] = set()
_MOST = 10_000

on_clear(_warned.clear)


def _place(x: Tracer, what: str) -> tuple[Location, str] | None:
    """Returns where the user's code makes a number, and in which module; None for no warning.

    Raises:
        MutationError: where the number is to be stored in an array, whose name could be rebound.
    """
    frame = user_frame() if x.type.is_inexact else None
    if frame is None:
        return None
    location = location_of(frame.f_code, frame.f_lasti)
    if location in _warned:
        return None
    if is_storing() and may_have_gradient(x):
        raise stored(x)
    operation, argument = frame.f_code.co_code[frame.f_lasti :][:2]
    if operation == _BINARY_OP and argument in _REMAINDERS:
        return None  # "%f" % x shows it: there is no other % that asks for a number
    return location, frame.f_globals.get("__name__", "")


_BINARY_OP = dis.opmap["BINARY_OP"]


def _remainders() -> frozenset[int]:
    """Returns the arguments of BINARY_OP that are `%` and `%=`."""

    def argument(source: str) -> int:
        code: CodeType = compile(source, "", "exec")
        return next(i.arg or 0 for i in dis.get_instructions(code) if i.opcode == _BINARY_OP)

    return frozenset({argument("x % y"), argument("x %= y")})


_REMAINDERS = _remainders()


def _warn_of_cut(x: Tracer, what: str, location: Location, module: str) -> None:
    if not is_differentiated(x):
        return
    is_method = what in ("item()", "tolist()")
    called, meant = (
        template.format(what.removesuffix("()"))
        for template in (
            ("x.{}()", "x.detach().{}()") if is_method else ("{}(x)", "{}(x.detach())")
        )
    )
    warnings.warn_explicit(
        GradientCutWarning(
            f"{called}: a value that is differentiated became a Python number, which has no "
            f"gradient.\n  x: {x.type}, {x.origin}\n"
            f"  Where a constant is meant, write {meant}; else keep it an array, and compute with\n"
            f"  functions of ftrans.numpy."
        ),
        GradientCutWarning,
        location.filename,
        location.line,
        module,
    )
    if len(_warned) >= _MOST:
        _warned.clear()
    _warned.update(_one_call(location))


def _one_call(location: Location) -> Iterator[Location]:
    """Yields the instructions at which a call may be: Python 3.11 has two, and leaves one out."""
    positions = list(location.code.co_positions())
    for index, position in enumerate(positions):
        if position == positions[location.offset // 2]:
            yield location_of(location.code, 2 * index)
