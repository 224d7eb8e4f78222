"""The names of PyTorch that programs around `torch.autograd` and `torch.func` use.

`import ftrans.torch as torch` is what such a program changes. Names come from tables: methods of
tensors, functions of values that are made to take tensors as well, or to create them, and what to
write instead of what is not there.
"""

# ruff: noqa: F401
import difflib as _difflib
import functools as _functools
import sys as _sys
from collections.abc import Callable as _Callable
from inspect import isfunction as _isfunction
from inspect import signature as _signature
from math import e, inf, nan, pi
from types import ModuleType as _ModuleType
from typing import Any

import jax as _jax
import jax.tree_util as _tree
import numpy as _np

import ftrans.nn as _nn
import ftrans.numpy as _fnp
import ftrans.scipy.torch_formulas as _of_scipy
from ftrans import autograd, func
from ftrans.autograd import Tensor
from ftrans.autograd import methods as _methods
from ftrans.autograd.creation import leaf as _leaf
from ftrans.autograd.hooks import RemovableHandle as _RemovableHandle
from ftrans.autograd.short import composite as _composite
from ftrans.autograd.short import taken as _taken
from ftrans.autograd.tensor import check_tensor as _check_tensor
from ftrans.config import get_default_dtype, set_default_dtype
from ftrans.custom.guards import trust as _trust
from ftrans.errors import MissingAttributeError as _MissingAttributeError
from ftrans.func import vmap
from ftrans.ir import Tracer as _Tracer
from ftrans.ir.stack import state as _state
from ftrans.ir.stack import untraced as _untraced
from ftrans.nn import advice as _advice
from ftrans.nn import clipping as _clipping
from ftrans.nn import torch_init as _torch_init
from ftrans.nn import torch_names as _nn_names
from ftrans.numpy import finfo, iinfo, promote_types
from ftrans.numpy import torch_kinds as _kinds
from ftrans.numpy import torch_methods as _torch_methods
from ftrans.numpy import torch_settings as _settings
from ftrans.numpy.methods import CASTS as _CASTS
from ftrans.numpy.methods import entries as _entries
from ftrans.numpy.torch_formulas import FORMULAS as _OF_VALUES
from ftrans.numpy.torch_formulas import can_cast
from ftrans.numpy.torch_functions import cross as _cross
from ftrans.numpy.torch_functions import matrix_norm as _matrix_norm
from ftrans.numpy.torch_spelling import names_of as _names_of
from ftrans.pytree import mapped as _mapped
from ftrans.random import torch_draws as _draws
from ftrans.random.torch_draws import Generator, default_generator, manual_seed
from ftrans.runtime.device import Device as _Device
from ftrans.runtime.device import get_default_device, set_default_device
from ftrans.torch import functions as _functions
from ftrans.traceback import boundary as _boundary
from ftrans.traceback import shorten as _shorten

_Function = _Callable[..., Any]


# ------------------------------------------------------------------------------------------- tables

_OF_AUTOGRAD = """
    enable_grad no_grad set_grad_enabled is_grad_enabled inference_mode is_inference_mode_enabled
    is_anomaly_enabled is_anomaly_check_nan_enabled from_numpy
"""

# functions of `ftrans.numpy` that tensors have as methods, and those that they have not
_METHODS = _methods.ELEMENTWISE + _methods.OTHERS
_BY_NAME = """
    stack hstack vstack dstack column_stack
    isin is_complex:iscomplexobj result_type row_stack:vstack
"""

# of functions.py; those that create
_DIFFERING = "where meshgrid broadcast_tensors einsum"
_CREATING = "tensor zeros ones empty full eye arange linspace logspace from_dlpack"
# of torch_draws.py
_DRAWING = "bernoulli poisson multinomial"
_CREATING_DRAWN = "rand randn randint randperm normal randint_like"
_LIKE = "zeros ones empty full rand randn"
_IN_PLACE = [name for name in dir(Tensor) if name.endswith("_") and name[0] != "_"]
_KNOWN = "allclose equal is_complex is_floating_point"

