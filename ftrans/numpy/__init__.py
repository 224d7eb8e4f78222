"""NumPy's functions, for traced values and for plain arrays alike.

Names and semantics are NumPy's, and those of the array API where NumPy is silent. What a function
returns follows its arguments: traced values, arrays of JAX or of NumPy.
"""

# ruff: noqa: F403
from inspect import isfunction as _isfunction
from math import e, inf, nan, pi

from numpy import bool_ as bool

from ftrans.numpy import arithmetic as _arithmetic
from ftrans.numpy import creation as _creation
from ftrans.numpy import cumulative as _cumulative
from ftrans.numpy import diagonals as _diagonals
from ftrans.numpy import dtypes as _dtypes
from ftrans.numpy import elementwise as _elementwise
from ftrans.numpy import indexing as _indexing
from ftrans.numpy import linalg
from ftrans.numpy import linear as _linear
from ftrans.numpy import logic as _logic
from ftrans.numpy import manipulation as _manipulation
from ftrans.numpy import methods as _methods
from ftrans.numpy import nn as _nn
from ftrans.numpy import protocols as _protocols
from ftrans.numpy import reduction as _reduction
from ftrans.numpy import sorting as _sorting
from ftrans.numpy import special as _special
from ftrans.numpy import statistics as _statistics
from ftrans.numpy.arithmetic import *
from ftrans.numpy.composite import composite as _composite
from ftrans.numpy.creation import *
from ftrans.numpy.cumulative import *
from ftrans.numpy.diagonals import *
from ftrans.numpy.dtypes import *
from ftrans.numpy.elementwise import *
from ftrans.numpy.indexing import *
from ftrans.numpy.linalg import matrix_norm, matrix_power, norm, vector_norm
from ftrans.numpy.linear import *
from ftrans.numpy.logic import *
from ftrans.numpy.manipulation import *
from ftrans.numpy.nn import *
from ftrans.numpy.reduction import *
from ftrans.numpy.sorting import *
from ftrans.numpy.special import *
from ftrans.numpy.statistics import *
from ftrans.numpy.ufunc import direct as _direct

newaxis = None
"""As an index, makes an axis of size 1."""

__all__ = [
    "bool",
    "e",
    "inf",
    "linalg",
    "matrix_norm",
    "matrix_power",
    "nan",
    "newaxis",
    "norm",
    "pi",
    "vector_norm",
]
__all__ += _arithmetic.__all__
__all__ += _creation.__all__
__all__ += _cumulative.__all__
__all__ += _diagonals.__all__
__all__ += _dtypes.__all__
__all__ += _elementwise.__all__
__all__ += _indexing.__all__
__all__ += _linear.__all__
__all__ += _logic.__all__
__all__ += _manipulation.__all__
__all__ += _nn.__all__
__all__ += _reduction.__all__
__all__ += _sorting.__all__
__all__ += _special.__all__
__all__ += _statistics.__all__

_functions = [_name for _name in __all__ if _isfunction(globals()[_name])]

for _name in _functions:
    if globals()[_name] not in _direct:
        globals()[_name] = _composite(globals()[_name])

_methods.install(globals())
_protocols.install()
