"""Calls of what is not traced: Python functions, compiled kernels, code of JAX."""

from ftrans.custom.external.front import external
from ftrans.custom.external.host import HostCallee
from ftrans.custom.external.native import ffi, traceable
from ftrans.custom.external.traceable import JaxCallee

__all__ = ["HostCallee", "JaxCallee", "external", "ffi", "traceable"]

external.ffi = ffi  # type: ignore[attr-defined]
external.jax = traceable  # type: ignore[attr-defined]
