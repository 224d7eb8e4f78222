"""External functions: what they are given and return, on every road that calls them."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.config import config
from ftrans.custom import external
from ftrans.custom.front import traceable
from ftrans.errors import ArgumentError, DTypeError, MissingRuleError, RuleError
from ftrans.external import HostCallee
from ftrans.ir import ArrayType, is_tracing
from ftrans.primitives.rules.external import external_p
from ftrans.runtime import cache_clear, native
from ftrans.runtime.native import handler
from tests.helpers import assert_close

X = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 9.0]])
METHODS = ("sequential", "expand_dims", "broadcast_all")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    config.host_calls = "auto"
    config.execution = "auto"
    config.lowering = "auto"
    assert not is_tracing()


def same(x: Any) -> Any:
    return x


def sort(method: Any = "broadcast_all") -> Callable[..., Any]:
    return external(np.sort, same, vmap_method=method)


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """Applies a function two times in a loop, which is compiled."""

    def looped(x: Any) -> Any:
        return ftrans.scan(lambda c, _: (function(c), None), x, None, length=2)[0]

    return looped


ROADS = {
    "at once": lambda f: f,
    "jit": ftrans.jit,
    "scan": twice,
    "jit of scan": lambda f: ftrans.jit(twice(f)),
    "jax.jit": jax.jit,
}


@pytest.fixture(params=["ffi", "callback"])
def host_calls(request: pytest.FixtureRequest) -> str:
    config.host_calls = request.param
    return request.param


# --------------------------------------------------------------------------- values and containers


@pytest.mark.smoke
def test_the_handler_made_without_a_compiler_works_on_this_jax() -> None:
    assert not native.failure()


@pytest.mark.smoke
@pytest.mark.parametrize("road", ROADS)
def test_every_road_gives_what_numpy_gives(road: str, host_calls: str) -> None:
    x = X.astype(np.float32)
    found = ROADS[road](sort())(x)
    assert_close(found, np.sort(x))
    assert isinstance(ROADS[road](sort())(jnp.asarray(x)), jax.Array)


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3)])
def test_all_dtypes_and_shapes_pass_unchanged(dtype: Any, shape: Any, host_calls: str) -> None:
    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 % 5).astype(dtype)
    seen = []

    def flip(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append((a.shape, a.dtype, a.flags.aligned))
        return np.array(b), np.array(a)

    swap = ftrans.jit(external(flip, lambda a, b: (a, b)))
    first, second = swap(x, np.ones_like(x))
    assert first.dtype == second.dtype == x.dtype
    assert np.array_equal(first, np.ones_like(x))
    assert np.array_equal(second, x)
    # what returns no element at all, XLA need not call
    assert seen == [(x.shape, x.dtype, True)] or (not seen and not x.size)


def test_scalars_pytrees_and_keywords_pass() -> None:
    def stats(data: Any, *, scale: Any) -> Any:
        x = data["x"]
        return {"mean": float(x.mean() * scale), "most": x.max()}

    scalar = ArrayType((), "float64")
    f = external(stats, {"mean": scalar, "most": scalar})
    for call in (f, ftrans.jit(f)):
        found = call({"x": X}, scale=2.0)
        assert found["mean"].dtype == np.float64
        assert_close(found["mean"], X.mean() * 2)
        assert_close(found["most"], X.max())


def test_a_function_without_arguments_is_called() -> None:
    f = external(lambda: np.arange(3.0), ArrayType((3,), "float64"))
    assert_close(f(), np.arange(3.0))
    assert_close(ftrans.jit(lambda x: x + f())(np.ones(3)), np.arange(3.0) + 1)


def test_result_types_may_be_given_in_many_ways() -> None:
    for declared in (
        ArrayType((2, 3), "float64"),
        jax.ShapeDtypeStruct((2, 3), np.float64),
        X,
        lambda x: x,
    ):
        assert_close(external(np.sort, declared)(X), np.sort(X))


def test_arrays_are_given_without_a_copy() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append(x)
        return x.sum()

    f = external(look, ArrayType((), "float64"))
    f(X)
    assert np.shares_memory(seen[0], X)
    with jax.enable_x64(True):
        given = jnp.asarray(X)
    f(given)
    assert np.shares_memory(seen[1], np.asarray(given))


def test_results_share_memory_with_nothing() -> None:
    buffer = np.zeros(3)

    def reuse(x: np.ndarray) -> np.ndarray:
        buffer[...] = x
        return buffer

    f = external(reuse, same)
    first = f(np.ones(3))
    f(np.full(3, 2.0))
    assert_close(first, np.ones(3))
    assert not np.shares_memory(external(same, same)(X), X)
    kept = X[0].copy()
    pair = external(lambda x: (x, x), lambda x: (x, x))(kept)
    assert not np.shares_memory(*pair)


def test_a_new_result_is_not_copied() -> None:
    made: list[int] = []

    def make(x: np.ndarray) -> np.ndarray:
        out = np.sort(x)
        made.append(out.ctypes.data)
        return out

    callee = HostCallee("make", lambda x: (make(x),), [ArrayType((3,), "float64")])
    (found,) = callee.run([X[0]])
    assert found.ctypes.data == made[0]


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not among the requirements")

    def double(x: Any) -> Any:
        return torch.from_dlpack(np.array(x)) * 2

    for dtype in (np.float32, np.float64, np.int32, ml_dtypes.bfloat16):
        x = X.astype(dtype)
        through = external(
            (lambda x: torch.ones(2, 3, dtype=torch.bfloat16) * 2)
            if dtype is ml_dtypes.bfloat16
            else double,
            same,
        )
        expected = np.full((2, 3), 2, dtype) if dtype is ml_dtypes.bfloat16 else x * 2
        for call in (through, ftrans.jit(through)):
            assert np.array_equal(call(x), expected)

    grown = external(lambda x: torch.ones(3, requires_grad=True), ArrayType((3,), "float32"))
    with pytest.raises(RuleError, match="detach"):
        grown(X)


def test_what_is_kept_of_an_argument_stays_valid() -> None:
    kept: list[np.ndarray] = []

    def keep(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        return x + 1

    f = ftrans.jit(twice(external(keep, same)))
    x = np.arange(100000.0)
    f(x)
    gc.collect()
    f(np.zeros_like(x))
    assert_close(kept[0], x)
    assert_close(kept[1], x + 1)


# ------------------------------------------------------------------------------------------- vmap


def poly(x: Any, y: Any) -> Any:
    return np.sort(x, axis=-1) * y


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dims", [(0, 0), (1, None), (None, 0), (2, 1), (-1, None)])
@pytest.mark.parametrize("road", ["at once", "jit"])
def test_vmap_is_a_loop(method: str, dims: Any, road: str) -> None:
    f = external(poly, lambda x, y: x, vmap_method=method)
    rng = np.random.default_rng(0)
    full = [rng.normal(size=(3, 3, 3)), rng.normal(size=(3, 3, 3))]
    x, y = (a if d is not None else a[0] for a, d in zip(full, dims, strict=True))

    def example(a: Any, d: Any, i: int) -> Any:
        return a if d is None else np.take(a, i, d)

    found = ROADS[road](func.vmap(f, in_dims=dims))(x, y)
    expected = np.stack([poly(example(x, dims[0], i), example(y, dims[1], i)) for i in range(3)])
    assert_close(found, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("inner", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("outer", [(0, None), (None, 0), (0, 0)])
def test_nested_vmap(method: str, inner: Any, outer: Any) -> None:
    f = external(poly, lambda x, y: x, vmap_method=method)
    rng = np.random.default_rng(0)

    def make(which: int) -> np.ndarray:
        front = [2] * (outer[which] is not None) + [3] * (inner[which] is not None)
        return rng.normal(size=(*front, 4))

    x, y = make(0), make(1)
    found = func.vmap(func.vmap(f, in_dims=inner), in_dims=outer)(x, y)
    expected = np.empty((2, 3, 4))
    for i in range(2):
        for j in range(3):
            a = x[i] if outer[0] is not None else x
            b = y[i] if outer[1] is not None else y
            expected[i, j] = poly(
                a[j] if inner[0] is not None else a, b[j] if inner[1] is not None else b
            )
    assert_close(found, expected)


def test_a_loop_is_one_equation_whatever_the_size() -> None:
    calls = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(x.shape)
        return x * 2

    f = external(count, same, vmap_method="sequential")

    assert_close(func.vmap(f)(np.ones((5, 3))), np.full((5, 3), 2.0))
    assert calls == [(3,)] * 5
    calls.clear()
    assert func.vmap(f)(np.ones((0, 3))).shape == (0, 3)
    assert calls == []


def test_a_batch_is_one_call() -> None:
    calls = []

    def count(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        calls.append((x.shape, y.shape))
        return x * y

    for method, shape in (("broadcast_all", (5, 3)), ("expand_dims", (1, 3))):
        f = external(count, lambda x, y: x, vmap_method=method)
        func.vmap(f, in_dims=(0, None))(np.ones((5, 3)), np.ones(3))
        assert calls.pop() == ((5, 3), shape)
        assert not calls


def test_a_loop_nobody_asked_for_warns_once() -> None:
    def slow(x: np.ndarray) -> np.ndarray:
        return x + 1

    f = external(slow, same)
    with pytest.warns(RuntimeWarning, match=r"slow: vmap calls it 2 times.*\n.*broadcast_all"):
        func.vmap(f)(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        func.vmap(f)(X)
        func.vmap(func.vmap(f))(X[None])


def test_a_rule_for_a_batch_is_recorded() -> None:
    def rule(size: int, in_batched: list[Any], tree: Any, y: Any) -> Any:
        assert in_batched == [{"x": True}, False]
        assert size == 2
        out = f({"x": tree["x"] * 2}, fnp.broadcast_to(y, tree["x"].shape))
        return (out[0], fnp.sum(y)), (True, False)

    f = external(
        lambda tree, y: (np.sort(tree["x"]) * y, y.sum()),
        lambda tree, y: (tree["x"], ArrayType((), y.dtype)),
        vmap_method=rule,
    )

    def call(x: Any, y: Any) -> Any:
        return f({"x": x}, y)

    for road in (ROADS["at once"], ROADS["jit"]):
        first, second = road(func.vmap(call, in_dims=(0, None)))(X, np.ones(3))
        assert_close(first, np.sort(X * 2))
        assert_close(second, np.array([3.0, 3.0]))
    x = X.astype(np.float32)
    first, _ = jax.vmap(jax.jit(call), in_axes=(0, None))(x, np.ones(3, np.float32))
    assert_close(first, np.sort(x * 2))


@pytest.mark.parametrize("wrap", [external, lambda fn, out, **rest: traceable(fn, **rest)])
def test_a_rule_for_a_batch_reads_what_is_there_now(wrap: Any) -> None:
    scale = 1.0

    def rule(size: int, in_batched: Any, x: Any) -> Any:
        return x * scale, True

    f = wrap(lambda x: x * 1.0, same, vmap_method=rule)

    def twice(x: Any) -> Any:
        nonlocal scale
        scale = 5.0
        first = f(x)
        scale = 7.0
        return first + 10 * f(x)

    for scale in (2.0, 3.0, 2.0):
        assert_close(func.vmap(f)(X), X * scale)
        assert_close(func.vmap(lambda x: f(x) * 2)(X), X * scale * 2)
    with pytest.raises(RuleError, match="it reads what has changed between the call and its batch"):
        func.vmap(twice)(X)


@pytest.mark.parametrize("method", METHODS)
def test_jax_maps_it_too(method: str, host_calls: str) -> None:
    x = X.astype(np.float32)
    f = sort(method)
    for mapped in (jax.vmap(f), jax.jit(jax.vmap(f)), jax.vmap(ftrans.jit(f))):
        assert_close(mapped(x), np.sort(x))
    y = external(poly, lambda x, y: x, vmap_method=method)
    found = jax.vmap(y, in_axes=(0, None))(x, x[0])
    assert_close(found, np.stack([poly(row, x[0]) for row in x]))


# ---------------------------------------------------------------------------------------- errors


def fails(x: Any) -> Any:
    return {}["no such key"]


@pytest.mark.smoke
@pytest.mark.parametrize("road", ["at once", "jit", "scan", "jit of scan"])
@pytest.mark.parametrize("container", [np.asarray, jnp.asarray])
def test_errors_reach_the_caller_as_they_are(road: str, container: Any, host_calls: str) -> None:
    f = ROADS[road](external(fails, same))
    with pytest.raises(KeyError, match="no such key") as caught:
        f(container(X.astype(np.float32)))
    entries = traceback.extract_tb(caught.value.__traceback__)
    assert entries[-1].name == "fails"
    assert not any("/ftrans/" in entry.filename for entry in entries)
    # and nothing is left behind
    assert_close(ROADS[road](sort())(X), np.sort(X))


def test_the_cause_of_an_error_stays() -> None:
    def chained(x: Any) -> Any:
        try:
            return fails(x)
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RuntimeError, match="outer") as caught:
        ftrans.jit(external(chained, same))(X)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(kind: type[BaseException], host_calls: str) -> None:
    def stop(x: Any) -> Any:
        raise kind

    f = external(stop, same)
    for road in ("at once", "jit", "scan"):
        with pytest.raises(kind):
            ROADS[road](f)(X)


def test_jax_shows_the_text_of_an_error() -> None:
    with pytest.raises(Exception, match="no such key"):
        jax.block_until_ready(jax.jit(external(fails, same))(jnp.ones(3)))


BAD = {
    "shape": (lambda x: x[0], r"bad: its result does not have the shape.*f64\[3\].*f64\[2,3\]"),
    "dtype": (lambda x: x.astype("f4"), r"dtype.*\n.*f32\[2,3\].*\n.*f64\[2,3\].*\n.*astype"),
    "number": (lambda x: (x, x), r"is no array"),
    "no array": (lambda x: "text", r"is no array.*\n.*str"),
    "none": (lambda x: None, r"structure|is no array"),
    "scalar": (lambda x: 1.0, r"shape"),
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("road", ["at once", "jit"])
def test_what_is_returned_is_held_against_what_is_declared(fault: str, road: str) -> None:
    function, text = BAD[fault]
    with pytest.raises(RuleError, match="(?s)" + text):
        ROADS[road](external(function, same, name="bad"))(X)


def test_python_scalars_take_the_declared_dtype_where_they_fit() -> None:
    for value, dtype, fits in (
        (1, "float32", True),
        (1.5, "bfloat16", True),
        (True, "bool", True),
        (1.5, "int32", False),
        (1j, "float32", False),
        (True, "float32", False),
        (300, "uint8", False),
        (2, "complex64", True),
    ):
        f = external(lambda value=value: value, ArrayType((), dtype))
        if fits:
            assert f().dtype == np.dtype(dtype)
            assert f() == value
        else:
            with pytest.raises(RuleError, match="does not fit"):
                f()


@pytest.mark.parametrize("road", ["at once", "jit"])
def test_writing_to_an_argument_says_what_to_do(road: str) -> None:
    def write(x: np.ndarray) -> np.ndarray:
        x[0] = 0
        return x

    with pytest.raises(ValueError, match="read-only") as caught:
        ROADS[road](external(write, same))(X)
    assert any("a.copy()" in note for note in caught.value.__notes__)
    callee = HostCallee("write", lambda x: (write(x),), [ArrayType((3,), "float64")], copies=True)
    x = np.ones(3)
    for call in (lambda x: external_p(x, callee=callee)[0],):
        assert_close(ROADS[road](call)(x), np.array([0.0, 1.0, 1.0]))
    assert_close(x, np.ones(3))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="vmap_method"):
        external(np.sort, same, vmap_method="loop")
    with pytest.raises(DTypeError, match=r"args\[0\]\['a'\]"):
        external(np.sort, same)({"a": "text"})
    with pytest.raises(DTypeError, match="out_type"):
        external(np.sort, "float32")(X)
    with pytest.raises(DTypeError, match="out_type"):
        external(np.sort, lambda x: {"a": 3})(X)


@pytest.mark.filterwarnings("ignore:.*vmap calls it")
def test_a_rule_for_a_batch_is_held_to_its_form() -> None:
    for rule, text in (
        (lambda size, flags, x: x, r"sort\.vmap_method: it must return two things"),
        (lambda size, flags, x: (x, True, x), "must return two things"),
        (lambda size, flags, x: (x[0], True), "does not have the type"),
        (lambda size, flags, x: (x, False), "does not have the type"),
        (lambda size, flags, x: ((x, x), True), "does not have the type"),
        (lambda size, flags, x: (x, [True]), "out_batched does not have the structure"),
        (lambda size, flags, x: (x, 1), "out_batched does not have the structure"),
    ):
        with pytest.raises((RuleError, DTypeError), match=text):
            func.vmap(external(np.sort, same, vmap_method=rule))(X)


def test_a_derivative_that_is_missing_is_named() -> None:
    with pytest.raises(MissingRuleError, match="sort: it has no derivative"):
        func.grad(lambda x: sort()(x).sum())(X)
    assert_close(func.grad(lambda x: (sort()(fnp.stop_gradient(x)) * x).sum())(X), np.sort(X))


# -------------------------------------------------------------------------- threads and lifetimes


@pytest.mark.parametrize("road", ["at once", "jit", "jit of scan"])
def test_threads(road: str) -> None:
    f = ROADS[road](sort())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.normal(size=17)
            if not np.array_equal(f(x), np.sort(x)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_body_may_use_the_library_and_jax() -> None:
    def inner(x: Any) -> Any:
        slope = func.grad(lambda y: (fnp.sin(y) * y).sum())(np.asarray(x))
        return np.asarray(jnp.asarray(slope)) + ftrans.jit(lambda y: y * 2)(np.asarray(x))

    f = external(inner, same)
    x = X.astype(np.float32)
    expected = np.sin(x) + x * np.cos(x) + 2 * x
    for road in ("at once", "jit"):
        assert_close(ROADS[road](f)(x), expected)
    # in the middle of a trace too, where its operations are not recorded
    found = func.vmap(lambda y: y * float(f(x)[0, 0]))(x)
    assert_close(found, x * expected[0, 0])


def test_a_callee_lives_as_long_as_what_is_compiled_for_it() -> None:
    class Body:
        def __call__(self, x: Any) -> Any:
            return x + 1

    body = Body()
    gone = weakref.ref(body)
    f = jax.jit(external(body, same, name="body"))
    x = jnp.ones(3)
    f(x)
    compiled = f.lower(x).compile()
    del body, f
    cache_clear()
    jax.clear_caches()
    gc.collect()
    native.sweep()
    assert gone() is not None
    assert_close(compiled(x), np.full(3, 2.0, np.float32))
    del compiled
    jax.clear_caches()
    gc.collect()
    native.sweep()
    assert gone() is None


def test_equal_callees_make_equal_programs() -> None:
    def make(shift: float, key: Any) -> HostCallee:
        return HostCallee("shift", lambda x: (x + shift,), [ArrayType((3,), "float64")], key=key)

    assert make(1.0, "a") == make(1.0, "a")
    assert hash(make(1.0, "a")) == hash(make(1.0, "a"))
    assert make(1.0, "a") != make(1.0, "b")
    assert make(1.0, None) != make(1.0, None)


# ------------------------------------------------------------------------------- other platforms


def test_other_platforms_get_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    # as where JAX has a GPU beside the CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    x = jnp.asarray(X.astype(np.float32))
    f = sort()
    # a branch for each, of which lowering for a platform takes its own
    written = str(jax.make_jaxpr(f)(x))
    assert "pure_callback" in written
    assert "ffi_call" in written
    text = jax.jit(f).lower(x).as_text()
    assert native.TARGET in text
    assert "callback" not in text
    for road in ("jit", "jit of scan"):
        assert_close(ROADS[road](f)(X), np.sort(X))
        with pytest.raises(KeyError, match="no such key"):
            ROADS[road](external(fails, same))(X)


def test_an_unknown_version_of_the_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("XLA's FFI has version (1, 0)")

    monkeypatch.setattr(handler, "_state", None)
    monkeypatch.setattr(handler, "_register", refuse)
    assert "version" in native.failure()
    assert_close(ftrans.jit(sort())(X), np.sort(X))


def test_an_executable_of_another_process_is_refused() -> None:
    from ftrans.runtime.native.lifetime import Ticket

    spec = jax.ShapeDtypeStruct((3,), np.float32)
    call: Any = jax.ffi.ffi_call(native.TARGET, spec)
    with pytest.raises(Exception, match="another process"):
        jax.block_until_ready(jax.jit(lambda x: call(x, ticket=Ticket(12345)))(jnp.ones(3)))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What runs in the background may have been told to ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_a_callback_of_jaxs_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes, once in a while, in the functions of JAX's by which it calls Python."""
    module = sys.modules["jax._src.callback"]

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    config.host_calls = "callback"
    f = ftrans.jit(external(lambda x: x + 1, same))
    assert_close(f(X), X + 1)
    monkeypatch.setattr(module, "pure_callback_impl", interrupted)
    with pytest.raises(KeyboardInterrupt):
        f(X)
    monkeypatch.undo()
    assert_close(f(X), X + 1)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_interrupt_from_outside_ends_a_loop(before: int) -> None:
    """Wherever it comes, also while XLA is running; in the first call as in later ones."""
    import _thread

    seen = 0

    def count(x: np.ndarray) -> np.ndarray:
        nonlocal seen
        seen += 1
        return x

    def interrupt() -> None:
        while seen < 50:
            time.sleep(1e-4)
        _thread.interrupt_main()

    f = external(count, same)
    length = 50_000
    loop = ftrans.jit(lambda x: ftrans.scan(lambda c, _: (f(c), None), x, None, length=length)[0])
    for _ in range(before):
        loop(X)
    for _ in range(3):
        seen = 0
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            loop(X)
        thread.join()
        assert seen < length
    assert_close(ftrans.jit(sort())(X), np.sort(X))


