"""NumPy's functions, for traced values and for plain arrays alike.

Names and semantics are NumPy's, and those of the array API where NumPy is silent. What a function
returns follows its arguments: traced values, arrays of JAX or of NumPy.
"""

# ruff: noqa: F401, F403
from inspect import isfunction as _isfunction
from math import e, inf, nan, pi
from types import ModuleType as _ModuleType

import numpy as _np
from numpy import bool_ as bool

from ftrans.numpy import advice as _advice
from ftrans.numpy import fft, linalg
from ftrans.numpy import methods as _methods
from ftrans.numpy.borrowed import *
from ftrans.numpy.borrowed import borrowed as _borrowed
from ftrans.numpy.composite import composite as _composite
from ftrans.numpy.creation import *
from ftrans.numpy.diagonals import *
from ftrans.numpy.dtypes import *
from ftrans.numpy.dtypes import Info as __array_namespace_info__
from ftrans.numpy.elementwise import *
from ftrans.numpy.finding import *
from ftrans.numpy.finite_differences import *
from ftrans.numpy.indexing import *
from ftrans.numpy.inplace import *
from ftrans.numpy.linalg import matrix_norm, matrix_power, norm, vector_norm
from ftrans.numpy.linear import *
from ftrans.numpy.logic import *
from ftrans.numpy.rearrangement import *
from ftrans.numpy.reduction import *
from ftrans.numpy.shaping import *
from ftrans.numpy.sorting import *
from ftrans.numpy.special import *
from ftrans.numpy.statistics import *
from ftrans.numpy.taking import *
from ftrans.numpy.ufunc import direct as _direct

__array_api_version__ = "2024.12"
"""The version of the array API whose names and semantics hold where NumPy is silent."""
euler_gamma = _np.euler_gamma
newaxis = None
"""As an index, makes an axis of size 1."""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    _name
    for _name, _value in globals().items()
    if not _name.startswith("_") and not isinstance(_value, _ModuleType)
]
__all__ += ["__array_api_version__", "__array_namespace_info__", "fft", "linalg"]

_homes: list[dict] = [globals(), linalg.__dict__, fft.__dict__]  # type: ignore[assignment]
for _home in _homes:
    for _name in _home["__all__"]:
        if _isfunction(_home[_name]) and _home[_name] not in _direct:
            _home[_name] = _composite(_home[_name])

_methods.install()
__getattr__ = _advice.attributes_of("numpy")
