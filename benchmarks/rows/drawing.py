"""Random numbers: what one small draw takes in un-jitted code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax

from benchmarks.measure import Task
from benchmarks.race import Against, race
from benchmarks.result import Result, faster
from benchmarks.row import Row, Settings
from ftrans import random

__all__ = ["ROWS"]


def _generator() -> Task:
    rng = random.default_rng(0)
    return lambda: rng.normal(size=10)


def _by_jax() -> Task:
    # the keys by which the generator draws, so that the first draws can be compared
    keys = map(jax.random.wrap_key_data, _keys(256))
    turns = itertools.cycle(list(keys))
    return lambda: jax.block_until_ready(jax.random.normal(next(turns), (10,)))


def _keys(count: int) -> jax.Array:
    rng = random.default_rng(0)
    return jax.numpy.asarray([rng.key().tolist() for _ in range(count)], dtype="uint32")


def _normals(row: Row, settings: Settings) -> Iterator[Result]:
    yield from race(row, settings, "", _generator, [Against("jax.random", _by_jax, faster(2))])


ROWS = [
    Row(
        "random-normal",
        "10 normal numbers from a generator in un-jitted code, against `jax.random.normal` with a "
        "key that is there already.",
        _normals,
    ),
]
