"""Every function of the front end on a grid of special values: the cases, the grid, the oracles.

A case is an expression of `xp`, which is `ftrans.numpy` or what stands for it in NumPy and SciPy,
and of arrays of special values: `u` holds each of them once, `v` and `w` every pair, `m` rows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special

from ftrans.func import mapping
from ftrans.numpy import borrowed, dtypes

DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip

# ------------------------------------------------------------------------------------------- grid


def specials(dtype: np.dtype) -> list[tuple[Any, str]]:
    """Returns the special values of a dtype, each with its class."""
    if dtype.kind == "b":
        return [(False, "plain"), (True, "plain")]
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        classes = {
            "plain": [0, 1, 2, 7, *([-1, -3] if dtype.kind == "i" else [])],
            "bound": [bounds.min, bounds.max, bounds.max - 1],
        }
    elif dtype.kind == "c":
        classes = {
            "plain": [0.0, 1.5, -2.5],
            "-0": [-0.0],
            "inf": [np.inf, -np.inf],
            "nan": [np.nan],
        }
    else:
        limits = ml_dtypes.finfo(dtype)
        tiny, huge, least = map(float, (limits.tiny, limits.max, limits.smallest_subnormal))
        classes = {
            "plain": [0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 30.0],
            "-0": [-0.0],
            "tiny": [tiny, -tiny],
            "huge": [huge, -huge],
            "subnormal": [least, -least * 8],
            "inf": [np.inf, -np.inf],
            "nan": [np.nan],
        }
    flat = [(value, name) for name, values in classes.items() for value in values]
    if dtype.kind != "c":
        return flat
    return [(complex(a, b), f"{p} {q}") for (a, p), (b, q) in product(flat, flat)]


def grid(dtype: np.dtype) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Returns the arrays of special values by their names, and the classes of their elements.

    A row of `m` has two special values, at places 1 and 4, among plain ones.
    """
    values, names = zip(*specials(dtype), strict=True)
    plain = [value for value, name in specials(dtype) if set(name.split()) == {"plain"}]
    pairs = list(product(range(len(values)), repeat=2))
    few = pairs[:: 37 if dtype.kind == "c" else 1]
    lines = [
        [*np.roll(plain, i)[:1], values[i], *np.roll(plain, j)[:2], values[j], plain[-1]]
        for i, j in few
    ]
    arrays = {
        "u": values,
        "v": [values[i] for i, _ in pairs],
        "w": [values[j] for _, j in pairs],
        "m": lines,
    }
    classes = {
        "u": list(names),
        "v": [f"{names[i]} {names[j]}" for i, j in pairs],
        "m": [f"{names[i]} {names[j]}" for i, j in few],
    }
    with np.errstate(over="ignore"):
        return {name: np.array(value, dtype) for name, value in arrays.items()}, classes


# ------------------------------------------------------------------------------------------ cases

_ELEMENTWISE = """
abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh around asin asinh atan
atanh bitwise_invert bitwise_not cbrt ceil conj conjugate copy cos cosh deg2rad degrees digamma
erf erfc erfinv exp exp2 expit expm1 fabs fix floor gammaln gelu i0 i0e i1 i1e imag invert iscomplex
isfinite isinf isnan isneginf isposinf isreal lgamma log log10 log1p log2 logical_not logit
modf nan_to_num negative ones_like positive psi rad2deg radians real reciprocal relu rint round
rsqrt sigmoid sign signbit silu sin sinc sinh softplus sqrt square stop_gradient tan tanh trunc
zeros_like asarray array ascontiguousarray ravel atleast_1d atleast_2d atleast_3d flip flipud
squeeze
"""

_OF_TWO = """
add arctan2 atan2 bitwise_and bitwise_or bitwise_xor copysign divide equal float_power
floor_divide fmax fmin fmod greater greater_equal heaviside hypot isclose less less_equal
logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mod multiply not_equal pow
power remainder subtract true_divide xlog1py xlogy divmod
"""

_ALONG_ROWS = """
all amax amin any argmax argmin average count_nonzero cummax cummin cumprod cumsum cumulative_prod
cumulative_sum diff flip log_softmax logcumsumexp logsumexp max mean median min nanargmax
nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar prod
ptp softmax sort std sum var argsort vector_norm
"""

