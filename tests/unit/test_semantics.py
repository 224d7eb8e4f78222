"""What a transformed function means: Python on values, nesting, closures, captures, order ten."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import LeakedTracerError
from ftrans.ir import is_tracing
from tests.helpers import assert_close

F64 = np.float64


def slope(f: Callable[[Any], Any], x: float, step: float = 1e-5) -> float:
    """Returns the derivative of a function of one number, by central differences."""
    return float((f(F64(x + step)) - f(F64(x - step))) / (2 * step))


def by_grad(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return func.grad(f)


def by_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: func.jvp(f, (x,), (fnp.ones_like(x),))[1]


def by_vjp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def derivative(x: Any) -> Any:
        value, pullback = func.vjp(f, x)
        return pullback(fnp.ones_like(value))[0]

    return derivative


def by_linearize(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def derivative(x: Any) -> Any:
        _, push = func.linearize(f, x)
        return push(fnp.ones_like(x))

    return derivative


def by_jacrev(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return func.jacrev(f)


def by_jacfwd(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return func.jacfwd(f)


WAYS = [by_grad, by_jvp, by_vjp, by_linearize, by_jacrev, by_jacfwd]
PAIRS = list(itertools.product(WAYS, WAYS))
TRIPLES = list(itertools.product([by_grad, by_jvp, by_vjp], repeat=3))
names = lambda way: way.__name__.removeprefix("by_")  # noqa: E731
way_names = lambda ways: "-".join(map(names, ways))  # noqa: E731


# ------------------------------------------------------------------- Python control flow on values


def branching(x: Any) -> Any:
    if x > 1:
        return fnp.sin(x) * x
    if bool(x < -1):
        return fnp.exp(x)
    return x**3 + 2 * x


def looping(x: Any) -> Any:
    total = x
    while total < 20:
        total = total * 1.5 + x**2
    return total


def counting(x: Any) -> Any:
    n = int(fnp.floor(x)) + 2
    out = x
    for _ in range(n):
        out = fnp.sin(out) + x
    return out


def weighing(x: Any) -> Any:
    weight = float(x.detach())  # a number from here on: it has no derivative
    return weight * fnp.sin(x)


def recursing(x: Any) -> Any:
    return x * x if x > 4 else recursing(x * 1.7) * fnp.cos(x)


POINTS = [-1.7, -0.6, 0.4, 1.3, 2.2]


@pytest.mark.parametrize("x", POINTS)
@pytest.mark.parametrize("way", WAYS, ids=names)
def test_python_control_flow_on_values(way: Any, x: float) -> None:
    for f in (branching, counting):
        assert_close(way(f)(F64(x)), slope(f, x), 1e-7, f.__name__)
    if x > 0:
        for f in (looping, recursing):
            assert_close(way(f)(F64(x)), slope(f, x), 1e-6, f.__name__)


@pytest.mark.parametrize("x", POINTS)
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=lambda way: names(way))
def test_python_control_flow_under_two_transforms(outer: Any, inner: Any, x: float) -> None:
    for f in (branching, counting):
        got = outer(inner(f))(F64(x))
        assert_close(got, slope(inner(f), x), 1e-6, f.__name__)


@pytest.mark.parametrize("x", [0.4, 2.2])
def test_python_control_flow_under_hessian_and_order_three(x: float) -> None:
    second = slope(func.grad(branching), x)
    assert_close(func.hessian(branching)(F64(x)), second, 1e-7)
    third = slope(func.grad(func.grad(branching)), x)
    assert_close(func.grad(func.hessian(branching))(F64(x)), third, 1e-6)
    assert_close(func.hessian(func.grad(branching))(F64(x)), third, 1e-6)
    value, tangent = func.jvp(func.grad(branching), (F64(x),), (F64(2.0),))
    assert_close(value, slope(branching, x), 1e-7)
    assert_close(tangent, 2 * second, 1e-6)


def test_a_vector_decides_the_branch_of_a_hessian() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0 and fnp.max(x) < 5:
            return (x**3).sum()
        return fnp.prod(x)

    x, y = np.array([1.0, 2.0]), np.array([-3.0, 2.0])
    assert_close(func.hessian(f)(x), np.diag(6 * x))
    assert_close(func.hessian(f)(y), np.array([[0.0, 1.0], [1.0, 0.0]]))


@pytest.mark.parametrize("way", WAYS, ids=names)
def test_float_of_a_value_is_a_constant(way: Any) -> None:
    x = F64(0.8)
    assert_close(way(weighing)(x), 0.8 * math.cos(0.8))
    assert_close(way(way(weighing))(x), -0.8 * math.sin(0.8))


def test_every_way_to_ask_for_a_value() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        n = fnp.floor(x[0]).astype("int32")
        y = x.detach()
        seen.extend([float(y[0]), int(n), bool(x[0] > 1), y[1].item(), complex(y[1])])
        seen.append([10, 20, 30][n])  # an index
        seen.append(len(range(n)))
        return (x * x).sum()

    assert_close(func.grad(f)(np.array([2.5, -1.0])), np.array([5.0, -2.0]))
    assert seen == [2.5, 2, True, -1.0, complex(-1.0), 30, 2]


def test_printing_shows_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        print("y is", y)
        print(f"{y:.3f}")
        return y * y

    assert_close(func.grad(func.grad(f))(F64(1.25)), 8.0)
    lines = capsys.readouterr().out.splitlines()
    assert "2.5" in lines[0]
    assert lines[1] == "2.500"


def test_a_value_is_asked_for_in_the_middle_of_every_nesting() -> None:
    """Newton's method to convergence, inside a function that is differentiated."""

    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-14:
            x = 0.5 * (x + a / x)
        return 0.5 * (x + a / x)

    a = F64(3.0)
    assert_close(func.grad(root)(a), 0.5 * 3**-0.5, 1e-10)
    assert_close(func.grad(func.grad(root))(a), -0.25 * 3**-1.5, 1e-8)
    gradients = [func.grad(lambda w, s=s: root(w * s))(a) for s in (1.0, 2.0)]
    assert_close(gradients, [0.5 / math.sqrt(3), 1 / math.sqrt(6)], 1e-10)


