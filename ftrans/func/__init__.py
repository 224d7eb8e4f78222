"""Transformations of Python functions, with the names of `torch.func` and what it lacks."""

from ftrans.func.derivative import jvp, linearize, vjp
from ftrans.func.grad import grad, grad_and_value, value_and_grad
from ftrans.func.jacobian import hessian, hvp, jacfwd, jacrev, vhp
from ftrans.func.trace import linear_transpose
from ftrans.func.vmap import vmap

__all__ = [
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "value_and_grad",
    "vhp",
    "vjp",
    "vmap",
]
