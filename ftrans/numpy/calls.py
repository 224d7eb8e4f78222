"""Says what a call depends on besides its arrays: the key by which it is found again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.ir import Tracer
from ftrans.ir.trail import Trail

_PLAIN = frozenset({bool, int, str, type(None), type, type(...)})  # equal ones mean the same
_SEQUENCES = frozenset({tuple, list})


def add_argument(call: list[Any], frame: Trail | None, x: Any) -> bool:
    """Adds to the key of a call what is to be known of an argument; False where that is too much.

    Types are part of it: 1, 1.0 and True are not the same.
    """
    kind = type(x)
    if kind is Tracer:
        call += (Tracer, x.index, x.weak)
        return x.frame is frame
    if kind in _PLAIN:
        call += (kind, x)
    elif kind in _SEQUENCES:
        call += (kind, len(x))
        for item in x:
            if not add_argument(call, frame, item):
                return False
    elif kind is slice:
        call.append(slice)
        return add_argument(call, frame, (x.start, x.stop, x.step))
    elif kind is float:
        call += (kind, repr(x))  # which tells 0.0 from -0.0, and NaN equals itself
    elif isinstance(x, (np.dtype, type)):
        call += (kind, x)
    else:
        return False
    return True
