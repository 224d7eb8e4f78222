"""The methods of tensors that return views, and that read and write by an index."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.at_hand import chosen, element, with_element
from ftrans.autograd.short import taken
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.autograd.views import SEVERAL, as_view, assign, become, old_of, over, view
from ftrans.errors import UnsupportedError
from ftrans.ir import Tracer
from ftrans.numpy import torch_functions
from ftrans.numpy.inplace import RENAMED
from ftrans.numpy.methods import named
from ftrans.numpy.moving import as_arrays, is_moving
from ftrans.numpy.numbers import whole
from ftrans.numpy.ready import FEW
from ftrans.numpy.torch_methods import Function, chunk_size, indices_of, parts_of, sizes_between

_BASIC = frozenset({int, slice, type(None), type(...)})


def _is_basic(index: Any) -> bool:
    """Tells whether an index makes a view: of numbers, slices, `...` and None."""
    items = index if type(index) is tuple else (index,)
    return _BASIC.issuperset(map(type, items))


def _getter(index: Any) -> Function:
    """Returns what takes the elements at an index, by the name that PyTorch has for that."""

    def get(x: Any) -> Any:
        return x[index]

    numbers = type(index) is int or (type(index) is tuple and int in map(type, index))
    get.__name__ = "select" if numbers else "unsqueeze" if index is None else "slice"
    get.index = index  # type: ignore[attr-defined]
    return get


def _moved(index: Any, x: Tensor, *value: Any) -> Function:
    """Makes what reads, or writes, by an index that moves at a place: at once, or by arrays."""

    def instead(user: Any, turn: int) -> Any:
        code = user.f_code
        if not is_moving((id(code), user.f_lasti), code, index, turn):
            return None
        found = with_element(x, index, *value) if value else element(x, index)
        arrays, axis = (
            (None, None) if found is not None else as_arrays(index, x._type.shape) or (None, None)
        )
        if arrays is None or (value and axis):
            return found
        arrays = tuple([of_array(i) if type(i) is np.ndarray else i for i in arrays])
        if value:
            return taken(setitem, (x, arrays, *value))
        found = taken(operator.getitem, (x, arrays))
        return found if axis is None else found.squeeze(axis)

    return instead


def setitem(x: Any, index: Any, value: Any) -> Any:
    """Returns a value with other elements at an index."""
    return fnp.at(x)[index].set(value)


def set_slices(x: Any, index: Any, value: Any) -> Any:
    """Does as `setitem` where an index makes a view."""
    return setitem(x, index, value)


def set_all(x: Any, index: Any, value: Any) -> Any:
    """Does so where it makes a view of all elements."""
    return over(set_slices(x, index, value), x)


def _T(x: Any) -> Any:
    return fnp.transpose(x)


def _views(name: str, x: Any, gets: list[Function], *by: Any) -> tuple[Any, ...]:
    """Returns several views of a tensor by a function of that name, and its arguments."""

    def several(x: Any) -> tuple[Any, ...]:
        return tuple([get(x) for get in gets])

    several.__name__ = name
    found = taken(several, (x,), None, (name, *whole(by)))
    return tuple([as_view(x, y, get, fixed=SEVERAL) for y, get in zip(found, gets, strict=True)])


def _becoming(name: str) -> Function:
    """Makes the method that has a tensor be the view which another one returns."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self) is Tracer:
            return getattr(self, f"{name}_")(*args, **kwargs)
        return become(f"{name}_", self, lambda x: getattr(x, name)(*args, **kwargs))

    return named(method, f"{name}_", f"Has the tensor be what `{name}` returns of it.")


class ViewMembers:
    """Has the methods that return views and are no functions of a value alone."""

    T = property(lambda self: view(self, _T))
    mT = property(lambda self: view(self, torch_functions.mT))
    mH = property(lambda self: view(self, torch_functions.mH).conj())
    H = property(lambda self: view(self, torch_functions.H).conj())
    real = property(lambda self: view(self, fnp.real) if self.is_complex() else self)
    real = real.setter(lambda self, value: self.real.__setitem__(..., value))
    imag = property(lambda self: view(self, torch_functions.imag))
    imag = imag.setter(lambda self, value: self.imag.__setitem__(..., value))

    def __iter__(self: Any) -> Iterator[Any]:
        if not self._type.ndim:
            raise UnsupportedError(f"A tensor of rank zero cannot be iterated.\n  x: {self._type}")
        return iter(self.unbind())

    def __getitem__(self: Any, index: Any) -> Any:
        if _is_basic(index):
            get = _getter(index := whole(index))
            held = type(self) is Tensor and type(self._v) is np.ndarray
            if held and (found := element(self, index)) is not None:
                return as_view(self, found, get)
            return view(self, get, (operator.getitem, index), instead=_moved(index, self))
        found = chosen(self, index)
        return taken(operator.getitem, (self, index)) if found is None else found

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        write = set_slices if _is_basic(index) else setitem
        if write is set_slices and type(value) is Tensor and old_of(self):
            is_all = np.broadcast_to(0, self._type.shape)[index].size == self._type.size
            write = set_all if is_all else write
        is_small = write is set_slices and self._type.size <= FEW
        found = with_element(self, index, value) if is_small else None
        if found is None:
            moved = _moved(index, self, value) if write is set_slices else None
            found = taken(write, (self, index, value), instead=moved)
        assign("x[index] = value", self, found)

    for _name in RENAMED:
        vars()[f"{_name}_"] = _becoming(_name)

    def unbind(self: Any, dim: int = 0) -> tuple[Any, ...]:
        """Returns the parts along a dimension, which they do not have any more."""
        return _views("unbind", self, indices_of(self, dim), dim)

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Returns parts of a size, or of several sizes, along a dimension."""
        return _views("split", self, parts_of(self, split_size, dim), split_size, dim)

    def split_with_sizes(self: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
        """Returns parts of several sizes along a dimension."""
        return self.split(split_sizes, dim)

    def tensor_split(self: Any, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
        """Returns so many parts along a dimension, as alike as can be, or those between indices."""
        return self.split(sizes_between(self, indices_or_sections, dim), dim)

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """Returns so many parts along a dimension, or fewer, of one size but for the last."""
        return self.split(chunk_size(self, whole(chunks), dim), dim)
