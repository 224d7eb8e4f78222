"""A kernel for numba: a tridiagonal system is solved in linear time, and differentiated.

    x = solve(lower, diagonal, upper, b)

Compiled programs call the machine code without Python. The rule for forward mode is the calculus of
inverse matrices, `dx = A⁻¹ (db - dA x)`: it solves once more with the same matrix, by the function
that it belongs to, and so holds at every order.
"""

import numba
import numpy as np

import ftrans
import ftrans.numpy as fnp


@numba.njit
def thomas(lower, diagonal, upper, b):
    """Solves for x: lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1] = b[i]."""
    n = b.shape[0]
    c, x = np.empty_like(b), np.empty_like(b)
    c[0], x[0] = upper[0] / diagonal[0], b[0] / diagonal[0]
    for i in range(1, n):
        pivot = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / pivot
        x[i] = (b[i] - lower[i] * x[i - 1]) / pivot
    for i in range(n - 2, -1, -1):
        x[i] -= c[i] * x[i + 1]
    return x


def _rule(primals, tangents):
    lower, diagonal, upper, _ = primals
    x = solve(*primals)
    zero = fnp.zeros_like(x[:1])
    before, after = fnp.concatenate([zero, x[:-1]]), fnp.concatenate([x[1:], zero])
    right = 0.0 * x
    for tangent, factor in zip(tangents, (-before, -x, -after, 1.0), strict=True):
        if tangent is not None:
            right = right + factor * tangent
    return x, solve(lower, diagonal, upper, right)


solve = ftrans.external(thomas, lambda lower, diagonal, upper, b: b, jvp=_rule)
