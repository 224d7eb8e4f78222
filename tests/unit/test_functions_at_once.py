"""Functions of NumPy's arrays outside of transforms, when they are called again and again."""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import errors, nn
from ftrans.config import config
from ftrans.numpy import ready

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
OFTEN = ready._SEEN + 2


def again(function: Callable[[], Any]) -> list[Any]:
    return [function() for _ in range(OFTEN)]


def shift(x: Any) -> Any:
    return x - x.max(-1, keepdims=True)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: fnp.mean(X, 0), np.mean(X, 0)),
        (lambda: fnp.var(X, axis=1, keepdims=True), np.var(X, axis=1, keepdims=True)),
        (lambda: nn.softmax(X, -1), np.exp(shift(X)) / np.exp(shift(X)).sum(-1, keepdims=True)),
        (lambda: fnp.where(X > 0, X, 0), np.where(X > 0, X, 0)),
        (lambda: fnp.where(X > 0, X, -1.5), np.where(X > 0, X, -1.5)),
        (lambda: fnp.concatenate([X, X], 1), np.concatenate([X, X], 1)),
        (lambda: fnp.einsum("ij,kj->ik", X, X), X @ X.T),
        (lambda: fnp.take(X, np.array([2, 0]), 1), X[:, [2, 0]]),
        (lambda: fnp.sum(X.astype("int8"), dtype="int64"), np.sum(X.astype("int8"), dtype="int64")),
        (lambda: fnp.cumsum(X, 1), np.cumsum(X, 1)),
    ],
)
def test_is_the_same_at_each_call(function: Callable[[], Any], expected: np.ndarray) -> None:
    for found in again(function):
        assert type(found) is np.ndarray
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_what_it_was_made_of_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for scale in (1, 1.0, True, -0.0, 0.0):
        for found in again(lambda scale=scale: fnp.divide(X, fnp.multiply(X, scale))):
            np.testing.assert_array_equal(found, ftrans.jit(lambda x: x / (x * scale))(X))  # noqa: B023
    for name in ("float32", "float64", "float32"):
        monkeypatch.setattr(config, "default_dtype", np.dtype(name))
        assert {x.dtype.name for x in again(lambda: fnp.mean(np.arange(3)))} == {name}


def test_results_are_the_callers_own() -> None:
    def rows(x: Any) -> Any:
        return fnp.broadcast_to(fnp.sum(x, 0), (2, 3))

    x = X.copy()
    for function in (fnp.cumsum, fnp.sum, nn.relu, lambda x: fnp.moveaxis(fnp.exp(x), 0, 1)):
        for found in again(lambda function=function: function(x)):
            assert found.flags.writeable
            assert not np.shares_memory(found, x)
    found = again(lambda: fnp.unstack(fnp.multiply(x, 2)))
    found[-1][0][...] = 7
    np.testing.assert_array_equal(found[-2][0], 2 * x[0])
    assert rows(x).shape == (2, 3)


def test_views_stay_views() -> None:
    for function in (fnp.ravel, fnp.transpose, lambda x: fnp.split(x, 2)[0], fnp.asarray):
        x = X.copy()
        for found in again(lambda function=function, x=x: function(x)):
            assert np.shares_memory(found, x)


def test_writes_reach_the_array_at_each_call() -> None:
    x = np.zeros(3)
    for i in range(OFTEN):
        fnp.put_along_axis(x, np.array([1]), np.array([float(i)]), 0)
        fnp.add(x, 1.0, out=x)
        np.testing.assert_array_equal(x, [i + 1, i + 1, i + 1])


