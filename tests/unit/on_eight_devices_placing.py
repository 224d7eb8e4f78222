"""Where results lie, and functions that say where values do, on meshes of eight devices.

`test_meshes.py` has this file run in a process that has so many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ArgumentError, AxisError
from tests.helpers import assert_close, on_road, sampled_rows

P = PartitionSpec
MESHES = {"lines": ((8,), ("d",)), "tiles": ((4, 2), ("d", "m"))}
KINDS = [AxisType.Auto, AxisType.Explicit]
_rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return (_rng.normal(size=shape) / 4).astype("float32")


def mesh_of(name: str, kind: Any) -> Any:
    sizes, names = MESHES[name]
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(names))


# ------------------------------------------------------------------------------------------ models
#
# Each by `jax.numpy` and by ours: a function of a dict of weights and of examples, whose first axis
# is that of the batch.


def perceptron(xp: Any, w: Any, x: Any) -> Any:
    return ((xp.tanh(x @ w["up"]) @ w["down"]) ** 2).mean()


def transformer(xp: Any, w: Any, x: Any) -> Any:
    batch, length, width = x.shape
    split = lambda y: y.reshape(batch, length, 2, width // 2).swapaxes(1, 2)  # noqa: E731
    q, k, v = split(x @ w["q"]), split(x @ w["k"]), split(x @ w["v"])
    scores = q @ k.swapaxes(-1, -2)
    scores = xp.exp(scores - scores.max(-1, keepdims=True))
    mixed = (scores / scores.sum(-1, keepdims=True)) @ v
    x = x + mixed.swapaxes(1, 2).reshape(batch, length, width)
    return ((x + xp.maximum(x @ w["up"], 0) @ w["down"]) ** 2).mean()


def convolution(xp: Any, w: Any, x: Any) -> Any:
    windows = xp.stack([x[:, i : i + 13, j : j + 13] for i in range(4) for j in range(4)], -1)
    return (xp.tanh(windows @ w["kernel"]) ** 2).mean()


def recurrent(xp: Any, w: Any, x: Any) -> Any:
    scan = jax.lax.scan if xp is jnp else ftrans.scan
    step = lambda h, row: (xp.tanh(row @ w["in"] + h @ w["own"]), None)  # noqa: E731
    start = 0 * (x[:, 0] @ w["in"])
    return (scan(step, start, x.swapaxes(0, 1))[0] ** 2).mean()


MODELS: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray], np.ndarray]] = {
    "perceptron": (perceptron, {"up": normal(16, 32), "down": normal(32, 8)}, normal(64, 16)),
    "transformer": (
        transformer,
        {n: normal(16, 16) for n in "qkv"} | {"up": normal(16, 32), "down": normal(32, 16)},
        normal(16, 8, 16),
    ),
    "convolution": (convolution, {"kernel": normal(16, 8)}, normal(8, 16, 16)),
    "recurrent": (recurrent, {"in": normal(16, 8), "own": normal(8, 8)}, normal(32, 6, 16)),
}

LAYOUTS: dict[str, Callable[[str, str], tuple[Any, Any]]] = {
    "replicated": lambda first, last: (P(), P()),
    "by data": lambda first, last: (P(), P(first)),
    "weights by their first axis": lambda first, last: (P(last), P(first)),
    "weights by their last axis": lambda first, last: (P(None, last), P()),
}

TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "value_and_grad": (jax.value_and_grad, func.value_and_grad),
    "per example": (
        lambda f: jax.vmap(jax.grad(lambda w, x: f(w, x[None])), (None, 0)),
        lambda f: func.vmap(func.grad(lambda w, x: f(w, x[None])), (None, 0)),
    ),
    "jvp": (
        lambda f: lambda w, x: jax.jvp(lambda w: f(w, x), (w,), (w,)),
        lambda f: lambda w, x: func.jvp(lambda w: f(w, x), (w,), (w,)),
    ),
}


def check_places(found: Any, expected: Any, mesh: Any, tolerance: float = 1e-4) -> None:
    """Raises unless all results lie as JAX's do, on the mesh, and are equal."""
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=1e-6)
        assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim)
        assert ours.sharding.mesh == mesh


