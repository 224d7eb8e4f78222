"""Un-jitted calls that skip the Python of a function: the same results as when it is run."""

from __future__ import annotations

import enum
import functools
import gc
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func, nn
from ftrans.func import anew, memo, proven

X = np.linspace(0.1, 1.0, 8, dtype="float32")
WEIGHTS = np.ones(8, "float32")
CONSTANT = jnp.full(8, 2.0)
LIST, NUMBER = [2.0], 2.0
SPACE = types.SimpleNamespace(numpy=fnp, factor=3.0)
LISTS = types.SimpleNamespace(factor=3.0, lists=[1.0])
TURNS = 3 * proven._AFTER


@pytest.fixture(autouse=True)
def skipping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ftrans.config, "skip_python", True)
    ftrans.cache_clear()
    yield
    ftrans.cache_clear()


def last() -> str:
    """Returns what is told of the Python of the latest call."""
    return ftrans.explain(last=1)[0].python


def both_ways(
    transformed: Callable[..., Any],
    args: Callable[[int], tuple[Any, ...]],
    change: Callable[[int], None] = lambda turn: None,
) -> list[str]:
    """Returns what was told of each call, after results were held against those of Python."""
    told = []
    for turn in range(TURNS):
        change(turn)
        result = transformed(*args(turn))
        told.append(last())
        ftrans.config.skip_python = False
        expected = transformed(*args(turn))
        ftrans.config.skip_python = True
        assert jax.tree.structure(result) == jax.tree.structure(expected)
        for x, y in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            assert type(x) is type(y)
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    return told


def wave(x: Any) -> Any:
    return (np.sin(x) * x).sum()


def helper(x: Any) -> Any:
    return np.tanh(x)


def chain(xp: Any, x: Any) -> Any:
    return xp.sum(xp.sin(x))


def of_pairs(p: Any) -> Any:
    return sum((i + 1) * v.sum() for i, v in enumerate(p.values()))


def helped(x: Any, space: Any) -> Any:
    return (x * space.factor).sum()


def printed(x: Any, space: Any) -> Any:
    return x.sum() * len(f"{space}")


def noted(x: Any, space: Any) -> Any:
    space.factor = space.factor
    return x.sum()


def catching(x: Any, y: Any) -> Any:
    try:
        return (x * y.itemsize_).sum()
    except AttributeError:
        return (x * y).sum()


def stacked(x: Any) -> Any:
    rows = []
    for i in range(3):
        rows.append(x * i)
    return nn.relu(fnp.stack(rows)).sum()


def written(x: Any) -> Any:
    y = x.copy()
    y[0] = 2.0
    return (y * x).sum()


slope = func.grad(lambda x: x * x * x)

PROVEN = {
    "grad": (func.grad(wave), lambda i: (X + i,)),
    "value": (func.value_and_grad(wave), lambda i: (X + i,)),
    "jax": (func.grad(wave), lambda i: (jnp.asarray(X) * i,)),
    "hessian": (func.hessian(wave), lambda i: (X * i,)),
    "jacrev": (func.jacrev(helper), lambda i: (X * i,)),
    "jvp": (lambda x, t: func.jvp(helper, (x,), (t,)), lambda i: (X * i, X + i)),
    "jvp, zeros and aux": (
        lambda x, n: func.jvp(lambda x, n: (x * n, n), (x, n), (x, None), has_aux=True),
        lambda i: (X * i, 3),
    ),
    "hvp": (lambda x, t: func.hvp(wave, (x,), (t,)), lambda i: (X * i, X + i)),
    "vmap": (func.vmap(func.grad(wave)), lambda i: (np.full((3, 8), i, "f4"),)),
    "one number": (func.grad(func.grad(lambda x: x**3)), lambda i: (2.0,)),
    "another argument": (
        func.grad(lambda x, y: (x * (1.0 - y[:8]) * 0.5).sum()),
        lambda i: (X, np.full(9, i, "f4")),
    ),
    "aux": (
        func.grad(lambda x, y: (x.sum(), {"y": y, "n": (3, x * 2)}), has_aux=True),
        lambda i: (X, np.full(3, i, "f4")),
    ),
    "order of keys": (
        func.grad(of_pairs),
        lambda i: ({"a": X, "b": X + i} if i % 2 else {"b": X, "a": X + i},),
    ),
    "list": (func.grad(stacked), lambda i: (X,)),
    "written": (func.grad(written), lambda i: (X,)),
    "helper": (func.grad(lambda x: helper(x).sum()), lambda i: (X,)),
    "namespace": (func.grad(lambda x: chain(SPACE.numpy, x) * SPACE.factor), lambda i: (X,)),
    "namespace handed on": (func.grad(lambda x: helped(x, SPACE)), lambda i: (X,)),
    "transform": (func.grad(lambda x: func.vmap(slope)(x).sum()), lambda i: (X,)),
    "loop": (
        func.grad(lambda x: ftrans.scan(lambda c, v: (c * v, c), x[0], x)[0]),
        lambda i: (X * i,),
    ),
    "constant": (func.grad(lambda x: (x * CONSTANT * np.arange(8)).sum()), lambda i: (X,)),
    "array": (func.grad(lambda x: (x * WEIGHTS[:4].sum()).sum()), lambda i: (X,)),
}


