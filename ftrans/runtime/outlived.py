"""Traced values that outlive their function, or a block, as `self.loss = loss` makes them.

Where those of a function are known when it returns, they are evaluated then, so that they can be
read afterwards: inside another traced function they are values of that one, else constants. Those
of a block of `no_grad` are held constant.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from ftrans.ir import Abstract, Frame, Params, Tracer, bind, is_tracing
from ftrans.ir.stack import PAST, state
from ftrans.ir.trail import Trail
from ftrans.primitives import call_p, stop_gradient_p
from ftrans.runtime.cache import keep
from ftrans.runtime.jaxlink import foreign
from ftrans.runtime.run import run


class Ends(Trail):
    """Is a frame whose values are arrays after it has been run, those that outlived it too."""

    __slots__ = ()

    def hold(self, tracer: Tracer) -> None:
        """Keeps account of a value that is to be an array in the end."""
        raise NotImplementedError


def settle(frame: Frame) -> None:
    """Evaluates the known ones among the values of a frame that outlive it.

    What depends on an input without a value, on what JAX is tracing, or on a function that would
    have to be called again, stays as it is: to use it is an error.

    Args:
        frame: has been closed and taken off the stack, but still has its sources.
    """
    if foreign(frame.sources):
        return
    name = f"what outlives {frame.name}"
    alive = _alive(frame)
    if not alive:
        return
    program, captured = frame.close(alive, name)
    keep(program)
    unknown = {i for i, source in enumerate(frame.sources) if isinstance(source, Abstract)}
    for equation, numbers, _ in program.numbered() if unknown or program.calls_host else ():
        if equation.params.calls_host or not unknown.isdisjoint(equation.operands):
            unknown.update(numbers)
    known = [t for t, output in zip(alive, program.outputs, strict=True) if output not in unknown]
    if not known:
        return
    operands = [
        np.zeros(t.shape, t.dtype) if isinstance(source, Abstract) else source  # needed by no value
        for t, source in zip(frame.input_types, frame.sources, strict=True)
    ]
    if len(known) < len(alive):
        program, captured = frame.close(known, name)
        keep(program)
    operands += captured[len(captured) + len(operands) - len(program.inputs) :]  # known already
    if is_tracing():
        values = bind(call_p, operands, Params({"program": program}))
    else:
        try:
            values = run(program, operands)
        except Exception:
            return  # nobody has asked for them yet; who does is told that they are gone
    for tracer, value in zip(known, values, strict=True):
        become(tracer, value)


def become(tracer: Tracer, value: Any) -> None:
    """Makes a traced value denote another one, or an array, of the same type."""
    if type(value) is Tracer:
        tracer.move(value)
        if isinstance(value.frame, Ends):
            value.frame.hold(tracer)
        return
    past = Frame(tracer.frame.name, entered=tracer.frame.entered)
    past.depth = PAST
    past.input_types.append(tracer.type)
    past.known[~0] = value
    tracer.frame, tracer.index = past, ~0


def _alive(frame: Frame) -> list[Tracer]:
    """Returns the values of a frame that are referred to, other than as what it captured."""
    captured = {id(tracer) for tracer in frame.captured.values()}
    if frame.made is None:
        # once for each function: only those that have left something before keep account of it
        found = gc.get_referrers(frame)
    else:
        found = {id(made): made for made in [ref() for ref in frame.made]}.values()
    if isinstance(frame, Trail):
        frame.root.leaves = True
    return [x for x in found if type(x) is Tracer and x.frame is frame and id(x) not in captured]


class Constants:
    """Finds the traced values that are made from here on, and holds them constant in the end."""

    def __init__(self) -> None:
        self._frames = [(frame, frame.made) for frame in state.stack]
        for frame, before in self._frames:
            frame.made = [] if before is None else list(before)
        self._kept: list[Any] = []
        state.trail = None  # the short ways do not ask for the mode

    def _made(self) -> list[Any]:
        """Returns the values that were made, and those that were written to, if still there."""
        lists = [(frame.made or ())[len(before or ()) :] for frame, before in self._frames]
        return [x for made in lists for ref in made if (x := ref()) is not None]

    def keep(self, tracer: Any) -> None:
        """Says of a value that is written to that it keeps its derivatives, if it is older."""
        if not any(made is tracer for made in self._made()):
            self._kept.append(tracer)

    def spare(self, *tracers: Any) -> None:
        """Says of values that stand for what is older that they keep their derivatives."""
        self._kept += tracers

    def end(self) -> None:
        """Makes those that are still referred to denote constants."""
        found = self._made()
        for frame, before in self._frames:
            if before is None:
                frame.made = None
        for x in found:
            kept = any(older is x for older in self._kept)
            if x.type.is_inexact and x.frame in state.stack and not kept:
                x.move(stop_gradient_p(x))
