"""The names of `torch.autograd`."""

from ftrans.autograd.function import Function, FunctionCtx, once_differentiable
from ftrans.autograd.gradcheck import gradcheck, gradgradcheck
from ftrans.errors import GradcheckError

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "gradcheck",
    "gradgradcheck",
    "once_differentiable",
]