CASES = {
    **{name: (f"xp.{name}(u)", "u") for name in _ELEMENTWISE.split()},
    **{name: (f"xp.{name}(v, w)", "v") for name in _OF_TWO.split()},
    **{name: (f"xp.{name}(m, axis=-1)", "m") for name in _ALONG_ROWS.split()},
}
CASES |= {
    # moved about or looked up
    "append": ("xp.append(u, u)", ""),
    "array_split": ("xp.array_split(u, 2)", ""),
    "broadcast_arrays": ("xp.broadcast_arrays(u, m[:1, :1])", ""),
    "broadcast_to": ("xp.broadcast_to(u, (2, u.size))", ""),
    "choose": ("xp.choose(np.array([0, 1]), [u[:2], u[-2:]])", ""),
    "column_stack": ("xp.column_stack([u, u])", "u"),
    "concat": ("xp.concat([u, u])", ""),
    "concatenate": ("xp.concatenate([u, u])", ""),
    "delete": ("xp.delete(u, 0)", ""),
    "diag": ("xp.diag(m[:6])", ""),
    "diagflat": ("xp.diagflat(u)", ""),
    "diagonal": ("xp.diagonal(m)", ""),
    "dsplit": ("xp.dsplit(m[:, :, None], 1)", ""),
    "dstack": ("xp.dstack([u, u])", ""),
    "expand_dims": ("xp.expand_dims(u, 0)", ""),
    "fliplr": ("xp.fliplr(m)", "m"),
    "full_like": ("xp.full_like(u, 1)", "u"),
    "getitem": ("xp.getitem(u, slice(1, 3))", ""),
    "hsplit": ("xp.hsplit(m, 2)", "m"),
    "hstack": ("xp.hstack([m, m])", "m"),
    "insert": ("xp.insert(u, 1, u[0])", ""),
    "matrix_transpose": ("xp.matrix_transpose(m)", ""),
    "meshgrid": ("xp.meshgrid(u, u)", ""),
    "moveaxis": ("xp.moveaxis(m, 0, 1)", ""),
    "pad": ("xp.pad(u, 1)", ""),
    "permute_dims": ("xp.permute_dims(m, (1, 0))", ""),
    "repeat": ("xp.repeat(m, 2, axis=1)", "m"),
    "reshape": ("xp.reshape(m, (-1,))", ""),
    "roll": ("xp.roll(m, 1, axis=1)", "m"),
    "rot90": ("xp.rot90(m)", ""),
    "select": ("xp.select([u == 1], [u], u[0])", "u"),
    "split": ("xp.split(m, 2, axis=1)", "m"),
    "stack": ("xp.stack([u, u], axis=1)", "u"),
    "swapaxes": ("xp.swapaxes(m, 0, 1)", ""),
    "take": ("xp.take(m, np.array([1, 0]), axis=1)", "m"),
    "take_along_axis": ("xp.take_along_axis(m, np.zeros((m.shape[0], 1), int), axis=1)", "m"),
    "tile": ("xp.tile(m, 2)", "m"),
    "transpose": ("xp.transpose(m)", ""),
    "tril": ("xp.tril(m)", "m"),
    "triu": ("xp.triu(m)", "m"),
    "unstack": ("xp.unstack(m, axis=1)", "m"),
    "vsplit": ("xp.vsplit(m[:2], 2)", ""),
    "vstack": ("xp.vstack([u, u])", ""),
    "where": ("xp.where(v == w, v, w)", "v"),
    # converted
    **{
        f"astype {to}": (f"xp.astype(u, np.dtype('{to}'))", "u")
        for to in ("bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32")
    },
    # compared and ordered
    "allclose": ("xp.allclose(m, m)", ""),
    "array_equal": ("xp.array_equal(m, m)", ""),
    "array_equiv": ("xp.array_equiv(u, u)", ""),
    "clamp": ("xp.clip(u, xp.zeros_like(u), xp.ones_like(u))", "u"),
    "clip": ("xp.clip(v, w, xp.ones_like(w))", "v"),
    "digitize": ("xp.digitize(u, np.array([0, 1]))", "u"),
    "isin": ("xp.isin(u, u[:3])", "u"),
    "lexsort": ("xp.lexsort((u, u))", ""),
    "partition": ("xp.partition(m, 2, axis=-1)[:, 2]", "m"),
    "searchsorted": ("xp.searchsorted(np.array([0, 1, 2]), u)", "u"),
    "sort_complex": ("xp.sort_complex(m)", "m"),
    "top_k": ("xp.top_k(m, 2)[0]", "m"),
    "quantile": ("xp.quantile(m, 0.5, axis=-1)", "m"),
    "percentile": ("xp.percentile(m, 30.0, axis=-1)", "m"),
    # shifted by no more than the bits there are
    **{
        name: (f"xp.{name}(u, xp.ones_like(u))", "u")
        for name in ("bitwise_left_shift", "bitwise_right_shift", "left_shift", "right_shift")
    },
    # sums of products
    "convolve": ("xp.convolve(u, u[:3])", ""),
    "correlate": ("xp.correlate(u, u[:3])", ""),
    "cross": ("xp.cross(m[:, :3], m[:, 3:])", "m"),
    "dot": ("xp.dot(m, xp.ones_like(m[0]))", "m"),
    "ediff1d": ("xp.ediff1d(u)", ""),
    "einsum": ("xp.einsum('ij,ij->i', m, m)", "m"),
    "inner": ("xp.inner(m, xp.ones_like(m[0]))", "m"),
    "kron": ("xp.kron(u, u[:2])", ""),
    "matmul": ("xp.matmul(m, xp.ones_like(m[0]))", "m"),
    "matrix_norm": ("xp.linalg.matrix_norm(m[:, :4].reshape(-1, 2, 2))", "m"),
    "matrix_power": ("xp.linalg.matrix_power(m[:, :4].reshape(-1, 2, 2), 3)", "m"),
    "matvec": ("xp.matvec(m, xp.ones_like(m[0]))", "m"),
    "norm": ("xp.linalg.norm(m, axis=-1)", "m"),
    "outer": ("xp.outer(u, u)", ""),
    "tensordot": ("xp.tensordot(m, xp.ones_like(m[0]), 1)", "m"),
    "trace": ("xp.trace(m[:, :4].reshape(-1, 2, 2), axis1=1, axis2=2)", "m"),
    "vdot": ("xp.vdot(u[:2], u[:2])", ""),
    "vecdot": ("xp.vecdot(m, m)", "m"),
    "vecmat": ("xp.vecmat(m[:, :1], m[0][None])", "m"),
    "linspace": ("xp.linspace(u, xp.zeros_like(u), 3, axis=-1)", "u"),
    # as arrays that hold nothing
    **{
        f"{name} of nothing": (f"xp.{name}(m[:0])", "")
        for name in ("sum", "prod", "any", "all", "cumsum", "cumprod", "sort", "count_nonzero")
    },
    # halved and doubled as often as an exponent says
    "power of large exponents": ("xp.power(u, xp.full_like(u, 67))", "u"),
    "power of whole exponents": ("u ** 3", "u"),
    "power of negative exponents": ("u ** -2", "u"),
}  # fmt: skip

