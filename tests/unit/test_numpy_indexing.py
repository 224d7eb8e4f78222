"""Reading and writing at indices: NumPy's values, JAX's gradients, no silent aliasing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ConcretizationError, DTypeError, MutationError
from ftrans.numpy.indexing import At, at, getitem, setitem
from tests.helpers import assert_close
from tests.unit.front_end import assert_same, check_gradients, check_values, program_of, traced

quiet = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@st.composite
def indices(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple]:
    """Draws a shape and an index that fits it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    batch = draw(st.sampled_from([(), (2,), (1,), (3, 1), (2, 2), (0,)]))
    kinds = ["int", "slice", "slice", "new", "ellipsis", "array", "array", "mask", "list", "bool"]
    items: list = []
    axis = 0
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=6)):
        if kind == "new":
            items.append(None)
        elif kind == "bool":
            items.append(draw(st.booleans()))
        elif kind == "ellipsis" and not any(item is Ellipsis for item in items):
            items.append(Ellipsis)
            axis = min(len(shape), axis + draw(st.integers(0, 2)))
        if axis >= len(shape):
            continue
        n = shape[axis]
        if kind == "int" and n:
            items.append(draw(st.integers(-n, n - 1)))
            axis += 1
        elif kind == "slice":
            items.append(draw(st.slices(n)))
            axis += 1
        elif kind in ("array", "list") and n:
            size = draw(st.sampled_from([batch, (1,), ()]))
            array = draw(hnp.arrays(np.int64, size, elements=st.integers(-n, n - 1)))
            items.append(array.tolist() if kind == "list" else array)
            axis += 1
        elif kind == "mask":
            count = draw(st.integers(1, 2))
            if axis + count <= len(shape):
                items.append(draw(hnp.arrays(bool, shape[axis : axis + count])))
                axis += count
    return shape, tuple(items)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1.0).reshape(shape)


def by_numpy(x: np.ndarray, index: tuple) -> np.ndarray | None:
    """Returns what NumPy reads; None where the index does not fit after all."""
    masks = [item for item in index if isinstance(item, np.ndarray) and item.dtype == bool]
    if any(0 in mask.shape for mask in masks) and any(item is Ellipsis for item in index):
        return None  # NumPy lets an empty mask stand for an axis of any size
    try:
        return x[index]
    except IndexError:
        return None


def reads_what_numpy_reads(case: tuple) -> None:
    shape, index = case
    x = numbers(shape)
    expected = by_numpy(x, index)
    if expected is not None:
        assert_same(getitem(x, index), expected, f"{shape} {index}")


def reads_the_same_when_traced(case: tuple) -> None:
    shape, index = case
    x = numbers(shape)
    expected = by_numpy(x, index)
    if expected is not None:
        assert_same(traced(lambda x: x[index], x), expected, f"{shape} {index}")


def writes_what_numpy_writes(case: tuple) -> None:
    shape, index = case
    x = numbers(shape)
    expected = by_numpy(x, index)
    if expected is None:
        return
    values = np.arange(float(np.size(expected))).reshape(np.shape(expected)) - 3
    for value in (values, 2.0):
        y = x.copy()
        y[index] = value
        assert_same(At(x)[index].set(value), y, f"set {shape} {index}")
        for name, ufunc in (
            ("add", np.add),
            ("subtract", np.subtract),
            ("multiply", np.multiply),
            ("min", np.minimum),
            ("max", np.maximum),
        ):
            y = x.copy()
            ufunc.at(y, index, value)
            assert_same(getattr(At(x)[index], name)(value), y, f"{name} {shape} {index}")


LAWS = {
    "reading": (reads_what_numpy_reads, 200, 600),
    "reading traced": (reads_the_same_when_traced, 50, 150),
    "writing": (writes_what_numpy_writes, 80, 300),
}


@pytest.mark.parametrize("law", LAWS)
def test_indices_mean_what_they_mean_to_numpy(law: str) -> None:
    check, few, _ = LAWS[law]
    settings(quiet, max_examples=few)(given(indices())(check))()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_many_indices_mean_what_they_mean_to_numpy(law: str) -> None:
    check, _, many = LAWS[law]
    settings(quiet, max_examples=many)(given(indices())(check))()


