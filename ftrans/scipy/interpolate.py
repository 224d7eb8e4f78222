"""Interpolation on grids, under SciPy's names: `jax.scipy.interpolate` as programs."""

import jax.scipy.interpolate as _module

from ftrans.interop import Namespace as _Namespace

__getattr__, __dir__ = (_found := _Namespace(_module)).__getattr__, _found.__dir__
