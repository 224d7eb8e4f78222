"""Functions that are defined again: traced again, compiled only where their program is another."""

from __future__ import annotations

import dataclasses
import enum
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import StaticArgumentError
from ftrans.ir.dtype import bfloat16
from tests.helpers import assert_close, finished
from tests.oracle import jaxpr

V = np.array([0.5, -1.0, 2.0])
M = np.arange(6.0).reshape(2, 3) / 5
COMPILED = 0


def _count(event: str, duration: float, **rest: Any) -> None:
    global COMPILED
    COMPILED += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    assert finished(60)  # what others have begun to compile
    ftrans.cache_clear()
    yield
    ftrans.cache_clear()


class Compilations:
    """Counts what XLA compiles within the block."""

    def __enter__(self) -> Compilations:
        self.start, self.count = COMPILED, -1
        return self

    def __exit__(self, *rest: Any) -> None:
        self.count = COMPILED - self.start


def cell(source: str, **given: Any) -> dict[str, Any]:
    """Runs the cell of a notebook in new globals."""
    names = {"ftrans": ftrans, "fnp": fnp, "func": func, "np": np, "jnp": jnp, **given}
    exec(compile(source, "<cell>", "exec"), names)
    return names


def test_what_compiles_is_counted() -> None:
    with Compilations() as made:
        ftrans.jit(lambda x: fnp.sin(x) + 11)(V)
    assert made.count == 1
    with Compilations() as made:
        ftrans.jit(lambda x: fnp.sin(x) + 12)(V)
    assert made.count == 1


