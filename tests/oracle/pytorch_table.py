"""PyTorch's operations by the names of its samples, each as it is written with ftrans.

An entry takes what PyTorch's function takes, `dim` and `keepdim` included, and calls ours with
`axis` and `keepdims`: the table is also the list of what a port has to change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
import ftrans.scipy.linalg as sl
import ftrans.scipy.special as sp
import ftrans.torch as ft

Function = Callable[..., Any]
la, fft = fnp.linalg, fnp.fft


# ------------------------------------------------------------------------------- the same by name


def named(home: Any, names: str, prefix: str = "") -> dict[str, Function]:
    """Returns functions by PyTorch's names, `theirs` or `theirs:ours`; arguments are the same."""
    pairs = [name.partition(":") for name in names.split()]
    return {prefix + theirs: getattr(home, ours or theirs) for theirs, _, ours in pairs}


def wrapped(wrapper: Function, home: Any, names: str, prefix: str = "") -> dict[str, Function]:
    """Returns functions of ours, each wrapped so that it takes PyTorch's arguments."""
    return {name: wrapper(function) for name, function in named(home, names, prefix).items()}


ELEMENTWISE = named(
    fnp,
    """
    abs acos acosh angle asin asinh atan atanh atan2:arctan2 bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil conj conj_physical:conj copysign cos
    cosh deg2rad digamma eq:equal erf erfc erfinv exp exp2 expm1 float_power floor floor_divide fmax
    fmin fmod frexp gcd ge:greater_equal gt:greater heaviside hypot i0 imag isfinite isinf isnan
    isneginf isposinf isreal lcm le:less_equal lgamma log log10 log1p log2 logaddexp
    logaddexp2 logical_and logical_not logical_or logical_xor lt:less maximum minimum mul:multiply
    ne:not_equal neg:negative nextafter positive pow:power rad2deg real reciprocal remainder rsqrt
    sgn:sign sigmoid sign signbit sin sinc sinh sqrt square tan tanh true_divide trunc xlogy
    max.binary:maximum min.binary:minimum div.no_rounding_mode:divide clamp:clip
    """,
)
OF_TENSORS = named(
    ft,
    """
    addbmm addcdiv addcmul addmm addmm.decomposed:addmm addmv addr aminmax baddbmm
    atleast_1d atleast_2d atleast_3d
    broadcast_tensors cat chunk clamp_max clamp_min column_stack complex corrcoef cov cross
    diag_embed diagflat diagonal diagonal_scatter dist dsplit dstack flatten flip fliplr
    flipud frac gather hsplit hstack index_add index_copy index_fill index_put index_select ldexp
    lerp logdet masked_fill masked_scatter masked_select msort
    max.reduction_no_dim:max max.reduction_with_dim:max min.reduction_no_dim:min
    min.reduction_with_dim:min movedim narrow nonzero:argwhere argwhere nanquantile permute polar
    put qr quantile ravel renorm repeat_interleave reshape rot90 scatter scatter_add
    scatter_reduce.sum:scatter_reduce scatter_reduce.prod:scatter_reduce
    scatter_reduce.amax:scatter_reduce scatter_reduce.amin:scatter_reduce select select_scatter
    slice_scatter sort argsort topk split split.list_args:split
    split_with_sizes tensor_split unfold sum_to_size matrix_exp stack squeeze svd t take
    take_along_dim transpose
    unbind unflatten unsqueeze view_as_complex view_as_real vsplit
    vstack logit nan_to_num block_diag cartesian_prod cdist combinations gradient rsub searchsorted
    trapezoid trapz cholesky_solve cholesky_inverse igamma igammac
    std_mean std_mean.unbiased:std_mean var_mean var_mean.unbiased:var_mean
    """,
)
SPECIAL = named(
    sp,
    """
    entr erfcx i0e i1 i1e log_ndtr ndtr ndtri xlog1py zeta
    """,
    "special.",
)
OF_LINALG = {
    **named(la, "det cond eig eigvals inv slogdet solve svdvals matrix_power", "linalg."),
    **named(ft.linalg, "diagonal lu lu_factor multi_dot solve_triangular vander", "linalg."),
}

# -------------------------------------------------------------------------------------- reductions


def axes(x: Any, dim: Any) -> Any:
    """Returns the axes that `dim` means: all where it is empty, and a number has one."""
    if dim is None or np.ndim(x) == 0 or (not isinstance(dim, int) and len(dim) == 0):
        return None
    return dim if isinstance(dim, int) else tuple(dim)


