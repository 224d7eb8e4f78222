"""Orthogonal and spectral factorizations: `qr`, `eigh`, `svd`.

On the host they are LAPACK's, by NumPy; on a device XLA's. Derivatives of vectors divide by gaps of
the values that they belong to: where two values are equal the vectors are none of their own, and
what depends on which ones are taken is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_complex, real_of
from ftrans.primitives.arithmetic import add_p, div_p, mul_p, neg_p, sub_p
from ftrans.primitives.axes import broadcast_p
from ftrans.primitives.conversion import complex_p, convert_p, imag_p, real_p, stop_gradient_p
from ftrans.primitives.family import normal
from ftrans.primitives.logic import eq_p, select_p
from ftrans.primitives.matrices import (
    adjoint,
    along_columns,
    along_rows,
    check_matrices,
    diagonal,
    factorization,
    lower_part,
    many_by_jax,
    on_diagonal,
    product,
    times,
)
from ftrans.primitives.record import Joint, Sample
from ftrans.primitives.reduction import max_p
from ftrans.primitives.rules.missing import missing
from ftrans.primitives.shape import concatenate_p, part
from ftrans.primitives.triangular import PLAIN, triangular_solve_p


def _real(x: Any) -> Any:
    return real_p(x) if is_complex(type_of(x).dtype) else x


def _like(x: Any, other: Any) -> Any:
    """Returns a real array in the dtype of another."""
    return convert_p(x, dtype=type_of(other).dtype)


# ------------------------------------------------------------------------------------------ qr


def _qr_infer(x: ArrayType, *, full: bool) -> tuple[ArrayType, ...]:
    check_matrices("qr", x, square=False)
    *lead, m, n = x.shape
    k = m if full else min(m, n)
    return x.update(shape=(*lead, m, k)), x.update(shape=(*lead, k, n))


def _qr_lower(xp: Any, x: Any, *, full: bool) -> Any:
    if xp is not np:
        from jax.lax import linalg

        return linalg.qr(x, full_matrices=full)
    return tuple(np.linalg.qr(x, mode="complete" if full else "reduced"))


def _qr_jvp(tangents: Any, outs: Any, x: Any, *, full: bool) -> Any:
    q, r = outs
    t = type_of(x)
    m, n = t.shape[-2:]
    if full and m > n:
        message = (
            f"qr: the columns of a complete q that x does not determine have no derivative.\n"
            f'  x: {t}\n  Write mode="reduced".'
        )
        return missing([*tangents, x], [type_of(q), type_of(r)], message)
    # the first columns alone determine q
    (change,), k, axis = tangents, min(m, n), t.ndim - 1
    square, first = part(r, axis, 0, k), part(change, axis, 0, k)
    right = {**PLAIN, "left": False, "lower": False}
    moved = triangular_solve_p(square, first, **right)
    inner = product(adjoint(q), moved)
    below = lower_part(inner, strict=True)
    turn = sub_p(below, adjoint(below))
    if is_complex(t.dtype):
        phases = imag_p(inner)
        own = select_p(on_diagonal(phases), phases, 0.0)
        turn = add_p(turn, complex_p(select_p(on_diagonal(own), 0.0, own), own))
    q_dot = add_p(product(q, sub_p(turn, inner)), moved)
    r_dot = product(adjoint(q), sub_p(change, product(q_dot, r)))
    return [q_dot, r_dot]


qr_p = factorization(
    "qr",
    flops=2.0,
    infer=_qr_infer,
    lower=_qr_lower,
    jvp=Joint(_qr_jvp),
    multiple=True,
    samples=[
        Sample((normal(3, 3),), {"full": False}),
        Sample((normal(2, 4, 2),), {"full": False}),
        Sample((normal(2, 4),), {"full": False}),
        Sample((normal(2, 3),), {"full": True}),
        Sample((normal(0, 2),), {"full": False}),
    ],
    source="S. Walter, Algorithmic differentiation of linear algebra functions, 2012, chapter 4",
)
"""Is an orthonormal and an upper triangular factor of matrices; complete ones where `full`."""


# ---------------------------------------------------------------------------------------- eigh


def _eigh_infer(x: ArrayType, *, lower: bool) -> tuple[ArrayType, ...]:
    check_matrices("eigh", x)
    return ArrayType(x.shape[:-1], real_of(x.dtype)), x.update()


def _eigh_lower(xp: Any, x: Any, *, lower: bool) -> Any:
    if xp is not np:
        from jax.lax import linalg

        vectors, values = linalg.eigh(x, lower=lower, symmetrize_input=False)
        return values, vectors
    return tuple(np.linalg.eigh(x, UPLO="L" if lower else "U"))


def _eigh_jvp(tangents: Any, outs: Any, x: Any, *, lower: bool) -> Any:
    values, vectors = outs
    inner = product(adjoint(vectors), product(tangents[0], vectors))
    gaps = sub_p(along_rows(values, inner), along_columns(values, inner))
    same = on_diagonal(gaps)
    weights = select_p(same, 0.0, div_p(1.0, select_p(same, 1.0, gaps)))
    return [_real(diagonal(inner)), product(vectors, mul_p(_like(weights, inner), inner))]


def _symmetric(*shape: int) -> np.ndarray:
    x = normal(*shape)
    return x + np.swapaxes(x, -1, -2)


eigh_p = factorization(
    "eigh",
    flops=9.0,
    infer=_eigh_infer,
    lower=many_by_jax(_eigh_lower),
    jvp=Joint(_eigh_jvp),
    multiple=True,
    samples=[
        Sample((_symmetric(3, 3),), {"lower": True}, smooth=False),  # not all tangents are
        Sample((_symmetric(2, 2, 2),), {"lower": False}, smooth=False),
        Sample((np.eye(2),), {"lower": True}, smooth=False),
        Sample((normal(0, 0),), {"lower": True}, smooth=False),
    ],
    source="M. Giles, An extended collection of matrix derivative results, 2008",
)
"""Is eigenvalues, in order, and eigenvectors of Hermitian matrices, of which it reads a triangle.

