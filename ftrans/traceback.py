"""Keeps ftrans's own frames out of the tracebacks that users read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, ClassVar, ParamSpec, TypeVar

from ftrans.config import config
from ftrans.errors import FtransError

LIBRARIES = frozenset(
    {"contextlib", "functools", "jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum"}
)
"""What ftrans calls: frames of these are hidden where it was ftrans that called them."""

P = ParamSpec("P")
T = TypeVar("T")

_EXPECTED = (FtransError, TypeError, ValueError, IndexError, OverflowError)


class OnTape(Exception):
    """Is raised where a function of ours meets a tensor, and is called again, on the tape, for it.

    Attributes:
        types: those of tensors.
        call: `(function, *args, **kwargs)`, with values of the tape in the place of tensors.
        leap: `(function, args, kwargs)`, for a function that does no more than to record equations.
        wrap: makes tensors of the values of the tape in what a transform returns; None while there
            are no tensors.
        lower: puts values of the tape in the place of tensors that a user's function returns; None
            as `wrap`.
        ready: what `wrap` and `lower` are from then on.
        of_array: makes the tensor of an array that nobody else will write to.
    """

    types: ClassVar[set[type]] = set()
    call: ClassVar[Callable[..., Any]]
    leap: ClassVar[Callable[..., Any]]
    wrap: ClassVar[Callable[[Any], Any] | None] = None
    lower: ClassVar[Callable[[Any], Any] | None] = None
    ready: ClassVar[tuple[Callable[[Any], Any], Callable[[Any], Any]]]
    of_array: ClassVar[Callable[[Any], Any]]

    @classmethod
    def returned(cls, result: Any) -> Any:
        """Returns what a user's function has returned while it is traced, without tensors."""
        return result if cls.lower is None else cls.lower(result)

    def __str__(self) -> str:
        return (
            "a tensor is not known here.\n"
            "  Call a function of ftrans.numpy on it, or pass x.detach().numpy()."
        )


