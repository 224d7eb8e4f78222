"""Special functions, under SciPy's names: `jax.scipy.special` as programs, some with own slopes."""

from ftrans.interop import Namespace as _Namespace
from ftrans.scipy import slopes as _slopes

__getattr__, __dir__ = (_found := _Namespace("jax.scipy.special")).__getattr__, _found.__dir__
globals().update({name: getattr(_slopes, name) for name in _slopes.__all__})
