"""The function in double precision, where it takes that: what differences are taken of.

The derivative of a function of `float32` is compared with differences of the same function in
`float64`, which are exact to many digits; differences in `float32` are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.custom.verify.call import Call, host, is_floating, like
from ftrans.custom.verify.tolerances import precision_of, widened

__all__ = ["in_double"]


def in_double(call: Call, outputs: list[Any]) -> Call | None:
    """Returns a call with arguments in double precision, or None where it is not the same function.

    Args:
        call: the call.
        outputs: its result, as leaves.
    """
    if all(widened(value.dtype) == value.dtype for value in (*call.values, *_floating(outputs))):
        return call
    wide = call.with_values([like(host(v).astype(widened(v.dtype)), v) for v in call.values])
    try:
        found = wide(*wide.values)
    except Exception:
        # a kernel for one precision alone: any error of it means the same
        return None
    if len(found) != len(outputs) or not all(map(_same, outputs, found)):
        return None
    return wide


def _floating(leaves: list[Any]) -> list[Any]:
    return [leaf for leaf in leaves if is_floating(leaf)]


def _same(given: Any, wide: Any) -> bool:
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
        close = np.abs(rough - wide) <= 1e3 * precision_of(given) * scale
    return bool((close | ~np.isfinite(rough)).all())
