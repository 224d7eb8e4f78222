"""Creation functions: values and dtypes of NumPy's, and the containers of section 7."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ShapeError
from ftrans.ir import Tracer
from tests.helpers import assert_close
from tests.unit.front_end import traced

# what is called, how, and whether NumPy's numbers are the same to the last digit
CALLS: list[tuple[str, tuple, dict[str, Any]]] = [
    ("zeros", ((2, 3),), {}),
    ("zeros", (3,), {"dtype": np.int8}),
    ("ones", ((),), {}),
    ("ones", ((0, 2),), {"dtype": bool}),
    ("full", (2, 7), {}),
    ("full", ((2, 2), 1.5), {"dtype": "float16"}),
    ("full", ((2, 2), np.array([1.0, 2.0])), {}),
    ("full", ((2,), 1 + 2j), {}),
    ("arange", (5,), {}),
    ("arange", (2, 9, 3), {}),
    ("arange", (5, 0, -2), {}),
    ("arange", (3, 3), {}),
    ("arange", (0.0, 1.0, 0.25), {}),
    ("arange", (4,), {"dtype": "float64"}),
    ("linspace", (0.0, 1.0), {"num": 5}),
    ("linspace", (3, -1, 4), {"endpoint": False}),
    ("linspace", (0.0, 1.0, 1), {}),
    ("linspace", (0.0, 1.0, 0), {}),
    ("linspace", (np.zeros(2), np.array([1.0, 3.0]), 3), {"axis": 1}),
    ("linspace", (0, 5, 4), {"dtype": int}),
    ("logspace", (0.0, 2.0, 3), {}),
    ("logspace", (0.0, 3.0, 4), {"base": 2.0}),
    ("geomspace", (1.0, 1000.0, 4), {}),
    ("geomspace", (-8.0, -1.0, 4), {}),
    ("eye", (3,), {}),
    ("eye", (2, 4), {"k": 1, "dtype": int}),
    ("eye", (3,), {"k": -2}),
    ("identity", (2,), {}),
    ("tri", (3, 4), {"k": 1}),
    ("indices", ((2, 3),), {}),
    ("indices", ((),), {}),
]


@pytest.mark.parametrize(("name", "args", "options"), CALLS)
def test_values(name: str, args: tuple, options: dict[str, Any]) -> None:
    expected = np.asarray(getattr(np, name)(*args, **options))
    function = getattr(fnp, name)
    eager = function(*args, **options)
    if not any(isinstance(a, np.ndarray) for a in args):
        assert isinstance(eager, jax.Array)
    again = traced(lambda x: fnp.asarray(function(*args, **options)), np.zeros(1))[0]
    for found in (np.asarray(eager), again):
        if "dtype" in options and options["dtype"] is not int:
            assert found.dtype == np.dtype(options["dtype"])
        assert found.dtype.kind == expected.dtype.kind
        assert_close(found, expected.astype(found.dtype), 1e-6)


def test_float64_is_kept() -> None:
    assert fnp.zeros(2, "float64").dtype == np.float64
    assert fnp.asarray(np.ones(2)).dtype == np.float64
    assert fnp.asarray([1.0, 2.0]).dtype == np.float32
    assert fnp.array([1, 2]).dtype == np.int32
    assert fnp.array([[1.0, 2j]]).dtype == np.complex64
    assert fnp.full(2, np.float64(3.0)).dtype == np.float64


def test_containers() -> None:
    x = np.ones(3)
    assert isinstance(fnp.asarray(x), jax.Array)
    assert isinstance(fnp.asarray([1.0]), jax.Array)
    assert isinstance(fnp.zeros_like(x), np.ndarray)
    assert isinstance(fnp.zeros_like(fnp.asarray(x)), jax.Array)
    assert isinstance(fnp.diag(x), np.ndarray)
    gradient = func.grad(lambda x: (x * (fnp.zeros(3) + fnp.asarray(np.ones(3)))).sum())(x)
    assert isinstance(gradient, np.ndarray)
    assert isinstance(func.grad(lambda x: fnp.sum(x))(fnp.asarray(x)), jax.Array)


def test_creation_while_tracing_gives_traced_values() -> None:
    def f(x: Any) -> Any:
        made = [
            fnp.zeros(3), fnp.arange(3), fnp.eye(3)[0], fnp.asarray([1.0, 2.0, 3.0]),
            fnp.asarray(np.ones(3)), fnp.linspace(0.0, 1.0, 3), fnp.zeros_like(x),
        ]  # fmt: skip
        assert all(isinstance(y, Tracer) for y in made)
        assert fnp.asarray(x) is x
        assert fnp.array(x) is not x
        return sum((x * y).sum() for y in made)

    expected = sum(
        [np.zeros(3), np.arange(3), [1, 0, 0], [1, 2, 3], np.ones(3), [0, 0.5, 1], np.zeros(3)]
    )
    assert_close(func.grad(f)(np.ones(3)), np.asarray(expected, float))


def test_sequences_that_hold_traced_values() -> None:
    gradient = func.grad(lambda x: (fnp.array([x, 2.0 * x, 1.0]) ** 2).sum())(np.float64(3.0))
    assert float(gradient) == 30.0
    nested = func.grad(lambda x: fnp.array([[x, 1.0], [0.0, x]]).sum())(np.float64(3.0))
    assert float(nested) == 2.0


def test_from_traced_values() -> None:
    x = np.float64(2.0)
    assert float(func.grad(lambda x: fnp.full((2, 2), x).sum())(x)) == 4.0
    assert float(func.grad(lambda x: fnp.linspace(0.0, x, 5).sum())(x)) == pytest.approx(2.5)
    assert float(func.grad(lambda x: fnp.geomspace(1.0, x, 3).sum())(x)) == pytest.approx(
        1 + 0.5 / np.sqrt(2.0)
    )
    assert fnp.arange(func.grad(lambda x: x * x)(1.5)).shape == (3,)


@pytest.mark.parametrize("k", [-3, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
def test_parts_of_matrices(shape: tuple[int, int], k: int) -> None:
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    for name in ("tril", "triu", "diag"):
        for array in (x, x[0]) if name == "diag" else (x, np.stack([x, -x])):
            f, g = getattr(fnp, name), getattr(np, name)
            assert_close(f(array, k), g(array, k))
            assert_close(traced(lambda a, f=f: f(a, k), array)[0], g(array, k))
    assert_close(fnp.diagflat(x, k), np.diagflat(x, k))
    assert_close(fnp.diag(np.zeros(0), k), np.diag(np.zeros(0), k))
    weights = np.random.default_rng(0).normal(size=fnp.diag(x[0], k).shape)
    found = func.grad(lambda v: (fnp.diag(v, k) * weights).sum())(x[0])
    assert_close(found, np.diag(weights, k))


def test_meshgrid_and_likes() -> None:
    x, y, z = np.arange(3.0), np.arange(2), np.arange(4.0)
    for options in ({}, {"indexing": "ij"}, {"sparse": True}, {"indexing": "ij", "sparse": True}):
        for arrays in ((x, y), (x, y, z), (x,)):
            ours, theirs = fnp.meshgrid(*arrays, **options), np.meshgrid(*arrays, **options)
            for a, b in zip(ours, theirs, strict=True):
                assert_close(a, b)
    assert_close(fnp.ones_like(y, dtype="float16"), np.ones(2, "float16"))
    assert_close(fnp.full_like(x, 7), np.full(3, 7.0))
    assert fnp.empty_like(x, shape=(2, 2)).shape == (2, 2)
    sparse = fnp.indices((2, 3), sparse=True)
    assert [s.shape for s in sparse] == [(2, 1), (1, 3)]


def test_dtypes() -> None:
    assert fnp.result_type("float32", np.ones(2)) == np.float64
    assert fnp.result_type(fnp.bfloat16, 1.0) == fnp.bfloat16
    assert fnp.promote_types("float32", "int64") == np.float32
    assert fnp.can_cast("int8", "int16")
    assert not fnp.can_cast(np.ones(2), "float32")
    assert fnp.isdtype(fnp.uint8, ("signed integer", "unsigned integer"))
    assert not fnp.isdtype(fnp.float32, "integral")
    assert fnp.finfo(fnp.bfloat16).bits == 16
    assert fnp.iinfo(np.ones(2, "int8")).max == 127
    assert fnp.astype(np.array([1.5 + 2j]), "float32").tolist() == [1.5]
    assert (fnp.shape([[1, 2]]), fnp.ndim(3), fnp.size(np.ones((2, 3)), 1)) == ((1, 2), 0, 3)


def test_errors() -> None:
    with pytest.raises(ShapeError, match="full: a size is negative"):
        fnp.zeros((2, -1))
    with pytest.raises(ShapeError, match=r"tril: takes matrices.\n  x: f64\[3\]"):
        fnp.tril(np.ones(3))
    with pytest.raises(ValueError, match="indexing is 'xy' or 'ij'"):
        fnp.meshgrid(np.ones(2), indexing="yx")
