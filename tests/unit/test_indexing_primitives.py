from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from ftrans.errors import AxisError, DTypeError, ShapeError
from ftrans.interpreters import batch, jvp, simplify
from ftrans.ir import ArrayType, check
from ftrans.primitives import (
    dynamic_slice_p,
    dynamic_update_slice_p,
    gather_p,
    mul_p,
    scalar,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    sort_p,
)
from ftrans.primitives.evaluate import evaluate
from tests.helpers import sampled_rows
from tests.unit.transforming import (
    assert_close,
    backward,
    check_batches,
    check_derivatives,
    directional,
    forward,
    like,
    program_of,
    run,
)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def i32(*values: Any) -> np.ndarray:
    return np.array(*values, np.int32)


# ------------------------------------------------------------- where index tuples may point to

PLACES = {
    "rows": ((3, 2), i32([[2], [0], [1]])),
    "rows, one twice": ((3, 2), i32([[2], [0], [2], [2]])),
    "elements": ((2, 3), i32([[[0, 1], [1, 0]], [[1, 2], [1, 0]]])),
    "out of bounds": ((2, 3), i32([[0, 3], [-1, 0], [1, 1], [2, 2], [1, 1]])),
    "one tuple": ((3, 2), i32([1])),
    "one tuple outside": ((3,), i32([3])),
    "empty tuples": ((2,), np.zeros((3, 0), np.int32)),
    "one empty tuple": ((2,), np.zeros((0,), np.int32)),
    "no tuples": ((3, 2), np.zeros((0, 1), np.int32)),
    "nowhere to go": ((0, 2), i32([[0], [1]])),
    "empty window": ((3, 0), i32([[1], [1]])),
    "a small dtype": ((3, 2), np.array([[1], [200], [1]], np.uint8)),
    "a wide dtype": ((3, 2), np.array([[1], [2**40], [-1]], np.int64)),
}


def is_inside(index: np.ndarray, shape: tuple[int, ...]) -> bool:
    return all(0 <= int(i) < n for i, n in zip(index, shape, strict=False))


def gather_by_loop(fill: float) -> Callable[..., Any]:
    """Returns gathering written as a Python loop over index tuples."""

    def gather(x, indices):
        indices = np.asarray(indices)
        k = indices.shape[-1]
        rows = [
            x[tuple(index)] if is_inside(index, x.shape) else jnp.full(x.shape[k:], fill)
            for index in indices.reshape(int(np.prod(indices.shape[:-1])), k)
        ]
        shape = indices.shape[:-1] + x.shape[k:]
        return jnp.stack(rows).reshape(shape) if rows else jnp.zeros(shape, x.dtype)

    return gather


def scatter_by_loop(method: str) -> Callable[..., Any]:
    """Returns scattering written as a Python loop over index tuples, one update at a time."""

    def scatter(x, indices, updates):
        indices = np.asarray(indices)
        k = indices.shape[-1]
        flat = indices.reshape(int(np.prod(indices.shape[:-1])), k)
        for index, update in zip(flat, updates.reshape(len(flat), *x.shape[k:]), strict=True):
            if is_inside(index, x.shape):
                x = getattr(x.at[tuple(index)], method)(update)
        return x

    return scatter


