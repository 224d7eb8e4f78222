"""Calls of a `Function` that are taken over again at the same place: they are steps of a trail.

A call that is like an earlier one is taken over from what was recorded then, see `recording`. Where
that has happened at this point of a trace, there is nothing left to ask but whether the methods
would do the same.
"""

from __future__ import annotations

from typing import Any

from ftrans.config import config
from ftrans.custom.function_call import Call
from ftrans.custom.methods import Methods
from ftrans.custom.surroundings import surroundings
from ftrans.ir import Tracer
from ftrans.ir.location import user_place
from ftrans.ir.trail import Trail
from ftrans.numpy.composite import add_argument


class Shortcut:
    """Is a call at a point of a trace.

    Args:
        trail: the innermost frame.
        methods: those of the class.
        args: the arguments.
        passed: how many of them were passed, not filled in.
    """

    __slots__ = ("_call", "_mark", "_name", "_trail")

    def __init__(self, trail: Trail, methods: Methods, args: tuple[Any, ...], passed: int):
        self._trail = trail
        self._call: Any = None
        self._name = methods.name
        guards = methods.guards
        if guards is None or guards.asks_needs or not guards.hold():
            return
        call: list[Any] = [guards.token, passed, config.default_dtype, surroundings()]
        for x in args:
            if not add_argument(call, trail, x):
                return
        call += user_place()
        self._call = tuple(call)

    def take(self) -> Tracer | None:
        """Returns the result, where it is known; records the call then."""
        if self._call is None:
            return None
        found = self._trail.leap(self._call)
        if found is not None:
            return found[0]
        self._mark = self._trail.mark()
        return None

    def learn(self, call: Call, result: Any) -> None:
        """Remembers the call, which was recorded since, if that has no other effect."""
        if self._call is not None:
            view = None if call.dirty else (False,)
            self._trail.learn(
                self._mark, self._call, result, view, self._name, lasting=call.taken_over
            )
