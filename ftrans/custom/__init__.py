"""What users add to the library: rules of their own, and calls of what is no program of ours."""

from ftrans.custom.context import FunctionCtx, VmapInfo
from ftrans.custom.decorators import custom_jvp, custom_vjp, custom_vmap
from ftrans.custom.function import Function, once_differentiable

__all__ = [
    "Function",
    "FunctionCtx",
    "VmapInfo",
    "custom_jvp",
    "custom_vjp",
    "custom_vmap",
    "once_differentiable",
]
