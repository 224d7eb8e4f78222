"""Calls of what is not traced: Python functions, compiled kernels, code of JAX."""

from ftrans.custom.external.front import external
from ftrans.custom.external.host import HostCallee

__all__ = ["HostCallee", "external"]
