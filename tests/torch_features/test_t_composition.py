"""What surrounds the transforms of `torch.func`, row by row of PyTorch's documents: T17 to T29."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans.errors import GraphError, MissingAttributeError
from tests.torch_suite.common import constant, leaf, same

grad, jvp, vjp, vmap = torch.func.grad, torch.func.jvp, torch.func.vjp, torch.func.vmap
functional_call, rearrange = torch.func.functional_call, torch.func.rearrange
ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def tangent(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jvp(function, (x,), (torch.ones_like(x),))[1]


class Linear:
    def __init__(self, requires_grad: bool = True) -> None:
        self.weight = torch.randn(1, 2, dtype=torch.float64, requires_grad=requires_grad)
        self.bias = torch.zeros(1, dtype=torch.float64, requires_grad=requires_grad)

    def __call__(self, x: Any) -> Any:
        return F.linear(x, self.weight, self.bias)


def test_t17_functional_call() -> None:
    """Differs: any object with arrays is a module; a name it does not hold is always an error."""
    model = Linear()
    own = model.weight
    state = {"weight": constant([[1.0, 1.0]]), "bias": constant([1.0])}
    same(functional_call(model, state, (constant(ROWS),)), [[4.0], [8.0], [12.0]])
    assert model.weight is own
    same(functional_call(model, {"weight": own}, constant(ROWS)), model(constant(ROWS)))
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'zz'\."):
            functional_call(model, {**state, "zz": own}, (constant(ROWS),), strict=strict)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 'bias'\."):
        functional_call(model, {"weight": own}, (constant(ROWS),), strict=True)
    slopes = grad(lambda p: functional_call(model, p, constant(ROWS)).sum())(state)
    same(slopes["weight"], [[9.0, 12.0]])


def test_t18_stack_module_state() -> None:
    """Differs: any object with arrays is a module; none has a training mode to compare."""
    models = [Linear() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)
    assert (params["weight"].shape, params["bias"].shape, buffers) == ((3, 1, 2), (3, 1), {})
    assert params["weight"].is_leaf
    assert params["weight"].requires_grad
    found = vmap(lambda p, x: functional_call(models[0], p, x), in_dims=(0, None))(
        params, constant(ROWS)
    )
    same(found, np.stack([model(constant(ROWS)).detach().numpy() for model in models]))

    class Other(Linear):
        pass

    with pytest.raises(RuntimeError, match="all models to be of the same class"):
        torch.func.stack_module_state([Linear(), Other()])
    with pytest.raises(RuntimeError, match=r"weight of model 0: .*requires grad"):
        torch.func.stack_module_state([Linear(), Linear(requires_grad=False)])


def by_operators(x: Any) -> Any:
    y = x.clone()
    y += 1
    y *= 2
    return y


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


@pytest.mark.parametrize(
    "function",
    [
        by_operators,
        Square.apply,
        lambda x: Square.apply(by_operators(x)),
        lambda x: x.clone().add_(1).mul_(2),
    ],
)
@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_t19_functionalize(function: Callable[[Any], Any], remove: str) -> None:
    """Works."""
    x = constant([1.0, 2.0])
    same(torch.func.functionalize(function, remove=remove)(x), function(x))
    same(x, [1.0, 2.0])
    same(torch.func.functionalize(lambda x: x.clone().add_(1), remove=remove)(constant(1.0)), 2.0)


def test_t20_debug_unwrap() -> None:
    """Differs: of a tensor it is the array held, of an array the one that was passed."""
    seen = []

    def look(x: Any) -> Any:
        seen.append(torch.func.debug_unwrap(x))
        return x

    vmap(look)(constant([3.0, 4.0]))
    same(seen[0], [3.0, 4.0])
    array = np.array([3.0, 4.0])
    for transform in (vmap, tangent, lambda f: grad(lambda x: f(x).sum()), lambda f: vmap(grad(f))):
        transform(look)(array)
        assert seen[-1] is array
    inner = []
    vmap(vmap(lambda x: inner.append(repr(torch.func.debug_unwrap(x, recurse=False)))))(
        constant(ROWS)
    )
    assert inner[0].startswith("Traced(f64[2] in vmap(")


def test_t21_replace_all_batch_norm_modules() -> None:
    """Declined: there are no modules: write batch norm as a function of its running means."""
    with pytest.raises(MissingAttributeError, match=r"There are no modules"):
        _ = torch.func.replace_all_batch_norm_modules_


def test_t22_rearrange() -> None:
    """Works."""
    x = torch.arange(6.0).reshape(2, 3)
    same(rearrange(x, "a b -> b a"), np.arange(6.0).reshape(2, 3).T)
    same(rearrange(x, "a b -> (b a)"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    same(rearrange(torch.arange(6), "(a b) -> b a", b=3), [[0, 3], [1, 4], [2, 5]])
    assert rearrange(torch.zeros(2, 3, 4), "a ... c -> c a ...").shape == (4, 2, 3)
    assert rearrange(torch.zeros(2, 1), "a () -> 1 a").shape == (1, 2)
    weights = torch.arange(6.0)
    same(
        grad(lambda x: (rearrange(x, "a b -> (b a)") * weights).sum())(x), [[0, 2, 4], [1, 3, 5.0]]
    )
    with pytest.raises(ValueError, match="both sides have the same names, once each; not so: b"):
        rearrange(x, "a b -> a")
    same(rearrange([x[0], x[1]], "a b -> b a"), np.arange(6.0).reshape(2, 3).T)


def test_t23_composition() -> None:
    """Works."""
    x, ones, one = constant([1.0, 2.0, 3.0]), constant([1.0, 1.0, 1.0]), constant(1.0)
    cos, minus_sin = np.cos([1.0, 2.0, 3.0]), -np.sin([1.0, 2.0, 3.0])
    same(grad(lambda x: vmap(torch.sin)(x).sum())(x), cos)
    same(vmap(grad(torch.sin))(x), cos)
    same(vjp(vmap(torch.sin), x)[1](ones)[0], cos)
    same(jvp(grad(torch.sin), (one,), (one,)), (cos[0], minus_sin[0]))
    same(grad(tangent(torch.sin))(one), minus_sin[0])
    same(vmap(tangent(torch.sin))(x), cos)
    jacobians = (torch.func.jacrev, torch.func.jacfwd)
    for outer in jacobians:
        for inner in jacobians:
            same(outer(inner(lambda x: torch.sin(x).sum()))(x), np.diag(minus_sin))
            same(vmap(outer(inner(torch.sin)))(x), minus_sin)


def backward_inside(x: Any) -> Any:
    y = x.sin()
    y.backward()
    return y


def grad_inside(x: Any) -> Any:
    return torch.autograd.grad(x.sin(), x, create_graph=True)[0]


def hook_inside(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda ct: ct * 10)
    return y


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(grad_inside, "Write ftrans.func.grad", id="grad"),
        pytest.param(backward_inside, "Write ftrans.func.grad", id="backward"),
        pytest.param(lambda x: x.requires_grad_(), "Write func.grad", id="requires_grad_"),
        pytest.param(lambda x: x.sin().retain_grad(), "\n  .*Write", id="retain_grad"),
        pytest.param(hook_inside, r"Write an autograd\.Function", id="register_hook"),
    ],
)
def test_t24_eager_autograd(function: Callable[[Any], Any], expected: str) -> None:
    """Declined: inside a transform nothing has a graph or hooks; the errors say what to write."""
    x = leaf(1.0)
    same(torch.autograd.grad(grad(torch.sin)(x), x)[0], -np.sin(1.0))
    same(grad(grad(torch.sin))(constant(1.0)), -np.sin(1.0))
    with pytest.raises((GraphError, MissingAttributeError), match=expected):
        grad(function)(constant(1.0))


def test_t25_no_perturbation_confusion() -> None:
    """Works."""
    for outer in (grad, tangent):
        for inner in (grad, tangent):
            found = outer(lambda x, d=inner: x * d(lambda y: x + y)(x))(constant(1.0))
            same(found, 1.0)


def written_to(x: Any, target: Any) -> Any:
    target.copy_(x)
    return (x * target).sum()


@pytest.mark.parametrize("transform", [grad, tangent, vmap])
def test_t26_captured_tensors(transform: Callable[[Any], Any]) -> None:
    """Differs: nor is its `clone()` written to; the error says to write `ftrans.numpy.copy(x)`."""
    captured = constant([0.0, 0.0])
    given = constant(ROWS if transform is vmap else ROWS[0])
    with pytest.raises(RuntimeError, match="cannot be written to inside a transform"):
        transform(lambda x: written_to(x, captured))(given)
    with pytest.raises(RuntimeError, match="cannot be written to inside a transform"):
        transform(lambda x: captured.add_(1.0).sum() * x.sum())(given)
    with pytest.raises(RuntimeError, match=r"Write x = ftrans\.numpy\.copy\(x\)"):
        transform(lambda x: written_to(x, captured.clone()))(given)
    expected = {grad: [2.0, 4.0], tangent: 6.0, vmap: [5.0, 25.0, 61.0]}
    found = transform(lambda x: written_to(x, fnp.copy(captured)))(given)
    same(found, expected[transform])
    same(captured, [0.0, 0.0])


def doubled(x: Any) -> Any:
    x *= 2
    return x.sum()


def test_t27_in_place_on_the_argument() -> None:
    """Differs: the argument stays as it was."""
    x = constant([3.0, 4.0])
    same(grad(doubled)(x), [2.0, 2.0])
    same(vmap(doubled)(x), [6.0, 8.0])
    same(jvp(doubled, (x,), (x,)), (14.0, 14.0))
    same(x, [3.0, 4.0])
    same(grad(lambda x: x.mul_(2).sum())(x), [2.0, 2.0])
    same(x, [3.0, 4.0])
    same(grad(lambda x: x.mul_(2))(constant(3.0)), 2.0)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        doubled(leaf([3.0, 4.0]))


def test_t28_type_of_aux() -> None:
    """Works."""
    x = constant(3.0)
    aux = {"text": "abc", "count": 3, "nothing": None, "type": object}

    def square(x: Any) -> Any:
        return x * x, {**aux, "x": x}

    for transform, value in ((grad, 6.0), (torch.func.jacrev, 6.0), (torch.func.jacfwd, 6.0)):
        found, returned = transform(square, has_aux=True)(x)
        same((found, returned.pop("x")), (value, 3.0))
        assert returned == aux
    assert vjp(lambda x: (x * x, "abc"), x, has_aux=True)[2] == "abc"
    assert jvp(lambda x: (x * x, "abc"), (x,), (x,), has_aux=True)[2] == "abc"


@pytest.mark.parametrize(
    ("given", "transform"),
    [
        (np.float64(1.0), grad),
        (np.float64(1.0), torch.func.jacfwd),
        (constant(1.0), grad),
        (constant(1.0), tangent),
    ],
)
def test_t29_escaped_values(given: Any, transform: Callable[[Any], Any]) -> None:
    """Works."""
    kept = []

    def square(x: Any) -> Any:
        kept.append(x * 2)
        return x * x

    assert transform(square)(given).item() == 2.0
    assert kept[0] == 2.0
    same(kept[0] + 1, 3.0)
    vmap(lambda x: kept.append(x))(constant([1.0, 2.0]))
    with pytest.raises(RuntimeError, match="used after the function had returned"):
        kept[-1].sin()