ROWS = itertools.product(MESHES, KINDS, MODELS, LAYOUTS, TRANSFORMS, ["un-jitted", "jitted"])
# All 384 take twenty minutes. Where the layouts leave XLA a choice it may take another one than for
# JAX's own program: per example, of the recurrent model with weights that lie by their first axis.
SOME = itertools.islice(ROWS, 0, None, 7)


@pytest.mark.parametrize(
    ("mesh", "kind", "model", "layout", "transform", "way"), sampled_rows(SOME, 13)
)
def test_results_lie_where_jit_puts_them(
    mesh: str, kind: Any, model: str, layout: str, transform: str, way: str
) -> None:
    function, weights, x = MODELS[model]
    theirs, ours = TRANSFORMS[transform]
    names = MESHES[mesh][1]
    of_weights, of_x = LAYOUTS[layout](names[0], names[-1])
    given = {}
    for each in KINDS:
        on = mesh_of(mesh, each)
        put = lambda a, spec, on=on: jax.device_put(a, NamedSharding(on, spec))  # noqa: E731
        given[each] = ({n: put(a, of_weights) for n, a in weights.items()}, put(x, of_x))
    expected = jax.jit(theirs(lambda w, x: function(jnp, w, x)))(*given[AxisType.Auto])
    made = ours(lambda w, x: function(fnp, w, x))
    made = ftrans.jit(made) if way == "jitted" else made
    for _ in range(2):
        check_places(made(*given[kind]), expected, mesh_of(mesh, kind))


@pytest.mark.parametrize("kind", [pytest.param(KINDS[0], marks=pytest.mark.slow), KINDS[1]])
def test_hessians_beside_uncommitted_arrays_and_arrays_of_numpy(kind: Any) -> None:
    mesh = mesh_of("tiles", kind)
    x = jax.device_put(normal(16), NamedSharding(mesh, P("m")))
    auto = jax.device_put(x, NamedSharding(mesh_of("tiles", AxisType.Auto), P("m")))
    for other in (normal(16), jnp.asarray(normal(16))):
        expected = jax.jit(jax.hessian(lambda x, y: (x * y).sum() ** 3))(auto, other)
        for _ in range(2):
            found = func.hessian(lambda x, y: (x * y).sum() ** 3)(x, other)
            check_places(found, expected, mesh)
    # what the call closes over says no more of the container than ever: results are NumPy's
    slope = func.grad(lambda y: ((x * y) ** 2).sum())(normal(16))
    assert type(slope) is np.ndarray


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_with_residuals_on_the_host_lie_where_others_do(kind: Any) -> None:
    mesh = mesh_of("lines", kind)
    x = jax.device_put(normal(16, 8), NamedSharding(mesh, P("d")))
    loss = lambda x: (fnp.sin(fnp.sin(x) * 2) ** 2).sum()  # noqa: E731
    expected = func.grad(loss)(x)
    for gradient in (
        func.grad(loss, memory="offload"),
        ftrans.jit(func.grad(loss, memory="offload")),
    ):
        check_places(gradient(x), expected, mesh)


def test_what_is_spread_is_compiled_at_the_first_call() -> None:
    x = jax.device_put(normal(64), NamedSharding(mesh_of("lines", AxisType.Auto), P("d")))
    for power in range(2, 8):
        func.grad(lambda x, power=power: (x**power).sum())(x)
        call = list(ftrans.explain())[-1]
        assert (call.road, call.reason) == ("compiled now", "its arrays lie on several devices")
    func.grad(lambda x: (x**7).sum())(x)
    assert list(ftrans.explain())[-1].road == "compiled"
    with on_road("interpret"):
        slope = func.grad(lambda x: (x**9).sum())(x)
    assert slope.sharding == x.sharding
    np.testing.assert_allclose(slope, 9 * np.asarray(x) ** 8, rtol=1e-4)


# ----------------------------------------------------------------------------- functions that place


def on(mesh: Any, *spec: Any) -> Any:
    return NamedSharding(mesh, P(*spec))


X = normal(16, 8)


