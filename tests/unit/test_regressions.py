"""Faults that were once there, each with the smallest program that showed it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.errors import ArgumentError, DTypeError, TransposeError
from tests.helpers import assert_close

V = np.array([0.3, 0.7, 1.1])


def test_a_python_scalar_in_a_carry_grows_with_the_body() -> None:
    """A float was cut down to the integer that the loop began with, or the loop never ended."""
    last, before = ftrans.scan(lambda c, _: (c * 1.5, c), 1, None, length=3)
    assert_close(last, np.float32(3.375))
    assert_close(before, np.array([1, 1.5, 2.25], "float32"))
    grown = ftrans.while_loop(lambda c: c < 3, lambda c: c * 1.5, 1, max_steps=9)
    assert_close(grown, np.float32(3.375))
    assert_close(ftrans.fori_loop(0, 3, lambda i, c: c + 1, True), np.int32(4))
    assert_close(ftrans.fori_loop(0, 2, lambda i, c: c * 1j, 1.0), np.complex64(-1))
    assert_close(func.grad(lambda x: ftrans.fori_loop(0, 3, lambda i, c: c * x, 1))(2.0), 12)


@pytest.mark.parametrize(
    ("init", "result", "became"),
    [(np.zeros((), "int32"), 2.5, "i32[] became f64[]"), (1.5, np.int32(3), "f64[] became i32[]")],
)
def test_a_carry_is_not_truncated(init: Any, result: Any, became: str) -> None:
    with pytest.raises(DTypeError) as error:
        ftrans.scan(lambda c, _: (result, c), init, None, length=2)
    assert became in str(error.value)


def test_python_scalars_keep_their_traced_dtype_under_jit() -> None:
    """They came in as JAX's weak float64, and left so, or disagreed between branches."""
    square = ftrans.jit(func.grad(lambda s: s * s))(3.0)
    assert square.dtype == np.float64
    chosen = ftrans.jit(lambda s: ftrans.cond(s > 0, lambda: s, lambda: s * fnp.ones(())))(3.0)
    assert chosen.dtype == np.float32


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (
            np.ma.array(V, mask=np.array([False, True, False])),
            r"A mask would be lost. Pass x.filled\(value\)",
        ),
        (V.view(np.matrix), r"Its \* and \*\* are not those of arrays. Pass np.asarray\(x\)"),
        (V.astype(">f8"), r"Convert it: x.astype\('float64'\)"),
        (V.astype(np.longdouble), r"Convert it: x.astype\('float64'\)"),
    ],
)
def test_arrays_that_mean_something_else_are_refused(array: Any, hint: str) -> None:
    """The mask was dropped, products of matrices were elementwise, and XLA raised for the rest."""
    with pytest.raises(DTypeError, match=hint):
        fnp.sin(array)
    with pytest.raises(TypeError):
        func.grad(lambda x: (x * array).sum())(V)
    with pytest.raises(DTypeError):
        func.grad(lambda x: (x * x).sum())(array)
    with pytest.raises(DTypeError, match="a mapped argument must be an array"):
        func.vmap(lambda x, y: x * 2)(V, array)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: ftrans.scan(f, 0.0, None, length=-2), "scan: length must not be negative"),
        (lambda f: ftrans.scan(f, 0.0, V, unroll=0), "scan: unroll must be at least 1"),
        (
            lambda f: ftrans.while_loop(lambda c: c < 9, lambda c: c + 1, 0.0, max_steps=-1),
            "while_loop: max_steps is an integer that is not negative",
        ),
        (
            lambda f: ftrans.while_loop(lambda c: c < 9, lambda c: c + 1, 0.0, max_steps=1.5),
            "while_loop: max_steps is an integer that is not negative",
        ),
        (
            lambda f: ftrans.while_loop(lambda c: c < 9, lambda c: c + 1, 0.0, max_steps="a"),
            "while_loop: max_steps is an integer that is not negative",
        ),
    ],
)
def test_counts_of_loops_are_checked(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(lambda c, x: (c, c))


def test_a_pullback_is_a_pytree() -> None:
    """Returned from a transform, it held traced values of a function that had returned."""
    ones = np.ones(3)
    _, pullback = func.grad(lambda x: (x.sum(), func.vjp(np.sin, x)[1]), has_aux=True)(V)
    assert_close(pullback(ones)[0], np.cos(V))
    assert_close(ftrans.jit(lambda x: func.vjp(np.sin, x)[1])(V)(ones)[0], np.cos(V))
    assert_close(ftrans.jit(lambda p, ct: p(ct))(pullback, ones)[0], np.cos(V))
    many = func.vmap(lambda x: func.vjp(np.sin, x)[1])(V)
    assert_close(func.vmap(lambda p, ct: p(ct))(many, ones)[0], np.cos(V))
    _, each = ftrans.scan(lambda c, x: (c, func.vjp(np.sin, x)[1]), 0.0, V)
    assert_close(func.vmap(lambda p: p(1.0))(each)[0], np.cos(V))


def test_a_pullback_keeps_no_arguments_alive() -> None:
    data = np.ones(3)
    kept = weakref.ref(data)
    _, pullback = func.vjp(lambda x: x * 2, data)
    del data
    assert kept() is None
    assert_close(pullback(np.ones(3))[0], 2 * np.ones(3))


def test_arrays_are_freed_when_the_transform_returns() -> None:
    """A frame and what it captured held each other, and arrays with them, until a collection."""
    kept = []

    def array() -> np.ndarray:
        made = np.ones(8)
        kept.append(weakref.ref(made))
        return made

    def run() -> None:
        weights = array()
        func.grad(lambda x: (x * weights).sum() * float(x[0].detach()))(array())
        func.vmap(lambda x: x * weights[0])(array())
        func.jvp(lambda x: func.grad(lambda y: (y * y * x).sum())(x), (array(),), (array(),))
        ftrans.scan(lambda c, x: (c + (weights * x).sum(), None), 0.0, array())

    run()  # transforms are remembered, and their making is not what is looked at
    kept.clear()
    gc.collect()
    gc.disable()
    try:
        run()
        assert [ref() for ref in kept] == [None] * 6
    finally:
        gc.enable()


def test_a_derivative_is_a_pytree_of_its_residuals() -> None:
    value, derivative = ftrans.jit(lambda x: func.linearize(lambda x: x * np.sin(x), x))(V)
    expected = np.sin(V) + V * np.cos(V)
    np.testing.assert_allclose(derivative(np.ones_like(V)), expected, rtol=1e-12)
    doubled = jax.tree_util.tree_map(lambda residual: 2 * residual, derivative)
    np.testing.assert_allclose(doubled(np.ones_like(V)), 2 * expected, rtol=1e-12)
    np.testing.assert_allclose(value, V * np.sin(V), rtol=1e-12)


def test_leaves_that_are_no_arrays_are_static_under_jit() -> None:
    traced = []

    def f(x: Any, options: Any) -> Any:
        traced.append(options["mode"])
        return x.sum() if options["mode"] == "sum" else x * options["scale"]

    jitted = ftrans.jit(f)
    for _ in range(2):
        assert_close(jitted(V, {"mode": "sum", "scale": 2.0}), V.sum())
        assert_close(jitted(V, options={"mode": "scale", "scale": 2.0}), 2 * V)
    assert traced == ["sum", "scale"]
    assert_close(func.grad(lambda x: jitted(x, {"mode": "sum", "scale": 1.0}))(V), np.ones(3))


def test_a_python_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError, match="does not fit into int32"):
        fnp.asarray(2**40)
    with pytest.raises(OverflowError, match="does not fit into int32"):
        fnp.asarray([1, 2**40])
    assert int(fnp.asarray(2**40, dtype="int64")) == 2**40
    assert int(fnp.asarray([2**40], dtype="int64")[0]) == 2**40


