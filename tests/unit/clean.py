"""Sees to it that nothing is left behind by what has failed."""

from __future__ import annotations

import gc

import numpy as np

from ftrans import func
from ftrans.ir import is_tracing
from ftrans.runtime import guard
from tests.helpers import assert_close


def collect() -> None:
    """Frees what nothing refers to; what JAX holds for something goes only after that has gone."""
    for _ in range(3):
        gc.collect()


def assert_nothing_open() -> None:
    """Raises where a frame, or an array that is held, was left open, or gradients are wrong."""
    assert not is_tracing()
    assert guard._held == {}
    assert guard._waiting == {}
    assert_close(func.grad(lambda x: (x * x).sum())(np.arange(3.0)), [0.0, 2.0, 4.0])
    assert_close(func.vmap(func.grad(lambda x: x**3))(np.arange(3.0)), [0.0, 3.0, 12.0])
