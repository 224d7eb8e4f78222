"""The names of `torch.autograd.profiler`."""

from ftrans.autograd.profiler.collector import record_function
from ftrans.autograd.profiler.profile import emit_itt, emit_nvtx, profile
from ftrans.autograd.profiler_util import EnforceUnique, KinetoStepTracker, parse_nvprof_trace

load_nvprof = parse_nvprof_trace

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