Derivatives hold for Hermitian tangents.
"""


# ----------------------------------------------------------------------------------------- svd


def _svd_infer(x: ArrayType, *, full: bool, vectors: bool) -> tuple[ArrayType, ...]:
    check_matrices("svd", x, square=False)
    *lead, m, n = x.shape
    k = min(m, n)
    values = ArrayType((*lead, k), real_of(x.dtype))
    if not vectors:
        return (values,)
    rows, columns = (m, n) if full else (k, k)
    return x.update(shape=(*lead, m, rows)), values, x.update(shape=(*lead, columns, n))


def _svd_lower(xp: Any, x: Any, *, full: bool, vectors: bool) -> Any:
    if xp is not np:
        from jax.lax import linalg

        found: Any = linalg.svd(x, full_matrices=full, compute_uv=vectors)
    else:
        found = np.linalg.svd(x, full_matrices=full, compute_uv=vectors)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _svd_jvp(tangents: Any, outs: Any, x: Any, *, full: bool, vectors: bool) -> Any:
    if not vectors:
        left, _, right = svd_p(x, full=False, vectors=True)
        return [_real(diagonal(product(adjoint(left), product(tangents[0], adjoint(right)))))]
    left, values, turned_right = outs
    right = adjoint(turned_right)
    t = type_of(x)
    k, axis = min(t.shape[-2:]), t.ndim - 1
    first_left, first_right = part(left, axis, 0, k), part(right, axis, 0, k)
    core = product(adjoint(first_left), product(tangents[0], first_right))
    s_columns, s_rows = along_rows(values, core), along_columns(values, core)
    unit = s_columns
    if k:  # the largest value, since its square may be no number that there is; it cancels
        largest = stop_gradient_p(max_p(values, axes=(axis - 1,)))
        unit = broadcast_p(largest, shape=type_of(core).shape, axes=tuple(range(axis - 1)))
        unit = select_p(eq_p(unit, 0.0), 1.0, unit)
    s_columns, s_rows = div_p(s_columns, unit), div_p(s_rows, unit)
    gaps = mul_p(sub_p(s_columns, s_rows), add_p(s_columns, s_rows))
    same = on_diagonal(gaps)
    weights = select_p(same, 0.0, div_p(1.0, select_p(same, 1.0, gaps)))
    weights = _like(div_p(weights, unit), core)
    by_columns, by_rows = mul_p(core, _like(s_columns, core)), mul_p(core, _like(s_rows, core))
    turn_left = mul_p(weights, add_p(by_columns, adjoint(by_columns)))
    turn_right = mul_p(weights, add_p(by_rows, adjoint(by_rows)))
    if is_complex(t.dtype):
        # a common phase of both vectors is free: the left one takes all of it
        safe = select_p(eq_p(values, 0.0), 1.0, values)
        phase = div_p(times(sub_p(core, adjoint(core)), 0.5), _like(along_rows(safe, core), core))
        turn_left = add_p(turn_left, select_p(on_diagonal(phase), phase, 0.0))
    change_left = _turned(left, turn_left, product(tangents[0], first_right), values)
    change_right = _turned(right, turn_right, product(adjoint(tangents[0]), first_left), values)
    return [change_left, _real(diagonal(core)), adjoint(change_right)]


def _turned(basis: Any, turn: Any, image: Any, values: Any) -> Any:
    """Returns the tangent of vectors that turn within what they span, and out of it.

    Args:
        basis: the vectors, those that belong to the singular values before all others.
        turn: how the former turn among each other.
        image: what the tangent of the matrix makes of the vectors of the other side.
        values: the singular values.
    """
    (size, count), t = type_of(basis).shape[-2:], type_of(turn)
    k, axis = t.shape[-1], t.ndim - 1
    first = part(basis, axis, 0, k)
    change = product(first, turn)
    if size == k:
        return change
    away = sub_p(image, product(first, product(adjoint(first), image)))
    away = div_p(away, _like(along_rows(values, away), away))
    change = add_p(change, away)
    if count == k:
        return change
    rest = part(basis, axis, k, count)
    rest = neg_p(product(first, product(adjoint(away), rest)))
    return concatenate_p(change, rest, axis=axis)


svd_p = factorization(
    "svd",
    flops=20.0,
    infer=_svd_infer,
    lower=many_by_jax(_svd_lower),
    jvp=Joint(_svd_jvp),
    multiple=True,
    samples=[  # complex vectors are known but for a phase, so differences say nothing
        Sample((normal(3, 3),), {"full": False, "vectors": True}, smooth=False),
        Sample((normal(2, 4, 2),), {"full": False, "vectors": True}, smooth=False),
        Sample((normal(2, 4),), {"full": False, "vectors": True}, smooth=False),
        Sample((normal(3, 2),), {"full": True, "vectors": True}, smooth=False),
        Sample((normal(3, 2),), {"full": False, "vectors": False}),
        Sample((np.zeros((2, 2)),), {"full": False, "vectors": True}, smooth=False),
        Sample((normal(0, 2),), {"full": False, "vectors": True}, smooth=False),
    ],
    source="J. Townsend, Differentiating the singular value decomposition, 2016",
)
"""Is left singular vectors, singular values from the largest, and right singular vectors, adjoint.

Only the values where not `vectors`; complete bases where `full`, of which the columns that belong
to no value have a derivative as the space that they span does.
"""
