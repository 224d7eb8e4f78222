"""Where a NaN comes from: a run that returned one is gone through again, equation by equation."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import AnomalyError
from ftrans.interpreters.node_names import node_name
from ftrans.ir import Literal, Program
from ftrans.ir.above import above
from ftrans.ir.location import Called, Location


def look_for_nan(program: Program, arrays: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Raises where an output of a run is NaN, in part.

    Args:
        program: what was run.
        arrays: what it was run on.
        outputs: what it returned.

    Raises:
        AnomalyError: there; it names the operation that made the NaN, and where that was recorded.
    """
    if not _looking.already and any(map(_has_nan, outputs)):
        _looking.already = True
        try:
            error = _error(program, arrays)
        finally:
            _looking.already = False
        raise error


class _Looking(threading.local):
    already = False


_looking = _Looking()


def _has_nan(x: Any) -> bool:
    array = np.asarray(x)
    # bfloat16 and its kin are no subtypes of NumPy's floats; what is no number is equal to itself
    return bool((array != array).any())


def _error(program: Program, arrays: Sequence[Any]) -> AnomalyError:
    values, made = list(arrays), list[tuple[int, int]]()
    for index, equation in enumerate(program.equations):
        operands = [a.array if isinstance(a, Literal) else values[a] for a in equation.operands]
        found = above.evaluate(equation.primitive, operands, equation.params)
        taken = [values[a] for a in equation.operands if not isinstance(a, Literal)]
        if any(map(_has_nan, found)) and not any(map(_has_nan, taken)):
            made.append((index, [_has_nan(x) for x in found].index(True)))
        values += found
    for index, output in made:
        slope = _slope(program, values, index)
        if program.locations[slope] is not program.locations[index]:  # infinity times zero
            return _made_by(program, index, output, slope)
    if made:
        index, output = made[0]
        return _made_by(program, index, output, index)
    given = [f"{i}: {program.inputs[i]}" for i, x in enumerate(arrays) if _has_nan(x)]
    return AnomalyError(
        f"{program.name}: it returned nan values, which no operation has made of numbers.\n"
        f"  inputs that have some: {', '.join(given) or 'none; they are constants of it'}"
    )


def _slope(program: Program, values: Sequence[Any], index: int) -> int:
    """Returns the equation of a derivative that an infinite operand of another one comes from."""
    makers = {n: i for i, (_, ns, _) in enumerate(program.numbered()) for n in ns}
    for a in program.equations[index].operands:
        i = makers.get(a, 0) if type(a) is int else 0
        # the first equation of an operation is none of its derivative
        of_slope = program.locations.index(program.locations[i]) < i
        if of_slope and np.isinf(np.asarray(values[a])).any():  # type: ignore[call-overload]
            return _slope(program, values, i)
    return index


def _made_by(program: Program, index: int, output: int, slope: int) -> AnomalyError:
    """Returns the error for the equation that was the first to make a NaN of none."""
    equation, place = program.equations[index], program.locations[slope]
    same = [i for i, found in enumerate(program.locations) if found is place is not None]
    first = program.equations[same[0]] if same else equation
    name = first.primitive.name
    if len(same) > 1:  # the others are of its derivative
        called = place.name if type(place) is Called else name
        name = f"{node_name(called)}Backward0"
    types = ", ".join([str(program.type_of(a)) for a in equation.operands])
    ordinal = {1: "st", 2: "nd", 3: "rd"}.get(output, "th")
    error = AnomalyError(
        f"Function {name!r} returned nan values in its {output}{ordinal} output.\n"
        f"  the first to make one: {equation.primitive.name} of {types}"
        + ("" if place is None else f"\n  {place}: {place.source}")
    )
    error.__cause__ = None if place is None else _Forward(place)
    return error


class _Forward(Exception):
    """Says where in the forward pass what made a NaN was recorded."""

    def __init__(self, place: Location):
        super().__init__(
            f"forward call that caused the error\n"
            f'  File "{place.filename}", line {place.line}, in {place.function}\n'
            f"    {place.source}"
        )