def test_values_of_jvp_are_those_of_the_function_to_the_bit() -> None:
    """Products of what a loop returned besides tangents were collected as if it were one."""

    def f(x: Any) -> Any:
        y, _ = ftrans.scan(lambda c, _: (fnp.sin(c), None), x, None, length=2)
        return y * 2.1 * 3.3 * 1.7

    x = np.linspace(-3, 3, 1000)
    value, dot = func.jvp(f, (x,), (np.ones_like(x),))
    np.testing.assert_array_equal(value, f(x))
    assert_close(dot, np.cos(np.sin(x)) * np.cos(x) * 2.1 * 3.3 * 1.7)


def test_complex_scalars_keep_the_signs_of_their_zeros() -> None:
    """Literals were remembered by `==`, and the second number gave the result of the first."""

    def root(z: complex) -> Any:
        return func.vmap(lambda a: fnp.sqrt(fnp.where(a > 0, z, a * 0j)))(np.ones(1))[0]

    for _ in range(2):
        assert_close(root(complex(-4, 0.0)), np.sqrt(complex(-4, 0.0)))
        assert_close(root(complex(-4, -0.0)), np.sqrt(complex(-4, -0.0)))


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, complex(1, -0.0), complex(1, 0.0)])
def test_pad_keeps_the_sign_of_zero_and_its_program(value: complex) -> None:
    """Params are compared by `==`: -0.0 was taken for 0.0, and NaN is not equal to itself."""
    x = np.ones((1, 2), complex if isinstance(value, complex) else float)

    def run() -> Any:
        return func.vmap(lambda row: np.pad(row, 1, constant_values=value))(x)[0]

    for _ in range(2):
        np.testing.assert_array_equal(run(), np.pad(x[0], 1, constant_values=value))
        for part in (np.real, np.imag):
            expected = np.signbit(part(np.pad(x[0], 1, constant_values=value)))
            np.testing.assert_array_equal(np.signbit(part(run())), expected)
    misses = ftrans.cache_info().misses
    run()
    assert ftrans.cache_info().misses == misses


