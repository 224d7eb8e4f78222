"""Methods of tensors, and of what stands for them, that are others of their own."""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import Tracer
from ftrans.numpy import torch_functions
from ftrans.numpy.numbers import whole
from ftrans.numpy.torch_kinds import dtype_of, kind_of
from ftrans.numpy.torch_methods import MEANT, give


def _conjugate(transpose: Any) -> property:
    def get(self: Any) -> Any:
        """The transpose, of complex numbers conjugated."""
        found = transpose(self)
        return found.conj() if found.is_complex() else found

    return property(get)


class Derived:
    """Has methods that are others of the value's own."""

    mH, H = map(_conjugate, (torch_functions.mH, torch_functions.H))

    def contiguous(self: Any, memory_format: Any = None) -> Any:
        """Returns the tensor itself: it says nothing of memory."""
        return self

    __pos__ = positive = resolve_conj = resolve_neg = contiguous
    to_dense = pin_memory = share_memory_ = contiguous

    def type(self: Any, dtype: Any = None, **options: Any) -> Any:
        """Converts to a dtype, or to a kind, "torch.LongTensor"; without one, returns the kind."""
        return kind_of(self) if dtype is None else self.to(dtype_of(dtype))

    def cpu(self: Any) -> Any:
        """Moves to the CPU: the tensor itself, where it lies there."""
        return self.to("cpu")

    def byte(self: Any) -> Any:
        """Converts to uint8."""
        return self.to("uint8")

    def char(self: Any) -> Any:
        """Converts to int8."""
        return self.to("int8")

    def hsplit(self: Any, split_size_or_sections: Any) -> tuple[Any, ...]:
        """Returns parts along the second dimension, or the only one, see `tensor_split`."""
        return _split("hsplit", self, split_size_or_sections, min(len(self.shape) - 1, 1), 1)

    def vsplit(self: Any, split_size_or_sections: Any) -> tuple[Any, ...]:
        """Returns parts along the first dimension, see `tensor_split`."""
        return _split("vsplit", self, split_size_or_sections, 0, 2)

    def dsplit(self: Any, split_size_or_sections: Any) -> tuple[Any, ...]:
        """Returns parts along the third dimension, see `tensor_split`."""
        return _split("dsplit", self, split_size_or_sections, 2, 3)

    def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
        """Returns a copy of `length` elements from `start` on along a dimension."""
        return _method(self, "narrow")(dim, start, length).clone()

    def unsafe_split(self: Any, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
        """Returns copies of what `split` returns, which may be written to."""
        return _copies(_method(self, "split")(split_size, dim))

    def unsafe_split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> tuple[Any, ...]:
        """Returns copies of what `split_with_sizes` returns, see `unsafe_split`."""
        return _copies(_method(self, "split")(split_sizes, dim))

    def unsafe_chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """Returns copies of what `chunk` returns, see `unsafe_split`."""
        return _copies(_method(self, "chunk")(chunks, dim))

    def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
        """Writes one value to the main diagonal, which with `wrap` begins anew below a square."""
        if len(self.shape) < 2 or (len(self.shape) > 2 and len(set(self.shape)) > 1):
            raise ShapeError(
                f"fill_diagonal_: takes a matrix, or more dimensions of one size.\n"
                f"  x: shape {tuple(self.shape)}"
            )
        places = np.zeros(self.shape, bool)
        np.fill_diagonal(places, True, wrap)
        if self.dtype.kind in "iu":
            fill_value = int(fill_value)  # as PyTorch rounds it
        return _method(self, "masked_fill_")(places, fill_value)


def _method(x: Any, name: str) -> Any:
    """Returns a method of a tensor, or of a traced value as if that stood for one."""
    return partial(MEANT[name], x) if type(x) is Tracer else getattr(x, name)


def _copies(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_method(part, "clone")() for part in parts])


def _split(name: str, x: Any, given: Any, dim: int, least: int) -> tuple[Any, ...]:
    given, shape = whole(given), tuple(x.shape)
    if len(shape) < least:
        raise ShapeError(f"{name}: takes {least} dimensions or more.\n  x: shape {shape}")
    if isinstance(given, int) and (given < 1 or shape[dim] % given):
        raise ArgumentError(
            f"{name}: there are no {given} parts of one size.\n  x: shape {shape}\n  dim: {dim}\n"
            f"  Write x.tensor_split({given}, {dim}), whose parts may differ."
        )
    return _method(x, "tensor_split")(given, dim)


for _name in ("H", "mH"):
    setattr(Tracer, _name, vars(Derived)[_name])
_UNMEANT = ("__pos__", "type")  # which traced values have themselves
give({
    name: member
    for name, member in vars(Derived).items()
    if isinstance(member, FunctionType) and name not in _UNMEANT
})  # fmt: skip
