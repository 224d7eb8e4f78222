"""The profiler: events for what runs in a block; and markers of them for other profilers."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.monitoring

from ftrans.autograd.profiler.collector import Collector
from ftrans.autograd.profiler_util import BACKWARD, EventList, FunctionEvent
from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.primitives.observe import observing
from ftrans.traceback import boundary

_OTHERS = {
    *("use_cuda", "use_device", "use_cpu", "use_kineto", "with_modules", "profile_memory"),
    *("experimental_config", "acc_events", "custom_trace_id_callback"),
    *("post_processing_timeout_s", "activity_filters"),
}


def _of_events(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the method of a profile that is one of its events."""

    @functools.wraps(method)
    def delegated(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self.function_events, *args, **kwargs)

    return boundary(delegated)


class profile(Collector):
    """Times all that runs in a block: each equation, in programs, in ranges.

    While it is active, programs are run one equation after the other by NumPy, or where their
    arrays lie, and each is waited for. Those of `jit` stay whole, and so do all under
    `config.execution = "compile"`. All threads are observed. What was written in the block is run,
    also where nobody refers to it any longer.

    Shapes of operands, floating-point operations and the user's lines are recorded if one says so.
    With a directory, `compiled_trace_dir`, programs are run as they are outside of a profile, and a
    trace by JAX's own profiler tells there what XLA does in compiled ones. Other arguments of
    PyTorch's mean nothing: there is nothing but time on the host, and memory is always recorded.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor(3.0, requires_grad=True)
        >>> with profile() as prof:
        ...     for _ in range(100):
        ...         (x**2).backward()
        >>> counts = {event.key: event.count for event in prof.key_averages()}
        >>> counts["integer_pow"], counts["backward"]
        (100, 100)
    """

    @boundary
    def __init__(
        self,
        enabled: bool = True,
        *,
        record_shapes: bool = False,
        with_flops: bool = False,
        with_stack: bool = False,
        compiled_trace_dir: str | os.PathLike[str] | None = None,
        **others: Any,
    ):
        unknown = sorted(others.keys() - _OTHERS)
        if unknown:
            raise ArgumentError(
                f"profile: it takes no argument {unknown[0]!r}.\n"
                f"  Of PyTorch's it takes, besides its own, {', '.join(sorted(_OTHERS))}."
            )
        super().__init__()
        self.enabled, self.apart = enabled, compiled_trace_dir is None
        self.record_shapes, self.with_flops = record_shapes, with_flops
        self.with_stack, self._trace_dir = with_stack, compiled_trace_dir
        self._block: Any = None
        self._finished: EventList | None = None

    @boundary
    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self._block is not None:
            raise UnsupportedError(
                "profile: it is not reentrant.\n  Write with profile() once more."
            )
        self.install()
        self._block = self._collecting()
        self._block.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._is_active():
            self._block.__exit__(*error)

    def _is_active(self) -> bool:
        return self._block is not None and self._finished is None

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        directory = self._trace_dir
        jax.monitoring.register_event_duration_secs_listener(self.compiled)
        try:
            with nullcontext() if directory is None else jax.profiler.trace(directory):
                yield
                self.remove()
        finally:
            self.remove(run=False)
            jax.monitoring.unregister_event_duration_listener(self.compiled)
            self._finished = EventList(sorted(self.events, key=lambda e: (e.start_us, -e.end_us)))
            self._finished._populate_cpu_children()
            for event in reversed(self._finished):  # what is inside before what is around it
                if event.cpu_parent is not None:
                    event.cpu_parent.cpu_memory_usage += event.cpu_memory_usage

    @property
    @boundary
    def function_events(self) -> EventList:
        """All events, in the order in which they began."""
        if self._finished is None:
            raise UnsupportedError(
                "profile: Profiler didn't finish running.\n"
                "  Ask for events after the block, and of a profile that is enabled."
            )
        return self._finished

    def __repr__(self) -> str:
        return "<unfinished profile>" if self._finished is None else str(self._finished)

    key_averages = _of_events(EventList.key_averages)
    table = _of_events(EventList.table)
    total_average = _of_events(EventList.total_average)
    export_chrome_trace = _of_events(EventList.export_chrome_trace)
    export_stacks = _of_events(EventList.export_stacks)
    self_cpu_time_total = property(lambda self: self.function_events.self_cpu_time_total)

    @boundary
    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any] = ()) -> None:
        """Pauses collecting, or goes on with it; `activities` mean nothing."""
        if not self._is_active():
            raise UnsupportedError(
                "toggle_collection_dynamic: the profile is not active.\n  Call it in its block."
            )
        if not enabled:
            self.remove()
        elif observing.by is not self:
            self.install()


class emit_nvtx(Collector):
    """Makes each event a range of NVTX, for Nsight Systems, by the package `nvtx`.

    Ranges are called "mul, seq = N", those of a backward pass "mul, stashed seq = N": N is that of
    the place in the user's code that both come from. With `record_shapes`, sizes follow.
    """

    package = "nvtx"

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        super().__init__()
        self.enabled, self.record_shapes = enabled, record_shapes

    def _push(self, text: str) -> None:
        self._loaded.push_range(text, domain="ftrans")

    def _pop(self) -> None:
        self._loaded.pop_range(domain="ftrans")

    def begin(self, *args: Any, **kwargs: Any) -> FunctionEvent:
        """Begins an event, and a range."""
        event = super().begin(*args, **kwargs)
        text, kind = event.name, "stashed seq" if event.scope == BACKWARD else "seq"
        text += f", {kind} = {event.sequence_nr}" if event.sequence_nr >= 0 else ""
        self._push(text + (f", sizes = {event.input_shapes}" if event.input_shapes else ""))
        return event

    def end(self, event: FunctionEvent, failed: bool = False) -> None:
        """Ends both."""
        self._pop()

    @boundary
    def __enter__(self) -> Any:
        if not self.enabled:
            return self
        try:
            self._loaded = importlib.import_module(self.package)
        except ImportError:
            raise UnsupportedError(
                f"{type(self).__name__}: it marks ranges by the package {self.package!r}, which is "
                f"not installed.\n"
                f"  Run pip install {self.package}, or write profile() and export_chrome_trace()."
            ) from None
        self.install()
        return self

    def __exit__(self, *error: Any) -> None:
        self.remove(run=error[0] is None)


class emit_itt(emit_nvtx):
    """Makes each event a task of ITT, for VTune, by the package `ittapi`; see `emit_nvtx`."""

    package = "ittapi"

    def _push(self, text: str) -> None:
        self._loaded.task_begin(self._loaded.domain("ftrans"), self._loaded.string_handle(text))

    def _pop(self) -> None:
        self._loaded.task_end(self._loaded.domain("ftrans"))