@pytest.mark.usefixtures("interruptible")
def test_the_handler_of_interrupts_is_the_users() -> None:
    seen: list[Any] = []

    def mine(number: int, frame: Any) -> None:
        seen.append(number)

    def interrupted(x: np.ndarray) -> np.ndarray:
        signal.raise_signal(signal.SIGINT)
        return x

    def replaced(x: np.ndarray) -> np.ndarray:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return x

    for road in ("jit", "scan", "jit of scan"):
        signal.signal(signal.SIGINT, mine)
        ROADS[road](external(interrupted, same))(X)
        assert signal.getsignal(signal.SIGINT) is mine
        assert set(seen) == {signal.SIGINT}
        seen.clear()
        ROADS[road](external(replaced, same))(X)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert_close(ftrans.jit(sort())(X), np.sort(X))
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, KeyboardInterrupt, SystemExit])
def test_what_has_raised_is_not_run_again(kind: type[BaseException]) -> None:
    seen: list[float] = []

    def checked(x: np.ndarray) -> np.ndarray:
        seen.append(float(x.min()))
        if x.min() < 0:
            raise kind("negative")
        return x

    f = external(checked, same)
    loop = ftrans.jit(lambda x: ftrans.scan(lambda c, _: (f(c - 1), None), x, None, length=9)[0])
    for _ in range(3):
        loop(X + 20)
        seen.clear()
        with pytest.raises(kind, match="negative"):
            loop(0 * X + 3)
        assert seen == [2.0, 1.0, 0.0, -1.0]
