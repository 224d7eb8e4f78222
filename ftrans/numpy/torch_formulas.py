"""PyTorch's functions that are no methods of tensors, as formulas of those of this package."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError
from ftrans.ir import type_of
from ftrans.numpy.torch_functions import Factors, adjoint, matrix_norm
from ftrans.numpy.torch_methods import Functions, Views, int64
from ftrans.numpy.torch_spectra import istft, stft
from ftrans.primitives import complex_p

Function = Callable[..., Any]


def gradient(input: Any, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Any:
    """Returns the slopes of sampled values along dimensions, each of which has its tensor."""
    spacing = 1.0 if spacing is None else spacing
    each = spacing if isinstance(spacing, (list, tuple)) else (spacing,)
    found = fnp.gradient(input, *each, axis=dim, edge_order=edge_order)
    return found if type(found) is tuple else (found,)


def trapezoid(y: Any, x: Any = None, *, dx: Any = 1.0, dim: int = -1) -> Any:
    """Returns the integrals along a dimension, by trapezoids."""
    return fnp.trapezoid(y, x, dx, dim)


def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = 1.0, dim: int = -1) -> Any:
    """Returns the integrals from the first point up to each other one, by trapezoids."""
    y = fnp.moveaxis(y, dim, -1)
    if x is not None:
        dx = fnp.diff(x if np.ndim(x) == 1 else fnp.moveaxis(x, dim, -1))
    parts = (y[..., 1:] + y[..., :-1]) * dx / 2
    return fnp.moveaxis(fnp.cumsum(parts, axis=-1), -1, dim)


def _cat() -> Function:
    def cat(tensors: Any, dim: int = 0) -> Any:
        """Joins tensors along a dimension; those of shape (0,) fit to any others."""
        fit = [x for x in tensors if np.shape(x) != (0,)]
        if not fit or len(fit) == len(tensors):
            return fnp.concatenate(tensors, dim)
        return fnp.astype(fnp.concatenate(fit, dim), fnp.result_type(*tensors))

    return cat


def _at_least(function: Function) -> Function:
    def at_least(*tensors: Any) -> Any:
        is_listed = type(next(iter(tensors), None)) in (tuple, list)
        found: list[Any] = list(map(function, *tensors if is_listed else (tensors,)))
        return tuple(found) if is_listed or len(found) > 1 else found[0]

    at_least.__doc__ = function.__doc__
    return at_least


def _and_mean(spread: Function) -> Function:
    def both(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, **options: Any
    ) -> Any:
        axis = tuple(dim) if isinstance(dim, list) else dim
        axis = None if isinstance(dim, bool) or axis == () else axis
        found = spread(input, dim, unbiased, keepdim, **options)
        return found, fnp.mean(input, axis=axis, keepdims=keepdim)

    both.__doc__ = f"Returns, beside `{spread.__name__}`, the mean."
    return both


def searchsorted(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Returns where elements are to be put in, so that the order along the last axis is kept."""
    line, right = sorted_sequence, right or side == "right"
    if sorter is not None:
        line = fnp.take_along_axis(line, sorter, axis=-1)
    if np.ndim(line) > 1:  # each row has its own
        line, x = line[..., None, :], input[..., :, None]
        found = fnp.sum(line <= x if right else line < x, axis=-1)
    else:
        found = fnp.searchsorted(line, input, side="right" if right else "left")
    return fnp.astype(found, np.int32) if out_int32 else int64(found)


