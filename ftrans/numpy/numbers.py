"""Python numbers made of traced values: they are constants, and one is told so once for a place."""

from __future__ import annotations

import dis
import operator
import warnings
from collections.abc import Callable
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
    """Returns the only element of a traced value; `what` names the use, for errors: "bool()"."""
    if x.type.size != 1:
        raise ShapeError(
            f"{what}: takes an array of one element.\n  x: {x.type}\n"
            f"  Reduce it first: x.sum(), x.any(), x.all(), or read one: x[0]."
        )
    return np.asarray(x.value(what)).item()


def number_of(x: Any, what: str, read: Callable[[Any, str], Any] = only_element) -> Any:
    """Returns the only element, where Python goes on to compute with it, or what else is read."""
    place = _place(x)
    number = read(x, what)
    if place is not None:
        _warn_of_cut(x, what, *place)
    return number


def numbers_of(x: Any, what: str) -> np.ndarray:
    """Returns the array behind a traced value, with whose elements Python goes on to compute."""
    return number_of(x, what, lambda x, what: np.asarray(x.value(what)))


def scalar_of(x: Any, what: str) -> Any:
    """Returns the Python or NumPy number behind a scalar, of a traced one its value."""
    if isinstance(x, Tracer):
        return numbers_of(x, what)[()]
    return np.asarray(x)[()] if is_array(x) else x


_settled: set[Location] = set()
"""Where there was a warning, and where there need be none."""
_MOST = 10_000

on_clear(_settled.clear)


def _place(x: Tracer) -> tuple[Location, str] | None:
    """Returns where the user's code makes a number, and in which module; None for no warning.

    Raises:
        MutationError: where the number is to be stored in an array, whose name could be rebound.
    """
    frame = user_frame() if x.type.is_inexact else None
    if frame is None:
        return None
    location = location_of(frame.f_code, frame.f_lasti)
    if location in _settled:
        return None
    if is_storing() and may_have_gradient(x):
        raise stored(x)
    return location, frame.f_globals.get("__name__", "")


def _warn_of_cut(x: Tracer, what: str, location: Location, module: str) -> None:
    if not is_differentiated(x):
        return
    signs = [i.argrepr for i in dis.get_instructions(location.code) if i.offset == location.offset]
    if signs in (["%"], ["%="]):  # "%f" % x shows it: there is no other % that asks for a number
        _settle(location)
        return
    name = what.removesuffix("()")
    called, meant = f"{name}(x)", f"{name}(x.detach())"
    if name in ("item", "tolist"):
        called, meant = f"x.{name}()", f"x.detach().{name}()"
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
    _settle(location)


def _settle(location: Location) -> None:
    """Remembers all places where a call may be: Python 3.11 has two, and leaves one out."""
    if len(_settled) >= _MOST:
        _settled.clear()
    positions = list(location.code.co_positions())
    for index, position in enumerate(positions):
        if position == positions[location.offset // 2]:
            _settled.add(location_of(location.code, 2 * index))


_PLAIN = frozenset({int, bool, type(None), type(...)})


def whole(given: Any) -> Any:
    """Returns integers for tensors of one, in slices, tuples and lists too; all else as it is.

    They say what a view is of: neither what is recorded of it nor what makes it again may depend
    on what a tensor holds at another time.
    """
    kind = type(given)
    if kind in _PLAIN:
        return given
    if kind is tuple or kind is list:
        return given if _PLAIN.issuperset(map(type, given)) else kind(map(whole, given))
    if kind is slice:
        bounds = given.start, given.stop, given.step
        return given if _PLAIN.issuperset(map(type, bounds)) else slice(*map(whole, bounds))
    if kind is Tracer or getattr(given, "ndim", 1) or not hasattr(given, "dtype"):
        return given
    return operator.index(given) if given.dtype.kind in "iu" else given
