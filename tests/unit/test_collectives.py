"""Collectives along the named axes of `vmap`, against `jax.lax` under `jax.vmap`, loops, and laws.

What runs on several devices is in `sharded_on_eight_devices.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import (
    ArgumentError,
    AxisError,
    ConcretizationError,
    FtransError,
    ShapeError,
    UnsupportedError,
)

N = 4
X = np.random.default_rng(0).normal(size=(N, 4, 8, 3))
RING = [(i, (i + 1) % N) for i in range(N)]

# of a namespace of collectives, and what one example has
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda m, x: m.psum(x, "i"),
    "psum of a tree": lambda m, x: m.psum({"a": x, "b": (x[0],)}, "i")["b"][0],
    "pmean": lambda m, x: m.pmean(x, "i"),
    "all_gather": lambda m, x: m.all_gather(x, "i"),
    "all_gather along the last": lambda m, x: m.all_gather(x, "i", axis=-1),
    "all_gather tiled": lambda m, x: m.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda m, x: m.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda m, x: m.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "all_to_all": lambda m, x: m.all_to_all(x, "i", 0, 0),
    "all_to_all tiled": lambda m, x: m.all_to_all(x, "i", 1, 2, tiled=True),
    "all_to_all tiled, one axis": lambda m, x: m.all_to_all(x, "i", 1, 1, tiled=True),
    "ppermute": lambda m, x: m.ppermute(x, "i", RING),
    "ppermute, mixed": lambda m, x: m.ppermute(x, "i", [(0, 2), (1, 3), (3, 0), (2, 1)]),
    "axis_index": lambda m, x: m.axis_index("i") * x,
    "axis_size": lambda m, x: x / m.axis_size("i"),
    "a constant": lambda m, x: m.psum(np.ones(3), "i") * x + m.all_gather(np.ones(2), "i").sum(),
    "a number": lambda m, x: m.psum(2, "i") * x,
    "a chain": lambda m, x: m.psum(x * m.ppermute(x, "i", RING), "i") * m.axis_index("i"),
}


def sine(m: Any) -> Any:
    return jnp.sin if m is lax else fnp.sin


def loss(m: Any, case: str) -> Callable[[Any], Any]:
    return lambda x: (sine(m)(CASES[case](m, x)) * 0.5).sum()


@pytest.fixture(autouse=True)
def double() -> Any:
    with jax.enable_x64(True):
        yield


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def all_cases(m: Any) -> Callable[[Any], Any]:
    """Returns all that is tried as one function, so that it is compiled once."""
    return lambda x: {case: function(m, x) for case, function in CASES.items()}


def all_slopes(m: Any, grad: Any) -> Callable[[Any], Any]:
    return lambda x: {case: grad(loss(m, case))(x) for case in CASES}


def close_each(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for case, value in found.items():
        np.testing.assert_allclose(value, expected[case], 1e-10, 1e-12, err_msg=case)
        assert value.dtype == expected[case].dtype, case


def by_jax(function: Callable[[Any], Any], in_axes: int = 0) -> Any:
    return jax.jit(jax.vmap(function, in_axes, axis_name="i"))


def test_values_are_those_of_jax_on_all_roads() -> None:
    ours = all_cases(ftrans)
    expected = by_jax(all_cases(lax))(X)
    mapped = ftrans.vmap(ours, axis_name="i")
    found = mapped(X)
    assert {type(x) for x in found.values()} == {np.ndarray}
    close_each(found, expected)
    close_each(ftrans.jit(mapped)(jnp.asarray(X)), expected)
    close_each(by_jax(ours)(X), expected)  # where JAX maps the axis
    close_each(by_jax(ftrans.jit(ours))(X), expected)
    last = ftrans.vmap(ours, in_dims=-1, out_dims=1, axis_name="i")(np.moveaxis(X, 0, -1))
    close_each({case: np.moveaxis(x, 1, 0) for case, x in last.items()}, expected)


def test_gradients_inside_and_outside_are_those_of_jax() -> None:
    ours = all_slopes(ftrans, ftrans.grad)
    inside = by_jax(all_slopes(lax, jax.grad))(X)
    close_each(ftrans.vmap(ours, axis_name="i")(X), inside)
    close_each(by_jax(ours)(X), inside)
    # of the sum of what all have it is the same, since each has part in what others get
    whole = lambda case: lambda x: ftrans.vmap(loss(ftrans, case), axis_name="i")(x).sum()  # noqa: E731
    close_each({case: ftrans.grad(whole(case))(X) for case in CASES}, inside)


def test_axes_of_other_names_pass_through() -> None:
    y = np.random.default_rng(1).normal(size=(2, *X.shape))

    def all_beside(m: Any) -> Callable[[Any], Any]:
        given = all_cases(m)
        return lambda x: jax.tree.map(lambda v: v * m.psum(x, "j").sum(), given(x))

    along = jax.jit(jax.vmap(by_jax(all_beside(lax)), axis_name="j"))(y)
    close_each(ftrans.vmap(ftrans.vmap(all_beside(ftrans), axis_name="i"), axis_name="j")(y), along)
    inner = ftrans.vmap(all_beside(ftrans), axis_name="j")
    across = ftrans.vmap(inner, 1, out_dims=1, axis_name="i")(y)
    close_each(across, along)
    plain = ftrans.vmap(ftrans.vmap(all_cases(ftrans)), 1, out_dims=1, axis_name="i")(y)
    close_each(plain, jax.vmap(by_jax(all_cases(lax)))(y))


def test_several_names_go_in_the_order_in_which_they_are_given() -> None:
    z = np.random.default_rng(2).normal(size=(2, 3, 6, 12))

    def over(function: Callable[[Any], Any]) -> Any:
        return ftrans.vmap(ftrans.vmap(function, axis_name="j"), axis_name="i")(z)

    close(over(lambda x: ftrans.psum(x, ("i", "j"))), np.broadcast_to(z.sum((0, 1)), z.shape))
    close(over(lambda x: ftrans.pmax(x, ("j", "i"))), np.broadcast_to(z.max((0, 1)), z.shape))
    close(over(lambda x: ftrans.pmean(x, ("j", "i"))), np.broadcast_to(z.mean((0, 1)), z.shape))
    rows = z.reshape(6, 6, 12)
    close(over(lambda x: ftrans.all_gather(x, ("i", "j")))[1, 1], rows)
    by_columns = z.swapaxes(0, 1).reshape(6, 6, 12)
    joined = over(lambda x: ftrans.all_gather(x, ("j", "i"), axis=1, tiled=True))[0, 2]
    close(joined, np.concatenate(by_columns, 1))
    scattered = over(lambda x: ftrans.psum_scatter(x, ("i", "j")))
    close(scattered, z.sum((0, 1)).reshape(2, 3, 12))
    tiles = over(lambda x: ftrans.psum_scatter(x, ("i", "j"), scatter_dimension=1, tiled=True))
    close(tiles, np.moveaxis(z.sum((0, 1)).reshape(6, 2, 3, 2), 0, 2))
    index = over(lambda x: x[0, 0] * 0 + ftrans.axis_index(("i", "j")))
    close(index, np.arange(6).reshape(2, 3))
    assert over(lambda x: x[0, 0] * 0 + ftrans.axis_size(("i", "j")))[0, 0] == 6
    close(over(lambda x: ftrans.psum(x, ())), z)
    assert over(lambda x: ftrans.all_gather(x, ())).shape == (2, 3, 1, 6, 12)


def test_who_gets_nothing_has_zeros() -> None:
    passed = ftrans.vmap(lambda x: ftrans.ppermute(x, "i", [(0, 2), (1, 3)]), axis_name="i")
    x = np.arange(1.0, 5.0)
    close(passed(x), [0, 0, 1, 2])
    close(ftrans.grad(lambda x: (passed(x) * x).sum())(x), [3, 4, 1, 2])
    nothing = ftrans.vmap(lambda x: ftrans.ppermute(x, "i", ()), axis_name="i")
    close(nothing(x), np.zeros(4))


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extrema_have_the_derivatives_of_those_of_arrays(name: str) -> None:
    x = np.array([[1.0, 5.0], [4.0, 5.0], [4.0, 0.0]])
    along = getattr(fnp, name[1:])
    collective = getattr(ftrans, name)
    weights = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    mapped = ftrans.vmap(lambda x, w: (collective(x, "i") * w).sum(), axis_name="i")
    expected = ftrans.grad(lambda x: (along(x, axis=0) * weights.sum(0)).sum())(x)
    close(ftrans.grad(lambda x: mapped(x, weights).sum())(x), expected)
    inside = ftrans.vmap(
        lambda x, w: ftrans.grad(lambda x: (collective(x, "i") * w).sum())(x), axis_name="i"
    )
    close(inside(x, weights), expected)
    tangent = np.cos(x)
    out = func.jvp(lambda x: mapped(x, weights), (x,), (tangent,))[1]
    close(out, func.jvp(lambda x: (along(x, axis=0) * weights).sum(1), (x,), (tangent,))[1])


def test_cotangents_and_tangents_fit_and_finite_differences() -> None:
    for case in CASES:
        mapped = ftrans.vmap(lambda x: sine(ftrans)(CASES[case](ftrans, x)), axis_name="i")  # noqa: B023
        rng = np.random.default_rng(3)
        tangent = rng.normal(size=X.shape)
        out, dot = func.jvp(mapped, (X,), (tangent,))
        cotangent = rng.normal(size=out.shape)
        back = func.vjp(mapped, X)[1](cotangent)[0]
        close((dot * cotangent).sum(), (back * tangent).sum())
        assert_differences(mapped, X, tangent, dot)


def assert_differences(function: Any, x: Any, tangent: Any, dot: Any) -> None:
    difference = (function(x + 1e-6 * tangent) - function(x - 1e-6 * tangent)) / 2e-6
    np.testing.assert_allclose(dot, difference, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------ names and frames


def test_the_innermost_axis_of_a_name_counts_whatever_it_goes_over() -> None:
    ones, rows = np.ones(5), np.arange(3.0)

    def outer(y: Any) -> Any:
        inner = ftrans.vmap(lambda z: ftrans.psum(y, "i") + 0 * z, axis_name="i")(ones)
        return inner.sum() + ftrans.psum(y, "i")

    close(ftrans.vmap(outer, axis_name="i")(rows), 25 * rows + rows.sum())


def test_what_is_transformed_inside_stays_along_the_axis() -> None:
    def outer(y: Any) -> Any:
        slope = ftrans.grad(lambda v: ftrans.psum(v * v, "j"))
        return ftrans.vmap(lambda z: slope(y) + 0 * z, axis_name="j")(np.ones(5))

    close(ftrans.vmap(outer, axis_name="i")(np.arange(3.0)), np.outer(np.arange(3.0), [10.0] * 5))
    jitted = ftrans.jit(lambda v: ftrans.psum(v, "j"))
    both = ftrans.vmap(
        lambda y: ftrans.vmap(lambda z: jitted(y) + 0 * z, axis_name="j")(np.ones(5))
    )
    close(both(np.arange(3.0)), np.outer(np.arange(3.0), [5.0] * 5))


def test_names_are_forgotten_with_what_maps_them() -> None:
    psum = lambda x: ftrans.psum(x, "i")  # noqa: E731
    for size in (2, 3, 2):
        close(ftrans.vmap(psum, axis_name="i")(np.ones(size)), np.full(size, size))
    with pytest.raises(AxisError):
        psum(np.ones(2))
    with pytest.raises(ZeroDivisionError):
        ftrans.vmap(lambda x: x / 0 if isinstance(x, float) else 1 // 0, axis_name="i")(np.ones(2))
    with pytest.raises(AxisError):
        psum(np.ones(2))


def test_any_hashable_names_an_axis_and_threads_have_their_own() -> None:
    found = {}

    def work(size: int) -> None:
        mapped = ftrans.vmap(lambda x: ftrans.psum(x, ("one",)), axis_name="one")
        found[size] = [mapped(np.ones(size))[0] for _ in range(20)]

    threads = [threading.Thread(target=work, args=(size,)) for size in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {size: [size] * 20 for size in (2, 3, 4)}
    close(ftrans.vmap(lambda x: ftrans.psum(x, 7), axis_name=7)(np.ones(3)), [3.0] * 3)


# --------------------------------------------------------------------------- loops and branches


def looped(m: Any, lib: Any, scan: Any) -> Callable[[Any], Any]:
    def step(c: Any, x: Any) -> Any:
        c = lib.tanh(c + m.psum(c * x, "i") / 3 + m.axis_index("i"))
        return c, m.ppermute(c, "i", RING)

    return lambda c: scan(step, c, np.arange(3.0))


def branching(m: Any, lib: Any, cond: Any) -> Callable[[Any], Any]:
    def either(x: Any) -> Any:
        total = m.psum(x.sum(), "i")
        same = cond(total > 0, lambda x: m.psum(x * x, "i"), lambda x: x, x)
        own = cond(x[0] > 0, lambda x: m.psum(x * x, "i") * x, lambda x: lib.sin(x), x)
        return same + own

    return either


def turning(m: Any, lib: Any, loop: Any) -> Callable[[Any], Any]:
    def turn(state: Any) -> Any:
        i, x = state
        return i + 1, lib.sin(x) + m.pmean(x, "i") + m.axis_index("i")

    return lambda x: loop(lambda s: s[0] < 3, turn, (0, x))[1]


@pytest.mark.parametrize("which", ["scan", "cond", "while"])
def test_bodies_go_over_the_axis(which: str) -> None:
    x = np.random.default_rng(4).normal(size=(N, 3))
    make, of_ours, of_jax = {
        "scan": (looped, ftrans.scan, lax.scan),
        "cond": (branching, ftrans.cond, lax.cond),
        "while": (turning, ftrans.while_loop, lax.while_loop),
    }[which]
    ours, theirs = make(ftrans, fnp, of_ours), make(lax, jnp, of_jax)
    mapped = ftrans.vmap(ours, axis_name="i")
    expected = by_jax(theirs)(x)
    jax.tree.map(close, mapped(x), expected)
    jax.tree.map(close, by_jax(ours)(x), expected)
    total = lambda x: sum([(v**2).sum() for v in jax.tree.leaves(mapped(x))])  # noqa: E731
    tangent = np.cos(x)
    dot = func.jvp(total, (x,), (tangent,))[1]
    assert_differences(total, x, tangent, dot)
    if which != "while":  # others' branches take part, where JAX drops their tangents
        close((ftrans.grad(total)(x) * tangent).sum(), dot)


def test_a_while_loop_with_a_bound_whose_turns_differ() -> None:
    x = np.array([0.1, 0.5, 2.0])

    def run(x: Any) -> Any:
        return ftrans.while_loop(
            lambda v: v < 3, lambda v: v + ftrans.pmean(v, "i"), x, max_steps=9
        )

    def plain(x: Any) -> Any:
        for _ in range(9):
            x = jnp.where(x < 3, x + x.mean(), x)
        return x

    mapped = ftrans.vmap(run, axis_name="i")
    close(mapped(x), plain(x))
    close(
        ftrans.grad(lambda x: (mapped(x) ** 2).sum())(x),
        jax.grad(lambda x: (plain(x) ** 2).sum())(x),
    )


# --------------------------------------------------------------------------------- custom rules


class Synced(ftrans.autograd.Function):
    """Sums the gradients of all, as layers do that have equal weights everywhere."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x * 1.0 + 0 * ftrans.axis_index("i")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ftrans.psum(ct, "i")


