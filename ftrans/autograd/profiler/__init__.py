"""The names of `torch.autograd.profiler`."""

from ftrans.autograd.profiler.emit import emit_itt, emit_nvtx
from ftrans.autograd.profiler.profile import profile
from ftrans.autograd.profiler.ranges import record_function
from ftrans.autograd.profiler.records import (
    EnforceUnique,
    KinetoStepTracker,
    load_nvprof,
    parse_nvprof_trace,
)

__all__ = [
    "EnforceUnique",
    "KinetoStepTracker",
    "emit_itt",
    "emit_nvtx",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
]