def updates_for(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return draw(*indices.shape[:-1], *x.shape[indices.shape[-1] :], seed=3)


# ------------------------------------------------------------------------------------- gather


@pytest.mark.parametrize("name", PLACES)
def test_gather(name: str) -> None:
    shape, indices = PLACES[name]
    check_derivatives(
        lambda x, i: gather_p(x, i, in_bounds=False, fill=0),
        gather_by_loop(0.0),
        draw(*shape),
        indices,
    )


@pytest.mark.parametrize("name", ["rows", "elements", "one tuple", "empty tuples", "out of bounds"])
def test_gather_is_batched(name: str) -> None:
    shape, indices = PLACES[name]
    check_batches(
        lambda x, i: gather_p(x, i, in_bounds=False, fill=0), draw(*shape), indices, high=4
    )


def test_gather_of_more_examples_than_the_index_dtype_counts() -> None:
    indices = np.array([[1], [0]], np.int8)
    program = program_of(lambda x, i: gather_p(x, i, in_bounds=True), [draw(2), indices])
    mapped, _ = batch(program, 300, (0, 0))
    x, many = draw(300, 2), np.broadcast_to(indices, (300, 2, 1))
    (found,) = run(mapped, [x, many])
    assert_close(found, x[:, ::-1])


@pytest.mark.parametrize(
    ("dtype", "missing"),
    [
        ("float32", np.nan),
        ("bfloat16", np.nan),
        ("complex128", np.nan),
        ("int16", -(2**15)),
        ("uint8", 255),
        ("bool", True),
    ],
)
def test_gather_reads_nan_or_the_limit_out_of_bounds(dtype: str, missing: Any) -> None:
    x = np.array([0, 1]).astype(jnp.dtype(dtype))
    indices = i32([[1], [2], [-1]])
    program = program_of(lambda x, i: gather_p(x, i, in_bounds=False), [x, indices])
    (found,) = evaluate(np, program, [x, indices])
    assert found.dtype == x.dtype
    with jax.enable_x64(True):
        (on_jax,) = evaluate(jnp, program, [x, indices])
        expected = jnp.asarray(x).at[np.array([1, 2, 2])].get(mode="fill")
    wide = "complex128" if found.dtype.kind == "c" else "float64"
    for values in (found, on_jax):
        np.testing.assert_array_equal(
            np.asarray(values).astype(wide), np.asarray(expected).astype(wide)
        )
    np.testing.assert_array_equal(found[1:].astype(wide).real, np.array([missing] * 2, float))


def test_what_is_read_out_of_bounds_has_no_gradient() -> None:
    x, indices = draw(2), i32([[1], [2], [-1]])
    program = program_of(lambda x, i: gather_p(x, i, in_bounds=False), [x, indices])
    _, dot = forward(program, [x, indices], [np.ones(2), None])
    np.testing.assert_array_equal(dot, [1.0, 0.0, 0.0])
    (gradient,) = backward(program, [x, indices], [True, False], [np.ones(3)])
    np.testing.assert_array_equal(gradient, [0.0, 1.0])


def test_gather_takes_a_fill_of_its_own() -> None:
    x, indices = draw(2), i32([[1], [2]])
    (found,) = run(
        program_of(lambda x, i: gather_p(x, i, in_bounds=False, fill=-1.5), [x, indices]),
        [x, indices],
    )
    np.testing.assert_array_equal(found, [x[1], -1.5])


def test_gather_names_what_does_not_fit() -> None:
    x = ArrayType((2, 3), "float32")
    with pytest.raises(ShapeError) as error:
        gather_p.infer(x, ArrayType((4, 3), "int32"), in_bounds=True)
    assert str(error.value) == (
        "gather: the last axis of the indices holds one index for each leading axis of the "
        "operand.\n  operand: f32[2,3]\n  indices: i32[4,3]"
    )
    with pytest.raises(DTypeError, match=r"indices: f32\[2,3\]"):
        gather_p.infer(x, x, in_bounds=True)


# ------------------------------------------------------------------------------------ scatter

SCATTERS = {
    "set": scatter_p,
    "add": scatter_add_p,
    "multiply": scatter_mul_p,
    "min": scatter_min_p,
    "max": scatter_max_p,
}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), sampled_rows(product(SCATTERS, PLACES), 2))
def test_scatter(method: str, name: str) -> None:
    shape, indices = PLACES[name]
    x = draw(*shape)
    check_derivatives(
        lambda x, i, u: SCATTERS[method](x, i, u, in_bounds=False),
        scatter_by_loop(method),
        x,
        indices,
        updates_for(x, indices),
    )


