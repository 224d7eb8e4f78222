"""Functions on tensors that do more than to compute: they are called as PyTorch calls them.

The numbers are those of the same programs run by PyTorch.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
import ftrans.torch as torch
from ftrans import func
from ftrans.autograd import Function, graph
from ftrans.custom.guards import guards_of
from ftrans.errors import GraphError, MissingRuleError, RuleError
from tests.helpers import assert_close
from tests.unit.test_function_reentrant import Squares, leaf


def rule(backward: Any, forward: Any = None) -> Any:
    """Returns `apply` of a `Function` that saves its operands; it is the product by default."""

    class Written(Function):
        @staticmethod
        def forward(ctx: Any, *xs: Any) -> Any:
            ctx.save_for_backward(*xs)
            return (forward or torch.mul)(*xs)

    Written.backward = staticmethod(backward)  # type: ignore[method-assign, assignment]
    return Written.apply


def looked(ctx: Any, ct: Any) -> Any:
    """Is the `backward` of a cube that looks at a value."""
    (x,) = ctx.saved_tensors
    return 3 * x * x * ct if ct.abs().max() > 0 else ct


cube = rule(looked, lambda x: x**3)

CLIPS: list[Callable[[Any], Any]] = [
    lambda ct: ct * 0.1 / ct.norm() if ct.norm() > 0.1 else ct,
    lambda ct: ct * min(1.0, 0.1 / ct.norm().item()),
    lambda ct: ct * min(1.0, 0.1 / float(ct.norm())),
    lambda ct: ct * np.minimum(1.0, 0.1 / np.linalg.norm(ct.tolist())),
    lambda ct: ct / len(torch.nonzero(ct)) * 0.1 * 2**0.5,
]


@pytest.mark.parametrize("clip", CLIPS)
def test_backward_looks_at_values(clip: Any) -> None:
    clipped = rule(lambda ctx, ct: clip(ct), torch.clone)
    for _ in range(4):
        x = leaf(1.0, 2.0)
        clipped(x * 3).sum().backward()
        assert_close(x.grad.numpy(), [0.21213204, 0.21213204], 1e-6)


def test_loops_until_something_has_converged() -> None:
    class Fixed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            z = torch.zeros_like(x)
            for _ in range(100):
                z, before = torch.tanh(w * z + x), z
                if (z - before).abs().max() < 1e-6:
                    break
            ctx.save_for_backward(z, w)
            return z

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            z, w = ctx.saved_tensors
            slope, u = 1 - z * z, torch.zeros_like(ct)
            for _ in range(100):
                u, before = ct + u * slope * w, u
                if (u - before).abs().max() < 1e-6:
                    break
            return u * slope, u * slope * z

    x, w = leaf(1.0, 0.2), leaf(0.3, 0.4)
    Fixed.apply(x, w).sum().backward()
    assert_close(x.grad.numpy(), [0.3034, 1.4083], 1e-3)
    assert_close(w.grad.numpy(), [0.2578, 0.4435], 1e-3)


def test_what_requires_grad_is_asked_in_both_methods() -> None:
    asked: list[Any] = []

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            z = x * y
            asked.append((x.requires_grad, y.requires_grad, z.requires_grad))
            ctx.save_for_backward(x, y)
            return z

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            x, y = ctx.saved_tensors
            asked.append((x.requires_grad, y.requires_grad, ct.requires_grad))
            return ct * y if x.requires_grad else None, ct * x if y.requires_grad else None

    x, y = leaf(1.0, 2.0), torch.tensor([3.0, 4.0])
    Product.apply(x, y).sum().backward()
    assert asked == [(True, False, False), (True, False, False)]
    assert_close(x.grad.numpy(), [3.0, 4.0])
    assert y.grad is None


def test_grad_modes() -> None:
    seen: list[bool] = []

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(torch.is_grad_enabled())
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            seen.append(torch.is_grad_enabled())
            return ct * 2 * ctx.saved_tensors[0]

    x = leaf(1.0, 2.0)
    Square.apply(x).sum().backward()
    (slope,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    slope.sum().backward()
    assert seen == [False, False, False, True]
    assert torch.is_grad_enabled()
    assert_close(x.grad.numpy(), [4.0, 6.0])


def test_second_and_third_derivatives() -> None:
    x = leaf(1.0, -2.0)
    (first,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), x, create_graph=True)
    assert_close(first.numpy(force=True), [3.0, 12.0])
    assert_close(second.numpy(force=True), [36.0, -288.0])
    second.sum().backward()
    assert_close(x.grad.numpy(), [108.0, 432.0])
    assert torch.autograd.gradcheck(cube, leaf(0.5, -1.5).double())
    assert torch.autograd.gradgradcheck(cube, leaf(0.5, -1.5).double())


def test_derivatives_by_the_result_that_was_saved() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (y,) = ctx.saved_tensors
            assert y.requires_grad
            return ct * y

    x = leaf(0.0, 1.0)
    (first,) = torch.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert_close(second.numpy(), np.exp([0.0, 1.0]), 1e-6)


def test_parameters_keep_their_identity() -> None:
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx: Any, function: Any, count: int, *args: Any) -> Any:
            ctx.function, ctx.inputs = function, list(args[:count])
            ctx.parameters = list(args[count:])
            with torch.no_grad():
                return function(*ctx.inputs)

        @staticmethod
        def backward(ctx: Any, *cts: Any) -> Any:
            ctx.inputs = [x.detach().requires_grad_(True) for x in ctx.inputs]
            with torch.enable_grad():
                output = ctx.function(*[x.view_as(x) for x in ctx.inputs])
            wanted = ctx.inputs + ctx.parameters
            found = torch.autograd.grad(output, wanted, cts, allow_unused=True)
            del ctx.inputs, ctx.parameters
            return None, None, *found

    w, x = leaf(2.0, 3.0), leaf(1.0, 2.0)
    Checkpoint.apply(lambda z: z * z * w, 1, x, w).sum().backward()
    assert_close(x.grad.numpy(), [4.0, 12.0])
    assert_close(w.grad.numpy(), [1.0, 4.0])


def test_what_forward_closes_over_has_no_gradient() -> None:
    w = leaf(2.0, 3.0)
    scaled = rule(lambda ctx, ct: ct * w.detach(), lambda x: x * w)
    x = leaf(1.0, 2.0)
    scaled(x).sum().backward()
    assert w.grad is None
    assert_close(x.grad.numpy(), [2.0, 3.0])
    seen = rule(lambda ctx, ct: ct * w if ct.sum() > 0 else ct, lambda x: x * w)
    seen(x).sum().backward()
    assert w.grad is None
    assert_close(x.grad.numpy(), [4.0, 6.0])


@pytest.mark.parametrize("is_run", [False, True])
def test_what_backward_closes_over_has_second_derivatives_alone(is_run: bool) -> None:
    w, x = leaf(2.0, 3.0), leaf(1.0, 2.0)
    scaled = rule(lambda ctx, ct: ct * w, lambda x: x * w)
    assert not scaled(torch.ones(2)).requires_grad
    scaled(x).sum().backward()
    assert w.grad is None
    y = scaled(x)
    if is_run:
        y.tolist()
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (slope * slope).sum().backward()
    assert_close(w.grad.numpy(), [4.0, 6.0])


@pytest.mark.parametrize("is_saved", [False, True])
def test_derivatives_of_what_forward_has_computed_are_an_error(is_saved: bool) -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.twice, ctx.mask = x * 2, x > 1.5
            ctx.save_for_backward(x * 2)
            return x * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            twice = ctx.saved_tensors[0] if is_saved else ctx.twice
            assert twice.requires_grad == torch.is_grad_enabled()
            return ct * twice * ctx.mask if ct.sum() > 0 else ct

    x = leaf(1.0, 2.0)
    for _ in range(2):
        (slope,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        assert_close(slope.numpy(force=True), [0.0, 4.0])
        with pytest.raises(
            MissingRuleError, match=r"Square\.forward: .* what it\n  computed in between"
        ):
            slope.sum().backward()
        Square.apply(x).sum().backward()
    assert_close(x.grad.numpy(), [0.0, 8.0])


def test_who_is_saved() -> None:
    found: list[Any] = []

    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.x = x
            ctx.save_for_backward(x, None, y)
            return x + y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            a, none, b = ctx.saved_tensors
            found.extend([ctx.x is x, a is x, none is None, b is y])
            return ct, ct

    x, base = leaf(1.0), leaf(2.0)
    y = base * 2
    Kept.apply(x, y).sum().backward()
    assert found == [True] * 4


def test_what_was_saved_is_what_it_was() -> None:
    squared = rule(
        lambda ctx, ct: 2 * ctx.saved_tensors[0] * ct if ct.sum() else ct, lambda x: x**2
    )
    x = leaf(1.0, 2.0)
    y = x * 1
    z = squared(y)
    y.mul_(10)
    z.sum().backward()
    assert_close(x.grad.numpy(), [2.0, 4.0])


def test_what_is_shown_has_values(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            print("backward", ct)
            return ct * 2

    for scale in (1.0, 2.0):
        (Loud.apply(leaf(1.0, 2.0)).sum() * scale).backward()
        assert capsys.readouterr().out == f"backward tensor([{scale:.0f}., {scale:.0f}.])\n"


def test_cotangents_that_are_kept_outside() -> None:
    seen: list[Any] = []
    passing = rule(lambda ctx, ct: seen.append(ct) or ct, torch.clone)
    for _ in range(3):
        passing(leaf(1.0, 2.0)).sum().backward()
    assert [x.tolist() for x in seen] == [[1.0, 1.0]] * 3


def test_several_results_and_cotangents_that_are_none() -> None:
    class Two(Function):
        materialize = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(Two.materialize)
            order = x.argsort()
            ctx.mark_non_differentiable(order)
            return x * 2, x * 3, order

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, order: Any) -> Any:
            if Two.materialize:
                assert (order == 0).all()
                return a * 2 + b * 3
            assert a is None
            assert order is None
            return b * 3 if b.sum() > 0 else b

    x = leaf(3.0, 2.0)
    for Two.materialize in (True, False):
        _, b, order = Two.apply(x)
        assert not order.requires_grad
        b.sum().backward()
    assert_close(x.grad.numpy(), [6.0, 6.0])


def test_what_is_written_in_place() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if x.sum() > 0:
                x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 2 if ct.sum() > 0 else ct

    x = leaf(1.0, 2.0)
    base = x * 1
    y = base[:1]
    assert Doubled.apply(y) is y
    base.sum().backward()
    assert_close(base.numpy(force=True), [2.0, 2.0])
    assert_close(x.grad.numpy(), [2.0, 1.0])
    with pytest.raises(GraphError, match="a leaf Variable that requires grad"):
        Doubled.apply(leaf(1.0))


def test_mistakes_are_errors() -> None:
    class Wrong(Function):
        returns: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.y = y
            return x * y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return Wrong.returns(ct) if ct.sum() else None

    def gradient(returns: Any) -> Any:
        Wrong.returns = returns
        x = leaf(1.0, 2.0)
        Wrong.apply(x, 2.0).sum().backward()
        return x.grad.tolist()

    assert gradient(lambda ct: (ct, None)) == [1.0, 1.0]
    assert gradient(lambda ct: (ct.sum().reshape(1).expand(3, 2), None)) == [6.0, 6.0]
    assert gradient(lambda ct: (np.ones(2), None)) == [1.0, 1.0]
    with pytest.raises(RuleError, match="expected 2, got 1"):
        gradient(lambda ct: ct)
    with pytest.raises(RuleError, match="the gradient of x has the wrong shape"):
        gradient(lambda ct: (torch.ones(3), None))

    unsaid = rule(looked, lambda x: x.mul_(2))
    with pytest.raises(RuleError, match="it writes into an argument, and does not say so"):
        unsaid(leaf(1.0) * 1)


def test_a_graph_that_was_freed() -> None:
    x = leaf(1.0, 2.0)
    y = cube(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(GraphError, match="after they have already been freed"):
        y.sum().backward()
    assert_close(x.grad.numpy(), [6.0, 24.0])


def test_once_differentiable() -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, ct: Any) -> Any:
            assert not torch.is_grad_enabled()
            return ct * 2 if ct.sum() > 0 else ct

    x = leaf(1.0)
    (slope,) = torch.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    with pytest.raises(MissingRuleError, match="marked with once_differentiable"):
        slope.sum().backward()


def test_the_graph_shows_it() -> None:
    class Named(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.text = "of mine"
            ctx.save_for_backward(x)
            return x.clone() if x.is_leaf else x * 1

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * 3

    x = leaf(1.0)
    y = Named.apply(x * 2)
    node = y.grad_fn
    assert node.name() == "NamedBackward"
    assert node.text == "of mine"
    assert node.needs_input_grad == (True,)
    assert node.saved_tensors[0].tolist() == [2.0]
    assert node.next_functions[0][0].name() == "MulBackward0"
    calls: list[Any] = []
    node.register_prehook(lambda cts: calls.append(cts[0].tolist()) or (cts[0] * 10,))
    node.register_hook(lambda found, cts: calls.append(found[0].tolist()))
    y.register_hook(lambda ct: ct + 1)
    y.retain_grad()
    y.sum().backward()
    assert calls == [[2.0], [60.0]]
    assert y.grad.tolist() == [2.0]
    assert x.grad.tolist() == [120.0]


def test_saved_tensor_hooks_pack_what_it_saves() -> None:
    packed: list[Any] = []
    with graph.saved_tensors_hooks(lambda x: packed.append(x.tolist()) or x * 2, lambda x: x / 2):
        x = leaf(1.0, 2.0)
        y = cube(x)
    y.sum().backward()
    assert packed == [[1.0, 2.0]]
    assert_close(x.grad.numpy(), [3.0, 12.0])


def test_batched_gradients_and_those_of_some_leaves() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0)
    z = cube(x * y)
    rows = torch.autograd.grad(z, x, torch.eye(2), is_grads_batched=True, retain_graph=True)
    assert_close(rows[0].numpy(), np.diag([3 * 9.0 * 3, 3 * 36.0 * 3]))
    (found,) = torch.autograd.grad(z.sum(), y, retain_graph=True)
    assert_close(found.numpy(), [3 * 9.0 * 1 + 3 * 36.0 * 2])
    z.sum().backward(inputs=[x])
    assert y.grad is None
    assert_close(x.grad.numpy(), [81.0, 324.0])


def test_results_that_are_no_tensors_are_what_they_are() -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x.max().item(), 3, None, "text"

        @staticmethod
        def backward(ctx: Any, ct: Any, *others: Any) -> Any:
            assert others == (None,) * 4
            return ct * 2

    x = leaf(1.0, 2.0)
    y, *others = Mixed.apply(x)
    assert others == [2.0, 3, None, "text"]
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_pytrees_and_keywords() -> None:
    class Sum(Function):
        @staticmethod
        def forward(ctx: Any, pair: Any, scale: float = 2.0) -> Any:
            ctx.scale = scale
            return {"sum": (pair["a"] + pair["b"]) * scale}

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            ct = ct["sum"]
            given = {"a": ct * ctx.scale, "b": None}
            return (given, None) if ct.sum() > 0 else (None, None)

    a, b = leaf(1.0), leaf(2.0)
    Sum.apply({"a": a, "b": b}, scale=3.0)["sum"].sum().backward()
    assert a.grad.tolist() == [3.0]
    assert b.grad is None or b.grad.tolist() == [0.0]


def test_only_arguments_that_were_passed_are_told_of() -> None:
    class Told(Function):
        seen: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int = 3) -> Any:
            Told.seen = ctx.needs_input_grad
            return x * y * k

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct, None

    Told.apply(leaf(1.0), torch.ones(1)).sum().backward()
    assert Told.seen == (True, False)


def test_where_nothing_requires_grad() -> None:
    with torch.no_grad():
        assert not cube(leaf(1.0)).requires_grad
    assert not cube(torch.tensor([1.0])).requires_grad
    assert cube(leaf(1.0)).requires_grad


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_under_transforms_it_is_traced_or_called_on_arrays() -> None:
    x = leaf(1.0, 2.0)
    Squares.apply(x).backward()
    assert_close(x.grad.numpy(), [2.0, 4.0])
    for given in (np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])):
        assert_close(np.asarray(func.grad(Squares.apply)(given)), [2.0, 4.0])
    rows = func.vmap(func.grad(Squares.apply))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert_close(rows, [[2.0, 4.0], [6.0, 8.0]])


def test_threads_and_errors_leave_nothing_open() -> None:
    class Failing(Function):
        fails = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if Failing.fails and x.requires_grad:
                raise ValueError("in forward")
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            if ct.sum() > 0:
                raise ValueError("in backward")
            return ct

    x = leaf(1.0)
    with pytest.raises(ValueError, match="in forward"):
        Failing.apply(x)
    Failing.fails = False
    y = Failing.apply(x)
    assert torch.is_grad_enabled()
    with pytest.raises(ValueError, match="in backward"):
        y.sum().backward()
    assert torch.is_grad_enabled()

    found: list[Any] = []

    def work() -> None:
        z = leaf(1.0, 2.0)
        for _ in range(20):
            cube(z).sum().backward()
        found.append(z.grad.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[60.0, 240.0]] * 4


def test_no_cycle_is_left() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * ctx.saved_tensors[1] if ct.sum() > 0 else ct

    x = leaf(1.0)
    Exp.apply(x).sum().backward()
    gc.collect()
    gc.disable()
    try:
        refs = []
        for is_used in (True, False):
            y = Exp.apply(x * 2)
            refs += [weakref.ref(y), weakref.ref(y._edge.segment)]
            if is_used:
                y.sum().backward()
            del y
        assert [ref() for ref in refs] == [None] * 4
    finally:
        gc.enable()


def test_steps_compile_nothing_anew() -> None:
    x = leaf(1.0, 2.0)

    def step() -> None:
        cube(x * 0.5).sum().backward()
        with torch.no_grad():
            x.sub_(0.001 * x.grad)
        x.grad = None

    for _ in range(20):
        step()
    before = ftrans.cache_info().misses
    for _ in range(20):
        step()
    assert ftrans.cache_info().misses == before


# --------------------------------------------------------------------- what is done outside of it


def test_what_is_no_computation_is_done_once_at_each_call() -> None:
    class Counted(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            Counted.calls += 1
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            Counted.calls += 100
            return ct * 2 if ct.sum() > 0 else ct

    for count in (101, 202, 303):
        Counted.apply(leaf(1.0)).sum().backward()
        assert Counted.calls == count


class Kept:
    """Is an object of a user's."""

    last: Any = None
    total = 0.0


