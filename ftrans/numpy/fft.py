"""Discrete Fourier transforms; the namespace `ftrans.numpy.fft`. They are JAX's own."""

from __future__ import annotations

import jax.numpy as jnp

from ftrans.numpy.advice import attributes_of
from ftrans.numpy.borrowed import borrow

_NAMES = """
    fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft
    rfft2 rfftfreq rfftn
"""

globals().update(borrow(jnp.fft, _NAMES))
__getattr__ = attributes_of("numpy.fft")
__all__ = _NAMES.split()  # pyright: ignore[reportUnsupportedDunderAll]
