"""Functions of values that PyTorch has, as methods too, and NumPy has not, or not so.

What is chosen by order or place, and made of matrices; and what is written to places, which
`torch_places.py` has. `torch_methods.py` gives them to traced values that stand for tensors, the
tables of `autograd` to tensors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, DTypeError, ShapeError
from ftrans.ir.dtype import is_complex, is_float
from ftrans.numpy import torch_counts, torch_places, torch_products
from ftrans.numpy.axes import canonical_axis
from ftrans.numpy.bounds import require
from ftrans.numpy.methods import ELEMENTWISE as _OF_VALUES
from ftrans.numpy.methods import named, sizes_of, with_axis
from ftrans.numpy.torch_counts import Extreme, along, int64

Function = Callable[..., Any]


# --------------------------------------------------------------------------------- what is chosen


class Factors(NamedTuple):
    """Is what `svd` returns."""

    U: Any
    S: Any
    V: Any


class Parts(NamedTuple):
    """Is what `frexp` returns."""

    mantissa: Any
    exponent: Any


class Extent(NamedTuple):
    """Is what `aminmax` returns."""

    min: Any
    max: Any


def extreme(indices: Function, of_all: Function, of_two: Function) -> Function:
    """Makes `max` or `min`: of all elements, of two tensors, or along a dimension."""

    def method(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return of_all(x)
        if type(dim) is not int:
            return of_two(x, dim)
        return Extreme(*along(indices, x, dim, keepdim))

    return method


def _in_order(x: Any, axis: int, keepdims: bool, number: Any) -> Any:
    """Returns where the element is that stands at a place, or at a place in each row, in order."""
    at = fnp.argsort(x, axis=axis, stable=True)
    if isinstance(number, int):
        return fnp.take(at, np.array([number]), axis=axis)
    return fnp.take_along_axis(at, number, axis=axis)


def kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the k-th smallest elements along a dimension, counted from 1, and where they are."""
    size = self.shape[canonical_axis("kthvalue", dim, self.ndim)] if self.ndim else 1
    k = operator.index(k)
    if not 1 <= k <= size:
        raise ArgumentError(
            f"kthvalue: there is no such element.\n  k: {k}\n  It is one of 1 ... {size}."
        )
    return along(partial(_in_order, number=k - 1), self, dim, keepdim)