def placing(xp: Any, mesh: Any, *spec: Any) -> Callable[[Any], Any]:
    theirs = xp is jnp
    constrain = jax.lax.with_sharding_constraint if theirs else ftrans.with_sharding_constraint
    return lambda v: constrain(xp.sin(v), on(mesh, *spec)) ** 2


WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[Any, ...]]] = {
    "gradient": (
        lambda f: jax.grad(lambda v: f(v).sum()),
        lambda f: func.grad(lambda v: f(v).sum()),
        ("d", "m"),
    ),
    "tangent": (
        lambda f: lambda v: jax.jvp(f, (v,), (v,))[1],
        lambda f: lambda v: func.jvp(f, (v,), (v,))[1],
        ("m", "d"),
    ),
    "batch": (jax.vmap, func.vmap, ("m",)),
    "batch along an axis": (
        lambda f: jax.vmap(f, spmd_axis_name="d"),
        lambda f: func.vmap(f, spmd_axis_name="d"),
        ("m",),
    ),
    "gradients of a batch": (
        lambda f: jax.vmap(jax.grad(lambda v: f(v).sum()), spmd_axis_name="d"),
        lambda f: func.vmap(func.grad(lambda v: f(v).sum()), spmd_axis_name="d"),
        ("m",),
    ),
    "batch of the last axis": (
        lambda f: jax.vmap(f, in_axes=1, out_axes=1, spmd_axis_name="m"),
        lambda f: func.vmap(f, in_dims=1, out_dims=1, spmd_axis_name="m"),
        ("d",),
    ),
    "batch of a batch": (
        lambda f: jax.vmap(jax.vmap(f, spmd_axis_name="m"), spmd_axis_name="d"),
        lambda f: func.vmap(func.vmap(f, spmd_axis_name="m"), spmd_axis_name="d"),
        (),
    ),
    "Jacobian": (jax.jacrev, func.jacrev, ("d", "m")),
    "loop": (
        lambda f: lambda v: jax.lax.scan(lambda c, r: (f(c + r), None), v[0], v)[0],
        lambda f: lambda v: ftrans.scan(lambda c, r: (f(c + r), None), v[0], v)[0],
        ("m",),
    ),
    "loop along an axis": (
        lambda f: jax.vmap(
            lambda v: jax.lax.scan(lambda c, r: (f(c + r), None), v, v[None])[0],
            spmd_axis_name="d",
        ),
        lambda f: func.vmap(
            lambda v: ftrans.scan(lambda c, r: (f(c + r), None), v, v[None])[0],
            spmd_axis_name="d",
        ),
        ("m",),
    ),
}


@pytest.mark.parametrize(("way", "kind"), sampled_rows(itertools.product(WAYS, KINDS), 7))
def test_constraints_under_transforms(way: str, kind: Any) -> None:
    theirs, ours, spec = WAYS[way]
    auto = mesh_of("tiles", AxisType.Auto)
    expected = jax.jit(theirs(placing(jnp, auto, *spec)))(jnp.asarray(X))
    made = ours(placing(fnp, mesh_of("tiles", kind), *spec))
    for function in (made, ftrans.jit(made), jax.jit(made), jax.jit(ftrans.to_jax(made))):
        found = function(jnp.asarray(X))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert found.sharding.is_equivalent_to(expected.sharding, found.ndim)
    # arrays of NumPy's have no place
    for function, runs in ((made, 3), (ftrans.jit(made), 1)):
        for _ in range(runs):
            found = function(X)
            assert type(found) is np.ndarray
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    with on_road("compile"):
        np.testing.assert_allclose(made(X), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [pytest.param(KINDS[0], marks=pytest.mark.slow), KINDS[1]])
