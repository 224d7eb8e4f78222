"""Small programs written by hand, for the samples of primitives that carry programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans.ir import Abstract, ArrayType, Program, open_frame


def program_from(function: Callable[..., Sequence[Any]], *types: ArrayType) -> Program:
    """Returns the program of a function over strict operands.

    Args:
        function: takes one traced value per type and returns a sequence of them.
        types: the types of the inputs.
    """
    with open_frame("sample", closed=True) as frame:
        inputs = [frame.input(t, Abstract("a sample")) for t in types]
        program, captured = frame.close(function(*inputs))
    assert not captured
    return program
