"""Custom rules: operations whose derivatives and batches their author writes."""

from ftrans.custom.context import FunctionCtx, VmapInfo
from ftrans.custom.function import Function, once_differentiable

__all__ = ["Function", "FunctionCtx", "VmapInfo", "once_differentiable"]
