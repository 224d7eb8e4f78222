"""The names of PyTorch that programs around `torch.autograd` and `torch.func` use.

`import ftrans.torch as torch` is what such a program changes. Most names are those of methods of
tensors and of `ftrans.numpy`, from tables; what is not there says what to write instead.
"""

# ruff: noqa: F401
import difflib as _difflib
import sys as _sys
from collections.abc import Callable as _Callable
from inspect import isfunction as _isfunction
from math import e, inf, nan, pi
from types import ModuleType as _ModuleType
from typing import Any as _Any

import jax as _jax
import numpy as _np

import ftrans.numpy as _fnp
from ftrans import autograd, func
from ftrans.autograd import (
    Tensor,
    enable_grad,
    from_numpy,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ftrans.autograd import methods as _methods
from ftrans.autograd.hooks import RemovableHandle as _RemovableHandle
from ftrans.config import get_default_dtype, set_default_dtype
from ftrans.errors import MissingAttributeError as _MissingAttributeError
from ftrans.func import vmap
from ftrans.numpy import finfo, iinfo, promote_types
from ftrans.numpy.methods import CASTS as _CASTS
from ftrans.numpy.methods import entries as _entries
from ftrans.primitives import complex_p as _complex_p
from ftrans.runtime.device import Device as device
from ftrans.runtime.device import get_default_device, set_default_device
from ftrans.torch import functional as _functional
from ftrans.torch import functions as _functions
from ftrans.torch import testing
from ftrans.traceback import boundary as _boundary

# functions that `ftrans.numpy` has and tensors do not have as methods
_BY_NAME = """
    concat cat:concat concatenate:concat stack hstack vstack dstack column_stack
    kron cross vdot diff fliplr flipud rot90 repeat_interleave:repeat quantile isin
    real imag sgn:sign isreal is_complex:iscomplexobj logaddexp2
    bitwise_left_shift bitwise_right_shift atleast_1d atleast_2d atleast_3d i0 result_type
"""

# methods of tensors that are none of `ftrans.numpy` by another name
_BY_METHOD = """
    addcdiv addcmul argsort broadcast_to chunk clone detach diagonal flatten gather index_select
    lerp masked_fill max min moveaxis movedim narrow norm numel permute ravel reshape select sort
    split squeeze std swapaxes swapdims t transpose unbind unflatten unsqueeze var
    is_floating_point is_inference view_as_real view_as_complex
"""

_FOUND = "relu sigmoid tanh softmax log_softmax silu"
_SPECIAL = "erf erfc erfinv expit:sigmoid expm1 log1p logsumexp digamma gammaln:lgamma xlogy sinc"
_OF_JAX = "cholesky det eig eigh eigvals eigvalsh inv pinv qr slogdet solve svd svdvals"
_FOURIER = "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn fftshift ifftshift"
_DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"

_PARAMETERS = "parameters are tensors in a pytree of your own, such as a dict, layers functions"
_INSTEAD = {
    "Module": f"Write functions: {_PARAMETERS}",
    "Parameter": "Write torch.tensor(data, requires_grad=True)",
    "masked": "Choose before the operation: torch.where(mask, x, 1)",
    "optim": "Update under torch.no_grad(): w -= rate * w.grad. Or write func.grad and use optax",
    "compile": "Write ftrans.jit(f). Tensors need none: what is pending is compiled as it is",
    "jit": "Write ftrans.jit(f)",
    "save": "Write pickle.dump(x, file)",
    "load": "Write pickle.load(file)",
    "median": "Write ftrans.numpy.median(x), which takes the mean of two in the middle",
    "FloatTensor": "Write torch.tensor(data, dtype=torch.float32)",
    "set_printoptions": "Write numpy.set_printoptions(...)",
    "multinomial": "Draw with NumPy: np.random.default_rng(seed).choice(len(p), size=n, p=p)",
    "cond": "Write ftrans.cond(pred, true_fun, false_fun, *operands)",
    "batch_norm": "Write it as a function that returns its statistics beside its result",
    "dist": "Write torch.linalg.norm(x - y)",
    "cdist": "Write torch.linalg.norm(x[:, None] - y[None], dim=-1)",
    "frac": "Write x - torch.trunc(x)",
    "profiler": "It is torch.autograd.profiler",
    "checkpoint": "Call the function itself. To save less, pack what is saved: "
    "torch.autograd.graph.saved_tensors_hooks",
    **dict.fromkeys(
        ("get_numerical_jacobian", "get_analytical_jacobian"),
        "Write torch.autograd.functional.jacobian(f, inputs)",
    ),
}
"""What to write in the place of what is not there."""


def _missing(home: str) -> _Callable[[str], _Any]:
    """Makes the `__getattr__` of a namespace."""

    @_boundary
    def missing(name: str) -> _Any:
        if name.startswith("__"):
            raise AttributeError(f"module {home!r} has no attribute {name!r}")
        found = vars(_sys.modules[home])
        near = _difflib.get_close_matches(name, [n for n in found if n[0] != "_"], 3, 0.75)
        hint = "Tensors are dense" if "sparse" in name else _INSTEAD.get(name)
        if hint is None and home.endswith(".nn"):
            hint = f"There are no modules: {_PARAMETERS} of torch.nn.functional"
        if hint is None and _isfunction(getattr(_fnp, name, None)):
            hint = f"Write ftrans.numpy.{name}(...), whose arguments are named as NumPy's"
        if hint is None and near:
            hint = f"Close to it are {', '.join(near)}"
        raise _MissingAttributeError(
            f"{home} has no attribute {name!r}." + ("" if hint is None else f"\n  {hint}.")
        )

    return missing


def _namespace(name: str, doc: str, **members: _Any) -> _ModuleType:
    """Makes a module of some names, which can be imported from as well."""
    module = _ModuleType(f"{__name__}.{name}", doc)
    vars(module).update(members, __getattr__=_missing(module.__name__))
    _sys.modules[module.__name__] = module
    return module


def _complex(real: _Any, imag: _Any) -> _Any:
    """Returns complex numbers with these parts, of one type."""
    return _complex_p(*_fnp.broadcast_arrays(real, imag))


def _polar(abs: _Any, angle: _Any) -> _Any:
    """Returns complex numbers of an absolute value and an angle."""
    return _complex(abs * _fnp.cos(angle), abs * _fnp.sin(angle))


def _addmm(input: _Any, mat1: _Any, mat2: _Any, *, beta: _Any = 1, alpha: _Any = 1) -> _Any:
    """Returns `beta * input + alpha * (mat1 @ mat2)`."""
    return beta * input + alpha * _fnp.matmul(mat1, mat2)


_slogdet = _functions.of_jax(_jax.numpy.linalg.slogdet)


def _logdet(input: _Any) -> _Any:
    """Returns the logarithm of the determinant, NaN where that is negative."""
    sign, logarithm = _slogdet(input)
    return _fnp.where(sign < 0, nan, logarithm)


def _function(name: str, target: str) -> _Any:
    """Makes the function of tensors that is one of `ftrans.numpy`, at the cost of the method."""
    function = _methods.function_of(name, target)
    return _functions.lifted(function, _methods.method_of(name, function, 2))


def _has_gpu() -> bool:
    """Tells whether JAX finds a GPU."""
    return _np.any([found.platform == "gpu" for found in _jax.local_devices()]).item()


def _members() -> dict[str, _Any]:
    """Returns all that comes from tables."""
    found: dict[str, _Any] = {name: _np.dtype(name) for name in _DTYPES.split()}
    found |= {name: _np.dtype(target) for name, target in _entries(_CASTS)}
    found |= {"complex64": found["cfloat"], "complex128": found["cdouble"]}
    for table in (_methods.ELEMENTWISE, _methods.OTHERS):
        found |= {name: _function(name, target) for name, target in _entries(table)}
    for name, target in _entries(_BY_NAME):
        found[name] = _functions.lifted(getattr(_fnp, target))
    for name in _BY_METHOD.split():
        found[name] = _functions.of_method(name)
    for name in ("allclose", "equal", "is_complex", "is_floating_point"):
        found[name] = _functions.known(found[name])
    for function in (_complex, _polar, _addmm, _logdet):
        found[function.__name__[1:]] = _functions.lifted(function)
    found |= {name: vars(_functions)[name] for name in _functions.__all__}
    for name in ("zeros", "ones", "empty", "full", "rand", "randn"):
        found[f"{name}_like"] = _functions.like(found[name])
    return found


_found = _members()
_losses = {name: vars(_functional)[name] for name in _functional.__all__}
_of_jax = {name: _functions.of_jax(getattr(_jax.numpy.linalg, name)) for name in _OF_JAX.split()}
globals().update(_found)

dtype, Size = _np.dtype, tuple
inverse = _of_jax["inv"]
linalg = _namespace(
    "linalg",
    "Has `torch.linalg`.",
    norm=_functions.lifted(_fnp.norm),
    vector_norm=_functions.vector_norm,
    matrix_norm=_functions.lifted(_fnp.matrix_norm),
    **_of_jax,
    **{name: _function(name, name) for name in ("cross", "matmul", "matrix_power", "vecdot")},
)
fft = _namespace(
    "fft",
    "Has `torch.fft`.",
    **{name: _functions.of_jax(getattr(_jax.numpy.fft, name)) for name in _FOURIER.split()},
)
special = _namespace(
    "special",
    "Has `torch.special`.",
    **{name: _function(name, target) for name, target in _entries(_SPECIAL)},
)
nn = _namespace(
    "nn",
    "Has `torch.nn.functional`.",
    functional=_namespace(
        "nn.functional",
        "Has `torch.nn.functional`.",
        **_losses,
        **{name: _found[name] for name in _FOUND.split()},
    ),
)
utils = _namespace(
    "utils",
    "Has what there is of `torch.utils`.",
    checkpoint=_namespace("utils.checkpoint", "Says what to write instead."),
    hooks=_namespace("utils.hooks", "Has handles of hooks.", RemovableHandle=_RemovableHandle),
)
random = _namespace("random", "Has `torch.random`.", manual_seed=_functions.manual_seed)
cuda = _namespace("cuda", "Says which GPUs there are.", is_available=_has_gpu)

# so that `from ftrans.torch.autograd import Function` finds what is there already
_sys.modules |= {
    name.replace("ftrans.", f"{__name__}.", 1): module
    for name, module in list(_sys.modules.items())
    if name.startswith(("ftrans.autograd", "ftrans.func"))
}
_namespace(
    "autograd.gradcheck",
    "Has what the module has that `torch.autograd.gradcheck` hides.",
    **{name: getattr(autograd, name) for name in ("gradcheck", "gradgradcheck", "GradcheckError")},
)
_sys.modules[f"{__name__}.autograd.grad_mode"] = autograd.grad_mode
__getattr__ = _missing(__name__)
