"""Random numbers: functions of keys in JAX's spelling, and generators in NumPy's.

A key says what is drawn; a generator keeps one on the host, and draws anew at each call.
"""

# ruff: noqa: F403
from typing import TYPE_CHECKING, Any

from ftrans.random import distributions as _distributions
from ftrans.random import generator as _generator
from ftrans.random import keys as _keys
from ftrans.random.generator import *
from ftrans.random.keys import *

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


globals().update(_distributions.functions)

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    [*_distributions.functions, *_generator.__all__, *_keys.__all__]
)