@pytest.mark.parametrize("name", PROVEN)
def test_python_is_skipped(name: str) -> None:
    told = both_ways(*PROVEN[name])
    assert told[-1] == "skipped"
    assert told[0] == ""


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x * LIST[0]).sum(), "it reads `LIST`"),
        (
            lambda x: (x * np.random.default_rng().random()).sum(),
            "it reads `np.random.default_rng`",
        ),
        (lambda x: x.sum() if x[0] > 0 else x.max(), "it asks for a value, or draws"),
        (lambda x: x.sum() * (x is WEIGHTS), "<lambda> asks whether two objects are one"),
        (lambda x: (x * isinstance(x, np.ndarray)).sum(), "it reads `isinstance`"),
        (lambda x: helped(x, LISTS), "it reads `LISTS`"),
        (lambda x: noted(x, SPACE), "noted sets the attribute factor"),
        (lambda x, w=WEIGHTS: (x * w).sum(), "<lambda> has defaults that may change"),
    ],
)
def test_it_is_told_why_python_runs(function: Any, reason: str) -> None:
    gradient = func.grad(function)
    for _ in range(proven._AFTER + 2):  # the first one counts for its code
        gradient(X)
    assert last() == reason


def _rebind(name: str, value: Callable[[int], Any]) -> Callable[[int], None]:
    def change(turn: int) -> None:
        if turn % 20 == 19:
            globals()[name] = value(turn)

    return change


def test_what_is_read_may_change() -> None:
    def fill(turn: int) -> None:
        if turn % 20 == 19:
            WEIGHTS[1] = turn

    def replace(turn: int) -> None:
        if turn == 20:
            helper.__code__ = (lambda x: np.cos(x)).__code__

    def patch(turn: int) -> None:
        if turn == 20:
            SPACE.numpy = types.SimpleNamespace(sin=fnp.cos, sum=fnp.sum)
        if turn == 40:
            SPACE.factor = 5.0

    code = helper.__code__
    try:
        for name, change in {
            "array": fill,
            "constant": _rebind("CONSTANT", lambda i: jnp.full(8, float(i))),
            "helper": replace,
            "namespace": patch,
            "namespace handed on": patch,
        }.items():
            assert "skipped" in both_ways(*PROVEN[name], change)
        scaled = func.grad(lambda x: (x * NUMBER).sum())
        assert "skipped" in both_ways(scaled, lambda i: (X,), _rebind("NUMBER", float))
    finally:
        helper.__code__ = code
        WEIGHTS[:] = 1.0
        SPACE.numpy, SPACE.factor = fnp, 3.0


def test_a_namespace_may_be_printed_and_compared() -> None:
    space, other = (types.SimpleNamespace(a=fnp.sin, b=1.0) for _ in range(2))

    def change(turn: int) -> None:
        if turn == 20:
            space.b = 12.5
        if turn == 40:
            space.c = None  # which nothing asks for

    told = both_ways(
        func.grad(lambda x: printed(x, space) * (2.0 if space == other else 1.0)),
        lambda i: (X,),
        change,
    )
    assert "skipped" in told


