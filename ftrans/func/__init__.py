"""Transformations of Python functions, with the names of `torch.func` and what it lacks."""

import ftrans.func.mapping  # noqa: F401  # which gives ftrans.numpy more functions
from ftrans.func.checkpoint import checkpoint, checkpoint_name, remat
from ftrans.func.derivative import jvp, linearize, residuals, vjp
from ftrans.func.grad import grad, grad_and_value, value_and_grad
from ftrans.func.jacobian import hessian, hvp, jacfwd, jacrev, vhp
from ftrans.func.rearrange import rearrange
from ftrans.func.state import functional_call, stack_module_state
from ftrans.func.trace import debug_unwrap, functionalize, linear_transpose
from ftrans.func.vmap import vmap
from ftrans.numpy.advice import declining as _declining
from ftrans.primitives import policies as checkpoint_policies

__all__ = [
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "rearrange",
    "remat",
    "residuals",
    "stack_module_state",
    "value_and_grad",
    "vhp",
    "vjp",
    "vmap",
]


__getattr__ = _declining(
    __name__,
    {
        "replace_all_batch_norm_modules_": "There are no modules: write batch normalization as a "
        "function that returns its statistics\n  beside its result, and keep them outside: vmap "
        "maps them like anything else."
    }.get,
)
