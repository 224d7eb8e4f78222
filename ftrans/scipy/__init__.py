"""SciPy's names, as far as JAX has them: its functions as programs, see `ftrans.from_jax`.

The modules are imported when they are asked for.
"""

import importlib as _importlib

_MODULES = [
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
    "spatial", "special", "stats",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'ftrans.scipy' has no attribute {name!r}")
    return _importlib.import_module(f"ftrans.scipy.{name}")


def __dir__() -> list[str]:
    return _MODULES