@pytest.mark.parametrize(
    ("function", "fine", "bad", "error"),
    [
        (lambda w: fnp.average(X[0], weights=w), [1.0, 2.0, 3.0], [1.0, -1.0, 0.0], ValueError),
        (lambda x: fnp.nanargmin(x), [1.0, np.nan, 0.0], [np.nan] * 3, ValueError),
        (lambda q: fnp.quantile(X, q), [0.5, 0.25], [0.5, 1.5], ValueError),
        (lambda q: fnp.percentile(X, q), [50.0, 25.0], [50.0, 101.0], ValueError),
        (lambda a: fnp.linalg.inv(a), np.eye(2), np.ones((2, 2)), np.linalg.LinAlgError),
        (lambda a: fnp.linalg.cholesky(a), np.eye(2), -np.eye(2), np.linalg.LinAlgError),
        (lambda i: fnp.take(X, i, 0), [0, 1], [0, 2], IndexError),
        (lambda i: fnp.take_along_axis(X[0], i, 0), [0, 1], [0, 3], IndexError),
        (lambda t: nn.cross_entropy(X, t), [0, 2], [0, 3], errors.IndexingError),
        (lambda i: nn.embedding(i, X), [0, 1], [0, 2], IndexError),
        (lambda i: nn.one_hot(i, 3), [0, 1], [0, 3], errors.FtransError),
        (lambda v: nn.gaussian_nll_loss(X[0], X[0], v), [1.0, 2, 3], [1.0, -1, 1], ValueError),
    ],
)
def test_values_are_refused_also_after_many_calls(
    function: Callable[[Any], Any], fine: Any, bad: Any, error: type[Exception]
) -> None:
    fine, bad = np.asarray(fine), np.asarray(bad)
    expected = again(lambda: function(fine))
    with pytest.raises(error):
        function(bad)
    np.testing.assert_array_equal(function(fine), expected[0])


def test_where_results_lie_is_asked_at_each_call() -> None:
    assert {type(x) for x in again(lambda: fnp.zeros_like(X))} == {np.ndarray}
    with_device = again(lambda: fnp.zeros_like(X, device="cpu"))
    assert all(isinstance(x, jax.Array) for x in with_device)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fnp.sum([np.ones(3, "f4"), np.ones(3, "i4")]),
        lambda: fnp.mean([np.ones(3, "i1"), [2, 2, 2]], 0),
        lambda: nn.elu(np.ones(3, "f4"), np.array(2)),
        lambda: nn.normalize(np.ones((4, 3), "f4").T),
        lambda: fnp.sum(np.ones(3, "f4"), initial=np.array(2.0)),
    ],
)
def test_dtypes_and_layouts_are_those_of_the_first_call(call: Callable[[], Any]) -> None:
    assert len({(x.dtype, x.shape, x.strides) for x in again(call)}) == 1


def test_what_is_refused_is_refused_at_each_call() -> None:
    x = np.ones(3, "f4")
    for call in (lambda: nn.softmax(x, 0, x), lambda: fnp.sum(x, 0, x), lambda: fnp.copy(x, 1.5)):
        for _ in range(OFTEN):
            with pytest.raises(TypeError):
                call()


def test_draws_are_new_at_each_call() -> None:
    ftrans.random.manual_seed(0)
    drawn = again(lambda: nn.dropout(np.ones(64), 0.5))
    assert len({x.tobytes() for x in drawn}) == OFTEN


def test_functions_of_the_users_are_called_at_each_call() -> None:
    seen = []
    for _ in range(OFTEN):
        fnp.apply_along_axis(lambda row: seen.append(1) or row.sum(), 1, X)
    assert len(seen) >= OFTEN


def test_arrays_that_are_not_computed_with_are_refused_at_each_call() -> None:
    again(lambda: fnp.sin(X))
    for x in (X.astype(">f8"), X.astype(np.longdouble), X.astype(object)):
        for _ in range(OFTEN):
            with pytest.raises(errors.DTypeError):
                fnp.sin(x)


def test_in_transforms_nothing_is_computed_beside_them() -> None:
    def loss(x: Any) -> Any:
        return fnp.sum(fnp.multiply(x, nn.softmax(X, -1)))

    for gradient in again(lambda: ftrans.func.grad(loss)(X)):
        np.testing.assert_allclose(gradient, nn.softmax(X, -1))
    for jitted in again(lambda: ftrans.jit(loss)(X)):
        np.testing.assert_allclose(jitted, loss(X))


def test_programs_that_do_something_else_are_found_by_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = [1.0]

    def scaled(x: Any) -> Any:
        return fnp.multiply(x, scale[0])

    again(lambda: ready.of_arrays(scaled, (X,), {}))
    scale[0] = 2.0
    monkeypatch.setattr(config, "check", True)
    with pytest.raises(errors.CheckError, match="has changed"):
        ready.of_arrays(scaled, (X,), {})


