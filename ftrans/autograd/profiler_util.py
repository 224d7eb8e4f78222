"""The names of `torch.autograd.profiler_util`: events, averages of them, and lists of both."""

from __future__ import annotations

from ftrans.numpy.advice import declining
from ftrans.runtime.event_list import DECLINED, EventList, FunctionEventAvg
from ftrans.runtime.events import FunctionEvent, Interval

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]

__getattr__ = declining(__name__, DECLINED.get)