def test_jit_follows_the_default_dtype() -> None:
    before = ftrans.get_default_dtype()
    jitted = ftrans.jit(lambda x: fnp.zeros(2) + x)
    try:
        for dtype in ("float32", "float16", "float32", "float16"):
            ftrans.set_default_dtype(dtype)
            assert jitted(2.0).dtype == dtype
            assert jitted.lower(2.0).out_info.dtype == dtype
    finally:
        ftrans.set_default_dtype(before)


def test_functions_that_return_equal_tags_do_not_share_code() -> None:
    """1, 1.0 and True are equal, and whoever came second returned the tag of the first."""

    class Tagged:
        def __init__(self, tag: Any, value: Any):
            self.tag, self.value = tag, value

    jax.tree_util.register_pytree_node(
        Tagged, lambda t: ((t.value,), (t.tag,)), lambda tag, values: Tagged(*tag, *values)
    )
    for tag in (True, 1, 1.0, 0.0, -0.0, True):
        found = ftrans.jit(_tagging(Tagged, tag))(V).tag
        assert repr(found) == repr(tag)


def _tagging(kind: Any, tag: Any) -> Any:
    return lambda x: kind(tag, x + 7)


def test_values_of_an_outer_function_outlive_an_inner_one() -> None:
    """A plain array on the left drew the operation into the innermost function."""
    weights = np.arange(3.0)

    def outer(x: Any) -> Any:
        kept = []

        def inner(y: Any) -> Any:
            kept.append(weights * x)
            return y * y

        func.grad(inner)(1.0)
        return (kept[0] * kept[0]).sum()

    assert_close(func.grad(outer)(V), 2 * weights**2 * V)


def test_calls_that_differ_in_nothing_recorded_are_forgotten_too() -> None:
    """A slice that ends beyond the array is a new call each time, with the steps of the last."""
    from ftrans.ir import trail

    before = ftrans.config.cache_entries
    ftrans.config.cache_entries = 4
    try:
        trail.forget_trails()
        for stop in range(10, 1000):
            func.grad(lambda x, stop=stop: x[1:stop].sum())(V)
        roots = list(trail._roots.values())
        kept, pending = 0, [root.step for root in roots]
        while pending:
            step = pending.pop()
            kept += len(step.leaps or ())
            pending += list((step.others or {0: step.child} if step.child else {}).values())
        assert kept <= 4 * 64
    finally:
        ftrans.config.cache_entries = before


def test_explain_does_not_charge_a_call_for_what_others_traced() -> None:
    _, pullback = func.vjp(lambda x: (x * x).sum(), V)
    pullback(1.0)

    def failing(x: Any) -> Any:
        raise KeyError

    with pytest.raises(KeyError):
        func.grad(failing)(V)
    pullback(1.0)
    assert ftrans.explain(last=1)[0].traced is None
    with pytest.raises(ftrans.StructureError):
        func.vmap(lambda x: x, out_dims=(0, 0))(V)
    pullback(1.0)
    assert ftrans.explain(last=1)[0].traced is None
    ftrans.jit(lambda x: x * 5)(V)
    pullback(1.0)
    assert ftrans.explain(last=1)[0].traced is None
    ftrans.trace(lambda x: x * 5)(V)
    pullback(1.0)
    assert ftrans.explain(last=1)[0].traced is None
    jax.jit(func.grad(lambda x: (x * x).sum()))(V)
    pullback(1.0)
    assert ftrans.explain(last=1)[0].traced is None


