"""What the inputs of a frame stand for, where that is no array: their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ftrans.errors import ConcretizationError
from ftrans.ir.stack import state
from ftrans.ir.types import ArrayType


def example(type: ArrayType) -> np.ndarray:
    """Returns an array of a type: zeros where it is not of floating point.

    Else different numbers near one; square matrices are symmetric and positive definite.
    """
    if not type.is_inexact:
        return np.zeros(type.shape, type.dtype)
    numbers = 1 + np.cos(np.arange(type.size, dtype=np.float64)).reshape(type.shape) / 4
    if type.ndim > 1 and type.shape[-1] == type.shape[-2]:
        n = type.shape[-1]
        numbers = (numbers + np.swapaxes(numbers, -1, -2)) / (2 * max(n, 1)) + 2 * np.eye(n)
    return numbers.astype(type.dtype)


class Abstract:
    """Is the source of an input that has no value while tracing.

    Args:
        reason: completes "it depends on ...", for instance "the mapped axis of vmap".
        array: the argument that is mapped; or, where a function is traced once for many calls, that
            of the first call. None where there is none.
        dim: the axis of it that is mapped, if one is.
    """

    __slots__ = ("array", "dim", "reason")

    def __init__(self, reason: str, array: Any = None, dim: int | None = None):
        self.reason = reason
        self.array = array
        self.dim = dim

    def example(self, type: ArrayType, value: Callable[[Any], Any]) -> Any:
        """Returns an array that the input might be: the first of the mapped ones, or any.

        Args:
            type: its type.
            value: evaluates a traced value.
        """
        array, dim = self.array, self.dim
        if array is None or (dim is not None and array.shape[dim] == 0):
            return example(type)
        return value(array) if dim is None else value(array)[(slice(None),) * dim + (0,)]


Use: TypeAlias = str | Callable[[], tuple[str, str]]
"""Names a use of a value, "float()"; or returns "float() of a traced value", and advice."""


def unknown(what: Use, value: Any, reason: str | None) -> ConcretizationError:
    """Returns the error for a traced value that has none.

    Args:
        what: names the use.
        value: the traced value.
        reason: of the `Abstract` source that it depends on; None for what JAX is tracing.
    """
    advice = _CHOOSE if what == "bool()" else _KEEP
    if what == "bool()" and value.index < 0 and reason and reason.startswith("an argument of jit"):
        advice = f"{_STATIC}\n{_CHOOSE}"
    use, advice = (f"{what} of a traced value", advice) if isinstance(what, str) else what()
    if reason is None:
        return ConcretizationError(
            f"{use}: it depends on what JAX is tracing.\n  value: {value.type}, {value.origin}"
        )
    return ConcretizationError(
        f"{use}: it is not known while tracing.\n"
        f"  value: {value.type}, {value.origin}\n"
        f"  it depends on {reason}\n{advice}"
    )


_CHOOSE = (
    "  To choose between values, write ftrans.numpy.where(c, a, b);\n"
    "  between computations, ftrans.cond(c, f, g, *operands);\n"
    "  to repeat one, ftrans.while_loop(cond, body, init)."
)
_STATIC = "  If it is an option, mark it static: ftrans.jit(f, static_argnames='name')."
_KEEP = (
    "  Keep it an array, and compute with functions of ftrans.numpy. What a shape depends on must\n"
    "  be known: pass it unmapped under vmap (None in in_dims), static under jit (static_argnums)."
)


class Opaque(BaseException):
    """Leaves a method of a custom rule that needs arrays: it is then called when it is run.

    It is no `Exception`, so that what the method catches does not hide it.
    """


class Untraced(BaseException):
    """Leaves a method of a custom rule that is to be called on tensors, and not traced.

    Attributes:
        error: what it has met, if anything.
    """

    def __init__(self, error: Exception | None):
        self.error = error


class evaluated:
    """Says how values are evaluated in a block.

    Args:
        has_value: tells of an array outside whether it is more than a placeholder of JAX's.
        examples: whether what depends on inputs without a value is evaluated by an example of
            those; else it is an error.
    """

    __slots__ = ("_before", "_known", "_said")

    def __init__(self, has_value: Callable[[Any], bool], examples: bool):
        self._said = examples, has_value

    def __enter__(self) -> None:
        self._before = state.examples, state.has_value
        examples, has_value = self._said
        self._known = [(frame, frame.known) for frame in state.stack] if examples else []
        try:
            for frame, values in self._known:
                frame.known = {code: x for code, x in values.items() if has_value(x)}
            state.examples, state.has_value = examples, has_value
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        state.examples, state.has_value = self._before
        for frame, values in self._known:
            frame.known = values
