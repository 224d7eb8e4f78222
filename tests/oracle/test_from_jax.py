"""Functions of JAX through `from_jax`: values, derivatives and batches, held against JAX's own."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans import from_jax, func

MODULES: dict[str, ModuleType] = {
    "jax.numpy": jnp,
    "jax.numpy.linalg": jnp.linalg,
    "jax.numpy.fft": jnp.fft,
    "jax.nn": jax.nn,
    "jax.scipy.special": jsp.special,
    "jax.scipy.linalg": jsp.linalg,
    "jax.scipy.signal": jsp.signal,
    "jax.scipy.integrate": jsp.integrate,
}

# what reads files, says how arrays are printed, asks about dtypes, or takes functions
_NO_FUNCTIONS_OF_ARRAYS = """
    apply_along_axis apply_over_axes array_repr array_str broadcast_shapes can_cast dtype
    einsum_path finfo from_dlpack frombuffer fromfile fromfunction fromiter frompyfunc fromstring
    get_printoptions iinfo iscomplexobj isdtype isrealobj isscalar issubdtype iterable load
    mask_indices ndim piecewise printoptions promote_types result_type save savez select
    set_printoptions shape size vectorize
"""
NO_FUNCTIONS_OF_ARRAYS = frozenset(_NO_FUNCTIONS_OF_ARRAYS.split())

# their results have no fixed shape, or they choose in Python, which JAX's grad can do
_ASK_FOR_VALUES = """
    choose compress extract intersect1d setdiff1d setxor1d trim_zeros union1d unique unique_all
    unique_counts unique_inverse unique_values
"""
ASK_FOR_VALUES = frozenset(_ASK_FOR_VALUES.split())

# another convention at kinks, or no derivative that means anything there
OTHER_DERIVATIVE = frozenset({"zeta"})

QUICK = """
    jax.numpy: interp einsum median sort cumprod where take pad gradient frexp
    jax.numpy.linalg: cholesky slogdet
    jax.numpy.fft: irfft
    jax.nn: gelu
    jax.scipy.special: gammaln
"""

_rng = np.random.default_rng(0)
_A = _rng.uniform(0.2, 0.8, (4, 4))
_S = _A @ _A.T + np.eye(4)
_v, _w = _rng.uniform(0.2, 0.8, (2, 4))
_I = np.array([2, 0, 1, 3])

ARGUMENTS: list[tuple[Any, ...]] = [
    (_v,), (_A,), (_S,), (_v, _w), (_S, _v), (_A, _S), (_A[:3],), (_v, 2), (_A, 1), (_v, _w, _A[0]),
    (_I,), (_I, _I), (_A, _I[:, None]), (2, _v), (3,), (_v, np.sort(_w)), (np.sort(_v), _w),
    (_v, _I), (_A, (0, 1)), ([_v, _w],), ((_v, _w),), (_A, 0, 1), (_v > 0.5, _v, _w), (_v, 0.5),
    (0.5, _v), (_I > 1,), (_v, 0.2, 0.7), (_A, _I), (_A, 2, 0), (_I, 4), (_v, (2, 2)),
    (_v, _v, _v, _v), (3, _v), ("ij,jk", _A, _S), (_A, 0, 1, 0), (_A, -1),
]  # fmt: skip
"""What functions are tried on, until it takes one of them."""


def names(module: ModuleType) -> Iterator[str]:
    """Yields the names of a module's functions of arrays."""
    for name in sorted(dir(module)):
        found = getattr(module, name)
        is_function = (
            callable(found) and not isinstance(found, type) and not hasattr(found, "dtype")
        )
        if is_function and not name.startswith("_") and name not in NO_FUNCTIONS_OF_ARRAYS:
            yield name


def leaves(x: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(x)]


def assert_same(found: Any, expected: Any) -> None:
    for x, y in zip(leaves(found), leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=2e-6, equal_nan=True)


