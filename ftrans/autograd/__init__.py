"""PyTorch's `autograd` names."""

from ftrans.autograd.gradcheck import gradcheck, gradgradcheck
from ftrans.errors import GradcheckError

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
