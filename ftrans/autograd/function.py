"""The names of `torch.autograd.function`: every `Function` takes pytrees, and writes in place."""

from ftrans.custom import Function, FunctionCtx, VmapInfo, once_differentiable

__all__ = ["Function", "FunctionCtx", "VmapInfo", "once_differentiable"]

BackwardCFunction = FunctionCtx
InplaceFunction = NestedIOFunction = Function
