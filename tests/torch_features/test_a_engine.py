"""`backward` and `grad`, row by row of what PyTorch's documents name."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans import Tensor
from tests.torch_suite.common import leaf, same

autograd = torch.autograd


def test_a1_backward() -> None:
    """Works."""
    x, y, q = leaf([1.0, 2.0]), leaf([3.0, 4.0]), leaf([5.0, 6.0])
    a, b = leaf([7.0, 8.0]), leaf([9.0, 10.0])
    of_z, of_c = leaf([1.0, -2.0]).detach(), leaf([0.5, 3.0]).detach()
    doubled = q * 2
    autograd.backward([x + y + doubled, a * b + doubled], [of_z, of_c])
    same(x.grad, [1.0, -2.0])
    same(y.grad, [1.0, -2.0])
    same(a.grad, [4.5, 30.0])
    same(b.grad, [3.5, 24.0])
    same(q.grad, [3.0, 2.0])

    edge = autograd.graph.get_gradient_edge
    for wrap in (lambda x: [x], lambda x: x, lambda x: {"x": x}, lambda x: OrderedDict(x=x), edge):
        x = leaf(2.0)
        autograd.backward(3 * x, inputs=wrap(x))
        same(x.grad, 3.0)
    x = leaf(2.0)
    autograd.backward(edge(3 * x))
    same(x.grad, 3.0)

    def inside(x: Any) -> Any:
        autograd.backward(x * x)
        return x

    with pytest.raises(RuntimeError, match=r"backward\(\).*inside a transform[\s\S]*func\.grad"):
        torch.func.grad(inside)(leaf(2.0))
    with pytest.raises(RuntimeError, match=r"'backward'[\s\S]*func\.grad"):
        torch.func.grad(lambda x: (x * x).backward())(leaf(2.0))


def test_a2_gradient_of_what_is_no_scalar() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    with pytest.raises(
        RuntimeError, match=r"implicitly created only for scalar outputs[\s\S]*\[2\]"
    ):
        (x * x).backward()
    z = torch.tensor([1 + 1j], dtype=torch.complex128, requires_grad=True)
    with pytest.raises(RuntimeError, match="real scalar outputs but got complex128"):
        (z * z).backward()
    one = leaf([3.0])
    (one * one).backward()
    same(one.grad, [6.0])


def test_a3_gradients_accumulate() -> None:
    """Works."""
    a = leaf(2.0)
    b = a * a
    b.backward(retain_graph=True)
    first = a.grad
    b.backward()
    same(a.grad, 8.0)
    assert a.grad is first


def test_a4_retain_graph() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward()
    with pytest.raises(
        RuntimeError, match=r"(?i)trying to backward through the graph a second"
    ) as e:
        y.backward()
    assert "Specify retain_graph=True" in str(e.value)
    assert "test_a_engine.py" in str(e.value)  # where it was freed, which PyTorch does not say
    same(x.grad, [2.0, 4.0])


def test_a5_create_graph() -> None:
    """Works."""
    x, y = leaf(2.0), leaf(3.0)
    z = x**2 + x * y + y**2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z.backward(torch.ones_like(z), create_graph=True)
    same(x.grad, 7.0)
    same(y.grad, 8.0)
    (2 * x.grad + y.grad).backward(torch.ones_like(z))
    same(x.grad, 7.0 + 5)
    same(y.grad, 8.0 + 4)

    p = leaf(2.0)
    (p**2).backward(create_graph=True)
    assert p.grad.item() == 4.0
    alive = weakref.ref(p)
    del p
    gc.collect()
    assert alive() is None


def test_a6_backward_inputs() -> None:
    """Differs: the node of an input that is no leaf does not run, as nothing asks for it."""
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    x.grad, y.grad = torch.zeros_like(x), torch.zeros_like(y)
    out = x**2 + y * x + y**2
    out.backward(torch.ones_like(out), inputs=[x])
    same(x.grad, [5.0, 8.0])
    same(y.grad, [0.0, 0.0])
    with pytest.raises(RuntimeError, match="inputs argument cannot be empty"):
        (x * y).sum().backward(inputs=[])

    unused = leaf(1.0)
    x.sum().backward(inputs=[unused])
    assert unused.grad is None

    ran: list[str] = []
    b = leaf(2.0) * 2
    b.grad_fn.register_hook(lambda given, taken: ran.append("b"))
    (b * 3).backward(inputs=[b])
    same(b.grad, 3.0)
    assert ran == []


def test_a7_grad() -> None:
    """Works."""
    p = leaf([1.0, 2.0])
    found = autograd.grad([p.sum(), (p**2).sum()], p)
    assert isinstance(found, tuple)
    same(found[0], [3.0, 5.0])
    assert p.grad is None

    x = leaf(3.0)
    named = autograd.grad(x * x, {"a": x})
    assert list(named) == ["a"]
    same(named["a"], 6.0)
    tree = autograd.grad(x * x, {"layer": [x]})
    same(tree["layer"][0], 6.0)


def test_a8_allow_unused() -> None:
    """Works."""
    with pytest.raises(RuntimeError, match=r"at index 0,? appears to not .*Set allow_unused=True"):
        autograd.grad(2 * leaf(1.0), leaf(1.0))
    assert autograd.grad(2 * leaf(1.0), leaf(1.0), allow_unused=True) == (None,)
    _, zero = torch.func.grad(lambda x, y: 2 * x, argnums=(0, 1))(leaf(1.0), leaf(1.0))
    same(zero, 0.0)


def test_a9_materialize_grads() -> None:
    """Works."""
    x, a = leaf(2.0), leaf(3.0)
    (first,) = autograd.grad(x * a, x, create_graph=True)
    (second,) = autograd.grad(first, x, create_graph=True, materialize_grads=True)
    (third,) = autograd.grad(second, x, materialize_grads=True)
    same(first, 3.0)
    same(second, 0.0)
    same(third, 0.0)
    assert (second.requires_grad, third.requires_grad) == (True, False)
    with pytest.raises(ValueError, match="allow_unused=False"):
        autograd.grad(x * a, leaf(1.0), allow_unused=False, materialize_grads=True)
    edge = autograd.graph.get_gradient_edge(leaf(1.0))
    (zero,) = autograd.grad(x * a, edge, materialize_grads=True)
    same(zero, 0.0)


def test_a10_is_grads_batched() -> None:
    """Works."""
    rows = torch.eye(2, dtype=torch.float64)
    a = leaf([1.0, 2.0])
    square = a**2
    for outputs in (
        square,
        autograd.graph.get_gradient_edge(square),
        ftrans.jit(lambda a: a**2)(a),
    ):
        (found,) = autograd.grad(outputs, a, rows, retain_graph=True, is_grads_batched=True)
        same(found, [[2.0, 0.0], [0.0, 4.0]])
    with pytest.raises(RuntimeError, match=r"output\[0\] has a shape of \(2,\)"):
        autograd.grad(a**2, a, torch.eye(3, dtype=torch.float64), is_grads_batched=True)


def test_a11_only_inputs() -> None:
    """Works."""
    x, y = leaf(2.0), leaf(3.0)
    with pytest.warns(FutureWarning, match="only_inputs") as caught:
        found = autograd.grad(x * y, x, only_inputs=False)
    assert len(caught) == 1
    assert len(found) == 1
    same(found[0], 3.0)
    assert y.grad is None


def test_a12_types_of_grad_outputs() -> None:
    """Works."""
    x = leaf([1.0, 2.0])
    shapes = r"Mismatch in shape: grad_output\[0\] has a shape of .*3.* output\[0\] .* of .*2"
    with pytest.raises(RuntimeError, match=shapes):
        autograd.grad(2 * x, x, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"complex[\s\S]*grad_output\[0\]: c128[\s\S]*f64"):
        autograd.grad(2 * x, x, torch.ones(2, dtype=torch.complex128))
    with pytest.raises(RuntimeError, match="scalar outputs"):
        autograd.grad(2 * x, x, None)
    (found,) = autograd.grad([x.sum(), 2 * x], x, [None, torch.ones(2, dtype=torch.float64)])
    same(found, [3.0, 3.0])
    (found,) = autograd.grad(2 * x, x, torch.ones(2, dtype=torch.float32))
    same(found, [2.0, 2.0])
    assert found.dtype == torch.float64


def _made_under_no_grad() -> Tensor:
    with torch.no_grad():
        return leaf(1.0) * 2


@pytest.mark.parametrize(
    "root",
    [
        lambda: torch.ones(1),
        lambda: (leaf(1.0) * 2).detach(),
        lambda: torch.tensor(1),
        _made_under_no_grad,
    ],
)
def test_a13_root_that_requires_no_grad(root: Any) -> None:
    """Works."""
    said = "element 0 of tensors does not require grad and does not have a grad_fn"
    with pytest.raises(RuntimeError, match=said) as caught:
        root().backward()
    assert "no_grad" in str(caught.value)
    assert "detach()" in str(caught.value)


def test_a14_tensor_backward() -> None:
    """Works."""
    x, y = leaf(3.0), leaf(5.0)
    (x**2 * y).backward(inputs=x)
    same(x.grad, 30.0)
    assert y.grad is None
    v = leaf([1.0, 2.0])
    (v**2).backward(torch.tensor([10.0, 100.0], dtype=torch.float64))
    same(v.grad, [20.0, 400.0])
    v.grad = None
    (v**2).backward(gradient=torch.ones(2), create_graph=True)
    assert v.grad.requires_grad


def test_a15_dtypes_that_require_grad() -> None:
    """Works."""
    said = "(?i)only tensors of floating point and complex"
    for value in (1, True):
        with pytest.raises(RuntimeError, match=f"{said} dtype can require gradients"):
            torch.tensor(value, requires_grad=True)
        with pytest.raises(RuntimeError, match=said):
            torch.tensor(value).requires_grad_()
        with pytest.raises(RuntimeError, match=said):
            torch.tensor(value).requires_grad = True
    for name in ("half", "float", "double", "bfloat16", "cfloat", "cdouble"):
        dtype = getattr(torch, name)
        made = torch.ones(1, dtype=dtype, requires_grad=True)
        assert made.requires_grad
        assert made.dtype == np.dtype(dtype)


def test_a16_the_graph_is_made_anew_at_each_turn() -> None:
    """Works."""

    def f(x: Any) -> Any:
        return x**2 if x > 0 else -x

    for at, slope in ((3.0, 6.0), (-3.0, -1.0)):
        x = leaf(at)
        f(x).backward()
        same(x.grad, slope)
        same(torch.func.grad(f)(leaf(at)), slope)
