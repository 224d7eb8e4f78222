"""Functions among control flow, Python's and that of programs; threads; exceptions in rules."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import ConcretizationError
from tests.helpers import assert_close
from tests.oracle import jaxpr
from tests.unit.clean import assert_nothing_open

# ------------------------------------------------------------------- each in the other's backward


class Sin(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return fnp.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * Cos.apply(*ctx.saved_tensors)


class Cos(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return fnp.cos(x)

    @staticmethod
    def backward(ctx, ct):
        return -ct * Sin.apply(*ctx.saved_tensors)


class NumpySin(Function):
    @staticmethod
    def forward(x):
        return np.sin(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return ct * NumpyCos.apply(*ctx.saved_tensors)


class NumpyCos(Function):
    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return -ct * NumpySin.apply(*ctx.saved_tensors)


class NumpyRoll(Function):
    """Is linear: its backward is itself, the other way round."""

    @staticmethod
    def forward(x, by):
        return np.roll(np.asarray(x), by, axis=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx, ct):
        return NumpyRoll.apply(ct, -ctx.by), None


def repeat(way: str, f: Any, order: int) -> Any:
    for _ in range(order):
        inner = f
        if way == "grad":
            f = func.grad(inner)
        elif way == "jvp":
            f = lambda x, inner=inner: func.jvp(inner, (x,), (fnp.ones_like(x),))[1]  # noqa: E731
        else:
            f = (func.jacfwd, func.jacrev)[_ % 2](inner)
    return f


@pytest.mark.filterwarnings("ignore")  # for the loop of vmap
@pytest.mark.parametrize("way", ["grad", "jvp", "mixed"])
@pytest.mark.parametrize("function", [Sin, NumpySin])
def test_third_derivative_by_each_other(function: type[Function], way: str) -> None:
    x = np.float64(0.7)
    closed = [np.sin(x), np.cos(x), -np.sin(x), -np.cos(x)]
    for order in range(4):
        nth = repeat(way, function.apply, order)
        assert_close(nth(x), closed[order])
        assert_close(ftrans.jit(nth)(x), closed[order])
        assert_close(func.vmap(nth)(np.full(2, x)), np.full(2, closed[order]))


@pytest.mark.parametrize("by", [1, -2])
def test_a_linear_function_that_transposes_itself(by: int) -> None:
    x, t = np.arange(4.0), np.array([1.0, 10.0, 100.0, 1000.0])
    f = lambda x: NumpyRoll.apply(x, by)  # noqa: E731
    assert_close(func.jvp(f, (x,), (t,))[1], np.roll(t, by))
    assert_close(func.vjp(f, x)[1](t)[0], np.roll(t, -by))
    assert_close(func.linearize(f, x)[1](t), np.roll(t, by))
    quartic = func.grad(lambda x: (f(x) ** 4).sum())
    assert_close(quartic(x), 4 * x**3)
    curvature = func.jvp(quartic, (x,), (t,))[1]
    assert_close(curvature, 12 * x**2 * t)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return fnp.exp(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * Exp.apply(*ctx.saved_tensors)


class NumpyExp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.exp(np.asarray(x))

    @staticmethod
    def backward(ctx, ct):
        return ct * NumpyExp.apply(*ctx.saved_tensors)


@pytest.mark.parametrize("where", ["plain", "jit", "scan", "cond", "while"])
@pytest.mark.parametrize("function", [Exp, NumpyExp])
def test_fifth_derivative_by_itself(function: type[Function], where: str) -> None:
    """Whatever has been called, and compiled, with fewer derivatives before."""
    call = function.apply
    f = {
        "plain": call,
        "jit": ftrans.jit(call),
        "scan": lambda x: ftrans.scan(lambda c, _: (call(c), None), x, length=1)[0],
        "cond": lambda x: ftrans.cond(x > 0, call, lambda x: x, x),
        "while": lambda x: ftrans.while_loop(
            lambda s: s[0] < 1, lambda s: (s[0] + 1, call(s[1])), (0, x), max_steps=2
        )[1],
    }[where]
    x = np.float64(0.3)
    for _ in range(5):
        assert_close(f(x), np.exp(x))
        f = func.grad(f)


class Power(Function):
    """Calls itself in forward and in backward, with a smaller number."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x if n == 1 else x * Power.apply(x, n - 1)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct if ctx.n == 1 else ct * ctx.n * Power.apply(x, ctx.n - 1), None


