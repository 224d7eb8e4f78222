"""Gradients by `grad`, and of cotangents that are given, run as one program with their root."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor, tensor
from ftrans import numpy as fnp
from ftrans.autograd import grad
from ftrans.errors import GraphError
from ftrans.interpreters import simplify
from ftrans.interpreters.fused import fused
from ftrans.interpreters.passage import passage
from tests.helpers import assert_close


def leaf(value: Any) -> Tensor:
    return tensor(np.array(value, "float64"), requires_grad=True)


def plain(value: Any) -> Tensor:
    return tensor(np.array(value, "float64"))


def _net(w: Any, b: Any, data: Any) -> Any:
    return (data * w).tanh() * b


def _slopes(w: np.ndarray, b: np.ndarray, data: np.ndarray, ct: Any) -> list[np.ndarray]:
    """Returns the derivatives of `_net` by w and b."""
    t = np.tanh(data * w)
    return [ct * (1 - t**2) * data * b, ct * t]


W, B, DATA, CT = [0.5, -1.5], [2.0, 0.25], [1.0, 3.0], [4.0, -1.0]
EXPECTED = _slopes(*map(np.array, (W, B, DATA, CT)))


@pytest.mark.parametrize("asked", ["w", "b", "bw", "wb"])
@pytest.mark.parametrize("cotangent", ["there", "pending", "listed", "of the other dtype"])
def test_grad_of_what_is_pending_is_one_program(cotangent: str, asked: str) -> None:
    w, b, data, ct = leaf(W), leaf(B), plain(DATA), plain(CT)
    for _ in range(3):
        out = _net(w, b, data)
        given = ct * 2 - ct if cotangent == "pending" else ct
        given = given.to("float32") if cotangent == "of the other dtype" else given
        given = [given] if cotangent == "listed" else given
        inputs = [{"w": w, "b": b}[name] for name in asked]
        before = ftrans.cache_info().interpreted
        found = grad(out, inputs, grad_outputs=given)
        if cotangent in ("there", "listed"):
            assert ftrans.cache_info().interpreted == before + 1
        for name, x in zip(asked, found, strict=True):
            assert_close(x, EXPECTED["wb".index(name)])
            assert not x.requires_grad
        assert (w.grad, b.grad) == (None, None)
        with pytest.raises(GraphError, match="a second time"):
            grad(out, w, grad_outputs=ct)


def test_backward_with_a_gradient_is_one_program() -> None:
    w, b, data, ct = leaf(W), leaf(B), plain(DATA), plain(CT)
    for kind in ("all", "some", "all"):
        w.grad = b.grad = None
        out = _net(w, b, data)
        before = ftrans.cache_info().interpreted
        out.backward(ct, inputs=[b] if kind == "some" else None)
        assert ftrans.cache_info().interpreted == before + 1
        assert_close(b.grad, EXPECTED[1])
        if kind == "some":
            assert w.grad is None
        else:
            assert_close(w.grad, EXPECTED[0])


def test_what_leads_to_nothing_that_is_asked_for_is_not_gone_through() -> None:
    w, b, other = leaf(W), leaf(B), leaf(W)
    out = _net(w, b, plain(DATA)).sum()
    assert grad(out, other, allow_unused=True) == (None,)
    assert_close(grad(out, other, materialize_grads=True)[0], np.zeros(2))
    with pytest.raises(GraphError, match="to not have been used in the graph"):
        grad(out, other)
    out.backward()  # nothing was freed, as in PyTorch
    assert_close(b.grad, _slopes(*map(np.array, (W, B, DATA)), 1.0)[1])


def test_a_gradient_by_some_is_not_taken_for_that_by_all() -> None:
    w, b, data = leaf(W), leaf(B), plain(DATA)
    expected = _slopes(*map(np.array, (W, B, DATA)), 1.0)
    for _ in range(4):
        out = _net(w, b, data)
        loss = out.sum()
        value = loss.item()  # from the second time on run with the derivative, by all
        assert_close(value, np.tanh(np.array(DATA) * W) @ B)
        assert_close(grad(loss, w, retain_graph=True)[0], expected[0])
        loss.backward()
        assert_close(b.grad, expected[1])
        w.grad = b.grad = None

        total = (w + b).sum()  # saves nothing: its graph stays
        assert_close(grad(total, w, grad_outputs=plain(3.0))[0], np.full(2, 3.0))
        total.backward()
        assert_close(w.grad, np.ones(2))
        assert_close(b.grad, np.ones(2))
        w.grad = b.grad = None


def test_a_pending_gradient_that_requires_grad_is_a_constant() -> None:
    w, b, c = leaf(W), leaf(B), leaf(CT)
    out, ct = _net(w, b, plain(DATA)), c * 1.0
    (slope,) = grad(out, w, grad_outputs=ct)
    assert_close(slope, EXPECTED[0])
    assert not slope.requires_grad
    ct.sum().backward()
    assert_close(c.grad, np.ones(2))


def test_hooks_see_what_is_run_with_its_root() -> None:
    w, b, data = leaf(W), leaf(B), plain(DATA)
    w.register_hook(lambda ct: ct * 10)
    for _ in range(3):
        assert_close(
            grad(_net(w, b, data).sum(), w)[0], 10 * _slopes(*map(np.array, (W, B, DATA)), 1.0)[0]
        )
        seen: list[Any] = []
        inner = data * w
        inner.register_hook(lambda ct, seen=seen: seen.append(ct.numpy()))
        (slope,) = grad((inner.tanh() * b).sum(), b)
        assert_close(slope, np.tanh(np.array(DATA) * W))
        assert not seen  # it is on no way to what is asked for
        inner = data * w
        inner.register_hook(lambda ct, seen=seen: seen.append(ct.numpy()))
        grad((inner.tanh() * b).sum(), w)
        assert len(seen) == 1


def test_no_more_is_computed_than_is_asked_for() -> None:
    w, x = np.ones((2, 3)), np.ones(3)
    program = ftrans.trace(lambda w, x: fnp.tanh(w @ x))(w, x)

    def products(found: Any) -> int:
        return sum(e.primitive.name == "dot" for e in simplify(found.program).equations)

    both, one = (True, True), (False, True)
    assert products(fused(program, both, 0, seeded=True)) == 3
    assert products(fused(program, both, 0, wanted=one, seeded=True)) == 2
    assert products(passage(program, both, frozenset({0}))) == 2
    assert products(passage(program, both, frozenset({0}), one)) == 1


A, C = [1.0, 2.0], [3.0, 4.0]
ASKED: dict[str, tuple[Any, str, Any]] = {
    # what is computed, what is asked for in turn, and what PyTorch gives: None is its error
    "apart": (lambda a, b: (a**2 + b**2).sum(), "ab", ([2.0, 4.0], [6.0, 8.0])),
    "once more": (lambda a, b: (a**2 + b**2).sum(), "aba", ([2.0, 4.0], [6.0, 8.0], None)),
    "saves nothing": (lambda a, b: (a - b).sum(), "aab", ([1.0, 1.0], [1.0, 1.0], [-1.0, -1.0])),
    "what is shared": (
        lambda a, b: (a * b).exp().sum(),
        "ab",
        ([3.0 * np.exp(3), 4 * np.exp(8)], None),
    ),
    "a product": (lambda a, b: (a * b).sum(), "ba", ([1.0, 2.0], None)),
    "a factor": (lambda a, b: (a * 3.0 + b / 2.0).sum(), "aba", ([3.0, 3.0], [0.5, 0.5], None)),
    "an index": (lambda a, b: (a[[0, 1]] + b.abs()).sum(), "aba", ([1.0, 1.0], [1.0, 1.0], None)),
    "a choice": (lambda a, b: fnp.where(CHOSEN, a, b).sum(), "ab", ([1.0, 0.0], None)),
}
CHOSEN = np.array([True, False])


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("by_backward", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_what_some_were_asked_of_is_there_for_others(
    name: str, by_backward: bool, before: bool
) -> None:
    """A walk to some leaves frees what it has gone through, and nothing else, as in PyTorch."""
    compute, turns, expected = ASKED[name]
    for _ in range(3):
        leaves = {"a": leaf(A), "b": leaf(C)}
        loss = compute(*leaves.values())
        if before:
            loss.item()
        for turn, wanted in zip(turns, expected, strict=True):
            x = leaves[turn]
            x.grad = None
            if wanted is None:
                with pytest.raises(GraphError, match="a second time"):
                    grad(loss, x)
            elif by_backward:
                loss.backward(inputs=[x])
                assert_close(x.grad, np.array(wanted))
            else:
                assert_close(grad(loss, x)[0], np.array(wanted))


def test_what_some_were_asked_of_is_freed_for_all() -> None:
    a, b = leaf(A), leaf(C)
    loss = (a.sin() + b.exp()).sum()
    grad(loss, a)
    with pytest.raises(GraphError, match="a second time"):
        loss.backward()
    assert (a.grad, b.grad) == (None, None)
    assert_close(grad(loss, b)[0], np.exp(np.array(C)))
    with pytest.raises(GraphError, match="a second time"):
        grad(loss, b)
