"""Bits and keys are those of `jax.random`, on both roads; what is no key is refused."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import errors, func, random
from ftrans.primitives import threefry_p

SEEDS = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**40 + 5, -(2**40), 2**63 - 1]


@pytest.fixture(params=["interpret", "compile"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ftrans.config, "execution", request.param)
    return request.param


def words(key: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_key_of_a_seed(seed: int, wide: bool) -> None:
    with jax.enable_x64(wide):
        assert np.array_equal(random.key(seed), words(jax.random.key(seed)))
        number = np.int64(seed)
        assert np.array_equal(random.key(number), words(jax.random.key(number)))
        assert np.array_equal(func.vmap(random.key)(number[None])[0], random.key(number))


@pytest.mark.parametrize("wide", [False, True])
def test_the_key_of_numbers_of_other_kinds(wide: bool) -> None:
    with jax.enable_x64(wide):
        for seed in (np.int8(-1), np.uint32(7), np.uint64(2**64 - 1), True, np.array(-3)):
            assert np.array_equal(random.key(seed), words(jax.random.key(seed)))
        traced = ftrans.jit(random.key)(np.int32(-5))
        assert np.array_equal(traced, words(jax.random.key(np.int32(-5))))


def test_bits(road: str) -> None:
    for dtype in ("uint8", "uint32", "uint64"):
        for shape in ((), (0, 2), (3, 5)):
            found = random.bits(random.key(3), shape, dtype)
            with jax.enable_x64(True):
                wanted = np.asarray(jax.random.bits(jax.random.key(3), shape, dtype))
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("partitionable", [False, True])
def test_both_ways_of_jax_to_count(partitionable: bool, road: str) -> None:
    with jax.threefry_partitionable(partitionable):
        theirs = jax.random.key(3)
        assert np.array_equal(random.bits(random.key(3), (7,)), jax.random.bits(theirs, (7,)))
        assert np.array_equal(random.split(random.key(3), 3), words(jax.random.split(theirs, 3)))


def test_keys_of_keys(road: str) -> None:
    key, theirs = random.key(7), jax.random.key(7)
    for num in (2, 5, (2, 3), 0):
        assert np.array_equal(random.split(key, num), words(jax.random.split(theirs, num)))
    for n in (0, 1, 2**32 - 1):
        assert np.array_equal(
            random.fold_in(key, n), words(jax.random.fold_in(theirs, np.uint32(n)))
        )
    assert np.array_equal(random.fold_in(key, -1), random.fold_in(key, 2**32 - 1))
    assert np.array_equal(random.PRNGKey(7), jax.random.PRNGKey(7))


def test_keys_go_both_ways() -> None:
    ours = random.split(random.key(5))[0]
    theirs = jax.random.wrap_key_data(jnp.asarray(ours))
    drawn = np.asarray(jax.random.normal(theirs, (3,)))
    for key in (ours, theirs, jnp.asarray(ours), random.key_data(theirs), random.clone(ours)):
        assert np.array_equal(random.normal(key, (3,)), drawn)
    assert isinstance(random.normal(jnp.asarray(ours), (3,)), jax.Array)
    assert np.array_equal(jax.jit(lambda key: random.normal(key, (3,)))(theirs), drawn)
    assert np.array_equal(random.wrap_key_data(ours), ours)


def test_keys_under_transforms() -> None:
    key = random.key(1)
    keys = random.split(random.clone(key), 4)
    each = np.stack([random.normal(k, (2,)) for k in keys])
    draw = lambda key: random.normal(key, (2,))  # noqa: E731
    assert np.array_equal(func.vmap(draw)(keys), each)
    assert np.array_equal(ftrans.jit(func.vmap(draw))(keys), each)
    assert np.array_equal(ftrans.jit(draw)(keys[0]), each[0])
    assert np.array_equal(func.vmap(draw, 1)(keys.T), each)
    folded = func.vmap(random.fold_in, (None, 0))(key, np.arange(3))
    assert np.array_equal(folded, np.stack([random.fold_in(key, n) for n in range(3)]))

    def step(key: Any, _: Any) -> Any:
        key, now = random.split(key)
        return key, random.normal(now)

    last, drawn = ftrans.scan(step, key, None, 3)
    for i in range(3):
        key, now = random.split(key)
        assert drawn[i] == random.normal(now)
    assert np.array_equal(last, key)
    picked = ftrans.cond(np.bool_(True), random.normal, random.uniform, random.clone(key))
    assert picked == random.normal(key)


def test_keys_of_jax_are_arguments_of_transforms() -> None:
    keys = jax.random.split(jax.random.key(3), 6).reshape(2, 3)
    words = np.asarray(jax.random.key_data(keys))
    draw = lambda key, x: random.normal(key, (2,)) * x  # noqa: E731
    traced = []

    @ftrans.jit
    def jitted(given: Any, scale: Any) -> Any:
        traced.append(1)
        return draw(given["key"], scale)

    for key, its_words in zip(keys[0], words[0], strict=True):
        expected = draw(its_words, 2.0)
        np.testing.assert_array_equal(jitted({"key": key}, 2.0), expected)
        np.testing.assert_array_equal(ftrans.jit(jitted)({"key": key}, 2.0), expected)
    assert len(traced) == 1 + 3  # once for all keys, and inside of each of the functions around it
    for dim in (0, 1, -1, -2):
        mapped = func.vmap(lambda k: func.vmap(draw, (0, None))(k, 2.0), dim)
        expected = mapped_by_words = func.vmap(mapped.__wrapped__, dim % 2)(words)
        np.testing.assert_array_equal(mapped(keys), mapped_by_words)
    assert expected.shape == (2, 3, 2)
    for dim in (2, -3):
        with pytest.raises(errors.AxisError, match=rf"axis {dim} of keys\[2, 3\]"):
            func.vmap(lambda k: k, dim)(keys)
    with pytest.raises(errors.ShapeError, match=r"axis 0 of keys\[2, 3\] has size 2"):
        func.vmap(draw)(keys, np.ones(5))


def test_an_unmapped_key_is_the_same_for_all() -> None:
    """Keys are explicit: as in JAX, it takes no word of `randomness`."""
    draw = lambda key: random.normal(key, (2,))  # noqa: E731
    key = random.key(0)
    for mode in ("error", "different", "same"):
        found = func.vmap(lambda x: x + draw(key), randomness=mode)(np.zeros((3, 1), "float32"))
        assert np.array_equal(found, np.stack([draw(key)] * 3))


def test_threefry_broadcasts_and_wraps() -> None:
    k0, k1 = np.uint32([[1], [2**32 - 1]]), np.uint32(2**32 - 1)
    x = np.arange(3, dtype=np.uint32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = threefry_p(k0, k1, np.uint32(2**32 - 1), x)
        scalars = threefry_p(k0[1, 0], k1, np.uint32(2**32 - 1), x[2])
    assert first.shape == second.shape == (2, 3)
    assert (first[1, 2], second[1, 2]) == scalars
    with pytest.raises(errors.DTypeError, match="takes uint32 arrays"):
        threefry_p(k0, k1, x.astype("int32"), x)


# ------------------------------------------------------------------------------------ used twice


@pytest.fixture
def told() -> Iterator[list[warnings.WarningMessage]]:
    ftrans.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


def test_a_key_that_is_used_twice(told: list[warnings.WarningMessage]) -> None:
    def twice() -> None:
        key = random.key(0)
        random.normal(key)
        random.uniform(key)

    for _ in range(3):
        twice()
    assert len(told) == 1  # once for a place
    assert told[0].category is errors.KeyReuseWarning
    assert "uniform: this key was drawn by before" in str(told[0].message)
    assert told[0].filename == __file__


def test_a_traced_key_that_is_used_twice(told: list[warnings.WarningMessage]) -> None:
    def f(key: Any) -> Any:
        first = random.normal(key)
        return first + random.normal(key)

    ftrans.jit(f)(random.key(0))
    assert len(told) == 1
    func.vmap(f)(random.split(random.key(0), 2))
    assert len(told) == 1


def test_keys_that_are_not_used_twice(told: list[warnings.WarningMessage]) -> None:
    key = random.key(0)
    loss = lambda x: (x * random.normal(key, (3,))).sum()  # noqa: E731
    for _ in range(3):
        func.grad(loss)(np.ones(3))  # the same noise again and again
    first, second = random.split(random.clone(key))
    random.normal(first)
    random.normal(second)
    random.fold_in(second, 0)
    random.fold_in(second, 1)
    for _ in range(50):
        random.fold_in(random.key(0), 1)  # whose address is that of another, later on
        random.uniform(random.key(0))
    assert not told


def test_what_is_no_key_is_refused() -> None:
    for key in (0, None, "key", 0.5, np.zeros(2), np.zeros(2, "int32"), [0, 1], jnp.zeros(2)):
        with pytest.raises(errors.DTypeError, match=r"normal: takes a key, uint32\[2\]"):
            random.normal(key, (3,))
    for shape in ((), (3,), (0,), (2, 3), (5, 2)):
        with pytest.raises(errors.ShapeError, match=r"normal: takes (a|one) key, uint32\[2\]"):
            random.normal(np.zeros(shape, np.uint32), (3,))
    with pytest.raises(errors.ShapeError, match="takes a key"):
        random.normal(jax.random.key(0, impl="rbg"))
    for seed in (0.5, "a", None, 2**64, -(2**63) - 1, np.zeros(2, "int32"), np.float32(1)):
        with pytest.raises(errors.ArgumentError, match="key: a seed"):
            random.key(seed)
    for num in (-1, 0.5, "a", (2, -1), None):
        with pytest.raises(errors.ArgumentError, match="split: a shape is a tuple of ints"):
            random.split(random.key(0), num)
