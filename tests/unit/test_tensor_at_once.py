"""What is small and needs no derivative: under `no_grad` it is computed at once, as if recorded."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import tensor
from ftrans.autograd import forward_ad, inference_mode, no_grad, profiler, set_detect_anomaly
from ftrans.errors import FtransError, GraphError
from tests.helpers import assert_close

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
COMPARISONS = [operator.lt, operator.ge, operator.eq, operator.ne]
METHODS = ["exp", "tanh", "sqrt", "log", "abs", "neg", "sign", "erf", "floor"]
VALUES = [
    np.array([0.5, -1.25, 2.0], "float32"),
    np.array([[np.inf, np.nan], [-0.0, 1e30]], "float32"),
    np.array([1e-300, -1e300, 3.0]),
    np.array(1.5),
    np.zeros((0, 3), "float32"),
    np.array([1.0, 6e4, -2.0], "float16"),
    np.array([1 + 2j, -0.5j, np.inf]),
]


@contextmanager
def recorded() -> Iterator[None]:
    """Has all operations recorded and interpreted in the block."""
    before, ftrans.config.execution = ftrans.config.execution, "interpret"
    try:
        yield
    finally:
        ftrans.config.execution = before


def runs() -> int:
    """Returns how many programs were run."""
    info = ftrans.cache_info()
    return info.interpreted + info.hits + info.misses


def both(compute: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns what is computed at once, which no program is run for, and what is recorded."""
    before = runs()
    with no_grad():
        now = compute()
        found = now.numpy()
        assert runs() == before, "a program was run"
        with recorded():
            expected = compute().numpy()
    return found, expected


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found.real), np.signbit(expected.real))


