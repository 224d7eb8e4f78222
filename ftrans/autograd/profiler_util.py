"""The names of `torch.autograd.profiler_util`."""

from ftrans.autograd.profiler.events import (
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
)
from ftrans.autograd.profiler.records import MemRecordsAcc, StringTable

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "MemRecordsAcc",
    "StringTable",
]
