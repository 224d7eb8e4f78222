"""SciPy's names, as far as JAX has them: its functions as programs, see `ftrans.from_jax`.

What JAX has for a module is imported when it is asked for.
"""

import importlib as _importlib
import sys as _sys

from ftrans.interop import Namespace as _Namespace

_OF_JAX = ["cluster", "fft", "integrate", "interpolate", "ndimage", "signal", "spatial"]
_OURS = ["linalg", "optimize", "special", "stats"]

for _name in _OF_JAX:  # so that `import ftrans.scipy.linalg` finds it
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _Namespace(f"jax.scipy.{_name}")


def __getattr__(name: str) -> object:
    if name not in _OURS:
        raise AttributeError(f"module 'ftrans.scipy' has no attribute {name!r}")
    return _importlib.import_module(f"ftrans.scipy.{name}")


def __dir__() -> list[str]:
    return sorted([*_OF_JAX, *_OURS])
