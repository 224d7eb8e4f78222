"""PyTorch's functions that are none of `ftrans.numpy` by another name, as functions of values.

They take and return arrays and traced values, and but for `checkpoint`, kinds and results know
nothing of tensors: the tables of `ftrans.torch` have them take tensors as well, or create them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import jax.tree_util as tree
import numpy as np

import ftrans.numpy as fnp
from ftrans import func, nn
from ftrans.autograd.tape import recorded
from ftrans.autograd.tensor import Tensor
from ftrans.autograd.values import written_to
from ftrans.autograd.views import take_data
from ftrans.errors import ArgumentError, FtransError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.stack import state
from ftrans.numpy import torch_kinds
from ftrans.numpy.indexing import assign
from ftrans.numpy.torch_formulas import tril_indices, triu_indices
from ftrans.numpy.torch_methods import Functions
from ftrans.random.torch_draws import float_of, sized
from ftrans.traceback import boundary

# ---------------------------------------------------------------------------------------- creation


def _dtype_of(data: Any, dtype: Any) -> Any:
    """Returns the dtype of what is made of data: int64 where it is of integers of Python's."""
    kinds = {type(x) for x in tree.tree_leaves(data)} if dtype is None else set()
    return np.dtype("int64") if int in kinds and kinds <= {int, bool, type(None)} else dtype


def tensor(data: Any, dtype: Any = None) -> Any:
    """Returns a new tensor with a copy of some data; in what is traced, a constant of that.

    Args:
        data: an array, a Python scalar, or nested sequences of them, tensors included.
        dtype: the dtype; None keeps that of the data, int64 for integers of Python's and the
            default for floats.
        device: where to put it, as in all functions that create: "cpu", "cuda", or one of JAX's.
        requires_grad: whether gradients are accumulated in it, as there.

    Example:
        >>> import ftrans.torch as torch
        >>> torch.tensor([1.0, 2.0], requires_grad=True)
        tensor([1., 2.], requires_grad=True)
    """
    data = list(data) if type(data) is range else data
    made = fnp.array(data, _dtype_of(data, dtype))
    return fnp.stop_gradient(made) if type(made) is Tracer else made


zeros, ones = sized(fnp.zeros), sized(fnp.ones)
from_dlpack = fnp.from_dlpack
empty = zeros  # nothing here is ever uninitialised


def full(size: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Returns a tensor of one value everywhere."""
    return fnp.full(tuple(size), fill_value, _dtype_of(fill_value, dtype))


def eye(n: int, m: int | None = None, dtype: Any = None) -> Any:
    """Returns a matrix with ones on its diagonal."""
    return fnp.eye(n, m, dtype=dtype)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Returns start, start + step, ... up to but without the end."""
    return fnp.arange(start, end, step, _dtype_of((start, end, step), dtype))


def linspace(start: Any, end: Any, steps: int, dtype: Any = None) -> Any:
    """Returns evenly spaced numbers, of which the last is the end."""
    return fnp.linspace(start, end, steps, dtype=float_of(dtype, start, end))


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, dtype: Any = None) -> Any:
    """Returns the powers of a base with evenly spaced exponents."""
    return fnp.logspace(start, end, steps, base=base, dtype=float_of(dtype, start, end))


