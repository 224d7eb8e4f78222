"""`functional_call`, `stack_module_state`, `functionalize`, `rearrange`, `debug_unwrap`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func, tensor
from ftrans.errors import ArgumentError, ShapeError, StructureError
from ftrans.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    rearrange,
    stack_module_state,
)
from tests.helpers import assert_close


class Linear:
    def __init__(self, rows: int, columns: int, seed: int = 0):
        random = np.random.default_rng(seed)
        self.weight = random.normal(size=(rows, columns))
        self.bias = random.normal(size=rows)

    def __call__(self, x: Any) -> Any:
        return self.weight @ x + self.bias


class Network:
    """Holds arrays in a list of objects, a dict and an attribute; one of them twice."""

    def __init__(self, seed: int = 0):
        self.layers = [Linear(3, 2, seed), Linear(2, 3, seed + 1)]
        self.scales = {"out": np.array([2.0, 3.0])}
        self.steps = np.array(4)
        self.shared = self.layers[0].bias
        self.name = "network"

    def __call__(self, x: Any, power: int = 1) -> Any:
        hidden = fnp.tanh(self.layers[0](x) + self.shared)
        return (self.layers[1](hidden) * self.scales["out"]) ** power


X = np.array([0.3, -0.8])
NAMES = [
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "layers.1.bias",
    "scales.out",
    "steps",
    "shared",
]


def test_arrays_are_replaced_for_one_call() -> None:
    network = Network()
    before = network(X)
    doubled = functional_call(network, {"scales.out": np.array([4.0, 6.0])}, X)
    assert_close(doubled, 2 * before)
    assert_close(network(X), before)
    assert_close(functional_call(network, {}, (X,), {"power": 2}), before**2)


def test_gradients_with_respect_to_what_an_object_holds() -> None:
    network = Network()
    params = {"layers.0.weight": network.layers[0].weight, "scales.out": network.scales["out"]}
    loss = lambda p: functional_call(network, p, X).sum()  # noqa: E731
    found = func.grad(loss)(params)
    for name, value in params.items():
        step = np.zeros_like(value)
        step.flat[1] = 1e-6
        ahead, back = (loss({**params, name: value + sign * step}) for sign in (1, -1))
        assert_close(found[name].flat[1], (ahead - back) / 2e-6, 1e-6)
    assert isinstance(network.layers[0].weight, np.ndarray)


def test_an_array_under_two_names() -> None:
    network, new = Network(), np.ones(3)
    both = functional_call(network, {"shared": new}, X)
    assert_close(both, functional_call(network, {"layers.0.bias": new}, X))
    one = functional_call(network, {"shared": new}, X, tie_weights=False)
    assert not np.allclose(one, both)
    with pytest.raises(ArgumentError, match="are one array"):
        functional_call(network, {"shared": new, "layers.0.bias": new * 2}, X)
    given = {"shared": new, "layers.0.bias": new * 2}
    assert np.isfinite(functional_call(network, given, X, tie_weights=False)).all()


def test_names_that_there_are_not() -> None:
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'zz'"):
        functional_call(Linear(3, 2), {"zz": X}, X)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 'bias'"):
        functional_call(Linear(3, 2), {"weight": np.ones((3, 2))}, X, strict=True)
    with pytest.raises(ArgumentError, match="several of the dicts"):
        functional_call(Linear(3, 2), ({"bias": X}, {"bias": X}), X)


def test_several_dicts_and_tensors() -> None:
    weight = tensor(np.ones((3, 2)), requires_grad=True)
    out = functional_call(Linear(3, 2), ({"weight": weight}, {"bias": np.zeros(3)}), X)
    out.sum().backward()
    assert_close(weight.grad, np.tile(X, (3, 1)))


def test_frozen_dataclasses_named_tuples_and_what_holds_itself() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        scale: np.ndarray
        more: tuple[Any, ...]

        def __call__(self, x: Any) -> Any:
            return self.scale * x + self.more[1]["shift"]

    model = Frozen(np.array([2.0]), (None, {"shift": np.array([1.0])}))
    out = functional_call(model, {"scale": np.array([3.0]), "more.1.shift": np.array([5.0])}, X[:1])
    assert_close(out, 3 * X[:1] + 5)
    assert model.scale.tolist() == [2.0]
    linear: Any = Linear(3, 2)
    linear.itself = linear
    assert_close(functional_call(linear, {"bias": np.zeros(3)}, X), linear.weight @ X)


def test_ensembles() -> None:
    models = [Linear(1, 2, seed) for seed in range(3)]
    params, buffers = stack_module_state(models)
    assert {name: x.shape for name, x in params.items()} == {"weight": (3, 1, 2), "bias": (3, 1)}
    assert buffers == {}
    call = lambda p, x: functional_call(models[0], p, x)  # noqa: E731
    found = func.vmap(call, in_dims=(0, None))(params, X)
    assert_close(found, np.stack([model(X) for model in models]))


def test_buffers_are_what_is_not_differentiated() -> None:
    params, buffers = stack_module_state([Network(0), Network(1)])
    assert list(buffers) == ["steps"]
    assert list(params) == [name for name in NAMES if name != "steps"]

    class Held:
        def __init__(self, requires_grad: bool = True):
            self.weight = tensor([1.0, 2.0], requires_grad=requires_grad)
            self.mean = tensor([0.0])

    params, buffers = stack_module_state([Held(), Held()])
    assert params["weight"].requires_grad
    assert params["weight"].is_leaf
    assert params["weight"].shape == (2, 2)
    assert not buffers["mean"].requires_grad
    with pytest.raises(StructureError, match="hold different arrays"):
        stack_module_state([Held(), Held(False)])


@pytest.mark.parametrize(
    ("models", "text"),
    [
        ([], "Expected at least one model"),
        ([Linear(1, 2), Network()], "of the same class"),
        ([Linear(1, 2), Linear(1, 3)], "weight of model 1"),
    ],
)
def test_models_that_cannot_be_stacked(models: list[Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        stack_module_state(models)


def test_functionalize_writes_to_nothing() -> None:
    def f(x: Any) -> Any:
        x += 1.0
        y = x[:1]
        y *= 3.0
        return x, y

    x = np.array([1.0, 2.0])
    first, second = functionalize(f)(x)
    assert first.tolist() == [6.0, 3.0]
    assert second.tolist() == [6.0]
    assert x.tolist() == [1.0, 2.0]
    assert_close(func.grad(lambda x: functionalize(f)(x)[0].sum())(x), [3.0, 1.0])
    assert functionalize(f, remove="mutations_and_views")(x)[0].tolist() == [6.0, 3.0]
    with pytest.raises(ArgumentError, match="'mutations' or 'mutations_and_views'"):
        functionalize(f, remove="views")


def test_functionalize_captures_tensors() -> None:
    w, x = tensor([2.0, 3.0], requires_grad=True), tensor([4.0, 5.0])

    def scaled(x: Any) -> Any:
        y = x.clone()
        y.mul_(w)
        return y

    called = functionalize(scaled)
    assert called(x).tolist() == [8, 15]
    assert functionalize(lambda: w)().tolist() == [2, 3]
    assert func.vmap(called)(fnp.stack([x, x])).tolist() == [[8, 15]] * 2
    assert func.grad(lambda x: called(x).sum())(x).tolist() == [2, 3]
    assert functionalize(func.grad(lambda x: (scaled(x) * x).sum()))(x).tolist() == [16, 30]
    called(x).sum().backward()
    assert w.grad.tolist() == [4, 5]


def test_debug_unwrap() -> None:
    x, seen = np.array([3.0, 4.0]), []
    func.vmap(lambda v: (seen.append(debug_unwrap(v)), v * 2)[1])(x)
    assert seen.pop() is x
    func.vmap(func.grad(lambda v: (seen.append(debug_unwrap(v)), v * 2)[1]))(x)
    assert seen.pop() is x
    func.vmap(lambda v: (seen.append(debug_unwrap(v * 2)), v)[1])(x)
    assert "Traced" in repr(seen.pop())
    assert debug_unwrap(x) is x


CASES = {
    "a b c -> c a b": lambda x: x.transpose(2, 0, 1),
    "a b c -> (a b) c": lambda x: x.reshape(8, 6),
    "a b c -> (b a) c": lambda x: x.transpose(1, 0, 2).reshape(8, 6),
    "a b (c d) -> d (a c) b": lambda x: (
        x.reshape(2, 4, 3, 2).transpose(3, 0, 2, 1).reshape(2, 6, 4)
    ),
    "... c -> c ...": lambda x: x.transpose(2, 0, 1),
    "a ... -> (a ...)": lambda x: x.reshape(-1),
    "a b c -> a 1 b c": lambda x: x[:, None],
    "a b c -> () a b c ()": lambda x: x[None, ..., None],
    " a  b c->a b c ": lambda x: x,
}


@pytest.mark.parametrize("pattern", CASES)
def test_rearrange(pattern: str) -> None:
    x = np.arange(48.0).reshape(2, 4, 6)
    sizes = {"c": 3} if "d" in pattern else {}
    np.testing.assert_array_equal(rearrange(x, pattern, **sizes), CASES[pattern](x))


def test_rearrange_leaves_axes_of_size_one_out() -> None:
    x = np.arange(6.0).reshape(2, 1, 3)
    assert rearrange(x, "a 1 b -> b a").shape == (3, 2)
    assert rearrange(np.zeros((0, 2)), "a b -> (b a)").shape == (0,)
    assert rearrange(np.float64(3), "-> 1").shape == (1,)


def test_rearrange_under_transforms_and_with_tensors() -> None:
    x = np.arange(6.0).reshape(2, 3)
    f = lambda x: (rearrange(x, "(a b) -> b a", a=3) * np.arange(2.0)[:, None]).sum()  # noqa: E731
    assert_close(func.grad(f)(x.reshape(-1)), [0, 1, 0, 1, 0, 1])
    assert func.vmap(lambda row: rearrange(row, "(a b) -> a b", b=1))(x).shape == (2, 3, 1)
    t = tensor(x, requires_grad=True)
    rearrange(t, "a b -> b a")[0].sum().backward()
    assert_close(t.grad, [[1, 0, 0], [1, 0, 0]])
    assert ftrans.jit(lambda x: rearrange(x, "a b -> (a b)"))(x).shape == (6,)


@pytest.mark.parametrize(
    ("pattern", "sizes", "error", "text"),
    [
        ("a b", {}, ArgumentError, "one arrow"),
        ("a b -> a", {}, ArgumentError, "same names"),
        ("a a -> a", {}, ArgumentError, "once on a side"),
        ("(a b -> a b", {}, ArgumentError, "not closed"),
        ("a ? -> a", {}, ArgumentError, "no name of an axis"),
        ("a b -> b a", {"c": 2}, ArgumentError, "no axis c"),
        ("a -> a", {}, ShapeError, "1 axes on its left side, the array 2"),
        ("a (b c) -> a b c", {}, ShapeError, "sizes of b and c are not known"),
        ("a (b c) -> a b c", {"b": 2}, ShapeError, "an axis of size 3 is not b=2 \\* c=1"),
        ("a 1 -> a", {}, ShapeError, "an axis of size 3 is not 1"),
    ],
)
def test_rearrange_refuses(pattern: str, sizes: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        rearrange(np.zeros((2, 3)), pattern, **sizes)
