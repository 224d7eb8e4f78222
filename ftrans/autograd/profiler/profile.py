"""The profiler: events for the equations, programs and ranges that run in a block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.monitoring

from ftrans.autograd.profiler.collector import Collector, install, remove
from ftrans.autograd.profiler.events import EventList
from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.primitives.observe import observing
from ftrans.traceback import boundary

_OTHERS = {
    *("use_cuda", "use_device", "use_cpu", "use_kineto", "with_modules", "profile_memory"),
    *("experimental_config", "acc_events", "custom_trace_id_callback"),
    *("post_processing_timeout_s", "activity_filters"),
}


def _of_events(name: str) -> Callable[..., Any]:
    """Makes the method of a profile that is one of its events."""
    method = getattr(EventList, name)

    def delegated(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self.function_events, *args, **kwargs)

    delegated.__name__, delegated.__doc__ = name, method.__doc__
    return boundary(delegated)


class profile:
    """Times all that runs in a block: each equation, in programs, in ranges.

    While it is active, programs are run one equation after the other by NumPy, or where their
    arrays lie, and each is waited for. Those of `jit` stay whole, and so do all under
    `config.execution = "compile"`. All threads are observed. What was written in the block is run,
    also where nobody refers to it any longer.

    Args:
        enabled: whether anything is collected.
        record_shapes: whether the shapes of operands are.
        with_flops: whether floating-point operations are counted.
        with_stack: whether the user's line that an equation comes from is recorded.
        compiled_trace_dir: a directory for a trace by JAX's own profiler. Programs are then run as
            they are outside of a profile, and the trace tells what XLA does in compiled ones.
        others: those of PyTorch's that mean nothing here: there is nothing but time on the host,
            for which what runs on a device is waited for, and memory is always recorded.

    Raises:
        UnsupportedError: where a profile is active already.

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
        self.enabled, self.entered = enabled, False
        self._trace_dir = compiled_trace_dir
        whole = compiled_trace_dir is not None
        self._collector = Collector(not whole, record_shapes, with_stack, with_flops)
        self._finished: EventList | None = None

    @boundary
    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self.entered:
            raise UnsupportedError(
                "profile: it is not reentrant.\n  Write with profile() once more."
            )
        install(self._collector, "profile")
        self.entered = True
        jax.monitoring.register_event_duration_secs_listener(self._collector.compiled)
        if self._trace_dir is not None:
            try:
                jax.profiler.start_trace(self._trace_dir)
            except BaseException as error:
                self._trace_dir = None
                self.__exit__(error)
                raise
        return self

    def __exit__(self, *error: Any) -> None:
        if not self.entered or self._finished is not None:
            return
        try:
            remove(self._collector, run=error[0] is None)
        finally:
            self._finish()

    def _finish(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._collector.compiled)
        self._finished = EventList(
            sorted(self._collector.events, key=lambda e: (e.start_us, -e.end_us))
        )
        self._finished._populate_cpu_children()
        for event in reversed(self._finished):  # what is inside before what is around it
            if event.cpu_parent is not None:
                event.cpu_parent.cpu_memory_usage += event.cpu_memory_usage
        if self._trace_dir is not None:
            jax.profiler.stop_trace()

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

    key_averages = _of_events("key_averages")
    table = _of_events("table")
    total_average = _of_events("total_average")
    export_chrome_trace = _of_events("export_chrome_trace")
    export_stacks = _of_events("export_stacks")
    self_cpu_time_total = property(lambda self: self.function_events.self_cpu_time_total)

    @boundary
    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any] = ()) -> None:
        """Pauses collecting, or goes on with it; `activities` mean nothing."""
        if not self.entered or self._finished is not None:
            raise UnsupportedError(
                "toggle_collection_dynamic: the profile is not active.\n  Call it in its block."
            )
        if not enabled:
            remove(self._collector)
        elif observing.by is not self._collector:
            install(self._collector, "profile")
