"""PyTorch's solvers by factors, and special functions, with its arguments."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.config import config
from ftrans.errors import UnsupportedError
from ftrans.numpy.methods import entries
from ftrans.numpy.torch_functions import adjoint as turned
from ftrans.numpy.torch_functions import int64
from ftrans.scipy import linalg, special

_Factors = namedtuple("Factors", ["LU", "pivots"])
_PLU = namedtuple("PLU", ["P", "L", "U"])
_Solved = namedtuple("Solved", ["solution", "cloned_coefficient"])
_Solution = namedtuple("Solution", ["solution", "residuals", "rank", "singular_values"])


def solve_triangular(
    A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """Solves `A @ X = B`, or `X @ A = B`, of which one triangle is read."""
    if not left:
        options = {"upper": not upper, "unitriangular": unitriangular}
        return turned(solve_triangular(turned(A), turned(B), **options))
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = (fnp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (A, B))
    return linalg.solve_triangular(A, B, lower=not upper, unit_diagonal=unitriangular)


def cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any:
    """Solves `A @ X = B` by the factor of A that `cholesky` returns."""
    L = turned(L) if upper else L
    return solve_triangular(turned(L), solve_triangular(L, B, upper=False), upper=True)


def cholesky_inverse(L: Any, upper: bool = False) -> Any:
    """Returns the inverse of A by the factor of it that `cholesky` returns."""
    return cholesky_solve(fnp.eye(L.shape[-1], dtype=L.dtype), L, upper)


def _check(name: str, pivot: bool) -> None:
    if not pivot:
        raise UnsupportedError(f"{name}: rows are always swapped.\n  Leave pivot=False out.")


def lu(A: Any, *, pivot: bool = True) -> Any:
    """Returns permutations, lower and upper factors of matrices."""
    _check("lu", pivot)
    order, lower, upper = linalg.lu(A)
    return _PLU(fnp.astype(order, A.dtype), lower, upper)  # SciPy's is real


def lu_factor(A: Any, *, pivot: bool = True) -> Any:
    """Returns the factors of matrices in one, and the rows that were swapped, counted from 1."""
    _check("lu_factor", pivot)
    factors, pivots = linalg.lu_factor(A)
    return _Factors(factors, pivots + 1)


def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """Solves `A @ X = B`, or `X @ A = B`, by what `lu_factor` returns."""
    if not left:
        return turned(lu_solve(LU, pivots, turned(B), adjoint=not adjoint))
    lead = np.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    LU, B = (fnp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (LU, B))
    pivots = fnp.broadcast_to(pivots, (*lead, pivots.shape[-1]))
    return linalg.lu_solve((LU, pivots - 1), B, 2 if adjoint else 0)


def solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """Solves `A @ X = B`, or `X @ A = B`, for matrices, or for a vector of each A."""
    if np.ndim(B) == 1 or (np.ndim(A) > 2 and np.shape(B) == np.shape(A)[:-1]):
        return fnp.linalg.solve(A, B[..., None])[..., 0]
    if left:
        return fnp.linalg.solve(A, B)
    return fnp.matrix_transpose(solve(fnp.matrix_transpose(A), fnp.matrix_transpose(B)))


def matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Any:
    """Returns how many singular values are not negligible, as NumPy's does."""
    atol = tol if atol is None else atol
    if atol is not None and rtol is not None:
        values = fnp.abs(fnp.linalg.eigvalsh(A)) if hermitian else fnp.linalg.svdvals(A)
        largest = fnp.max(values, axis=-1, initial=0)
        atol, rtol = fnp.maximum(atol, largest * rtol), None
    return int64(fnp.linalg.matrix_rank(A, atol, hermitian, rtol=rtol))


