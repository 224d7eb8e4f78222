"""What values are asked about their types by PyTorch's names: tensors, and what stands for them."""

from __future__ import annotations

import math
from typing import Any

from ftrans.ir.dtype import is_complex, is_float


class OfType:
    """Has methods that tell of the type of a tensor."""

    is_cpu = property(lambda self: self.device.type == "cpu")
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_sparse = is_sparse_csr = is_mkldnn = is_quantized = property(lambda self: False)
    is_meta = is_nested = is_mps = is_xpu = is_xla = property(lambda self: False)
    layout = property(lambda self: "torch.strided")

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

    def is_pinned(self: Any) -> bool:
        """Is false: memory is where the device has it."""
        return False

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
