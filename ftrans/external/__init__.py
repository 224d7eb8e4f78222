"""Calls of what is not traced: Python functions, compiled kernels, code of JAX."""

from ftrans.external.callee import HostCallee
from ftrans.interop.callee import JaxCallee

__all__ = ["HostCallee", "JaxCallee"]
