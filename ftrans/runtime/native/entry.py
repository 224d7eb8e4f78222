"""Functions that C calls, in which an interrupt is an exception like any.

Python looks for signals where a function begins, before the first `try` of its body. While XLA is
running, that is where an interrupt is most often noticed; and what is raised there goes to C, where
it is lost: the loop would go on, with results that nobody has written.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

__all__ = ["guarded"]


def guarded(function: FunctionType) -> Any:
    """Returns a function, all of whose body is one `try`, such that this holds of its entry too.

    Where a version of Python describes that otherwise, the function stays as it is.

    Args:
        function: closes over nothing.
    """
    code = function.__code__
    numbers = list(_numbers(getattr(code, "co_exceptiontable", b"")))
    if len(numbers) < 4 or len(numbers) % 4 or numbers[0] > _ENTRY:
        return function
    start, length, *rest = numbers
    table = bytearray()
    for place, number in enumerate([0, start + length, *rest]):
        table += _encoded(number, first=place % 4 == 0)
    covered = FunctionType(code.replace(co_exceptiontable=bytes(table)), function.__globals__)
    covered.__doc__ = function.__doc__
    return covered


_ENTRY = 4
"""At most so many instructions stand before the body of a function: `RESUME`, `NOP`."""

# The table is a sequence of (start, length, target, depth), each number in groups of six bits, the
# highest first; bit 6 says that another one follows, bit 7 that an entry begins. See CPython's
# InternalDocs/exception_handling.md.
_MORE, _BEGINS = 0x40, 0x80


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = (number << 6) | (byte & 0x3F)
        if not byte & _MORE:
            yield number
            number = 0


def _encoded(number: int, first: bool) -> bytes:
    groups = [number & 0x3F]
    while number := number >> 6:
        groups.append((number & 0x3F) | _MORE)
    groups.reverse()
    groups[0] |= _BEGINS if first else 0
    return bytes(groups)