@pytest.mark.parametrize("name", ["rows", "one tuple", "out of bounds"])
@pytest.mark.parametrize("method", SCATTERS)
def test_scatter_is_batched(method: str, name: str) -> None:
    shape, indices = PLACES[name]
    x = draw(*shape)
    check_batches(
        lambda x, i, u: SCATTERS[method](x, i, u, in_bounds=False),
        x,
        indices,
        updates_for(x, indices),
        high=3,
    )


@pytest.mark.parametrize("method", SCATTERS)
def test_the_gradient_of_a_scatter_is_batched(method: str) -> None:
    x, indices = draw(3, 2), i32([[2], [0], [2]])
    updates = updates_for(x, indices)

    def tangent(x, i, u):
        primitive = SCATTERS[method]
        program = program_of(lambda x, i, u: primitive(x, i, u, in_bounds=True), [x, i, u])
        return forward(program, [x, i, u], [np.ones_like(x), None, np.ones_like(u)])[1]

    program = program_of(
        lambda x, i, u: SCATTERS[method](x, i, u, in_bounds=True), [x, indices, updates]
    )
    pushed, _ = jvp(program, (True, False, True))
    size, many = (
        3,
        [
            draw(3, 3, 2),
            i32([[[2], [0], [2]], [[1], [1], [1]], [[0], [2], [1]]]),
            draw(3, 3, 2, seed=5),
        ],
    )
    mapped, _ = batch(pushed, size, (0, 0, 0, 0, 0))
    _, found = run(check(mapped), [*many, np.ones_like(many[0]), np.ones_like(many[2])])
    for i in range(size):
        assert_close(found[i], tangent(*(array[i] for array in many)))


@pytest.mark.parametrize("method", SCATTERS)
def test_scatter_promised_to_be_unique(method: str) -> None:
    x, indices = draw(4, 2), i32([[2], [0], [3]])
    updates = updates_for(x, indices)
    arrays = [x, indices, updates]
    one, other = (
        program_of(lambda x, i, u, p=p: SCATTERS[method](x, i, u, in_bounds=True, **p), arrays)
        for p in ({"unique": True}, {})
    )
    tangents = [draw(4, 2, seed=7), None, draw(3, 2, seed=8)]
    for ours, theirs in zip(
        forward(one, arrays, tangents), forward(other, arrays, tangents), strict=True
    ):
        assert_close(ours, theirs)
    cotangents = [draw(4, 2, seed=9)]
    active = [True, False, True]
    for ours, theirs in zip(
        backward(one, arrays, active, cotangents),
        backward(other, arrays, active, cotangents),
        strict=True,
    ):
        assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("method", "dtypes"),
    [
        ("set", "bool int8 uint16 float16 bfloat16 complex64"),
        ("add", "int8 uint16 float16 bfloat16 complex64"),
        ("multiply", "int8 uint16 float16 bfloat16 complex64"),
        ("min", "bool int8 uint16 float16 bfloat16"),
        ("max", "bool int8 uint16 float16 bfloat16"),
    ],
)
def test_scatter_in_every_dtype(method: str, dtypes: str) -> None:
    for dtype in map(jnp.dtype, dtypes.split()):
        x, updates = (np.array(v).astype(dtype) for v in ([1, 2, 0], [3, 0, 1, 2]))
        indices = i32([[2], [0], [2], [5]])
        expected = [complex(v).real for v in x]
        for (i,), u in zip(indices, updates, strict=True):
            if i < 3:
                combine = {
                    "set": lambda a, b: b,
                    "add": lambda a, b: a + b,
                    "multiply": lambda a, b: a * b,
                    "min": min,
                    "max": max,
                }[method]
                expected[i] = combine(expected[i], complex(u).real)
        for xp in (np, jnp):
            found = SCATTERS[method].lower(xp, x, indices, updates, in_bounds=False)
            assert found.dtype == dtype
            np.testing.assert_array_equal(np.asarray(found).astype(np.complex128), expected)


@pytest.mark.parametrize("method", SCATTERS)
def test_scatter_does_not_write_to_its_operand(method: str) -> None:
    x = np.ones(3)
    SCATTERS[method].lower(np, x, i32([[1]]), np.array([5.0]), in_bounds=True)
    np.testing.assert_array_equal(x, 1.0)


