"""JAX's primitives of linear algebra and of Fourier transforms."""

from __future__ import annotations

from typing import Any

import jax

import ftrans.primitives as p
from ftrans.interop.importer import NoCounterpart, Rule
from ftrans.interop.shapes import declaring, ints

RULES: dict[str, Rule] = {}
_rule = declaring(RULES)


@_rule("cholesky")
def _cholesky(equation: Any, x: Any, **_: Any) -> Any:
    return p.cholesky_p(x)


@_rule("triangular_solve")
def _triangular_solve(
    equation: Any,
    a: Any,
    b: Any,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Any:
    return p.triangular_solve_p(
        a,
        b,
        left=left_side,
        lower=lower,
        transpose=transpose_a,
        conj=conjugate_a,
        unit=unit_diagonal,
    )


@_rule("lu")
def _lu(equation: Any, x: Any, **_: Any) -> Any:
    return p.lu_p(x)


@_rule("qr")
def _qr(equation: Any, x: Any, *, full_matrices: bool, pivoting: bool, **_: Any) -> Any:
    if pivoting:
        raise NoCounterpart
    return p.qr_p(x, full=full_matrices)


@_rule("eigh")
def _eigh(
    equation: Any, x: Any, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any, **_: Any
) -> Any:
    if subset_by_index is not None or not sort_eigenvalues:
        raise NoCounterpart
    values, vectors = p.eigh_p(x, lower=lower)
    return vectors, values


@_rule("svd")
def _svd(
    equation: Any, x: Any, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, **_: Any
) -> Any:
    if subset_by_index is not None:
        raise NoCounterpart
    if not compute_uv:
        return p.svd_p(x, full=False, vectors=False)
    left, values, right = p.svd_p(x, full=full_matrices, vectors=True)
    return values, left, right


@_rule("fft")
def _fft(equation: Any, x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    kind = jax.lax.FftType(fft_type).name.lower()
    return getattr(p, f"{kind}_p")(x, sizes=ints(fft_lengths))
