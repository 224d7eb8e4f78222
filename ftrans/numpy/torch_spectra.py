"""PyTorch's Fourier transforms of short stretches of signals, and what these make again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.bounds import require


class _Stretch(NamedTuple):
    """Says how long stretches are, how far apart, and what they are multiplied by."""

    size: int
    hop: int
    window: Any


_LEAST = 1e-11
"""What squares of windows at least add up to where a signal can be told."""


class _Overlap(NamedTuple):
    """Adds stretches up where they lie; raises where the squares of a window add up to nothing."""

    many: int
    hop: int
    start: int
    end: int
    size: int

    def added(self, parts: Any) -> Any:
        """Returns sums of f32[n, many, size], or f32[n, 1, size], from the start to the end."""
        n, _, size = parts.shape
        places = np.arange(self.many)[:, None] * self.hop + np.arange(size)
        zeros = fnp.zeros((n, max(self.end, (self.many - 1) * self.hop + size)), parts.dtype)
        parts = fnp.broadcast_to(parts, (n, *places.shape))
        return fnp.at(zeros)[:, places].add(parts)[:, self.start : self.end]

    def __call__(self, window: np.ndarray) -> None:
        """Checks a known window."""
        full = np.asarray(_padded(window, self.size))[None, None]
        if (np.asarray(self.added(full**2)) < _LEAST).any():
            raise ArgumentError(
                "istft: there are elements that no window shows.\n"
                "  Write center=True, a smaller hop_length, or another window."
            )


def _stretch(name: str, n_fft: int, hop: int | None, length: int | None, window: Any) -> _Stretch:
    """Returns what the arguments mean; a window that is short stands in the middle."""
    length, hop = length or n_fft, n_fft // 4 if hop is None else hop
    if not (0 < length <= n_fft and hop > 0):
        raise ArgumentError(
            f"{name}: a window is no longer than n_fft, and hops are positive.\n"
            f"  n_fft: {n_fft}, win_length: {length}, hop_length: {hop}"
        )
    window = np.ones(length, np.float32) if window is None else window
    if np.shape(window) != (length,):
        raise ShapeError(
            f"{name}: the window has one number for each element of a stretch.\n"
            f"  window: {type_of(window)}\n  Pass f32[{length}], or win_length=n."
        )
    return _Stretch(n_fft, hop, _padded(window, n_fft))


def _padded(window: Any, size: int) -> Any:
    left = (size - window.shape[0]) // 2
    return fnp.pad(window, (left, size - window.shape[0] - left))


def stft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:
    """Returns the Fourier transforms of stretches of signals, c64[..., frequencies, stretches].

    Args:
        input: the signals, f32[..., n].
        n_fft: how long stretches are.
        hop_length: how far apart they begin, a quarter of that by default.
        win_length: how many elements of each count, in its middle; all by default.
        window: what these are multiplied by, f32[win_length].
        center: whether stretches have their number times `hop_length` in the middle.
        pad_mode: how signals are continued then: "reflect", "constant", "replicate", "circular".
        normalized: whether to divide by the root of `n_fft`.
        onesided: whether to leave out what real signals have twice; by default so of those.
        return_complex: is True, as results are complex.
    """
    if return_complex is False or (return_complex is None and not is_complex(input.dtype)):
        raise ArgumentError(
            "stft: results are complex.\n"
            "  Write return_complex=True, and torch.view_as_real(result) for pairs of numbers."
        )
    if 0 in (input.ndim, *input.shape):
        raise ShapeError(f"stft: takes signals, f32[..., n].\n  input: {type_of(input)}")
    size, hop, window = _stretch("stft", n_fft, hop_length, win_length, window)
    x = fnp.reshape(input, (-1, input.shape[-1]))
    if center:
        modes = {"replicate": "edge", "circular": "wrap"}
        x = fnp.pad(x, [(0, 0), (size // 2, size // 2)], modes.get(pad_mode, pad_mode))
    if x.shape[1] < size:
        raise ShapeError(f"stft: the signal is shorter than n_fft.\n  input: {type_of(input)}")
    starts = np.arange(0, x.shape[1] - size + 1, hop)
    parts = fnp.take(x, starts[:, None] + np.arange(size), axis=1) * window
    half = not is_complex(parts.dtype) if onesided is None else onesided
    found = fnp.fft.rfft(parts) if half else fnp.fft.fft(parts)
    found = fnp.swapaxes(found / float(np.sqrt(size)) if normalized else found, 1, 2)
    return fnp.reshape(found, (*input.shape[:-1], *found.shape[1:]))


def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Returns the signals of which `stft` returns the transforms, with the same arguments.

    Args:
        input: the transforms, c64[..., frequencies, stretches].
        n_fft: as of `stft`, and so are the others that have no line here.
        hop_length: see there.
        win_length: see there.
        window: see there.
        center: see there.
        normalized: see there.
        onesided: see there; by default what the number of frequencies says.
        length: how long signals are; what is beyond the last stretch is 0.
        return_complex: whether signals are complex.
    """
    given = window
    size, hop, window = _stretch("istft", n_fft, hop_length, win_length, window)
    *lead, many, count = input.shape
    half = many != size if onesided is None else onesided
    if many != (size // 2 + 1 if half else size) or (half and return_complex):
        raise ArgumentError(
            f"istft: there are n_fft frequencies, or, of real signals, n_fft // 2 + 1.\n"
            f"  input: {type_of(input)}\n  n_fft: {size}, return_complex: {return_complex}"
        )
    rows = fnp.swapaxes(fnp.reshape(input, (-1, many, count)), 1, 2)
    rows = rows * float(np.sqrt(size)) if normalized else rows
    real = rows[..., : size // 2 + 1]
    parts = (fnp.fft.ifft(rows) if return_complex else fnp.fft.irfft(real, size)) * window
    total = (count - 1) * hop + size
    start = size // 2 if center else 0
    end = total - start if length is None else min(start + length, total)
    overlap = _Overlap(count, hop, start, end, size)
    if given is not None:
        require(given, overlap)
    signal, weight = overlap.added(parts), overlap.added((window**2)[None, None])
    signal = signal / fnp.where(weight > _LEAST, weight, 1.0)
    short = 0 if length is None else length - (end - start)
    signal = fnp.pad(signal, [(0, 0), (0, short)]) if short > 0 else signal
    return fnp.reshape(signal, (*lead, signal.shape[1]))
