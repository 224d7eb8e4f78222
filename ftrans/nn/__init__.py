"""Functions of neural networks: those of `torch.nn.functional`, with `axis` for `dim`.

There are no modules: parameters are arrays in pytrees of the caller's, and go in as arguments.
"""

# ruff: noqa: F403
from ftrans.nn import advice as _advice
from ftrans.nn import dropping as _dropping
from ftrans.nn import init
from ftrans.nn.activations import *
from ftrans.nn.attention import *
from ftrans.nn.classification import *
from ftrans.nn.common import formula as _formula
from ftrans.nn.convolution import *
from ftrans.nn.dropping import *
from ftrans.nn.losses import *
from ftrans.nn.normalization import *
from ftrans.nn.pooling import *
from ftrans.nn.rearrangement import *
from ftrans.nn.resampling import *
from ftrans.nn.vectors import *
from ftrans.numpy.composite import composite as _composite
from ftrans.traceback import boundary as _boundary

_functions = sorted(
    _name
    for _name, _value in globals().items()
    if not _name.startswith("_") and callable(_value) and _value.__module__.startswith("ftrans.nn")
)
__all__ = [*_functions, "init"]  # pyright: ignore[reportUnsupportedDunderAll]

# what draws does not depend on its arguments alone
_drawing = {*_dropping.__all__, "scaled_dot_product_attention"}
for _name in _functions:
    _wrap = _boundary if _name in _drawing else _composite
    globals()[_name] = _wrap(_formula(globals()[_name]))

__getattr__ = _advice.missing