def test_rules_go_over_the_axis_of_the_call() -> None:
    for size in (3, 2, 3):
        x = np.arange(1.0, size + 1)
        slopes = ftrans.vmap(ftrans.grad(lambda x: Synced.apply(x) ** 2), axis_name="i")
        close(slopes(x), np.full(size, (2 * x).sum()))
        outside = ftrans.grad(lambda x: ftrans.vmap(Synced.apply, axis_name="i")(x)[0])
        close(outside(x), np.ones(size))

    @ftrans.custom_vjp
    def gathered(x: Any) -> Any:
        return ftrans.all_gather(x, "i")

    gathered.defvjp(
        lambda x: (gathered(x), None), lambda _, ct: (2 * ftrans.psum_scatter(ct, "i"),)
    )
    x = np.arange(3.0)
    found = ftrans.vmap(ftrans.grad(lambda x: (gathered(x) ** 2).sum()), axis_name="i")(x)
    close(found, 2 * 3 * 2 * x)


# ----------------------------------------------------------------------------- what JAX maps


def test_constants_and_sizes_where_jax_maps_the_axis() -> None:
    def inside(x: Any) -> Any:
        slope = ftrans.grad(lambda y: (ftrans.psum(y**2, "i") * ftrans.axis_index("i")).sum())
        return slope(np.ones(2)).sum() * x + ftrans.psum(np.ones(()), "i")

    def plain(x: Any) -> Any:
        slope = jax.grad(lambda y: (lax.psum(y**2, "i") * lax.axis_index("i")).sum())
        return slope(jnp.ones(2)).sum() * x + lax.psum(np.ones(()), "i")

    close(by_jax(inside)(np.arange(3.0)), by_jax(plain)(np.arange(3.0)))
    sized = ftrans.jit(lambda x: x * ftrans.axis_size("i"))
    both = ftrans.vmap(lambda z: ftrans.psum(z, ("i", "j")), axis_name="j")
    for size in (3, 2):
        close(jax.vmap(sized, axis_name="i")(np.ones(size)), np.full(size, size))
        close(by_jax(both)(np.ones((size, 2))), np.full((size, 2), 2 * size))


