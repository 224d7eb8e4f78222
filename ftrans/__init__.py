"""ftrans: composable function transformations in Python, compiled by XLA, without `jit`."""

from ftrans import errors, func, ir, numpy, primitives
from ftrans.config import config, get_default_dtype, set_default_dtype
from ftrans.errors import *  # noqa: F403
from ftrans.errors import __all__ as _error_names
from ftrans.func import (
    grad,
    grad_and_value,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vhp,
    vjp,
    vmap,
)
from ftrans.func.control import cond, fori_loop, scan, switch, while_loop
from ftrans.func.interpreter import Interpreter, Operation
from ftrans.func.jit import jit
from ftrans.func.trace import trace
from ftrans.ir import ArrayType, Program, check
from ftrans.runtime import cache_clear, cache_info

__version__ = "0.1.0"
