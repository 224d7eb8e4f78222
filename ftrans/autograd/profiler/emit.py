"""Markers for other profilers: while a block runs, each event is a range of NVTX, or of ITT."""

from __future__ import annotations

import importlib
from typing import Any

from ftrans.autograd.profiler.collector import Collector, install, remove
from ftrans.autograd.profiler.events import BACKWARD, FunctionEvent
from ftrans.errors import UnsupportedError
from ftrans.traceback import boundary


class emit_nvtx(Collector):
    """Makes each event a range of NVTX, for Nsight Systems, by the package `nvtx`.

    Ranges are called "mul, seq = N", those of a backward pass "mul, stashed seq = N": N is that of
    the place in the user's code that both come from.

    Args:
        enabled: whether it does anything.
        record_shapes: whether ranges are named with the shapes of operands.

    Raises:
        UnsupportedError: where the package is not installed, or a profile is active already.
    """

    package = "nvtx"

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        super().__init__(shapes=record_shapes)
        self.enabled, self.entered = enabled, False

    def push(self, text: str) -> None:
        """Begins a range."""
        self._loaded.push_range(text, domain="ftrans")

    def pop(self) -> None:
        """Ends the last one."""
        self._loaded.pop_range(domain="ftrans")

    def begin(self, *args: Any, **kwargs: Any) -> FunctionEvent:
        """Begins an event, and a range."""
        event = super().begin(*args, **kwargs)
        text, kind = event.name, "stashed seq" if event.scope == BACKWARD else "seq"
        text += f", {kind} = {event.sequence_nr}" if event.sequence_nr >= 0 else ""
        self.push(text + (f", sizes = {event.input_shapes}" if event.input_shapes else ""))
        return event

    def end(self, event: FunctionEvent) -> None:
        """Ends both."""
        self.pop()

    drop = end

    @boundary
    def __enter__(self) -> Any:
        name = type(self).__name__
        if not self.enabled:
            return self
        try:
            self._loaded = importlib.import_module(self.package)
        except ImportError:
            raise UnsupportedError(
                f"{name}: it marks ranges by the package {self.package!r}, which is not installed."
                f"\n  Run pip install {self.package}, or write profile() and export_chrome_trace()."
            ) from None
        install(self, name)
        return self

    def __exit__(self, *error: Any) -> None:
        remove(self, run=error[0] is None)


class emit_itt(emit_nvtx):
    """Makes each event a task of ITT, for VTune, by the package `ittapi`; see `emit_nvtx`."""

    package = "ittapi"

    def push(self, text: str) -> None:
        """Begins a task."""
        self._loaded.task_begin(self._loaded.domain("ftrans"), self._loaded.string_handle(text))

    def pop(self) -> None:
        """Ends the last one."""
        self._loaded.task_end(self._loaded.domain("ftrans"))
