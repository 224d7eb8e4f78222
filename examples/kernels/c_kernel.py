"""A kernel in C, called through ctypes, and as a handler of XLA's; its transpose is its derivative.

    smooth(x)             # ctypes: anywhere, also where no compiled program is
    smooth_in_xla(x)      # XLA FFI: inside compiled programs, without Python

Exponential smoothing is linear. Its transpose is the same recursion from the end to the beginning,
whose transpose is the first again: so each declares the other, and all orders are there.
"""

import ctypes
import functools

import jax
import numpy as np
from compiled import build

import ftrans

DECAY = 0.9


def same(x):
    return x


def _call(reverse, x):
    if x.dtype != np.float64:
        # C would read the memory as what it is not
        raise TypeError(f"smooth takes float64, not {x.dtype}: convert it, x.astype('float64')")
    y = np.empty_like(x, order="C")
    x = np.ascontiguousarray(x)
    rows = x.size // x.shape[-1] if x.size else 0
    build("smooth.c").smooth(
        ctypes.c_void_p(x.ctypes.data),
        ctypes.c_void_p(y.ctypes.data),
        ctypes.c_int64(rows),
        ctypes.c_int64(x.shape[-1]),
        ctypes.c_double(DECAY),
        ctypes.c_int(reverse),
    )
    return y


def smoother(wrap):
    """Returns the function, made by `wrap(reverse, transpose)`, and so its transpose."""
    forward = wrap(False, lambda ct: backward(ct))
    backward = wrap(True, lambda ct: forward(ct))
    return forward


smooth = smoother(
    lambda reverse, transpose: ftrans.external(
        functools.partial(_call, reverse),
        same,
        vmap_method="broadcast_all",
        transpose=transpose,
        name="smooth",
    )
)


@functools.cache
def _register():
    handler = build("smooth_ffi.cc", "-std=c++17", f"-I{jax.ffi.include_dir()}").SmoothHandler
    jax.ffi.register_ffi_target("smooth", jax.ffi.pycapsule(handler), platform="cpu")


def smooth_in_xla(x):
    _register()
    return _in_xla(x)


_in_xla = smoother(
    lambda reverse, transpose: ftrans.external.ffi(
        "smooth",
        same,
        vmap_method="broadcast_all",
        transpose=transpose,
        decay=np.float64(DECAY),
        reverse=reverse,
    )
)
