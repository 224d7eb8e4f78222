"""PyTorch's functions that are none of `ftrans.numpy` by another name: creation, random numbers.

Each is written for values: arrays, and traced values. `lifted` has it take tensors as well. What is
created is a tensor or, while something is traced, a part of that.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import jax.tree_util as tree
import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.creation import leaf
from ftrans.autograd.methods import Extreme, names_of
from ftrans.autograd.short import composite
from ftrans.autograd.tape import recorded
from ftrans.autograd.tensor import Tensor
from ftrans.autograd.values import written_to
from ftrans.config import config
from ftrans.custom.front import traceable
from ftrans.errors import UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.stack import state, untraced
from ftrans.numpy.methods import sizes_of
from ftrans.numpy.promotion import is_array
from ftrans.runtime.device import Device, get_default_device
from ftrans.traceback import boundary, shorten

__all__ = [
    "Generator", "arange", "as_tensor", "bernoulli", "broadcast_tensors", "default_generator",
    "einsum", "empty", "eye", "full", "is_tensor", "linspace", "logspace", "manual_seed",
    "masked_select", "meshgrid", "normal", "ones", "rand", "randint", "randn", "randperm", "tensor",
    "topk", "where", "zeros",
]  # fmt: skip

Function = Callable[..., Any]


_FIRST = ("input", "tensors", "tensor")
"""What PyTorch calls the first argument, whatever `ftrans.numpy` calls it."""


def lifted(function: Function, short: Function | None = None) -> Function:
    """Makes a function of values take tensors as well, and return tensors then.

    Args:
        function: the function, of `ftrans.numpy` or composed of those.
        short: what is called where the first argument is a tensor; the user's code is two frames
            further out.
    """
    parameters, names = inspect.signature(function).parameters, names_of(function)
    short = short or composite(function.__name__, function, names, 2)

    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if type(kwargs.get("out")) is Tensor:
                return written_to(kwargs.pop("out"), lambda: called(*args, **kwargs))
            args = _by_place(args, kwargs, parameters)
        if args and type(args[0]) is Tensor:
            return short(*args, **kwargs)
        if kwargs:
            kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        try:
            if _has_tensors(args, kwargs):
                return recorded(function, *args, **kwargs)
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return functools.wraps(function)(called)


def _by_place(args: tuple[Any, ...], kwargs: dict[str, Any], own: Any = ()) -> tuple[Any, ...]:
    """Returns all positional arguments, with those under names that the function has not itself."""
    if not args:
        args = tuple([kwargs.pop(name) for name in _FIRST if name in kwargs and name not in own])
    takes = args and "other" in kwargs and "other" not in own
    return (args[0], kwargs.pop("other"), *args[1:]) if takes else args


def _has_tensors(*args: Any) -> bool:
    return any(type(x) is Tensor for x in tree.tree_leaves(args))


def of_method(name: str) -> Function:
    """Makes the function that is a method of tensors by this name."""
    method = getattr(Tensor, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        input, *rest = _by_place(args, kwargs)
        if type(input) is Tensor or state.stack:
            return method(input if is_tensor(input) else fnp.asarray(input), *rest, **kwargs)
        found = method(as_tensor(input), *rest, **kwargs)
        return found if _has_tensors(rest, kwargs) else tree.tree_map(_plain, found)

    return functools.wraps(method)(called)


def is_tensor(obj: Any) -> bool:
    """Tells whether an object is a tensor, or a traced value, which stands for one."""
    return type(obj) in (Tensor, Tracer)


def of_jax(function: Function) -> Function:
    """Makes a function of arrays, and of options, of one that JAX has: one operation, its rules."""
    name, places = function.__name__, tuple(inspect.signature(function).parameters)

    @functools.cache
    def traced(options: tuple[tuple[str, Any], ...]) -> Function:
        return traceable(functools.partial(function, **dict(options)), name=name)

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        arrays = [x for x in args if is_array(x)]
        options |= {places[i]: x for i, x in enumerate(args) if not is_array(x)}
        pairs = [(k, tuple(x) if isinstance(x, list) else x) for k, x in options.items()]
        return traced(tuple(pairs))(*arrays)

    return lifted(called)


def known(function: Function) -> Function:
    """Makes a function that returns a boolean return one of Python's, where nothing traces."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return bool(found) if type(found) is Tensor else found

    return called


# ---------------------------------------------------------------------------------------- creation


def _plain(x: Any) -> Any:
    return x.detach().numpy() if type(x) is Tensor else x