def test_the_python_runs_again_at_every_call() -> None:
    scale = 1.0

    def f(x: Any) -> Any:
        return scale * x * x

    gradient = func.grad(f)
    assert_close(gradient(F64(3.0)), 6.0)
    scale = 2.0
    assert_close(gradient(F64(3.0)), 12.0)


# ------------------------------------------------------------------------- perturbation confusion


@pytest.mark.smoke
@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=lambda way: names(way))
def test_perturbations_are_not_confused(outer: Any, inner: Any) -> None:
    one = F64(1.0)
    assert float(outer(lambda x: x * inner(lambda y: x + y)(one))(one)) == 1.0
    # Siskind and Pearlmutter: d/dx [x * d/dy (x * y)] at 1 is 2
    assert float(outer(lambda x: x * inner(lambda y: x * y)(one))(one)) == 2.0
    # the inner point depends on the outer variable as well
    assert_close(outer(lambda x: x * inner(lambda y: x * y * y)(x))(F64(3.0)), 54.0)


@pytest.mark.parametrize("ways", TRIPLES, ids=way_names)
def test_perturbations_are_not_confused_three_deep(ways: Any) -> None:
    first, second, third = ways

    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            return y * third(lambda z: x * y * z * z)(x + y)

        return x * second(g)(x * x)

    # third: 2 x y (x + y); g = 2 x y^2 (x + y); g' = 4 x^2 y + 6 x y^2; at y = x^2, times x
    expected = lambda x: 4 * x**5 + 6 * x**6  # noqa: E731
    x = 1.2
    assert_close(first(f)(F64(x)), 20 * x**4 + 36 * x**5, 1e-10)
    assert_close(f(F64(x)), expected(x), 1e-10)


# --------------------------------------------------------------------------------------- closures


