"""The names of `torch.autograd`."""

from ftrans.autograd.function import Function, FunctionCtx, once_differentiable
from ftrans.errors import GradcheckError
from ftrans.verify import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "gradcheck",
    "gradgradcheck",
    "once_differentiable",
]