def _creating(make: Function) -> Function:
    """Makes a function that creates arrays create tensors or, in what is traced, parts of that."""

    def created(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        args, kwargs = tree.tree_map(_plain, (args, kwargs))
        if state.stack and not requires_grad:
            return fnp.asarray(make(*args, **kwargs))
        for x in tree.tree_leaves(args):
            if type(x) is Tracer:
                leaf(x, requires_grad)  # which raises
        if isinstance(device, str) and Device(device).type == "cpu" and not get_default_device():
            device = None
        with untraced():
            return leaf(fnp.asarray(make(*args, **kwargs), device=device), requires_grad)

    created.__name__, created.__doc__ = make.__name__, make.__doc__
    return boundary(created)


def like(make: Function) -> Function:
    """Makes `zeros_like` of `zeros`, and so on."""

    def created(input: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
        options["device"] = options.get("device") or getattr(input, "device", None)
        return make(tuple(input.shape), *args, dtype=dtype or input.dtype, **options)

    created.__name__ = f"{make.__name__}_like"
    created.__doc__ = f"Creates, by `{make.__name__}`, a tensor of the type of another one."
    return created


def _shape(given: tuple[Any, ...], size: Any) -> tuple[int, ...]:
    """Returns the shape that is meant by `(2, 3)`, by `((2, 3),)` and by `size=(2, 3)`."""
    return tuple(sizes_of(given) if size is None else size)


def _dtype_of(data: Any, dtype: Any) -> Any:
    """Returns the dtype of what is made of data: int64 where it is of integers of Python's."""
    kinds = {type(x) for x in tree.tree_leaves(data)} if dtype is None else set()
    return np.dtype("int64") if int in kinds and kinds <= {int, bool, type(None)} else dtype


@_creating
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
    return fnp.stop_gradient(fnp.array(data, _dtype_of(data, dtype)))


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """Returns a tensor of some data: itself where it is one, with its history."""
    if type(data) in (Tensor, Tracer):
        data = data if dtype is None else data.to(dtype)
        return data if device is None else data.to(device)
    return tensor(data, dtype=dtype, device=device)


@_creating
def zeros(*shape: Any, size: Any = None, dtype: Any = None) -> Any:
    """Returns a tensor of zeros."""
    return fnp.zeros(_shape(shape, size), dtype)


empty = zeros  # nothing here is ever uninitialised


@_creating
def ones(*shape: Any, size: Any = None, dtype: Any = None) -> Any:
    """Returns a tensor of ones."""
    return fnp.ones(_shape(shape, size), dtype)


@_creating
def full(size: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Returns a tensor of one value everywhere."""
    return fnp.full(tuple(size), fill_value, _dtype_of(fill_value, dtype))


@_creating
def eye(n: int, m: int | None = None, dtype: Any = None) -> Any:
    """Returns a matrix with ones on its diagonal."""
    return fnp.eye(n, m, dtype=dtype)


@_creating
def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Returns start, start + step, ... up to but without the end."""
    return fnp.arange(start, end, step, _dtype_of((start, end, step), dtype))


@_creating
def linspace(start: Any, end: Any, steps: int, dtype: Any = None) -> Any:
    """Returns evenly spaced numbers, of which the last is the end."""
    return fnp.linspace(start, end, steps, dtype=dtype)


@_creating
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, dtype: Any = None) -> Any:
    """Returns the powers of a base with evenly spaced exponents."""
    return fnp.logspace(start, end, steps, base=base, dtype=dtype)


# ------------------------------------------------------------------------------------------ random


class Generator:
    """Draws random numbers on the host, by NumPy's generator; threads may share it.

    Example:
        >>> import ftrans.torch as torch
        >>> first = torch.rand(2, generator=torch.Generator().manual_seed(1))
        >>> torch.equal(first, torch.rand(2, generator=torch.Generator().manual_seed(1)))
        True
    """

    def __init__(self, device: Any = None) -> None:
        self._lock = threading.Lock()
        self._rng = np.random.default_rng()

    def manual_seed(self, seed: int) -> Generator:
        """Begins anew: the same seed gives the same numbers, which are not those of PyTorch."""
        with self._lock:
            self._rng = np.random.default_rng(int(seed) % 2**64)
        return self

    def draw(self, numbers: Callable[[np.random.Generator], Any], dtype: Any) -> np.ndarray:
        """Returns the numbers that a function draws, in a dtype, None for the default one.

        Raises:
            UnsupportedError: where they would be drawn once for several uses: in bodies of loops
                and under `jit`, and under `vmap`, unless that was told randomness="same".
        """
        for frame in state.stack:
            if frame.closed:
                raise UnsupportedError(
                    f"{frame.name}: random numbers would be drawn once, when it is traced, and not "
                    f"each time that it runs.\n  Draw them outside, and pass them as an argument."
                )
            mode = state.stack[-1].asks.randomness
            if frame.name.startswith("vmap(") and mode != "same":
                raise UnsupportedError(
                    f"{frame.name}: called random operation while in randomness {mode!r} mode: all "
                    f"examples would get the same numbers.\n  Draw them outside, and pass them as "
                    f"an argument that is mapped; or say randomness='same'."
                )
        with self._lock:
            drawn = np.asarray(numbers(self._rng))
        return drawn.astype(config.default_dtype if dtype is None else dtype)


default_generator = Generator()
manual_seed = default_generator.manual_seed


@_creating
def rand(
    *shape: Any, size: Any = None, dtype: Any = None, generator: Generator = default_generator
) -> Any:
    """Returns random numbers from 0 up to but without 1."""
    # of 24 bits, which no dtype but half precision rounds up to 1
    return generator.draw(lambda rng: rng.random(_shape(shape, size), np.float32), dtype)


@_creating
def randn(
    *shape: Any, size: Any = None, dtype: Any = None, generator: Generator = default_generator
) -> Any:
    """Returns random numbers of the normal distribution."""
    return generator.draw(lambda rng: rng.standard_normal(_shape(shape, size)), dtype)


@_creating
def randint(
    *bounds: Any,
    size: Any = None,
    low: int = 0,
    high: int | None = None,
    dtype: Any = np.int64,
    generator: Generator = default_generator,
) -> Any:
    """Returns random integers: `randint(low, high, size)`, or from 0 on `randint(high, size)`."""
    *ends, shape = bounds if size is None else (*bounds, size)
    first, last = [x for x in (low, *ends, high) if x is not None][-2:]
    return generator.draw(lambda rng: rng.integers(first, last, tuple(shape)), dtype)


@_creating
def randperm(n: int, dtype: Any = np.int64, generator: Generator = default_generator) -> Any:
    """Returns the integers below n in random order."""
    return generator.draw(lambda rng: rng.permutation(n), dtype)


def normal(mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    """Returns random numbers of normal distributions; no gradient goes to mean and deviation."""
    shape = np.broadcast_shapes(np.shape(mean), np.shape(std)) if size is None else size
    dtype = next((x.dtype for x in (mean, std) if hasattr(x, "dtype")), None)
    requires_grad = options.pop("requires_grad", False)
    found = _scaled(randn(shape, **{"dtype": dtype, **options}), mean, std)
    return found.detach().requires_grad_() if requires_grad else found


@lifted
def _scaled(noise: Any, mean: Any, std: Any) -> Any:
    return fnp.stop_gradient(mean) + fnp.stop_gradient(std) * noise


def bernoulli(input: Any, *, generator: Generator = default_generator) -> Any:
    """Returns ones with the probabilities that are given, else zeros; no gradient goes to those."""
    return _below(input, rand(tuple(input.shape), generator=generator))


@lifted
def _below(input: Any, drawn: Any) -> Any:
    return fnp.astype(drawn < fnp.stop_gradient(input), input.dtype)


# -------------------------------------------------------------------------------- what else differs


@lifted
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Returns one or the other, as a condition holds or not; alone, the places where it holds."""
    if input is None:
        return fnp.nonzero(condition)
    if not (hasattr(input, "dtype") or hasattr(other, "dtype")):
        input = fnp.asarray(input, _dtype_of((input, other), None))  # two numbers of Python's
    return fnp.where(condition, input, other)


@lifted
def masked_select(input: Any, mask: Any) -> Any:
    """Returns the elements where a mask holds, which has to be known: under `vmap` it is not."""
    values, chosen = fnp.broadcast_arrays(input, mask)
    return values[chosen]


@lifted
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Returns the k largest or smallest elements along a dimension, in order, and their places."""
    at = fnp.argsort(input, axis=dim, stable=True, descending=largest)
    at = fnp.take(at, np.arange(k), axis=dim)
    return Extreme(fnp.take_along_axis(input, at, axis=dim), at)


def _several(function: Function) -> Function:
    """Makes a function of a list of tensors take them one by one as well."""
    one = lifted(function)

    def called(*tensors: Any, **options: Any) -> Any:
        listed = tensors if isinstance(tensors[0], (list, tuple)) else (list(tensors),)
        return one(*listed, **options)

    return functools.wraps(function)(called)


@_several
def meshgrid(tensors: Any, indexing: str = "ij") -> Any:
    """Returns the coordinates of a grid, one tensor per dimension."""
    return tuple(fnp.meshgrid(*tensors, indexing=indexing))


@_several
def broadcast_tensors(tensors: Any) -> Any:
    """Broadcasts tensors to one shape."""
    return tuple(fnp.broadcast_arrays(*tensors))


def einsum(equation: str, *operands: Any) -> Any:
    """Returns the sum of products of tensors whose dimensions carry labels."""
    return _einsum(operands[0] if isinstance(operands[0], (list, tuple)) else operands, equation)


@lifted
def _einsum(operands: Any, equation: str) -> Any:
    return fnp.einsum(equation, *operands)


@lifted
def vector_norm(
    x: Any, ord: float = 2.0, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """Returns the norms of vectors along dimensions, or that of all elements."""
    x = x if dtype is None else fnp.astype(x, dtype)
    return fnp.vector_norm(x, ord=ord, axis=dim, keepdims=keepdim)
