"""The methods of tensors that return views, and that read and write by an index."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.tape import recorded
from ftrans.autograd.views import SEVERAL, as_view, assign, view
from ftrans.errors import UnsupportedError
from ftrans.numpy.methods import merged, sizes_of
from ftrans.primitives import complex_p

Function = Callable[..., Any]


def _narrow(x: Any, axis: int, start: int, length: int) -> Any:
    return x[(*[slice(None)] * (axis % x.ndim), slice(start, start + length))]


def _select(x: Any, axis: int, index: int) -> Any:
    return x[(*[slice(None)] * (axis % x.ndim), index)]


def _swap(x: Any, dim0: int, dim1: int) -> Any:
    return fnp.swapaxes(x, dim0, dim1)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return fnp.reshape(x, merged(x.shape, start_dim, end_dim) if x.ndim else (1,))


def _reshape(x: Any, *shape: Any) -> Any:
    return fnp.reshape(x, sizes_of(shape))


def _reshape_as(x: Any, other: Any) -> Any:
    return fnp.reshape(x, other.shape)


def _unflatten(x: Any, axis: int, sizes: Any) -> Any:
    at = axis % x.ndim
    return fnp.reshape(x, (*x.shape[:at], *sizes, *x.shape[at + 1 :]))


def _move(x: Any, source: Any, destination: Any) -> Any:
    return fnp.moveaxis(x, source, destination)


def _broadcast_as(x: Any, other: Any) -> Any:
    return fnp.broadcast_to(x, other.shape)


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return fnp.diagonal(x, offset, dim1, dim2)


def _permute(x: Any, *axes: Any, axis: Any = None) -> Any:
    return fnp.transpose(x, sizes_of(axes) if axis is None else axis)


def _squeeze(x: Any, axis: Any = None) -> Any:
    if axis is None:
        return fnp.squeeze(x)
    axes = [axis] if isinstance(axis, int) else axis
    return fnp.squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


VIEWS: dict[str, tuple[Function, str]] = {
    "view": (_reshape, "Gives the elements another shape; -1 stands for the size that remains."),
    "reshape": (_reshape, "Gives the elements another shape; -1 stands for the size that remains."),
    "view_as_real": (
        lambda x: fnp.stack([x.real, x.imag], -1),
        "Gives complex numbers as pairs of real ones, along a last dimension.",
    ),
    "view_as_complex": (
        lambda x: complex_p(x[..., 0], x[..., 1]),
        "Gives pairs of real numbers as complex ones.",
    ),
    "view_as": (_reshape_as, "Gives the elements the shape of another tensor."),
    "reshape_as": (_reshape_as, "Gives the elements the shape of another tensor."),
    "flatten": (_flatten, "Makes one dimension of all, or of those from one to another."),
    "ravel": (lambda x: fnp.reshape(x, (-1,)), "Makes one dimension of all."),
    "unflatten": (_unflatten, "Makes several dimensions, of these sizes, of one."),
    "transpose": (_swap, "Exchanges two dimensions."),
    "swapaxes": (_swap, "Exchanges two dimensions."),
    "swapdims": (_swap, "Exchanges two dimensions."),
    "t": (lambda x: fnp.transpose(x), "Transposes a matrix."),
    "permute": (_permute, "Permutes the dimensions."),
    "movedim": (_move, "Moves dimensions to other places."),
    "moveaxis": (_move, "Moves dimensions to other places."),
    "squeeze": (_squeeze, "Leaves dimensions of size 1 out: all, or those among some."),
    "unsqueeze": (lambda x, axis: fnp.expand_dims(x, axis), "Adds a dimension of size 1."),
    "expand": (lambda x, *shape: x.expand(*shape), "Repeats dimensions of size 1; -1 keeps one."),
    "expand_as": (_broadcast_as, "Repeats dimensions of size 1 up to the shape of another tensor."),
    "broadcast_to": (
        lambda x, shape: fnp.broadcast_to(x, tuple(shape)),
        "Repeats dimensions of size 1 up to a shape.",
    ),
    "narrow": (_narrow, "Takes `length` elements from `start` on along a dimension."),
    "select": (_select, "Takes one index along a dimension, which is left out."),
    "diagonal": (_diagonal, "Takes the diagonal of two dimensions."),
}
"""The methods that return views, as functions of a value and their arguments."""


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


class ViewMembers:
    """Has the methods that return views and are no functions of a value alone."""

    T = property(lambda self: view(self, fnp.transpose))

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
        return _views(self, [functools.partial(_select, axis=dim, index=i)
                            for i in range(self.shape[dim])])  # fmt: skip

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Returns parts of a size, or of several sizes, along a dimension."""
        total = self.shape[dim]
        if isinstance(split_size, int):
            sizes = [min(split_size, total - i) for i in range(0, total, split_size)]
        else:
            sizes = list(split_size)
        starts = np.cumsum([0, *sizes[:-1]])
        return _views(self, [functools.partial(_narrow, axis=dim, start=int(a), length=n)
                            for a, n in zip(starts, sizes, strict=True)])  # fmt: skip

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """Returns so many parts along a dimension, or fewer, of one size but for the last."""
        return ViewMembers.split(self, -(-self.shape[dim] // chunks), dim)


def _views(x: Any, gets: list[Function]) -> tuple[Any, ...]:
    found = recorded(lambda x: tuple([get(x) for get in gets]), x)
    return tuple([as_view(x, y, get, fixed=SEVERAL) for y, get in zip(found, gets, strict=True)])