def test_specs_on_the_mesh_that_is_set(kind: Any) -> None:
    mesh, x = mesh_of("tiles", kind), jnp.asarray(X)
    other = mesh_of("lines", kind)
    loss = lambda v: (ftrans.reshard(fnp.sin(v), P("d")) ** 2).sum()  # noqa: E731
    made = [func.grad(loss), ftrans.jit(func.grad(loss))]
    expected = jax.grad(lambda v: (jnp.sin(v) ** 2).sum())(x)
    for around in (mesh, other, mesh):  # what was traced on one mesh is right on another one
        with jax.set_mesh(around):
            for function in made:
                for _ in range(2):
                    found = function(x)
                    assert found.sharding.is_equivalent_to(on(around, "d"), 2)
                    assert found.sharding.mesh == around
                    assert_close(found, expected)
                assert type(function(X)) is np.ndarray
            assert ftrans.device_put(X, P("d")).sharding == on(around, "d")
            assert_close(jax.jit(func.grad(loss))(x), expected)


def test_arrays_are_moved_at_once_where_nothing_is_traced() -> None:
    mesh = mesh_of("tiles", AxisType.Auto)
    tree = {"a": X.astype("float64"), "b": [np.arange(8), 2.0]}
    put = ftrans.device_put(tree, {"a": on(mesh, "d"), "b": on(mesh)})
    assert put["a"].dtype == np.float64
    assert put["a"].sharding == on(mesh, "d")
    assert put["b"][0].sharding.is_fully_replicated
    assert_close(put["a"], X)
    moved = ftrans.with_sharding_constraint(put["a"], on(mesh, None, "m"))
    assert moved.sharding.is_equivalent_to(on(mesh, None, "m"), 2)
    assert ftrans.device_put(tree, None)["a"].dtype == np.float64
    assert ftrans.device_put(X, jax.devices()[3]).devices() == {jax.devices()[3]}
    explicit = mesh_of("tiles", AxisType.Explicit)
    assert ftrans.reshard(put["a"], on(explicit, "d")).sharding == on(explicit, "d")
    keys = jax.random.split(jax.random.key(0), 8)
    assert ftrans.device_put(keys, on(mesh, "d")).sharding == on(mesh, "d")


def test_puts_in_traced_functions() -> None:
    mesh, x = mesh_of("tiles", AxisType.Auto), jnp.asarray(X)
    to_mesh = lambda v: ftrans.device_put({"v": v * 2}, on(mesh, "d"))["v"]  # noqa: E731
    found = func.jvp(to_mesh, (x,), (x,))[1]
    assert found.sharding.is_equivalent_to(on(mesh, "d"), 2)
    to_device = lambda v: ftrans.device_put(v * 2, jax.devices()[0]) * ftrans.device_put(v)  # noqa: E731
    assert_close(func.grad(lambda v: to_device(v).sum())(x), 4 * X)
    assert_close(func.vmap(to_device)(x), 2 * X**2)
    leaf = ftrans.tensor(x, requires_grad=True)
    (ftrans.with_sharding_constraint(leaf * 2, on(mesh, "d")) ** 2).sum().backward()
    assert_close(leaf.grad, 8 * X)


def test_functions_of_jax_keep_what_they_say() -> None:
    mesh, x = mesh_of("tiles", AxisType.Auto), jnp.asarray(X)
    explicit = mesh_of("tiles", AxisType.Explicit)
    constrained = ftrans.from_jax(lambda v: jax.lax.with_sharding_constraint(v * 2, on(mesh, "d")))
    assert constrained(x).sharding.is_equivalent_to(on(mesh, "d"), 2)
    slope = func.grad(lambda v: (constrained(v) ** 2).sum())(x)
    assert slope.sharding.is_equivalent_to(on(mesh, "d"), 2)
    batched = func.vmap(constrained, spmd_axis_name="m")(x)
    assert batched.sharding.is_equivalent_to(on(mesh, "m", "d"), 2)
    put = ftrans.from_jax(lambda v: jax.device_put((v * 2, v), on(mesh, "m")))
    assert [y.sharding.is_equivalent_to(on(mesh, "m"), 2) for y in put(x)] == [True, True]
    reshard = ftrans.from_jax(lambda v: jax.sharding.reshard(v * 2, P("d")))
    for around in (explicit, mesh_of("lines", AxisType.Explicit)):
        with jax.set_mesh(around):
            assert reshard(x).sharding == on(around, "d")


