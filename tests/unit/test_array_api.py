"""What the array API asks of the namespace, beyond NumPy's own functions."""

from __future__ import annotations

import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ShapeError
from ftrans.ir import Tracer
from tests.helpers import assert_close

V = np.array([3.0, 1.0, 3.0])

# of the standard of 2024.12, without the extension fft and the factorisations of linalg
NAMES = """
    e inf nan newaxis pi __array_api_version__ __array_namespace_info__
    arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like
    tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert
    bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp
    expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal
    log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum
    multiply negative not_equal positive pow real reciprocal remainder round sign signbit sin sinh
    square sqrt subtract tan tanh trunc
    take take_along_axis matmul matrix_transpose tensordot vecdot broadcast_arrays broadcast_to
    broadcast_shapes concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack
    tile unstack argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts
    unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std
    sum var all any diff
    linalg.cross linalg.diagonal linalg.matmul linalg.matrix_norm linalg.matrix_power
    linalg.matrix_transpose linalg.outer linalg.tensordot linalg.trace linalg.vecdot
    linalg.vector_norm
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_names_are_there(name: str) -> None:
    home, _, last = name.rpartition(".")
    namespace = fnp.linalg if home else fnp
    assert hasattr(namespace, last)
    assert last in namespace.__all__


def test_a_traced_value_leads_to_the_namespace() -> None:
    seen = []
    func.grad(lambda x: seen.append(x.__array_namespace__()) or x)(1.0)
    assert seen == [fnp]


def test_what_the_namespace_says_of_itself() -> None:
    info = fnp.__array_namespace_info__()
    assert set(info.dtypes()) <= set(fnp.__all__)
    assert all(np.dtype(getattr(fnp, name)) == dtype for name, dtype in info.dtypes().items())
    assert list(info.dtypes(kind=("bool", "complex floating"))) == [
        "bool",
        "complex64",
        "complex128",
    ]
    defaults = info.default_dtypes()
    assert defaults["real floating"] == fnp.zeros(3).dtype == ftrans.get_default_dtype()
    assert defaults["complex floating"] == fnp.asarray(1j).dtype
    assert defaults["integral"] == fnp.arange(3).dtype
    assert defaults["indexing"] == fnp.argsort(V).dtype
    assert info.default_device() is None
    ftrans.set_default_device(jax.devices()[0])
    try:
        assert info.default_device() == next(iter(fnp.zeros(3).devices())) == jax.devices()[0]
    finally:
        ftrans.set_default_device(None)
    assert None in info.devices()
    assert jax.devices()[0] in info.devices()
    assert info.capabilities()["max dimensions"] >= np.zeros((1,) * 64).ndim


def test_results_have_names() -> None:
    found, expected = fnp.unique_all(V), np.unique_all(V)
    for name in ("values", "indices", "inverse_indices", "counts"):
        assert_close(getattr(found, name), getattr(expected, name))
    assert_close(fnp.unique_counts(V).counts, [1, 2])
    assert_close(fnp.unique_inverse(V).inverse_indices, [1, 0, 1])
    assert_close(func.grad(lambda x: (fnp.unique_all(x).values ** 2).sum())(V), [6.0, 2.0, 0.0])


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_arguments_of_logic_have_names(name: str) -> None:
    function = getattr(fnp, name)
    assert list(inspect.signature(function).parameters) == ["x1", "x2"]
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert_close(function(x2=y, x1=x), getattr(np, name)(x, y))
    assert_close(func.vmap(lambda x, y: function(x1=x, x2=y))(x, y), getattr(np, name)(x, y))


NUMBERS = fnp.__array_namespace_info__().dtypes(kind="numeric")


@pytest.mark.parametrize("name", [*NUMBERS, "float16"])
def test_dtypes_are_numpys_and_convert_traced_values(name: str) -> None:
    dtype, theirs = getattr(fnp, name), getattr(np, name)
    assert dtype == theirs
    assert theirs == dtype
    assert dtype != fnp.bool
    assert len({dtype, theirs}) == 1
    assert np.dtype(dtype) == dtype == np.zeros(2, dtype).dtype == np.dtype(theirs)
    assert issubclass(dtype, theirs)
    assert isinstance(theirs(1), dtype)
    assert not isinstance(np.bool_(1), dtype)
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert type(dtype(1)) is theirs
    assert dtype() == theirs()
    assert fnp.asarray(V, dtype).dtype == theirs
    for function in (dtype, lambda x: dtype([x, x])[0], lambda x: x.astype(dtype)):
        found = func.vmap(function)(V)
        assert found.dtype == theirs
        assert_close(found, V.astype(theirs))
    assert isinstance(dtype(jnp.arange(3)), jax.Array)


def test_a_dtype_that_converts_keeps_the_gradient() -> None:
    x = np.float64(3.0)
    assert_close(func.grad(lambda x: fnp.float32(x) * x)(x), 6.0)
    seen = []
    func.grad(lambda x: seen.append(type(fnp.float64(x))) or x)(x)
    assert seen == [Tracer]


def test_shapes_that_broadcast() -> None:
    assert fnp.broadcast_shapes((3, 1), 4, ()) == (3, 4)
    with pytest.raises(ShapeError, match=r"shapes do not broadcast\.\n  shapes: \(3,\), \(4,\)"):
        fnp.broadcast_shapes((3,), (4,))
