"""Factors of triangles: `triangular_solve`, `cholesky`, `lu`, and `lu_solve` by the factors.

On the host they are LAPACK's, by SciPy, one matrix after the other; on a device XLA's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import ShapeError
from ftrans.ir import ArrayType, type_of
from ftrans.primitives.arithmetic import add_p, neg_p
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.conversion import conjugate, convert_p
from ftrans.primitives.family import in_single, normal, plain, total_bytes
from ftrans.primitives.logic import and_p, eq_p, ge_p, select_p
from ftrans.primitives.matrices import (
    as_columns,
    check_matrices,
    each,
    factorization,
    in_batches,
    lower_part,
    many_by_jax,
    on_diagonal,
    places,
    product,
    times,
    turned,
    upper_part,
)
from ftrans.primitives.record import Absent, Cost, Joint, Sample, scalar, zero
from ftrans.primitives.shape import iota_p, pad_p, part

# ---------------------------------------------------------------------------- triangular_solve


def _check_sides(name: str, a: ArrayType, b: ArrayType, left: bool = True) -> None:
    check_matrices(name, a)
    fits = (
        b.ndim == a.ndim
        and b.dtype == a.dtype
        and b.shape[:-2] == a.shape[:-2]
        and b.shape[-2 if left else -1] == a.shape[-1]
    )
    if not fits:
        raise ShapeError(f"{name}: the operands do not fit each other.\n  a: {a}\n  b: {b}")


def _triangular_infer(a: ArrayType, b: ArrayType, **how: Any) -> ArrayType:
    _check_sides("triangular_solve", a, b, how["left"])
    return b.update()


def _triangular_lower(
    xp: Any, a: Any, b: Any, *, left: bool, lower: bool, transpose: bool, conj: bool, unit: bool
) -> Any:
    if xp is not np:
        from jax.lax import linalg

        return linalg.triangular_solve(
            a,
            b,
            left_side=left,
            lower=lower,
            transpose_a=transpose,
            conjugate_a=conj,
            unit_diagonal=unit,
        )
    if 0 in b.shape:
        return np.zeros_like(b)
    if conj:
        a = np.conj(a)
    solve = _routine("blas", "trsm", a.dtype)
    how = {"side": left, "lower": not lower, "trans_a": int(transpose), "diag": unit}

    def one(a: Any, b: Any) -> tuple[np.ndarray]:
        # of the transposes, which is how BLAS takes arrays in C's order without a copy:
        # op(a) x = b is x' op(a)' = b'
        return (solve(1, a.T, b.T, **how).T,)

    return np.ascontiguousarray(each(one, [a, b], (2, 2))[0])


def _routine(kind: str, name: str, dtype: Any) -> Any:
    """Returns a routine of BLAS or LAPACK for a dtype."""
    import scipy.linalg  # which takes its time

    return getattr(scipy.linalg, f"get_{kind}_funcs")(name, dtype=dtype)


def _triangular_of_a(t: Any, x: Any, a: Any, b: Any, **how: Any) -> Any:
    moved = lower_part(t) if how["lower"] else upper_part(t)
    if how["unit"]:
        moved = select_p(on_diagonal(moved), 0.0, moved)
    if how["transpose"]:
        moved = turned(moved)
    if how["conj"]:
        moved = conjugate(moved)
    change = product(moved, x) if how["left"] else product(x, moved)
    return neg_p(triangular_solve_p(a, change, **how))


def _solve_batch(
    of: Callable[[], Any], size: int, operands: Any, dims: Any, **how: Any
) -> tuple[Any, int]:
    primitive, (*matrix, b) = of(), operands
    if all(dim is None for dim in dims[:-1]) and how.get("left", True):
        # one matrix for all: they are more columns
        return as_columns(size, b, dims[-1], lambda b: primitive(*matrix, b, **how))
    return in_batches(size, operands, dims, primitive, how)


def _solve_cost(operands: Any, results: Any, params: Any) -> Cost:
    n = operands[0].shape[-1]
    return Cost(2 * results[0].size * n, total_bytes(operands, results))


_no_matrix = Absent("it is not linear in the matrix")
PLAIN = {"left": True, "lower": True, "transpose": False, "conj": False, "unit": False}


def _triangle(*shape: int) -> np.ndarray:
    """Returns matrices whose triangles are far from singular."""
    return normal(*shape) * 0.3 + 2 * np.eye(shape[-1])


triangular_solve_p = plain(
    "triangular_solve",
    tags=["linalg", "solve"],
    kinds="fc",
    infer=_triangular_infer,
    lower=in_single(many_by_jax(_triangular_lower)),
    jvp=[
        _triangular_of_a,
        lambda t, x, a, b, **how: triangular_solve_p(a, t, **how),
    ],
    transpose=[
        _no_matrix,
        lambda ct, a, b, *, transpose, **how: triangular_solve_p(
            a, ct, transpose=not transpose, **how
        ),
    ],
    batch=functools.partial(_solve_batch, lambda: triangular_solve_p),
    cost=_solve_cost,
    samples=[
        Sample((_triangle(3, 3), normal(3, 2)), PLAIN),
        Sample((_triangle(2, 3, 3), normal(2, 4, 3)), {**PLAIN, "left": False, "lower": False}),
        Sample((_triangle(3, 3), normal(3, 1)), {**PLAIN, "transpose": True, "unit": True}),
        Sample((_triangle(3, 3), normal(2, 3)), {**PLAIN, "left": False, "transpose": True}),
        Sample((_triangle(3, 3), normal(3, 2)), {**PLAIN, "transpose": True, "conj": True}),
        Sample((normal(0, 0), normal(0, 2)), PLAIN),
    ],
    source="M. Giles, Collected matrix derivative results for forward and reverse mode, 2008",
)
"""Solves op(a) x = b, or x op(a) = b where not `left`, for the triangle of `a` that `lower` names.