@pytest.mark.parametrize("ways", PAIRS, ids=way_names)
def test_closures_three_levels_deep(ways: Any) -> None:
    outer, inner = ways
    data = np.array([0.5, -1.0, 2.0])

    def f(a: Any) -> Any:
        def g(b: Any) -> Any:
            def h(c: Any) -> Any:
                return (fnp.sin(a * data) * b * c * c).sum() + a * b * c

            return inner(h)(a * b) * b

        return inner(g)(fnp.cos(a))

    assert_close(outer(f)(F64(0.7)), slope(f, 0.7), 1e-7)


def test_vmap_closes_over_a_traced_value() -> None:
    xs = np.array([0.3, 0.9, -1.4])

    def f(w: Any) -> Any:
        inner = func.vmap(func.grad(lambda x: fnp.sin(w * x) * x))
        return (inner(xs * w) * xs).sum()

    for way in WAYS:
        assert_close(way(f)(F64(1.1)), slope(f, 1.1), 1e-7, names(way))


def test_grad_of_a_closure_inside_vmap() -> None:
    xs = np.array([0.3, 0.9, -1.4])
    got = func.vmap(lambda x: func.grad(lambda y: fnp.sin(x * y))(x * x))(xs)
    assert_close(got, xs * np.cos(xs**3))


def test_a_traced_value_of_every_enclosing_level_meets_in_one_operation() -> None:
    def f(a: Any) -> Any:
        def g(b: Any) -> Any:
            def h(c: Any) -> Any:
                return fnp.stack([a, b, c]).prod() * fnp.where(a > b, a + c, b * c)

            return func.grad(h)(a + 1) + h(b)

        return func.grad(g)(a * 0.5)

    assert_close(func.grad(f)(F64(1.3)), slope(f, 1.3), 1e-7)


def test_captured_arrays_are_inputs() -> None:
    data = np.array([1.0, 2.0, 3.0])

    def f(x: Any) -> Any:
        return (x * data).sum()

    gradient = func.grad(f)
    assert_close(gradient(np.ones(3)), [1.0, 2.0, 3.0])
    before = ftrans.cache_info()
    data[:] = [5.0, 6.0, 7.0]
    assert_close(gradient(np.ones(3)), [5.0, 6.0, 7.0])
    after = ftrans.cache_info()
    assert after.misses == before.misses, "new values of a captured array brought a new program"
    program = ftrans.trace(gradient)(np.ones(3))
    assert len(program.inputs) == 2, program


def test_writing_to_an_array_that_was_used_raises_instead_of_changing_the_past() -> None:
    buffer = np.zeros(3)
    view = buffer[1:]

    def f(x: Any, target: Any) -> Any:
        used = (x * buffer).sum() + (x[1:] * view).sum()
        target[:] = 1.0  # after its use, and before the program runs
        return used

    for target in (buffer, view):
        with pytest.raises(ValueError, match="read-only"):
            func.grad(f)(np.ones(3), target)
        buffer[:] = 2.0  # it can be written to again
        view[:] = 3.0

    def g(x: Any) -> Any:
        total = 0.0
        for i in range(3):
            buffer = np.full(3, i + 1.0)  # a new array each time
            total = total + (x * buffer).sum() * i
        return total

    # 0 * 1 + 1 * 2 + 2 * 3
    assert_close(func.grad(g)(np.ones(3)), np.full(3, 8.0))


def test_an_array_and_its_view_in_nested_traces_are_released_in_any_order() -> None:
    base = np.ones(3)
    view = base[:2]

    def f(x: Any) -> Any:
        outer = (x * base).sum()
        inner = func.grad(lambda y: (y[:2] * view).sum() * y.sum())(x)
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 3.0
        return outer + inner.sum()

    assert_close(func.grad(f)(np.ones(3)), [6.0, 6.0, 3.0])
    base[2], view[0] = 5.0, 5.0


def test_a_pullback_keeps_its_residuals_when_the_array_changes() -> None:
    x = np.array([1.0, 2.0])
    _, pullback = func.vjp(lambda x: x * x, x)
    _, push = func.linearize(lambda x: x * x, x)
    x[:] = 100.0
    assert_close(pullback(np.ones(2))[0], [2.0, 4.0])
    assert_close(push(np.ones(2)), [2.0, 4.0])


