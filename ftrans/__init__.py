"""ftrans: composable function transformations in Python, compiled by XLA, without `jit`."""

# ruff: noqa: F403
import gc as _gc
import importlib as _importlib

_collects = _gc.isenabled()
# to import makes no garbage, and to look for some takes a tenth of the time, also afterwards
_gc.disable()
try:
    from ftrans import autograd, errors, func, ir, numpy, primitives, random
    from ftrans.autograd import Tensor, as_tensor, enable_grad, from_numpy, no_grad, tensor
    from ftrans.config import config, get_default_dtype, set_default_dtype
    from ftrans.custom import (
        custom_jvp,
        custom_linear_solve,
        custom_root,
        custom_vjp,
        custom_vmap,
        external,
    )
    from ftrans.errors import *
    from ftrans.external import debug
    from ftrans.func import *
    from ftrans.func.branches import cond, switch
    from ftrans.func.collectives import (
        all_gather,
        all_to_all,
        axis_index,
        axis_size,
        pmax,
        pmean,
        pmin,
        ppermute,
        psum,
        psum_scatter,
    )
    from ftrans.func.grad import stop_gradient
    from ftrans.func.interpreter import Interpreter, Operation
    from ftrans.func.jit import jit
    from ftrans.func.loops import fori_loop, scan, while_loop
    from ftrans.func.parallel import associative_scan
    from ftrans.func.parallel import map as map  # not for `import *`, as it is Python's
    from ftrans.func.placing import device_put, reshard, with_sharding_constraint
    from ftrans.func.sharded import shard_map
    from ftrans.func.to_jax import to_jax
    from ftrans.func.trace import eval_shape, trace
    from ftrans.interop import from_jax
    from ftrans.ir import ArrayType, Program, check
    from ftrans.runtime import cache_clear, cache_info, explain
    from ftrans.runtime.device import get_default_device, set_default_device
    from ftrans.verify import check_rules
finally:
    if not _gc.get_freeze_count():
        _gc.freeze()
        _gc.unfreeze()  # all that is there is old from here on
    if _collects:
        _gc.enable()

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in ("nn", "scipy"):  # which are imported when they are asked for
        raise AttributeError(f"module 'ftrans' has no attribute {name!r}")
    return _importlib.import_module(f"ftrans.{name}")


__all__ = [
    "ArrayType",
    "Interpreter",
    "Operation",
    "Program",
    "Tensor",
    "__version__",
    "all_gather",
    "all_to_all",
    "as_tensor",
    "associative_scan",
    "autograd",
    "axis_index",
    "axis_size",
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
    "debug",
    "device_put",
    "enable_grad",
    "errors",
    "eval_shape",
    "explain",
    "external",
    "fori_loop",
    "from_jax",
    "from_numpy",
    "func",
    "get_default_device",
    "get_default_dtype",
    "ir",
    "jit",
    "no_grad",
    "numpy",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "primitives",
    "psum",
    "psum_scatter",
    "random",
    "reshard",
    "scan",
    "set_default_device",
    "set_default_dtype",
    "shard_map",
    "stop_gradient",
    "switch",
    "tensor",
    "to_jax",
    "trace",
    "while_loop",
    "with_sharding_constraint",
]
__all__ += errors.__all__
__all__ += func.__all__
