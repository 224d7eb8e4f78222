"""Comparisons, whose values are booleans and have no tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.record import Absent, Primitive

__all__ = ["eq_p", "ge_p", "gt_p", "le_p", "lt_p", "ne_p"]


def _comparison(name: str, function: str, kinds: str = "biuf") -> Primitive:
    """Declares a comparison; `function` is its name in NumPy."""

    def lower(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, function)(x, y)

    no_tangent = Absent("its values are booleans, which have no tangents")
    return elementwise(
        name,
        kinds=kinds,
        lower=lower,
        jvp=[no_tangent, no_tangent],
        dtype=lambda dtype: np.bool_,
        tags=["comparison"],
    )


eq_p = _comparison("eq", "equal", "biufc")
ne_p = _comparison("ne", "not_equal", "biufc")
lt_p = _comparison("lt", "less")
le_p = _comparison("le", "less_equal")
gt_p = _comparison("gt", "greater")
ge_p = _comparison("ge", "greater_equal")
