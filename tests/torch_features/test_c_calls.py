"""Functions, their class and their calls, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.torch import func
from tests.torch_suite.common import Identity, Product, Returned, Square, constant, leaf, same

Function = torch.autograd.Function


class Keyword(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, *, k: Any) -> Any:
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * ctx.k


def test_c23_once_differentiable() -> None:
    """Differs: every second derivative is an error that says so; `func.grad` twice is never 0."""

    class OD(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * ct

    x = leaf(3.0)
    (slope,) = torch.autograd.grad(OD.apply(x) ** 2, x, create_graph=True)
    same(slope, 108.0)
    for twice in (
        lambda: torch.autograd.grad(slope, x, retain_graph=True),
        lambda: slope.backward(),
        lambda: func.grad(func.grad(OD.apply))(constant(3.0)).item(),
    ):
        with pytest.raises(RuntimeError, match="once_differentiable, and is differentiated again"):
            twice()


def test_c24_generate_vmap_rule() -> None:
    """Differs: batches are derived whatever it is."""

    class Generated(Square):
        generate_vmap_rule = True

    assert Square.generate_vmap_rule is False
    for function in (Square, Generated):
        same(func.vmap(func.grad(function.apply))(constant([1.0, 2.0])), [2.0, 4.0])


def test_c25_vmap() -> None:
    """Works."""
    seen: list[Any] = []

    class Scaled(Function):
        @staticmethod
        def forward(x: Any, k: int) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, k: int) -> Any:
            seen.append((info.batch_size, info.randomness, in_dims))
            return x * k * 100, in_dims[0]

    found = func.vmap(Scaled.apply, in_dims=(0, None))(constant([1.0, 2.0]), 3)
    same(found, [300.0, 600.0])
    assert seen == [(2, "error", (0, None))]


def test_c26_clear_saved_tensors_on_access() -> None:
    """Differs: it has no effect: a rule is traced, and what it has read is not kept by reading."""

    class Cleared(Square):
        clear_saved_tensors_on_access = True

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return (ctx.saved_tensors[0] + ctx.saved_tensors[0]) * ct

    x = leaf(3.0)
    Cleared.apply(x).backward()
    same(x.grad, 6.0)


def test_c27_boxed_grads_call() -> None:
    """Works."""
    seen: list[Any] = []

    class Boxed(Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, cts: Any) -> Any:
            seen.append((type(cts), len(cts)))
            return cts[0] * 2 + cts[1] * 3

    x = leaf(1.0)
    a, b = Boxed.apply(x)
    (a + b).backward()
    assert seen == [(list, 2)]
    same(x.grad, 5.0)


def test_c28_function_ctx() -> None:
    """Works."""
    context = torch.autograd.function.FunctionCtx
    seen: list[Any] = []

    class Kept(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(ctx)
            return x * 1

    Kept.apply(leaf(1.0))
    assert [isinstance(ctx, context) for ctx in seen] == [True]
    methods = {name for name in dir(context) if name[0] != "_" and callable(getattr(context, name))}
    assert methods == {
        "save_for_backward",
        "save_for_forward",
        "mark_dirty",
        "mark_shared_storage",
        "mark_non_differentiable",
        "set_materialize_grads",
    }


def test_c29_class_of_the_node() -> None:
    """Differs: there is no `FunctionMeta`, and traced values have no `grad_fn`."""
    node = Returned.apply(leaf(1.0)).grad_fn
    assert type(node).__name__ == "ReturnedBackward"
    assert isinstance(node, torch.autograd.graph.Node)
    assert type(Returned.apply(leaf(1.0)).grad_fn) is type(node)
    assert issubclass(
        torch.autograd.function.BackwardCFunction, torch.autograd.function.FunctionCtx
    )
    assert not hasattr(torch.autograd.function, "FunctionMeta")
    with pytest.raises(AttributeError, match="traced value has no attribute 'grad_fn'"):
        func.grad(lambda x: Returned.apply(x).grad_fn)(constant(1.0))


def test_c30_inplace_and_nested_functions() -> None:
    """Differs: every Function takes pytrees, in forward and backward; no `*_extended` is called."""
    function = torch.autograd.function

    class Doubled(function.InplaceFunction):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * ct

    class Nested(function.NestedIOFunction):
        @staticmethod
        def forward(ctx: Any, inputs: Any) -> Any:
            return {"y": 3 * inputs["x"]}

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return {"x": 3 * ct["y"]}

    class Extended(function.NestedIOFunction):
        def forward_extended(self, x: Any) -> Any:
            return 2 * x

    assert issubclass(function.InplaceFunction, Function)
    assert issubclass(function.NestedIOFunction, Function)
    x = leaf(1.0)
    Doubled.apply(x).backward()
    Nested.apply({"x": x})["y"].backward()
    same(x.grad, 5.0)
    with pytest.raises(NotImplementedError, match=r"forward is missing[\s\S]*def forward\(ctx, x"):
        Extended.apply(x)


def test_c31_pytrees_as_arguments() -> None:
    """Differs: tensors inside of tuples, lists and dicts are differentiated."""

    class Pair(Function):
        @staticmethod
        def forward(ctx: Any, pair: Any) -> Any:
            ctx.pair = pair
            return pair[0] * pair[1]["b"]

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ((ct * ctx.pair[1]["b"], {"b": ct * ctx.pair[0]}),)

    a, b = leaf(1.0), leaf(2.0)
    result = Pair.apply((a, {"b": b}))
    assert result.requires_grad
    result.backward()
    same(a.grad, 2.0)
    same(b.grad, 1.0)


def test_c32_pytrees_as_results() -> None:
    """Differs: tensors inside of dicts and nested tuples have their history."""

    class Several(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return {"a": 2 * x, "b": (3 * x, [5 * x])}

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * ct["a"] + 3 * ct["b"][0] + 5 * ct["b"][1][0]

    x = leaf(1.0)
    result = Several.apply(x)
    assert result["a"].requires_grad
    (result["a"] + result["b"][1][0]).backward()
    same(x.grad, 7.0)


def test_c33_keywords() -> None:
    """Differs: keyword-only arguments are taken, under vmap as well, and differentiated."""
    x, k = leaf(2.0), leaf(5.0)
    Product.apply(x, y=k).backward()
    same(x.grad, 5.0)
    x.grad = k.grad = None
    result = Keyword.apply(x, k=k)
    same(result, 10.0)
    result.backward()
    same(x.grad, 5.0)
    same(k.grad, 2.0)
    batched = func.vmap(lambda x, k: Keyword.apply(x, k=k))
    same(batched(constant([1.0, 2.0]), constant([3.0, 4.0])), [3.0, 8.0])
    with pytest.raises(
        RuntimeError, match=r"Keyword\.apply[\s\S]*missing a required .*argument: 'k'"
    ):
        Keyword.apply(x)


def test_c34_exceptions_in_backward() -> None:
    """Works."""

    class Simulated(Exception):
        pass

    class Raises(Square):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            raise Simulated("Simulate error on backward pass")

    with pytest.raises(Simulated, match="Simulate error on backward pass"):
        Raises.apply(leaf(1.0)).backward()


class InnerLeaf(Square):
    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        inner = leaf(4.0)
        with torch.enable_grad():
            (inner * inner).backward()
        return ct * inner.grad


class Reenter(Square):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        with torch.enable_grad():
            ctx.x = torch.autograd.Variable(x, requires_grad=True)
            ctx.output = ctx.x * 4.0
        return ctx.output.detach()

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        with torch.enable_grad():
            ctx.output.sum().backward()
        return ctx.x.grad * ct


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (InnerLeaf, 8.0),
        (Reenter, 4.0),
    ],
)
def test_c35_reentrant_backward(function: Any, slope: float) -> None:
    """Works. A rule that goes backward itself is called on tensors; hooks may go backward, too."""

    class ByTransform(Square):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * func.grad(lambda x: x**2)(ctx.saved_tensors[0])

    x, inner = leaf(2.0), leaf(3.0)

    def hook(gradient: Any) -> Any:
        with torch.enable_grad():
            (inner * inner).backward()
        return gradient * inner.grad

    y = ByTransform.apply(x)
    y.register_hook(hook)
    with torch.no_grad():
        y.backward()
        assert not torch.is_grad_enabled()
    same(x.grad, 24.0)
    x.grad, y = None, function.apply(x)
    with torch.no_grad():
        y.backward()
        assert not torch.is_grad_enabled()
    same(x.grad, slope)


def test_c36_variable_function() -> None:
    """Declined: it is gone, as there; the error says to write `tensor(x, requires_grad=True)`."""
    with pytest.raises(RuntimeError, match=r"Write tensor\(x, requires_grad=True\)"):
        torch.autograd.variable([1.0])