def test_what_changes_again_and_again_is_given_up() -> None:
    def gradient(x: Any) -> Any:
        return (x * NUMBER).sum()

    both_ways(func.grad(gradient), lambda i: (X,))
    for turn in range(200):
        globals()["NUMBER"] = float(turn // 20)
        func.grad(gradient)(X)
    assert last() == "what it reads changes"


def test_arguments_that_are_written_to_stay_written_to() -> None:
    def noting(x: Any, log: list[int]) -> Any:
        log.append(len(log))
        return x.sum()

    for _ in range(TURNS):
        log: list[int] = []
        func.grad(noting)(X, log)
        assert log == [0]
    assert last() == "it changes its arguments"


def add_one(x: Any, buffer: Any) -> Any:
    buffer += 1
    return (x * buffer).sum()


def set_one(x: Any, buffer: Any) -> Any:
    buffer[0] = x.size
    return x.sum()


def set_two(x: Any, buffer: Any) -> Any:
    np.multiply(buffer, 2, out=buffer)
    return x.sum()


def set_row(x: Any, buffer: Any) -> Any:
    row = buffer[1:]
    row[...] = 4.0
    return x.sum()


@pytest.mark.parametrize("function", [add_one, set_one, set_two, set_row])
def test_arrays_that_are_written_to_stay_written_to(function: Any) -> None:
    for _ in range(TURNS):
        buffer, expected = np.ones(8, "f4"), np.ones(8, "f4")
        gradient = func.grad(function)(X, buffer)
        function(np.ones(8, "f4"), expected)
        np.testing.assert_array_equal(buffer, expected)
        assert gradient[0] == (2 if function is add_one else 1)
    assert last() == "it changes its arguments"


def test_how_an_argument_lies_counts() -> None:
    def sevens(x: Any, y: Any) -> Any:
        flat = y.reshape(-1)  # a view of what lies in the order of rows, else a copy
        flat[0] = 7.0
        return (x * y.sum()).sum()

    rows = np.ones((2, 4), "f4")
    for _ in range(TURNS):
        assert func.grad(sevens)(X, np.asfortranarray(rows))[0] == 8
    assert func.grad(sevens)(X, rows.copy())[0] == 14


def test_calls_of_transforms_inside_of_transforms_are_proven_by_themselves() -> None:
    holomorphic = func.jacrev(lambda z: z**3, holomorphic=True)
    z = np.linspace(1, 2, 3) + 1j
    for _ in range(TURNS):
        np.testing.assert_allclose(np.diag(holomorphic(z)), 3 * z**2)


def test_what_has_an_effect_is_not_run_once_more() -> None:
    count = np.zeros(1)

    def counting(x: Any) -> Any:
        count[0] += 1
        return x.sum()

    for _ in range(TURNS):
        func.grad(counting)(X)
    assert count[0] == TURNS
    assert last() == "it changes what it reads"

    def thinned(x: Any) -> Any:
        return nn.dropout(x, 0.5).sum()

    draws = []
    for skip in (True, False):
        ftrans.config.skip_python = skip
        ftrans.random.manual_seed(0)
        draws.append([func.grad(thinned)(X).tolist() for _ in range(TURNS)])
    assert draws[0] == draws[1]


def test_what_is_checked_where_it_is_known_is_checked_at_each_call() -> None:
    taken = func.grad(lambda x, i: (x[i] * 2).sum())
    for _ in range(TURNS):
        taken(X, np.array([1, 2]))
    with pytest.raises(IndexError):
        taken(X, np.array([1, 20]))
    solved = func.grad(lambda x, a: (x * np.linalg.inv(a).sum()).sum())
    for _ in range(TURNS):
        solved(X, np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        solved(X, np.zeros((2, 2)))
    caught = func.grad(catching)
    for _ in range(TURNS):
        caught(X, X.copy())
    assert last().endswith("catches exceptions")
    divided = func.grad(lambda x, y: (x * (1 / y)).sum())
    for _ in range(TURNS):
        divided(X, X)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        divided(X, 0 * X)


def table(x: Any, labels: Any) -> Any:
    return (x * nn.one_hot(labels, 8).sum(0)).sum()


BY_THE_LIBRARY: dict[str, tuple[Any, Any, Any]] = {
    "sums in a wider type": (lambda x, n: (x * n.sum()).sum(), [1, 2], [2**31 - 1, 1]),
    "converts to integers": (lambda x, n: (x * n.astype("u1").sum()).sum(), [1.5], [-1.5]),
    "promotes in another way": (lambda x, n: (x * np.exp(n).sum()).sum(), [1, 2], [100, 2]),
    "checks": (table, [1, 2], [1, 20]),
    "checks what it made": (lambda x, y: x[y.astype(int)].sum(), [1.0], [20.0]),
    "divides by": (
        lambda x, w: (x * np.average([1.0, 2.0], weights=w)).sum(),
        [1.0, 2.0],
        [0.0, 0.0],
    ),
    "calls what is JAX's": (
        lambda x, a: (x * np.linalg.eigvals(a)[0].real).sum(),
        [[1.0]],
        [[np.nan]],
    ),
}


@pytest.mark.parametrize("what", BY_THE_LIBRARY)
def test_what_numpy_computes_of_plain_arguments_is_left_to_it(what: str) -> None:
    """An argument that nothing is differentiated for is a plain array: NumPy's rules hold."""
    f, first, later = BY_THE_LIBRARY[what]
    found = []
    for skip in (True, False):
        ftrans.config.skip_python = skip
        g = func.grad(f)
        for _ in range(TURNS):
            g(X, np.array(first))
        try:
            found.append(g(X, np.array(later)).tolist())
        except Exception as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_what_is_asked_of_arrays_beside_their_elements() -> None:
    whole = np.zeros(16, "f4")
    part = whole[:8]
    based = func.grad(lambda x: (x * part.base.sum()).sum())
    for _ in range(TURNS):
        based(X)
    whole[12] = 1.0
    assert based(X)[0] == 1.0
    same = func.grad(lambda x, n: (x * (2.0 if (np.array_equal(n, X)) is True else 1.0)).sum())
    for _ in range(TURNS):
        same(X, X + 1)
    assert same(X, X)[0] == 2.0


def test_names_that_are_bound_no_longer() -> None:
    scale: Any = None

    def scaled(x: Any) -> Any:
        return x.sum() if scale is None else (x * scale).sum()

    def forget() -> None:
        nonlocal scale
        del scale

    for _ in range(TURNS):
        func.grad(scaled)(X)
    forget()
    with pytest.raises(NameError):
        func.grad(scaled)(X)


def test_keys_that_are_equal_to_strings_are_kept() -> None:
    class Key(enum.StrEnum):
        A = "a"

    g = func.grad(lambda p: (p["a"] ** 2).sum())
    for _ in range(TURNS):
        g({"a": X})
    assert [type(key) for key in g({Key.A: X})] == [Key]


@jax.tree_util.register_pytree_node_class
class Table(tuple):
    def tree_flatten(self) -> tuple[Any, Any]:
        return (self[0],), self[1]

    @classmethod
    def tree_unflatten(cls, rows: Any, children: Any) -> Any:
        return cls((*children, rows))


def test_containers_that_cannot_be_compared() -> None:
    for _ in range(3):
        mapped = func.vmap(lambda t: t[0] * 2)(Table((X, np.arange(2))))
        np.testing.assert_array_equal(mapped, X * 2)


def test_the_options_of_jax_by_which_it_computes() -> None:
    wide, own = np.ones(8), jnp.ones(8, "float32")
    g = func.vmap(lambda x: x * (own + wide).sum())
    for _ in range(TURNS):
        assert g(X).dtype == np.float32
    with jax.enable_x64(True):
        assert g(X).dtype == np.float64


def test_arguments_of_other_kinds_are_told_apart() -> None:
    pairs = func.grad(lambda x, p: (x.sum(), [v * k for k, v in p.items()]), has_aux=True)
    for _ in range(TURNS):
        pairs(X, {1: np.arange(3)})
    assert pairs(X, {1.0: np.arange(3)})[1][0].dtype == np.float64

    mapped = lambda dims: func.vmap(helper, in_dims=dims)  # noqa: E731
    for _ in range(TURNS):
        mapped(0)(X)
    with pytest.raises(ftrans.FtransError):
        mapped(False)(X)


def test_static_values_are_told_apart_by_kind_and_sign() -> None:
    kinds = func.grad(lambda x, n: (x * (n if isinstance(n, bool) else 1 / (n or 0.5))).sum())
    signs = func.grad(lambda x, z: (x * np.copysign(1.0, z)).sum())
    for _ in range(TURNS):
        assert [kinds(X, n)[0] for n in (1, True, 1.0)] == [1, 1, 1]
        assert [signs(X, z)[0] for z in (0.0, -0.0)] == [1, -1]


def test_whoever_looks_at_python_sees_it_run() -> None:
    gradient = func.grad(wave)
    for _ in range(TURNS):
        gradient(X)
    assert last() == "skipped"
    seen = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: seen.append(frame.f_code) and None)
    try:
        gradient(X)
    finally:
        sys.settrace(before)
    assert wave.__code__ in seen


def test_settings_count() -> None:
    gradient = func.grad(lambda x: (x * fnp.ones(8)).sum())
    for _ in range(TURNS):
        gradient(X)
    before = ftrans.config.default_dtype
    try:
        ftrans.config.default_dtype = np.dtype("float64")
        assert gradient(X).dtype == np.float32
        assert last() == ""
    finally:
        ftrans.config.default_dtype = before


def test_a_function_is_freed_with_what_is_known_of_it() -> None:
    def made() -> Any:
        weights = np.ones(8, "f4")
        f = lambda x: (x * weights).sum()  # noqa: E731
        for _ in range(TURNS):
            func.grad(f)(X)
        assert last() == "skipped"
        return weakref.ref(f), weakref.ref(weights)

    refs = made()
    ftrans.cache_clear()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_function_that_was_called_can_be_pickled_and_wrapped() -> None:
    for _ in range(TURNS):
        func.grad(wave)(X)
    assert pickle.loads(pickle.dumps(wave)) is wave
    assert pickle.loads(pickle.dumps(wave.__dict__[memo.MEMO])) is None

    def doubled(x: Any) -> Any:
        return 2 * wave(x)

    doubled.__dict__.update(wave.__dict__)  # as `functools.wraps` does
    for _ in range(TURNS):
        np.testing.assert_allclose(func.grad(doubled)(X), 2 * func.grad(wave)(X), rtol=1e-6)


def test_a_wrapper_of_a_transform_is_a_function_of_its_own() -> None:
    inner = func.grad(wave)

    def doubled(x: Any) -> Any:
        return 2 * inner(x)

    doubled.__dict__.update(inner.__dict__)
    for _ in range(TURNS):
        np.testing.assert_allclose(func.vmap(doubled)(X[None]), 2 * inner(X)[None], rtol=1e-6)


def test_what_the_reader_does_not_see_is_seen_by_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ftrans.config, "check", False)
    monkeypatch.setattr(proven.reader, "guards", lambda *_: _Blind())
    gradient = func.grad(lambda x: (x * LIST[0]).sum())
    for _ in range(TURNS):
        gradient(X)
    monkeypatch.setitem(globals(), "LIST", [3.0])
    assert gradient(X)[0] == 2  # which is what the check is for
    monkeypatch.setattr(ftrans.config, "check", True)
    with pytest.raises(ftrans.CheckError, match=r"grad\(lambda\): its function was not run"):
        gradient(X)