def like(make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `zeros_like` of `zeros`, and so on."""

    def created(input: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
        options["device"] = options.get("device") or getattr(input, "device", None)
        return make(tuple(input.shape), *args, dtype=dtype or input.dtype, **options)

    created.__name__ = f"{make.__name__}_like"
    created.__doc__ = f"Creates, by `{make.__name__}`, a tensor of the type of another one."
    return created


def scalar_tensor(s: Any, dtype: Any = None) -> Any:
    """Returns a tensor of one number, a float unless a dtype says otherwise."""
    return fnp.asarray(s, float_of(dtype))


def _up_to(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Any:
    """Returns start, start + step, ... up to and with the end, floats unless a dtype says so."""
    if not step or (end - start) / step < 0:
        raise ArgumentError(
            f"range: steps lead to the end.\n  start: {start}, end: {end}, step: {step}\n"
            f"  Write torch.arange(start, end, step), which may be empty."
        )
    kind = np.dtype(float_of(dtype))
    count = int((end - start) / step) + 1
    return fnp.astype(np.arange(count) * step + start, kind)


def _window(of: Callable[..., Any]) -> Callable[..., Any]:
    def window(
        window_length: int, periodic: bool = True, *settings: Any, dtype: Any = None, **named: Any
    ) -> Any:
        """Returns a window of so many numbers; a periodic one lacks the last of one more."""
        places = np.arange(window_length) / max(window_length - (not periodic), 1)
        found = np.ones(1) if window_length == 1 else of(places, *settings, **named)
        return fnp.asarray(found, float_of(dtype))

    return window


_cos = lambda t: np.cos(2 * np.pi * t)  # noqa: E731
_bow = lambda t: np.sqrt(1 - (2 * t - 1) ** 2)  # noqa: E731

CREATING: dict[str, Callable[..., Any]] = {
    **torch_kinds.CREATING,
    "range": _up_to,
    "scalar_tensor": scalar_tensor,
    "tril_indices": tril_indices,
    "triu_indices": triu_indices,
    "hann_window": _window(lambda t: 0.5 - 0.5 * _cos(t)),
    "hamming_window": _window(lambda t, alpha=0.54, beta=0.46: alpha - beta * _cos(t)),
    "blackman_window": _window(lambda t: 0.42 - 0.5 * _cos(t) + 0.08 * _cos(2 * t)),
    "bartlett_window": _window(lambda t: 1 - abs(2 * t - 1)),
    "kaiser_window": _window(lambda t, beta=12.0: np.i0(beta * _bow(t)) / np.i0(beta)),
}
"""What else creates, by name."""


class _Kind(type):
    """Is the type of `FloatTensor` and its kin: a call makes a tensor, which is an instance."""

    make: Callable[..., Any]

    def __call__(cls, *given: Any, **options: Any) -> Any:
        return cls.make(*given, **options)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and torch_kinds.kind_of(x) == f"torch.{cls.__name__}"


def kind_made_by(make: Callable[..., Any]) -> type:
    """Returns the kind of tensors that an old constructor makes."""
    members = {name: getattr(make, name) for name in ("__doc__", "__module__")}
    return _Kind(make.__name__, (), {"make": staticmethod(make), **members})


def fftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Any:
    """Returns the frequencies of `fft` of n samples that are a distance apart."""
    return fnp.asarray(np.fft.fftfreq(n, d), float_of(dtype))


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Any:
    """Returns the frequencies of `rfft`, see `fftfreq`."""
    return fnp.asarray(np.fft.rfftfreq(n, d), float_of(dtype))


@boundary
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Sets elements to zero with a probability, and scales the others to keep the mean."""
    found = nn.dropout(input, p, training) if training else input
    return input.copy_(found) if inplace else found


# ----------------------------------------------------------------------------------------- results


def result_to(out: Any, found: Any) -> Any:
    """Writes a result to a tensor, the `out=` of a function, or several to as many; returns those.

    A tensor of another shape takes that of the result, with a warning where it had elements.
    """
    listed = isinstance(out, (tuple, list))
    if isinstance(found, tuple):
        if not listed or len(out) != len(found):
            raise ArgumentError(
                f"out=: there are {len(found)} results, each of which is written to a tensor.\n"
                f"  out: {f'{len(out)} tensors' if listed else f'of type {type(out).__name__}'}\n"
                f"  Write out=({', '.join(getattr(found, '_fields', ['x'] * len(found)))})."
            )
        written = list(map(result_to, out, found))
        return type(found)(*written) if hasattr(found, "_fields") else tuple(written)
    target = out[0] if listed and len(out) == 1 else out
    if type(target) is not Tensor and type(found) is not Tensor:
        assign("out=", target, found, "x = f(...)")
        return target
    shape: Any = getattr(found, "shape", ())
    if type(target) is Tensor and not target.requires_grad and target.shape != shape:
        if target.numel():
            warnings.warn(
                f"An output with one or more elements was resized since it had shape "
                f"{list(target.shape)}, which does not match the required output shape "
                f"{list(shape)}.",
                UserWarning,
                stacklevel=3,
            )
        take_data(target, target.new_empty(shape))
    return written_to(target, found)


# ----------------------------------------------------------------------------------------- algebra


def real(input: Any) -> Any:
    """Returns the real part, which of a tensor is a view."""
    return input.real


def imag(input: Any) -> Any:
    """Returns the imaginary part, which of a tensor is a view."""
    return input.imag


def _listed(given: Any) -> Any:
    """Returns what is meant by `x, y` and by `[x, y]`."""
    return given[0] if given and isinstance(given[0], (list, tuple)) else given


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Returns one or the other, as a condition holds or not; alone, the places where it holds."""
    if input is None:
        return Functions.nonzero(condition, as_tuple=True)
    if not (hasattr(input, "dtype") or hasattr(other, "dtype")):
        input = fnp.asarray(input, _dtype_of((input, other), None))  # two numbers of Python's
    return fnp.where(condition, input, other)


def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    """Returns the coordinates of a grid, one tensor per dimension."""
    return tuple(fnp.meshgrid(*_listed(tensors), indexing=indexing))


def broadcast_tensors(*tensors: Any) -> Any:
    """Broadcasts tensors to one shape."""
    return tuple(fnp.broadcast_arrays(*_listed(tensors)))


def einsum(equation: str, *operands: Any) -> Any:
    """Returns the sum of products of tensors whose dimensions carry labels."""
    return fnp.einsum(equation, *_listed(operands))


def vector_norm(
    x: Any, ord: float = 2.0, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """Returns the norms of vectors along dimensions, or that of all elements."""
    x = x if dtype is None else fnp.astype(x, dtype)
    return fnp.vector_norm(x, ord=ord, axis=dim, keepdims=keepdim)


# ------------------------------------------------------------------------------------- checkpoints


@boundary
def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Returns `function(*args, **kwargs)`, of which a backward pass computes the inside again.

    It is `func.checkpoint` for tensors. What is drawn at random inside is kept, and not drawn
    again; tensors that the function closes over get their gradients.

    A function that cannot be traced, since it goes backward itself or asks for a graph, hooks or an
    array, is called on the tensors as it is: nothing is computed again then, and no memory saved.

    Args:
        function: takes and returns pytrees of tensors.
        *args: its arguments.
        use_reentrant: PyTorch's, as are the names that follow: without effect here.
        preserve_rng_state: see there.
        context_fn: not supported; None.
        determinism_check: see there.
        debug: see there.
        early_stop: see there.
        **kwargs: further arguments of the function.

    Raises:
        UnsupportedError: where `context_fn` is given.

    Example:
        >>> import ftrans.torch as torch
        >>> x = torch.tensor([0.0, 0.0], requires_grad=True)
        >>> torch.utils.checkpoint.checkpoint(lambda x: x.exp().sum(), x).backward()
        >>> x.grad
        tensor([1., 1.])
    """
    if context_fn is not None:
        raise UnsupportedError(
            f"checkpoint: context_fn is not supported.\n  context_fn: {context_fn!r:.60}\n"
            "  To say what is saved, write func.checkpoint(function, policy=...), on values."
        )
    again = func.checkpoint(function)
    if state.stack:
        return again(*args, **kwargs)
    with suppress(FtransError):  # of what cannot be traced; what is wrong is so on tensors, too
        return recorded(again, *args, **kwargs)
    return function(*args, **kwargs)


@boundary
def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, input: Any, **options: Any
) -> Any:
    """Applies functions one after the other, in so many stretches, each but the last a checkpoint.

    Args:
        functions: each takes what the one before returns.
        segments: how many stretches.
        input: what the first takes.
        **options: those of `checkpoint`.
    """
    size = max(len(functions) // segments, 1)
    ends = [size * i for i in range(1, segments)]
    for start, end in zip([0, *ends], [*ends, len(functions)], strict=True):
        stretch = functions[start:end]

        def run(x: Any, stretch: Sequence[Callable[..., Any]] = stretch) -> Any:
            for function in stretch:
                x = function(x)
            return x

        input = run(input) if end == len(functions) else checkpoint(run, input, **options)
    return input


# ---------------------------------------------------------------------------------------- testing


_DIGITS = {"float16": 1e-3, "bfloat16": 1.6e-2, "float32": 1.3e-6, "float64": 1e-7,
           "complex64": 1.3e-6, "complex128": 1e-7}  # fmt: skip
"""The relative differences that `torch.testing` takes for equal, by dtype."""


@boundary
def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | None = None,
) -> None:
    """Raises unless tensors, or what is in containers of them, are equal up to rounding.

    Args:
        actual: a tensor, an array, a number, or a pytree of them.
        expected: what it should be.
        rtol: the relative difference that is allowed; by default that of the dtype.
        atol: the absolute difference; 1e-7 for 64 bits and 1e-5 for fewer; 0 for integers.
        equal_nan: whether NaN equals NaN.
        check_dtype: whether dtypes have to be equal.
        msg: the text of the error.

    Raises:
        AssertionError: where they are not close.
        ArgumentError: where only one of `rtol` and `atol` is given.
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("assert_close: rtol and atol must both be specified, or neither.")
    found, structure = tree.tree_flatten_with_path(actual)
    wanted, other = tree.tree_flatten(expected)
    if structure != other:
        raise AssertionError(msg or f"The structures differ:\n  {structure}\n  {other}")
    for (path, x), y in zip(found, wanted, strict=True):
        a, b = (np.asarray(fnp.stop_gradient(v)) for v in (x, y))
        at = f"\n  at {tree.keystr(path)}" if path else ""
        for kind in ("shape", "dtype") if check_dtype and hasattr(x, "dtype") else ("shape",):
            one, two = getattr(a, kind), getattr(b, kind)
            if one != two:
                text = f"The values for attribute {kind!r} do not match: {one} != {two}.{at}"
                raise AssertionError(msg or text)
        digits = max(_DIGITS.get(v.dtype.name, 0.0) for v in (a, b))
        least = 0.0 if not digits else 1e-7 if digits <= 1e-7 else 1e-5
        wide = np.result_type(a, b, np.float64) if digits else np.result_type(a, b)
        np.testing.assert_allclose(
            a.astype(wide),
            b.astype(wide),
            rtol=digits if rtol is None else rtol,
            atol=least if atol is None else atol,
            equal_nan=equal_nan,
            err_msg=msg or f"Tensor-likes are not close!{at}",
        )
