"""Special functions, under SciPy's names: `jax.scipy.special` as programs, some with own slopes."""

from ftrans.interop import Namespace as _Namespace
from ftrans.interop import from_jax as _from_jax
from ftrans.interop.slopes import FUNCTIONS as _FUNCTIONS

__getattr__, __dir__ = (_found := _Namespace("jax.scipy.special")).__getattr__, _found.__dir__
globals().update({name: _from_jax(function) for name, function in _FUNCTIONS.items()})
