"""Random numbers: functions of keys in JAX's spelling, and generators in NumPy's.

A key says what is drawn; a generator keeps one on the host, and draws anew at each call.
"""

# ruff: noqa: F403
from typing import TYPE_CHECKING, Any

import numpy as _np

from ftrans.numpy.advice import declining as _declining
from ftrans.random import distributions as _distributions
from ftrans.random import generator as _generator
from ftrans.random import keys as _keys
from ftrans.random.generator import *
from ftrans.random.keys import *


def _instead(name: str) -> str | None:
    spelled = {"rand": "uniform", "randn": "normal", "ranf": "random", "seed": "manual_seed"}
    method = spelled.get(name, name.replace("random_sample", "random"))
    if hasattr(_generator.Generator, method) and not method.startswith("_"):
        return f"Draw by a generator: rng = ftrans.random.default_rng(seed); rng.{method}(...)."
    theirs = f"Draw by NumPy's own, which has no derivative: numpy.random.{name}."
    return theirs if hasattr(_np.random, name) and not name.startswith("_") else None


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
else:
    __getattr__ = _declining("ftrans.random", _instead)


globals().update(_distributions.functions)

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    [*_distributions.functions, *_generator.__all__, *_keys.__all__]
)