def test_a_pullback_keeps_captured_residuals_when_the_array_changes() -> None:
    data = np.array([3.0, 4.0])
    _, pullback = func.vjp(lambda x: x * data, np.ones(2))
    data[:] = 100.0
    assert_close(pullback(np.ones(2))[0], [3.0, 4.0])


def test_results_are_the_callers_own() -> None:
    x = np.ones(3)
    value, pullback = func.vjp(lambda x: x, x)
    value[:] = 7.0
    assert_close(x, np.ones(3))
    ct = np.ones(3)
    (got,) = pullback(ct)
    got[:] = 9.0
    assert_close(ct, np.ones(3))


def test_pullback_of_an_outer_function_is_used_inside_another_transform() -> None:
    def f(x: Any) -> Any:
        _, pullback = func.vjp(lambda y: fnp.sin(y) * x, x)
        return func.grad(lambda ct: (pullback(ct)[0] ** 2).sum())(x) * x

    assert_close(func.grad(f)(F64(0.6)), slope(f, 0.6), 1e-7)


# ------------------------------------------------------------------------- exceptions leave nothing


class Unusual(BaseException):
    pass


@pytest.mark.smoke
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Unusual, StopIteration])
def test_an_exception_leaves_the_next_call_clean(error: type[BaseException]) -> None:
    def bad(x: Any, *rest: Any) -> Any:
        y = x * x

        def deeper(z: Any) -> Any:
            raise error("from inside")

        return func.grad(lambda z: func.vmap(deeper)(fnp.stack([z, z])).sum())(y)

    x = F64(2.0)
    calls: list[Callable[[], Any]] = [
        lambda: func.grad(bad)(x),
        lambda: func.jvp(bad, (x,), (x,)),
        lambda: func.vjp(bad, x),
        lambda: func.vmap(bad)(np.ones(3)),
        lambda: ftrans.jit(bad)(x),
        lambda: ftrans.scan(bad, x, np.ones(3)),
        lambda: ftrans.cond(True, bad, bad, x),
        lambda: ftrans.while_loop(lambda s: s < 3.0, bad, x),
        lambda: ftrans.trace(bad)(x),
        lambda: func.hessian(bad)(x),
    ]
    for call in calls:
        with pytest.raises((error, RuntimeError)):
            call()
        assert not is_tracing()
        assert_close(func.grad(lambda x: x * x)(x), 4.0)


def test_an_exception_that_is_caught_inside_leaves_the_outer_trace_clean() -> None:
    def f(x: Any) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            func.grad(lambda y: y * (1 / 0))(x)
        return func.grad(lambda y: x * y * y)(x)

    assert_close(func.grad(f)(F64(3.0)), 12.0)


def test_an_unknown_value_cannot_be_used_after_its_function() -> None:
    leaked: list[Any] = []

    def f(x: Any) -> Any:
        leaked.append(x * 2)
        return x * x

    func.vmap(func.grad(f))(np.ones(3))
    with pytest.raises(LeakedTracerError, match=r"vmap\(grad\(f\)\)"):
        leaked[0] + 1
    with pytest.raises(LeakedTracerError):
        func.grad(lambda y: y * leaked[0])(F64(1.0))
    with pytest.raises(LeakedTracerError):
        float(leaked[0])
    assert_close(func.grad(lambda x: x * x)(F64(2.0)), 4.0)


def test_a_generator_does_not_keep_a_frame_open() -> None:
    def f(x: Any) -> Any:
        steps = (func.grad(lambda y, i=i: y * y * i)(x) for i in range(3))
        return next(steps) + next(steps)

    assert_close(func.grad(f)(F64(1.0)), 2.0)
    assert not is_tracing()


# ------------------------------------------------------------------------------------ dtypes, zeros


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_keep_the_dtype(dtype: str) -> None:
    x = np.ones(3, dtype)
    assert func.grad(lambda x: (x * 2.5).sum())(x).dtype == dtype
    assert func.hessian(lambda x: (x * x).sum())(x).dtype == dtype