class _Blind:
    reads = "nothing"

    def hold(self) -> bool:
        return True


def test_threads_may_call_while_another_changes_what_is_read() -> None:
    weights = np.ones(8, "f4")
    gradient = func.grad(lambda x: (x * weights).sum())
    wrong, done = [], threading.Event()

    def call() -> None:
        while not done.is_set():
            if not set(gradient(X).tolist()) <= {1.0, 2.0}:
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(100):
        try:
            weights[:] = 1.0 + turn % 2
        except ValueError:  # it is being traced
            continue
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_copies_the_attributes_of_a_transform_is_none() -> None:
    class Counting:
        def __init__(self, function: Any) -> None:
            functools.update_wrapper(self, function)
            self.function, self.count = function, 0

        def __call__(self, x: Any) -> Any:
            self.count += 1
            return self.function(x)

    counting = Counting(func.grad(wave))
    for _ in range(TURNS):
        func.vmap(counting)(X[None])
    assert counting.count == TURNS

    def later(x: Any) -> Any:
        return unset(x) if x.ndim > 1 else x.sum()

    later.__dict__.update(func.grad(wave).__dict__)
    assert func.grad(later)(X)[0] == 1  # while a cell of it holds nothing
    unset = helper


# ------------------------------------------------------------------ indices made beside the program


TABLE = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(6, 2)