def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """Returns between which boundaries elements are."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """Returns the p-norms of the differences of all pairs of rows, one of each."""
    return fnp.vector_norm(x1[..., :, None, :] - x2[..., None, :, :], axis=-1, ord=p)


def cartesian_prod(*tensors: Any) -> Any:
    """Returns all choices of one element of each vector, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    each = fnp.meshgrid(*tensors, indexing="ij")
    return fnp.stack([fnp.reshape(x, (-1,)) for x in each], axis=-1)


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Returns all choices of r elements of a vector, as rows."""
    kind = "combinations_with_replacement" if with_replacement else "combinations"
    rows = list(getattr(itertools, kind)(range(input.shape[0]), r))
    return fnp.take(input, np.array(rows, np.int32).reshape(-1, r), axis=0)


class Likely(NamedTuple):
    """Raises where numbers are no chances, or fewer places than are to be drawn have one."""

    many: int

    def __call__(self, chances: np.ndarray) -> None:
        """Checks known numbers."""
        least = (chances > 0).sum(axis=-1).min(initial=chances.shape[-1])
        if least < self.many or not (chances >= 0).all():
            raise ArgumentError(
                f"multinomial: chances are not negative, and {self.many} of a row above 0.\n"
                f"  input: {type_of(chances)}, of which a row has {least}\n"
                f"  Write replacement=True to draw places again."
            )


def vander(x: Any, N: int | None = None, *, increasing: bool = False) -> Any:
    """Returns the powers of the elements of a vector, as rows."""
    return fnp.vander(x, N, increasing)


def fill(input: Any, value: Any) -> Any:
    """Returns a tensor of one value everywhere, of the shape and type of another."""
    return fnp.where(np.True_, fnp.astype(fnp.asarray(value), input.dtype), input)


def tril_indices(row: int, col: int, offset: int = 0, dtype: Any = np.int64) -> np.ndarray:
    """Returns the places of the lower triangle of a matrix, as two rows."""
    return np.stack(np.tril_indices(row, offset, col)).astype(dtype)


def triu_indices(row: int, col: int, offset: int = 0, dtype: Any = np.int64) -> np.ndarray:
    """Returns the places of the upper triangle of a matrix, as two rows."""
    return np.stack(np.triu_indices(row, offset, col)).astype(dtype)


def nuclear_norm(input: Any, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """Returns the sums of the singular values of matrices."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return matrix_norm(input, "nuc", dim, keepdim)


def frobenius_norm(input: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """Returns the roots of sums of squares, of all elements or along dimensions."""
    return Functions.norm(input, 2, dim if dim or dim == 0 else None, keepdim)


def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> Any:
    """Returns U, S and V of the q largest singular values of `A - M`: from all of them."""
    A = A if M is None else A - M
    u, s, vh = fnp.linalg.svd(A, full_matrices=False)
    return Factors(u[..., :q], s[..., :q], adjoint(vh[..., :q, :]))


def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """Returns `svd_lowrank` of rows, less their mean: V has the principal directions as columns."""
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ArgumentError(
            f"pca_lowrank: there are no more directions than rows, and than columns.\n"
            f"  q: {q}\n  A: {type_of(A)}"
        )
    return svd_lowrank(A - fnp.mean(A, axis=-2, keepdims=True) if center else A, q, niter)


def can_cast(from_: Any, to: Any) -> bool:
    """Tells whether a dtype is of a kind that another one can hold: bool, integer, float."""
    one, two = ("bifVc".index(np.dtype(d).kind.replace("u", "i")) for d in (from_, to))
    return min(one, 2) <= two if one != 4 else two == 4  # bfloat16 is "V"


def _copying(view: Function) -> Function:
    @functools.wraps(view)
    def copied(*args: Any, **kwargs: Any) -> Any:
        return fnp.copy(view(*args, **kwargs))

    copied.__doc__ = f"{view.__doc__} It is a copy."
    return copied


_COPIED = """
    view expand permute select squeeze t transpose unsqueeze diagonal view_as_real view_as_complex
"""
FORMULAS: dict[str, Function] = {
    "complex": lambda real, imag: complex_p(*fnp.broadcast_arrays(real, imag)),
    "polar": lambda abs, angle: complex_p(abs * fnp.cos(angle), abs * fnp.sin(angle)),
    **{f"{name}_copy": _copying(vars(Views)[name]) for name in _COPIED.split()},
    **{name: _cat() for name in ("cat", "concat", "concatenate")},
    **{f"atleast_{n}d": _at_least(getattr(fnp, f"atleast_{n}d")) for n in (1, 2, 3)},
    "gradient": gradient,
    "trapz": trapezoid,
    "trapezoid": trapezoid,
    "cumulative_trapezoid": cumulative_trapezoid,
    "std_mean": _and_mean(Functions.std),
    "var_mean": _and_mean(Functions.var),
    "searchsorted": searchsorted,
    "bucketize": bucketize,
    "cdist": cdist,
    "cartesian_prod": cartesian_prod,
    "combinations": combinations,
    "vander": vander,
    "fill": fill,
    "chain_matmul": lambda *matrices: fnp.linalg.multi_dot(matrices),
    "rsub": lambda input, other, *, alpha=1: other - alpha * input,
    "nuclear_norm": nuclear_norm,
    "frobenius_norm": frobenius_norm,
    "svd_lowrank": svd_lowrank,
    "pca_lowrank": pca_lowrank,
    "stft": stft,
    "istft": istft,
    "unravel_index": lambda indices, shape: tuple(map(int64, fnp.unravel_index(indices, shape))),
}
"""All of them, by name."""
