"""Functions that are written with JAX, through `from_jax`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.measure import Task
from benchmarks.models.chain import long_chain, vector
from benchmarks.race import Against, race
from benchmarks.result import Result, faster, time
from benchmarks.row import Row, Settings
from ftrans import from_jax, func
from ftrans import numpy as fnp

__all__ = ["ROWS"]

_LENGTH = 50


def _imported() -> Task:
    f, x = from_jax(lambda x: long_chain(jnp, x, _LENGTH)), vector(10)
    return lambda: func.grad(f)(x)


def _written() -> Task:
    x = vector(10)
    return lambda: func.grad(lambda x: long_chain(fnp, x, _LENGTH))(x)


def _by_jax() -> Task:
    x = jnp.asarray(vector(10))
    return lambda: jax.block_until_ready(jax.grad(lambda x: long_chain(jnp, x, _LENGTH))(x))


def _gradient(row: Row, settings: Settings) -> Iterator[Result]:
    rivals: list[Any] = [
        Against("ftrans.numpy", _written, time(1.2)),
        Against("JAX, un-jitted", _by_jax, faster(None)),
    ]
    yield from race(row, settings, "", _imported, rivals)


ROWS = [
    Row(
        "from-jax",
        "Un-jitted gradient of a function of 50 operations of `jax.numpy`, through `from_jax`, "
        "against the same written with `ftrans.numpy`.",
        _gradient,
    ),
]