def tokens(turn: int, *shape: int, most: int = 6, dtype: Any = "int64") -> np.ndarray:
    """Returns others in each call."""
    return np.random.default_rng(turn).integers(0, most, shape).astype(dtype)


INDEXED: dict[str, tuple[Any, Any]] = {
    "by rows": (lambda w, i: (w[i] ** 2).sum(), lambda k: tokens(k, 3)),
    "unsigned": (lambda w, i: (w[i] ** 2).sum(), lambda k: tokens(k, 3, dtype="u1")),
    "of JAX's": (lambda w, i: (w[i] ** 2).sum(), lambda k: jnp.asarray(tokens(k, 3))),
    "by views of it": (
        lambda w, i: (w[i[:, :-1]] * w[i[:, 1:]]).sum(),
        lambda k: tokens(k, 2, 4),
    ),
    "by two": (lambda w, i: (w[i, i] ** 2).sum(), lambda k: tokens(k, 3, most=2)),
    "with a slice": (lambda w, i: (w[i, 1:] ** 2).sum(), lambda k: tokens(k, 3)),
    "with a known one": (
        lambda w, i: (w[i[:, None], np.array([1, 0])] ** 2).sum(),
        lambda k: tokens(k, 3),
    ),
    "take": (lambda w, i: (fnp.take(w, i, axis=0) ** 2).sum(), lambda k: tokens(k, 2, 2)),
    "take_along_axis": (
        lambda w, i: (np.take_along_axis(w, i[:, None], axis=1) ** 2).sum(),
        lambda k: tokens(k, 6, most=2),
    ),
    "embedding": (lambda w, i: (nn.embedding(i, w) ** 2).sum(), lambda k: tokens(k, 4)),
    "written at": (
        lambda w, i: (fnp.at(w)[i].set(2.0 * w[0]) ** 2).sum(),
        lambda k: tokens(k, 3),
    ),
    "and computes with it": (
        lambda w, i: (w[i] * i.astype("float32")[:, None]).sum(),
        lambda k: tokens(k, 3),
    ),
    "in a map": (
        lambda w, i: func.vmap(lambda row: (w[row] ** 2).sum())(i).sum(),
        lambda k: tokens(k, 2, 3),
    ),
    "in a map of something else": (
        lambda w, i: func.vmap(lambda column: (column[i] ** 2).sum())(w.T).sum(),
        lambda k: tokens(k, 3),
    ),
    "none": (lambda w, i: (w[i] ** 2).sum(), lambda k: tokens(k, 0)),
}


@pytest.mark.parametrize("what", INDEXED)
def test_indices_are_made_again_in_each_call(what: str) -> None:
    f, given = INDEXED[what]
    for transform in (func.grad, func.value_and_grad, func.hessian):
        told = both_ways(transform(f), lambda turn: (TABLE, given(turn)))
        assert told[-1] == "skipped" or what in ("and computes with it", "in a map")


def test_an_index_that_is_refused_or_counts_from_the_end_is_left_to_python() -> None:
    g = func.grad(lambda w, i: (w[i] ** 2).sum())
    embedded = func.grad(lambda w, i: (nn.embedding(i, w) ** 2).sum())
    for turn in range(TURNS):
        g(TABLE, tokens(turn, 3))
        embedded(TABLE, tokens(turn, 3))
    assert last() == "skipped"
    expected = np.zeros_like(TABLE)
    expected[[5, 2, 0]] = 2 * TABLE[[5, 2, 0]]
    np.testing.assert_allclose(g(TABLE, np.array([-1, 2, 0])), expected)
    assert last() == "an index is negative, or out of bounds"
    with pytest.raises(IndexError, match="index 6 is out of bounds"):
        g(TABLE, np.array([1, 6, 0]))
    with pytest.raises(IndexError, match="index 4294967297 is out of bounds"):
        g(TABLE, np.array([1, 2**32 + 1, 0]))
    with pytest.raises(IndexError, match="do not count from the end"):
        embedded(TABLE, np.array([1, -1, 0]))
    g(TABLE, tokens(0, 3))
    assert last() == "skipped"


OF_LABELS: dict[str, Callable[[Any, Any], Any]] = {
    "cross_entropy": lambda x, y: nn.cross_entropy(x, y),
    "smooth": lambda x, y: nn.cross_entropy(x, y, label_smoothing=0.1, reduction="sum"),
    "weighted": lambda x, y: nn.cross_entropy(x, y, weight=np.arange(1.0, 9.0, dtype="f4")),
    "nll_loss": lambda x, y: nn.nll_loss(nn.log_softmax(x, -1), y, ignore_index=3),
    "multi_margin_loss": lambda x, y: (nn.multi_margin_loss(x, y) * 1.0).sum(),
    "one_hot": lambda x, y: -(nn.log_softmax(x, -1) * nn.one_hot(y, 8)).sum(-1).mean(),
}


@pytest.mark.parametrize("made", ["given", "closed over"])
@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_are_looked_at_in_each_call(name: str, made: str) -> None:
    rng = np.random.default_rng(0)
    loss, logits = OF_LABELS[name], rng.normal(size=(6, 8)).astype("f4")

    def slope(labels: np.ndarray) -> Any:
        if made == "given":
            return given(logits, labels)
        return func.grad(lambda x: loss(x, labels))(logits)

    given = func.grad(loss)
    told = both_ways(slope, lambda turn: ((np.arange(6) * turn) % 8,))
    # which compute besides with labels, or by them
    assert (told[-1] == "skipped") == (name not in ("multi_margin_loss", "weighted"))
    if name in ("cross_entropy", "weighted"):  # some of which do not count
        both_ways(slope, lambda turn: (np.where(np.arange(6) < turn % 5, -100, turn % 8),))
    with pytest.raises(ftrans.FtransError, match=r"there is no class 9|out of range"):
        slope(np.array([0, 1, 2, 3, 4, 9]))
    assert slope(np.arange(6)).shape == (6, 8)


