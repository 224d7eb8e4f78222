"""Methods of values by PyTorch's names, where these mean something else than NumPy's do.

Tensors have them. Traced values do where they stand for tensors, so that a function may be called
on tensors, and transformed, and means the same. Where nothing but arrays went in, the methods of
traced values are NumPy's: `x.var()`, `x.transpose(0, 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from itertools import accumulate
from types import FunctionType, MethodType
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, ShapeError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.ir.stack import state
from ftrans.numpy import torch_functions
from ftrans.numpy.axes import axes_of_tensor, canonical_axis
from ftrans.numpy.inplace import WRITTEN, writing
from ftrans.numpy.methods import entries, merged, named, sizes_of, with_axis
from ftrans.numpy.numbers import whole
from ftrans.numpy.of_type import OfType
from ftrans.numpy.rearrangement import diagonal_of
from ftrans.numpy.taking import at_places
from ftrans.numpy.torch_functions import ELEMENTWISE, FUNCTIONS, OTHERS, Extreme, int64
from ftrans.numpy.torch_kinds import is_dtype, made_of
from ftrans.numpy.torch_spelling import names_of, spelled
from ftrans.numpy.views import view_of, viewing
from ftrans.primitives import complex_p
from ftrans.traceback import boundary

Function = Callable[..., Any]

REDUCTIONS = "sum prod mean amax amin any all argmax argmin nansum nanmean logsumexp"
"""What takes `(dim, keepdim)` by position, in the place of what NumPy has there."""

ALONG_ONE = "cumsum cumprod logcumsumexp argmax argmin"
"""What goes along one dimension, which what has rank zero is taken to have."""


def _spread(function: Function) -> Function:
    """Makes `var` or `std`, which take `(dim, unbiased, keepdim)`, or `(unbiased)` alone."""

    def spread(
        self: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **options: Any
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        ddof = options.pop("correction", None) if unbiased is None else int(unbiased)
        ddof = 1 if ddof is None else ddof
        return function(self, axis=dim, ddof=ddof, keepdims=keepdim, **options)

    name = function.__name__
    return named(spread, name, f"Is `numpy.{name}`, divided by n - `correction`: 1.")


class Functions:
    """Has the methods that differ from the functions of NumPy by their names, as ones of values."""

    __neg__, __abs__, __invert__ = fnp.negative, fnp.absolute, fnp.invert
    var, std = _spread(fnp.var), _spread(fnp.std)
    where, masked_fill = unwrap(vars(Tracer)["where"]), unwrap(vars(Tracer)["masked_fill"])

    def __round__(self: Any, digits: int | None = None) -> Any:
        return fnp.round(self, digits or 0)

    def div(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
        """Divides; `rounding_mode` "floor" or "trunc" makes quotients whole."""
        if rounding_mode is None:
            return fnp.divide(self, other)
        if rounding_mode not in ("floor", "trunc"):
            raise ArgumentError(
                f"div: there is no rounding mode {rounding_mode!r}.\n  Write 'floor' or 'trunc'."
            )
        floor = fnp.floor_divide(self, other)
        if rounding_mode == "floor":
            return floor
        return fnp.astype(fnp.trunc(fnp.divide(self, other)), floor.dtype)

    def addcmul(self: Any, x: Any, y: Any, *, value: Any = 1) -> Any:
        """Returns `self + value * x * y`."""
        return self + value * x * y

    def addcdiv(self: Any, x: Any, y: Any, *, value: Any = 1) -> Any:
        """Returns `self + value * x / y`."""
        return self + value * x / y

    def lerp(self: Any, end: Any, weight: Any) -> Any:
        """Returns `self + weight * (end - self)`."""
        return self + weight * (end - self)

    def norm(
        self: Any, p: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        """Returns the p-norm of all elements, or along dimensions; p is 2 where it is not said."""
        self = self if dtype is None else fnp.astype(self, dtype)
        if p == "nuc":
            return torch_functions.matrix_norm(self, p, (-2, -1) if dim is None else dim, keepdim)
        flat = fnp.reshape(self, (-1,)) if dim is None else self
        order = 2 if p in (None, "fro") else p
        found = fnp.vector_norm(flat, axis=dim, ord=order, keepdims=keepdim and dim is not None)
        return fnp.reshape(found, (1,) * self.ndim) if keepdim and dim is None else found

    def tile(self: Any, *sizes: Any, dims: Any = None) -> Any:
        """Repeats the whole tensor along its last dimensions."""
        return fnp.tile(self, tuple(sizes_of(sizes) if dims is None else dims))

    repeat = tile

    def flip(self: Any, *axes: Any, dims: Any = None) -> Any:
        """Reverses the order along dimensions."""
        return fnp.flip(self, tuple(sizes_of(axes) if dims is None else dims))

    @with_axis
    def sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
        """Returns the elements in order along a dimension, and where they were."""
        at = fnp.argsort(self, axis=dim, stable=True, descending=descending)
        return Extreme(at_places(self, at, dim), int64(at))

    @with_axis
    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
        """Returns where the elements in order are, along a dimension."""
        return int64(fnp.argsort(self, axis=dim, stable=True, descending=descending))

    @with_axis
    def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        """Returns the k largest or smallest elements along a dimension, and where they were."""
        at = fnp.take(Functions.argsort(self, dim, largest), np.arange(k), axis=dim)
        return Extreme(at_places(self, at, dim), at)

    def nonzero(self: Any, *, as_tuple: bool = False) -> Any:
        """Returns where elements are not 0, one per row, or as one tensor per dimension."""
        at = int64(fnp.argwhere(self if self.ndim or not as_tuple else fnp.reshape(self, (1,))))
        return tuple([at[:, i] for i in range(at.shape[1])]) if as_tuple else at

    argwhere = nonzero

    def searchsorted(self: Any, values: Any, *, right: bool = False) -> Any:
        """Returns the places where values are to be put in, so that the order is kept."""
        return int64(fnp.searchsorted(self, values, side="right" if right else "left"))

    def count_nonzero(self: Any, dim: Any = None) -> Any:
        """Counts the elements that are not 0."""
        return int64(fnp.count_nonzero(self, dim))

    def nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
        """Replaces NaN by 0 and infinities by the largest numbers, or by what is given."""
        return fnp.nan_to_num(self, nan=nan or 0.0, posinf=posinf, neginf=neginf)

    def logit(self: Any, eps: float | None = None) -> Any:
        """Returns log(x / (1 - x)), with x held `eps` away from 0 and 1."""
        return fnp.logit(self if eps is None else fnp.clip(self, eps, 1.0 - eps))


class Views:
    """Has the methods that return views as functions of values, whose `dim` is called `axis`."""

    t, ravel, moveaxis, movedim = torch_functions.flipped, fnp.ravel, fnp.moveaxis, fnp.moveaxis
    unsqueeze, expand, broadcast_to = fnp.expand_dims, *[vars(Tracer)["expand"]] * 2

    def view(self: Any, *shape: Any) -> Any:
        """Gives the elements another shape; -1 stands for the size that remains."""
        if shape and isinstance(shape[0], np.dtype):
            raise UnsupportedError(
                f"view: the bits of {self.dtype} are not looked at as another dtype.\n"
                f"  dtype: {shape[0]}\n  Write x.to(dtype), which converts the numbers."
            )
        return fnp.reshape(self, sizes_of(shape))

    def view_as(self: Any, other: Any) -> Any:
        """Gives the elements the shape of another tensor."""
        return fnp.reshape(self, np.shape(other))

    reshape, reshape_as = view, view_as

    def view_as_real(self: Any) -> Any:
        """Gives complex numbers as pairs of real ones, along a last dimension."""
        return fnp.stack([self.real, self.imag], -1)

    def view_as_complex(self: Any) -> Any:
        """Gives pairs of real numbers as complex ones."""
        if self.shape[-1:] != (2,):
            raise ShapeError(
                f"view_as_complex: the last dimension is that of pairs.\n  x: shape {self.shape}"
            )
        return complex_p(self[..., 0], self[..., 1])

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Makes one dimension of all, or of those from one to another."""
        return fnp.reshape(self, merged(self.shape, start_dim, end_dim) if self.ndim else (1,))

    def unflatten(self: Any, axis: int, sizes: Any) -> Any:
        """Makes several dimensions, of these sizes, of one."""
        at = canonical_axis("unflatten", axis, self.ndim)
        return fnp.reshape(self, (*self.shape[:at], *sizes, *self.shape[at + 1 :]))

    def transpose(self: Any, dim0: int, dim1: int) -> Any:
        """Exchanges two dimensions."""
        if self.ndim:
            return fnp.swapaxes(self, dim0, dim1)
        axes_of_tensor("transpose", (dim0, dim1), 0)  # which raises
        return fnp.asarray(self)

    swapaxes = swapdims = transpose

    def permute(self: Any, *order: Any, axis: Any = None) -> Any:
        """Permutes the dimensions."""
        return fnp.transpose(self, sizes_of(order) if axis is None else axis)

    def squeeze(self: Any, *axes: Any, dim: Any = None) -> Any:
        """Leaves dimensions of size 1 out: all, or those among some."""
        if dim is None and not axes:
            return fnp.squeeze(self)
        axes = axes_of_tensor("squeeze", sizes_of(axes if dim is None else (dim,)), self.ndim)
        found = tuple([a for a in axes if self.shape[a] == 1])
        return fnp.squeeze(self, found) if found else fnp.asarray(self)

    def conj(self: Any) -> Any:
        """Conjugates complex numbers."""
        return fnp.conj(self)

    def expand_as(self: Any, other: Any) -> Any:
        """Repeats dimensions of size 1 up to the shape of another tensor."""
        return fnp.broadcast_to(self, np.shape(other))

    def narrow(self: Any, axis: int, start: int, length: int) -> Any:
        """Takes `length` elements from `start` on along a dimension."""
        axis = canonical_axis("narrow", axis, self.ndim)
        size = self.shape[axis]
        first = start + size if start < 0 else start
        if not 0 <= first <= size or not 0 <= length <= size - first:
            raise ShapeError(
                f"narrow: there are not so many elements from there on.\n"
                f"  x: shape {self.shape}\n  dim: {axis}, of size {size}\n"
                f"  start: {start}, length: {length}"
            )
        return self[(*[slice(None)] * axis, slice(first, first + length))]

    def select(self: Any, axis: int, index: int) -> Any:
        """Takes one index along a dimension, which is left out."""
        return self[(*[slice(None)] * canonical_axis("select", axis, self.ndim), index)]

    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """Takes the diagonal of two dimensions, which may be written to."""
        return view_of(self, diagonal_of(self, offset, dim1, dim2))