# ---------------------------------------------------------------------- what is written with JAX


def test_functions_of_jax_go_over_our_axes() -> None:
    imported = ftrans.from_jax(all_cases(lax))
    close_each(ftrans.vmap(imported, axis_name="i")(X), by_jax(all_cases(lax))(X))
    slope = ftrans.grad(ftrans.from_jax(loss(lax, "a chain")))
    expected = ftrans.vmap(ftrans.grad(loss(ftrans, "a chain")), axis_name="i")(X)
    close(ftrans.vmap(slope, axis_name="i")(X), expected)
    shares = ftrans.from_jax(lambda x: x / lax.psum(x, ("i", "j")) * lax.axis_size("i"))
    for size in (4, 3):
        both = ftrans.vmap(ftrans.vmap(shares, axis_name="j"), axis_name="i")
        close(both(np.ones((size, 2))), np.full((size, 2), 0.5))
    whole = ftrans.from_jax(lambda x: lax.all_to_all(x, "i", 0, 2))
    ours = ftrans.vmap(lambda x: ftrans.all_to_all(x, "i", 0, 2), axis_name="i")(X)
    close(ftrans.vmap(whole, axis_name="i")(X), ours)
    close(ours[1, 2, 0], X[:, 1, 2, 0])


def test_what_of_jax_has_no_counterpart() -> None:
    outside = ftrans.from_jax(lambda x: lax.psum(x, "rows"))
    assert raised(AxisError, lambda: outside(np.ones(2))) == (
        "from_jax(<lambda>): it goes over an axis that is not mapped here.\n"
        "  JAX: Found an unbound axis name: rows\n  axes here: none\n"
        "  Call it inside of vmap(f, axis_name=...), or of shard_map."
    )
    groups = ftrans.from_jax(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1, 2]]))
    assert raised(UnsupportedError, lambda: mapped(groups)).startswith(
        "from_jax: psum over 'i' in this way has no counterpart.\n  params: "
    )