def reduction(function: Function) -> Function:
    """Returns a reduction that takes `dim` and `keepdim`."""

    def reduced(x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        return function(x, axis=axes(x, dim), keepdims=keepdim, **options)

    return reduced


def spread(function: Function) -> Function:
    """Returns `std` or `var`, of a sample unless it is said otherwise."""

    def of(
        x: Any, dim: Any = None, *args: Any, correction: Any = 1, keepdim: bool = False, **kw: Any
    ) -> Any:
        if isinstance(dim, bool):  # `unbiased`
            dim, args = None, (dim, *args)
        unbiased = kw.get("unbiased", args[0] if args else None)
        keepdim = args[1] if len(args) > 1 else keepdim
        correction = (correction if correction is not None else 1) if unbiased is None else unbiased
        return function(x, axis=axes(x, dim), ddof=float(correction), keepdims=keepdim)

    return of


def masked(function: Function, **fixed: Any) -> Function:
    """Returns a reduction of the elements where a mask is true."""

    def reduced(
        x: Any, dim: Any = None, *, keepdim: bool = False, mask: Any = None, **options: Any
    ) -> Any:
        if function in (fnp.var, fnp.std):
            options["ddof"] = float(options.pop("unbiased", True))
        where = True if mask is None else np.broadcast_to(mask, x.shape)
        found = function(x, axis=axes(x, dim), keepdims=keepdim, where=where, **fixed, **options)
        return fnp.astype(found, x.dtype)

    return reduced


def along(function: Function) -> Function:
    """Returns what goes along one axis; a number has one there of size 1."""

    def of(x: Any, dim: int = -1, **options: Any) -> Any:
        return fnp.reshape(function(fnp.atleast_1d(x), axis=dim, **options), x.shape)

    return of


REDUCTIONS = {
    **wrapped(
        reduction,
        fnp,
        "all amax amin any argmax argmin logsumexp mean nanmean nansum prod sum",
    ),
    "count_nonzero": lambda x, dim=None: fnp.count_nonzero(x, axes(x, dim)),
    "std": spread(fnp.std),
    "std.unbiased": spread(fnp.std),
    "var": spread(fnp.var),
    "var.unbiased": spread(fnp.var),
    "cumsum": along(fnp.cumsum),
    "cumprod": along(fnp.cumprod),
    "kthvalue": lambda *args, **options: ft.kthvalue(*args, **options)[0],
    "cummax": lambda x, dim: ft.cummax(x, dim)[0],
    "cummin": lambda x, dim: ft.cummin(x, dim)[0],
    "logcumsumexp": along(fnp.logcumsumexp),
    "softmax": along(fnp.softmax),
    "softmax.with_dtype": along(fnp.softmax),
    "log_softmax": along(fnp.log_softmax),
    "log_softmax.with_dtype": along(fnp.log_softmax),
    "masked.sum": masked(fnp.sum),
    "masked.prod": masked(fnp.prod),
    "masked.amax": masked(fnp.amax, initial=-np.inf),
    "masked.amin": masked(fnp.amin, initial=np.inf),
    "masked.mean": masked(fnp.mean),
    "masked.var": masked(fnp.var),
    "masked.std": masked(fnp.std),
    "diff": lambda x, n=1, dim=-1, prepend=None, append=None: fnp.diff(x, n, dim, prepend, append),
    "norm": lambda x, p="fro", dim=None, keepdim=False: _norm(x, p, dim, keepdim),
    "norm.fro": lambda x, p="fro", dim=None, keepdim=False: _norm(x, p, dim, keepdim),
    "norm.inf": lambda x, p="fro", dim=None, keepdim=False: _norm(x, p, dim, keepdim),
    "norm.nuc": lambda x, p, dim=None, keepdim=False: la.norm(
        x, p, (-2, -1) if dim is None else tuple(dim), keepdim
    ),
    "linalg.norm": lambda x, ord=None, dim=None, keepdim=False: _linalg_norm(x, ord, dim, keepdim),
    "linalg.norm.subgradients_at_zero": lambda x, ord=None, dim=None, keepdim=False: _linalg_norm(
        x, ord, dim, keepdim
    ),
    "linalg.vector_norm": lambda x, ord=2, dim=None, keepdim=False: fnp.vector_norm(
        x, axis=axes(x, dim), keepdims=keepdim, ord=ord
    ),
    "linalg.matrix_norm": lambda x, ord="fro", dim=(-2, -1), keepdim=False: la.norm(
        x, ord, tuple(dim), keepdim
    ),
}


def _norm(x: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    order = 2 if p in ("fro", None) else p
    return fnp.vector_norm(x, axis=axes(x, dim), keepdims=keepdim, ord=order)


def _linalg_norm(x: Any, order: Any, dim: Any, keepdim: bool) -> Any:
    axis = axes(x, dim)
    if dim is None and order is not None and x.ndim == 1:
        axis = 0
    if order is None:
        return fnp.vector_norm(x, axis=axis, keepdims=keepdim)
    return la.norm(x, order, axis, keepdim)


# ------------------------------------------------------------------------- arithmetic and products


def rounded(x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    return ft.div(x, y, rounding_mode=rounding_mode)


PRODUCTS = {
    "add": lambda x, y, *, alpha=1: fnp.add(x, fnp.multiply(alpha, y) if alpha != 1 else y),
    "sub": lambda x, y, *, alpha=1: fnp.subtract(x, fnp.multiply(alpha, y) if alpha != 1 else y),
    "einsum": lambda xs, equation: fnp.einsum(equation, *xs),
    "where": lambda x, condition, y: fnp.where(condition, x, y),
    "__radd__": lambda x, y: y + x,
    "__rsub__": lambda x, y: y - x,
    "__rmul__": lambda x, y: y * x,
    "__rdiv__": lambda x, y: y / x,
    "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y**x,
    "__rand__": lambda x, y: y & x,
    "__ror__": lambda x, y: y | x,
    "__rxor__": lambda x, y: y ^ x,
    "__rmatmul__": lambda x, y: fnp.matmul(y, x),
    "div.trunc_rounding": rounded,
    "div.floor_rounding": rounded,
    "round": lambda x: fnp.round(x),
    **{
        f"round.decimals_{d}": lambda x, *, decimals=0: fnp.round(x, decimals)
        for d in ("0", "3", "neg_3")
    },
    "isclose": lambda x, y, rtol=1e-5, atol=1e-8, equal_nan=False: fnp.isclose(
        x, y, rtol, atol, equal_nan
    ),
    "allclose": lambda x, y, rtol=1e-5, atol=1e-8, equal_nan=False: fnp.allclose(
        x, y, rtol, atol, equal_nan
    ),
    "equal": lambda x, y: fnp.array_equal(x, y),
    "isin": lambda x, y, *, assume_unique=False, invert=False: fnp.isin(x, y, invert=invert),
    "matmul": fnp.matmul,
    "mm": fnp.matmul,
    "bmm": fnp.matmul,
    "mv": fnp.matmul,
    "dot": fnp.dot,
    "vdot": fnp.vdot,
    "inner": fnp.inner,
    "outer": fnp.outer,
    "kron": fnp.kron,
    "tensordot": lambda x, y, dims=2: fnp.tensordot(x, y, dims),
    "linalg.vecdot": lambda x, y, *, dim=-1: fnp.vecdot(x, y, axis=dim),
    "linalg.cross": lambda x, y, *, dim=-1: fnp.cross(x, y, axis=dim),
    **{f"polygamma.polygamma_n_{n}": lambda x, n: sp.polygamma(n, x) for n in range(5)},
    "special.polygamma.special_polygamma_n_0": lambda x, n: sp.polygamma(n, x),
    **{f"mvlgamma.mvlgamma_p_{p}": lambda x, p: sp.multigammaln(x, p) for p in (1, 3, 5)},
}


# ------------------------------------------------------------------------------------------ shapes


def sizes(args: Any) -> Any:
    return args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


SHAPES = {
    "T": lambda x: x.T,
    "H": lambda x: fnp.conj(x.T),
    "mT": fnp.matrix_transpose,
    "mH": lambda x: fnp.conj(fnp.matrix_transpose(x)),
    "__getitem__": lambda x, index: fnp.getitem(x, index),
    "broadcast_to": lambda x, size: fnp.broadcast_to(x, size),
    "constant_pad_nd": lambda x, pad, value=0.0: _padded(x, pad, value),
    "diag": lambda x, diagonal=0: fnp.diag(x, diagonal),
    "diagonal_copy": lambda x, offset=0, dim1=0, dim2=1: fnp.diagonal(x, offset, dim1, dim2),
    "expand": lambda x, *size: (
        ft.as_tensor(x).expand(*size) if isinstance(x, np.ndarray) else x.expand(*size)
    ),
    "expand_as": lambda x, other: fnp.broadcast_to(x, other.shape),
    "meshgrid.variadic_tensors": lambda *xs, indexing="ij": fnp.meshgrid(*xs, indexing=indexing),
    "meshgrid.list_of_tensors": lambda xs, indexing="ij": fnp.meshgrid(*xs, indexing=indexing),
    "repeat": lambda x, *size: fnp.tile(x, tuple(sizes(size))),
    "reshape_as": lambda x, other: x.reshape(other.shape),
    "view": lambda x, *size: x.reshape(sizes(size)),
    "view_as": lambda x, other: x.reshape(other.shape),
    "roll": lambda x, shifts, dims=None: fnp.roll(x, shifts, dims),
    "squeeze.multiple": lambda x, dim: ft.squeeze(x, dim),
    "tile": lambda x, *dims: fnp.tile(x, tuple(sizes(dims))),
    "trace": lambda x: fnp.trace(x),
    "tril": lambda x, diagonal=0: fnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: fnp.triu(x, diagonal),
    "clone": lambda x, **_: fnp.copy(x),
}


def _padded(x: Any, pad: Any, value: float) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2)
    pairs += [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    cut = tuple(
        [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True)]
    )
    return fnp.pad(x[cut], [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


# ---------------------------------------------------------------------------------- linear algebra


def _spread_over(solve: Function, a: Any, b: Any, **options: Any) -> Any:
    """Solves with both broadcast: SciPy's function takes batches that are the same."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = fnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    return solve(a, fnp.broadcast_to(b, (*batch, *b.shape[-2:])), **options)


def _rank(
    x: Any, tol: Any = None, hermitian: bool = False, atol: Any = None, rtol: Any = None
) -> Any:
    """Counts the singular values above the larger of two bounds."""
    if atol is None or tol is not None:
        return la.matrix_rank(x, tol, hermitian, rtol=rtol)
    largest = fnp.amax(la.svdvals(x), axis=-1, initial=0.0)
    relative = 0.0 if rtol is None else rtol
    return la.matrix_rank(x, fnp.maximum(atol, relative * largest), hermitian)


def _tensorsolve(a: Any, b: Any, dims: Any) -> Any:
    if dims is not None:
        a = fnp.moveaxis(a, tuple(dims), tuple(range(-len(dims), 0)))
    # PyTorch asks of `b` no more than its size
    return la.tensorsolve(a, b.reshape(a.shape[: b.ndim]))


def _qr(x: Any, mode: str = "reduced") -> Any:
    found = la.qr(x, mode=mode)
    return (np.zeros(0, x.dtype), found) if mode == "r" else found


LINEAR_ALGEBRA = {
    "cholesky": lambda x, upper=False: la.cholesky(x, upper=upper),
    "linalg.cholesky": lambda x, *, upper=False: la.cholesky(x, upper=upper),
    "linalg.eigh": lambda x, UPLO="L": la.eigh(x, UPLO),
    "linalg.eigvalsh": lambda x, UPLO="L": la.eigvalsh(x, UPLO),
    "linalg.qr": _qr,
    "linalg.svd": lambda x, full_matrices=True: la.svd(x, full_matrices=full_matrices),
    "linalg.lstsq": lambda a, b, *, driver=None: ft.linalg.lstsq(a, b).solution,
    "linalg.lstsq.grad_oriented": lambda a, b, driver=None: ft.linalg.lstsq(a, b).solution,
    "linalg.pinv": lambda x, *args, hermitian=False, **options: _pinv(
        x, hermitian, *args, **options
    ),
    "linalg.pinv.hermitian": lambda x, *args, hermitian=False, **o: _pinv(x, hermitian, *args, **o),
    "linalg.pinv.singular": lambda a, b: la.pinv(a @ fnp.matrix_transpose(b)),
    "pinverse": lambda x, rcond=1e-15: la.pinv(x),
    "triangular_solve": lambda b, a, upper=True, transpose=False, unitriangular=False: _spread_over(
        functools.partial(sl.solve_triangular, trans=int(transpose), unit_diagonal=unitriangular),
        a,
        b,
        lower=not upper,
    ),
    "linalg.tensorinv": lambda x, ind=2: la.tensorinv(x, ind),
    "linalg.tensorsolve": lambda a, b, dims=None: _tensorsolve(a, b, dims),
    "linalg.solve": lambda a, b, *, left=True: _solve(a, b, left),
    "linalg.matrix_rank": lambda x, tol=None, **options: _rank(x, tol, **options),
    "linalg.matrix_rank.hermitian": lambda x, tol=None, **options: _rank(x, tol, **options),
}


def _pinv(x: Any, hermitian: bool, *args: Any, **options: Any) -> Any:
    if hermitian:
        x = 0.5 * (x + ft.adjoint(x))
    return la.pinv(x, hermitian=hermitian, rtol=options.get("rtol"))


def _solve(a: Any, b: Any, left: bool) -> Any:
    if not left:
        return fnp.matrix_transpose(la.solve(fnp.matrix_transpose(a), fnp.matrix_transpose(b)))
    if b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]):
        return la.solve(a, b[..., None])[..., 0]
    return la.solve(a, b)


# ------------------------------------------------------------------------------- Fourier transforms


def _of_axis(function: Function) -> Function:
    return lambda x, n=None, dim=-1, norm=None: function(x, n, dim, norm)


def _of_axes(function: Function, last: Any) -> Function:
    def of(x: Any, s: Any = None, dim: Any = last, norm: Any = None) -> Any:
        dim = (dim,) if isinstance(dim, int) else dim
        if s is not None:
            s = (s,) if isinstance(s, int) else s
            dim = range(-len(s), 0) if dim is None else dim
            s = [x.shape[d] if n == -1 else n for n, d in zip(s, dim, strict=True)]
        return function(x, s, None if dim is None else tuple(dim), norm)

    return of


FOURIER = {
    **wrapped(_of_axis, fft, "fft ifft rfft irfft hfft ihfft", "fft."),
    **wrapped(functools.partial(_of_axes, last=(-2, -1)), fft, "fft2 ifft2 rfft2 irfft2", "fft."),
    **wrapped(functools.partial(_of_axes, last=None), fft, "fftn ifftn rfftn irfftn", "fft."),
    "fft.fftshift": lambda x, dim=None: fft.fftshift(x, dim),
    "fft.ifftshift": lambda x, dim=None: fft.ifftshift(x, dim),
}

NETWORKS: dict[str, Function] = {}
"""Those of `nn.functional`: for functions that `ftrans` gets under these names."""

TABLE: dict[str, Function] = {
    **ELEMENTWISE,
    **OF_TENSORS,
    **SPECIAL,
    **OF_LINALG,
    **REDUCTIONS,
    **PRODUCTS,
    **SHAPES,
    **LINEAR_ALGEBRA,
    **FOURIER,
    **NETWORKS,
}
"""All, by the names of PyTorch's samples; a variant is named after a point."""

FIRST_ALONE = {
    "cummax", "cummin", "kthvalue", "linalg.lstsq", "linalg.lstsq.grad_oriented",
    "triangular_solve",
}  # fmt: skip
"""Operations of which only the first result has a counterpart."""

HERMITIAN = {
    "cholesky", "linalg.cholesky", "linalg.eigh", "linalg.eigvalsh", "linalg.pinv.hermitian",
}  # fmt: skip
"""Operations that read one triangle of a matrix; their tangents are Hermitian here."""

HERMITIAN_RESULTS = {"cholesky", "linalg.cholesky", "linalg.pinv.hermitian"}
"""Of these the cotangents are Hermitian too: what has no imaginary part gets none."""

HERMITIAN_GIVEN = {"linalg.pinv.hermitian"}
"""Of these the arguments: PyTorch's derivative reads the triangle that its value does not."""

INVARIANTS: dict[str, Function] = {
    "linalg.eigh": lambda out: (out[0], abs(out[1])),
    "linalg.eig": lambda out: (out[0], abs(out[1])),
    "linalg.svd": lambda out: _without_phases(*out),
    "svd": lambda out: _without_phases(out[0], out[1], out[2].mT),
}
"""What is compared in the place of results that are determined but for phases or signs.

They are written with what arrays of PyTorch and of ours have in common.
"""


def _without_phases(u: Any, s: Any, v: Any) -> tuple[Any, ...]:
    """Returns the singular values, and the sizes of the singular vectors that belong to them."""
    n = s.shape[-1]
    return s, abs(u[..., :, :n]), abs(v[..., :n, :])
