"""Literals whose place brings other values in other traces: they become inputs of programs.

So a learning rate that changes at each step does not make a new program at each, see `Root`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ftrans.config import config
from ftrans.ir.above import above
from ftrans.ir.frame import make_tracer
from ftrans.ir.leap import Leap
from ftrans.ir.steps import Step
from ftrans.ir.types import ArrayType, Literal

if TYPE_CHECKING:
    from ftrans.ir.trail import Trail


def varied(trail: Trail, key: Any) -> Step | None:
    """Returns the next step, if the literal of its key was an input at this place before.

    What comes in front of it is recorded: the input, which has the value of this literal.
    """
    leaps = trail.step.leaps
    found = None if leaps is None else leaps.get(_open(key))
    if found is None or config.check or trail.visits is not None:
        return None
    array = next(c for c in key[4:] if type(c) is Literal).array.copy()
    trail.captured[id(array)] = make_tracer(trail, ~len(trail.sources), found.types[0])
    trail.go(found)
    trail.sources[-1] = array
    return found.view  # type: ignore[no-any-return]


def _open(key: Any) -> Any:
    """Returns the key of a step without the values of its literals."""
    return (_open, *key[:4], *[c.type if type(c) is Literal else c for c in key[4:]])


def learn_varied(trail: Trail, start: Step, key: Any, steps: list[Step], last: Step) -> None:
    """Has `varied` find the last step, with what came in front of it after the first."""
    if sum([type(c) is Literal for c in key[4:]]) == 1:
        if start.leaps is None:
            start.leaps = {}
        inputs = trail.sources[-1:], trail.input_types[-1:], [None]
        start.leaps[_open(key)] = Leap(steps, trail.step, *inputs, [], None, last, [])


def with_inputs(
    trail: Trail, primitive: Any, key: Any, codes: Sequence[Any], shape: tuple[int, ...]
) -> list[Any] | None:
    """Returns the operands of an equation with inputs for literals that vary; None for no such."""
    if not _takes_inputs(primitive):
        return None
    varying = _varying(trail, key, codes)
    if not varying:
        return None
    pairs = enumerate(codes)
    return [_input(trail, c, primitive, shape) if i in varying else c for i, c in pairs]


def _takes_inputs(primitive: Any) -> bool:
    """Tells whether a literal operand may become an input."""
    return not primitive.tags.isdisjoint(("broadcast", "elementwise"))


def _varying(trail: Trail, key: Any, operands: Sequence[Any]) -> list[int]:
    """Returns which operands are literals whose place brings other values in other traces."""
    root = trail.root
    place = key[:1] + key[2:4]
    positions = [i for i, c in enumerate(operands) if type(c) is Literal]
    if place not in root.varying:
        visit = (*place, trail.visited(place))
        found = tuple([(i, operands[i]) for i in positions])
        seen = root.literals.setdefault(visit, found)
        changed = {i for (i, a), (j, b) in zip(seen, found, strict=False) if i == j and a != b}
        if not changed:
            return []
        root.varying.setdefault(place, set()).update(changed)
    return [i for i in positions if i in root.varying[place]]


def _input(trail: Trail, literal: Literal, primitive: Any, shape: tuple[int, ...]) -> int:
    """Returns the code of an input that has the value of a literal, in a shape."""
    array = literal.array.copy()  # of its own: two scalars that are equal now may differ later
    scalar = trail.input(ArrayType((), array.dtype), array)
    trail.captured[id(array)] = scalar
    if shape and "broadcast" not in primitive.tags:
        return above.broadcast(scalar, shape).index
    return scalar.index
