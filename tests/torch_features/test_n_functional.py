"""`torch.autograd.functional`, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from tests.torch_suite.common import constant, leaf, same


def square(x: Any) -> Any:
    return x**2


def cubes(x: Any) -> Any:
    return (x**3).sum()


POINT = constant([1.0, 2.0])
ONES = constant([1.0, 1.0])
SLOPES = np.diag([2.0, 4.0])
CURVATURES = np.diag([6.0, 12.0])


def test_n1_vjp() -> None:
    """Works."""
    value, product = vjp(square, POINT, ONES)
    same(value, [1.0, 4.0])
    same(product, [2.0, 4.0])
    same(vjp(cubes, POINT)[1], [3.0, 12.0])
    with pytest.raises(RuntimeError, match=r"v can be left out(?s:.*)Pass v"):
        vjp(square, POINT)


def test_n2_jvp() -> None:
    """Works."""
    value, product = jvp(square, POINT, ONES)
    same(value, [1.0, 4.0])
    same(product, [2.0, 4.0])
    same(jvp(lambda x: x * POINT, constant(3.0))[1], [1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"v can be left out(?s:.*)Pass v"):
        jvp(square, POINT)


def test_n3_vhp() -> None:
    """Works."""
    value, product = vhp(cubes, POINT, ONES)
    same(value, 9.0)
    same(product, [6.0, 12.0])


def test_n4_hvp() -> None:
    """Works."""
    value, product = hvp(cubes, POINT, ONES)
    same(value, 9.0)
    same(product, [6.0, 12.0])
    value, product = hvp(lambda x: x[0] ** 2 * x[1], POINT, constant([1.0, 0.0]))
    same(value, 2.0)
    same(product, [4.0, 2.0])


def test_n5_jacobian() -> None:
    """Works."""
    same(jacobian(square, POINT), SLOPES)
    of_a, of_b = jacobian(lambda a, b: 2 * a + 3 * b, (POINT, POINT))
    same(of_a, 2 * np.eye(2))
    same(of_b, 3 * np.eye(2))
    of_first, of_second = jacobian(lambda x: (2 * x, x.sum()), POINT)
    same(of_first, 2 * np.eye(2))
    same(of_second, [1.0, 1.0])
    ((nested,),) = jacobian(lambda x: (square(x),), (POINT,))
    same(nested, SLOPES)


def test_n6_hessian() -> None:
    """Works."""
    same(hessian(cubes, POINT), CURVATURES)
    same(hessian(torch.sum, POINT), np.zeros((2, 2)))
    rows = hessian(lambda a, b: (a * a * b).sum(), (constant([1.0]), constant([3.0])))
    assert [[block.item() for block in row] for row in rows] == [[6.0, 2.0], [2.0, 0.0]]
    with pytest.raises(RuntimeError, match=r"must return one element(?s:.*)f64\[2\]"):
        hessian(square, POINT)


def test_n7_strict() -> None:
    """Differs: it goes with every strategy, and the message has the name of the argument."""
    for strategy in ("reverse-mode", "forward-mode"):
        for vectorize in (False, True):
            options = {"strict": True, "strategy": strategy, "vectorize": vectorize}
            with pytest.raises(RuntimeError, match="result does not depend on b"):
                jacobian(lambda a, b: 2 * a, (POINT, POINT), **options)
            same(jacobian(square, POINT, **options), SLOPES)
    with pytest.raises(RuntimeError, match="gradient does not depend on x"):
        hessian(lambda x: x.sum(), POINT, strict=True)
    same(jacobian(lambda a, b: 2 * a, (POINT, POINT))[1], np.zeros((2, 2)))


def test_n8_create_graph() -> None:
    """Differs: it goes with forward mode, too."""
    for strategy in ("reverse-mode", "forward-mode"):
        for create_graph in (False, True):
            x = leaf([1.0, 2.0])
            options = {"create_graph": create_graph, "strategy": strategy, "vectorize": True}
            found = jacobian(square, x, **options)
            assert found.requires_grad == create_graph
            if create_graph:
                found.sum().backward()
                same(x.grad, [2.0, 2.0])
    assert not jacobian(square, POINT, create_graph=True).requires_grad


def test_n9_vectorize() -> None:
    """Works."""
    same(jacobian(square, POINT, vectorize=True), SLOPES)
    same(hessian(cubes, POINT, vectorize=True), CURVATURES)


def test_n10_strategy() -> None:
    """Differs: forward mode needs no vectorize."""
    for vectorize in (False, True):
        same(jacobian(square, POINT, vectorize=vectorize, strategy="forward-mode"), SLOPES)
        options = {"vectorize": vectorize, "outer_jacobian_strategy": "forward-mode"}
        same(hessian(cubes, POINT, **options), CURVATURES)
    names = "Write one of 'reverse-mode', 'forward-mode'"
    with pytest.raises(ValueError, match=rf"strategy: 'sideways'(?s:.*){names}"):
        jacobian(square, POINT, strategy="sideways")
    with pytest.raises(ValueError, match=rf"outer_jacobian_strategy: 'sideways'(?s:.*){names}"):
        hessian(cubes, POINT, outer_jacobian_strategy="sideways")


def test_n11_inputs() -> None:
    """Differs: inputs are numbers and any pytrees, where a tuple holds the arguments."""
    of_first, of_second = jacobian(lambda xs: xs[0] * xs[1], [POINT, ONES])
    same(of_first, np.eye(2))
    same(of_second, np.diag([1.0, 2.0]))
    same(jacobian(lambda tree: 2 * tree["a"], {"a": POINT})["a"], 2 * np.eye(2))
    assert jacobian(square, 2.0) == 4.0
    same(jacobian(lambda x: x**3, POINT), np.diag([3.0, 12.0]))
    hint = r"floating-point values\.\n  x: i64\[2\]\n  Convert it, x\.astype\('float32'\)"
    with pytest.raises(TypeError, match=hint):
        jacobian(square, torch.tensor([1, 2]))
    same(jacobian(square, torch.tensor([1, 2]).astype("float32")), SLOPES)


def test_n12_inside_of_transforms() -> None:
    """Differs: it works, as these are transforms themselves."""
    rows = constant([[1.0, 2.0], [3.0, 4.0]])
    found = torch.func.vmap(lambda x: jacobian(square, x))(rows)
    same(found, [np.diag([2.0, 4.0]), np.diag([6.0, 8.0])])
    same(torch.func.vmap(lambda x: hessian(cubes, x))(rows)[1], np.diag([18.0, 24.0]))
    same(torch.func.grad(lambda x: vjp(cubes, x)[1].sum())(POINT), [6.0, 12.0])


def test_n13_captured_tensors() -> None:
    """Works."""
    captured = leaf([1.0, 2.0])
    found = jacobian(lambda a: a * captured, constant([3.0, 4.0]), create_graph=True)
    same(found, np.diag([1.0, 2.0]))
    same(torch.autograd.grad(found.sum(), captured)[0], [1.0, 1.0])
    found = jacobian(lambda a: a * captured, captured, create_graph=True)
    same(found, np.diag([1.0, 2.0]))
    same(torch.autograd.grad(found.sum(), captured)[0], [1.0, 1.0])
