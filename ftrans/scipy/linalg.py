"""Linear algebra, under SciPy's names: `jax.scipy.linalg` as programs."""

import jax.scipy.linalg as _module

from ftrans.interop import Namespace as _Namespace

__getattr__, __dir__ = (_found := _Namespace(_module)).__getattr__, _found.__dir__
