"""A kernel for numba: a tridiagonal system is solved in linear time, and differentiated.

    x = solve(lower, diagonal, upper, b)

Compiled programs call the machine code without Python. The rule for reverse mode solves once more,
with the transposed matrix, by the function that it belongs to: so it holds at every order.
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


def _rule(primals, x, ct):
    lower, diagonal, upper, _ = primals
    zero = fnp.zeros_like(x[:1])

    def before(v):  # v[i - 1]
        return fnp.concatenate([zero, v[:-1]])

    def after(v):  # v[i + 1]
        return fnp.concatenate([v[1:], zero])

    g = solve(before(upper), diagonal, after(lower), ct)
    return -g * before(x), -g * x, -g * after(x), g


solve = ftrans.external(thomas, lambda lower, diagonal, upper, b: b, vjp=_rule, name="solve")
