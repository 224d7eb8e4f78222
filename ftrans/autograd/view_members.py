"""The methods of tensors that return views, and that read and write by an index."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import ftrans.numpy as fnp
from ftrans.autograd.tape import recorded
from ftrans.autograd.views import SEVERAL, as_view, assign, view
from ftrans.errors import ShapeError, UnsupportedError
from ftrans.ir import Tracer
from ftrans.numpy.methods import merged, sizes_of
from ftrans.primitives import complex_p

Function = Callable[..., Any]


class Views:
    """Has the methods that return views as functions of values, whose `dim` is called `axis`."""

    t, ravel, moveaxis, movedim = fnp.transpose, fnp.ravel, fnp.moveaxis, fnp.moveaxis
    unsqueeze, expand, broadcast_to = fnp.expand_dims, vars(Tracer)["expand"], fnp.broadcast_to

    def view(self: Any, *shape: Any) -> Any:
        """Gives the elements another shape; -1 stands for the size that remains."""
        return fnp.reshape(self, sizes_of(shape))

    def view_as(self: Any, other: Any) -> Any:
        """Gives the elements the shape of another tensor."""
        return fnp.reshape(self, other.shape)

    reshape, reshape_as = view, view_as

    def view_as_real(self: Any) -> Any:
        """Gives complex numbers as pairs of real ones, along a last dimension."""
        return fnp.stack([self.real, self.imag], -1)

    def view_as_complex(self: Any) -> Any:
        """Gives pairs of real numbers as complex ones."""
        return complex_p(self[..., 0], self[..., 1])

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Makes one dimension of all, or of those from one to another."""
        return fnp.reshape(self, merged(self.shape, start_dim, end_dim) if self.ndim else (1,))

    def unflatten(self: Any, axis: int, sizes: Any) -> Any:
        """Makes several dimensions, of these sizes, of one."""
        at = axis % self.ndim
        return fnp.reshape(self, (*self.shape[:at], *sizes, *self.shape[at + 1 :]))

    def transpose(self: Any, dim0: int, dim1: int) -> Any:
        """Exchanges two dimensions."""
        return fnp.swapaxes(self, dim0, dim1) if self.ndim else fnp.asarray(self)

    swapaxes = swapdims = transpose

    def permute(self: Any, *order: Any, axis: Any = None) -> Any:
        """Permutes the dimensions."""
        return fnp.transpose(self, sizes_of(order) if axis is None else axis)

    def squeeze(self: Any, *axes: Any, dim: Any = None) -> Any:
        """Leaves dimensions of size 1 out: all, or those among some."""
        axes = axes if dim is None else (dim,)
        if not axes:
            return fnp.squeeze(self)
        found = [a for a in sizes_of(axes) if self.ndim and self.shape[a] == 1]
        return fnp.squeeze(self, tuple(found)) if found else fnp.asarray(self)

    def expand_as(self: Any, other: Any) -> Any:
        """Repeats dimensions of size 1 up to the shape of another tensor."""
        return fnp.broadcast_to(self, other.shape)

    def narrow(self: Any, axis: int, start: int, length: int) -> Any:
        """Takes `length` elements from `start` on along a dimension."""
        return self[(*[slice(None)] * (axis % self.ndim), slice(start, start + length))]

    def select(self: Any, axis: int, index: int) -> Any:
        """Takes one index along a dimension, which is left out."""
        return self[(*[slice(None)] * (axis % self.ndim), index)]

    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """Takes the diagonal of two dimensions."""
        return fnp.diagonal(self, offset, dim1, dim2)


def _is_basic(index: Any) -> bool:
    """Tells whether an index makes a view: of numbers, slices, `...` and None."""
    items = index if type(index) is tuple else (index,)
    return all(i is None or i is ... or type(i) in (int, slice) for i in items)


def _getter(index: Any) -> Function:
    """Returns what takes the elements at an index, by the name that PyTorch has for that."""

    def get(x: Any) -> Any:
        return x[index]

    numbers = type(index) is int or (type(index) is tuple and int in map(type, index))
    get.__name__ = "select" if numbers else "unsqueeze" if index is None else "slice"
    return get


def _T(x: Any) -> Any:
    return fnp.transpose(x)


def _views(name: str, x: Any, gets: list[Function]) -> tuple[Any, ...]:
    def several(x: Any) -> tuple[Any, ...]:
        return tuple([get(x) for get in gets])

    several.__name__ = name
    found = recorded(several, x)
    return tuple([as_view(x, y, get, fixed=SEVERAL) for y, get in zip(found, gets, strict=True)])


class ViewMembers:
    """Has the methods that return views and are no functions of a value alone."""

    T = property(lambda self: view(self, _T))
    mT = property(lambda self: view(self, fnp.matrix_transpose))
    real = property(lambda self: view(self, fnp.real))
    imag = property(lambda self: view(self, fnp.imag))

    def __iter__(self: Any) -> Iterator[Any]:
        if not self._type.ndim:
            raise UnsupportedError(f"A tensor of rank zero cannot be iterated.\n  x: {self._type}")
        return iter(self.unbind())

    def __getitem__(self: Any, index: Any) -> Any:
        if _is_basic(index):
            return view(self, _getter(index))
        return recorded(operator.getitem, self, index)

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        def setitem(x: Any, index: Any, value: Any) -> Any:
            return fnp.at(x)[index].set(value)

        assign("x[index] = value", self, recorded(setitem, self, index, value))

    def unbind(self: Any, dim: int = 0) -> tuple[Any, ...]:
        """Returns the parts along a dimension, which they do not have any more."""
        places = range(self.shape[dim])
        return _views("unbind", self, [partial(Views.select, axis=dim, index=i) for i in places])

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Returns parts of a size, or of several sizes, along a dimension."""
        total, sizes = self.shape[dim], split_size
        if isinstance(sizes, int):
            starts = range(0, total or 1, sizes) if sizes > 0 else ()
            sizes = [min(sizes, total - i) for i in starts] or [-1]
        if sum(sizes) != total or any(size < 0 for size in sizes):
            raise ShapeError(
                f"split: the parts do not make up the dimension.\n"
                f"  x: {self._type}\n  dim: {dim}, of size {total}\n  sizes: {split_size}"
            )
        places = zip(accumulate(sizes, initial=0), sizes, strict=False)
        parts = [partial(Views.narrow, axis=dim, start=i, length=n) for i, n in places]
        return _views("split", self, parts)

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """Returns so many parts along a dimension, or fewer, of one size but for the last."""
        return self.split(-(-max(self.shape[dim], 1) // chunks) if chunks > 0 else -1, dim)