def test_recursion_on_a_static_number() -> None:
    x = np.float64(1.3)
    f = lambda x: Power.apply(x, 5)  # noqa: E731
    assert_close(f(x), x**5)
    assert_close(func.grad(f)(x), 5 * x**4)
    assert_close(func.hessian(f)(x), 20 * x**3)
    assert_close(func.vmap(func.grad(func.grad(f)))(np.array([x, 2.0])), [20 * x**3, 160.0])


class Reentrant(Function):
    """Differentiates in its own rule."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return func.value_and_grad(lambda y: (y**4).sum())(x)[0] * 1.0

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * func.grad(lambda y: (y**4).sum())(x)


def test_transforms_in_rules() -> None:
    x = np.array([1.0, 2.0])
    assert_close(func.grad(Reentrant.apply)(x), 4 * x**3)
    assert_close(func.hessian(Reentrant.apply)(x), np.diag(12 * x**2))
    assert_close(func.vmap(func.grad(Reentrant.apply))(np.stack([x, 2 * x]))[1], 32 * x**3)
    assert_close(ftrans.jit(func.grad(Reentrant.apply))(x), 4 * x**3)


# ---------------------------------------------------------------------------- loops and branches


def by_scan(np: Any, scan: Any, sin: Any) -> Any:
    def f(x: Any) -> Any:
        def step(carry: Any, w: Any) -> Any:
            carry = sin(carry) * w
            return carry, carry**2

        last, squares = scan(step, x, WEIGHTS)
        return last + squares.sum()

    return f


WEIGHTS = np.array([1.1, 0.9, 1.3, 0.7])


def compare(ours: Any, theirs: Any, x: Any) -> None:
    """Compares value, gradient, forward mode, second derivative and batches with JAX's."""
    x = np.float64(x)
    batch = np.array([x, x / 2, -x])
    expected = jaxpr.evaluate(
        lambda x, batch: [
            theirs(x),
            jax.grad(theirs)(x),
            jax.jvp(theirs, (x,), (np.float64(1.5),))[1],
            jax.grad(jax.grad(theirs))(x),
            jax.jacfwd(jax.grad(theirs))(x),
            jax.vmap(jax.grad(theirs))(batch),
        ]
    )(x, batch)
    for wrap in (lambda f: f, ftrans.jit):
        got = [
            wrap(ours)(x),
            wrap(func.grad(ours))(x),
            wrap(lambda x: func.jvp(ours, (x,), (np.float64(1.5),))[1])(x),
            wrap(func.grad(func.grad(ours)))(x),
            wrap(func.jacfwd(func.grad(ours)))(x),
            wrap(func.vmap(func.grad(ours)))(batch),
        ]
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, 1e-11)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [Sin, NumpySin])
def test_in_the_body_of_a_scan(function: type[Function]) -> None:
    compare(
        by_scan(fnp, ftrans.scan, function.apply),
        by_scan(jnp, jax.lax.scan, jnp.sin),
        np.float64(0.8),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [Sin, NumpySin])
def test_in_a_branch(function: type[Function]) -> None:
    def f(cond: Any, sin: Any, cos: Any) -> Any:
        return lambda x: cond(x > 0, lambda x: sin(x) * x, lambda x: cos(x) * x, x)

    other = Cos if function is Sin else NumpyCos
    for x in (0.8, -0.8):
        compare(f(ftrans.cond, function.apply, other.apply), f(jax.lax.cond, jnp.sin, jnp.cos), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [Sin, NumpySin])