def indices_of(x: Any, dim: int) -> list[Function]:
    """Returns what takes each index along a dimension."""
    count = x.shape[canonical_axis("unbind", dim, x.ndim)]
    return [partial(Views.select, axis=dim, index=i) for i in range(count)]


def chunk_size(x: Any, chunks: int, dim: int) -> int:
    """Returns the size of parts of which there are so many; -1 where there are none."""
    count = x.shape[canonical_axis("chunk", dim, x.ndim)]
    return -(-max(count, 1) // chunks) if chunks > 0 else -1


def sizes_between(x: Any, given: Any, dim: int) -> list[int]:
    """Returns the sizes of so many parts, as alike as can be, or of those between indices."""
    size = x.shape[canonical_axis("tensor_split", dim, x.ndim)]
    given = np.asarray(given).tolist()
    if isinstance(given, int):
        if given < 1:
            raise ArgumentError(f"tensor_split: there is at least one part.\n  sections: {given}")
        return [size // given + (i < size % given) for i in range(given)]
    ends = [slice(i).indices(size)[1] for i in given]
    return [end - start for start, end in zip([0, *ends], [*ends, size], strict=True)]


def parts_of(x: Any, sizes: int | Sequence[int], dim: int) -> list[Function]:
    """Returns what takes each part of a size, or of several sizes, along a dimension."""
    total, split_size = x.shape[canonical_axis("split", dim, x.ndim)], (sizes := whole(sizes))
    if isinstance(sizes, int):
        starts = range(0, total or 1, sizes) if sizes > 0 else ()
        sizes = [min(sizes, total - i) for i in starts] or [-1]
    if sum(sizes) != total or any(size < 0 for size in sizes):
        raise ShapeError(
            f"split: the parts do not make up the dimension.\n"
            f"  x: {x.type if type(x) is Tracer else x._type}\n  dim: {dim}, of size {total}\n"
            f"  sizes: {split_size}"
        )
    places = zip(accumulate(sizes, initial=0), sizes, strict=False)
    return [partial(Views.narrow, axis=dim, start=i, length=n) for i, n in places]


def function_of(name: str, target: str) -> Function:
    """Returns the function of values that a method is; reductions take `(x, dim, keepdim)`."""
    own: Any = vars(Functions).get(name) or FUNCTIONS.get(name)
    function: Any = own or getattr(fnp, target, None) or getattr(fnp.linalg, target)
    if name in ALONG_ONE.split():
        function = with_axis(function)
    if name not in REDUCTIONS.split():
        return function
    places = name.startswith("arg")

    def reduced(input: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        found = function(input, axis=axis, keepdims=keepdims, **options)
        return int64(found) if places else found

    return named(reduced, name, function.__doc__)


class _Meant:
    """Is an attribute of traced values that has another meaning where they stand for tensors.

    Args:
        name: its name.
        plain: what it is elsewhere; None where there is none.
        meant: the method that it is there, a function of values.
    """

    def __init__(self, name: str, plain: Any, meant: Function):
        self._name, self._plain, self._meant = name, plain, meant
        self.__wrapped__ = plain  # as it is looked up on the class

    def __get__(self, x: Any, owner: Any = None) -> Any:
        if x is None:
            return self
        if state.of_tensors:
            return MethodType(self._meant, x)
        if self._plain is None:
            return Tracer.__getattr__(x, self._name)  # type: ignore[attr-defined]  # which raises
        return self._plain.__get__(x, owner)


def _of_values(function: Function) -> Function:
    """Makes a method of a function of values, with PyTorch's names of arguments."""
    names = names_of(function)

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        return function(x, *args, **{names.get(key, key): y for key, y in kwargs.items()})

    return method


class _Members:
    """Has methods of tensors that are no functions in the tables of those."""

    def unbind(self: Any, dim: int = 0) -> tuple[Any, ...]:
        return tuple([get(self) for get in indices_of(self, dim)])

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        return tuple([get(self) for get in parts_of(self, split_size, dim)])

    def split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        return _Members.split(self, split_sizes, dim)

    def tensor_split(self: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
        return _Members.split(self, sizes_between(self, indices_or_sections, dim), dim)

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        return _Members.split(self, chunk_size(self, chunks, dim), dim)

    def new_full(self: Any, size: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
        return fnp.full(tuple(size), fill_value, dtype or self.dtype)

    def new_zeros(self: Any, *sizes: Any, size: Any = None, **options: Any) -> Any:
        return _Members.new_full(self, size or sizes_of(sizes), 0, **options)

    def new_ones(self: Any, *sizes: Any, size: Any = None, **options: Any) -> Any:
        return _Members.new_full(self, size or sizes_of(sizes), 1, **options)

    new_empty = new_zeros

    def new_tensor(self: Any, data: Any, dtype: Any = None, **options: Any) -> Any:
        return fnp.array(data, dtype or self.dtype)

    def new(self: Any, *given: Any, **options: Any) -> Any:
        return made_of("new", given, self.dtype)

    def to(self: Any, *target: Any, dtype: Any = None, **options: Any) -> Any:
        for given in target:
            if type(given) is Tracer:
                dtype = given.type.dtype
            elif isinstance(given, str):
                dtype = given if is_dtype(given) else dtype  # else it names a device
            elif given is not None and type(given) is not bool:
                dtype = given
        return self if dtype is None else fnp.astype(self, dtype)

    type_as = to

    def add(self: Any, other: Any, *, alpha: Any = None) -> Any:
        return fnp.add(self, other if alpha is None else fnp.multiply(other, alpha))

    def sub(self: Any, other: Any, *, alpha: Any = None) -> Any:
        return fnp.subtract(self, other if alpha is None else fnp.multiply(other, alpha))


MEANT: dict[str, Function] = {
    "max": spelled(torch_functions.extreme(fnp.argmax, fnp.max, fnp.maximum)),
    "min": spelled(torch_functions.extreme(fnp.argmin, fnp.min, fnp.minimum)),
}
"""What methods of tensors do, as functions of values."""


def install() -> None:
    """Gives traced values these methods."""
    found = MEANT
    for name in (REDUCTIONS + " " + ALONG_ONE).split():
        found[name] = _of_values(function_of(name, name))
    for members in (FUNCTIONS, vars(Functions), vars(Views)):
        for name, member in members.items():
            if callable(member) and not name.startswith("__"):
                method = _of_values(unwrap(member))
                found[name] = viewing(method) if name in vars(Views) else method
    for members in (OfType, _Members):
        for name, member in vars(members).items():
            if isinstance(member, FunctionType):
                found[name] = spelled(member)
            elif isinstance(member, property) and not hasattr(Tracer, name):
                setattr(Tracer, name, member)
    for name, target in (*entries(ELEMENTWISE), *entries(OTHERS)):
        if not hasattr(Tracer, name):
            found.setdefault(name, _of_values(function_of(name, target)))
    for name, target in entries(ELEMENTWISE):
        own = found.get(name) or _of_values(function_of(name, target))
        found[f"{name}_"] = writing(f"{name}_", own)
    give(found | WRITTEN)
    imag = vars(Tracer)["imag"].getter(
        lambda x: (torch_functions if state.of_tensors else fnp).imag(x)
    )
    Tracer.imag = imag  # type: ignore[attr-defined]


def give(methods: dict[str, Function]) -> None:
    """Gives traced values methods that they have where they stand for tensors."""
    MEANT.update(methods)
    for name, method in methods.items():
        setattr(Tracer, name, _Meant(name, vars(Tracer).get(name), boundary(method)))


install()
