"""The function in double precision, where it takes that: what differences are taken of.

The derivative of a function of `float32` is compared with differences of the same function in
`float64`, which are exact to many digits; differences in `float32` are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.verify.call import Call, host, is_floating, like
from ftrans.verify.tolerances import precision_of, widened

__all__ = ["in_double"]


def in_double(call: Call, outputs: list[Any]) -> Call | None:
    """Returns a call with arguments in double precision, or None where it is not the same function.

    Args:
        call: the call.
        outputs: its result, as leaves.
    """
    if all(widened(value.dtype) == value.dtype for value in (*call.values, *_floating(outputs))):
        return call
    if not call.may_widen:
        return None
    wide = call.with_values([like(host(v).astype(widened(v.dtype)), v) for v in call.values])
    try:
        found = wide(*wide.values)
    except Exception:
        # a kernel for one precision alone: any error of it means the same
        return None
    if len(found) != len(outputs):
        return None
    if all(map(_same, outputs, found)):
        return wide
    # what is ill-conditioned differs by more, but not by more than its last digits make it
    moved = [_moved(call, wide, seed) for seed in range(3)]
    shapes = list(map(np.shape, found))
    if any(list(map(np.shape, m)) != shapes for m in moved):
        return None
    spreads = [
        np.max([np.abs(host(m[i]) - host(out)) for m in moved], axis=0) if is_floating(out) else 0.0
        for i, out in enumerate(found)
    ]
    return wide if all(map(_same, outputs, found, spreads)) else None


def _moved(call: Call, wide: Call, seed: int) -> list[Any]:
    """Returns the result in double precision for arguments moved by last digits of single."""
    draw = np.random.default_rng(seed)
    moved = []
    for value, original in zip(wide.values, call.values, strict=True):
        array = host(value)
        signs = draw.choice([-1.0, 1.0], array.shape)
        moved.append(like(array * (1 + precision_of(original) * signs), value))
    return wide(*moved)


def _floating(leaves: list[Any]) -> list[Any]:
    return [leaf for leaf in leaves if is_floating(leaf)]


def _same(given: Any, wide: Any, spread: Any = 0.0) -> bool:
    given, wide = host(given), host(wide)
    if given.shape != wide.shape or is_floating(given) != is_floating(wide):
        return False
    if not is_floating(given):
        return bool((given == wide).all())
    if wide.dtype != widened(given.dtype):
        return False
    rough = given.astype(wide.dtype)
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
        allowed = 1e3 * precision_of(given) * scale + 30 * spread + 3 * np.max(spread, initial=0.0)
        close = np.abs(rough - wide) <= allowed
    return bool((close | ~np.isfinite(rough)).all())
