"""`backward` on a pending loss, where values on the way were asked for before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import Tensor, autograd, tensor
from ftrans.autograd import grad, no_grad
from ftrans.errors import GraphError
from tests.helpers import assert_close

AT = np.array([0.5, 1.25, -0.75])


def leaf(value: Any = AT) -> Tensor:
    """Returns f64, a leaf that requires grad."""
    return tensor(value, dtype="float64", requires_grad=True)


def chained(xp: Any, x: Any, look: Callable[[Any], Any], times: int) -> Any:
    """Returns a scalar of a vector, after `times` values have been looked at."""
    y = xp.sin(x) * x
    for k in range(times):
        look(y)
        y = xp.exp(-y * y) + xp.cos(y * 0.5) * x + (0.1 + k)
    return xp.sum(xp.tanh(y) * x)


def slope_of(times: int) -> np.ndarray:
    """Returns the gradient of `chained`, as JAX computes it."""
    with jax.enable_x64(True):
        found = jax.grad(lambda x: chained(jnp, x, lambda y: None, times))(AT)
        return np.asarray(found)


@pytest.mark.parametrize("times", range(7))
def test_values_on_the_way_are_asked_for(times: int) -> None:
    x = leaf()
    for _ in range(3):
        x.grad = None
        chained(Tensor, x, lambda y: y.tolist(), times).backward()
        assert_close(x.grad, slope_of(times))


def test_a_leaf_that_comes_in_late_is_added_up() -> None:
    x, w = leaf(), leaf([2.0, 3.0, 4.0])
    y = x * w
    y.tolist()
    z = y * x + w
    z.tolist()
    (z * w * x).sum().backward()
    at, by = AT, np.array([2.0, 3.0, 4.0])
    assert_close(x.grad, 3 * at**2 * by**2 + by**2)
    assert_close(w.grad, 2 * at**3 * by + 2 * by * at)


def test_results_of_one_program_are_used_apart_and_together() -> None:
    x = leaf()
    y, z, other = x * 2.0, x.sin(), x.cos()
    z.tolist()
    (y * z + y * y).sum().backward()
    assert_close(x.grad, 2 * np.sin(AT) + 2 * AT * np.cos(AT) + 8 * AT)
    with pytest.raises(GraphError, match="a second time"):
        (z * 1.0).sum().backward()
    other.sum().backward()  # nobody has gone back through that
    assert_close(x.grad, 2 * np.sin(AT) + 2 * AT * np.cos(AT) + 8 * AT - np.sin(AT))


def test_what_it_goes_back_through_is_freed() -> None:
    x = leaf()
    y = x.exp()
    y.tolist()
    (y * y).sum().backward()
    with pytest.raises(GraphError, match=r"freed by backward\(\) at .*test_tensor_ahead"):
        (y * 3.0).sum().backward()


def test_what_was_freed_before_is_an_error_and_nothing_is_accumulated() -> None:
    x = leaf()
    y = x.exp()
    y.tolist()
    y.sum().backward()
    x.grad = None
    loss = (y * y).sum()
    with pytest.raises(GraphError, match="a second time"):
        loss.backward()
    assert x.grad is None


@pytest.mark.parametrize("late", [False, True])
def test_a_hook_on_what_was_asked_for_is_called(late: bool) -> None:
    x, seen = leaf(), list[Any]()

    def hook(ct: Tensor) -> Tensor:
        seen.append(ct.tolist())
        return ct * 2.0

    y = x.exp()
    if not late:
        y.register_hook(hook)
    y.tolist()
    if late:
        y.register_hook(hook)
    (y * y).sum().backward()
    assert_close(seen, [2 * np.exp(AT)])
    assert_close(x.grad, 4 * np.exp(2 * AT))


def test_a_gradient_that_is_kept_of_what_was_asked_for() -> None:
    x = leaf()
    y = x.exp()
    y.retain_grad()
    z = y * x
    z.tolist()
    (z * y).sum().backward()
    assert_close(y.grad, 2 * np.exp(AT) * AT)
    assert_close(x.grad, np.exp(2 * AT) * (1 + 2 * AT))


def test_hooks_of_leaves_are_called_once_with_all_of_it() -> None:
    x, seen = leaf(), list[Any]()
    x.register_hook(lambda ct: seen.append(ct.tolist()))
    x.register_post_accumulate_grad_hook(lambda x: seen.append("accumulated"))
    y = x.sin()
    y.tolist()
    (y * x).sum().backward()
    assert_close(seen[0], np.cos(AT) * AT + np.sin(AT))
    assert seen[1:] == ["accumulated"]


def test_a_hook_of_several_leaves_waits_for_those_behind() -> None:
    x, w, seen = leaf(), leaf(), list[Any]()
    autograd.graph.register_multi_grad_hook((x, w), lambda cts: seen.append(len(cts)))
    y = x.sin()
    y.tolist()
    (y * w).sum().backward()
    assert seen == [2]


def test_what_another_thread_frees_meanwhile() -> None:
    for _ in range(20):
        x = leaf()
        y = x.exp()
        y.tolist()
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(lambda: (y * 2.0).sum().backward()) for _ in range(4)]  # noqa: B023
        errors = [error for future in found if (error := future.exception()) is not None]
        assert all("a second time" in str(error) for error in errors)
        assert_close(x.grad, (4 - len(errors)) * 2 * np.exp(AT))


def test_parts_under_no_grad_and_detached_are_no_way() -> None:
    x = leaf()
    y = x.exp()
    y.tolist()
    with no_grad():
        still = y * x
    still.tolist()
    (y.detach() * x + still * y).sum().backward()
    assert_close(x.grad, np.exp(AT) + AT * np.exp(2 * AT))


def test_gradients_of_gradients_of_what_was_asked_for() -> None:
    x = leaf()
    y = x.sin()
    y.tolist()
    (slope,) = grad((y * y).sum(), x, create_graph=True)
    slope.tolist()
    (slope * x).sum().backward()
    assert_close(x.grad, np.sin(2 * AT) + 2 * AT * np.cos(2 * AT))


def test_complex_values_on_the_way() -> None:
    z = tensor([1.0 + 2.0j, -0.5 + 1.0j], requires_grad=True)
    y = z * z
    y.tolist()
    (y * y.conj()).real.sum().backward()
    at = np.array([1.0 + 2.0j, -0.5 + 1.0j])
    assert_close(z.grad, 4 * at * np.abs(at) ** 2)  # the convention is PyTorch's


def test_values_in_jax_arrays() -> None:
    x = tensor(jnp.asarray(AT, "float32"), requires_grad=True)
    y = x.sin()
    y.tolist()
    (y * x).sum().backward()
    assert isinstance(x.grad._v, jax.Array)  # on the device of x
    assert_close(x.grad, (np.cos(AT) * AT + np.sin(AT)).astype(np.float32))


def test_a_loop_finds_its_programs_again() -> None:
    x = leaf()

    def step() -> None:
        loss = chained(Tensor, x, lambda y: y.tolist(), 2)
        loss.backward()
        with no_grad():
            x.sub_(0.0 * x.grad)  # type: ignore[operator]
        x.grad = None

    for _ in range(4):
        step()
    before = ftrans.cache_info().misses
    for _ in range(5):
        step()
    assert ftrans.cache_info().misses == before


def test_several_hooks_on_pending_values_add_up() -> None:
    """Each goes on by a program of its own, which adds to what has arrived before."""
    x, seen = leaf(), list[Any]()
    y = x.sin() + x
    y.register_hook(lambda ct: seen.append("y"))
    z = y * x
    z.register_hook(lambda ct: ct * 2.0)
    w = z * y + x
    w.register_hook(lambda ct: seen.append("w"))
    (w * x + y).sum().backward()
    t, dt = np.sin(AT) + AT, np.cos(AT) + 1
    ct_w = AT
    ct_z = 2 * ct_w * t
    ct_y = 1 + ct_w * t * AT + ct_z * AT
    assert_close(x.grad, t * AT * t + AT + ct_w + ct_z * t + ct_y * dt)
    assert seen == ["w", "y"]


def test_results_of_two_programs_come_together() -> None:
    x = leaf()
    y = x.sin()
    y.tolist()
    z = y * y * x
    z.tolist()
    (z * y + y * x).sum().backward()
    s, c = np.sin(AT), np.cos(AT)
    assert_close(x.grad, s**3 + 3 * AT * s**2 * c + s + AT * c)


def test_a_leaf_is_zero_where_the_way_is_cut_before_it() -> None:
    x, w = leaf(), leaf()
    y = x.floor() + w
    y.tolist()
    (y * y).sum().backward()
    assert_close(x.grad, np.zeros(3))
    assert_close(w.grad, 2 * (np.floor(AT) + AT))


def test_nothing_arrives_at_one_of_several_hooks() -> None:
    x, seen = leaf(), list[Any]()
    z = x * 1.0
    w = z.cos()
    w.register_hook(lambda ct: seen.append("w"))
    y = z.sin()
    y.register_hook(lambda ct: seen.append("y"))
    (y.floor() + w).sum().backward()
    assert seen == ["w"]
    assert_close(x.grad, -np.sin(AT))


class Still(autograd.Function):
    """Has a tangent of zeros, whatever it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return np.zeros(3)


class Silent(autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return None


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("function", [Still, Silent])
def test_a_hook_behind_which_nothing_has_a_gradient(function: Any, asked: bool) -> None:
    x, seen = leaf(), list[Any]()
    y = function.apply(x)
    if asked:
        y.tolist()
    y.register_hook(lambda ct: seen.append(ct.tolist()))
    (y * 3.0 + x).sum().backward()
    assert seen == [[3.0] * 3]
    assert_close(x.grad, np.ones(3))


def test_a_hook_puts_one_on_a_node_behind_it() -> None:
    x, seen = leaf(), list[Any]()
    y = x.sin() * x

    def hook(ct: Tensor) -> None:
        node = y.grad_fn.next_functions[0][0]
        node.register_hook(lambda grads, outputs: seen.append(node.name()))

    y.register_hook(hook)
    (y * 3.0).sum().backward()
    assert seen == ["SinBackward0"]
    assert_close(x.grad, 3 * (np.cos(AT) * AT + np.sin(AT)))
