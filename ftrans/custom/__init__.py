"""What users add to the library: rules of their own, and calls of what is no program of ours."""

from ftrans.custom import functions  # noqa: F401
from ftrans.custom.context import FunctionCtx, VmapInfo
from ftrans.custom.decorators import custom_jvp, custom_vjp, custom_vmap
from ftrans.custom.front import external, ffi, traceable
from ftrans.custom.function import Function, once_differentiable
from ftrans.custom.implicit import custom_linear_solve, custom_root

__all__ = [
    "Function",
    "FunctionCtx",
    "VmapInfo",
    "custom_jvp",
    "custom_linear_solve",
    "custom_root",
    "custom_vjp",
    "custom_vmap",
    "external",
    "once_differentiable",
]

external.ffi = ffi  # type: ignore[attr-defined]
external.jax = traceable  # type: ignore[attr-defined]
