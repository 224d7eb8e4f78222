"""What values are asked about their types by PyTorch's names: tensors, and what stands for them."""

from __future__ import annotations

import math
from typing import Any

from ftrans.ir.dtype import is_complex, is_float


class OfType:
    """Has methods that tell of the type of a tensor."""

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