`transpose` and `conj` say what op does; `unit` takes the diagonal for ones.
"""


# ------------------------------------------------------------------------------------ cholesky


def _cholesky_infer(x: ArrayType) -> ArrayType:
    check_matrices("cholesky", x)
    return x.update()


def _cholesky_lower(xp: Any, x: Any) -> Any:
    if xp is not np:
        from jax.lax import linalg

        return xp.tril(linalg.cholesky(x, symmetrize_input=False))
    return np.linalg.cholesky(x)


def _cholesky_jvp(t: Any, out: Any, x: Any) -> Any:
    # dL = L phi(L^-1 dx L^-H), where phi takes the lower triangle and half of the diagonal
    right = triangular_solve_p(
        out, t, left=False, lower=True, transpose=True, conj=True, unit=False
    )
    both = triangular_solve_p(out, right, **PLAIN)
    return product(out, select_p(on_diagonal(both), times(both, 0.5), lower_part(both)))


def _definite(*shape: int) -> np.ndarray:
    x = normal(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


cholesky_p = factorization(
    "cholesky",
    flops=1 / 3,
    infer=_cholesky_infer,
    lower=_cholesky_lower,
    jvp=[_cholesky_jvp],
    samples=[
        Sample((_definite(3, 3),), smooth=False),  # of what is not symmetric it has no derivative
        Sample((_definite(2, 2, 2),), smooth=False),
        Sample((np.diag([1.0, -1.0]),), smooth=False),
        Sample((normal(0, 0),), smooth=False),
    ],
    source="I. Murray, Differentiation of the Cholesky decomposition, 2016",
)
"""Is the lower triangular factor of Hermitian matrices, of which it reads the lower triangle.

