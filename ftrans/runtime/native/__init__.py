"""C functions made of Python ones: how compiled programs call Python, without a compiler.

`call` records a call while JAX traces; `failure` says why that does not work here, if it does not.
Handlers in machine code are registered by `register`, and leave to the one in Python what they
cannot do.
"""

from ftrans.runtime.native.handler import TARGET, address, call, failure, register, takes
from ftrans.runtime.native.lifetime import sweep

__all__ = ["TARGET", "address", "call", "failure", "register", "sweep", "takes"]
