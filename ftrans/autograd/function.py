"""The names of `torch.autograd.function`."""

from ftrans.custom import Function, FunctionCtx, VmapInfo, once_differentiable

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "InplaceFunction",
    "NestedIOFunction",
    "VmapInfo",
    "once_differentiable",
]


class InplaceFunction(Function):
    """Is `Function`; PyTorch's has a flag that says whether the author means to write in place."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Is `Function`, which takes and returns pytrees."""


BackwardCFunction = FunctionCtx
"""What PyTorch calls the context that `backward` is given."""
