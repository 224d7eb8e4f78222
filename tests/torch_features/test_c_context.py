"""The context of a Function, row by row of what PyTorch's documents name."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.torch import func
from tests.torch_suite.common import Identity, Returned, constant, leaf, same

Function = torch.autograd.Function
fw_ad = torch.autograd.forward_ad


class Scaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: int, y: Any) -> Any:
        ctx.k = k
        ctx.save_for_backward(x, y)
        return x * k * y

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, y = ctx.saved_tensors
        return ct * ctx.k * y, None, ct * ctx.k * x


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x *= 2
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * 2


def test_c11_save_for_backward() -> None:
    """Differs: what is computed in forward and saved is a part of second derivatives."""

    class SavesTwice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_backward(2 * x)
            return x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.saved_tensors[0]

    class SavesNumber(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, 3)
            return x * 1

    x = leaf(5.0)
    packed: list[float] = []
    pack = lambda t: packed.append(t.item()) or t * 1  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = SavesTwice.apply(x)
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    assert packed == [10.0]
    same(slope, 10.0)
    (slope,) = torch.autograd.grad(SavesTwice.apply(x), x, create_graph=True)
    same(torch.autograd.grad(slope, x)[0], 2.0)
    with pytest.raises(TypeError, match="argument 1 is of type int"):
        SavesNumber.apply(x)


def test_c12_save_for_forward() -> None:
    """Works."""
    seen: list[int] = []

    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, forward: bool) -> Any:
            ctx.save_for_backward(x)
            if forward:
                ctx.save_for_forward(x, 2 * x)
            return x * 2

        @staticmethod
        def jvp(ctx: Any, tangent: Any, _: Any) -> Any:
            seen.append(len(ctx.saved_tensors))
            return tangent * sum(ctx.saved_tensors, 2)

    for forward, expected in ((False, 2.0), (True, 11.0)):
        with fw_ad.dual_level():
            dual = fw_ad.make_dual(leaf(3.0), constant(1.0))
            same(fw_ad.unpack_dual(Doubled.apply(dual, forward)).tangent, expected)
    assert seen == [0, 2]


def test_c13_saved_tensors() -> None:
    """Differs: what is written to afterwards was saved as it was, and no error is needed."""
    x, y = leaf(2.0), leaf(1.0)
    written = y * 1
    result = Scaled.apply(x, 2, written)
    assert result.grad_fn.saved_tensors == (2.0, 1.0)
    written.add_(10)
    result.backward()
    same(x.grad, 2.0)
    same(y.grad, 4.0)


def test_c14_saved_variables() -> None:
    """Works."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_variables
            return 2 * x * ct

    x = leaf(3.0)
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated; use 'saved_te"):
        Square.apply(x).backward()
    same(x.grad, 6.0)


def test_c15_needs_input_grad() -> None:
    """Works."""
    seen: list[Any] = []

    class Asks(Scaled):
        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return Scaled.backward(ctx, ct)

    Asks.apply(leaf(1.0), 2, constant(3.0)).backward()
    slope = func.grad(lambda x, y: Asks.apply(x, 2, y), argnums=0)(constant(1.0), constant(3.0))
    same(slope, 6.0)
    assert seen == [(True, False, False)] * 2


