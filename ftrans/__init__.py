"""ftrans: composable function transformations in Python, compiled by XLA, without `jit`."""

from ftrans import autograd, errors, func, ir, numpy, primitives
from ftrans.config import config, get_default_dtype, set_default_dtype
from ftrans.custom import (
    custom_jvp,
    custom_linear_solve,
    custom_root,
    custom_vjp,
    custom_vmap,
)
from ftrans.custom.external import external
from ftrans.custom.verify import check_rules
from ftrans.errors import (
    ArgumentError,
    AxisError,
    CheckError,
    ConcretizationError,
    DTypeError,
    FtransError,
    GradcheckError,
    GradcheckInputError,
    IndexingError,
    LeakedTracerError,
    MissingAttributeError,
    MissingRuleError,
    MutationError,
    RuleError,
    ShapeError,
    StaticArgumentError,
    StructureError,
    TracedArrayError,
    TransposeError,
    UnsupportedError,
)
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
from ftrans.func.branches import cond, switch
from ftrans.func.interpreter import Interpreter, Operation
from ftrans.func.jit import jit
from ftrans.func.loops import fori_loop, scan, while_loop
from ftrans.func.trace import trace
from ftrans.ir import ArrayType, Program, check
from ftrans.numpy.elementwise import stop_gradient
from ftrans.runtime import cache_clear, cache_info, explain

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArrayType",
    "AxisError",
    "CheckError",
    "ConcretizationError",
    "DTypeError",
    "FtransError",
    "GradcheckError",
    "GradcheckInputError",
    "IndexingError",
    "Interpreter",
    "LeakedTracerError",
    "MissingAttributeError",
    "MissingRuleError",
    "MutationError",
    "Operation",
    "Program",
    "RuleError",
    "ShapeError",
    "StaticArgumentError",
    "StructureError",
    "TracedArrayError",
    "TransposeError",
    "UnsupportedError",
    "autograd",
    "cache_clear",
    "cache_info",
    "check",
    "check_rules",
    "cond",
    "config",
    "custom_jvp",
    "custom_linear_solve",
    "custom_root",
    "custom_vjp",
    "custom_vmap",
    "errors",
    "explain",
    "external",
    "fori_loop",
    "func",
    "get_default_dtype",
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "ir",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "numpy",
    "primitives",
    "scan",
    "set_default_dtype",
    "stop_gradient",
    "switch",
    "trace",
    "value_and_grad",
    "vhp",
    "vjp",
    "vmap",
    "while_loop",
]