@settings(quiet, max_examples=40)
@given(indices())
def test_gradients_of_reading_are_those_of_jax(case: tuple) -> None:
    shape, index = case
    x = numbers(shape)
    if by_numpy(x, index) is None:
        return
    arrays = tuple(np.asarray(i) if isinstance(i, list) and i != [] else i for i in index)
    arrays = tuple(np.zeros(0, int) if isinstance(i, list) else i for i in arrays)
    try:
        with jax.enable_x64(True):
            jax.eval_shape(lambda x: x[arrays], x)
    except (IndexError, TypeError, ValueError, NotImplementedError):
        return  # JAX takes less than NumPy does
    check_gradients(lambda x: x[index], lambda x: x[arrays], x, what=f"{shape} {index}")


WRITES = [
    ((3, 4), 1),
    ((3, 4), (slice(None), -1)),
    ((3, 4), (slice(None, None, -2), slice(1, 3))),
    ((5,), slice(None, None, 2)),
    ((3, 4), ...),
    ((3, 4), np.array([2, 0, 2])),
    ((3, 4, 2), (slice(1, None), np.array([[1], [3]]), np.array([0, 1]))),
    ((3, 4, 2), (np.array([0, 2]), slice(None, None, -1), 1)),
    ((2, 2), np.array([[True, False], [True, True]])),
    ((3, 4), (None, np.array([0, 1]), slice(2))),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "index"), WRITES)
@pytest.mark.parametrize("op", ["set", "add", "multiply", "min", "max", "divide", "subtract"])
def test_gradients_of_writing_are_those_of_jax(shape: tuple, index: object, op: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=shape)
    v = random.normal(size=x[index].shape) + 3
    if op == "set" and isinstance(index, np.ndarray) and index.dtype != bool:
        index = np.array([2, 0, 1])  # JAX does not say which of several updates is kept
    if op in ("multiply", "divide") and isinstance(index, np.ndarray) and index.dtype != bool:
        index = np.array([2, 0, 1])
    # JAX differentiates products only where it is told that no place is repeated
    unique = {"unique_indices": True} if op in ("multiply", "divide") else {}
    check_gradients(
        lambda x, v: getattr(x.at[index], op)(v),
        lambda x, v: getattr(x.at[index], op)(v, **unique),
        x,
        v,
        what=f"{op} {shape} {index}",
    )


def test_repeated_updates_are_all_applied() -> None:
    x, v = np.array([1.0, 2.0]), np.array([3.0, 5.0, 7.0])
    places = np.array([0, 0, 1])
    assert_same(At(x)[places].multiply(v), [15.0, 14.0])
    assert_same(At(x)[places].divide(v), [1 / 15, 2 / 7])
    _, pullback = func.vjp(lambda x, v: x.at[places].multiply(v), x, v)
    assert_same(pullback(np.ones(2)), ([15.0, 7.0], [5.0, 3.0, 2.0]))


# ------------------------------------------------------------------------------- traced indices


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_traced_index_counts_from_the_end(dtype: str) -> None:
    x = numbers((3, 4))
    place = np.asarray(2 if dtype.startswith("u") else -1, dtype)
    for function in (
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[i, 1:, None],
        lambda x, i: x[i, [0, 1]],
        lambda x, i: x.at[i, 1:].set(0.0),
    ):
        assert_same(traced(function, x, place), function(FakeArray(x), int(place)))