def test_c16_mark_dirty() -> None:
    """Differs: to write to an argument that requires grad, and is not marked, is an error."""

    class NotReturned(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x += 1
            ctx.mark_dirty(x)
            return x * 1

    class NoInput(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.mark_dirty(y)
            return y

    class Undeclared(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x += 1
            return x * 1

    class ByIndex(Dirty):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x[...] = 2 * x
            ctx.mark_dirty(x)
            return x

    a = leaf([1.0, 3.0])
    b = a * 1
    with pytest.raises(RuntimeError, match="writes into an argument, and does not say so"):
        Undeclared.apply(b)
    b = a * 1
    result = Dirty.apply(b)
    assert result is b
    assert b._version == 1
    same(b, [2.0, 6.0])
    b.sum().backward()
    same(a.grad, [2.0, 2.0])
    with pytest.raises(RuntimeError, match="marked as dirty, and is not returned"):
        NotReturned.apply(a * 1)
    with pytest.raises(RuntimeError, match="mark_dirty was given what is no input"):
        NoInput.apply(a * 1)
    same(func.vmap(lambda x: Dirty.apply(x * 1))(constant([[1.0], [2.0]])), [[2.0], [4.0]])
    a = leaf(3.0)
    b = a * 1
    assert ByIndex.apply(b) is b
    same(b, 6.0)
    b.backward()
    same(a.grad, 2.0)
    b = a * 1
    assert Dirty.apply(b) is b
    same(b, 6.0)


def test_c17_mark_non_differentiable() -> None:
    """Works."""
    seen: list[Any] = []

    class Three(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            squares, places, triples = x**2, x.argsort(), 3 * x
            ctx.mark_non_differentiable(places, triples)
            ctx.save_for_backward(x)
            return squares, places, triples

        @staticmethod
        def backward(ctx: Any, ct: Any, places: Any, triples: Any) -> Any:
            seen.append((places.dtype.kind, places.tolist(), triples.dtype.kind, triples.tolist()))
            return 2 * ctx.saved_tensors[0] * ct

    x = leaf([2.0, 1.0])
    results = Three.apply(x)
    assert tuple(r.requires_grad for r in results) == (True, False, False)
    results[0].sum().backward()
    assert seen == [("i", [0, 0], "f", [0.0, 0.0])]
    same(x.grad, [4.0, 2.0])


@pytest.mark.parametrize(("value", "expected"), [(True, 1.0), (False, 101.0)])
def test_c18_set_materialize_grads(value: bool, expected: float) -> None:
    """Works."""

    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(value)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return first + 100 if second is None else first + second

    x = leaf([1.0, 2.0])
    Two.apply(x)[0].sum().backward()
    same(x.grad, [expected, expected])


def test_c19_mark_shared_storage() -> None:
    """Works."""

    class Shared(Identity):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_shared_storage((x, x))
            return x * 3

    with pytest.warns(FutureWarning, match="mark_shared_storage is deprecated"):
        same(Shared.apply(leaf(1.0)), 3.0)


def test_c20_attributes_of_the_context() -> None:
    """Differs: tensors on it are saved and differentiated; rules alone see it, no node does."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.k, ctx.double = 2, 2 * x
            return x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.double

    x = leaf(3.0)
    result = Square.apply(x)
    (slope,) = torch.autograd.grad(result, x, create_graph=True)
    same(slope, 6.0)
    same(torch.autograd.grad(slope, x)[0], 2.0)
    with pytest.raises(AttributeError, match="SquareBackward has no attribute 'k'"):
        Square.apply(x).grad_fn.k  # noqa: B018


def test_c21_returning_an_input() -> None:
    """Differs: the result is a value of its own, no view: it may be written to, and saved."""

    class Saved(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0], output)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * sum(ctx.saved_tensors)

    a = leaf([3.0])
    result = Returned.apply(a)
    assert result is not a
    assert result.grad_fn.name() == "ReturnedBackward"
    result.mul_(5)
    same(a, [3.0])
    result.backward()
    same(a.grad, [10.0])
    same(torch.autograd.grad(Saved.apply(a), a)[0], [6.0])


def test_c22_one_tensor_returned_twice() -> None:
    """Differs: they are two tensors, and to write to one leaves the other."""

    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            result = 2 * x
            return result, result

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return 2 * first + 2 * second

    x = leaf([1.0])
    first, second = Twice.apply(x)
    assert first is not second
    (first + 3 * second).sum().backward()
    same(x.grad, [8.0])
    first, second = Twice.apply(x)
    first.add_(1)
    same(first, [3.0])
    same(second, [2.0])
    assert torch.autograd.gradcheck(Twice.apply, x)
    assert torch.autograd.gradgradcheck(Twice.apply, x)