def _median(x: Any, dim: int | None, keepdim: bool, skips: bool) -> Any:
    if dim is None and 0 in x.shape and x.dtype != np.bool_:
        nothing = np.nan if is_float(x.dtype) else np.iinfo(x.dtype).min
        return fnp.sum(x) + fnp.full((), nothing, x.dtype)  # of an integer there is nothing better
    if dim is None:
        found = _median(fnp.reshape(fnp.stop_gradient(x), (-1,)), 0, False, skips).values
        equal = fnp.logical_or(x == found, fnp.logical_and(fnp.isnan(x), fnp.isnan(found)))
        # of several that are equal each has its share, as in PyTorch
        return fnp.amax(x, where=equal, initial=-np.inf) if is_float(x.dtype) else found
    if not x.ndim:
        return along(fnp.argmax, x, dim, keepdim)
    size = x.shape[canonical_axis("median", dim, x.ndim)]
    if not size:
        raise ArgumentError(f"median: there is no element.\n  dim: {dim}, of size 0")
    count = fnp.sum(fnp.logical_not(fnp.isnan(x)), axis=dim, keepdims=True)
    middle = fnp.maximum((count - 1) // 2, 0)
    # what is NaN comes last, and is the median where it is not skipped
    number = middle if skips else fnp.where(count == size, middle, count)
    return along(partial(_in_order, number=number), x, dim, keepdim)


def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """Returns the norms of matrices along two dimensions."""
    found = fnp.matrix_norm(fnp.moveaxis(A, dim, (-2, -1)), ord=ord, keepdims=keepdim)
    return fnp.moveaxis(found, (-2, -1), dim) if keepdim else found


def flipped(self: Any) -> Any:
    """Returns the transpose of a matrix; a vector, or a number, is as it was."""
    if self.ndim > 2:
        raise ShapeError(
            f"t: it transposes matrices, of at most two axes.\n  x: shape {tuple(self.shape)}\n"
            f"  Write x.mT, or x.transpose(dim0, dim1)."
        )
    return fnp.transpose(self)


def median(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Returns the median, the lower one of two; along a dimension where it is as well."""
    return _median(self, dim, keepdim, False)


def nanmedian(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Returns the median of what is not NaN, the lower one of two; see `median`."""
    return _median(self, dim, keepdim, True)


def _so_far(name: str) -> Function:
    extreme = getattr(fnp, name)

    @with_axis
    def running(self: Any, dim: int) -> Any:
        values = extreme(fnp.stop_gradient(self), axis=dim)
        is_it = fnp.logical_or(self == values, fnp.isnan(self))
        place = np.arange(self.shape[dim]).reshape((-1,) + (1,) * (self.ndim - 1 - dim % self.ndim))
        at = fnp.cummax(fnp.where(is_it, place, 0), axis=dim)
        return Extreme(fnp.take_along_axis(self, at, axis=dim), int64(at))

    doc = f"Returns the running {name[3:]}imum along a dimension, and where it was met."
    return named(running, name, doc)


cummax, cummin = _so_far("cummax"), _so_far("cummin")


@with_axis
def msort(self: Any) -> Any:
    """Returns the elements in order along the first dimension."""
    return fnp.sort(self, axis=0)


def aminmax(self: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """Returns the smallest and the largest elements."""
    options = {"axis": dim if self.ndim else None, "keepdims": keepdim}
    return Extent(fnp.amin(self, **options), fnp.amax(self, **options))


def _quantile(function: Function) -> Function:
    def quantile(
        self: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Any:
        axis = dim if self.ndim else None
        return function(self, q, axis=axis, keepdims=keepdim, method=interpolation)

    doc = "Returns quantiles of all elements, or along a dimension."
    return named(quantile, function.__name__, doc)


quantile, nanquantile = _quantile(fnp.quantile), _quantile(fnp.nanquantile)


def bincount(self: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Counts how often each integer is there, or adds its weights up."""
    if weights is None:
        return int64(fnp.bincount(self, minlength=minlength))
    weights = fnp.asarray(weights)
    dtype = np.float32 if weights.dtype == np.float32 else np.float64
    return fnp.bincount(self, fnp.astype(weights, dtype), minlength=minlength)


def take(self: Any, index: Any) -> Any:
    """Returns the elements at places that count through all dimensions."""
    return fnp.take(fnp.reshape(self, (-1,)), index)


def take_along_dim(self: Any, indices: Any, dim: int | None = None) -> Any:
    """Returns the elements that indices choose along a dimension, or of all of them in a row."""
    if dim is None:
        found = fnp.getitem(fnp.ravel(self), torch_places.counted("take_along_dim", indices))
        return fnp.ravel(found)
    size = self.shape[canonical_axis("take_along_dim", dim, self.ndim)]
    return fnp.take_along_axis(self, fnp.remainder(indices, size), axis=dim)


def masked_select(self: Any, mask: Any) -> Any:
    """Returns the elements where a mask holds, in a row."""
    return fnp.getitem(*fnp.broadcast_arrays(self, torch_places.mask_of("masked_select", mask)))


class _Total(NamedTuple):
    """Raises where repeats of so many parts do not add up to the size that is given."""

    parts: int
    size: int

    def __call__(self, repeats: np.ndarray) -> None:
        total = int(repeats.sum()) * (self.parts if repeats.size == 1 else 1)
        if total != self.size:
            raise ArgumentError(
                f"repeat_interleave: output_size is not what the repeats make.\n"
                f"  output_size: {self.size}\n  Write output_size={total}."
            )


def repeat_interleave(
    self: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """Repeats each element, or each part along a dimension; of repeats alone, each place."""
    if repeats is None:
        self, repeats = np.arange(self.shape[0]), self
    x = fnp.atleast_1d(self)
    if output_size is not None:
        count = math.prod(x.shape) if dim is None else x.shape[dim]
        given = repeats if hasattr(repeats, "dtype") else np.asarray(repeats)
        require(given, _Total(count, output_size))
    return fnp.repeat(x, repeats, axis=dim, total_repeat_length=output_size)


@with_axis
def unfold(self: Any, dimension: int, size: int, step: int) -> Any:
    """Returns slices of a size along a dimension, `step` apart, along a last dimension."""
    axis = canonical_axis("unfold", dimension, self.ndim)
    if not 0 <= size <= self.shape[axis] or step < 1:
        raise ArgumentError(
            f"unfold: there are no such slices.\n  size: {size}\n  step: {step}\n"
            f"  The size is one of 0 ... {self.shape[axis]}, the step at least 1."
        )
    starts = np.arange(0, self.shape[axis] - size + 1, step)
    found = fnp.take(self, starts[:, None] + np.arange(size), axis=axis)
    return fnp.moveaxis(found, axis + 1, -1)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    sides = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n in (1, size) for n, size in sides)


def sum_to_size(self: Any, *size: Any) -> Any:
    """Sums what was broadcast from a shape to that."""
    shape = tuple(sizes_of(size))
    if not _broadcasts(shape, self.shape):
        raise ShapeError(
            f"sum_to_size: no shape that broadcasts to that of the tensor.\n  size: {shape}\n"
            f"  tensor: shape {self.shape}"
        )
    more = self.ndim - len(shape)
    sides = [i + more for i, n in enumerate(shape) if n == 1 != self.shape[i + more]]
    return fnp.reshape(fnp.sum(self, axis=(*range(more), *sides)), shape)


# ------------------------------------------------------------------------------------- elementwise


def frac(self: Any) -> Any:
    """Returns what is left of whole numbers, with the sign of the element."""
    return self - fnp.trunc(self)


def clamp_min(self: Any, min: Any) -> Any:
    """Returns the larger of the elements and a bound."""
    return fnp.clip(self, min, None)


def clamp_max(self: Any, max: Any) -> Any:
    """Returns the smaller of the elements and a bound."""
    return fnp.clip(self, None, max)


def ldexp(self: Any, other: Any) -> Any:
    """Returns `x * 2 ** other`, in the dtype of x where that has fractions."""
    return self * 2.0 ** (fnp.astype(other, self.dtype) if is_float(self.dtype) else other)


def frexp(self: Any) -> Any:
    """Returns numbers from 1/2 up to but without 1, and powers of 2 that make the elements."""
    return Parts(*fnp.frexp(self))


def clone(self: Any, *, memory_format: Any = None) -> Any:
    """Returns a copy, whose memory is in no other order than any."""
    return fnp.copy(self)


# ---------------------------------------------------------------------------- vectors and matrices


def _with(name: str, x: Any, beta: Any, alpha: Any, product: Any) -> Any:
    """Returns `beta * x + alpha * product`, where nothing counts that is multiplied by 0."""
    shape, rank = product.shape, 1 if name == "addmv" else 3 if name == "baddbmm" else 2
    if len(shape) != rank or not _broadcasts(np.shape(x), shape):
        raise ShapeError(
            f"{name}: the product has rank {rank}, and what it is added to broadcasts to it.\n"
            f"  input: shape {np.shape(x)}\n  product: shape {shape}"
        )
    scaled = product if isinstance(alpha, int) and alpha == 1 else alpha * product
    if isinstance(beta, (int, float)) and beta in (0, 1):
        return x + scaled if beta else scaled + fnp.zeros_like(x)
    return beta * x + scaled


def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Returns `beta * x + alpha * (mat1 @ mat2)`."""
    return _with("addmm", self, beta, alpha, fnp.matmul(mat1, mat2))


def addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Returns `beta * x + alpha * (mat @ vec)`."""
    return _with("addmv", self, beta, alpha, fnp.matmul(mat, vec))


def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Returns `beta * x + alpha * outer(vec1, vec2)`."""
    return _with("addr", self, beta, alpha, fnp.outer(vec1, vec2))


def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Returns `beta * x + alpha * (batch1 @ batch2).sum(0)`."""
    return _with("addbmm", self, beta, alpha, fnp.sum(fnp.matmul(batch1, batch2), axis=0))


def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Returns `beta * x + alpha * (batch1 @ batch2)`."""
    return _with("baddbmm", self, beta, alpha, fnp.matmul(batch1, batch2))


def cross(self: Any, other: Any, dim: int | None = None) -> Any:
    """Returns the cross products along an axis, the first one of size 3 where none is given."""
    x, y = fnp.broadcast_arrays(self, other)
    first = x.shape.index(3) if 3 in x.shape else -1
    axis = canonical_axis("cross", first if dim is None else dim, x.ndim)
    if x.shape[axis] != 3:
        raise ShapeError(f"cross: the axis has to be of size 3.\n  dim: {dim}\n  shape: {x.shape}")
    one, two = ([fnp.roll(v, -n, axis=axis) for v in (x, y)] for n in (1, 2))
    return one[0] * two[1] - two[0] * one[1]


def dist(self: Any, other: Any, p: float = 2.0) -> Any:
    """Returns the p-norm of the difference."""
    return fnp.vector_norm(self - other, ord=p)


def _transposing(name: str) -> Function:
    def transposed(self: Any) -> Any:
        if self.ndim == 1 or (name == "H" and self.ndim > 2):
            instead = "x.conj()" if self.ndim == 1 else "x.mH"
            raise ShapeError(
                f"{name}: takes a matrix.\n  x: shape {self.shape}\n  Write {instead}."
            )
        found = fnp.matrix_transpose(self) if self.ndim else fnp.asarray(self)
        return fnp.conj(found) if name == "adjoint" else found

    doc = "Returns the conjugate transpose of matrices; a number is one as well."
    return named(transposed, name, doc)


adjoint, mT, mH, H = map(_transposing, ("adjoint", "mT", "mH", "H"))


def logdet(self: Any) -> Any:
    """Returns the logarithm of the determinant, NaN where that is negative; or a complex one."""
    sign, logarithm = fnp.linalg.slogdet(self)
    return fnp.log(sign) + logarithm


def cov(self: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Returns the covariances of variables in rows, divided by n - `correction`."""
    return fnp.cov(self, ddof=correction, fweights=fweights, aweights=aweights)


def svd(self: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """Returns U, S and V of `U diag(S) V^H`; of V's columns those that belong to S, if `some`.

    Where U and V are not to be computed they are zero.
    """
    if not compute_uv:
        *batch, m, n = self.shape
        u, v = (fnp.zeros((*batch, size, size), self.dtype) for size in (m, n))
        return Factors(u, fnp.linalg.svd(self, compute_uv=False), v)
    u, s, vh = fnp.linalg.svd(self, full_matrices=not some)
    return Factors(u, s, adjoint(vh))


def qr(self: Any, some: bool = True) -> Any:
    """Returns Q and R; of Q's columns those that belong to R, if `some`."""
    return fnp.linalg.qr(self, mode="reduced" if some else "complete")


def imag(x: Any) -> Any:
    """Returns the imaginary part of complex numbers."""
    if is_complex(x.dtype):
        return fnp.imag(x)
    text = "imag is not implemented for tensors with non-complex dtypes."
    raise DTypeError(f"{text}\n  x: {x.dtype}\n  Write torch.zeros_like(x).")


def renorm(self: Any, p: float, dim: int, maxnorm: float) -> Any:
    """Scales the parts along a dimension whose p-norm is larger than a bound down to that."""
    kept = canonical_axis("renorm", dim, self.ndim)
    others = tuple([axis for axis in range(self.ndim) if axis != kept])
    size = fnp.vector_norm(self, axis=others, ord=p, keepdims=True)
    return fnp.where(size > maxnorm, self * (maxnorm / (size + 1e-7)), self)


_TWINNED = frac, clamp_min, clamp_max, ldexp, renorm, addmm, addmv, addr, addbmm, baddbmm
_UNTWINNED = (
    kthvalue, median, nanmedian, cummax, cummin, msort, aminmax, quantile, nanquantile, bincount,
    take, take_along_dim, masked_select, repeat_interleave, unfold, sum_to_size, cross, dist,
    adjoint, logdet, cov, svd, qr, frexp, clone, *torch_counts.UNTWINNED,
    *torch_products.UNTWINNED,
)  # fmt: skip
TWINNED = {f.__name__: f for f in (*_TWINNED, *torch_places.TWINNED)}
"""Those of which there are twins, `scatter_`, that write to the tensor."""
UNTWINNED = {f.__name__: f for f in (*_UNTWINNED, *torch_places.UNTWINNED)}
FUNCTIONS = TWINNED | UNTWINNED

# methods with twins that write in place; the function stands behind a colon
ELEMENTWISE = f"""{_OF_VALUES}
    conj_physical:conjugate tril triu cumsum cumprod heaviside sinc sgn:sign fix:trunc
    greater greater_equal less less_equal not_equal logaddexp2 nextafter i0 gcd lcm
    addcmul addcdiv lerp masked_fill bitwise_left_shift bitwise_right_shift
    {" ".join(TWINNED)}
"""

# methods without a twin
OTHERS = f"""
    conjugate angle softplus silu isnan isinf isfinite isposinf isneginf isclose allclose
    equal:array_equal signbit matmul inner tensordot diag
    sum prod mean amax amin any all argmax argmin ptp count_nonzero
    nansum nanmean logcumsumexp logsumexp softmax log_softmax
    diff flip roll nonzero argwhere take_along_axis searchsorted tile
    fliplr flipud rot90 kron isreal corrcoef
    det inverse:inv slogdet cholesky pinverse:pinv matrix_power {" ".join(UNTWINNED)}
"""