# methods of tensors that are none of `ftrans.numpy` by another name
_BY_METHOD = """
    argsort broadcast_to chunk clone conj detach diagonal flatten
    max min moveaxis movedim narrow norm numel permute positive ravel reshape select sort
    div split split_with_sizes tensor_split squeeze std topk swapaxes swapdims t transpose unbind
    unflatten unsqueeze var
    is_floating_point is_inference view_as_real view_as_complex hsplit vsplit dsplit
    is_conj is_neg is_nonzero is_same_size is_signed get_device narrow_copy resolve_conj resolve_neg
    unsafe_chunk unsafe_split unsafe_split_with_sizes
"""
_DTYPES = """
    int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128
"""
_WRITTEN = "relu leaky_relu elu hardtanh selu celu threshold rrelu"  # also in place
_WRITTEN_TOO = ("celu", "rrelu", "selu", "threshold")  # and in `torch`, not as methods
_ACTIVATIONS = "relu sigmoid tanh softmax log_softmax silu"

# of `ftrans.nn`, which takes `dim` for `axis` here; where statistics are kept it returns them
_NETWORKS = {*_nn.__all__} - {"batch_norm", "dropout", "init", "instance_norm"}


def _missing(home: str) -> _Callable[[str], Any]:
    """Makes the `__getattr__` of a namespace."""

    @_boundary
    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {home!r} has no attribute {name!r}")
        found = vars(_sys.modules[home])
        near = _difflib.get_close_matches(name, [n for n in found if n[0] != "_"], 3, 0.75)
        kinds = (hint for kind, hint in _advice.OF_KINDS_OF_TORCH.items() if kind in name)
        hint = _advice.OF_TORCH.get(name) or next(kinds, None)
        if hint is None and name in vars(_sys.modules[f"{__name__}.nn.functional"]):
            hint = f"Write torch.nn.functional.{name}(...)"
        if hint is None and home.endswith(".functional") and (advice := _advice.instead(name)):
            hint = advice.removesuffix(".")
        if hint is None and home.endswith(".nn"):
            hint = f"There are no modules: {_advice.PARAMETERS} of torch.nn.functional"
        if hint is None and _isfunction(getattr(_fnp, name, None)):
            hint = f"Write ftrans.numpy.{name}(...), whose arguments are named as NumPy's"
        if hint is None and near:
            hint = f"Close to it are {', '.join(near)}"
        raise _MissingAttributeError(
            f"{home} has no attribute {name!r}." + ("" if hint is None else f"\n  {hint}.")
        )

    return missing


# ---------------------------------------------------------------------------- functions of tensors

_FIRST = ("input", "tensors", "tensor")
"""What PyTorch calls the first argument, whatever `ftrans.numpy` calls it."""


def _lifted(function: _Function, short: _Function | None = None) -> _Function:
    """Makes a function of values take tensors as well, and return tensors then.

    Args:
        function: the function, of `ftrans.numpy` or composed of those.
        short: what is called where the first argument is a tensor; the user's code is two frames
            further out.
    """
    parameters, names = _signature(function).parameters, _names_of(function)
    short = short or _composite(function.__name__, function, names)

    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if type(kwargs.get("out")) in _OUTPUTS:
                return _functions.result_to(kwargs.pop("out"), called(*args, **kwargs))
            args = _by_place(args, kwargs, parameters)
            if kwargs.pop("inplace", False):
                return args[0].copy_(called(*args, **kwargs))
        if args and type(args[0]) is Tensor:
            return short(*args, **kwargs)
        if kwargs:
            kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        try:
            if _has_tensors(args, kwargs):
                return _taken(function, args, kwargs)
            return function(*args, **kwargs)
        except Exception as error:
            _shorten(error)
            raise

    return _functools.wraps(function)(called)


def _by_place(args: tuple[Any, ...], kwargs: dict[str, Any], own: Any = ()) -> tuple[Any, ...]:
    """Returns all positional arguments, with those under names that the function has not itself."""
    if not args:
        args = tuple([kwargs.pop(name) for name in _FIRST if name in kwargs and name not in own])
    takes = args and "other" in kwargs and "other" not in own
    return (args[0], kwargs.pop("other"), *args[1:]) if takes else args


