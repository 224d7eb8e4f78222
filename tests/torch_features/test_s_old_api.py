"""The API of PyTorch before 0.4, row by row of what its documents name."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import Function, Variable
from tests.torch_suite.common import leaf, same


def test_s1_old_arguments_of_backward() -> None:
    """Differs: `retain_variables` is still taken, for `retain_graph`, with the `FutureWarning`."""
    x = leaf([1.0, 2.0])
    y, ones = x * x, torch.ones(2, dtype=torch.float64)
    with pytest.warns(FutureWarning, match="grad_variables"):
        torch.autograd.backward(y, grad_variables=ones, retain_graph=True)
    same(x.grad, [2.0, 4.0])
    with pytest.warns(FutureWarning, match="Use `retain_graph`"):
        torch.autograd.backward(y, ones, retain_variables=True)
    torch.autograd.backward(y, ones)
    same(x.grad, [6.0, 12.0])
    with pytest.raises(RuntimeError, match="grad_tensors and grad_variables"):
        torch.autograd.backward(x * x, ones, grad_variables=ones)


def test_s2_create_graph_is_false_by_default() -> None:
    """Works."""
    p = leaf([1.0, 2.0])
    ones = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(p**2, p, ones)
    assert not g.requires_grad
    same(g, [2.0, 4.0])


def test_s3_only_inputs() -> None:
    """Works."""
    p, q = leaf(1.0), leaf(2.0)
    with pytest.warns(FutureWarning, match=r"only_inputs=False is ignored[^$]*Call backward\(\)"):
        (g,) = torch.autograd.grad(p * q, p, only_inputs=False)
    same(g, 2.0)
    assert q.grad is None


def test_s4_variable() -> None:
    """Works."""
    assert isinstance(torch.ones(1), Variable)
    v = Variable(torch.ones(2), requires_grad=True)
    assert type(v) is torch.Tensor
    (v * 3).sum().backward()
    same(v.grad, torch.tensor([3.0, 3.0]))
    with pytest.raises(ValueError, match="can't be volatile and require_grad at the same time!"):
        Variable(torch.ones(1), requires_grad=True, volatile=True)


def test_s5_volatile() -> None:
    """Works."""
    with pytest.warns(UserWarning, match=r"volatile was removed .*no_grad"):
        v = Variable(torch.ones(1), volatile=True)
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert v.volatile is False


def test_s6_attributes_of_a_variable() -> None:
    """Works."""
    v = Variable(torch.ones(2), requires_grad=True)
    y = v * 2
    assert (v.is_leaf, v.grad, v.grad_fn, v.requires_grad) == (True, None, None, True)
    assert (y.is_leaf, y.grad_fn.name(), y.requires_grad) == (False, "MulBackward0", True)
    assert not y.data.requires_grad
    assert y.data.tolist() == [2.0, 2.0]
    y.sum().backward()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None
    v.grad = torch.ones(2)
    (v * 2).sum().backward()
    assert v.grad.tolist() == [3.0, 3.0]


def test_s7_detach() -> None:
    """Works."""
    v = Variable(torch.ones(2), requires_grad=True)
    y = v * 2
    d = y.detach()
    d.mul_(5)
    assert (d.requires_grad, d.is_leaf, y.tolist()) == (False, True, [10.0, 10.0])
    assert y.detach_() is y
    assert (y.requires_grad, y.is_leaf, y.grad_fn) == (False, True, None)


def test_s8_hooks_and_retain_grad() -> None:
    """Works."""
    v = Variable(torch.tensor([0.0, 0.0, 0.0]), requires_grad=True)
    y = v * 1
    y.retain_grad()
    handle = v.register_hook(lambda g: g * 2)
    y.backward(torch.ones(3), retain_graph=True)
    assert v.grad.tolist() == [2.0, 2.0, 2.0]
    assert y.grad.tolist() == [1.0, 1.0, 1.0]
    handle.remove()
    y.backward(torch.ones(3))
    assert v.grad.tolist() == [3.0, 3.0, 3.0]


def test_s9_reinforce() -> None:
    """Declined: removed there too; the error says to go backward from `-log_prob * reward`."""
    drawn = torch.bernoulli(torch.tensor([0.5]))
    text = r"'reinforce'[^$]*It was removed[^$]*\(-log_prob \* reward\)\.sum\(\)\.backward\(\)"
    with pytest.raises(RuntimeError, match=text):
        drawn.reinforce(1.0)


def test_s10_attributes_of_a_context() -> None:
    """Works."""
    seen: list[Any] = []

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, factor: Any) -> Any:
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            with pytest.warns(DeprecationWarning, match="use 'saved_tensors'"):
                seen.append(len(ctx.saved_variables))
            seen.extend([ctx.needs_input_grad, ctx.requires_grad])
            for name in ("num_inputs", "num_outputs"):
                with pytest.raises(AttributeError, match=name):
                    getattr(ctx, name)
            return ct * ctx.saved_tensors[1], None

    x = leaf([2.0])
    Scaled.apply(x, torch.tensor([3.0])).sum().backward()
    same(x.grad, [3.0])
    assert seen == [2, (True, False), True]


def test_s11_forward_and_backward() -> None:
    """Differs: methods without `@staticmethod` still work, by apply; an instance says so."""

    class Square(Function):
        def forward(self, x: Any) -> Any:
            self.save_for_backward(x)
            return x * x

        def backward(self, ct: Any) -> Any:
            (x,) = self.saved_tensors
            return 2 * x * ct

    class Short(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct

    x = leaf([2.0])
    Square.apply(x).sum().backward()
    same(x.grad, [4.0])
    with pytest.warns(DeprecationWarning, match=r"call Square\.apply"):
        instance = Square()
    with pytest.raises(RuntimeError, match=r"Write Square\.apply\(\.\.\.\)"):
        instance(x)
    with pytest.raises(RuntimeError, match="expected 2, got 1"):
        Short.apply(x, x).sum().backward()


def test_s12_writes_in_place() -> None:
    """Differs: what was saved keeps its value, and the gradient is right; leaves raise as there."""
    a = leaf([1.0, 2.0])
    b = a * 1
    c = b * b
    b.add_(1)
    c.sum().backward()
    same(a.grad, [2.0, 4.0])
    with pytest.raises(RuntimeError, match=r"leaf Variable that requires grad[^$]*no_grad"):
        a.add_(1)
    same(a, [1.0, 2.0])