def attempted(function: Callable[[], Any]) -> Any:
    """Returns what a function of JAX's returns, or None where it refuses the arguments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = function()
    except Exception:
        return None
    kinds = (jax.Array, np.ndarray, np.generic)
    all_arrays = all(isinstance(leaf, kinds) for leaf in jax.tree_util.tree_leaves(found))
    return found if leaves(found) and all_arrays else None


def total(xp: Any, result: Any) -> Any:
    """Returns a scalar that all real results count for."""
    real = [x for x in jax.tree_util.tree_leaves(result) if np.dtype(x.dtype).kind == "f"]
    return sum([xp.sum(xp.cos(x)) for x in real])


def check(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], transformed: bool = True
) -> bool:
    """Holds a function at some arguments against JAX; False where it does not take them."""
    given = jax.tree_util.tree_map(lambda x: jnp.asarray(x) if np.ndim(x) else x, args)
    expected = attempted(lambda: function(*given))
    if expected is None:
        return False
    ours = from_jax(function)
    assert_same(ours(*args), expected)
    at = next((i for i, x in enumerate(args) if getattr(x, "dtype", None) == np.float64), None)
    if at is None or not transformed:
        return True

    def of_one(function: Callable[..., Any], x: Any) -> Any:
        return function(*[x if i == at else arg for i, arg in enumerate(args)])

    x = args[at]
    theirs = lambda x: total(jnp, of_one(function, x))  # noqa: E731
    mine = lambda x: total(fnp, of_one(ours, x))  # noqa: E731
    slope = attempted(lambda: jax.grad(theirs)(x))
    if slope is not None and name not in ASK_FOR_VALUES | OTHER_DERIVATIVE:
        assert_same(func.grad(mine)(x), slope)
        ones = np.ones_like(x)
        assert_same(func.jvp(mine, (x,), (ones,))[1], jax.jvp(theirs, (x,), (ones,))[1])
    many = np.stack([x, x * 0.9, x * 1.1])
    batch = attempted(lambda: jax.vmap(functools.partial(of_one, function))(many))
    if batch is not None and name not in ASK_FOR_VALUES:
        assert_same(func.vmap(functools.partial(of_one, ours))(many), batch)
    return True


def run(module: str, name: str, transformed: bool = True) -> None:
    function = getattr(MODULES[module], name)
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arguments that a function will not take any more
        any(check(name, function, args, transformed) for args in ARGUMENTS)


def quick() -> list[tuple[str, str]]:
    pairs, module = [], ""
    for word in QUICK.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            pairs.append((module, word))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), quick())
def test_some_functions(module: str, name: str) -> None:
    run(module, name)


EVERY = [(key, name) for key, module in MODULES.items() for name in names(module)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "transformed"), [(*one, i % 3 == 0) for i, one in enumerate(EVERY)]
)
def test_all_functions(module: str, name: str, transformed: bool) -> None:
    """Every function has its values; every third one its derivatives, and is batched, too."""
    run(module, name, transformed)


# what JAX has at kinks, and what is here; where no rule of JAX's is in between, ours count
KINKS: dict[str, tuple[Callable[..., Any], float, float, float]] = {
    "abs(0)": (jnp.abs, 0.0, 1.0, 0.0),
    "0**1.5": (lambda x: x**1.5, 0.0, 0.0, 0.0),
    "relu(0)": (jax.nn.relu, 0.0, 0.0, 0.0),
    "where(x > 0, log(x), 0)": (lambda x: jnp.where(x > 0, jnp.log(x), 0.0), 0.0, math.nan, 0.0),
    "maximum(x, 0)": (lambda x: jnp.maximum(x, 0.0), 0.0, 0.5, 0.5),
    "clip(0, 0, 1)": (lambda x: jnp.clip(x, 0.0, 1.0), 0.0, 0.5, 0.5),
    "sqrt(x * x)": (lambda x: jnp.sqrt(x * x), 0.0, math.nan, math.nan),
    "logsumexp": (lambda x: jax.nn.logsumexp(jnp.stack([x, x])), 0.0, 1.0, 1.0),
    "sinc(0)": (jnp.sinc, 0.0, 0.0, 0.0),
    "arctan2(x, 0)": (lambda x: jnp.arctan2(x, 0.0 * x), 0.0, math.nan, 0.0),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks(name: str) -> None:
    function, at, theirs, ours = KINKS[name]
    with jax.enable_x64(True):
        found = jax.grad(function)(at)
    np.testing.assert_equal(float(found), theirs, "JAX has changed its mind")
    np.testing.assert_equal(float(func.grad(from_jax(function))(at)), ours)