def test_what_is_left_in_objects_of_a_users() -> None:
    kept, listed, named = Kept(), [], {}

    class Left(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, keep: Any, rows: Any, names: Any) -> Any:
            ctx.keep, ctx.rows = keep, rows
            names["x"] = x
            return x * 2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            ctx.keep.last = ct
            ctx.rows.append(ct.tolist())
            Left.text = f"{ct.sum():.1f}"
            return ct * 2, None, None, None

    x = leaf(1.0, 2.0)
    for number in range(3):
        Left.apply(x, kept, listed, named).sum().backward()
        assert kept.last.tolist() == [1.0, 1.0]
        assert listed == [[1.0, 1.0]] * (number + 1)
        assert named["x"] is x
        assert Left.text == "2.0"


def test_buffers_are_written_to() -> None:
    buffer, held = torch.zeros(2), Kept()
    held.last = torch.ones(2)

    class Averaged(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, average: Any) -> Any:
            average.mul_(0.5)
            average += x.detach()
            return x * average

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            held.last.add_(ct)
            buffer[0] = 7.0
            return ct, None

    x, average = leaf(1.0, 2.0), torch.zeros(2)
    found = []
    for _ in range(3):
        y = Averaged.apply(x, average)
        y.sum().backward()
        found.append(y.tolist())
    assert found == [[1.0, 4.0], [1.5, 6.0], [1.75, 7.0]]
    assert average.tolist() == [1.75, 3.5]
    assert held.last.tolist() == [4.0, 4.0]
    assert buffer.tolist() == [7.0, 0.0]


