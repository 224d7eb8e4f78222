"""Grad modes: whether what is recorded is to be differentiated. They belong to the thread.

For tensors the tape looks at the mode. In a function that a transform traces, a block of `no_grad`
holds constant all values that were made in it, once it is left.
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager, nullcontext
from typing import Any, TypeVar

from ftrans.errors import UnsupportedError
from ftrans.ir.stack import state
from ftrans.runtime.outlived import Constants
from ftrans.runtime.scopes import running_in
from ftrans.traceback import boundary

F = TypeVar("F", bound=Callable[..., Any])


def is_grad_enabled() -> bool:
    """Tells whether operations on tensors are recorded to be differentiated, in this thread.

    In inference mode they are not, though it be True in a block of `enable_grad`, as in PyTorch.
    """
    return state.grad_mode


def switch(mode: bool, inference: bool | None = None) -> None:
    """Sets the grad mode of this thread, and whether it is in inference mode, if that is said.

    In inference mode nothing is recorded to be differentiated, whatever the grad mode is to be.
    """
    if inference is not None and state.inference is not inference:
        state.inference = inference
        if state.tape is not None and not state.stack:  # else what is called on it goes on there
            state.tape.leave()
    state.grad_mode = mode
    state.grad = mode = mode and not state.inference
    tape = state.tape
    if tape is not None:
        tape.grad = mode
        if mode and tape.leaves:
            # a leaf that was written to begins anew: what comes is recorded in another tape
            tape.leave()


@contextmanager
def differentiating(tape: Any) -> Iterator[None]:
    """Is a block in which a tape records for derivatives, whatever the grad mode is."""
    before = state.grad
    state.grad = tape.grad = True
    try:
        yield
    finally:
        state.grad = tape.grad = before


class Mode:
    """Is a mode for a block, or for a function, while it or what it generates runs."""

    inference: bool | None = None

    def __init__(self, mode: bool):
        self.mode = mode

    def __enter__(self) -> None:
        outer = state.held
        inference = None if self.inference is None else state.inference
        before = state.grad_mode, inference, outer, state.trail
        if outer is not None and self.mode:
            outer.end()
        switch(self.mode, self.inference)
        state.held = None if self.mode or not state.stack else outer or Constants()
        state.modes.append((self, *before))

    def __exit__(self, *error: object) -> None:
        modes = state.modes
        last = max(i for i, (mode, *_) in enumerate(modes) if mode is self)
        _, grad, inference, outer, trail = modes.pop(last)
        if state.held is not None and state.held is not outer:
            state.held.end()
        state.held = outer
        if outer is not None and self.mode:
            state.held = Constants()
        if state.held is None and trail is not None and trail in state.stack[-1:]:
            state.trail = trail
        switch(grad, inference)

    @boundary
    def __call__(self, function: F) -> F:
        """Returns a function that runs in this mode; a generator does while it runs."""
        if inspect.isclass(function):
            text = "A class that is decorated with a mode becomes a function: decorate __init__."
            warnings.warn(text, FutureWarning, stacklevel=3)
        if inspect.isasyncgenfunction(function):
            mode = type(self).__name__
            raise UnsupportedError(
                f"{mode}: an asynchronous generator cannot be decorated with a mode.\n"
                f"  function: {function.__name__}\n"
                f"  Write with {mode}(): in it, around what it computes between two yields."
            )
        mode = copy.copy(self)  # nobody else enters it
        return functools.update_wrapper(running_in(mode, function), function)  # type: ignore


class no_grad(Mode):
    """Is the mode in which results do not require grad: `with no_grad():`, or a decorator.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([1.0], requires_grad=True)
        >>> with no_grad():
        ...     y = x * 2
        ...     is_grad_enabled(), y.requires_grad
        (False, False)
    """

    def __new__(cls, mode: Any = None) -> Any:
        """Returns the mode or, where it is written without parentheses, the function in it."""
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self) -> None:
        super().__init__(False)


class calling(Mode):
    """Is `no_grad` for a `forward`, which may ask its arguments for plain arrays."""

    def __init__(self) -> None:
        super().__init__(False)

    @staticmethod
    def is_on() -> bool:
        """Tells whether one is called in this thread."""
        return any(type(mode) is calling for mode, *_ in state.modes)


class enable_grad(no_grad):
    """Is the mode in which results require grad where operands do, inside of `no_grad` as well."""

    def __init__(self) -> None:
        Mode.__init__(self, True)


class inference_mode(no_grad):
    """Is `no_grad`, and tensors that are made in it say so: `x.is_inference()`.

    PyTorch refuses to save such tensors for a derivative, or to write to them outside, since it has
    not counted what was written to them. Here values are never changed, so that both are right.
    With `mode` False it is off.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([1.0], requires_grad=True)
        >>> with inference_mode():
        ...     y = x * 2
        >>> y.requires_grad, y.is_inference()
        (False, True)
    """

    def __init__(self, mode: bool = True):
        Mode.__init__(self, not mode)
        self.inference = bool(mode)


def is_inference_mode_enabled() -> bool:
    """Tells whether this thread is in inference mode."""
    return state.inference


def enforce_grad_layout_policy(enable: bool = True) -> nullcontext[None]:
    """Is for the sake of code for PyTorch: gradients have no layout in memory that one asks for."""
    return nullcontext()


class set_multithreading_enabled(ContextDecorator):
    """Is for the sake of code for PyTorch: `backward` runs in the thread that calls it."""

    mode = True

    def __init__(self, mode: bool):
        self._before = is_multithreading_enabled()
        set_multithreading_enabled.mode = bool(mode)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        set_multithreading_enabled.mode = self._before


def is_multithreading_enabled() -> bool:
    """Tells what `set_multithreading_enabled` was told."""
    return set_multithreading_enabled.mode


class set_grad_enabled(Mode):
    """Sets the mode at once; as a block, or a decorator, for the length of that.

    In a function that a transform traces it has to be a block.
    """

    _before: bool | None = None
    """What the mode was, until that is taken back."""

    def __init__(self, mode: bool):
        super().__init__(bool(mode))
        self._before = state.grad_mode
        switch(self.mode)

    def _take_back(self) -> None:
        if self._before is not None:
            switch(self._before)
            self._before = None

    def __enter__(self) -> None:
        self._take_back()
        super().__enter__()

    def __call__(self, function: F) -> F:
        """Returns a function that runs in this mode, and takes back that it was set."""
        self._take_back()
        return super().__call__(function)

    def __del__(self) -> None:
        if self._before is not None and state.stack:
            self._take_back()
            warnings.warn(
                "set_grad_enabled: in a function that a transform traces it has no effect unless "
                "it is a block. Write with set_grad_enabled(mode):",
                UserWarning,
                stacklevel=2,
            )
