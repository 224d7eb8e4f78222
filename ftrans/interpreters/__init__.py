"""Interpreters: pure functions from programs to programs, remembered on the programs."""

from ftrans.interpreters.backward import (
    kept,
    pruned,
    pullback_anew,
    pulled,
    pulled_kept,
)
from ftrans.interpreters.base import building, excerpt, finish, replay, simplify
from ftrans.interpreters.batch import batch, batch_in_chunks, place_outputs
from ftrans.interpreters.builder import transforms
from ftrans.interpreters.fold import folded, folds_of
from ftrans.interpreters.gradient import (
    attach_outputs,
    detach_outputs,
    jacobian_forward,
    jacobian_reverse,
    linear_pullback,
    pullback,
    value_and_grad,
)
from ftrans.interpreters.inline import inline, runnable
from ftrans.interpreters.jvp import Linearized, jvp, linearize
from ftrans.interpreters.transpose import exchange, linear_rule, pull_back, transpose

__all__ = [
    "Linearized",
    "attach_outputs",
    "batch",
    "batch_in_chunks",
    "building",
    "detach_outputs",
    "excerpt",
    "exchange",
    "finish",
    "folded",
    "folds_of",
    "inline",
    "jacobian_forward",
    "jacobian_reverse",
    "jvp",
    "kept",
    "linear_pullback",
    "linear_rule",
    "linearize",
    "place_outputs",
    "pruned",
    "pull_back",
    "pullback",
    "pullback_anew",
    "pulled",
    "pulled_kept",
    "replay",
    "runnable",
    "simplify",
    "transpose",
    "value_and_grad",
]

vars(transforms).update({name: globals()[name] for name in __all__})