EITHER_ZERO = {"clamp", "clip", "fmax", "fmin", "maximum", "minimum"}
"""Cases in which two zeros are equal, and either may be the result."""

NOT_EXERCISED = {
    "it names a dtype, a constant or a class": "At bfloat16 bool bool_ complex128 complex64 dtype "
    "e euler_gamma float16 float32 float64 inf int16 int32 int64 int8 nan ndarray newaxis pi "
    "uint16 uint32 uint64 uint8 __array_api_version__ "
    + " ".join([*dtypes._ALIASES, *dtypes._ABSTRACT.split(), *dtypes._EIGHT_BITS.split()]),
    "it maps a function of the user's": " ".join(mapping.__all__),
    "it asks for types, not for values": "can_cast finfo iinfo iscomplexobj isdtype isrealobj "
    "issubdtype ndim promote_types result_type shape size broadcast_shapes isscalar iterable "
    "__array_namespace_info__",
    "it takes no array": "arange empty empty_like eye from_dlpack full geomspace identity indices "
    "logspace ones tri zeros",
    "its shape depends on values, so NumPy itself runs it": "argwhere bincount compress extract "
    "flatnonzero nonzero unique unique_counts unique_inverse unique_values unique_all",
    "it writes, and writes what it is given": "at put_along_axis setitem copyto "
    "fill_diagonal place put putmask",
    "where is which is open, but for one place": "argpartition",
    "what it rounds on the way is compared with NumPy in test_like_numpy": "gradient",
    "its functions are those of ftrans.numpy": "linalg",
    "its functions are JAX's, and compared with them": "fft "
    + " ".join([name for name in borrowed.__all__ if name not in CASES]),
}

# ---------------------------------------------------------------------------------------- oracles


class _NumPy:
    """Is NumPy, with SciPy's functions, and formulas for what neither has."""

    linalg = np.linalg
    clamp = np.clip
    relu = staticmethod(lambda x: np.maximum(x, 0))
    silu = staticmethod(lambda x: x * scipy.special.expit(x))
    softplus = staticmethod(lambda x: np.logaddexp(x, 0))
    gelu = staticmethod(lambda x: x * scipy.special.ndtr(x))
    rsqrt = staticmethod(lambda x: 1 / np.sqrt(x))
    stop_gradient = staticmethod(lambda x: x)
    top_k = staticmethod(lambda x, k: [np.flip(np.sort(x, axis=-1), -1)[:, :k]])
    argsort = staticmethod(lambda x, axis: np.argsort(x, axis, kind="stable"))
    cummax = staticmethod(lambda x, axis: np.maximum.accumulate(x, axis))
    cummin = staticmethod(lambda x, axis: np.minimum.accumulate(x, axis))
    logcumsumexp = staticmethod(lambda x, axis: np.logaddexp.accumulate(x, axis))
    vector_norm = staticmethod(lambda x, axis: np.linalg.vector_norm(x, axis=axis))
    lgamma, sigmoid = scipy.special.gammaln, scipy.special.expit
    getitem = staticmethod(lambda x, key: x[key])

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name) if hasattr(np, name) else getattr(scipy.special, name)


NUMPY = _NumPy()