def test_scatter_mul_is_right_where_factors_are_zero() -> None:
    # two zeros, one zero and none at three places, and a zero in the operand
    indices = i32([[0], [1], [0], [1], [2], [0], [2], [3], [3]])
    x = np.array([2.0, 3.0, 0.5, 0.0])
    updates = np.array([0.0, 0.0, 0.0, 1.5, 2.0, 3.0, -1.0, 2.0, 4.0])
    oracle = scatter_by_loop("multiply")

    def ours(x, i, u):
        return scatter_mul_p(x, i, u, in_bounds=True)

    check_derivatives(ours, oracle, x, indices, updates)
    # and when it is differentiated again
    program = program_of(ours, [x, indices, updates])
    pushed, _ = jvp(program, (True, False, True))
    dots = draw(4, seed=1), draw(9, seed=2)
    more = [draw(4, seed=3), None, draw(9, seed=4), draw(4, seed=5), draw(9, seed=6)]
    found = forward(pushed, [x, indices, updates, *dots], more)

    def tangent(x, u, tx, tu):
        return jax.jvp(lambda x, u: oracle(x, indices, u), (x, u), (tx, tu))

    with jax.enable_x64(True):
        _, expected = jax.jvp(tangent, (x, updates, *dots), tuple(t for t in more if t is not None))
    for a, b in zip(found[2:], expected, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("primitive", [scatter_min_p, scatter_max_p])
def test_ties_share_the_tangent_evenly(primitive: Any) -> None:
    sign = 1 if primitive is scatter_max_p else -1
    x, indices = sign * np.array([5.0, 1.0, 4.0]), i32([[0], [0], [2], [2], [0], [1], [1]])
    updates = sign * np.array([5.0, 5.0, 4.0, 3.0, 0.0, 2.0, 2.0])
    program = program_of(lambda x, i, u: primitive(x, i, u, in_bounds=True), [x, indices, updates])
    ct_x, ct_u = backward(program, [x, indices, updates], [True, False, True], [np.ones(3)])
    # the mean of the one-sided derivatives in every ordering of the tied values
    np.testing.assert_allclose(ct_x, [1 / 3, 0, 1 / 2])
    np.testing.assert_allclose(ct_u, [1 / 3, 1 / 3, 1 / 2, 0, 0, 1 / 2, 1 / 2])


def test_of_several_updates_the_last_one_is_set_and_has_the_gradient() -> None:
    x, indices = draw(300), np.zeros((1000, 1), np.int32)
    indices[500:] = 7
    updates = draw(1000)
    program = program_of(lambda x, i, u: scatter_p(x, i, u, in_bounds=True), [x, indices, updates])
    (found,) = run(program, [x, indices, updates])
    assert found[0] == updates[499]
    assert found[7] == updates[-1]
    _, ct = backward(program, [x, indices, updates], [True, False, True], [np.ones(300)])
    assert np.flatnonzero(ct).tolist() == [499, 999]


def test_setting_by_the_road_of_other_platforms() -> None:
    from ftrans.primitives import scatter

    taken = []
    original = lax.platform_dependent

    def elsewhere(*operands, default, **_):
        taken.append(default)
        return default(*operands)

    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(lax, "platform_dependent", elsewhere)
        for name in ("rows, one twice", "elements", "out of bounds", "empty tuples"):
            shape, indices = PLACES[name]
            x = draw(*shape)
            updates = updates_for(x, indices)
            params = {"in_bounds": False}
            assert_close(
                scatter.scatter_p.lower(jnp, x, indices, updates, **params),
                scatter.scatter_p.lower(np, x, indices, updates, **params),
            )
    assert len(taken) == 4
    assert lax.platform_dependent is original


def test_scatter_into_an_array_in_the_order_of_fortran() -> None:
    x = np.asfortranarray(draw(3, 2))
    found = scatter_add_p.lower(np, x, i32([[1], [1]]), np.ones((2, 2)), in_bounds=True)
    np.testing.assert_array_equal(found, x + np.array([[0.0], [2.0], [0.0]]))


def test_scatter_names_what_does_not_fit() -> None:
    x, i = ArrayType((2, 3), "float32"), ArrayType((4, 1), "int32")
    with pytest.raises(ShapeError) as error:
        scatter_add_p.infer(x, i, ArrayType((4, 2), "float32"), in_bounds=True)
    assert str(error.value) == (
        "scatter_add: the updates do not have the shape (4, 3) of what they replace.\n"
        "  operand: f32[2,3]\n  indices: i32[4,1]\n  updates: f32[4,2]"
    )
    with pytest.raises(DTypeError, match=r"updates: f64\[4,3\]"):
        scatter_p.infer(x, i, ArrayType((4, 3), "float64"), in_bounds=True)


# ----------------------------------------------------------------------------- dynamic slices

WINDOWS = {
    "inside": ((5, 3), (1, 0), (2, 2)),
    "clamped": ((5, 3), (9, -2), (3, 2)),
    "one whole axis": ((5, 3), (2, 1), (2, 3)),
    "everything": ((2, 3), (1, 1), (2, 3)),
    "nothing": ((4,), (2,), (0,)),
    "scalar": ((), (), ()),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_dynamic_slice(name: str) -> None:
    shape, starts, sizes = WINDOWS[name]
    operands = [draw(*shape), *map(i32, starts)]

    def ours(x, *starts):
        return dynamic_slice_p(x, *starts, sizes=sizes)

    check_derivatives(
        ours,
        lambda x, *s: lax.dynamic_slice(x, s, sizes, allow_negative_indices=False),
        *operands,
    )
    check_batches(ours, *operands, high=7)


@pytest.mark.parametrize("name", WINDOWS)
def test_dynamic_update_slice(name: str) -> None:
    shape, starts, sizes = WINDOWS[name]
    operands = [draw(*shape), draw(*sizes, seed=1), *map(i32, starts)]
    check_derivatives(
        dynamic_update_slice_p,
        lambda x, u, *s: lax.dynamic_update_slice(x, u, s, allow_negative_indices=False),
        *operands,
    )
    if len(shape) < 2 or name == "clamped":
        check_batches(dynamic_update_slice_p, *operands, high=7)


def test_the_gradient_of_a_slice_at_mapped_starts() -> None:
    x, starts = draw(5, 3), i32([0, 4, 2])
    program = program_of(
        lambda x, a: dynamic_slice_p(mul_p(x, x), a, scalar(1, np.int32), sizes=(2, 2)),
        [x, starts[0]],
    )
    mapped, _ = batch(program, 3, (None, 0))
    ct = draw(3, 2, 2, seed=4)
    (found,) = backward(mapped, [x, starts], [True, False], [ct])
    with jax.enable_x64(True):
        _, pull = jax.vjp(
            lambda x: jax.vmap(lambda a: lax.dynamic_slice(x * x, (a, jnp.int32(1)), (2, 2)))(
                starts
            ),
            x,
        )
        (expected,) = pull(ct)
    assert_close(found, expected)


def test_a_slice_at_known_starts_is_a_plain_slice() -> None:
    x = draw(5, 3)
    program = program_of(lambda x: _slice_at(x, 7, -1), [x])
    shorter = simplify(program)
    assert [e.primitive.name for e in shorter.equations] == ["slice"]
    assert_close(run(shorter, [x])[0], run(program, [x])[0])


def _slice_at(x: Any, *starts: int) -> Any:
    return dynamic_slice_p(x, *(scalar(a, np.int32) for a in starts), sizes=(2, 2))


def test_dynamic_slice_names_what_does_not_fit() -> None:
    x, a = ArrayType((5,), "float32"), ArrayType((), "int32")
    with pytest.raises(ShapeError) as error:
        dynamic_slice_p.infer(x, a, sizes=(6,))
    assert str(error.value) == (
        "dynamic_slice: a window of shape (6,) does not fit the operand.\n  operand: f32[5]"
    )
    with pytest.raises(ShapeError, match=r"starts: i32\[\], i32\[\]"):
        dynamic_slice_p.infer(x, a, a, sizes=(2,))
    with pytest.raises(ShapeError, match=r"update: f64\[2\]"):
        dynamic_update_slice_p.infer(x, ArrayType((2,), "float64"), a)


# --------------------------------------------------------------------------------------- sort


@pytest.mark.parametrize("axis", [0, 1])
def test_sort(axis: int) -> None:
    ties = i32([[2, 0, 2], [1, 0, 2]])
    x, y = draw(2, 3), draw(2, 3, seed=1)

    def ours(*operands):
        return sort_p(*operands, axis=axis, keys=2)

    def oracle(*operands):
        return lax.sort(operands, dimension=axis, is_stable=True, num_keys=2)

    check_derivatives(ours, oracle, ties, x, y)
    check_batches(ours, ties, x, y, high=2)


def test_sort_differentiated_twice() -> None:
    x, y = draw(6), draw(6, seed=1)
    program = program_of(lambda x, y: sort_p(mul_p(x, x), mul_p(x, y), axis=0, keys=1), [x, y])
    pushed, _ = jvp(program, (True, True))
    tangents = like([x, y, x, y], 3)
    found = forward(pushed, [x, y, *tangents[:2]], tangents)
    expected = directional(pushed, [x, y, *tangents[:2]], tangents)
    for a, b in zip(found[4:], expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "float64", "complex64"]
)
def test_sort_is_stable_in_every_dtype(dtype: str) -> None:
    dtype = jnp.dtype(dtype)
    values = [3.0, 0.0, 1.0, -0.0, 3.0, 1.0, 0.0]
    if dtype.kind not in "biu":
        values += [np.nan, np.inf, -np.inf, np.nan, -np.nan, 2.0]
    x = np.array(values).astype(dtype)
    if dtype.kind == "c":
        x = x + 1j * np.array([1, 0, np.nan, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0]).astype("float32")
    place = np.arange(len(x), dtype=np.int32)
    with np.errstate(all="ignore"):
        _, found = sort_p.lower(np, x, place, axis=0, keys=1)
    _, expected = sort_p.lower(jnp, x, place, axis=0, keys=1)
    np.testing.assert_array_equal(found, expected)
    if dtype.kind in "biuf" and dtype.name != "bfloat16":
        np.testing.assert_array_equal(found, np.argsort(x, kind="stable"))


def test_sort_names_what_does_not_fit() -> None:
    x = ArrayType((2, 3), "float32")
    with pytest.raises(AxisError, match=r"no axis 2.\n  operands: f32\[2,3\]"):
        sort_p.infer(x, axis=2, keys=1)
    with pytest.raises(ShapeError, match=r"f32\[2,3\], f32\[2\]"):
        sort_p.infer(x, ArrayType((2,), "float32"), axis=0, keys=1)
    with pytest.raises(ShapeError, match="2 keys of 1 operands"):
        sort_p.infer(x, axis=0, keys=2)


# -------------------------------------------------------------------------- all, once more


def test_batched_forms_agree_with_vmap_of_jax() -> None:
    x, indices, updates = draw(2, 3, 2), i32([[[0], [2]], [[1], [1]]]), draw(2, 2, 2, seed=1)
    for method, dims in product(SCATTERS, [(0, 0, 0), (None, 0, None), (0, None, 0)]):
        arrays = [
            a[0] if dim is None else a for a, dim in zip((x, indices, updates), dims, strict=True)
        ]
        single = [a if dim is None else a[0] for a, dim in zip(arrays, dims, strict=True)]
        program = program_of(lambda x, i, u, m=method: SCATTERS[m](x, i, u, in_bounds=True), single)
        mapped, _ = batch(program, 2, dims)
        with jax.enable_x64(True):
            expected = jax.vmap(
                lambda x, i, u, m=method: getattr(jnp.asarray(x).at[i[..., 0]], m)(u), dims
            )(*arrays)
        assert_close(run(mapped, arrays)[0], expected)