def test_in_a_loop_with_a_bound(function: type[Function]) -> None:
    def ours(x: Any) -> Any:
        return ftrans.while_loop(
            lambda s: s[0] < 3,
            lambda s: (s[0] + 1, function.apply(s[1]) * 1.5),
            (0, x),
            max_steps=5,
        )[1]

    def theirs(x: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(x) * 1.5
        return x

    compare(ours, theirs, 0.8)


def test_a_function_whose_forward_loops() -> None:
    class Compound(Function):
        @staticmethod
        def forward(ctx, x):
            out, steps = ftrans.scan(lambda c, w: (c * w, c), x, WEIGHTS)
            ctx.save_for_backward(steps)
            return out + steps.sum()

        @staticmethod
        def backward(ctx, ct):
            step = lambda c, w: (c * w + ct, None)  # noqa: E731
            return ftrans.scan(step, ct, WEIGHTS, reverse=True)[0]

    def theirs(x: Any) -> Any:
        out, steps = jax.lax.scan(lambda c, w: (c * w, c), x, WEIGHTS)
        return out + steps.sum()

    compare(lambda x: Compound.apply(x) ** 2, lambda x: theirs(x) ** 2, 0.8)


# ------------------------------------------------------------------------------ Python, each time


class Kinked(Function):
    """Branches on a value in forward, and remembers which way it went."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.positive = bool(x > 0)
        if x > 0:
            return x**2
        return -x

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 2 * x * ct if ctx.positive else -ct


def test_python_branches_on_values() -> None:
    for x, slope, curvature in ((3.0, 6.0, 2.0), (-3.0, -1.0, 0.0), (4.0, 8.0, 2.0)):
        x = np.float64(x)
        assert_close(func.grad(Kinked.apply)(x), slope)
        assert_close(func.jvp(Kinked.apply, (x,), (np.float64(1.0),))[1], slope)
        assert_close(func.grad(func.grad(Kinked.apply))(x), curvature)
        assert_close(func.grad(lambda y: Kinked.apply(y * 2.0))(x), 8 * x if x > 0 else -2.0)


@pytest.mark.parametrize("wrap", [func.vmap, lambda f: ftrans.jit(lambda xs: f(xs[0]))])
def test_python_branches_on_values_that_are_not_there(wrap: Any) -> None:
    with pytest.raises(ConcretizationError):
        wrap(Kinked.apply)(np.array([1.0, -1.0]))
    assert_nothing_open()


class Scaled(Function):
    scale = 2.0

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, ct):
        return Scaled.scale * ct


def test_what_a_rule_reads_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    f = lambda x: Scaled.apply(x).sum()  # noqa: E731
    x = np.ones(2)
    for scale in (2.0, 3.0, -1.0, 2.0):
        monkeypatch.setattr(Scaled, "scale", scale)
        assert_close(func.grad(f)(x), [scale] * 2)
        assert_close(func.jvp(Scaled.apply, (x,), (x,))[1], [scale] * 2)
        assert_close(func.vmap(func.grad(Scaled.apply))(x), [scale] * 2)
    kept = ftrans.jit(func.grad(f))
    assert_close(kept(x), [2.0] * 2)


def test_a_rule_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = func.grad(lambda x: Scaled.apply(x).sum())
    x = np.ones(2)
    assert_close(f(x), [2.0, 2.0])
    monkeypatch.setattr(Scaled, "backward", staticmethod(lambda ctx, ct: 9 * ct))
    assert_close(f(x), [9.0, 9.0])
    monkeypatch.setattr(Scaled, "forward", staticmethod(lambda ctx, x: x * 5))
    assert_close(Scaled.apply(x), [5.0, 5.0])
    assert_close(func.value_and_grad(lambda x: Scaled.apply(x).sum())(x)[0], 10.0)


def test_printing_in_rules(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(Function):
        @staticmethod
        def forward(ctx, x):
            print("forward", x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            print("backward", ct, x)
            return 2 * x * ct

    for _ in range(2):
        assert_close(func.grad(Loud.apply)(3.5), 7.0, 1e-6)
        out = capsys.readouterr().out
        assert "forward" in out
        assert "3.5" in out
        assert "backward" in out


# --------------------------------------------------------------------------------------- threads


def test_threads_do_not_see_each_other() -> None:
    class Local(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return k * NumpySin.apply(x)

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ctx.k * ct * NumpyCos.apply(x), None

    wrong: list[Any] = []
    barrier = threading.Barrier(6)

    def work(k: int) -> None:
        try:
            barrier.wait()
            for i in range(15):
                x = np.full(3, 0.1 * k + i)
                got = func.grad(lambda x: Local.apply(x, k).sum())(x)
                assert_close(got, k * np.cos(x))
                twice = func.jvp(func.grad(lambda x: Local.apply(x, k).sum()), (x,), (x,))[1]
                assert_close(twice, -k * np.sin(x) * x)
        except BaseException as error:  # is raised again below
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in wrong:
        raise error


# ------------------------------------------------------------------------------------ exceptions


class Broken(Exception):
    pass


def fail(*operands: Any) -> Any:
    raise Broken("as it is")


def failing(method: str, opaque: bool = False) -> type[Function]:
    """Returns a Function one of whose methods raises."""

    class Fails(Function):
        @staticmethod
        def forward(x):
            x = np.asarray(x) if opaque else x
            if method == "forward":
                fail()
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            if method == "setup_context":
                fail()

        @staticmethod
        def backward(ctx, ct):
            return fail() if method == "backward" else 2 * ct

        if method in ("jvp", "vmap"):

            @staticmethod
            def jvp(ctx, t):
                return fail() if method == "jvp" else 2 * t

            @staticmethod
            def vmap(info, in_dims, x):
                return fail() if method == "vmap" else (Fails.apply(x), in_dims[0])

    return Fails


CALLS = {
    "apply": lambda f, x: f(x),
    "grad": lambda f, x: func.grad(lambda x: f(x).sum())(x),
    "jvp": lambda f, x: func.jvp(f, (x,), (x,)),
    "vmap": lambda f, x: func.vmap(f)(x),
    "vmap(grad)": lambda f, x: func.vmap(func.value_and_grad(f))(x),
    "hessian": lambda f, x: func.hessian(lambda x: f(x).sum())(x),
    "jit": lambda f, x: ftrans.jit(f)(x),
    "scan": lambda f, x: ftrans.scan(lambda c, w: (f(c), w), x, x),
}
FAILURES = [
    *(("forward", call, opaque) for call in CALLS for opaque in (False, True) if call != "scan"),
    ("forward", "scan", False),
    *(("setup_context", call, False) for call in ("grad", "vmap(grad)", "hessian")),
    *(
        ("backward", call, opaque)
        for call in ("grad", "vmap(grad)", "hessian")
        for opaque in (0, 1)
    ),
    *(("jvp", "jvp", opaque) for opaque in (0, 1)),  # a Hessian does with backward
    *(("vmap", call, opaque) for call in ("vmap", "vmap(grad)") for opaque in (0, 1)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "call", "opaque"), FAILURES)
def test_exceptions_in_rules(method: str, call: str, opaque: bool) -> None:
    """They surface as they are, with the frames of the user, and leave nothing open."""
    function = failing(method, opaque)
    with pytest.raises(Broken, match="as it is") as caught:
        CALLS[call](function.apply, np.array([1.0, 2.0]))
    codes = [frame.f_code for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert codes[-1] is fail.__code__
    assert getattr(function, method).__code__ in codes
    assert_nothing_open()


@pytest.mark.parametrize("call", CALLS)
def test_a_function_that_failed_works_again(call: str) -> None:
    flag = [True]

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            if flag[0]:
                fail()
            return x * 2

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    x = np.array([1.0, 2.0])
    with pytest.raises(Broken):
        CALLS[call](Once.apply, x)
    flag[0] = False
    with np.errstate(all="raise"):
        got = CALLS[call](Once.apply, x)
    plain = CALLS[call](lambda x: x * 2, x)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(plain), strict=True):
        assert_close(ours, theirs)


def test_interrupts_leave_nothing_open() -> None:
    class Interrupted(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, ct):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        func.grad(lambda x: Interrupted.apply(x).sum())(np.ones(3))
    assert_nothing_open()


def test_an_exception_that_the_user_catches() -> None:
    """What was recorded before the failure is of no consequence."""

    def f(x: Any) -> Any:
        try:
            return failing("forward").apply(x * 3)
        except Broken:
            return x**2

    assert_close(func.grad(lambda x: f(x).sum())(np.array([1.0, 2.0])), [2.0, 4.0])
    assert_close(func.vmap(func.grad(f))(np.array([1.0, 2.0])), [2.0, 4.0])
    assert_nothing_open()