Where a matrix is not positive definite, that is NaN. Derivatives hold for Hermitian tangents.
"""


# ------------------------------------------------------------------------------ lu and lu_solve


def _lu_infer(x: ArrayType) -> tuple[ArrayType, ...]:
    check_matrices("lu", x, square=False)
    *lead, m, n = x.shape
    of_rows = ArrayType((*lead, m), "int32")
    return x.update(), ArrayType((*lead, min(m, n)), "int32"), of_rows


def _lu_lower(xp: Any, x: Any) -> Any:
    if xp is not np:
        from jax.lax import linalg

        return linalg.lu(x)
    *lead, m, n = x.shape
    if 0 in x.shape:
        rows = np.broadcast_to(np.arange(m, dtype=np.int32), (*lead, m))
        return x, np.zeros((*lead, min(m, n)), np.int32), rows
    factor = _routine("lapack", "getrf", x.dtype)

    def one(x: Any) -> tuple[np.ndarray, ...]:
        packed, pivots, _ = factor(x)
        rows = np.arange(m, dtype=np.int32)
        for i, j in enumerate(pivots):
            if i != j:
                rows[i], rows[j] = rows[j], rows[i]
        return np.ascontiguousarray(packed), pivots.astype(np.int32), rows

    return tuple(each(one, [x], (2,)))


def _lu_jvp(tangents: Any, outs: Any, x: Any) -> Any:
    packed, _, rows = outs
    t = type_of(packed)
    *lead, m, n = t.shape
    k, axis = min(m, n), t.ndim - 2
    # the rows of the tangent in their new order, by a matrix of zeros and ones
    order = eq_p(
        broadcast_p(rows, shape=(*lead, m, m), axes=tuple(range(t.ndim - 1))),
        iota_p(shape=(*lead, m, m), dtype=np.dtype("int32"), axis=t.ndim - 1),
    )
    moved = product(convert_p(order, dtype=t.dtype), tangents[0])
    lower = _grown(lower_part(part(packed, axis + 1, 0, k), strict=True), axis + 1, m - k)
    lower = select_p(on_diagonal(lower), 1.0, lower)
    upper = _grown(upper_part(part(packed, axis, 0, k)), axis, n - k)
    if n > k:
        below = ge_p(places(upper)[0], scalar(k, "int32"))
        upper = select_p(and_p(on_diagonal(upper), below), 1.0, upper)
    left = triangular_solve_p(lower, moved, **{**PLAIN, "unit": True})
    both = triangular_solve_p(upper, left, **{**PLAIN, "left": False, "lower": False})
    change = add_p(product(lower, lower_part(both, strict=True)), product(upper_part(both), upper))
    return [change, None, None]


def _grown(x: Any, axis: int, count: int) -> Any:
    """Adds so many rows or columns of zeros behind the others."""
    if not count:
        return x
    nothing = (0,) * type_of(x).ndim
    high = tuple([count if a == axis else 0 for a in range(len(nothing))])
    return pad_p(x, low=nothing, high=high, interior=nothing, value=0.0)


lu_p = factorization(
    "lu",
    flops=2 / 3,
    infer=_lu_infer,
    lower=many_by_jax(_lu_lower),
    jvp=Joint(_lu_jvp),
    multiple=True,
    samples=[
        Sample((normal(3, 3),)),
        Sample((normal(2, 4, 2),)),
        Sample((normal(2, 4),)),
        Sample((np.zeros((2, 2)),), smooth=False),
        Sample((normal(0, 2),)),
    ],
    source="S. Walter, Algorithmic differentiation of linear algebra functions, 2012, chapter 4",
)
"""Is both factors of matrices in one, the pivots, and the rows in the order that these lead to."""


def _lu_solve_infer(
    a: ArrayType, packed: ArrayType, pivots: ArrayType, b: ArrayType, **how: Any
) -> ArrayType:
    _check_sides("lu_solve", a, b)
    return b.update()


def _lu_solve_lower(xp: Any, a: Any, packed: Any, pivots: Any, b: Any, *, transpose: bool) -> Any:
    if xp is not np:
        from jax import lax
        from jax.scipy.linalg import lu_solve

        factors = lax.stop_gradient(packed), pivots
        ways = [lambda _, b, way=way: lu_solve(factors, b, trans=way) for way in (0, 1)]
        # where JAX differentiates, that is by `a` as well
        return lax.custom_linear_solve(
            lambda x: xp.matmul(xp.swapaxes(a, -1, -2) if transpose else a, x),
            b,
            solve=ways[transpose],
            transpose_solve=ways[not transpose],
        )
    if 0 in b.shape:
        return np.zeros_like(b)
    solve = _routine("lapack", "getrs", a.dtype)

    def one(packed: Any, pivots: Any, b: Any) -> tuple[np.ndarray]:
        return (solve(packed, pivots, b, trans=int(transpose))[0],)

    return np.ascontiguousarray(each(one, [packed, pivots, b], (2, 1, 2))[0])


def _lu_solve_of_a(
    t: Any, x: Any, a: Any, packed: Any, pivots: Any, b: Any, *, transpose: bool
) -> Any:
    change = product(turned(t) if transpose else t, x)
    return neg_p(lu_solve_p(a, packed, pivots, change, transpose=transpose))


def _factored(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    packed, pivots, _ = _lu_lower(np, a)
    return a, packed, pivots, b


lu_solve_p = plain(
    "lu_solve",
    tags=["linalg", "solve"],
    kinds="fc",
    infer=_lu_solve_infer,
    lower=in_single(many_by_jax(_lu_solve_lower)),
    jvp=[
        _lu_solve_of_a,
        zero,
        zero,
        lambda t, x, a, packed, pivots, b, **how: lu_solve_p(a, packed, pivots, t, **how),
    ],
    transpose=[
        _no_matrix,
        _no_matrix,
        _no_matrix,
        lambda ct, a, packed, pivots, b, *, transpose: lu_solve_p(
            a, packed, pivots, ct, transpose=not transpose
        ),
    ],
    batch=functools.partial(_solve_batch, lambda: lu_solve_p),
    cost=_solve_cost,
    samples=lambda: [
        # what the factors are of is an operand, but is not read: no finite differences
        Sample(_factored(normal(3, 3), normal(3, 2)), {"transpose": False}, smooth=False),
        Sample(_factored(normal(2, 3, 3), normal(2, 3, 1)), {"transpose": True}, smooth=False),
    ],
)
"""Solves a x = b, or a' x = b, by the factors of `a`; derivatives are those in `a`.

So a system is factored once for all its derivatives. The factors are to be those of `a`.
"""