def _has_tensors(*args: Any) -> bool:
    return Tensor in map(type, _tree.tree_leaves(args))


def _of_method(name: str) -> _Function:
    """Makes the function that is a method of tensors by this name."""
    method = getattr(Tensor, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("out")) in _OUTPUTS:
            return _functions.result_to(kwargs.pop("out"), called(*args, **kwargs))
        input, *rest = _by_place(args, kwargs)
        if type(input) is _Tracer:
            of_value = _torch_methods.MEANT.get(name)
            return (
                of_value(input, *rest, **kwargs)
                if of_value
                else getattr(input, name)(*rest, **kwargs)
            )
        if name[-1] == "_":
            _check_tensor(name, "what is written to", input)
        if type(input) is Tensor or _state.stack:
            return method(input if is_tensor(input) else _fnp.asarray(input), *rest, **kwargs)
        found = method(as_tensor(input), *rest, **kwargs)
        return found if _has_tensors(rest, kwargs) else _mapped(_plain, found)

    return _functools.wraps(method)(called)


def _known(function: _Function) -> _Function:
    """Makes a function that returns a boolean return one of Python's, where nothing traces."""

    @_functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found.item() if type(found) is Tensor else found

    return called


def _in_place(function: _Function) -> _Function:
    return _functools.partial(function, inplace=True)


def _plain(x: Any) -> Any:
    return x.detach().numpy() if type(x) is Tensor else x


_OUTPUTS = frozenset({Tensor, _Tracer, tuple, list})
_OF_MEMORY = frozenset({"layout", "memory_format", "pin_memory"})


