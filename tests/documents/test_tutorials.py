"""Programs in the way of PyTorch's tutorials, against closed forms and NumPy."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans.torch.func import hessian, jacfwd, jacrev, jvp, vjp, vmap
from tests.helpers import assert_close

# ---------------------------------------------------------- a gentle introduction to torch.autograd


def test_differentiation_in_autograd() -> None:
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    b = torch.tensor([6.0, 4.0], requires_grad=True)
    Q = 3 * a**3 - b**2
    external_grad = torch.tensor([1.0, 1.0])
    Q.backward(gradient=external_grad)
    assert (9 * a**2 == a.grad).tolist() == [True, True]
    assert (-2 * b == b.grad).tolist() == [True, True]


def test_one_step_of_training() -> None:
    torch.manual_seed(0)
    data, labels = torch.rand(4, 3), torch.rand(4, 2)
    w = torch.randn(2, 3, requires_grad=True)
    prediction = F.linear(data, w)
    loss = (prediction - labels).sum()
    loss.backward()
    assert_close(w.grad.numpy(), np.tile(data.numpy().sum(0), (2, 1)))


def test_exclusion_from_the_graph() -> None:
    x, y = torch.rand(5, 5), torch.rand(5, 5)
    z = torch.rand((5, 5), requires_grad=True)
    assert not (x + y).requires_grad
    assert (x + z).requires_grad


# ----------------------------------------------- neural networks from scratch: sine by a polynomial


def sine(count: int = 200) -> tuple[Any, Any]:
    x = torch.linspace(-math.pi, math.pi, count, dtype=torch.float)
    return x, torch.sin(x)


def fitted_by_numpy(steps: int, rate: float, start: np.ndarray) -> np.ndarray:
    x = np.linspace(-math.pi, math.pi, 200)
    powers = np.stack([x**i for i in range(4)])
    w = start.astype(np.float64)
    for _ in range(steps):
        w = w - rate * powers @ (2.0 * (w @ powers - np.sin(x)))
    return w


START = np.array([0.5, -0.3, 0.2, -0.1], np.float32)


def test_polynomial_by_tensors() -> None:
    device = torch.device("cpu")
    x, y = sine()
    a, b, c, d = (torch.tensor(v, device=device) for v in START)
    learning_rate = 1e-5
    for _ in range(100):
        y_pred = a + b * x + c * x**2 + d * x**3
        grad_y_pred = 2.0 * (y_pred - y)
        grad_a = grad_y_pred.sum()
        grad_b = (grad_y_pred * x).sum()
        grad_c = (grad_y_pred * x**2).sum()
        grad_d = (grad_y_pred * x**3).sum()
        a -= learning_rate * grad_a
        b -= learning_rate * grad_b
        c -= learning_rate * grad_c
        d -= learning_rate * grad_d
    found = np.array([v.item() for v in (a, b, c, d)])
    np.testing.assert_allclose(found, fitted_by_numpy(100, learning_rate, START), rtol=1e-4)


def test_polynomial_by_autograd() -> None:
    x, y = sine()
    weights = [torch.tensor(v, requires_grad=True) for v in START]
    a, b, c, d = weights
    learning_rate = 1e-5
    for _ in range(100):
        y_pred = a + b * x + c * x**2 + d * x**3
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for w in weights:
                w -= learning_rate * w.grad
                w.grad = None
    found = np.array([v.item() for v in weights])
    np.testing.assert_allclose(found, fitted_by_numpy(100, learning_rate, START), rtol=1e-4)


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any) -> Any:
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


def test_polynomial_by_a_function() -> None:
    x, y = sine(2000)
    a = torch.full((), 0.0, requires_grad=True)
    b = torch.full((), -1.0, requires_grad=True)
    c = torch.full((), 0.0, requires_grad=True)
    d = torch.full((), 0.3, requires_grad=True)
    learning_rate = 5e-6
    for _ in range(2000):
        P3 = LegendrePolynomial3.apply
        y_pred = a + b * P3(c + d * x)
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for w in (a, b, c, d):
                w -= learning_rate * w.grad
                w.grad = None
    # as the tutorial prints: y = 0.0 + -2.2 * P3(0.0 + 0.26 x), with the loss 8.9
    assert abs(b.item() + 2.2) < 0.05
    assert abs(d.item() - 0.255) < 0.01
    assert abs(a.item()) < 1e-3
    assert abs(c.item()) < 1e-3
    assert loss.item() == pytest.approx(8.9, abs=0.1)


# ----------------------------------------------------------------- Jacobians, Hessians and products


def predict(weight: Any, bias: Any, x: Any) -> Any:
    return F.linear(x, weight, bias).tanh()


D = 8


@pytest.fixture
def layer() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return torch.randn(D, D), torch.randn(D), torch.randn(D)


def test_jacobians_in_five_ways(layer: tuple[Any, Any, Any]) -> None:
    weight, bias, x = layer
    W, b, v = (t.numpy().astype(np.float64) for t in layer)
    expected = (1.0 - np.tanh(W @ v + b) ** 2)[:, None] * W

    xp = x.clone().requires_grad_()
    unit_vectors = torch.eye(D)
    rows = [torch.autograd.grad(predict(weight, bias, xp), xp, vec)[0] for vec in unit_vectors]
    _, vjp_fn = vjp(partial(predict, weight, bias), x)
    (by_vmap,) = vmap(vjp_fn)(unit_vectors)
    ways = [
        torch.stack(rows),
        by_vmap,
        jacrev(predict, argnums=2)(weight, bias, x),
        jacfwd(predict, argnums=2)(weight, bias, x),
        torch.autograd.functional.jacobian(partial(predict, weight, bias), x),
    ]
    for found in ways:
        np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=1e-4, atol=1e-5)


def test_hessians_batch_by_batch(layer: tuple[Any, Any, Any]) -> None:
    weight, bias, _ = layer
    x = torch.randn(3, D)
    f = lambda x: predict(weight, bias, x).sum()  # noqa: E731
    found = vmap(hessian(f))(x)
    W, b = weight.numpy().astype(np.float64), bias.numpy().astype(np.float64)
    t = np.tanh(x.numpy().astype(np.float64) @ W.T + b)
    expected = np.einsum("ni,ij,ik->njk", -2.0 * t * (1.0 - t**2), W, W)
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=1e-3, atol=1e-4)
    assert torch.allclose(found, vmap(jacfwd(jacfwd(f)))(x), atol=1e-5)
    assert torch.allclose(found, vmap(jacrev(jacrev(f)))(x), atol=1e-5)


def test_hessian_vector_product() -> None:
    x, v = torch.randn(6), torch.randn(6)
    f = lambda x: x.sin().sum()  # noqa: E731
    _, found = jvp(torch.func.grad(f), (x,), (v,))
    assert torch.allclose(found, -torch.sin(x) * v)


# ----------------------------------------------------------------------------- per-sample gradients


def network(params: dict[str, Any], x: Any) -> Any:
    x = torch.relu(F.linear(x, params["w1"], params["b1"]))
    return F.log_softmax(F.linear(x, params["w2"], params["b2"]), dim=-1)


def compute_loss(params: dict[str, Any], sample: Any, target: Any) -> Any:
    predictions = network(params, torch.unsqueeze(sample, 0))
    return F.nll_loss(predictions, torch.unsqueeze(target, 0))


def parameters(requires_grad: bool = False) -> dict[str, Any]:
    torch.manual_seed(1)
    shapes = {"w1": (7, 5), "b1": (7,), "w2": (3, 7), "b2": (3,)}
    return {k: torch.randn(s, requires_grad=requires_grad) for k, s in shapes.items()}


def test_per_sample_gradients_are_those_of_a_loop() -> None:
    params = parameters(requires_grad=True)
    data, targets = torch.randn(6, 5), torch.randint(0, 3, (6,))

    def compute_grad(sample: Any, target: Any) -> Any:
        loss = compute_loss(params, sample, target)
        return torch.autograd.grad(loss, list(params.values()))

    each = [compute_grad(data[i], targets[i]) for i in range(6)]
    by_loop = [torch.stack(found) for found in zip(*each, strict=True)]
    fixed = {k: v.detach() for k, v in params.items()}
    by_vmap = vmap(torch.func.grad(compute_loss), in_dims=(None, 0, 0))(fixed, data, targets)
    for name, one in by_vmap.items():
        expected = by_loop[list(params).index(name)]
        assert torch.allclose(one, expected, atol=1e-5), name


# --------------------------------------------------------------------------- neural tangent kernels


def empirical_ntk_jacobian_contraction(f: Any, params: Any, x1: Any, x2: Any) -> Any:
    jac1 = [j.flatten(2) for j in vmap(jacrev(f), (None, 0))(params, x1).values()]
    jac2 = [j.flatten(2) for j in vmap(jacrev(f), (None, 0))(params, x2).values()]
    each = [torch.einsum("Naf,Mbf->NMab", a, b) for a, b in zip(jac1, jac2, strict=True)]
    return torch.stack(each).sum(0)


def empirical_ntk_ntk_vps(func: Any, params: Any, x1: Any, x2: Any) -> Any:
    def get_ntk(x1: Any, x2: Any) -> Any:
        output, vjp_fn = vjp(lambda params: func(params, x1), params)

        def get_ntk_slice(vec: Any) -> Any:
            vjps = vjp_fn(vec)
            _, jvps = jvp(lambda params: func(params, x2), (params,), vjps)
            return jvps

        return vmap(get_ntk_slice)(torch.eye(output.numel()))

    return vmap(vmap(get_ntk, (None, 0)), (0, None))(x1, x2)


def test_neural_tangent_kernels_agree() -> None:
    params = parameters()
    x1, x2 = torch.randn(4, 5), torch.randn(3, 5)
    by_contraction = empirical_ntk_jacobian_contraction(network, params, x1, x2)
    by_products = empirical_ntk_ntk_vps(network, params, x1, x2)
    assert by_contraction.shape == (4, 3, 3, 3)
    assert torch.allclose(by_contraction, by_products, atol=1e-3, rtol=1e-4)


def test_the_kernel_of_a_linear_function() -> None:
    # d/dw (w x) = x, for each output: the kernel is (x1 . x2) times the identity
    x1, x2 = torch.randn(4, 5), torch.randn(3, 5)
    linear = lambda params, x: F.linear(x, params["w"])  # noqa: E731
    found = empirical_ntk_ntk_vps(linear, {"w": torch.randn(2, 5)}, x1, x2)
    inner = x1.numpy() @ x2.numpy().T
    np.testing.assert_allclose(
        found.numpy(), inner[:, :, None, None] * np.eye(2, dtype=np.float32), rtol=1e-4
    )
