"""The interpreters, handed as one value to the rules of primitives that carry programs."""

from __future__ import annotations

from types import SimpleNamespace

from ftrans.interpreters.base import building, finish, replay
from ftrans.interpreters.batch import batch
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import jvp
from ftrans.interpreters.linearize import linearize
from ftrans.interpreters.simplify import simplify
from ftrans.interpreters.transpose import exchange, pull_back, transpose

__all__ = ["transforms"]

transforms = SimpleNamespace(
    batch=batch,
    building=building,
    exchange=exchange,
    finish=finish,
    inline=inline,
    jvp=jvp,
    linearize=linearize,
    pull_back=pull_back,
    replay=replay,
    simplify=simplify,
    transpose=transpose,
)
