"""Operators, methods and NumPy's protocols on traced values."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ConcretizationError, TracedArrayError, UnsupportedError
from ftrans.ir import Tracer
from tests.helpers import assert_close
from tests.unit.front_end import traced

X = np.array([[0.3, -1.2, 2.0], [1.5, 0.4, -0.7]])
W = np.random.default_rng(1).normal(size=(3, 2))
V = np.array([1.0, 2.0, 3.0])


def probe(f: Any, x: Any = X) -> Any:
    """Calls `f` with `x` traced under `grad`, and returns what it returned."""
    kept = []

    def function(x: Any) -> Any:
        kept.append(f(x))
        return fnp.sum(x)

    func.grad(function)(x)
    return kept[0]


def check(f: Any, expected: Any, *arrays: Any) -> None:
    """Compares a function of traced values with what NumPy gives."""
    for found, wanted in zip(traced(f, *(arrays or (X,))), [expected], strict=True):
        assert_close(found, wanted, 1e-12)


# ------------------------------------------------------------------------------------- operators

ARITHMETIC = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip
ON_LEFT_AND_RIGHT = [2.0, 3, np.float64(2.0), np.int64(2), V, np.abs(X) + 1, np.array(2.0)]


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("other", ON_LEFT_AND_RIGHT, ids=lambda x: f"{type(x).__name__}{x!r:.9}")
def test_operators_with_all_kinds_of_operands(op: Any, other: Any) -> None:
    x = np.abs(X)
    check(lambda x: op(x, other), op(x, other), x)
    check(lambda x: op(other, x), op(other, x), x)
    if isinstance(other, np.ndarray):
        with jax.enable_x64(True):
            check(lambda x: op(jnp.asarray(other), x), op(other, x), x)
            check(lambda x: op(x, jnp.asarray(other)), op(x, other), x)


def test_results_of_operators_with_arrays_on_the_left_are_traced() -> None:
    def f(x: Any) -> Any:
        results = [
            V + x, X @ W @ x[:, :2], np.float64(2) * x, np.float32(2) ** x, W @ x, jnp.ones(3) - x,
            operator.add([1.0, 2.0, 3.0], x), operator.lt(V, x), np.sin(x) @ W,
            np.multiply(V, x), V[0] / x,
        ]  # fmt: skip
        return [type(y) for y in results]

    assert set(probe(f)) == {Tracer}


def test_matmul_divmod_bits_and_prefixes() -> None:
    check(lambda x: x @ W, X @ W)
    check(lambda x: W @ x, W @ X)
    check(lambda x: divmod(x, 0.7)[0] + divmod(2.0, x)[1], X // 0.7 + 2.0 % X)
    check(lambda x: -x + +x + abs(x) + round(x, 1), abs(X) + np.round(X, 1))
    n = np.array([5, 6, 7])
    check(lambda n: (n & 3) | (n ^ 1) | (8 & n), (n & 3) | (n ^ 1) | (8 & n), n)
    check(lambda n: (n << 1) + (n >> 1) + ~n + (1 << n), (n << 1) + (n >> 1) + ~n + (1 << n), n)
    check(lambda x: ~(x > 0) & (x < 1) | (x == 2), ~(X > 0) & (X < 1) | (X == 2))


def test_augmented_assignment() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        y += 1.0
        y *= x
        y **= 2
        return y.sum()

    gradient = func.grad(f)(V)
    assert_close(gradient, 2 * (V + 1) * V * (2 * V + 1))


def test_unknown_operands_are_left_to_them() -> None:
    class Other:
        def __radd__(self, x: Any) -> str:
            return "theirs"

    assert probe(lambda x: x + Other()) == "theirs"
    assert probe(lambda x: (x == None, x != "a")) == (False, True)  # noqa: E711
    with pytest.raises(TypeError, match="unsupported operand"):
        probe(lambda x: x + "a")


# ----------------------------------------------------------------------------- Python's protocols


def test_conversions() -> None:
    def f(x: Any) -> Any:
        x = x.detach()
        s = x[0, 0]
        n = fnp.argmax(x[0])
        return [
            float(s), int(s * 10), complex(s), bool(s > 0), s.item(), x.item(1), x[0].tolist(),
            [10, 20, 30][n], list(range(n)), len(x), math.floor(s), V[n], 2.0 in x, 9.0 in x,
        ]  # fmt: skip

    assert probe(f) == [
        0.3, 3, 0.3 + 0j, True, 0.3, -1.2, X[0].tolist(), 30, [0, 1], 2, 0, 3.0, True, False,
    ]  # fmt: skip
    rows = probe(lambda x: [row.shape for row in x])
    assert rows == [(3,), (3,)]
    with pytest.raises(ValueError, match=r"bool\(\): takes an array of one element.\n  x: bool"):
        probe(lambda x: bool(x > 0))
    with pytest.raises(TypeError, match="Only an integer of rank zero"):
        probe(lambda x: [1, 2][x[0, 0]])
    with pytest.raises(TypeError, match="rank zero has no length"):
        probe(lambda x: len(x.sum()))
    with pytest.raises(TypeError, match="rank zero cannot be iterated"):
        probe(lambda x: list(x.sum()))
    with pytest.raises(TypeError, match="a traced value has no hash"):
        probe(hash)
    with pytest.raises(ConcretizationError, match=r"bool\(\) of a traced value"):
        func.vmap(lambda x: x if x > 0 else -x)(V)


def test_printing() -> None:
    assert probe(repr, V) == "Traced(f64[3], [1., 2., 3.])"
    assert probe(str, V) == "[1. 2. 3.]"
    assert (
        probe(lambda x: f"{x.sum():.2f} {x[:1]:.1f} {x > 1}", V) == "6.00 1.0 [False  True  True]"
    )
    seen = []
    func.vmap(lambda x: seen.append((repr(x), str(x), f"{x:.3f}")) or x)(V)
    assert seen[0] == ("Traced(f64[] in vmap(lambda))",) * 3
    func.vmap(seen.append)(V)
    assert repr(seen[1]) == "Traced(f64[] of vmap(append), which has returned)"


def test_copies_and_pickles() -> None:
    def f(x: Any) -> Any:
        y, z = copy.copy(x), copy.deepcopy(x)
        assert y is not x
        assert z is not x
        assert x.copy() is not x
        assert x.clone() is not x
        return (y * z).sum()

    assert_close(func.grad(f)(V), 2 * V)
    with pytest.raises(TypeError, match="cannot be pickled"):
        probe(pickle.dumps)


# --------------------------------------------------------------------------------------- methods


def test_properties() -> None:
    found = probe(lambda x: (x.shape, x.ndim, x.size, x.dtype, x.nbytes, x.itemsize, x.T.shape))
    assert found == ((2, 3), 2, 6, np.float64, 48, 8, (3, 2))
    z = X + 2j
    check(lambda z: z.real + z.imag, X + 2, z)
    check(lambda x: x.mT, X.T)


METHODS = {
    "sum(axis=0)": X.sum(axis=0),
    "sum(dim=0)": X.sum(axis=0),
    "sum((0, 1), keepdim=True)": X.sum(axis=(0, 1), keepdims=True),
    "mean(dim=1, keepdim=True)": X.mean(axis=1, keepdims=True),
    "max(dim=0)": X.max(axis=0),
    "std(0)": X.std(0),
    "var(dim=0)": X.var(axis=0),
    "argmax(dim=1)": X.argmax(axis=1).astype("int32"),
    "cumsum(dim=0)": X.cumsum(axis=0),
    "exp()": np.exp(X),
    "abs().sqrt().log1p()": np.log1p(np.sqrt(np.abs(X))),
    "mul(2).sub(1).div(3).neg()": -(X * 2 - 1) / 3,
    "pow(2)": X**2,
    "clip(0, 1)": X.clip(0, 1),
    "clamp(min=0)": X.clip(0),
    "gt(0)": X > 0,
    "t()": X.T,
    "permute(1, 0)": X.T,
    "transpose((1, 0))": X.T,
    "transpose()": X.T,
    "view(3, -1)": X.reshape(3, -1),
    "reshape((6,))": X.ravel(),
    "reshape(-1)": X.ravel(),
    "flatten()": X.ravel(),
    "unsqueeze(1).flatten(0, 1)": X,
    "unsqueeze(dim=0)": X[None],
    "squeeze()": X,
    "expand(4, -1, 3)": np.broadcast_to(X, (4, 2, 3)),
    "tile(2, 1)": np.tile(X, (2, 1)),
    "repeat(2, axis=0)": X.repeat(2, axis=0),
    "masked_fill(np.array([[True], [False]]), 0.0)": np.where([[True], [False]], 0.0, X),
    "where(X > 0, 0.0)": np.where(X > 0, X, 0.0),
    "at[0].set(1.0)": np.concatenate([np.ones((1, 3)), X[1:]]),
    "to('float32')": X.astype("f4"),
    "float()": X.astype("f4"),
    "long()": X.astype("i8"),
    "astype(bool)": X.astype(bool),
    "softmax(dim=0).sum(0)": np.ones(3),
    "logsumexp(dim=1, keepdim=True)": np.log(np.exp(X).sum(1, keepdims=True)),
    "relu()": X.clip(0),
    "sigmoid()": 1 / (1 + np.exp(-X)),
    "matmul(W)": X @ W,
    "mm(W)": X @ W,
    "norm()": np.linalg.norm(X),
    "argsort(dim=1)": X.argsort(axis=1).astype("int32"),
    "flip(dims=(0,))": X[::-1],
    "detach().copy().contiguous().block_until_ready()": X,
    "numel() * x": 6 * X,
    "dim() * x": 2 * X,
}


@pytest.mark.parametrize("call", METHODS)
def test_methods(call: str) -> None:
    (found,) = traced(lambda x: eval(f"x.{call}", {"x": x, "np": np, "X": X, "W": W}), X)
    tolerance = 1e-6 if found.dtype == np.float32 else 1e-12
    assert_close(found, METHODS[call], tolerance)


def test_missing_methods_say_what_to_write() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'add_'.\n.*\n.*x\[...\] = x.add\(...\)"
    ):
        probe(lambda x: x.sum().add_(1))  # of an element it would be lost
    with pytest.raises(AttributeError, match=r"'einsum'.\n.*\n  Write ftrans.numpy.einsum"):
        probe(lambda x: x.einsum("ij"))
    assert not probe(lambda x: hasattr(x, "nonsense"))
    with pytest.raises(TypeError, match="dim= and axis= are one argument"):
        probe(lambda x: x.sum(axis=0, dim=0))


def test_methods_that_write_in_place_as_those_of_tensors_do() -> None:
    def in_place(x: Any) -> Any:
        y = x.copy()
        y[1:].mul_(3)
        y[:1].zero_()
        assert y.sub_(1) is y
        return y.copy_(y * 2).add_(x)

    x = np.array([1.0, 2.0, 3.0])
    assert_close(func.vjp(in_place, x)[0], [-1.0, 12.0, 19.0])
    assert_close(func.jacrev(in_place)(x), np.diag([1.0, 7.0, 7.0]))
    assert_close(func.vmap(lambda x: x.copy().fill_(2.0))(np.ones((2, 3))), np.full((2, 3), 2.0))


def test_methods_carry_the_docstring_of_the_function() -> None:
    undocumented = [
        name
        for name in dir(Tracer)
        if not name.startswith("_")
        and callable(getattr(Tracer, name))
        and not getattr(Tracer, name).__doc__
        and name not in ("contiguous", "block_until_ready", "numpy", "numel", "dim")
    ]
    assert undocumented == []


# ------------------------------------------------------------------------------ NumPy's protocols


def test_ufuncs() -> None:
    check(lambda x: np.sin(x) + np.hypot(x, 1.0), np.sin(X) + np.hypot(X, 1.0))
    check(lambda x: np.add.reduce(x) + np.maximum.reduce(x), X.sum(0) + X.max(0))
    check(lambda x: np.multiply.reduce(x, axis=None), X.prod())
    check(lambda x: np.logical_or.reduce(x > 1, axis=1), (X > 1).any(1))
    check(lambda x: np.add.accumulate(x, axis=1), X.cumsum(1))
    check(lambda x: np.subtract.outer(V, x), np.subtract.outer(V, X))
    check(lambda x: np.matmul(x, W), X @ W)
    check(lambda x: np.divmod(x, 0.7)[1], X % 0.7)
    import scipy.special

    check(lambda x: scipy.special.expit(x), scipy.special.expit(X))


FUNCTIONS = {
    "np.sum(x, axis=0)": X.sum(0),
    "np.mean(x, axis=(0, 1), keepdims=True)": X.mean(keepdims=True),
    "np.vstack([x, X], casting='same_kind')": np.vstack([X, X]),
    "np.concatenate([x, X], axis=1)": np.concatenate([X, X], 1),
    "np.stack([x, X])": np.stack([X, X]),
    "np.where(x > 0, x, 0.0)": np.where(X > 0, X, 0.0),
    "np.clip(x, 0, 1)": X.clip(0, 1),
    "np.linalg.norm(x, axis=1)": np.linalg.norm(X, axis=1),
    "np.einsum('ij,jk->ik', x, W)": X @ W,
    "np.tensordot(x, W, 1)": X @ W,
    "np.dot(x, W)": X @ W,
    "np.zeros_like(x) + np.ones_like(x)": np.ones((2, 3)),
    "np.reshape(x, (3, 2))": X.reshape(3, 2),
    "np.transpose(x)": X.T,
    "np.moveaxis(x, 0, 1)": X.T,
    "np.broadcast_to(x, (2, 2, 3))": np.broadcast_to(X, (2, 2, 3)),
    "np.cumsum(x)": X.cumsum(),
    "np.median(x, axis=1)": np.median(X, axis=1),
    "np.sort(x, axis=1)": np.sort(X, axis=1),
    "np.argsort(x, axis=1).astype('int32')": np.argsort(X, axis=1).astype("int32"),
    "np.take(x, np.array([0, 2]), axis=1)": X[:, [0, 2]],
    "np.diff(x, axis=1)": np.diff(X, axis=1),
    "np.tril(x) + np.triu(x)": np.tril(X) + np.triu(X),
    "np.full_like(x, 2)": np.full((2, 3), 2.0),
    "np.linspace(0.0, x, 3)": np.linspace(0.0, X, 3),
    "np.max(x) * np.ptp(x) * np.var(x, ddof=1)": X.max() * np.ptp(X) * X.var(ddof=1),
    "x * np.shape(x)[0] * np.ndim(x) * np.size(x)": X * 24,
    "np.real(x) + np.imag(x)": X,
    "np.isclose(x, X)": np.ones((2, 3), bool),
    "np.nan_to_num(x) + np.angle(x)": X + np.angle(X),
}


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions_of_numpy(call: str) -> None:
    (found,) = traced(lambda x: eval(call, {"x": x, "np": np, "X": X, "W": W}), X)
    assert_close(found, FUNCTIONS[call], 1e-12)


def test_unmodified_numpy_code_is_differentiated() -> None:
    def f(x: Any) -> Any:
        h = np.tanh(x @ W + np.ones(2))
        return np.sum(np.where(h > 0, h, 0.1 * h) ** 2) / np.float64(3) + np.linalg.norm(x)

    gradient = func.grad(f)(X)
    step = 1e-6 * np.eye(6).reshape(6, 2, 3)
    slopes = [(f(X + s) - f(X - s)) / 2e-6 for s in step]
    assert_close(gradient.ravel(), slopes, 1e-7)
    assert isinstance(gradient, np.ndarray)


def test_what_is_not_supported_says_so() -> None:
    with pytest.raises(TypeError, match=r"np.real_if_close: there is.*\n  arguments: f64\[2,3\]"):
        probe(lambda x: np.real_if_close(x))
    with pytest.raises(TypeError, match=r"np.hypot.accumulate: there is no such function"):
        probe(lambda x: np.hypot.accumulate(x))
    with pytest.raises(TypeError, match=r"add\(..., out=x\): a plain array cannot hold"):
        probe(lambda x: np.add(x, 1, out=np.zeros((2, 3))))

    def in_place(x: Any) -> Any:
        y = np.zeros((2, 3))
        y += x
        return y

    with pytest.raises(TypeError, match=r"array \+= x: a plain array cannot be overwritten"):
        probe(in_place)
    assert probe(lambda x: x.__array_namespace__()) is fnp
    assert not hasattr(Tracer, "__jax_array__")


def test_plain_arrays_are_refused_where_they_would_cut_a_gradient() -> None:
    def offend(x: Any) -> Any:
        return np.asarray(x * 2)

    with pytest.raises(TracedArrayError) as error:
        func.grad(offend)(V)
    lines = str(error.value).split("\n")
    assert lines[0].startswith("np.asarray() of a traced value: it would become a plain array")
    assert lines[1].startswith("  value: f64[3], made at ")
    assert lines[1].endswith("(test_plain_arrays_are_refused_where_they_would_cut_a_gradient."
                             "<locals>.offend)")  # fmt: skip
    assert "converted at" in lines[2]
    assert "x.detach()" in lines[3]
    for convert in (np.array, lambda x: np.array([x, x]), lambda x: x.numpy(), np.asanyarray):
        with pytest.raises(TracedArrayError):
            probe(convert)


def test_a_function_of_the_name_of_a_distribution_is_no_generator() -> None:
    def mean(f: Any, x: Any) -> Any:  # there is a distribution named f
        return f([x[0], x[1]])

    with pytest.raises(TracedArrayError, match=r"^f\(\) of a traced value(.|\n)*values\)"):
        func.grad(lambda x: mean(np.mean, x))(V)


def test_plain_arrays_of_what_has_no_gradient() -> None:
    def f(x: Any) -> Any:
        scale = np.asarray(x.detach()).max() + np.asarray((x.detach() * 2).sum())
        order = V[np.asarray(fnp.argmax(x))] + V[fnp.argmax(x)] + np.asarray(x > 1.5).sum()
        inner = func.grad(lambda y: (y * np.asarray(x.detach())).sum())(V)
        return (x * scale * order).sum() + inner.sum()

    assert_close(func.grad(f)(V), np.full(3, 15.0 * 8))
    # detached in an outer function, but an argument of the inner one
    with pytest.raises(TracedArrayError):
        probe(lambda x: func.grad(lambda y: (y * np.asarray(y)).sum())(x.detach()), V)
    with pytest.raises(ConcretizationError):
        func.vmap(lambda x: np.asarray(x.detach()) * x)(V)


def test_namespace() -> None:
    assert len(set(fnp.__all__)) == len(fnp.__all__)
    missing = [name for name in fnp.__all__ if not hasattr(fnp, name)]
    assert missing == []
    undocumented = [
        n for n in fnp.__all__ if callable(getattr(fnp, n)) and not getattr(fnp, n).__doc__
    ]
    assert undocumented == []
    assert (fnp.newaxis, fnp.pi, fnp.bool) == (None, math.pi, np.bool_)
    assert ftrans.numpy is fnp


@pytest.mark.parametrize(
    "dtype", ["float32", np.dtype("float32"), np.float32, fnp.float32, np.ones(2, "f4")]
)
def test_conversion_to_a_dtype_in_every_spelling(dtype: Any) -> None:
    found = func.vmap(lambda x: x.to(dtype))(np.arange(3.0))
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("new_zeros", r"ftrans.numpy.zeros\(shape, x.dtype\)"),
        ("select", r"x\[:, i\]"),
        ("view_as", r"x.reshape\(other.shape\)"),
    ],
)
def test_a_method_of_pytorch_that_is_missing_says_what_to_write(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'.\n.*\n  Write {hint}"):
        func.vmap(lambda x: getattr(x, name))(np.arange(3.0))


def test_functions_that_are_numpys_alone_take_what_has_no_gradient() -> None:
    """As they took arrays that are closed over; what they are to write into is refused."""

    def f(x: Any, table: Any) -> Any:
        assert_close(np.real_if_close(x.detach()), V)
        assert_close(np.bincount(fnp.argsort(x)), [1, 1, 1])
        assert_close(np.add.reduceat(table, [0, 1]), [table[0], table[1:].sum()])
        with pytest.raises(UnsupportedError, match="there is no such function"):
            np.real_if_close(x)
        with pytest.raises(ValueError, match="read-only"):
            np.fill_diagonal(table[None, :], 0.0)
        return x.sum()

    func.grad(f)(V, V)
    found = func.vmap(lambda x, t: x * np.real_if_close(t)[0], in_dims=(0, None))
    assert_close(found(V, np.ones(2) / 2), V / 2)
    with pytest.raises(UnsupportedError, match="there is no such function"):
        func.vmap(np.real_if_close)(np.ones((2, 2)))


def test_functions_of_linalg_are_found_by_name() -> None:
    square = X[:, :2]
    check(lambda x: np.linalg.matrix_power(x, 3), square @ square @ square, square)
    check(lambda x: np.linalg.vector_norm(x), np.linalg.vector_norm(X))
    check(lambda x: np.linalg.outer(x[0], x[1]), np.outer(X[0], X[1]))
    check(lambda x: np.linalg.cross(x[0], x[1]), np.cross(X[0], X[1]))
    check(lambda x: np.linalg.matmul(x, x.T), X @ X.T)
    check(lambda x: np.linalg.tensordot(x, x, axes=2), np.tensordot(X, X))
    check(lambda x: np.linalg.vecdot(x, x), np.vecdot(X, X))
    stack = np.arange(24.0).reshape(2, 3, 4)
    for name in ("diagonal", "trace", "matrix_transpose"):
        function = getattr(np.linalg, name)
        check(lambda x, function=function: function(x), function(stack), stack)
    check(lambda x: np.linalg.diagonal(x, offset=1), np.linalg.diagonal(stack, offset=1), stack)
    check(lambda x: np.linalg.trace(x, offset=-1), np.linalg.trace(stack, offset=-1), stack)
