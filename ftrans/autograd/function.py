"""The names of `torch.autograd.function`."""

from ftrans.custom import Function, FunctionCtx, VmapInfo, once_differentiable

__all__ = ["Function", "FunctionCtx", "VmapInfo", "once_differentiable"]
