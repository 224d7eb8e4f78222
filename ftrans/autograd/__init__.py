"""The names of `torch.autograd`."""

from ftrans.autograd import functional
from ftrans.autograd.function import Function, FunctionCtx, once_differentiable
from ftrans.errors import GradcheckError
from ftrans.verify import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "functional",
    "gradcheck",
    "gradgradcheck",
    "once_differentiable",
]