def test_jit_refuses_python_integers_that_do_not_fit() -> None:
    """JAX took them at 64 bits, and the program cut them to 32: 2**40 became 0."""
    jitted = ftrans.jit(lambda x, n: x * n["n"])
    assert_close(jitted(V, {"n": 3}), 3 * V)
    for _ in range(2):
        for n in (2**31, -(2**40)):
            with pytest.raises(OverflowError, match="does not fit into int32"):
                jitted(V, {"n": n})
        assert_close(jitted(V, {"n": 2**31 - 1}), V * (2**31 - 1))
        assert_close(jitted(V, {"n": np.int64(2**40)}), V * 2**40)
    static = ftrans.jit(lambda x, n: x * float(n), static_argnums=1)
    for _ in range(2):
        assert_close(static(V, 2**40), V * 2**40)


YES = np.asarray(True)


@pytest.mark.parametrize(
    ("affine", "linear"),
    [
        (lambda x: fnp.at(np.ones(5))[:3].set(x), lambda x: fnp.at(np.zeros(5))[:3].set(x)),
        (lambda x: fnp.at(np.ones(5))[[0, 2, 2]].add(x), lambda x: fnp.at(x)[0].set(0.0)),
        (lambda x: fnp.pad(x, 1, constant_values=1.0), lambda x: fnp.pad(x, 1)),
        (lambda x: fnp.append(x, np.ones(2)), lambda x: fnp.append(x, np.zeros(2))),
        (
            lambda x: fnp.take(x, np.array([0, 7]), mode="fill", fill_value=3.0),
            lambda x: fnp.take(x, np.array([0, 7]), mode="fill", fill_value=0.0),
        ),
        (
            lambda x: ftrans.scan(lambda c, y: (c + y, c), np.float64(1), x)[1],
            lambda x: ftrans.scan(lambda c, y: (c + y, c), np.float64(0), x)[1],
        ),
        (
            lambda x: ftrans.scan(lambda c, y: (y, c), np.float64(1), x)[1],
            lambda x: ftrans.scan(lambda c, y: (y, y), np.float64(1), x)[1],
        ),
        (
            lambda x: ftrans.scan(lambda c, y: (c + y, y), np.float64(1), x)[0],
            lambda x: ftrans.scan(lambda c, y: (c + 1, c * y), np.float64(1), x)[1],
        ),
        (
            lambda x: ftrans.fori_loop(0, 3, lambda i, s: 2 * s + i, x),
            lambda x: ftrans.fori_loop(0, 3, lambda i, s: 2 * s + i * x, x),
        ),
        (
            lambda x: ftrans.cond(YES, lambda x: x, lambda x: x * 0 + 1, x),
            lambda x: ftrans.cond(YES, lambda x: x, lambda x: fnp.zeros_like(x), x),
        ),
        (
            lambda x: ftrans.cond(YES, lambda x: x, lambda x: fnp.ones_like(x), x),
            lambda x: ftrans.cond(YES, lambda x: 2 * x, lambda x: x, x),
        ),
        (
            lambda x: ftrans.scan(
                lambda c, on: (ftrans.cond(on, lambda c: c, lambda c: c + 1, c), None),
                x,
                np.array([True, False]),
            )[0],
            lambda x: ftrans.scan(
                lambda c, on: (ftrans.cond(on, lambda c: c, lambda c: 2 * c, c), None),
                x,
                np.array([True, False]),
            )[0],
        ),
    ],
)
def test_what_is_written_around_linear_values_is_a_constant_term(affine: Any, linear: Any) -> None:
    """The ones were taken for zeros; a captured array of zeros that was joined was refused."""
    out = linear(V)
    found = func.linear_transpose(linear, V)(np.arange(1.0, out.size + 1))[0]
    assert_close(found, func.vjp(linear, V)[1](np.arange(1.0, out.size + 1))[0])
    with pytest.raises(TransposeError, match="not linear"):
        func.linear_transpose(affine, V)(np.ones(affine(V).shape))


def test_a_tuple_of_one_place_for_the_only_result() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    assert_close(func.vmap(lambda x: 2 * x, out_dims=(1,))(matrix), 2 * matrix.T)
    assert_close(func.vmap(lambda x: (2 * x,), out_dims=(1,))(matrix)[0], 2 * matrix.T)
