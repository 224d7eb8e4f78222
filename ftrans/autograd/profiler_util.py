"""The names of `torch.autograd.profiler_util`: events, averages of them, and lists of both."""

from __future__ import annotations

from ftrans.numpy.advice import declining
from ftrans.runtime.event_list import EventList, FunctionEventAvg
from ftrans.runtime.events import FunctionEvent, Interval

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]

_NVPROF = (
    "nvprof knows no GPU that JAX runs on. For what one does, write "
    "profile(compiled_trace_dir=...), or emit_nvtx() under nsys."
)
DECLINED = {
    "EnforceUnique": "Keep what was seen in a set: if key in seen.",
    "Kernel": "What a device runs is waited for: its time is that of the event itself.",
    "KinetoStepTracker": "Count steps with itertools.count().",
    "MemRecordsAcc": "Sort records by their time, and write bisect.bisect_left(times, start).",
    "StringTable": "Names are as they are written: there are no mangled ones of C++.",
    "load_nvprof": _NVPROF,
    "parse_nvprof_trace": _NVPROF,
}
"""What to write for names of both modules that are not there."""

__getattr__ = declining(__name__, DECLINED.get)
