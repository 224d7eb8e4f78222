"""JAX's code as programs of ours, and ours as functions for JAX."""

from ftrans.interop.callee import JaxCallee
from ftrans.interop.function import Namespace, from_jax

__all__ = ["JaxCallee", "Namespace", "from_jax"]
