"""The runtime: the only layer that turns programs into arrays."""

from ftrans.runtime.cache import CacheInfo, cache_clear, cache_info, keep
from ftrans.runtime.guard import hold
from ftrans.runtime.run import compiled, run

__all__ = ["CacheInfo", "cache_clear", "cache_info", "compiled", "hold", "keep", "run"]
