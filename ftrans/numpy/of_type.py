"""What is asked of types, or done by other methods: of tensors, and of what stands for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir.dtype import is_complex, is_float
from ftrans.numpy.numbers import whole
from ftrans.numpy.torch_kinds import dtype_of, kind_of


class OfType:
    """Has methods that tell of the type of a tensor."""

    is_cpu = property(lambda self: self.device.type == "cpu")
    is_sparse = is_quantized = is_meta = is_mps = is_nested = property(lambda self: False)

    def size(self: Any, dim: int | None = None) -> Any:
        """Returns the shape, or the size of a dimension."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self: Any) -> int:
        """Returns the number of elements."""
        return math.prod(self.shape)

    nelement = numel

    def dim(self: Any) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    ndimension = dim

    def is_floating_point(self: Any) -> bool:
        """Tells whether its elements are real numbers of floating point."""
        return is_float(self.dtype)

    def is_complex(self: Any) -> bool:
        """Tells whether its elements are complex."""
        return is_complex(self.dtype)

    def is_signed(self: Any) -> bool:
        """Tells whether its dtype has negative numbers."""
        return bool(self.dtype.kind not in "bu")

    def is_nonzero(self: Any) -> bool:
        """Tells whether its only element is not 0."""
        return bool(self)

    def is_same_size(self: Any, other: Any) -> bool:
        """Tells whether it has the shape of another tensor."""
        return bool(self.shape == other.shape)

    def is_conj(self: Any) -> bool:
        """Is false: what is conjugated is computed."""
        return False

    def is_neg(self: Any) -> bool:
        """Is false: what is negated is computed."""
        return False

    def is_contiguous(self: Any, memory_format: Any = None) -> bool:
        """Is true: elements that are asked for lie in order."""
        return True

    def stride(self: Any, dim: int | None = None) -> Any:
        """Returns how far apart elements lie that are asked for, in order of rows: in elements."""
        sizes = [max(n, 1) for n in self.shape]
        steps = tuple([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
        return steps if dim is None else steps[dim]

    def storage_offset(self: Any) -> int:
        """Is 0: the elements that are asked for are all that there are."""
        return 0

    def element_size(self: Any) -> int:
        """Returns how many bytes an element has."""
        return int(self.dtype.itemsize)

    def get_device(self: Any) -> int:
        """Returns the number of the GPU that it lies on; -1 where that is none."""
        return -1 if self.device.type == "cpu" else self.device.index or 0


class ByMethods:
    """Has methods that are others of the value's own."""

    def contiguous(self: Any, memory_format: Any = None) -> Any:
        """Returns the tensor itself: it says nothing of memory."""
        return self

    __pos__ = positive = resolve_conj = resolve_neg = contiguous
    to_dense = pin_memory = share_memory_ = contiguous

    def type(self: Any, dtype: Any = None, **options: Any) -> Any:
        """Converts to a dtype, or to a kind, "torch.LongTensor"; without one, returns the kind."""
        return kind_of(self) if dtype is None else self.to(dtype_of(dtype))

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
        return self.narrow(dim, start, length).clone()

    def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
        """Writes one value to the main diagonal, which with `wrap` begins anew below a square."""
        if len(self.shape) < 2 or (len(self.shape) > 2 and len(set(self.shape)) > 1):
            raise ShapeError(
                f"fill_diagonal_: takes a matrix, or more dimensions of one size.\n"
                f"  x: shape {tuple(self.shape)}"
            )
        places = np.zeros(self.shape, bool)
        np.fill_diagonal(places, True, wrap)
        return self.masked_fill_(places, fill_value)


def _split(name: str, x: Any, given: Any, dim: int, least: int) -> tuple[Any, ...]:
    given, shape = whole(given), tuple(x.shape)
    if len(shape) < least:
        raise ShapeError(f"{name}: takes {least} dimensions or more.\n  x: shape {shape}")
    if isinstance(given, int) and (given < 1 or shape[dim] % given):
        raise ArgumentError(
            f"{name}: there are no {given} parts of one size.\n  x: shape {shape}\n  dim: {dim}\n"
            f"  Write x.tensor_split({given}, {dim}), whose parts may differ."
        )
    return x.tensor_split(given, dim)
