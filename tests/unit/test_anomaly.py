"""Anomaly mode: what makes a NaN raises, and says where."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func, tensor
from ftrans.autograd import (
    Function,
    detect_anomaly,
    grad,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from ftrans.errors import AnomalyError
from tests.helpers import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")


@pytest.fixture(autouse=True)
def _off_again() -> Iterator[None]:
    yield
    assert not is_anomaly_enabled()
    assert not ftrans.config.check_nan


def test_a_gradient_that_is_nan_raises() -> None:
    x = tensor([-1.0, 4.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values"):
        x.sqrt().sum().backward()


def test_the_error_names_the_line() -> None:
    x = tensor([0.0, 4.0], requires_grad=True)
    y = x.sqrt()  # fine
    root = y * 0.0  # the line of the product
    with detect_anomaly(), pytest.raises(AnomalyError) as found:
        root.sum().backward()
    assert "fine" in str(found.value) or "the line of the product" in str(found.value)
    assert __file__ in str(found.value.__cause__)
    assert "forward call that caused the error" in str(found.value.__cause__)


def test_a_masked_nan_is_found_where_it_is_made() -> None:
    x = tensor([0.0, 1.0], requires_grad=True)
    ratio = x / x
    with detect_anomaly():
        fnp.where(x > 0, ratio, 0.0).sum().backward()  # the gradient does not see it
        with pytest.raises(AnomalyError, match=r"ratio = x / x"):
            ratio.tolist()
    assert x.grad.tolist() == [0.0, 0.0]


def test_without_check_nan_nothing_raises() -> None:
    x = tensor([-1.0], requires_grad=True)
    with detect_anomaly(check_nan=False):
        assert is_anomaly_enabled()
        assert not is_anomaly_check_nan_enabled()
        x.sqrt().sum().backward()
    assert np.isnan(x.grad.item())


def test_values_of_the_forward_pass() -> None:
    with detect_anomaly(), pytest.raises(AnomalyError, match="'log' returned nan values"):
        tensor([-1.0]).log().tolist()


def test_nan_that_comes_in() -> None:
    x = tensor([np.nan, 1.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError, match="inputs that have some: 0: f32"):
        (x * x).sum().backward()


@pytest.mark.parametrize(
    "transform",
    [
        func.grad,
        lambda f: ftrans.jit(func.grad(f)),
        lambda f: lambda x: func.vmap(func.grad(f))(x[None]),
        func.hessian,
        func.jacfwd,
        lambda f: lambda x: func.vjp(f, x)[1](np.float64(1.0)),
        lambda f: lambda x: func.jvp(f, (x,), (x,)),
    ],
)
def test_under_transforms(transform: Any) -> None:
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"np\.sqrt\(x\)"):
        transform(lambda x: np.sqrt(x).sum())(np.array([-1.0, 2.0]))


def test_in_a_function() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * float("nan")

    x = tensor([1.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"ct \* float"):
        Wrong.apply(x).sum().backward()


def test_infinity_is_no_nan() -> None:
    x = tensor([0.0], requires_grad=True)
    with detect_anomaly():
        x.sqrt().sum().backward()
    assert np.isinf(x.grad.item())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_dtypes(dtype: str) -> None:
    x = tensor([1.0], dtype=dtype)
    with detect_anomaly():
        assert (x + 1).tolist() == [2.0]
        with pytest.raises(AnomalyError):
            (x / 0 * 0).tolist()


def test_modes_nest_and_are_restored() -> None:
    with detect_anomaly():
        assert is_anomaly_enabled()
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
        assert is_anomaly_enabled()
        with pytest.raises(KeyError), detect_anomaly(check_nan=False):
            raise KeyError
        assert is_anomaly_check_nan_enabled()
    set_detect_anomaly(True)
    assert is_anomaly_enabled()
    set_detect_anomaly(False)


def test_it_says_that_it_is_slow() -> None:
    with pytest.warns(UserWarning, match="should only be enabled for debugging"):
        detect_anomaly()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        set_detect_anomaly(False)


def test_nodes_say_where_they_were_recorded() -> None:
    x = tensor([1.0], requires_grad=True)
    y = x.exp()
    assert y.grad_fn.metadata == {}
    with set_detect_anomaly(True):
        assert "y = x.exp()" in "".join(y.grad_fn.metadata["traceback_"])


def test_what_was_computed_before_an_error_is_there() -> None:
    x = tensor([-1.0], requires_grad=True)
    fine, wrong = x * 2.0, x.sqrt()
    with detect_anomaly(), pytest.raises(AnomalyError):
        wrong.tolist()
    assert fine.tolist() == [-2.0]
    (found,) = grad(fine.sum(), x)
    assert found.tolist() == [2.0]


def test_under_jit_a_function_means_what_it_meant() -> None:
    def f(x: Any) -> Any:
        x[0] = 7.0
        return x.exp()

    given = np.ones(2)
    with set_detect_anomaly(True):
        assert_close(ftrans.jit(f)(given), np.exp([7.0, 1.0]))
        assert given.tolist() == [1.0, 1.0]
        with pytest.raises(AnomalyError):
            ftrans.jit(np.log)(np.array([-1.0]))
        scaled = ftrans.jit(lambda x, n: np.log(x) * n)
        with pytest.raises(AnomalyError, match="scaled = ftrans"):
            scaled(np.array([-1.0, 1.0]), 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ftrans.cond(True, np.sqrt, lambda c: c, x),
        lambda x: ftrans.fori_loop(0, 3, lambda i, c: np.sqrt(c), x),
        lambda x: ftrans.scan(lambda c, _: (np.sqrt(c), c), x, np.zeros(2))[0],
        lambda x: func.vmap(lambda y: ftrans.cond(y < 0, np.sqrt, lambda c: c, y))(x),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_in_control_flow(call: Any, jit: bool) -> None:
    call = ftrans.jit(call) if jit else call
    with set_detect_anomaly(True), pytest.raises(AnomalyError):
        call(np.array([-1.0]))
    with set_detect_anomaly(True):
        assert call(np.array([1.0])).tolist() == [1.0]


def test_names_are_those_of_nodes() -> None:
    x = tensor([0.0], requires_grad=True)
    y = x / x
    assert y.grad_fn.name() == "DivBackward0"
    x = tensor([0.0], requires_grad=True)
    with set_detect_anomaly(True), pytest.raises(AnomalyError, match="'DivBackward0'"):
        (x / x).sum().backward()
