"""The names of `torch.autograd.profiler`: events of what runs in a block, or markers of them."""

from __future__ import annotations

from ftrans.numpy.advice import declining
from ftrans.runtime.event_list import DECLINED
from ftrans.runtime.profile import emit_itt, emit_nvtx, profile, record_function

__all__ = ["emit_itt", "emit_nvtx", "profile", "record_function"]

__getattr__ = declining(__name__, DECLINED.get)