def test_draws() -> None:
    class Noisy(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.noise = torch.rand(2)
            return x + ctx.noise

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return torch.floor(ct + torch.rand_like(ct)) if ct.sum() > 0 else ct

    found = []
    for _ in range(3):
        torch.manual_seed(3)
        x = torch.zeros(2, requires_grad=True)
        y = Noisy.apply(x)
        y.backward(torch.full((2,), 3.5))
        found.append((y.tolist(), x.grad.tolist()))
        assert set(x.grad.tolist()) <= {3.0, 4.0}
    assert found == [found[0]] * 3
    torch.manual_seed(3)
    assert found[0][0] == torch.rand(2).tolist()


def test_none_leaves_a_gradient_as_it_was() -> None:
    frozen = rule(lambda ctx, ct: (ct * ctx.saved_tensors[1], None))
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    frozen(x, w).sum().backward()
    assert w.grad is None
    assert x.grad.tolist() == [3.0, 4.0]
    with pytest.raises(GraphError, match="not have been used"):
        torch.autograd.grad(frozen(x, w).sum(), w)
    assert torch.autograd.grad(frozen(x, w).sum(), w, allow_unused=True) == (None,)


def test_gradients_that_are_integers_or_flags() -> None:
    for cast in ("long", "bool", "int"):
        passing = rule(lambda ctx, ct, cast=cast: getattr(ct, cast)(), torch.clone)
        x = leaf(1.0, 2.0)
        passing(x).sum().backward()
        assert (x.grad.dtype, x.grad.tolist()) == (torch.float32, [1.0, 1.0])


def test_rows_chosen_by_ranges() -> None:
    class CrossEntropy(Function):
        @staticmethod
        def forward(ctx: Any, logits: Any, labels: Any) -> Any:
            p = torch.softmax(logits, 1)
            ctx.save_for_backward(p, labels)
            return -torch.log(p[range(len(labels)), labels]).mean()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            p, labels = ctx.saved_tensors
            slope = p.clone()
            slope[range(len(labels)), labels] -= 1
            return ct * slope / len(labels), None

    labels = torch.tensor([0, 2])
    given = [torch.tensor([[1.0, 2.0, 0.5], [0.1, 0.2, 0.3]], requires_grad=True) for _ in range(2)]
    CrossEntropy.apply(given[0], labels).backward()
    torch.nn.functional.cross_entropy(given[1], labels).backward()
    assert_close(given[0].grad.numpy(), given[1].grad.numpy(), 1e-6)


def test_what_is_computed_alone_is_traced() -> None:
    """Else it costs twice as much; PyTorch's functions count as known."""

    class Traced(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.exp(torch.clamp(x, min=0.0)) + torch.nn.functional.relu(x)
            ctx.save_for_backward(x, torch.exp(x))
            return torch.where(x > 0, y, torch.zeros_like(x))

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            x, y = ctx.saved_tensors
            found = ct.clone()
            found[x < 0] = 0
            return found * (y + torch.linalg.norm(x) * 0 + 1)

    x = leaf(1.0, -2.0)
    for _ in range(3):
        y = Traced.apply(x)
        y.sum().backward()
        assert not hasattr(y._edge.segment, "rule")
    assert_close(x.grad.numpy(), [3 * (np.exp(1.0) + 1), 0.0], 1e-6)


def test_which_functions_are_known_to_do_nothing_but_to_compute() -> None:
    known: list[Callable[[Any], Any]] = [
        lambda x: fnp.stop_gradient(x) * np.ix_([0]),
        lambda x: func.value_and_grad(fnp.sin)(x),
        lambda x: func.checkpoint_name(x, "kept"),
        lambda x: torch.nn.functional.poisson_nll_loss(torch.gradient(x), x),
        lambda x: torch.linalg.norm(torch.exp(x)),
    ]
    others: list[Callable[[Any], Any]] = [
        lambda x: x + torch.rand(2),
        lambda x: torch.nn.functional.dropout(x),
        lambda x: torch.is_grad_enabled(),
        lambda x: torch.exp_(x),
        lambda x: torch.manual_seed(1),
    ]
    assert [guards_of([f]) is not None for f in (*known, *others)] == [True] * 5 + [False] * 5


def test_a_rule_reads_what_has_every_attribute() -> None:
    class Settings(dict):  # type: ignore[type-arg]
        def __getattr__(self, name: str) -> Any:
            return self.setdefault(name, Settings())

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return 3.0

    settings, anything = Settings(rate=2.0), Anything()

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * torch.tensor(settings["rate"])

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct * anything.factor

    x = leaf(1.0, 2.0)
    for _ in range(2):
        y = Scaled.apply(x)
        y.sum().backward()
    assert y.tolist() == [2.0, 4.0]
    assert x.grad.tolist() == [6.0, 6.0]
