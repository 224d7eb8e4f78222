"""Gradients of what is pending that are differentiated in turn: recorded where it is, not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.autograd.ahead import is_watched
from ftrans.autograd.levels import OPEN
from ftrans.autograd.modes import Mode
from ftrans.autograd.segment import Edge
from ftrans.autograd.tape import Tape, recorded
from ftrans.autograd.tensor import Tensor
from ftrans.interpreters.slopes import slopes
from ftrans.ir import Params, Program, bind, make_tracer
from ftrans.ir.stack import state
from ftrans.primitives import call_p
from ftrans.runtime.cache import keep


def slopes_of(roots: Sequence[Any], seeds: Sequence[Any], sinks: Sequence[Any]) -> Any:
    """Returns the gradients of pending tensors with respect to leaves, or other pending ones.

    None stands for what is left to a walk: where some of it has been run, or somebody looks at it
    on the way, and for what `slopes` leaves.
    """
    found = state.tape
    if not isinstance(found, Tape) or found.most < 0 or found.hooks or OPEN or is_watched():
        return None
    live = found.pending()
    if any(x._v is not found for x in roots) or any(map(_is_special, live)):
        return None
    if any(type(x) is not Tensor or not x.requires_grad or _is_special(x) for x in sinks):
        return None
    inner, leaves = [[x for x in sinks if (x._v is found) is is_in] for is_in in (True, False)]
    outs = list(dict.fromkeys([*roots, *inner, *live]))
    targets, (program, operands) = found.targets, found.close_at([x._index for x in outs])
    places = tuple([i for x in leaves for i, target in enumerate(targets) if target is x])
    run = tuple([i for i, target in enumerate(targets) if isinstance(target, Edge)])
    is_one_each = len({*roots, *sinks}) == len(roots) + len(sinks) and len(places) == len(leaves)
    if not is_one_each or len(operands) > len(targets):
        return None
    plan = slopes(keep(program), places, run, len(roots), len(inner))
    if plan is None:
        return None
    codes = [~number if number < len(operands) else number - len(operands) for number in plan.taken]
    given = [make_tracer(found, code, found.type(code)) for code in codes]
    with Mode(True):
        gradients = pulled_back(plan.program, given, seeds)
    by_sink = {id(x): gradient for x, gradient in zip([*leaves, *inner], gradients, strict=True)}
    return [by_sink[id(x)] for x in sinks]


def pulled_back(program: Program, operands: Sequence[Any], cts: Sequence[Any]) -> Sequence[Any]:
    """Records the call of a program on values of the tape and on cotangents, tensors."""

    def pullback(*cts: Any) -> Any:
        return bind(call_p, [*operands, *cts], Params({"program": program}))

    return recorded(pullback, *cts)


def _is_special(x: Tensor) -> bool:
    """Tells whether more happens with the gradient of a tensor than that it is returned."""
    meta = x._meta
    return meta is not None and bool(
        meta.retains or meta.hooks or meta.node is not None or (meta.leaf and type(x._v) is Tape)
    )
