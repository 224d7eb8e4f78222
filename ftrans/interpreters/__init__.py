"""Interpreters: pure functions from programs to programs, remembered on the programs."""

from ftrans.interpreters.affine import linear_rule
from ftrans.interpreters.base import building, finish, replay, simplify
from ftrans.interpreters.batch import batch, batch_in_chunks, place_outputs
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.inline import inline, runnable
from ftrans.interpreters.jacobian import jacobian_forward, jacobian_reverse
from ftrans.interpreters.jvp import Linearized, jvp, linearize
from ftrans.interpreters.reverse import detach_outputs, linear_pullback, pullback, value_and_grad
from ftrans.interpreters.transpose import exchange, pull_back, transpose

__all__ = [
    "Linearized",
    "batch",
    "batch_in_chunks",
    "detach_outputs",
    "inline",
    "jacobian_forward",
    "jacobian_reverse",
    "jvp",
    "linear_pullback",
    "linearize",
    "place_outputs",
    "pullback",
    "runnable",
    "simplify",
    "transpose",
    "value_and_grad",
]

vars(transforms).update(
    batch=batch,
    building=building,
    exchange=exchange,
    finish=finish,
    inline=inline,
    jvp=jvp,
    linear_rule=linear_rule,
    linearize=linearize,
    pull_back=pull_back,
    replay=replay,
    simplify=simplify,
    transpose=transpose,
)
