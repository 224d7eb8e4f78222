"""Interpreters: pure functions from programs to programs, remembered on the programs."""

from ftrans.interpreters.batch import batch
from ftrans.interpreters.chunk import batch_in_chunks
from ftrans.interpreters.inline import inline, runnable
from ftrans.interpreters.jacobian import jacobian_forward, jacobian_reverse
from ftrans.interpreters.jvp import jvp
from ftrans.interpreters.linearize import Linearized, linearize
from ftrans.interpreters.reverse import linear_pullback, pullback, value_and_grad
from ftrans.interpreters.simplify import simplify
from ftrans.interpreters.transpose import transpose

__all__ = [
    "Linearized",
    "batch",
    "batch_in_chunks",
    "inline",
    "jacobian_forward",
    "jacobian_reverse",
    "jvp",
    "linear_pullback",
    "linearize",
    "pullback",
    "runnable",
    "simplify",
    "transpose",
    "value_and_grad",
]