def test_external_functions_get_whole_arrays() -> None:
    x = jax.device_put(X, on(mesh_of("lines", AxisType.Auto), "d"))
    seen = []

    def host(v: Any) -> Any:
        seen.append((type(v), v.shape))
        return np.sin(v)

    called = ftrans.external(host, jax.ShapeDtypeStruct((16, 8), "float32"))
    np.testing.assert_allclose(func.vjp(lambda v: called(v) * 2, x)[0], 2 * np.sin(X), rtol=1e-6)
    assert set(seen) == {(np.ndarray, (16, 8))}


METHODS = ["sequential", "expand_dims", "broadcast_all"]


@pytest.mark.parametrize(("method", "kind"), sampled_rows(itertools.product(METHODS, KINDS), 5))
def test_external_functions_are_called_on_each_part_of_a_batch(method: str, kind: Any) -> None:
    mesh = mesh_of("tiles", kind)
    x, scale = jax.device_put(X, on(mesh, "d")), np.arange(8.0, dtype="float32")
    seen = []

    def host(v: Any, s: Any) -> Any:
        seen.append(v.shape)
        return np.sin(v) * s

    spec = jax.ShapeDtypeStruct((8,), "float32")
    called = ftrans.external(host, spec, vmap_method=method)
    mapped = func.vmap(lambda v, s: called(v * 2, s) + 1, (0, None))
    for _ in range(3):
        seen.clear()
        found = mapped(x, scale)
        np.testing.assert_allclose(found, np.sin(2 * X) * scale + 1, rtol=1e-5)
        assert found.sharding.is_equivalent_to(on(mesh, "d"), 2)
        assert found.sharding.mesh == mesh
        assert seen == ([(8,)] * 16 if method == "sequential" else [(4, 8)] * 4)
    # along another axis it is given whole
    across = jax.device_put(X, on(mesh, None, "m"))
    np.testing.assert_allclose(mapped(across, scale), np.sin(2 * X) * scale + 1, rtol=1e-5)
    twice = func.vmap(func.vmap(called, (0, None)), (0, None))(x.reshape(4, 4, 8), scale)
    np.testing.assert_allclose(np.asarray(twice).reshape(16, 8), np.sin(X) * scale, rtol=1e-5)


def test_cotangents_lie_as_values_do() -> None:
    mesh, x = mesh_of("tiles", AxisType.Auto), jnp.asarray(X)
    _, pull = func.vjp(lambda v: ftrans.with_sharding_constraint(v, on(mesh, "d", "m")) * 2, x)
    (found,) = pull(jnp.ones((16, 8)))
    assert found.sharding.is_equivalent_to(on(mesh, "d", "m"), 2)
    assert_close(found, np.full((16, 8), 2.0))


def test_names_and_devices_that_are_none() -> None:
    mesh, x = mesh_of("lines", AxisType.Auto), jnp.asarray(X)
    constrained = lambda v: ftrans.with_sharding_constraint(v, on(mesh))  # noqa: E731
    with pytest.raises(AxisError) as caught:
        func.vmap(constrained, spmd_axis_name="rows")(x)
    assert str(caught.value).startswith(
        "vmap: spmd_axis_name names no axis of the mesh.\n  spmd_axis_name: 'rows'\n"
    )
    put = lambda v: ftrans.device_put(v, "cpu").sum()  # noqa: E731
    for function in (put, func.grad(put)):
        with pytest.raises(ArgumentError) as wrong:
            function(x)
        assert str(wrong.value).startswith(
            "device_put: takes shardings on a mesh, and devices.\n  sharding: 'cpu' (str)\n"
        )


@pytest.mark.filterwarnings("error")
def test_arrays_on_different_devices_do_not_spoil_what_follows() -> None:
    first, second = [jax.device_put(X, device) for device in jax.devices()[1:3]]
    slope = func.grad(lambda v, w: (fnp.sin(v) * w).sum())
    with on_road("compile"):
        for _ in range(2):
            with pytest.raises(ValueError, match="incompatible devices") as caught:
                slope(first, second)
            assert "ftrans: raised when grad(lambda) was run compiled" in caught.value.__notes__[0]
        found = slope(first, first)
    assert found.sharding == first.sharding
    np.testing.assert_allclose(found, np.cos(X) * X, rtol=1e-5)