def test_indices_are_held_against_python_where_all_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = func.grad(lambda w, i: (w[i[:, :-1]] * w[i[:, 1:]]).sum())
    for turn in range(TURNS):
        g(TABLE, tokens(turn, 2, 4))
    monkeypatch.setattr(ftrans.config, "check", True)
    before = g(TABLE, tokens(1, 2, 4))
    assert last() == "skipped"
    monkeypatch.setattr(ftrans.config, "skip_python", False)
    np.testing.assert_allclose(before, g(TABLE, tokens(1, 2, 4)))


def test_an_index_by_what_was_computed_is_left_to_python() -> None:
    for f in (
        lambda w, i: (w[i * 2] ** 2).sum(),
        lambda w, i: (w[np.where(i > 1, 0, i)] ** 2).sum(),
        lambda w, i: (w[np.sort(i)] ** 2).sum(),
    ):
        told = both_ways(func.grad(f), lambda turn: (TABLE, tokens(turn, 3, most=3)))
        assert told[-1] != "skipped"


BY_JAX: dict[str, tuple[Any, list[float]]] = {
    "rounds by integers": (round, [np.nan, 1e10]),
    "powers": (lambda y: y**0.5, [-np.inf, -0.0]),
    "flushes": (lambda y: y / 0, [1e-40, 1.0]),
    "of a constant": (lambda y: y * CONSTANT[:2], [1e-40, 1.0]),
}


@pytest.mark.parametrize("what", BY_JAX)
def test_what_jax_computes_of_plain_arguments_is_left_to_it(what: str) -> None:
    f, later = BY_JAX[what]
    container = np.array if what == "of a constant" else jnp.array
    g = func.grad(lambda w, y: (w * f(y)).sum())
    w = np.ones(2, "f4")
    told = both_ways(
        g, lambda turn: (w, container([1.5, 2.0] if turn < TURNS - 2 else later, dtype="float32"))
    )
    assert told[-1] != "skipped"


def test_numpy_computes_half_precision_of_plain_arguments_itself() -> None:
    g = func.grad(lambda w, y: (w * np.degrees(y)).sum())
    y = np.linspace(1.0, 900.0, 8).astype("float16")
    told = both_ways(g, lambda turn: (np.ones(8, "float16"), y))
    assert told[-1] != "skipped"


@pytest.mark.parametrize("container", [np.asarray, jnp.asarray])
def test_functions_of_arguments_beside_are_those_of_numpy(container: Any) -> None:
    g = func.grad(lambda x, y: (x * np.sin(np.float32(2) * y)).sum())
    # by NumPy itself, also where what is differentiated is of JAX's
    denormal = np.full(4, 1e-40, "f4")
    told = both_ways(
        g, lambda turn: (container(X[:4]), X[:4] + turn if turn < TURNS - 2 else denormal)
    )
    assert told[-1] == "skipped"
    mixed = func.grad(lambda x, y, z: (x * (y * z)).sum())
    told = both_ways(mixed, lambda turn: (X, X + turn, container(X)))
    assert (told[-1] == "skipped") == (container is np.asarray)


