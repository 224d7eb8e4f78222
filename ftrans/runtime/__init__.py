"""The runtime: the only layer that turns programs into arrays."""

from ftrans.ir.location import forget_locations
from ftrans.ir.trail import forget_trails
from ftrans.primitives.record import forget_types
from ftrans.runtime import guard
from ftrans.runtime.cache import CacheInfo, cache_clear, cache_info, keep, on_clear
from ftrans.runtime.explain import Call, Explanation, explain, note_trace
from ftrans.runtime.run import run, run_small

__all__ = [
    "CacheInfo",
    "Call",
    "Explanation",
    "cache_clear",
    "cache_info",
    "explain",
    "guard",
    "keep",
    "note_trace",
    "on_clear",
    "run",
    "run_small",
]


on_clear(forget_types)
on_clear(forget_locations)
on_clear(forget_trails)
