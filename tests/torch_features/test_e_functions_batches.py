"""`Function` under `torch.func`, row by row of what PyTorch's documents name: E11 to E20."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from tests.torch_suite.common import same

Function = torch.autograd.Function
grad, vmap, jacrev = torch.func.grad, torch.func.vmap, torch.func.jacrev


class Square(Function):
    """Has a backward, and neither a jvp nor a rule for batches."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class Cube(Square):
    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * ct


def returning(result: Any) -> Any:
    """Makes a Function whose rule for batches returns what this function of x does."""

    class Batched(Square):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return result(x)

    return Batched.apply


def test_e11_out_dims() -> None:
    """Differs: it has one None for a container without arrays, not a container of them."""
    x = torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match=r"Batched\.vmap: it must return two things"):
        vmap(returning(lambda x: x**2))(x)
    with pytest.raises(RuntimeError, match=r"out_dims does not have the structure of the output"):
        vmap(returning(lambda x: (x**2, (0, 0))))(x)
    same(vmap(returning(lambda x: (x**2, 0)))(x), [1.0, 4.0, 9.0])
    same(vmap(returning(lambda x: (x.sum(), None)))(x), [6.0, 6.0, 6.0])

    class Tagged(Function):
        @staticmethod
        def forward(x: Any, tags: Any) -> Any:
            return x * 2, tags

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, tags: Any) -> Any:
            assert in_dims == (0, [None])
            return (x * 2, tags), (in_dims if tags == ["handed on"] else (0, None))

    found, tags = vmap(lambda x: Tagged.apply(x, ["a"]))(x)
    same(found, [2.0, 4.0, 6.0])
    assert tags == ["a"]
    with pytest.raises(RuntimeError, match=r"structure of the output\.\n  out_dims: \(0, \[None\]"):
        vmap(lambda x: Tagged.apply(x, ["handed on"]))(x)


def test_e12_generate_vmap_rule_and_vmap() -> None:
    """Differs: the error is raised at each apply, not at vmap alone: the two contradict anyway."""

    class Both(Square):
        generate_vmap_rule = True

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x**2, in_dims[0]

    for call in (vmap(Both.apply), Both.apply):
        with pytest.raises(RuntimeError, match=r"generate_vmap_rule=True and vmap is written"):
            call(torch.tensor([1.0, 2.0]))


def test_e13_neither_generate_vmap_rule_nor_vmap() -> None:
    """Differs: the rule for batches is derived, where PyTorch raises."""
    x = torch.tensor([1.0, 2.0])
    same(vmap(Square.apply)(x), [1.0, 4.0])
    same(vmap(lambda x: x + Square.apply(torch.tensor(3.0)))(x), [10.0, 11.0])
    found = torch.func.hessian(lambda x: Square.apply(x).sum())(x)
    same(found, [[2.0, 0.0], [0.0, 2.0]])


def test_e14_the_rule_is_skipped_where_nothing_is_batched() -> None:
    """Differs: the rule may be traced there too, and what it gives is not used."""
    calls = []

    def rule(x: Any) -> Any:
        calls.append(x)
        return 100 * x**2, 0

    x = torch.tensor([1.0, 2.0])
    function = returning(rule)
    same(vmap(lambda x: x + function(torch.tensor(3.0)))(x), [10.0, 11.0])
    assert [tuple(x.shape) for x in calls] in ([], [(2,)])
    calls.clear()
    same(vmap(lambda x: x + function(x))(x), [101.0, 402.0])
    assert calls


def test_e15_gradients_of_batches() -> None:
    """Works."""

    class Own(Cube):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return Own.apply(x), in_dims[0]

    class Wrong(Cube):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x**2, in_dims[0]

    x = torch.tensor([3.0, 4.0])
    expected = torch.stack([grad(Own.apply)(x[0]), grad(Own.apply)(x[1])])
    same(expected, [27.0, 48.0])
    same(vmap(grad(Own.apply))(x), expected)
    same(grad(lambda x: vmap(Own.apply)(x).sum())(x), expected)
    report = ftrans.check_rules(Wrong, np.array([1.0, 2.0, 3.0]))
    assert [failure.check for failure in report.failures] == ["vmap against a loop"]


def test_e16_forward_mode_without_jvp() -> None:
    """Differs: jvp is derived from backward, where PyTorch raises `NotImplementedError`."""

    def total(x: Any) -> Any:
        return Cube.apply(x).sum()

    x = torch.tensor([1.0, 2.0])
    expected = [[6.0, 0.0], [0.0, 12.0]]
    same(torch.func.hessian(total)(x), expected)
    same(jacrev(jacrev(total))(x), expected)
    same(torch.func.jvp(Cube.apply, (x,), (torch.ones(2),))[1], [3.0, 12.0])


def test_e17_functionalize() -> None:
    """Differs: it takes a Function, which PyTorch does not implement."""
    x = torch.tensor([1.0, 2.0])
    same(torch.func.functionalize(Square.apply)(x), [1.0, 4.0])
    same(grad(lambda x: torch.func.functionalize(Square.apply)(x).sum())(x), [2.0, 4.0])


def test_e18_which_transforms_need_vmap() -> None:
    """Differs: none of them needs a rule for batches, nor `jacfwd` a jvp."""
    x = torch.tensor([1.0, 2.0])
    expected = [[2.0, 0.0], [0.0, 4.0]]
    same(jacrev(Square.apply)(x), expected)
    same(torch.func.jacfwd(Square.apply)(x), expected)
    same(vmap(grad(Square.apply))(x), [2.0, 4.0])


def test_e19_names_of_attributes_of_ctx() -> None:
    """Differs: no names are reserved, where PyTorch raises "name collision"."""

    class Named(Square):
        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx._pt_inner_ctx, ctx._pt_new_saved_tensors, ctx._pt_saved_tensors_bdims = 2, 3, 5

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            by = ctx._pt_inner_ctx * ctx._pt_new_saved_tensors * ctx._pt_saved_tensors_bdims
            return x * by * ct

    x = torch.tensor([1.0, 2.0])
    same(grad(Named.apply)(x[1]), 60.0)
    same(vmap(grad(Named.apply))(x), [30.0, 60.0])


def test_e20_compiled_functions() -> None:
    """Declined: `torch.compile` says to write `ftrans.jit`, which gives what an eager call does."""

    class Flat(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return torch.sin(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * 0

    def moved(x: Any) -> Any:
        return torch.func.jvp(Flat.apply, (x,), (torch.ones_like(x),))

    with pytest.raises(AttributeError, match=r"no attribute 'compile'.\n  Write ftrans\.jit\(f\)"):
        torch.compile(moved)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for call in (moved, ftrans.jit(moved)):
        value, tangent = call(x)
        np.testing.assert_allclose(value.detach(), np.sin([1.0, 2.0]), rtol=1e-12)
        np.testing.assert_array_equal(tangent.detach(), [0.0, 0.0])