@pytest.mark.parametrize("way", WAYS, ids=names)
def test_a_function_that_does_not_depend_on_its_argument(way: Any) -> None:
    x = F64(2.0)
    assert float(way(lambda x: fnp.asarray(3.0, "float64"))(x)) == 0.0
    assert float(way(lambda x: fnp.floor(x) * 2.0)(x)) == 0.0
    assert float(way(way(lambda x: 2.0 * x))(x)) == 0.0
    assert float(way(lambda x: fnp.stop_gradient(x) * x)(x)) == 2.0


def test_zero_gradients_of_unused_arguments() -> None:
    x, y = np.ones(2), np.ones((3, 2))
    gx, gy = func.grad(lambda x, y: x.sum(), argnums=(0, 1))(x, y)
    assert_close(gx, np.ones(2))
    assert_close(gy, np.zeros((3, 2)))


# ------------------------------------------------------------------------------------------- jit


def test_jit_inside_and_outside_transforms() -> None:
    @ftrans.jit
    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    x, y = F64(0.4), F64(1.5)
    expected = 1.5 * math.cos(0.4)
    assert_close(func.grad(f)(x, y), expected)
    assert_close(ftrans.jit(func.grad(f))(x, y), expected)
    assert_close(func.grad(lambda y: func.grad(f)(x, y))(y), math.cos(0.4))
    assert_close(func.vmap(func.grad(f), (0, None))(np.full(2, 0.4), y), np.full(2, expected))


def test_arrays_that_are_not_mapped_are_traced() -> None:
    """So that a table that is an argument can be indexed by a mapped number."""
    table = np.arange(12.0).reshape(4, 3)
    params = {"emb": table, "scale": jax.numpy.arange(4.0), "n": 2, "size": np.array(3), "s": "a"}
    t = np.array([0, 2])

    def f(p: Any, t: Any, *, rows: Any) -> Any:
        assert p["s"] == "a"
        ones = np.ones(p["size"] if p["n"] > 1 else 0)
        assert float(p["emb"][0, 1]) == np.asarray(p["emb"])[0, 1] == 1.0
        return (p["emb"][t] * ones).sum() * p["scale"][t] + rows[:, t].sum() + sum(range(p["n"]))

    expected = [table[i].sum() * i + table[:, i].sum() + 1 for i in t]
    mapped = func.vmap(f, in_dims=(None, 0))
    assert_close(mapped(params, t, rows=table), expected)
    jitted = ftrans.jit(func.vmap(lambda e, t: e[t], in_dims=(None, 0)))
    assert_close(jitted(table, t), table[t])
    per_example = func.vmap(func.grad(lambda e, t: (e[t] ** 2).sum()), in_dims=(None, 0))(table, t)
    assert_close(per_example.sum(0), 2 * table * np.isin(np.arange(4), t)[:, None])

    def write(e: Any, t: Any) -> Any:
        e[0] = t
        return e.sum()

    assert_close(func.vmap(write, in_dims=(None, 0))(table, t), table[1:].sum() + 3.0 * t)
    assert_close(table[0], [0.0, 1.0, 2.0])


def test_the_number_of_examples_is_enough_where_nothing_is_mapped() -> None:
    sized = functools.partial(func.vmap, axis_name="i", axis_size=3)
    for many in (
        sized(lambda: ftrans.axis_index("i") * 2.0),
        functools.partial(sized(lambda *, x: ftrans.axis_index("i") * x), x=2.0),
        functools.partial(sized(lambda x: ftrans.axis_index("i") * x, None), np.array(2.0)),
    ):
        assert_close(many(), np.array([0.0, 2.0, 4.0]))
    with pytest.raises(ValueError, match="axis_size=3 is not the size of the mapped axes"):
        sized(lambda x: x)(np.ones(2))


def test_transforms_of_a_function_that_computes_nothing() -> None:
    """Its program has no equation, and is a program all the same."""
    x, same = np.array([1.0, 2.0, 3.0]), lambda y: y
    assert_close(func.grad(lambda x: func.vmap(same)(x).sum())(x), np.ones(3))
    assert_close(func.vmap(lambda x: func.jvp(same, (x,), (2 * x,))[1])(x), 2 * x)
    assert_close(ftrans.jit(lambda x: func.jacrev(same)(x))(x), np.eye(3))
