"""What `ctx` keeps, and what its marks mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function, FunctionCtx
from ftrans.errors import MissingRuleError, RuleError
from tests.helpers import assert_close

X = np.array([0.5, 2.0, 3.0])


class Marked(Function):
    """Has a square, which is differentiable, and a cube that is not, and an index."""

    materialize = True
    seen: list[Any] = []  # noqa: RUF012 (shared on purpose)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        cube, index = x**3, fnp.argmax(x)
        ctx.mark_non_differentiable(cube, index)
        ctx.set_materialize_grads(Marked.materialize)
        return x**2, cube, index

    @staticmethod
    def backward(ctx, ct, ct_cube, ct_index):
        Marked.seen.append((ct, ct_cube, ct_index))
        (x,) = ctx.saved_tensors
        return 2 * x * ct


class MarkedNew(Function):
    materialize = True
    seen: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(x):
        return x**2, x**3, fnp.argmax(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(MarkedNew.materialize)

    @staticmethod
    def backward(ctx, ct, ct_cube, ct_index):
        MarkedNew.seen.append((ct, ct_cube, ct_index))
        (x,) = ctx.saved_tensors
        return 2 * x * ct


@pytest.mark.parametrize("function", [Marked, MarkedNew])
@pytest.mark.parametrize("materialize", [True, False])
def test_mark_non_differentiable(
    monkeypatch: pytest.MonkeyPatch, function: Any, materialize: bool
) -> None:
    monkeypatch.setattr(function, "materialize", materialize)
    function.seen.clear()

    def loss(x: Any) -> Any:
        square, cube, index = function.apply(x)
        return square.sum() + cube.sum() + square[index]

    expected = 2 * X + [0.0, 0.0, 2 * 3.0]
    assert_close(func.grad(loss)(X), expected)
    for ct, *others in function.seen:
        assert ct.shape == (3,)
        if not materialize:
            assert others == [None, None]
        else:
            assert [np.shape(other) for other in others] == [(3,), ()]
    assert_close(func.jvp(loss, (X,), (X,))[1], (expected * X).sum())
    assert_close(func.jvp(lambda x: function.apply(x)[1], (X,), (X,))[1], np.zeros(3))
    assert_close(func.vmap(func.grad(loss))(np.stack([X, X[::-1]]))[0], expected)
    assert_close(ftrans.jit(func.grad(loss))(X), expected)
    _, _, index = function.apply(X)
    assert index.dtype.kind == "i"
    assert_close(func.hessian(loss)(X), np.diag([2.0, 2.0, 4.0]))


class Unused(Function):
    """Adds a hundred to its gradient where the unused output has a cotangent."""

    materialize: bool | None = None

    @staticmethod
    def forward(ctx, x, y):
        if Unused.materialize is not None:
            ctx.set_materialize_grads(Unused.materialize)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, x_ct, y_ct):
        extra = 0.0 if x_ct is None or y_ct is None else 100.0
        return (
            None if x_ct is None else 2 * x_ct + extra,
            None if y_ct is None else 3 * y_ct + extra,
        )


@pytest.mark.parametrize("materialize", [None, True, False])
def test_set_materialize_grads(monkeypatch: pytest.MonkeyPatch, materialize: bool | None) -> None:
    monkeypatch.setattr(Unused, "materialize", materialize)
    extra = 0.0 if materialize is False else 100.0
    for wrap in (
        lambda f: f,
        ftrans.jit,
        lambda f: lambda *xs: func.vmap(f)(*(x[None] for x in xs)),
    ):
        got = wrap(func.grad(lambda x, y: Unused.apply(x, y)[0].sum(), (0, 1)))(X, X)
        assert_close(np.reshape(got[0], 3), [2.0 + extra] * 3)
        assert_close(np.reshape(got[1], 3), [extra] * 3)
        got = wrap(func.grad(lambda x, y: Unused.apply(x, y)[1].sum(), (0, 1)))(X, X)
        assert_close(np.reshape(got[1], 3), [3.0 + extra] * 3)
        both = wrap(func.grad(lambda x, y: sum(o.sum() for o in Unused.apply(x, y))))(X, X)
        assert_close(np.reshape(both, 3), [102.0] * 3)


def test_materialized_cotangents_are_zeros() -> None:
    class Sum(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            return 2 * first + (7 + second) * 3  # wrong on purpose: shows what `second` is

    assert_close(func.grad(lambda x: Sum.apply(x)[0].sum())(X), [23.0] * 3)


class SavesTwice(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_backward(2 * x, None)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        double, nothing = ctx.saved_tensors
        assert nothing is None
        return double * ct


def test_the_last_save_wins_and_none_is_kept() -> None:
    for f in (SavesTwice.apply, ftrans.jit(SavesTwice.apply)):
        assert_close(func.grad(lambda x: f(x).sum())(X), 2 * X)  # noqa: B023
    assert_close(func.vmap(func.grad(SavesTwice.apply))(X), 2 * X)


class SavesApart(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x)
        ctx.save_for_forward(x, 3 * x)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        (double,) = ctx.saved_tensors
        return double * ct

    @staticmethod
    def jvp(ctx, t):
        x, triple = ctx.saved_tensors
        return (triple - x) * t


def test_each_rule_reads_what_was_saved_for_it() -> None:
    assert_close(func.jvp(SavesApart.apply, (X,), (X,))[1], 2 * X * X)
    assert_close(func.grad(lambda x: SavesApart.apply(x).sum())(X), 2 * X)
    assert_close(func.jacfwd(func.jacrev(lambda x: SavesApart.apply(x).sum()))(X), 2 * np.eye(3))
    assert_close(func.jacrev(func.jacfwd(lambda x: SavesApart.apply(x).sum()))(X), 2 * np.eye(3))


class Attributes(Function):
    @staticmethod
    def forward(ctx, x, shape, name):
        ctx.number, ctx.text, ctx.shape, ctx.nothing = 3, name, shape, None
        ctx.table = np.arange(3.0)
        ctx.traced = {"twice": 2 * x, "pair": (x, [x * x])}
        ctx.callable = lambda ct: ct * x
        return x**2 * ctx.table

    @staticmethod
    def backward(ctx, ct):
        assert (ctx.number, ctx.text, ctx.shape, ctx.nothing) == (3, "name", (3,), None)
        twice, (x, _) = ctx.traced["twice"], ctx.traced["pair"]
        return ct * (twice + x + ctx.callable(fnp.ones(ctx.shape, ct.dtype))) / 2 * ctx.table, *NONE


NONE = (None, None)


def test_any_attribute_is_kept() -> None:
    def f(x: Any) -> Any:
        return Attributes.apply(x, (3,), "name").sum()

    expected = 2 * X * np.arange(3.0)
    assert_close(func.grad(f)(X), expected)
    assert_close(ftrans.jit(func.grad(f))(X), expected)
    assert_close(func.vmap(func.grad(f))(np.stack([X, X])), np.stack([expected, expected]))
    assert_close(func.hessian(f)(X), np.diag(2 * np.arange(3.0)))
    assert_close(func.jvp(f, (X,), (X,))[1], expected @ X)


@pytest.mark.parametrize(
    "name", ["inputs", "output", "outputs", "args", "name", "frame", "_pt_inner_ctx", "saved"]
)
def test_no_attribute_is_taken(name: str) -> None:
    class Keeps(Function):
        @staticmethod
        def forward(x, k):
            return k * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            assert not hasattr(ctx, name)
            setattr(ctx, name, inputs[1])

        @staticmethod
        def backward(ctx, ct):
            return getattr(ctx, name) * ct, None

    assert_close(func.grad(lambda x: Keeps.apply(x, 5.0).sum())(X), [5.0] * 3)
    assert_close(func.jvp(lambda x: Keeps.apply(x, 5.0), (X,), (X,))[1], 5 * X)


def test_an_attribute_that_is_not_there() -> None:
    class Asks(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, ct):
            return ctx.slope * ct

    with pytest.raises(AttributeError, match="slope"):
        func.grad(lambda x: Asks.apply(x).sum())(X)


def test_the_methods_of_ctx() -> None:
    seen = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(ctx)
            return 2 * x

        @staticmethod
        def backward(ctx, ct):
            seen.append(ctx)
            return 2 * ct

    func.grad(lambda x: Looks.apply(x).sum())(X)
    assert len(seen) >= 2
    for ctx in seen:
        assert isinstance(ctx, FunctionCtx)


class Dirty(Function):
    """Writes into its argument, which it returns."""

    @staticmethod
    def forward(ctx, x):
        x[...] = 2 * x
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct


class DirtyOpaque(Function):
    @staticmethod
    def forward(ctx, x):
        array = np.asarray(x)
        array *= 2
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [Dirty, DirtyOpaque])
def test_mark_dirty(function: type[Function]) -> None:
    """What was written to is what was returned, from then on; arrays of the caller are not."""

    def f(x: Any) -> Any:
        y = x * 1.0
        out = function.apply(y)
        return (out * y).sum()

    for wrap in (lambda f: f, ftrans.jit):
        assert_close(wrap(f)(X), (4 * X * X).sum())
        assert_close(wrap(func.grad(f))(X), 8 * X)
        assert_close(wrap(func.hessian(f))(X), 8 * np.eye(3))
        assert_close(wrap(func.vmap(func.grad(f)))(X[None]), 8 * X[None])
    x = X.copy()
    assert_close(func.grad(lambda x: function.apply(x).sum())(x), [2.0] * 3)
    assert_close(x, X)


def test_mark_dirty_of_what_is_not_returned() -> None:
    class Lost(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return 2 * x

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    with pytest.raises(RuntimeError, match=r"Lost.*dirty.*returned"):
        func.grad(lambda x: Lost.apply(x).sum())(X)


class WritesInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        array = np.asarray(x)
        np.exp(array, out=array)
        return array * 1.0

    @staticmethod
    def backward(ctx, ct):
        return ct


@pytest.mark.parametrize(
    "call",
    [
        WritesInPlace.apply,
        lambda x: func.grad(lambda x: WritesInPlace.apply(x).sum())(x),
        lambda x: ftrans.jit(WritesInPlace.apply)(x),
        lambda x: func.vmap(WritesInPlace.apply)(x),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_opaque_forward_cannot_write_to_its_argument_in_silence(call: Any) -> None:
    x = X.copy()
    with pytest.raises(RuleError, match="writes into an argument"):
        call(x)
    assert_close(x, X)


def test_an_opaque_forward_cannot_write_to_a_named_argument_in_silence() -> None:
    class Named(Function):
        @staticmethod
        def forward(ctx, x, *, k):
            x = np.asarray(x)
            k[0] = 5.0
            return x * k[0]

        @staticmethod
        def backward(ctx, ct):
            return ct * 5.0

    gradient = func.grad(lambda x, k: Named.apply(x, k=k).sum())
    gradient(X, np.full(2, 5.0))  # it is found to be opaque
    k = np.ones(2)
    with pytest.raises(RuleError, match="writes into an argument"):
        gradient(X, k)
    assert_close(k, np.ones(2))


@pytest.mark.parametrize("opaque", [False, True])
def test_what_is_written_to_must_not_be_passed_twice(opaque: bool) -> None:
    class Raised(Function):
        @staticmethod
        def forward(ctx, a, b):
            b += 1.0
            ctx.mark_dirty(b)
            return (np.asarray(a) if opaque else a) * 1.0, b

        @staticmethod
        def backward(ctx, c, d):
            return c, d

    def halves(x):
        y = x * 1.0
        return Raised.apply(y[:2], y[2:])

    for _ in range(2):
        for call in (
            lambda x: Raised.apply(x, x),
            lambda x: Raised.apply(x[:3], x[1:]),
            lambda x: func.vjp(lambda x: Raised.apply(y := x * 1.0, y), x)[0],
            lambda x: func.vjp(lambda x: Raised.apply((y := x * 1.0)[:3], y[1:]), x)[0],
        ):
            with pytest.raises(RuleError, match="is marked as dirty, and shares memory with"):
                call(np.arange(4.0))
        found, _ = func.vjp(halves, np.arange(4.0))
        assert_close(found[0], [0.0, 1.0])
        assert_close(found[1], [3.0, 4.0])
        found = halves(np.arange(4.0))
        assert_close(found[1], [3.0, 4.0])


class OpaqueAttribute(Function):
    """Keeps on `ctx` what NumPy computed, as the documents say not to do."""

    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.up, ctx.down = np.exp(x), np.exp(-x)
        ctx.save_for_backward(ctx.up + ctx.down)
        return (ctx.up - ctx.down) / 2

    @staticmethod
    def backward(ctx, ct):
        (both,) = ctx.saved_tensors
        return ct * (ctx.up + ctx.down + both) / 4


@pytest.mark.filterwarnings("ignore")
def test_opaque_attributes_are_right_once_and_an_error_twice() -> None:
    f = lambda x: OpaqueAttribute.apply(x).sum()  # noqa: E731
    assert_close(OpaqueAttribute.apply(X), np.sinh(X))
    assert_close(func.grad(f)(X), np.cosh(X))
    assert_close(ftrans.jit(func.grad(f))(X), np.cosh(X))
    assert_close(func.vmap(func.grad(f))(X[:, None]), np.cosh(X)[:, None])
    assert_close(func.jvp(OpaqueAttribute.apply, (X,), (X,))[1], X * np.cosh(X))
    for twice in (func.hessian(f), func.grad(lambda x: func.grad(f)(x).sum())):
        with pytest.raises(MissingRuleError, match="OpaqueAttribute"):
            twice(X)


# ------------------------------------------------------------------- what PyTorch checks as well


class Unreturned(Function):
    @staticmethod
    def forward(ctx, x):
        x[...] = x + 1
        ctx.mark_dirty(x)
        return x * 1

    @staticmethod
    def backward(ctx, ct):
        return ct


class Rebound(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x += 1
        return x

    @staticmethod
    def backward(ctx, ct):
        return ct


def test_what_is_marked_as_dirty_is_returned() -> None:
    with pytest.raises(RuleError, match=r"Unreturned: an input is marked as dirty, and is not ret"):
        Unreturned.apply(np.ones(2))
    with pytest.raises(RuleError, match=r"Unreturned: an input is marked as dirty, and is not ret"):
        func.vjp(lambda x: Unreturned.apply(fnp.copy(x)), np.ones(2))
    x = np.ones(2)
    assert_close(Rebound.apply(x), [2.0, 2.0])
    assert_close(func.vjp(lambda x: Rebound.apply(fnp.copy(x)), np.ones(2))[0], [2.0, 2.0])


def test_what_is_not_differentiable_has_no_tangent() -> None:
    class Marked(Function):
        @staticmethod
        def forward(ctx, x, tangent):
            out = x * 2
            ctx.mark_non_differentiable(out)
            ctx.tangent = tangent
            return x * 3, out

        @staticmethod
        def jvp(ctx, t, _):
            return 3 * t, 2 * t if ctx.tangent else None

    found = func.jvp(lambda x: Marked.apply(x, False), (2.0,), (1.0,))
    assert_close(found, ((6.0, 4.0), (3.0, 0.0)))
    with pytest.raises(RuleError, match=r"result 1 is marked as not differentiable"):
        func.jvp(lambda x: Marked.apply(x, True), (2.0,), (1.0,))


class Counting(Function):
    @staticmethod
    def forward(ctx, x, counts):
        counts[0] += 1
        return x * 1

    @staticmethod
    def backward(ctx, ct):
        return ct, None


def test_containers_without_arrays_are_handed_on_as_they_are() -> None:
    for call in (
        lambda counts: Counting.apply(np.ones(2), counts),
        lambda counts: func.grad(lambda x: Counting.apply(x, counts).sum())(np.ones(2)),
        lambda counts: func.vmap(lambda x: Counting.apply(x, counts))(np.ones(2)),
    ):
        for _ in range(3):
            counts = [0]
            call(counts)
            assert counts == [1]


class ScaledPower(Function):
    """Keeps numbers on its context: an argument as it is, and one that it computes."""

    @staticmethod
    def forward(ctx, x, p):
        array = np.asarray(x)
        ctx.save_for_backward(x)
        ctx.p = p
        ctx.total = float(array.sum())
        return np.abs(array) ** p * ctx.total

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        kind = {2.0: "two", 3.0: "three"}[ctx.p]
        assert isinstance(ctx.p, float)
        assert kind
        return ct * ctx.p * x ** (ctx.p - 1) * ctx.total + (ct * x**ctx.p).sum(), None


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
@pytest.mark.parametrize("p", [2.0, 3.0])
def test_numbers_that_were_arguments_are_themselves_on_the_context(p: float) -> None:
    x = np.array([1.0, 2.0, 3.0])
    expected = p * x ** (p - 1) * x.sum() + (x**p).sum()
    f = lambda x: ScaledPower.apply(x, p).sum()  # noqa: E731
    for call in (func.grad(f), ftrans.jit(func.grad(f)), func.jacrev(f)):
        for k in (1.0, 2.0):
            assert_close(call(x * k), expected * k**p)
    assert_close(func.vmap(func.grad(f))(np.stack([x, 2 * x]))[1], expected * 2**p)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return k * np.asarray(x) ** 2

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ctx.k * 2 * x * ct, None


@pytest.mark.parametrize("k", [2, 2.0, 2 + 0j])
def test_they_have_no_derivative_that_could_be_missing(k: Any) -> None:
    f = lambda x: Scaled.apply(x, k).real  # noqa: E731
    assert_close(np.real(func.grad(f)(3.0)), 12.0)
    assert_close(np.real(func.grad(lambda x: func.grad(f)(x).real)(3.0)), 4.0)


@pytest.mark.parametrize("name", ["_state", "_copied", "_held", "_saved", "_pt_inner_ctx"])
def test_any_attribute_can_be_set(name: str) -> None:
    """No name with one underscore is taken: PyTorch's wrappers of contexts reserve some."""

    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            setattr(ctx, name, 3.0 * x)
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * getattr(ctx, name) * x

    f = lambda x: Scale.apply(x).sum()  # noqa: E731
    x = np.array([1.0, 2.0])
    assert_close(func.grad(f)(x), 3 * x**2)
    assert_close(func.vmap(func.grad(lambda x: Scale.apply(x)))(x), 3 * x**2)
    assert_close(func.hessian(f)(x), np.diag(6 * x))


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_backward_takes_one_list_where_the_class_says_so(opaque: bool) -> None:
    class Both(Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx: Any, grads: Any) -> Any:
            assert type(grads) is list
            (a, b), (x, y) = grads, ctx.saved_tensors
            grads.clear()  # which lets go of them
            if opaque:
                a, b, x, y = map(np.asarray, (a, b, x, y))
            return a * y + b, a * x + b

    f = lambda x: sum(Both.apply(x, 3.0 * x))  # noqa: E731
    assert_close(func.grad(f)(2.0), 16.0)
    assert_close(func.vmap(func.grad(f))(np.array([1.0, 2.0])), [10.0, 16.0])
    x = ftrans.tensor(2.0, requires_grad=True)
    f(x).backward()
    assert_close(x.grad.item(), 16.0)
    if not opaque:
        assert_close(func.hessian(f)(2.0), 6.0)
