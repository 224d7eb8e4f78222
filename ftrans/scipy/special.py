"""Special functions, under SciPy's names: `jax.scipy.special` as programs, some with own slopes."""

from ftrans.interop import Namespace as _Namespace
from ftrans.interop import from_jax as _from_jax
from ftrans.interop.slopes import FUNCTIONS as _FUNCTIONS
from ftrans.numpy import exp2, expm1, log1p, sinc  # noqa: F401

_found = _Namespace("jax.scipy.special")
__getattr__, __dir__ = _found.__getattr__, _found.__dir__
psi = _found.digamma
globals().update({name: _from_jax(function) for name, function in _FUNCTIONS.items()})
