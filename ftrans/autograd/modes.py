"""Grad modes: whether what is recorded is to be differentiated. They belong to the thread.

For tensors the tape looks at the mode. In a function that a transform traces, a block of `no_grad`
holds constant all values that were made in it, once it is left.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ftrans.ir.stack import state
from ftrans.primitives import stop_gradient_p

F = TypeVar("F", bound=Callable[..., Any])


def is_grad_enabled() -> bool:
    """Tells whether operations on tensors are recorded to be differentiated, in this thread.

    Example:
        >>> with no_grad():
        ...     is_grad_enabled()
        False
    """
    return state.grad


def _switch(mode: bool) -> None:
    """Sets the grad mode of this thread."""
    state.grad = mode
    tape = state.tape
    if tape is not None:
        tape.grad = mode
        if mode and tape.leaves:
            # a leaf that was written to begins anew: what comes is recorded in another tape
            state.tape = None


class _Traced:
    """Finds the traced values that are made from here on, and holds them constant in the end."""

    def __init__(self) -> None:
        self._frames = [(frame, frame.made) for frame in state.stack]
        for frame, before in self._frames:
            frame.made = [] if before is None else list(before)
        self._counts = [len(frame.made or ()) for frame, _ in self._frames]
        self._kept: list[Any] = []
        state.trail = None  # the short ways do not ask for the mode

    def _made(self) -> list[Any]:
        """Returns the values that were made, and those that were written to, if still there."""
        pairs = zip(self._frames, self._counts, strict=True)
        return [made() for (frame, _), count in pairs for made in (frame.made or ())[count:]]

    def keep(self, tracer: Any) -> None:
        """Says of a value that is written to that it keeps its derivatives, if it is older."""
        if not any(made is tracer for made in self._made()):
            self._kept.append(tracer)

    def end(self) -> None:
        """Makes those that are still referred to denote constants."""
        stack = state.stack
        found = [x for x in self._made() if x is not None]
        for frame, before in self._frames:
            if before is None:
                frame.made = None
        for x in found:
            frame = x.frame
            if not (x.type.is_inexact and frame.depth < len(stack) and stack[frame.depth] is frame):
                continue
            if not any(kept is x for kept in self._kept):
                x.move(stop_gradient_p(x))


class Mode:
    """Is a mode for a block, or for a function, while it or what it generates runs."""

    def __init__(self, mode: bool):
        self.mode = mode

    def __enter__(self) -> None:
        self._enter(state.grad)

    def _enter(self, before: bool) -> None:
        outer, trail = state.held, state.trail
        if outer is not None and self.mode:
            outer.end()
        _switch(self.mode)
        state.held = None if self.mode or not state.stack else outer or _Traced()
        state.modes.append((self, before, outer, trail))

    def __exit__(self, *error: object) -> None:
        modes = state.modes
        last = max(i for i, (mode, *_) in enumerate(modes) if mode is self)
        _, before, outer, trail = modes.pop(last)
        if state.held is not None and state.held is not outer:
            state.held.end()
        state.held = outer
        if outer is not None and self.mode:
            state.held = _Traced()
        if state.held is None and trail is not None and trail in state.stack[-1:]:
            state.trail = trail
        _switch(before)

    def _again(self) -> Mode:
        """Returns the same mode, for another block."""
        return Mode(self.mode)

    def __call__(self, function: F) -> F:
        """Returns a function that runs in this mode; a generator does while it runs."""
        mode = self._again
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generating(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                return (yield from _generating(mode, function(*args, **kwargs)))

            return generating  # type: ignore[return-value]
        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def iterating(*args: Any, **kwargs: Any) -> Any:
                inner = function(*args, **kwargs)
                step = inner.__anext__()
                while True:
                    try:
                        value = await _Awaited(mode, step)
                    except StopAsyncIteration:
                        return
                    try:
                        step = inner.asend((yield value))
                    except GeneratorExit:
                        await _Awaited(mode, inner.aclose())
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)

            return iterating  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaiting(*args: Any, **kwargs: Any) -> Any:
                return await _Awaited(mode, function(*args, **kwargs))

            return awaiting  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with mode():
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]


def _generating(
    mode: Callable[[], Mode], generator: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """Runs a generator in a mode, but not what happens while it waits."""
    resume: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            with mode():
                value = resume()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield value
            resume = functools.partial(generator.send, sent)
        except GeneratorExit:
            with mode():
                generator.close()
            raise
        except BaseException as error:
            resume = functools.partial(generator.throw, error)


class _Awaited:
    """Runs a coroutine in a mode, but not what happens while it waits."""

    def __init__(self, mode: Callable[[], Mode], coroutine: Any):
        self._mode = mode
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return _generating(self._mode, self._coroutine.__await__())


class no_grad(Mode):
    """Is the mode in which results do not require grad: `with no_grad():`, or a decorator.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([1.0], requires_grad=True)
        >>> with no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Returns the mode or, where it is written without parentheses, the function in it."""
        mode = super().__new__(cls)
        if function is None:
            return mode
        mode.__init__()  # type: ignore[misc]
        return mode(function)

    def __init__(self, function: Callable[..., Any] | None = None):
        super().__init__(False)


class enable_grad(no_grad):
    """Is the mode in which results require grad where operands do, inside of `no_grad` as well."""

    def __init__(self, function: Callable[..., Any] | None = None):
        Mode.__init__(self, True)


class inference_mode(no_grad):
    """Is `no_grad`, and tensors that are made in it say so: `x.is_inference()`.

    PyTorch refuses to save such tensors for a derivative, or to write to them outside, since it has
    not counted what was written to them. Here values are never changed, so that both are right.

    Args:
        mode: whether it is on; or the function that it decorates.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([1.0], requires_grad=True)
        >>> with inference_mode():
        ...     y = x * 2
        >>> y.requires_grad, y.is_inference()
        (False, True)
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        """Returns the mode or, where it is written without parentheses, the function in it."""
        return super().__new__(cls, mode if callable(mode) else None)

    def __init__(self, mode: bool | Callable[..., Any] = True):
        Mode.__init__(self, not mode)
        self._inference = bool(mode)
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(state.inference)
        _infer(self._inference)
        super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        _infer(self._before.pop())

    def _again(self) -> Mode:
        return inference_mode(self._inference)


def is_inference_mode_enabled() -> bool:
    """Tells whether this thread is in inference mode."""
    return state.inference


def _infer(mode: bool) -> None:
    if state.inference is not mode:
        state.inference = mode
        if not state.stack:  # else what is called on the tape goes on there
            state.tape = None


class set_grad_enabled(Mode):
    """Sets the mode at once; as a block, or a decorator, for the length of that.

    In a function that a transform traces it has to be a block.
    """

    def __init__(self, mode: bool):
        super().__init__(bool(mode))
        self._at_first = state.grad
        self._used = False
        _switch(self.mode)

    def __enter__(self) -> None:
        self._enter(state.grad if self._used else self._at_first)
        self._used = True

    def __call__(self, function: F) -> F:
        """Returns a function that runs in this mode, and takes back that it was set."""
        _switch(self._at_first)
        self._used = True
        return super().__call__(function)

    def __del__(self) -> None:
        if not self._used and state.stack:
            _switch(self._at_first)
            warnings.warn(
                "set_grad_enabled: in a function that a transform traces it has no effect unless "
                "it is a block. Write with set_grad_enabled(mode):",
                UserWarning,
                stacklevel=2,
            )