def boundary(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps a public function so that errors leave it without the frames of ftrans.

    What looks like a fault of ftrans itself keeps them, and so does everything while
    `ftrans.config.traceback` is "full".
    """
    entered = bounded(function)(function)
    # what a user's function is wrapped in is one layer to whoever unwraps it
    entered.__wrapped__ = getattr(function, "__wrapped__", function)  # type: ignore[attr-defined]
    return entered


def bounded(function: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Returns a decorator: `boundary` for what a transform makes of a user's function.

    Args:
        function: whose name, docstring and signature the result has.
    """

    def decorate(transformed: Callable[P, T]) -> Callable[P, T]:
        def entered(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = transformed(*args, **kwargs)
                return result if OnTape.wrap is None else OnTape.wrap(result)
            except OnTape:
                pass
            except Exception as error:
                shorten(error)
                raise
            except KeyboardInterrupt:
                _settle()
                raise
            return _again(transformed, args, kwargs)  # not itself: that would be a cycle

        if type(function) is not FunctionType:
            return functools.update_wrapper(entered, function)
        # the same, written out: transforms are often made anew at each call
        entered.__module__ = function.__module__
        entered.__name__ = function.__name__
        entered.__qualname__ = function.__qualname__
        entered.__doc__ = function.__doc__
        entered.__annotations__ = function.__annotations__
        entered.__dict__.update(function.__dict__)
        entered.__dict__.update(transformed.__dict__)
        entered.__wrapped__ = function  # type: ignore[attr-defined]
        return entered

    return decorate


after_interrupts: list[Callable[[], None]] = []
"""What makes it so again that nothing is traced."""


def _settle() -> None:
    """Puts back what blocks could not: Python may interrupt the end of one where it begins.

    The outermost call of ours does, which is to leave all as it was before.
    """
    boundary = sys._getframe(1)
    around = boundary.f_back
    while around is not None and around.f_code is not boundary.f_code:
        around = around.f_back
    if around is None:
        for settle in after_interrupts:
            settle()


def _again(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a function that has met a tensor on the tape."""
    try:
        return OnTape.call(function, *args, **kwargs)
    except Exception as error:
        shorten(error)
        raise


def shorten(error: BaseException) -> None:
    """Takes the frames of ftrans out of the traceback of an error; a bare `raise` is to follow."""
    note = None if isinstance(error, FtransError) else _note(error)
    if config.traceback == "short":
        kept, ours = _split(error.__traceback__)
        if isinstance(error, _EXPECTED) or not ours:
            error.__traceback__ = kept
            notes = getattr(error, "__notes__", None)
            if notes:
                notes[:] = [note for note in notes if _REMOVED_BY_JAX not in note]
    if note is not None and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


_REMOVED_BY_JAX = "JAX has removed its internal frames"


def _note(error: BaseException) -> str | None:
    """Returns what is to be said of an error of a library that knows no traced values."""
    text = str(error)
    for kind, part, about, note in _NOTES:
        if isinstance(error, kind) and part in text and about in text:
            unsure = note is _INDEX_OF_JAX and not _sees_traced(error.__traceback__)
            return None if unsure else note
    return None


_READ_ONLY = (
    "ftrans: arrays that a traced function uses are read-only until it returns, since they are "
    "read when its program runs.\nWrite into a copy instead: b = a.copy()."
)
_NOT_OF_JAX = (
    "ftrans: a function of JAX was given a traced value, which JAX does not know.\n"
    "Write np.sin(x) or ftrans.numpy.sin(x) in the place of jax.numpy.sin(x); what is not there,\n"
    "or is written for JAX as a whole, take by ftrans.from_jax(f)(x)."
)
_INDEX_OF_JAX = (
    "ftrans: an array of JAX was indexed by a traced value, which JAX does not know.\n"
    "Write ftrans.numpy.asarray(array)[index], or pass the array as an argument."
)
_UNKNOWN_SIZE = (
    "ftrans: the size of an array must be known while it is traced.\n"
    "Pass it unmapped under vmap (None in in_dims), static under jit (static_argnums)."
)

_ELSEWHERE = (
    "ftrans: a part of this array lies in another process, and Python has asked for all of it.\n"
    "Reduce it first, as by x.sum(), or have it lie whole on each device:\n"
    "ftrans.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, "
    "jax.sharding.PartitionSpec()))."
)
_NOT_OF_TORCH = (
    "ftrans: a function of PyTorch was given a traced value, which PyTorch does not know.\n"
    "Write np.sin(x) or ftrans.numpy.sin(x) in the place of torch.sin(x)."
)
_NOT_OF_EINOPS = (
    "ftrans: einops takes traced values by the array API.\n"
    "Write from einops.array_api import rearrange in the place of from einops import rearrange."
)
_NOTES: tuple[tuple[type[Exception], str, str, str], ...] = (
    (ValueError, "read-only", "", _READ_ONLY),
    (TypeError, "ftrans.ir.frame.Tracer", "", _NOT_OF_JAX),
    (TypeError, "must be Tensor, not Tracer", "", _NOT_OF_TORCH),
    (TypeError, "expected a sequence of integers", "Traced(", _UNKNOWN_SIZE),
    (IndexError, "arrays are valid indices. Got", "", _INDEX_OF_JAX),
    (RuntimeError, "non-addressable", "", _ELSEWHERE),
    (RuntimeError, "unknown to einops", "ftrans.ir.frame.Tracer", _NOT_OF_EINOPS),
)
"""For each class of error two parts of its text, and what is added."""


def _sees_traced(entry: TracebackType | None) -> bool:
    """Tells whether what raised was given a traced value, alone or among other indices."""
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    values = [] if entry is None else list(entry.tb_frame.f_locals.values())
    values += [item for value in values if isinstance(value, (tuple, list)) for item in value]
    return any(type(value).__module__ == "ftrans.ir.frame" for value in values)


def _split(entry: TracebackType | None) -> tuple[TracebackType | None, bool]:
    """Returns the entries that are the user's, and whether the last one of all was not."""
    foreign: list[TracebackType] = []
    ours = False
    while entry is not None:
        package = (entry.tb_frame.f_globals.get("__name__") or "").partition(".")[0]
        ours = package == "ftrans" or (ours and package in LIBRARIES)
        if not ours:
            foreign.append(entry)
        entry = entry.tb_next
    kept = None
    for item in reversed(foreign):
        kept = TracebackType(kept, item.tb_frame, item.tb_lasti, item.tb_lineno)
    return kept, ours
