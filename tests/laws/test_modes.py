"""Forward and reverse mode have the same Jacobian at special values, for every function.

A tangent of zero that meets an infinite slope is NaN, as is such a cotangent. So a row of the
Jacobian is held against forward mode where reverse mode has it finite, and a column the other way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ftrans import func
from ftrans import numpy as fnp
from ftrans.errors import FtransError
from tests.oracle.special_cases import CASES
from tests.oracle.test_special_values import evaluate

nan, inf = np.nan, np.inf
POINTS = np.array(
    [
        [nan, 1.0, 1.0, 0.5, 2.0, 1.0],
        [1.0, nan, 2.0, nan, 0.0, -1.0],
        [inf, inf, 1.0, 0.5, -1.0, 1.0],
        [1.0, -inf, -inf, 2.0, 0.5, 3.0],
        [inf, 1.0, -inf, 2.0, 2.0, -0.5],
        [-inf] * 6,
        [0.0, 0.0, 2.0, -0.0, 1.0, 1.0],
        [1.0] * 6,
        [0.0] * 6,
        [1e100, 1e100, 1.0, 0.5, -2.0, 1.0],
        [1e-300, 1e-300, -1e-300, 0.5, 1.0, 2.0],
    ]
)


@pytest.mark.parametrize("case", [case for case, (_, kind) in CASES.items() if kind])
def test_modes_agree(case: str) -> None:
    def function(x: Any) -> Any:
        outs = evaluate(case, fnp, (x, x, fnp.flip(x), x[None]))
        smooth = [fnp.ravel(out) for out in outs if out.dtype.kind == "f"]
        return fnp.concatenate([x[:0], *smooth])

    try:
        forward = func.vmap(func.jacfwd(function))(POINTS)
        reverse = func.vmap(func.jacrev(function))(POINTS)
    except FtransError:
        pytest.skip("it takes no real numbers")
    close = np.isclose(forward, reverse, rtol=1e-9, equal_nan=True)
    rows = np.isfinite(reverse).all(axis=2) & ~close.all(axis=2)
    columns = np.isfinite(forward).all(axis=1) & ~close.all(axis=1)
    wrong = POINTS[rows.any(axis=1) | columns.any(axis=1)]
    assert not wrong.size, f"{case}: forward and reverse mode differ at {wrong.tolist()}"
