"""Discrete Fourier transforms; the namespace `ftrans.numpy.fft`. They are JAX's own."""

from __future__ import annotations

import jax.numpy as jnp

from ftrans.numpy.advice import attributes_of
from ftrans.numpy.borrowed import borrow

_TRANSFORMS = "fft fft2 fftn hfft ifft ifft2 ifftn ihfft irfft irfft2 irfftn rfft rfft2 rfftn"
_NAMES = f"{_TRANSFORMS} fftfreq fftshift ifftshift rfftfreq"

globals().update(borrow(jnp.fft, _NAMES, _TRANSFORMS))
__getattr__ = attributes_of("numpy.fft")
__all__ = _NAMES.split()  # pyright: ignore[reportUnsupportedDunderAll]