# ------------------------------------------------------------------------------- arrays of JAX's


@pytest.mark.parametrize(
    "function",
    [
        lambda x: fnp.mean(x, 0),
        lambda x: nn.softmax(x, -1),
        lambda x: fnp.where(fnp.greater(x, 0), x, 0.0),
        lambda x: fnp.cumsum(x, 1),
        lambda x: fnp.exp(x),
        lambda x: fnp.reshape(x, (3, 2)),
        lambda x: fnp.concatenate([x, X], 1),
        lambda x: fnp.take(x, np.array([2, 0]), 1),
        lambda x: fnp.sort(x, 0),
        lambda x: fnp.isnan(fnp.astype(x, "int32")),
    ],
)
def test_arrays_of_jax_give_the_same(function: Callable[[Any], Any]) -> None:
    """The numbers are NumPy's at each call: as in a transform, small arrays are computed by it."""
    for dtype in ("float32", "float64"):
        with jax.enable_x64(True):
            x = jax.numpy.asarray(X, dtype)
        expected = function(X.astype(dtype))
        found = again(lambda x=x: function(x))
        assert len({type(y) for y in found}) == 1
        for y in found:
            assert y.dtype == expected.dtype
            np.testing.assert_array_equal(y, expected)
    with jax.enable_x64(True):
        np.testing.assert_allclose(found[-1], function(jax.numpy.tile(x, (1, 1))), rtol=1e-15)


def test_nothing_is_compiled_for_small_arrays_of_jax() -> None:
    compiled: list[str] = []
    told = lambda event, seconds, **_: compiled.append(event)  # noqa: E731
    x = jax.numpy.asarray(np.arange(35.0, dtype="float32").reshape(5, 7))
    jax.monitoring.register_event_duration_secs_listener(told)
    try:
        again(lambda: fnp.add(fnp.var(fnp.exp(x), 0), fnp.max(fnp.cumsum(x, 1))))
    finally:
        jax.monitoring.unregister_event_duration_listener(told)
    assert not [event for event in compiled if "backend_compile" in event]


def test_what_jax_traces_is_left_to_it() -> None:
    constant = jax.numpy.asarray(X, "float32")
    again(lambda: fnp.exp(constant))
    traced = jax.jit(lambda x: fnp.sum(x * fnp.exp(constant)))
    np.testing.assert_allclose(traced(constant), np.sum(X * np.exp(X)), rtol=1e-6)
    slope = jax.grad(lambda x: fnp.sum(fnp.exp(x) * fnp.exp(constant)))(constant)
    np.testing.assert_allclose(slope, np.exp(2 * X), rtol=1e-5)


def test_large_arrays_of_jax_are_left_to_it() -> None:
    x = jax.numpy.arange(40_000.0).reshape(200, 200)
    for found in again(lambda: fnp.mean(x, 0)):
        assert isinstance(found, jax.Array)
        np.testing.assert_allclose(found, np.mean(np.asarray(x), 0), rtol=1e-6)


def test_what_becomes_large_is_left_to_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    by_numpy: list[str] = []
    run = importlib.import_module("ftrans.runtime.run")
    at_once = run._at_once

    def noted(primitive: Any, *args: Any) -> Any:
        by_numpy.append(primitive.name)
        return at_once(primitive, *args)

    monkeypatch.setattr(run, "_at_once", noted)
    x = jax.numpy.arange(300.0)
    np.testing.assert_allclose(fnp.outer(x, x), np.outer(x, x))
    assert not {"broadcast", "mul", "dot"} & {*by_numpy}
    np.testing.assert_allclose(fnp.outer(x[:9], x[:9]), np.outer(x[:9], x[:9]))
    assert {"mul", "dot"} & {*by_numpy}


def test_values_of_arrays_of_jax_are_refused() -> None:
    labels = jax.numpy.asarray([0, 2])
    x = jax.numpy.asarray(X, "float32")
    again(lambda: nn.cross_entropy(x, labels))
    with pytest.raises(errors.IndexingError):
        nn.cross_entropy(x, labels + 1)