@pytest.mark.parametrize("function", [*OPERATORS, *COMPARISONS], ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", ["tensor", 2, 0, -1.5, 0.0, -0.0, 1e300, float("nan")])
def test_operators_give_what_they_give_when_recorded(function: Any, other: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in VALUES:
            x = tensor(value)
            y = tensor(value[::-1]) if value.ndim and other == "tensor" else other
            y = x if other == "tensor" and not value.ndim else y
            if function in (operator.lt, operator.ge) and value.dtype.kind == "c":
                continue
            for swap in (False, True):
                pair = (lambda x, y: (y, x)) if swap else (lambda x, y: (x, y))

                def compute(x: Any = x, y: Any = y, pair: Any = pair) -> Any:
                    return function(*pair(x, y))

                with no_grad():
                    now = compute().numpy()
                    with recorded():
                        expected = compute().numpy()
                assert_same(now, expected)


@pytest.mark.parametrize("name", METHODS)
def test_methods_give_what_they_give_when_recorded(name: str) -> None:
    for value in VALUES:
        if value.dtype.kind == "c" and name in ("sign", "erf", "floor"):
            continue
        x = tensor(value)
        found, expected = both(lambda x=x: getattr(x, name)())
        assert_same(found, expected)


def test_an_update_runs_no_program() -> None:
    x = tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)
    m = tensor(np.zeros((3, 4)))
    expected, velocity = x.detach().numpy().copy(), np.zeros((3, 4))
    for _ in range(3):
        (x * x).sum().backward()
        before = runs()
        with no_grad():
            m.mul_(0.9).add_(x.grad)
            x.sub_(m, alpha=0.1)
            x -= 0.01 * x.grad
            x.grad.zero_()
        assert runs() == before
        slope = 2 * expected
        velocity = 0.9 * velocity + slope
        expected = expected - 0.1 * velocity - 0.01 * slope
        assert_close(x.detach(), expected)
        assert x.is_leaf
        assert x.requires_grad
    assert x._version == 6
    assert not m.requires_grad


def test_what_was_recorded_before_keeps_what_it_saw() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    with no_grad():
        x *= 10.0
    z = (y * x).sum()
    z.backward()
    # y is of the x before: d(x0^2 x1) is 2 x0 x1 + x0^2, all gradients in one leaf
    assert_close(x.grad, np.array([2 * 1 * 10 + 1, 2 * 2 * 20 + 4]))


def test_other_names_and_views_see_a_write() -> None:
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    alias, flat, row = x.detach(), x.view(-1), x[0]
    with no_grad():
        x += 1.0
    assert_close(alias, [[2.0, 3.0], [4.0, 5.0]])
    assert_close(flat.detach(), [2.0, 3.0, 4.0, 5.0])
    assert_close(row.detach(), [2.0, 3.0])
    with no_grad():
        row *= 10.0
    assert_close(x.detach(), [[20.0, 30.0], [4.0, 5.0]])
    (flat * flat).sum().backward()
    assert_close(x.grad, [[40.0, 60.0], [8.0, 10.0]])


def test_results_are_names_of_their_own() -> None:
    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    with no_grad():
        z = x + y
        x.copy_(z)
        z.add_(1.0)
        w = z * 1.0
    z.mul_(2.0)
    assert_close(x, [4.0, 6.0])
    assert_close(w, [5.0, 7.0])
    assert_close(z, [10.0, 14.0])


def test_a_leaf_is_not_written_to_where_gradients_are_recorded() -> None:
    x = tensor([1.0], requires_grad=True)
    with no_grad():
        y = x * 2.0
    with pytest.raises(GraphError, match="leaf Variable that requires grad"):
        x.copy_(y)
    with pytest.raises(FtransError):
        x.zero_()


def test_a_result_that_requires_grad_keeps_its_history() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 3.0
    y.tolist()
    with no_grad():
        y.mul_(5.0)
    assert y.requires_grad
    (y * y).sum().backward()
    assert_close(x.grad, [2 * 15.0 * 3, 2 * 30.0 * 3])


def test_values_that_are_pending_large_or_of_jax_are_recorded() -> None:
    with no_grad():
        pending = tensor([[1.0, 2.0]]).sum(dim=0) + 1.0
        assert_close(pending, [2.0, 3.0])
        large = tensor(np.ones(1 << 15, "float32"))
        before = runs()
        assert (large + large).sum().item() == 1 << 16
        assert runs() > before
        y = tensor(jnp.ones(3)) * 2.0
        assert_close(y, [2.0, 2.0, 2.0])
        assert isinstance(y._v, jax.Array)


def test_who_looks_on_is_told() -> None:
    x = tensor([1.0, -1.0])
    with profiler.profile() as profile, no_grad():
        (x * 3.0).exp().tolist()
    assert {"mul", "exp"} <= {event.key for event in profile.key_averages()}
    with set_detect_anomaly(True), no_grad(), pytest.raises(FtransError, match="log"):
        x.log().tolist()


def test_tangents_go_through() -> None:
    with forward_ad.dual_level(), no_grad():
        x = forward_ad.make_dual(tensor([2.0]), tensor([1.0]))
        assert_close(forward_ad.unpack_dual(x * x).tangent, [4.0])


def test_inference_tensors_say_so() -> None:
    x = tensor([1.0])
    with inference_mode():
        y = x * 2.0
        z = tensor([1.0]).add_(1.0)
    assert y.is_inference()
    assert z.is_inference()
    with no_grad():
        assert not (x * 2.0).is_inference()


def test_inside_of_a_transform_it_is_not_traced() -> None:
    w = tensor([2.0])

    def loss(x: Any) -> Any:
        with no_grad():
            scale = w * 3.0
        return (x * scale).sum()

    assert_close(ftrans.func.grad(loss)(np.array([1.0], "float32")), [6.0])


def test_operands_that_do_not_fit_are_refused() -> None:
    x = tensor([1.0, 2.0])
    with no_grad():
        with pytest.raises(FtransError, match=r"f32\[2\]"):
            x + tensor([1.0, 2.0, 3.0])
        with pytest.raises(TypeError):
            x + object()