class FakeArray:
    """Gives a NumPy array the property `at`."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.at = at(array)

    def __getitem__(self, index: object) -> np.ndarray:
        return self.array[index]


@pytest.mark.parametrize("place", [3, -4, 2**40, -(2**40), 2**32])
def test_traced_index_out_of_bounds_reads_nan_and_writes_nothing(place: int) -> None:
    x, index = numbers((3,)), np.asarray(place)
    read, kept = traced(lambda x, i: (x[i], x.at[i].add(1.0)), x, index)
    assert np.isnan(read)
    assert_same(kept, x)
    assert_same(traced(lambda x, i: x.at[i].get(fill_value=7.0), x, index), 7.0)
    gradient = func.grad(lambda x: func.vmap(lambda i: x[i])(np.array([place])).sum())(x)
    assert_same(gradient, np.zeros(3))


@pytest.mark.parametrize("place", [7, -9, [0, 9, -1, -7], [[2], [4]]])
@pytest.mark.parametrize("mode", ["drop", "fill", "clip"])
def test_modes_say_what_is_done_out_of_bounds_as_in_jax(mode: str, place: Any) -> None:
    x, place = numbers((4, 5)), np.asarray(place)
    programs = (
        lambda x, i: x.at[:, i].get(mode="clip" if mode == "clip" else "fill", fill_value=2.5),
        lambda x, i: x.at[i].set(x[0, 1], mode=mode),
        lambda x, i: x.at[i, 1:].add(x[0, 1], mode=mode),
        lambda x, i: x.at[..., i].subtract(x[0, 1], mode=mode),
        lambda x, i: x.at[i, i].divide(2.0, mode=mode),
    )
    for f in programs:
        with jax.enable_x64(True):
            expected = np.asarray(f(jnp.asarray(x), place))
        assert_close(func.vmap(lambda x, f=f: f(x, place))(x[None])[0], expected)  # known places
        assert_close(traced(f, x, place)[0], expected)
        assert func.grad(lambda x, f=f: f(x, place).sum())(x).shape == x.shape
    with pytest.raises(ValueError, match="there is no mode 'wrap'"):
        traced(lambda x: x.at[0].get(mode="wrap"), x)


def test_index_arrays_can_be_mapped() -> None:
    x = numbers((3, 4))
    rows = np.array([[0, 2], [-1, 1]])
    assert_same(func.vmap(lambda i: getitem(x, i))(rows), x[rows])
    both = func.vmap(lambda i: at(x)[i].add(1.0))(rows)
    assert_same(both[0], at(x)[rows[0]].add(1.0))


def test_slice_with_traced_bounds_takes_their_values() -> None:
    x = numbers((5,))
    assert_same(traced(lambda x, i: x[i : i + 2], x, np.array(1)), x[1:3])
    with pytest.raises(ConcretizationError, match="slice"):
        func.vmap(lambda i: getitem(x, slice(i, None)))(np.arange(3))
    with pytest.raises(DTypeError) as caught:
        func.grad(lambda x: x[: x[1]].sum())(np.arange(3.0))
    assert str(caught.value) == (
        "Only an integer of rank zero can be an index or a size.\n  x: f64[]\n"
        "  Write int(x) to round a number toward zero."
    )


# ---------------------------------------------------------------------------------------- masks


def test_mask_of_a_traced_value() -> None:
    x = np.array([1.0, -2.0, 3.0])
    assert_same(func.grad(lambda x: (x[x > 0] ** 2).sum())(x), [2.0, 0.0, 6.0])
    with pytest.raises(ConcretizationError, match="boolean mask"):
        func.vmap(lambda x: x[x > 0])(x[None])


@pytest.mark.parametrize("op", ["set", "add", "multiply", "min", "max", "divide"])
def test_writing_one_value_where_a_mask_holds_can_be_mapped(op: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 2))
    mask = x[..., 0] > 0

    def write(x: object, mask: object, v: object) -> object:
        return getattr(x.at[mask], op)(v)

    for v in (np.array(0.5), np.array([0.5, 2.0])):
        mapped = func.vmap(write, in_dims=(0, 0, None))(x, mask, v)
        with jax.enable_x64(True):
            expected = jax.vmap(
                lambda x, mask, v=v: jax.numpy.where(
                    mask[:, None], {"set": lambda x, v: v + 0 * x}.get(op, _ops[op])(x, v), x
                )
            )(x, mask)
        assert_same(mapped, expected, op)


_ops = {
    "set": None,
    "add": jax.numpy.add,
    "multiply": jax.numpy.multiply,
    "min": jax.numpy.minimum,
    "max": jax.numpy.maximum,
    "divide": jax.numpy.divide,
}


# ------------------------------------------------------------------------------------- x[i] = v


def test_assignment_rebinds_every_name() -> None:
    def f(x: object) -> object:
        y = x * 1.0
        z = y
        before = y.sum()
        y[1] = 5.0
        y[2:] *= 2.0
        z[0] += 1.0
        return y, z, before

    x = np.array([1.0, 2.0, 3.0])
    y, z, before = traced(f, x)
    assert_same([y, z, before], ([2.0, 5.0, 6.0], [2.0, 5.0, 6.0], 6.0))


def test_assignment_to_an_argument_leaves_the_callers_array() -> None:
    x = np.array([1.0, 2.0])

    def f(x: object) -> object:
        x[0] = x[1] ** 2
        return x.sum()

    assert_same(func.grad(f)(x), [0.0, 5.0])
    assert_same(x, [1.0, 2.0])


def test_assignment_into_a_buffer_under_nested_transforms() -> None:
    def f(x: object) -> object:
        buffer = fnp.zeros(3, dtype="float64")
        buffer[0] = x
        buffer[1:] = x * x
        return buffer.sum()

    x = np.array([1.0, 2.0])
    assert_same(func.vmap(func.grad(f))(x), 1 + 4 * x)
    assert_same(func.grad(func.grad(f))(x[0]), 4.0)


def test_assignment_inside_does_not_reach_outer_captures() -> None:
    def f(x: object) -> object:
        y = x * 1.0

        def g(z: object) -> object:
            a = y.sum()
            w = y.copy()
            w[0] = z
            return a * z + w.sum()

        return func.grad(g)(y[1]) + y.sum()

    x = np.array([1.0, 2.0])
    assert_same(func.grad(f)(x), [2.0, 2.0])


def test_write_to_a_closed_over_value_is_seen_outside() -> None:
    def f(x: object) -> object:
        y = x * 1.0

        def g(z: object) -> object:
            y[0] = z
            return y.sum() * z

        return func.grad(g)(x[1]) + y.sum()

    for _ in range(3):
        assert_same(func.grad(f)(np.array([1.0, 2.0])), [0.0, 5.0])  # of (2 x + x) + (x + x)


def test_write_after_a_pullback_was_made_does_not_reach_it() -> None:
    def f(x: object) -> object:
        y = x * 1.0
        _, pullback = func.vjp(lambda z: (z * y).sum(), x)
        y[0] = 100.0
        return pullback(np.float64(1.0))[0].sum()

    assert_same(func.grad(f)(np.array([1.0, 2.0])), [1.0, 1.0])


VIEWS = {
    "slice": lambda x: x[1:],
    "row": lambda x: x[0],
    "new axis": lambda x: x[None],
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.T,
    "chain": lambda x: x[1:][:, ::-1].T,
    "split": lambda x: np.split(x, 2)[0],
    "flip": lambda x: np.flip(x, 0),
    "einsum": lambda x: np.einsum("ij->ji", x),
}


@pytest.mark.parametrize("take", VIEWS.values(), ids=VIEWS)
def test_writing_to_a_view_or_to_what_has_one(take: object) -> None:
    def to_view(x: object) -> object:
        x = x * 1.0
        y = take(x)
        y[0] = 0.5
        y *= y
        return (x**3).sum()

    def to_base(x: object) -> object:
        x = x * 1.0
        y = take(x)
        x[0] *= x[1]
        return (y**3).sum()

    x = numbers((2, 3))
    for f in (to_view, to_base):
        step = 1e-6 * np.eye(6).reshape(6, 2, 3)
        slopes = [(f(x + s) - f(x - s)) / 2e-6 for s in step]
        for _ in range(3):
            gradient, value = func.grad_and_value(f)(x)
            assert_same(value, f(x))
            np.testing.assert_allclose(gradient.ravel(), slopes, rtol=1e-6, atol=1e-8)


COPIES = {
    "copy": lambda x: x[1:].copy(),
    "of an expression": lambda x: (x * 2.0)[1:],
    "array": lambda x: x[np.array([0, 1])],
    "mask": lambda x: x[np.array([True, True])],
    "concatenate": lambda x: fnp.concatenate([x]),
    "roll": lambda x: fnp.roll(x, 0),
    "pad": lambda x: fnp.pad(x, 0),
    "tile": lambda x: fnp.tile(x, 1),
    "repeat": lambda x: fnp.repeat(x, 1, 0),
    "at": lambda x: x.at[:0].set(1.0),
    "get": lambda x: x.at[:].get(),
}


@pytest.mark.parametrize("take", COPIES.values(), ids=COPIES)
def test_writing_to_a_copy_leaves_the_original(take: object) -> None:
    def f(x: object) -> object:
        y = take(x)
        y[0] = 9.0
        return x

    x = numbers((2, 3))
    assert_same(traced(f, x), x)


def test_view_that_is_gone_does_not_hinder() -> None:
    def f(x: object) -> object:
        total = x[1:].sum()
        x[0] = total
        x[1:] += 1.0
        return x

    assert_same(traced(f, np.array([1.0, 2.0, 3.0])), [5.0, 3.0, 4.0])


# --------------------------------------------------------------------------------------- errors


def test_errors_name_index_and_type() -> None:
    x = numbers((3, 4))
    for index, text in [
        (3, "x[...]: index 3 is out of bounds.\n  x: axis 0 of f64[3,4] has size 3"),
        ((0, np.array([0, -5])), "x[...]: index -5 is out of bounds.\n  x: axis 1 of f64[3,4]"),
        ((0, 0, 0), "x[...]: too many indices.\n  x: f64[3,4] has 2 axes\n  the index takes 3"),
        (np.array([True]), "x[mask]: the mask does not fit.\n  axis 0 of x: f64[3,4] has size 3"),
        (([0, 1], [0, 1, 2]), "x[...]: index arrays do not broadcast."),
        ((..., ...), "x[...]: an index can hold one Ellipsis only."),
        ("a", "x[...]: only whole numbers, slices, None, ... and arrays of integers"),
        (1.5, "x[...]: only whole numbers, slices, None, ... and arrays of integers"),
    ]:
        with pytest.raises(IndexError) as caught:
            getitem(x, index)
        assert str(caught.value).startswith(text)


def test_values_that_do_not_fit_are_refused() -> None:
    x = np.zeros(3, "float32")
    with pytest.raises(DTypeError, match="cannot be converted"):
        at(x)[0].set(1j)
    with pytest.raises(DTypeError, match="cannot be converted"):
        at(np.zeros(3, int))[0].add(0.5)
    with pytest.raises(OverflowError):
        at(np.zeros(3, "uint8"))[0].set(300)
    with pytest.raises(ValueError, match="does not broadcast to what it is written to"):
        at(x)[:2].set(np.zeros(3, "float32"))
    assert_same(at(np.zeros(3, int))[0].set(2.7), np.array([2, 0, 0]))
    assert at(x)[0].set(np.float64(2)).dtype == np.float32


def test_assignment_to_what_is_not_traced() -> None:
    with pytest.raises(MutationError, match=r"Write x = ftrans.numpy.at\(x\)"):
        func.grad(lambda x: setitem(np.zeros(2), 0, x))(1.0)


def test_basic_indexing_is_one_or_two_equations() -> None:
    x = numbers((3, 4))
    program, _ = program_of(lambda x: x[1:, ::2], x)
    assert [e.primitive.name for e in program.equations] == ["slice"]
    program, _ = program_of(lambda x: x[0], x)
    assert [e.primitive.name for e in program.equations] == ["slice", "reshape"]
    program, _ = program_of(lambda x: x[np.array([0, 1])], x)
    assert [e.primitive.name for e in program.equations] == ["gather"]


def test_functions_on_plain_arrays() -> None:
    x = numbers((2, 3))
    check_values(lambda x: at(x)[0, 1:].add(1.0), x + np.eye(2)[:, [1, 0, 0]] * [[1], [0]], x)
    y = x.copy()
    setitem(y, 0, 0.0)
    assert_same(y[0], np.zeros(3))
