"""What users add to the library: rules of their own, and calls of what is no program of ours."""

from ftrans.custom.context import FunctionCtx, VmapInfo
from ftrans.custom.function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "VmapInfo", "once_differentiable"]
