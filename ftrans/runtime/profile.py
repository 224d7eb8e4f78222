"""Profiles: events of what runs in a block, collected, or handed on as markers."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator, contextmanager, nullcontext
from typing import Any, TypeVar

import jax
import jax.monitoring

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.ir.location import here
from ftrans.ir.stack import state
from ftrans.primitives.observe import observing
from ftrans.runtime.event_list import EventList
from ftrans.runtime.events import BACKWARD, USER, Collector, FunctionEvent
from ftrans.traceback import boundary

__all__ = ["emit_itt", "emit_nvtx", "profile", "record_function"]

F = TypeVar("F", bound=Callable[..., Any])


def run_pending() -> None:
    """Runs what is pending in this thread, so that it counts to where it was written."""
    tape = state.tape
    if tape is not None and tape.steps and not state.stack:
        try:
            tape.flush()
        except Exception:
            # it is raised again where somebody asks for a value that depends on it
            state.tape = None


def backward_pass(function: F) -> F:
    """Makes each call of a function of the engine an event, where there is a profile."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        by: Any = observing.by
        if by is None:
            return function(*args, **kwargs)
        run_pending()
        with by.within("backward", here(), (), BACKWARD):
            result = function(*args, **kwargs)
            run_pending()
            return result

    return called  # type: ignore[return-value]


class record_function(ContextDecorator):
    """Makes a block, or each call of a function, one event of a profile, by a name.

    What is written in it is run in it. In a function that is traced, where nothing runs, the event
    is the tracing. `args` is a text about it, for the reader of the code.

    Example:
        >>> from ftrans import autograd, tensor
        >>> x = tensor([1.0, 2.0])
        >>> with autograd.profiler.profile() as prof:
        ...     with record_function("double"):
        ...         y = x * 2
        >>> [event.name for event in prof.function_events]
        ['double', 'tensors', 'mul']
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._entered: list[Any] = []

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)  # each call of a function has its own

    def __enter__(self) -> record_function:
        by: Any = observing.by
        if by is not None:
            run_pending()
        self._entered.append((by, by and by.begin(self.name, here(), (), USER)))
        return self

    def __exit__(self, *error: object) -> None:
        by, event = self._entered.pop()
        if by is not None:
            if error[0] is None:
                run_pending()
            by.end(event)


class _Session(Collector):
    """Is told of what runs between `__enter__` and `__exit__`."""

    _block: Any = None

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        super().__init__()
        self.enabled, self.record_shapes = enabled, record_shapes

    @boundary
    def __enter__(self) -> Any:
        if self.enabled:
            if self._block is not None:
                name = type(self).__name__
                raise UnsupportedError(
                    f"{name}: it is not reentrant.\n  Write with {name}() once more."
                )
            block = self._collecting()
            block.__enter__()
            self._block = block
        return self

    def __exit__(self, *error: Any) -> None:
        if self._block is not None:
            self._block.__exit__(*error)

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        run_pending()
        observing.begin(self)
        try:
            yield
            run_pending()
        finally:
            observing.end(self)


def _of_events(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the method of a profile that is one of its events."""
    delegated = lambda self, *args, **kwargs: method(self.function_events, *args, **kwargs)  # noqa: E731
    return boundary(functools.wraps(method)(delegated))


_OTHERS = {
    *("use_cuda", "use_device", "use_cpu", "use_kineto", "with_modules", "profile_memory"),
    *("experimental_config", "acc_events", "custom_trace_id_callback"),
    *("post_processing_timeout_s", "activity_filters"),
}


class profile(_Session):
    """Times all that runs in a block, in all threads: each equation, in programs, in ranges.

    While it is active, programs are run one equation after the other by NumPy, or where their
    arrays lie, and each is waited for. Those of `jit` stay whole, and so do all under
    `config.execution = "compile"`. What nobody refers to any longer is run too.

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
        super().__init__(enabled, record_shapes)
        self.with_flops, self.with_stack = with_flops, with_stack
        self.apart, self._trace_dir = compiled_trace_dir is None, compiled_trace_dir
        self._finished: EventList | None = None

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        directory = self._trace_dir
        trace = nullcontext() if directory is None else jax.profiler.trace(directory)
        with super()._collecting(), trace:
            jax.monitoring.register_event_duration_secs_listener(self.compiled)
            try:
                yield
                run_pending()  # here, so that the trace has it
            finally:
                jax.monitoring.unregister_event_duration_listener(self.compiled)
                self._finished = EventList(
                    sorted(self.events, key=lambda e: (e.start_us, -e.end_us))
                )
                self._finished._populate_cpu_children()

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

    @boundary
    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Is that of its events."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    table = _of_events(EventList.table)
    total_average = _of_events(EventList.total_average)
    export_chrome_trace = _of_events(EventList.export_chrome_trace)
    export_stacks = _of_events(EventList.export_stacks)
    self_cpu_time_total = property(lambda self: self.function_events.self_cpu_time_total)

    @boundary
    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any] = ()) -> None:
        """Pauses collecting, or goes on with it; `activities` mean nothing."""
        if self._block is None or self._finished is not None:
            raise UnsupportedError(
                "toggle_collection_dynamic: the profile is not active.\n  Call it in its block."
            )
        run_pending()
        (observing.begin if enabled else observing.end)(self)


class emit_nvtx(_Session):
    """Makes each event a range of NVTX, for Nsight Systems, by the package `nvtx`.

    Ranges are called "mul, seq = N", those of a backward pass "mul, stashed seq = N": N is that of
    the place in the user's code that both come from. With `record_shapes`, sizes follow.
    """

    _package = "nvtx"
    _push = staticmethod(lambda nvtx, text: nvtx.push_range(text, domain="ftrans"))
    _pop = staticmethod(lambda nvtx: nvtx.pop_range(domain="ftrans"))

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            self._loaded = importlib.import_module(self._package)
        except ImportError:
            name, package = type(self).__name__, self._package
            raise UnsupportedError(
                f"{name}: it marks ranges by the package {package!r}, which is not installed.\n"
                f"  Run pip install {package}, or write profile() and export_chrome_trace()."
            ) from None
        with super()._collecting():
            yield

    def begin(self, *args: Any, **kwargs: Any) -> FunctionEvent:
        """Begins an event, and a range."""
        event = super().begin(*args, **kwargs)
        text, kind = event.name, "stashed seq" if event.scope == BACKWARD else "seq"
        text += f", {kind} = {event.sequence_nr}" if event.sequence_nr >= 0 else ""
        text += f", sizes = {event.input_shapes}" if event.input_shapes else ""
        self._push(self._loaded, text)
        return event

    def end(self, event: FunctionEvent, failed: bool = False) -> None:
        """Ends both."""
        self._pop(self._loaded)


class emit_itt(emit_nvtx):
    """Makes each event a task of ITT, for VTune, by the package `ittapi`; see `emit_nvtx`."""

    _package = "ittapi"
    _push = staticmethod(
        lambda itt, text: itt.task_begin(itt.domain("ftrans"), itt.string_handle(text))
    )
    _pop = staticmethod(lambda itt: itt.task_end(itt.domain("ftrans")))