def _creating(make: _Function) -> _Function:
    """Makes a function that creates arrays create tensors or, in what is traced, parts of that."""

    def created(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Any:
        if type(kwargs.get("out")) in _OUTPUTS:
            return _functions.result_to(kwargs.pop("out"), created(*args, **kwargs))
        kwargs = {key: value for key, value in kwargs.items() if key not in _OF_MEMORY}
        leaves = _tree.tree_leaves((args, kwargs))
        if Tensor in map(type, leaves):
            args, kwargs = _mapped(_plain, (args, kwargs))
        for x in leaves if requires_grad or not _state.stack else ():
            if type(x) is _Tracer:
                _leaf(x, requires_grad)  # which raises
        if _state.stack and not requires_grad:
            return _fnp.asarray(make(*args, **kwargs))
        with _untraced():
            found, default = make(*args, **kwargs), get_default_device()
            if isinstance(device, str) and not default and _Device(device).type == "cpu":
                device = None
            if device is not None or default or type(found) is not _np.ndarray:
                found = _fnp.asarray(found, device=device)
            return _leaf(found, requires_grad)

    created.__name__, created.__doc__ = make.__name__, make.__doc__
    return _boundary(created)


def _function(name: str, target: str) -> Any:
    """Makes the function of tensors that is one of `ftrans.numpy`, at the cost of the method."""
    function = _methods.function_of(name, target)
    of_values = _torch_methods.MEANT[name] if name in ("add", "sub") else function
    return _lifted(of_values, _methods.method_of(name, function, 2))


def _formula(name: str, function: Any) -> Any:
    """Makes the function of tensors that is a formula, under a name."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = function.__doc__ or "Takes the arguments of PyTorch's."
    return _lifted(function)


def is_tensor(obj: Any) -> bool:
    """Tells whether an object is a tensor, or a traced value, which stands for one."""
    return type(obj) in (Tensor, _Tracer)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """Returns a tensor of some data: itself where it is one, with its history."""
    if type(data) in (Tensor, _Tracer):
        data = data if dtype is None else data.to(dtype)
        return data if device is None else data.to(device)
    return tensor(data, dtype=dtype, device=device)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: Any = None
) -> Any:
    """Returns a tensor of some data: that itself, unless it is to be another or a copy."""
    made = as_tensor(obj, dtype, device)
    made = made.clone() if copy and made is obj else made
    return made if requires_grad is None else made.detach().requires_grad_(requires_grad)


def _writing(name: str, training: bool) -> _Function:
    """Makes a normalisation write its running statistics, which that of `ftrans.nn` returns."""
    function = _lifted(getattr(_nn, name))
    switch = list(_signature(function).parameters)[5]

    def called(
        input: Any, running_mean: Any = None, running_var: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        found = function(input, running_mean, running_var, *args, **kwargs)
        if type(found) is not tuple:
            return found
        if args[2] if len(args) > 2 else kwargs.get(switch, training):
            for old, new in zip((running_mean, running_var), found[1:], strict=True):
                if old is not None:
                    (old.copy_ if is_tensor(old) else _functools.partial(_np.copyto, old))(new)
        return found[0]

    return _functools.wraps(function)(_boundary(called))


# ------------------------------------------------------------------------------------------- names

_found: dict[str, Any] = {name: _np.dtype(target) for name, target in _entries(_CASTS + _DTYPES)}
_found |= {name: getattr(autograd, name) for name in _OF_AUTOGRAD.split()}
_found |= {name: _function(name, to) for name, to in _entries(_METHODS)}
_found |= {name: _lifted(getattr(_fnp, target)) for name, target in _entries(_BY_NAME)}
_found |= {name: _of_method(name) for name in (*_BY_METHOD.split(), *_IN_PLACE)}
_found |= {name: _known(_found[name]) for name in _KNOWN.split()}
_found |= {name: _lifted(getattr(_functions, name)) for name in _DIFFERING.split()}
_found |= {name: _boundary(getattr(_functions, name)) for name in ("real", "imag")}
_formulas = {**_OF_VALUES, **_of_scipy.FORMULAS}
_found |= {name: _formula(name, function) for name, function in _formulas.items()}
_found |= {name: _lifted(getattr(_draws, name)) for name in _DRAWING.split()}
_found |= {name: _creating(getattr(_functions, name)) for name in _CREATING.split()}
_found |= {name: _creating(getattr(_draws, name)) for name in _CREATING_DRAWN.split()}
_found |= {name: _creating(make) for name, make in _functions.CREATING.items()}
_found |= {name: _functions.kind_made_by(_found[name]) for name in _kinds.CREATING}
_found["broadcast_shapes"] = _np.broadcast_shapes
_found |= {name: _lifted(getattr(_nn, name)) for name in _nn_names.TOO.split()}
_losses = {name: _nn_names.numbered(getattr(_nn, name)) for name in _nn_names.LOSSES.split()}
_found |= {name: _lifted(function) for name, function in _losses.items()}
_found |= {f"{name}_": _in_place(_found[name]) for name in _WRITTEN_TOO}
_found |= {f"{name}_like": _functions.like(_found[name]) for name in _LIKE.split()}
tensor = _found["tensor"]
globals().update(_found)  # from here on `any`, `bool` and `sum` are PyTorch's, in functions too
dtype, Size, device = _np.dtype, tuple, _Device


def _module(name: str, **members: Any) -> _ModuleType:
    """Makes a module of some names, which can be imported from as well."""
    module = _ModuleType(f"{__name__}.{name}", f"Has what there is of `torch.{name}`.")
    vars(module).update(members, __getattr__=_missing(module.__name__))
    _sys.modules[module.__name__] = module
    return module


linalg = _module(
    "linalg",
    norm=_lifted(_fnp.norm),
    vector_norm=_lifted(_functions.vector_norm),
    matrix_norm=_lifted(_matrix_norm),
    LinAlgError=_fnp.linalg.LinAlgError,
    **{name: _formula(name, function) for name, function in _of_scipy.LINALG.items()},
    **{name: _lifted(getattr(_fnp.linalg, name)) for name in _of_scipy.MATRICES.split()},
    cross=_formula("cross", lambda x, y, dim=-1: _cross(x, y, dim)),
    **{name: _function(name, name) for name in ("matmul", "matrix_power", "vecdot")},
)
fft = _module(
    "fft",
    **{name: _formula(name, _of_scipy.fourier(name)) for name in _of_scipy.FOURIER.split()},
    **{name: _creating(getattr(_functions, name)) for name in ("fftfreq", "rfftfreq")},
)
special = _module(
    "special",
    polygamma=_found["polygamma"],
    multigammaln=_found["mvlgamma"],
    **{name: _function(name, to) for name, to in _entries(_of_scipy.NAMES)},
    **{name: _lifted(function) for name, function in _of_scipy.named().items()},
)
nn = _module(
    "nn",
    Parameter=lambda data, requires_grad=True: data.detach().requires_grad_(requires_grad),
    functional=_module(
        "nn.functional",
        dropout=_functions.dropout,
        batch_norm=_writing("batch_norm", False),
        instance_norm=_writing("instance_norm", True),
        **{name: _lifted(getattr(_nn, name)) for name in _NETWORKS - {*_ACTIVATIONS.split()}},
        **{name: _found[name] for name in _ACTIVATIONS.split()},
    ),
    init=_module("nn.init", **_torch_init.FUNCTIONS),
    utils=_module("nn.utils", **{k: x for k, x in vars(_clipping).items() if "clip_" in k}),
)
_found = {n: _nn_names.placed(getattr(nn.functional, n)) for n in _nn_names.IN_PLACE.split()}
vars(nn.functional).update(_found)
_trust(_sys.modules[__name__], linalg, fft, special, nn, nn.functional)
_hooks = _module("utils.hooks", RemovableHandle=_RemovableHandle)
_again = {name: getattr(_functions, name) for name in ("checkpoint", "checkpoint_sequential")}
_again = _module("utils.checkpoint", **_again, **_settings.CHECKPOINTS)
utils = _module("utils", checkpoint=_again, hooks=_hooks)
vars(nn.functional).update(
    {f"{name}_": _in_place(getattr(nn.functional, name)) for name in _WRITTEN.split()}
)
_found = {n: _nn_names.reordered(getattr(nn.functional, n), n) for n in _nn_names.ORDERS}
Generator.get_state = _creating(Generator.get_state)  # type: ignore[method-assign]
_seeds = {n: getattr(default_generator, n) for n in ("seed", "initial_seed", "manual_seed")}
_seeds |= {f"{n}_rng_state": getattr(default_generator, f"{n}_state") for n in ("get", "set")}
globals().update(_found, **_seeds, **_settings.SETTINGS)
random = _module("random", **_seeds)
testing = _module("testing", assert_close=_functions.assert_close)
cuda = _module(
    "cuda",
    is_available=lambda: "gpu" in [found.platform for found in _jax.local_devices()],
    amp=_module("cuda.amp", **_settings.AMP),
    **dict.fromkeys(("manual_seed", "manual_seed_all"), manual_seed),
)
amp = _module("amp", **_settings.AMP)

# so that `from ftrans.torch.autograd import Function` finds what is there already
_sys.modules |= {
    name.replace("ftrans.", f"{__name__}.", 1): module
    for name, module in list(_sys.modules.items())
    if name.startswith(("ftrans.autograd", "ftrans.func"))
}
_module(
    "autograd.gradcheck",
    **{name: getattr(autograd, name) for name in ("gradcheck", "gradgradcheck", "GradcheckError")},
)
for _name in ("anomaly_mode", "grad_mode"):
    _sys.modules[f"{__name__}.autograd.{_name}"] = getattr(autograd, _name)
__getattr__ = _missing(__name__)
# methods that are functions of other packages
_values = {**_formulas, **vars(_draws), **{name: getattr(_nn, name) for name in _nn.__all__}}
_values |= {"polygamma": lambda input, n: _formulas["polygamma"](n, input)}
_values = {name: _values[name] for name in _nn_names.METHODS.split()}
for _name, _value in _values.items():
    setattr(Tensor, _name, _formula(_name, _value) if _name == "polygamma" else globals()[_name])
for _draw in _draws.WRITING:
    setattr(Tensor, _draw.__name__, _boundary(_draw))
_torch_methods.give({**_values, **{draw.__name__: draw for draw in _draws.WRITING}})
_construct = _creating(_kinds.creating("Tensor"))
Tensor.__new__ = lambda cls, *given, **options: _construct(*given, **options)  # type: ignore[method-assign]
__version__ = _sys.modules["ftrans"].__version__