# --------------------------------------------------------------------------------------- errors


def raised(kind: type[FtransError], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def mapped(function: Callable[[Any], Any], **options: Any) -> Any:
    return ftrans.vmap(function, axis_name="i", **options)(np.ones((3, 2)))


def test_an_axis_that_is_not_there() -> None:
    message = raised(AxisError, lambda: ftrans.psum(np.ones(2), "batch"))
    first, axes, place, fix = message.split("\n")
    assert first == "psum: no mapped axis is called 'batch'."
    assert axes == "  axes here: none"
    assert place.startswith("  used at ")
    assert "test_collectives.py" in place
    assert fix == (
        "  Map the function by vmap(f, axis_name='batch'), or by shard_map over a mesh that has it."
    )
    message = raised(AxisError, lambda: mapped(lambda x: ftrans.axis_index(("i", "k")) * x))
    assert message.startswith(
        "axis_index: no mapped axis is called 'k'.\n  axes here: 'i' of size 3\n  used at "
    )
    assert "no mapped axis is called ['i']" in raised(
        AxisError, lambda: mapped(lambda x: ftrans.psum(x, ["i"]))
    )


def test_other_errors() -> None:
    assert raised(
        UnsupportedError, lambda: mapped(lambda x: ftrans.psum(x, "i"), chunk_size=2)
    ) == (
        "vmap(lambda): a collective needs all examples at once, and they come in chunks.\n"
        "  axis_name: 'i'\n  chunk_size: 2, of 3 examples\n  Leave out chunk_size."
    )
    close(mapped(lambda x: x * 2, chunk_size=2), np.full((3, 2), 2.0))
    close(mapped(lambda x: ftrans.psum(x, "i"), chunk_size=3), np.full((3, 2), 3.0))
    assert raised(
        UnsupportedError,
        lambda: mapped(lambda x: ftrans.psum(x, "i", axis_index_groups=[[0, 1], [2]])),
    ) == (
        "psum: axis_index_groups is not supported.\n  axis_index_groups: [[0, 1], [2]]\n"
        "  Map over two axes, one within the groups and one across them."
    )
    assert raised(
        ShapeError, lambda: mapped(lambda x: ftrans.psum_scatter(x, "i", tiled=True))
    ) == (
        "psum_scatter: axis 0 has no part for each of the 3 places.\n"
        "  operand: f64[2], size 2\n  Its size has to be a multiple of 3; tiled is True."
    )
    assert raised(ShapeError, lambda: mapped(lambda x: ftrans.all_to_all(x, "i", 0, 0))) == (
        "all_to_all: axis 0 has no part for each of the 3 places.\n"
        "  operand: f64[2], size 2\n  Its size has to be 3; tiled is False."
    )
    assert raised(
        ArgumentError, lambda: mapped(lambda x: ftrans.ppermute(x, "i", [(0, 1), (2, 1)]))
    ) == (
        "ppermute: each place is the destination of one pair at most.\n"
        "  perm: ((0, 1), (2, 1))\n  The places are 0 ... 2."
    )
    assert raised(ArgumentError, lambda: mapped(lambda x: ftrans.ppermute(x, "i", [(0, 3)]))) == (
        "ppermute: each place is one on the axis.\n  perm: ((0, 3),)\n  The places are 0 ... 2."
    )
    assert raised(AxisError, lambda: ftrans.psum(1.0, 0)).startswith(
        "psum: no mapped axis is called 0.\n  axes here: none\n"
    )
    for wrong in (3, "ab", [(0.5, 1)]):
        assert raised(
            ArgumentError, lambda perm=wrong: mapped(lambda x: ftrans.ppermute(x, "i", perm))
        ).startswith("ppermute: perm is a list of pairs of ints.\n  perm: ")
    assert raised(AxisError, lambda: mapped(lambda x: ftrans.psum(x, ("i", "i")))) == (
        "psum: a name is given twice.\n  axis_name: ('i', 'i')"
    )
    assert raised(ArgumentError, lambda: ftrans.vmap(abs, axis_name=["i"])) == (
        "vmap(abs): names of axes are strings, or tuples.\n"
        "  axis_name: ['i']\n  spmd_axis_name: None"
    )
    assert raised(ArgumentError, lambda: mapped(lambda x: ftrans.psum("x", "i"))) == (
        "psum: it takes a pytree of arrays.\n  leaf: 'x' (str)\n  Leave out what is no array."
    )
    assert raised(
        UnsupportedError,
        lambda: ftrans.vmap(
            lambda x: mapped(lambda y: ftrans.ppermute(y, ("i", "j"), [])), axis_name="j"
        )(np.ones(2)),
    ) == (
        "ppermute: it goes over one axis.\n  axis_name: ('i', 'j')\n"
        "  Call it for one name after the other."
    )
    message = raised(
        ConcretizationError, lambda: mapped(lambda x: x * float(ftrans.axis_index("i")))
    )
    assert message == (
        "axis_index: its value is asked for outside of the axis 'i' that it goes over.\n"
        "  Return it, or choose by it with ftrans.cond or ftrans.numpy.where."
    )


def test_empty_arrays_dtypes_and_rank_0() -> None:
    close(mapped(lambda x: ftrans.psum(x[:0], "i")), np.zeros((3, 0)))
    assert mapped(lambda x: ftrans.psum(x > 0, "i")).dtype == np.int32
    assert ftrans.vmap(lambda x: ftrans.psum(x, "i"), axis_name="i")(
        np.ones(3, "float16")
    ).dtype == (np.float16)
    none = ftrans.vmap(lambda x: ftrans.psum(x, "i") + 1, axis_name="i")(np.ones((0, 2)))
    assert none.shape == (0, 2)
    z = np.array([1 + 2j, 3 - 1j])
    close(ftrans.vmap(lambda x: ftrans.psum(x, "i"), axis_name="i")(z), [4 + 1j] * 2)
    total = ftrans.vmap(lambda x: ftrans.psum(x, "i"), axis_name="i", out_dims=None)(np.arange(3.0))
    assert total == 3