def triangular_solve(
    b: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Solves `A @ X = b`, or `A.mT @ X = b`, of which one triangle is read; returns X and A."""
    matrix = fnp.matrix_transpose(A) if transpose else A
    options = {"upper": upper != transpose, "unitriangular": unitriangular}
    return _Solved(solve_triangular(matrix, b, **options), A)


def lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Returns solutions of the least norm, ranks, and where a driver says so what is left over."""
    if B.shape == A.shape[:-1]:  # vectors
        found = lstsq(A, B[..., None], rcond, driver=driver)
        return found._replace(solution=found.solution[..., 0])
    X = fnp.matmul(fnp.linalg.pinv(A, rtol=rcond), B)
    none = fnp.zeros((0,), X.dtype)
    over = A.shape[-2] > A.shape[-1] and driver not in (None, "gelsy")
    rest = fnp.sum(fnp.abs(fnp.matmul(A, X) - B) ** 2, axis=-2) if over else none
    values = fnp.linalg.svdvals(A) if driver in ("gelsd", "gelss") else none
    return _Solution(X, rest, int64(fnp.linalg.matrix_rank(A)), values)


def fourier(name: str) -> Callable[..., Any]:
    """Returns a Fourier transform, or a shift, of this name; integers become floats before."""
    function = getattr(fnp.fft, name.replace("2", "n"))

    def inexact(input: Any) -> Any:
        is_whole = np.dtype(input.dtype).kind in "biu"
        return fnp.astype(input, config.default_dtype) if is_whole else input

    def along_one(input: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Any:
        return function(inexact(input), n, dim, norm)

    def along_several(
        input: Any, s: Any = None, dim: Any = (-2, -1) if "2" in name else None, norm: Any = None
    ) -> Any:
        s, dim = ((x,) if isinstance(x, int) else x for x in (s, dim))
        if s is not None and dim is None:
            dim = tuple(range(-len(s), 0))
        if s is not None:
            s = [input.shape[axis] if n == -1 else n for n, axis in zip(s, dim, strict=True)]
        return function(inexact(input), s, dim, norm)

    if "shift" in name:
        return lambda input, dim=None: function(input, dim)
    return along_several if name[-1] in "2n" else along_one


LINALG: dict[str, Callable[..., Any]] = {
    "diagonal": lambda A, *, offset=0, dim1=-2, dim2=-1: fnp.diagonal(A, offset, dim1, dim2),
    "lstsq": lstsq,
    "lu": lu,
    "lu_factor": lu_factor,
    "lu_solve": lu_solve,
    "matrix_exp": lambda A: linalg.expm(A),
    "matrix_rank": matrix_rank,
    "solve": solve,
    "multi_dot": lambda tensors: fnp.linalg.multi_dot(tensors),
    "solve_triangular": solve_triangular,
    "vander": lambda x, N=None: (
        (x := fnp.atleast_1d(x))[..., None] ** fnp.arange(x.shape[-1] if N is None else N)
    ),
}
"""Those of `torch.linalg`, by name."""

FORMULAS: dict[str, Callable[..., Any]] = {
    "polygamma": lambda n, input: special.polygamma(n, input),
    "mvlgamma": lambda input, p: special.multigammaln(input, p),
    "igamma": lambda input, other: special.gammainc(input, other),
    "igammac": lambda input, other: special.gammaincc(input, other),
    "matrix_exp": lambda input: linalg.expm(input),
    "block_diag": lambda *tensors: linalg.block_diag(*tensors),
    "cholesky_solve": cholesky_solve,
    "cholesky_inverse": cholesky_inverse,
    "triangular_solve": triangular_solve,
    "lu_solve": lambda b, LU_data, LU_pivots: lu_solve(LU_data, LU_pivots, b),
}
"""Those of `torch`, by name."""

# names of `torch.special`, of which `ftrans.scipy.special` has some; of `torch.linalg` and `fft`
NAMES = """
    erf erfc erfinv expit:sigmoid expm1 log1p logsumexp digamma psi:digamma gammaln:lgamma logit
    xlogy sinc exp2 round softmax log_softmax
"""
_OF_SCIPY = """
    entr erfcx gammainc gammaincc i0 i0e i1 i1e log_ndtr ndtr ndtri xlog1py zeta
    modified_bessel_i0:i0 modified_bessel_i1:i1
"""
MATRICES = """
    cholesky cond det eig eigh eigvals eigvalsh inv pinv qr slogdet svd svdvals
    tensorinv tensorsolve
"""
FOURIER = """
    fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn fftshift ifftshift
    hfft ihfft
"""


def named() -> dict[str, Callable[..., Any]]:
    """Returns those that `ftrans.scipy.special` has, by PyTorch's names."""
    return {name: getattr(special, target) for name, target in entries(_OF_SCIPY)}