CELLS = {
    "a lambda": ("f = ftrans.jit(lambda x: fnp.sin(x) * 3)", [(V,)]),
    "a step": (
        """
def loss(p, x):
    return ((x @ p['w'] + p['b']) ** 2).mean()

@ftrans.jit
def f(p, x):
    g = func.grad(loss)(p, x)
    return {k: p[k] - 0.1 * g[k] for k in p}
""",
        [({"w": np.ones((3, 2)), "b": np.zeros(2)}, M)],
    ),
    "train and eval": (
        """
@ftrans.jit
def f(x, y=None):
    out = fnp.tanh(x).sum(-1)
    return out if y is None else (out - y, out)
""",
        [(M, M[:, 0]), (V,), (np.ones((7, 3)),)],
    ),
    "static arguments": (
        """
@ftrans.jit(static_argnames=("n", "mode"))
def f(x, n, *, mode="a"):
    return x ** n if mode == "a" else -x
""",
        [(V, 2), (V, 3), (V, {"mode": "b"}, 4)],
    ),
    "leaves that are no arrays": (
        """
@ftrans.jit
def f(x, how):
    return x * 2 if how["name"] == "twice" else x
""",
        [(V, {"name": "twice"}), (V, {"name": "once"})],
    ),
    "options": (
        """
@ftrans.jit(donate_argnums=0, keep_unused=True)
def f(x, unused):
    return x + 1
""",
        [(V, M), (M, V)],
    ),
    "loops": (
        """
@ftrans.jit
def f(x):
    return func.grad(lambda x: ftrans.scan(lambda c, v: (fnp.sin(c) * v, c), 1.0, x)[0])(x)
""",
        [(V,)],
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_that_is_run_again(name: str) -> None:
    source, calls = CELLS[name]

    def run(function: Any, call: Any) -> Any:
        kwargs = {}
        if name == "static arguments" and isinstance(call[1], dict):
            call, kwargs = (call[0], call[2]), call[1]
        return function(*call, **kwargs)

    names = cell(source)
    expected = [run(names["f"], call) for call in calls]
    for _ in range(3):
        # the name is bound anew; nothing else holds the first function
        names = cell(source)
        gc.collect()
        with Compilations() as made:
            found = [run(names["f"], call) for call in calls]
            found = [run(names["f"], call) for call in calls]
        assert made.count == 0
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert got.tobytes() == want.tobytes()


def test_a_signature_that_is_new_is_compiled_once() -> None:
    source = "f = ftrans.jit(lambda x: fnp.cos(x) * 5)"
    first = cell(source)["f"]
    first(V)
    second = cell(source)["f"]
    with Compilations() as made:
        second(V)
        assert_close(second(M), np.cos(M) * 5)
    assert made.count == 1
    third = cell(source)["f"]
    with Compilations() as made:
        for f in (third, first):
            for _ in range(3):
                assert_close(f(M), np.cos(M) * 5)
                assert_close(f(V), np.cos(V) * 5)
    assert made.count == 0


def test_signatures_by_turns() -> None:
    f = ftrans.jit(lambda x, k: fnp.cos(x) * k)
    given = [(V, 2), (M, 2.5), (V, 2.5), (V.astype("f"), 2), (M, 2)]
    expected = [np.cos(x) * k for x, k in given]
    order = [0, 0, 0, 1, 0, 1, 1, 1, 2, 0, 3, 3, 3, 4, 3, 2, 2, 2, 1, 0]
    for call, want in zip(given, expected, strict=True):
        assert_close(f(*call), want, 1e-6)
    with Compilations() as made:
        for i in order:
            got = f(*given[i])
            assert got.dtype == expected[i].dtype
            assert_close(got, expected[i], 1e-6)
    assert made.count == 0


def test_a_cell_whose_parameters_change_places() -> None:
    one = """
@ftrans.jit(static_argnames="n")
def f(x, n):
    return x * 10 + n
"""
    other = one.replace("f(x, n)", "f(n, x)")
    for source, by_place in ((one, False), (other, True), (one, False)):
        f = cell(source)["f"]
        assert float(f(x=1.0, n=2)) == 12.0
        for n, x in ((2, 1.0), (3, 1.0), (3, 5.0), (2, 5.0), (2, 1.0)):
            for _ in range(3):
                assert float(f(n, x) if by_place else f(x, n)) == 10 * x + n
                assert float(f(n=n, x=x)) == 10 * x + n


def test_a_function_that_does_something_else() -> None:
    source = "f = ftrans.jit(lambda x: fnp.cos(x) * k)"
    first, second, third = (cell(source, k=k)["f"] for k in (2.0, 3.0, 2.0))
    assert_close(first(V), np.cos(V) * 2)
    assert_close(second(V), np.cos(V) * 3)
    with Compilations() as made:
        assert_close(third(V), np.cos(V) * 2)
        assert_close(first(V), np.cos(V) * 2)
    assert made.count == 0


def test_functions_that_part_at_their_second_signature() -> None:
    source = "f = ftrans.jit(lambda x: x + (k if x.ndim == 2 else 1))"
    first, second = (cell(source, k=k)["f"] for k in (2.0, 3.0))
    assert_close(first(V), V + 1)
    assert_close(first(M), M + 2)
    with Compilations() as made:
        assert_close(second(V), V + 1)
    assert made.count == 0
    for _ in range(2):
        assert_close(second(M), M + 3)
        assert_close(second(V), V + 1)
        assert_close(first(M), M + 2)
        assert_close(first(V), V + 1)


def test_functions_that_part_at_a_signature_new_to_both() -> None:
    source = "f = ftrans.jit(lambda x: x + (k if x.ndim == 2 else 1))"
    first, second = (cell(source, k=k)["f"] for k in (2.0, 3.0))
    assert_close(first(V), V + 1)
    assert_close(second(V), V + 1)
    assert_close(second(M), M + 3)
    assert_close(first(M), M + 2)
    assert_close(second(M), M + 3)
    assert_close(first(V), V + 1)
    assert_close(second(V), V + 1)


def test_what_results_look_like_tells_functions_apart() -> None:
    assert isinstance(cell("f = ftrans.jit(lambda x: (x, x))")["f"](V), tuple)
    assert isinstance(cell("f = ftrans.jit(lambda x: [x, x])")["f"](V), list)
    assert set(cell("f = ftrans.jit(lambda x: {'a': x, 'b': x})")["f"](V)) == {"a", "b"}
    assert set(cell("f = ftrans.jit(lambda x: {'a': x, 'c': x})")["f"](V)) == {"a", "c"}


def test_options_tell_functions_apart() -> None:
    plain, donating = ftrans.jit(lambda x: x + 4), ftrans.jit(lambda x: x + 4, donate_argnums=0)
    x = jnp.ones(3)
    plain(x)
    assert not x.is_deleted()
    donating(x)
    assert x.is_deleted()


def test_static_values_that_are_equal_and_of_different_types() -> None:
    for _ in range(2):
        f = ftrans.jit(lambda x, n: x + (1 if isinstance(n, bool) else n), static_argnums=1)
        assert f(np.arange(3), 3).dtype == np.int64
        assert f(np.arange(3), 3.0).dtype == np.float64
        assert_close(f(V, True), V + 1)
        assert f(np.arange(3), 1.0).dtype == np.float64
        assert f(np.arange(3), 3).dtype == np.int64


class Level(enum.IntEnum):
    LOW, HIGH = 1, 2


@pytest.mark.slow
def test_every_kind_of_argument_is_found_again() -> None:
    """What is known of an argument before the call is what JAX makes of it."""
    with jax.enable_x64(True):
        weak = [jnp.asarray(2.0), jnp.asarray(2), jnp.asarray(1 + 2j)]
        weak.append(jnp.broadcast_to(weak[0], (3,)))
    dtypes = [np.dtype(d) for d in ("f2", "f4", "i8", "u1", "c8", "?")] + [bfloat16]
    arrays = [np.array(x).astype(d) for x in (2, [1, 2]) for d in dtypes]
    scalars = [True, 2, 2.5, 1j, Level.HIGH, np.float64(2), np.int8(2), np.bool_(True)]
    for x in [*weak, *scalars, *arrays, *map(jnp.asarray, arrays)]:
        for _ in range(2):
            f = ftrans.jit(lambda x: fnp.add(x, x))
            got, plain = f(x), fnp.add(x, x)
            # JAX does not tell a scalar array that is weak from a Python scalar
            assert got.dtype == plain.dtype or (x is weak[0] or x is weak[1] or x is weak[2]), x
            assert_close(got, plain, 1e-6, repr(x))
            assert_close(f(x), plain, 1e-6, repr(x))


def test_lowering_for_types_alone() -> None:
    f = ftrans.jit(lambda p: fnp.sin(p["x"]) * 2)
    spec = jax.ShapeDtypeStruct((3,), np.float64)
    assert "tensor<3xf64>" in f.lower({"x": spec}).as_text()
    with Compilations() as made:
        assert_close(f({"x": V}), np.sin(V) * 2)
    assert made.count == 1
    with pytest.raises(TypeError):
        f({"x": spec})
    assert_close(f({"x": V}), np.sin(V) * 2)


def test_methods_and_partial_functions() -> None:
    class Model:
        def __init__(self, k: float):
            self.k = k

        @functools.partial(ftrans.jit, static_argnums=0)
        def scaled(self, x: Any) -> Any:
            return x * self.k

        def __call__(self, x: Any) -> Any:
            return x + self.k

    two, three = Model(2.0), Model(3.0)
    for _ in range(2):
        assert_close(two.scaled(V), V * 2)
        assert_close(three.scaled(V), V * 3)
        assert_close(ftrans.jit(two)(V), V + 2)
        assert_close(ftrans.jit(three)(V), V + 3)
        assert_close(ftrans.jit(functools.partial(three.__call__))(V), V + 3)


# -------------------------------------------------------------------- what functions close over


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_captured_arrays(kind: Any) -> None:
    source = "f = ftrans.jit(lambda x: x * data)"
    one, two = kind(np.array([1.0, 2.0, 3.0], "f")), kind(np.array([1.0, 2.0, 4.0], "f"))
    x = np.ones(3, "f")
    assert_close(cell(source, data=one)["f"](x), np.asarray(one))
    with Compilations() as made:
        assert_close(cell(source, data=two)["f"](x), np.asarray(two))
        assert_close(cell(source, data=one)["f"](x), np.asarray(one))
    assert made.count == 0  # they are arguments of what is compiled


def test_captured_arrays_stay_as_they_were() -> None:
    source = "f = ftrans.jit(lambda x: x * data)"
    data = np.array([1.0, np.nan, 0.0])
    first = cell(source, data=data)["f"]
    assert_close(first(V), V * [1.0, np.nan, 0.0])
    with Compilations() as made:
        cell(source, data=data.copy())["f"](V)
    assert made.count == 0
    data[2] = -0.0
    assert np.signbit(cell(source, data=data)["f"](V)).tolist() == [False, False, True]
    data[:] = 7.0
    assert_close(cell(source, data=data)["f"](V), V * 7)
    assert_close(first(V), V * [1.0, np.nan, 0.0])
    assert data.flags.writeable


def test_large_captured_arrays_are_once_in_the_code() -> None:
    data = np.arange(1000.0)

    def ours(x: Any) -> Any:
        return x * data + data.sum()

    length = len(ftrans.jit(ours).lower(np.ones(1000)).as_text())
    with jax.enable_x64(True):
        theirs = len(jax.jit(ours).lower(np.ones(1000)).as_text())
    assert length < 1.1 * theirs + 500


def test_functions_do_not_outlive_their_names() -> None:
    def make() -> tuple[Any, Any]:
        data = jnp.ones(5)

        def inner(x: Any) -> Any:
            return x * data.sum()

        return ftrans.jit(inner), weakref.ref(inner)

    f, alive = make()
    f(V)
    f(M)
    del f
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_captured_arrays_do_not_outlive_the_function(kind: Any) -> None:
    def make() -> tuple[Any, Any]:
        data = kind(np.arange(5.0))
        f = ftrans.jit(lambda x: x * data)
        for _ in range(4):
            assert_close(f(np.ones(5, "f")), np.arange(5.0))
        return f, weakref.ref(data)

    gc.collect()  # of what other tests have left
    before = len(jax.live_arrays())
    f, alive = make()
    assert len(jax.live_arrays()) == before + 1
    del f
    gc.collect()
    assert alive() is None
    assert len(jax.live_arrays()) == before


# ------------------------------------------------------------------------------- when it goes wrong


def test_an_exception_in_the_function_leaves_nothing_behind() -> None:
    fails = True

    @ftrans.jit
    def f(x: Any) -> Any:
        y = x * 2
        if fails:
            raise RuntimeError("on purpose")
        return y

    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            f(V)
    fails = False
    assert_close(f(V), V * 2)
    fails = True
    assert_close(f(V), V * 2)
    with pytest.raises(RuntimeError, match="on purpose"):
        f(M)
    assert_close(f(V), V * 2)
    fails = False
    assert_close(f(M), M * 2)


@pytest.mark.parametrize("where", ["trace", "lower"])
def test_an_interrupt_leaves_nothing_behind(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*rest: Any) -> Any:
        raise KeyboardInterrupt

    stop = [where == "trace"]
    k = 2 if where == "trace" else 3

    @ftrans.jit
    def f(x: Any) -> Any:
        if stop:
            stop.clear()
            raise KeyboardInterrupt
        return x * k

    if where == "lower":
        stop.clear()
        monkeypatch.setattr(sys.modules["ftrans.func.jit"], "lower", interrupted)
    f_again = cell("f = ftrans.jit(lambda x: x * k)", k=k)["f"]
    with pytest.raises(KeyboardInterrupt):
        f(V)
    monkeypatch.undo()
    stop.clear()
    assert_close(f(V), V * k)
    assert_close(f(M), M * k)
    assert_close(f_again(M), M * k)
    assert not ftrans.ir.is_tracing()
    assert not jax.config.jax_enable_x64


def test_static_arguments_that_cannot_be_hashed_leave_nothing_behind() -> None:
    f = ftrans.jit(lambda x, n: x * n[0], static_argnums=1)
    for _ in range(2):
        with pytest.raises(StaticArgumentError, match="must be hashable"):
            f(V, [2])
        assert_close(f(V, (2,)), V * 2)


class Layer:
    """Equals only itself, as most objects do, and holds what may change."""

    def __init__(self, w: float):
        self.w = w

    def __repr__(self) -> str:
        return "Layer(...)"

    @ftrans.jit
    def loss(self, x: Any) -> Any:
        return self.w * x

    def apply(self, x: Any) -> Any:
        return self.w * x


def test_an_object_that_may_change_unseen_is_no_static_argument() -> None:
    layer = Layer(2.0)
    bound = "<bound method Layer.apply of Layer(...)>"
    for run, name, label in (
        (lambda: layer.loss(V), "loss", "self: Layer(...) (Layer)"),
        (lambda: func.grad(lambda x: layer.loss(x).sum())(V), "loss", "self: Layer(...) (Layer)"),
        (lambda: ftrans.jit(late)(V, layers=[layer]), "late", "layers[0]: Layer(...) (Layer)"),
        (lambda: ftrans.jit(call)(layer.apply, V), "call", f"f: {bound} (method)"),
        (
            lambda: ftrans.jit(call)(functools.partial(layer.apply), V),
            "call",
            f"f: functools.partial({bound}) (partial)",
        ),
    ):
        with pytest.raises(StaticArgumentError) as caught:
            run()
        assert str(caught.value) == (
            f"jit({name}): an object that equals only itself is no static argument: when what it "
            f"holds has changed,\n  the function would not be traced anew.\n"
            f"  {label}\n"
            f"  Make it a pytree, jax.tree_util.register_dataclass(Layer); "
            f"or give its class __eq__ and __hash__;\n"
            f"  or, where it never changes, name it in static_argnums or static_argnames."
        )


def call(f: Any, x: Any) -> Any:
    return f(x)


def late(x: Any, layers: Any) -> Any:
    return layers[0].apply(x)


class Mode(enum.Enum):
    TWICE = 2.0


@dataclasses.dataclass(frozen=True)
class Fixed:
    w: float


def test_static_arguments_that_have_a_value_or_never_change() -> None:
    layer = Layer(2.0)
    named = ftrans.jit(Layer.apply, static_argnums=0)
    assert_close(named(layer, V), 2 * V)
    assert_close(named(Layer(3.0), V), 3 * V)
    given = ftrans.jit(lambda kind, x: x * getattr(kind, "w", None) if kind else x)
    assert_close(given(Fixed(2.0), V), 2 * V)
    assert_close(given(Fixed(3.0), V), 3 * V)
    for function in (np.sin, fnp.sin, lambda x: fnp.sin(x), ftrans.jit(fnp.sin)):
        assert_close(ftrans.jit(call)(function, V), np.sin(V))
    assert_close(ftrans.jit(lambda f, x: x)(jax.jit(jnp.sin), V), V)
    assert_close(ftrans.jit(lambda mode, x: mode.value * x)(Mode.TWICE, V), 2 * V)
    assert_close(ftrans.jit(lambda kind, x: kind(x))(fnp.asarray, V), V)
    assert_close(ftrans.jit(lambda missing, x: x)(object(), V), V)


def test_wrong_arguments_for_known_code() -> None:
    f = ftrans.jit(lambda x, y: x + y)
    assert_close(f(V, V), 2 * V)
    with pytest.raises(TypeError):
        f(V)
    with pytest.raises(TypeError):
        f(V, V, V)
    assert_close(f(V, V), 2 * V)
    with pytest.raises(ValueError, match="static_argnums"):
        ftrans.jit(lambda x: x, static_argnums=5)(V)


# ----------------------------------------------------------------------------- JAX's own transforms


def test_closures_over_values_that_jax_traces() -> None:
    def outer(w: Any) -> Any:
        return ftrans.jit(lambda x: fnp.sin(x) * w)(jnp.asarray(V, "float32")).sum()

    w = jnp.float32(2.0)
    for _ in range(2):
        assert_close(jax.grad(outer)(w), np.sin(V).sum(), 1e-6)
        assert_close(jax.jit(outer)(w), 2 * np.sin(V).sum(), 1e-6)
        assert_close(jax.vmap(outer)(jnp.arange(3.0)), np.arange(3) * np.sin(V).sum(), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["splice", "replay"])
def test_derivatives_by_jax(lowering: Any) -> None:
    """Those of compiled code, with integers and with arguments that are not differentiated."""
    ftrans.config.lowering = lowering
    try:
        f: Callable[..., Any] = ftrans.jit(
            lambda x, n, w: (fnp.where(n > 0, fnp.tanh(x) * w, x * x).sum(), n + 1)
        )
        x = jnp.asarray(V, "float32")
        n = jnp.asarray([1, 0, 2])
        w = jnp.float32(1.5)

        def theirs(x: Any, n: Any, w: Any) -> Any:
            return jnp.where(n > 0, jnp.tanh(x) * w, x * x).sum(), n + 1

        f(x, n, w)
        for transform in (
            lambda f: jax.grad(lambda x: f(x, n, w)[0])(x),
            lambda f: jax.grad(lambda w: f(x, n, w)[0])(w),
            lambda f: jax.jit(jax.value_and_grad(f, argnums=(0, 2), has_aux=True))(x, n, w)[0][0],
            lambda f: jax.hessian(lambda x: f(x, n, w)[0])(x),
            lambda f: jax.vmap(f, (None, 0, None))(x, jnp.stack([n, -n]), w)[0],
            lambda f: jax.jvp(lambda x, w: f(x, n, w)[0], (x, w), (x, w))[1],
            lambda f: jax.vmap(jax.grad(lambda x, w: f(x, n, w)[0]), (None, 0))(x, jnp.ones(2)),
            lambda f: jax.grad(jax.checkpoint(lambda x: f(x, n, w)[0]))(x),
            lambda f: jax.linearize(lambda x: f(x, n, w)[0], x)[1](x),
        ):
            expected = jaxpr.evaluate(lambda transform=transform: transform(theirs))()
            assert_close(transform(f), expected, 1e-5)
    finally:
        ftrans.config.lowering = "auto"


def test_arrays_of_numpy_inside_a_transformation_of_jax() -> None:
    f = ftrans.jit(lambda x: x * 2)
    assert_close(jax.jit(lambda y: f(np.ones(3, "f")) + y)(jnp.ones(3)), [3.0] * 3)


def test_without_jit() -> None:
    f = ftrans.jit(lambda x: fnp.sin(x) * 2)
    with jax.disable_jit():
        assert_close(f(V), np.sin(V) * 2)
    assert_close(f(V), np.sin(V) * 2)


# ------------------------------------------------------------------------------------------ threads


def test_many_threads_that_define_the_same_function() -> None:
    source = "f = ftrans.jit(lambda x: fnp.sin(x) + (k if x.ndim == 2 else 0))"
    wrong: list[Any] = []
    start = threading.Barrier(6)

    def work(k: int) -> None:
        start.wait()
        for _ in range(4):
            f = cell(source, k=float(k % 2))["f"]
            for _ in range(3):
                for x, expected in ((V, np.sin(V)), (M, np.sin(M) + k % 2)):
                    got = f(x)
                    if not np.allclose(got, expected, 1e-12, 1e-12):
                        wrong.append((k, got, expected))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
