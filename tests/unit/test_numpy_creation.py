"""Creation functions: values and dtypes of NumPy's, containers and devices."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ArgumentError, ShapeError
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
    assert type(eager) is np.ndarray
    eager[...] = eager  # it can be written to
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
    x, on_device = np.ones(3), jax.numpy.ones(3)
    assert fnp.asarray(x) is x
    assert fnp.asarray(on_device) is on_device
    for copy in (fnp.array(x), fnp.asarray(x, copy=True), fnp.astype(x, "float64")):
        assert type(copy) is np.ndarray
        assert not np.shares_memory(copy, x)
    assert isinstance(fnp.array(on_device), jax.Array)
    assert type(fnp.asarray(x, "float32")) is np.ndarray
    for like in (fnp.zeros_like, fnp.ones_like, lambda y: fnp.full_like(y, 2.0)):
        assert type(like(x)) is np.ndarray
        assert isinstance(like(on_device), jax.Array)
        assert type(like([1.0])) is np.ndarray
    gradient = func.grad(lambda x: (x * (fnp.zeros(3) + fnp.asarray(np.ones(3)))).sum())
    assert type(gradient(x)) is np.ndarray
    assert isinstance(gradient(on_device), jax.Array)


def test_operators_on_what_is_created_keep_their_digits() -> None:
    made = fnp.asarray([0.1, 0.2], "float64")
    assert (made * 0.1).dtype == np.float64
    np.testing.assert_array_equal(made * 0.1, np.array([0.1, 0.2]) * 0.1)


CREATION: dict[str, Any] = {
    "asarray": lambda **o: fnp.asarray([1.0, 2.0], **o),
    "asarray of an array": lambda **o: fnp.asarray(np.ones(2), **o),
    "array": lambda **o: fnp.array([1, 2], **o),
    "zeros": lambda **o: fnp.zeros(2, **o),
    "ones": lambda **o: fnp.ones(2, **o),
    "empty": lambda **o: fnp.empty(2, **o),
    "full": lambda **o: fnp.full(2, 0.5, **o),
    "full of an array": lambda **o: fnp.full(2, np.ones(2), **o),
    "arange": lambda **o: fnp.arange(3, **o),
    "linspace": lambda **o: fnp.linspace(0.0, 1.0, 3, **o),
    "linspace between arrays": lambda **o: fnp.linspace(np.zeros(2), np.ones(2), 3, **o),
    "eye": lambda **o: fnp.eye(2, **o),
    "zeros_like": lambda **o: fnp.zeros_like(np.ones(2), **o),
    "full_like": lambda **o: fnp.full_like(np.ones(2), 0.5, **o),
    "astype": lambda **o: fnp.astype(np.ones(2), "float32", **o),
    "from_dlpack": lambda **o: fnp.from_dlpack(np.ones(2), **o),
}
OF_ARRAYS = {"linspace between arrays", "full of an array", "zeros_like", "full_like", "astype"}


@pytest.mark.parametrize("name", CREATION)
def test_a_device_is_asked_for_each_time(name: str) -> None:
    plain = CREATION[name]()
    assert type(plain) is np.ndarray
    (first, *_) = jax.devices()
    for device in ("cpu", first, jax.sharding.SingleDeviceSharding(first)):
        placed = CREATION[name](device=device)
        assert isinstance(placed, jax.Array)
        assert placed.dtype == plain.dtype
        assert placed.devices() == {first}
        np.testing.assert_array_equal(placed, plain)
    inside = func.grad(lambda x: (x * CREATION[name](device="cpu").sum()).sum())(np.ones(2))
    assert type(inside) is np.ndarray
    np.testing.assert_allclose(inside, plain.sum())


@pytest.mark.parametrize("name", CREATION)
def test_a_device_is_asked_for_once(name: str) -> None:
    (first, *_) = jax.devices()
    assert ftrans.get_default_device() is None
    ftrans.set_default_device("cpu")
    try:
        assert ftrans.get_default_device() == first
        found = CREATION[name]()
        given = jax.numpy.ones(2)
        assert fnp.asarray(given) is given
        gradient = func.grad(lambda x: (x * CREATION[name]().sum()).sum())(np.ones(2))
    finally:
        ftrans.set_default_device(None)
    assert type(gradient) is np.ndarray
    assert isinstance(found, np.ndarray if name in OF_ARRAYS else jax.Array)
    assert type(CREATION[name]()) is np.ndarray


def test_what_is_put_on_a_device_is_a_copy() -> None:
    x = np.ones(1 << 12)
    placed = fnp.asarray(x, device="cpu")
    x[:] = 7
    np.testing.assert_array_equal(placed, np.ones(1 << 12))


def test_devices_that_there_are_not() -> None:
    with pytest.raises(ArgumentError) as error:
        fnp.zeros(2, device="gpu")
    assert str(error.value) == (
        "JAX finds no device of this platform.\n  device: 'gpu'\n  Write device='cpu'."
    )
    with pytest.raises(ArgumentError) as error:
        ftrans.set_default_device(3)
    assert str(error.value) == (
        "A device is a jax.Device, a jax.sharding.Sharding or the name of a platform.\n"
        "  device: 3 (int)\n"
        "  Write device=jax.devices()[0], or device='cpu'; device=None asks for none."
    )
    assert ftrans.get_default_device() is None


def test_creation_does_not_start_jax() -> None:
    """Which takes seconds where there is an accelerator."""
    code = (
        "import ftrans, ftrans.numpy as fnp, numpy as np, jax\n"
        "fnp.zeros(3), fnp.arange(3), fnp.eye(2), fnp.asarray([1.0]), fnp.linspace(0, 1, 3)\n"
        "fnp.asarray(np.ones(2)), fnp.geomspace(1, 2, 3), fnp.meshgrid([1, 2], [3]), fnp.tri(2)\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()\n"
        "fnp.zeros(3, device='cpu')\n"
        "assert xla_bridge.backends_are_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


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


@pytest.mark.parametrize("name", ["tril", "triu", "tri", "eye"])
def test_the_number_of_a_diagonal_may_be_traced(name: str) -> None:
    args = (np.arange(9.0).reshape(3, 3),) if name in ("tril", "triu") else (3, 3)
    expected = [getattr(np, name)(*args, k) for k in (-1, 0, 2)]
    of = lambda k: getattr(fnp, name)(*args, k)  # noqa: E731
    for k, matrix in zip((-1, 0, 2), expected, strict=True):
        assert_close(of(np.int64(k)), matrix)
        assert_close(ftrans.jit(of)(k), matrix)
    assert_close(func.vmap(of)(np.array([-1, 0, 2])), np.stack(expected))


def test_errors() -> None:
    with pytest.raises(ShapeError, match="full: a size is negative"):
        fnp.zeros((2, -1))
    with pytest.raises(ShapeError, match=r"tril: takes matrices.\n  x: f64\[3\]"):
        fnp.tril(np.ones(3))
    with pytest.raises(ValueError, match="indexing is 'xy' or 'ij'"):
        fnp.meshgrid(np.ones(2), indexing="yx")
