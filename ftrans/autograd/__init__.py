"""The names of `torch.autograd`."""

from ftrans.autograd.function import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