def made_anew(case: str, turn: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns a transformed function that was not there before, and its arguments."""
    x, y = X * (turn + 1), np.full(8, turn % 7, "f4")
    pair, table = {"a": y, "b": [x, 2.0]}, np.arange(24, dtype="f4").reshape(3, 8) + turn
    here = np.array([turn % 3, 0])
    scale = [float(turn)] if case == "a list of numbers" else [2.0]
    made: dict[str, Callable[..., Any]] = {
        "no closure": func.grad(lambda x: (x * x).sum()),
        "arrays": func.grad(lambda v: (v * x * y + np.sin(y)).sum()),
        "the same twice": func.grad(lambda v: (v * x + v * pair["b"][0]).sum()),
        "containers": func.grad(lambda v: (v * pair["a"] + pair["b"][0] * pair["b"][1] * v).sum()),
        "what it is given": func.grad(lambda v: (v * x).sum()),
        "an index": func.grad(lambda v: (v * table[1]).sum() + v[here].sum()),
        "jax": func.grad(lambda v: (v * constant * np.cos(v)).sum()),
        "helper": func.grad(lambda v: (helper(v) * chain(fnp, v * x)).sum()),
        "aux": func.grad(lambda v: ((v * x).sum(), (x, {"n": 3, "y": y * v})), has_aux=True),
        "value": func.value_and_grad(lambda v: (v * x).sum()),
        "vmap": func.vmap(func.grad(lambda v: (v**2 * y[0]).sum())),
        "vmap over another": func.vmap(lambda v: v * x * y[1]),
        "hessian": func.hessian(lambda v: (v**3 * y).sum()),
        "jacrev": func.jacrev(lambda v: np.sin(v) * x),
        "a list of numbers": func.grad(lambda v: (v * scale[0] * x).sum()),
        "a value that is asked for": func.grad(
            lambda v: (v * x).sum() if y[0] > 3 else (v * y).sum()
        ),
        "how many there are": func.grad(lambda v: (v * len(pair) * x.shape[0] * y.ndim).sum()),
        "by NumPy alone": func.grad(lambda v: (v * np.linalg.norm(x) * np.sort(y)[0]).sum()),
        "a function inside": func.grad(
            lambda v: sum((lambda w: w * y[i] * v[i])(2.0) for i in (0, 1))
        ),
    }
    constant = jnp.full(8, turn, "float32")
    args = (table,) if case.startswith("vmap") else (x,)
    return made[case], args


ANEW = {
    **dict.fromkeys(
        """no closure|arrays|the same twice|containers|what it is given|an index|jax|helper|aux
        value|vmap|vmap over another|hessian|jacrev|how many there are|a function inside""".replace(
            "\n        ", "|"
        ).split("|"),
        "skipped",
    ),
    "a list of numbers": "no two calls of it are alike",
    "a value that is asked for": "it asks for a value, or draws",
    "by NumPy alone": "it computes with an argument that is not traced",
}


@pytest.mark.parametrize("case", ANEW)
def test_functions_that_are_made_anew_are_known_by_their_code(case: str) -> None:
    told = []
    for turn in range(TURNS):
        transformed, args = made_anew(case, turn)
        result = transformed(*args)
        told.append(last())
        ftrans.config.skip_python = False
        expected = transformed(*args)
        ftrans.config.skip_python = True
        assert jax.tree.structure(result) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            assert type(a) is type(b)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert told[-1] == ANEW[case]


def test_what_functions_made_anew_do_besides_is_done_each_time() -> None:
    count, log, buffer = 0, [0], np.zeros(8, "f4")

    def counting(v: Any) -> Any:
        nonlocal count
        count += 1
        return (v * v).sum()

    def step(turn: int) -> None:
        scale = np.ones(8, "f4")

        def logging(v: Any) -> Any:
            log.append(turn)
            return (v * v).sum()

        def writing(v: Any) -> Any:
            scale[0] += 2.0
            return (v * scale).sum()

        def filling(v: Any) -> Any:
            buffer[0] += 1.0
            return v.sum()

        def counting_here(v: Any) -> Any:
            nonlocal turn
            turn += 1
            return (v * turn).sum()

        before = turn
        func.grad(logging)(X)
        func.grad(writing)(X)
        func.grad(filling)(X)
        func.grad(lambda v: counting(v) + v.sum())(X)
        assert func.grad(counting_here)(X)[0] == before + 1 == turn
        assert scale[0] == 3.0

    for turn in range(TURNS):
        step(turn)
    assert (count, len(log), buffer[0]) == (TURNS, TURNS + 1, TURNS)


def test_what_functions_made_anew_call_may_be_another() -> None:
    def step(inner: Callable[[Any], Any]) -> Any:
        return func.grad(lambda v: inner(v).sum())(X)

    for turn in range(2 * TURNS):
        inner = np.sin if turn < TURNS else (np.cos, np.tanh)[turn % 2]
        slopes = {np.sin: np.cos(X), np.cos: -np.sin(X), np.tanh: 1 / np.cosh(X) ** 2}
        np.testing.assert_allclose(step(inner), slopes[inner], rtol=1e-5, atol=1e-6)
    assert last() == "skipped"

    def outer(scale: float) -> Any:
        helper = lambda v: v * scale  # noqa: E731
        return func.grad(lambda v: helper(v).sum())(X)

    for turn in range(TURNS):
        assert outer(float(turn))[0] == turn


def test_codes_are_forgotten_with_all_else() -> None:
    for _ in range(TURNS):
        func.grad(lambda v: (v * v).sum())(X)
    assert last() == "skipped"
    ftrans.cache_clear()
    assert not anew.memos
    space: dict[str, Any] = {"np": np}
    for turn in range(anew._MOST + 5):  # as a cell of a notebook that is run again
        exec(f"def loss(v): return (v * {turn}).sum()", space)
        assert func.grad(space["loss"])(X)[0] == turn
    assert len(anew.memos) <= anew._MOST


def test_threads_may_make_functions_anew() -> None:
    def work(number: int) -> None:
        for turn in range(TURNS):
            y = np.full(8, number * 100 + turn, "f4")
            if func.grad(lambda v: (v * y).sum())(X)[0] != y[0]:  # noqa: B023
                wrong.append((number, turn))

    wrong: list[Any] = []
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_function_made_anew_reads_unseen_is_seen_by_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ftrans.config, "check", False)
    monkeypatch.setattr(proven.reader, "guards", lambda *_: _Blind())
    step = lambda: func.grad(lambda x: (x * LIST[0]).sum())(X)  # noqa: E731
    for _ in range(TURNS):
        step()
    monkeypatch.setitem(globals(), "LIST", [3.0])
    monkeypatch.setattr(ftrans.config, "check", True)
    with pytest.raises(ftrans.CheckError, match=r"grad\(lambda\): its function was not run"):
        step()


def test_containers_that_refer_to_each_other_are_left_alone() -> None:
    def step() -> Any:
        a: dict[str, Any] = {"n": [], "w": X}
        b: dict[str, Any] = {"n": [a], "up": a}
        a["n"] += [a, b]
        return func.grad(lambda v: (v * a["w"]).sum() * len(b["n"]))(X)

    for _ in range(TURNS):
        np.testing.assert_array_equal(step(), X)
    large = [[float(i)] * 3 for i in range(100_000)]
    for _ in range(TURNS):
        assert func.grad(lambda v: (v * large[3][2]).sum())(X)[0] == 3.0
    assert not any(
        len(str(key)) > 10_000 for _, known in anew.memos.values() for key in known.calls
    )


def test_containers_in_two_places_are_written_to_in_both() -> None:
    def swapped(v: Any, a: Any, b: Any) -> Any:
        kept, a["w"] = a["w"], v
        result = (b["w"] * v).sum()
        a["w"] = kept
        return result

    def step(turn: int) -> tuple[Any, Any]:
        a = {"w": X}
        b = a if turn >= 2 * proven._AFTER else {"w": X}
        return func.grad(lambda v: swapped(v, a, b))(X), func.grad(swapped)(X, a, b)

    for turn in range(TURNS):
        for found in step(turn):
            factor = 2.0 if turn >= 2 * proven._AFTER else 1.0
            np.testing.assert_array_equal(found, factor * X)

    def tied(turn: int) -> Any:
        layer, scale = {"w": X}, np.full(8, float(turn >= 20), "f4")
        net = [layer, layer]

        def loss(v: Any) -> Any:
            kept, net[0]["w"] = net[0]["w"], v
            result = (net[1]["w"] * v * scale).sum()
            net[0]["w"] = kept
            return result

        return func.grad(loss)(X)

    for turn in range(TURNS):
        np.testing.assert_array_equal(tied(turn), 2 * X * (turn >= 20))


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x.conj(),
        lambda x: x.T.conjugate(),
        lambda x: np.meshgrid(x, copy=False)[0],
        lambda x: np.meshgrid(x, x, sparse=True, copy=False)[1],
    ],
)
def test_writes_to_what_is_the_array_itself_stay_writes(alias: Callable[[Any], Any]) -> None:
    def step() -> tuple[Any, Any]:
        x = np.arange(8, dtype="f4")[::2]

        def loss(v: Any) -> Any:
            same = alias(x)
            same *= 2.0
            return (v * x).sum()

        return func.grad(loss)(np.ones(4, "f4")), x

    for _ in range(TURNS):
        gradient, x = step()
        np.testing.assert_array_equal(gradient, [0, 4, 8, 12])
        np.testing.assert_array_equal(x, gradient)


def test_what_is_closed_over_is_freed() -> None:
    def session() -> weakref.ref[Any]:
        big = jnp.ones(8)
        helper = lambda v: v * big[0]  # noqa: E731
        for _ in range(proven._AFTER + 4):
            func.grad(lambda v: helper(v).sum())(X)
        assert last() == "skipped"
        return weakref.ref(helper)

    helpers = [session() for _ in range(4)]
    gc.collect()
    assert not any(helper() for helper in helpers)


# ------------------------------------------------------------- functions that are written with JAX


def imports(factor: Any) -> Any:
    return ftrans.from_jax(lambda x: (jnp.sin(x) * factor).sum())


NAMED = ftrans.from_jax(types.ModuleType("of_jax"))


def by_name(x: Any) -> Any:
    return NAMED.curve(x).sum()


FACTORS = {
    "number": lambda: np.array(2.0),
    "wide": lambda: np.full(8, 2.0),
    "narrow": lambda: np.full(8, 2.0, "float32"),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", FACTORS)
def test_functions_of_jax_close_over_what_is_written_to(factor: str, dtype: str) -> None:
    array, x = FACTORS[factor](), X.astype(dtype)
    f = imports(array)

    def change(turn: int) -> None:
        if turn in (30, 40):
            array[...] += turn
            f(x)  # which JAX traces anew before the proof is looked at

    for transformed in (func.grad(f), func.grad(lambda x: f(x) * 2)):
        told = both_ways(transformed, lambda turn: (x,), change)
        assert told.count("skipped") > TURNS // 4


def test_names_of_namespaces_of_jax_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(turn: int) -> None:
        if turn == 30:
            monkeypatch.setattr(NAMED, "curve", ftrans.from_jax(jnp.cos))

    monkeypatch.setattr(NAMED, "curve", ftrans.from_jax(jnp.sin), raising=False)
    assert "skipped" in both_ways(func.grad(by_name), lambda i: (X,), change)


def test_functions_of_jax_are_traced_anew_where_it_is_told_otherwise() -> None:
    g = func.grad_and_value(ftrans.from_jax(lambda x: jnp.arange(3.0).sum() * x.sum()))
    for _ in range(TURNS):
        assert g(X)[1].dtype == np.float32
    assert last() == "skipped"
    with jax.enable_x64(True):
        assert g(X)[1].dtype == np.float64
    assert g(X)[1].dtype == np.float32


def test_functions_of_jax_that_ask_for_values_are_called_again() -> None:
    marks, calls = np.array([0, 1, 0, 1]), []

    def places(x: Any) -> Any:
        calls.append(None)
        return jnp.nonzero(x)[0]

    f = ftrans.from_jax(places)
    g = func.grad(lambda x: x[f(marks)].sum())
    for _ in range(TURNS):
        np.testing.assert_array_equal(g(X[:4]), marks)
    assert len(calls) >= TURNS
