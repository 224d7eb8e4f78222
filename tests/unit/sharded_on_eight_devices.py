"""`shard_map` and collectives on meshes of eight devices, against JAX's and against one device.

`test_meshes.py` has this file run in a process that has so many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from ftrans import func, nn
from ftrans.errors import ArgumentError, AxisError, FtransError, ShapeError, StructureError
from ftrans.scipy import special

P = PartitionSpec
MESH = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("d", "m"))
_rng = np.random.default_rng(0)
W = _rng.normal(size=(6, 8))
X = _rng.normal(size=(16, 6))
C = _rng.normal(size=(16, 8))


@pytest.fixture(autouse=True)
def double() -> Any:
    with jax.enable_x64(True):
        yield


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def layer(m: Any, xp: Any) -> Callable[..., Any]:
    """Is a layer whose weights are cut by columns, and whose examples are cut."""

    def function(w: Any, x: Any) -> Any:
        y = xp.tanh(x @ w)
        return m.psum((y**2).sum(), ("d", "m")), m.all_gather(y, "m", axis=1, tiled=True)

    return function


SPECS: dict[str, Any] = {"in_specs": (P(None, "m"), P("d")), "out_specs": (P(), P("d"))}
ours = ftrans.shard_map(layer(ftrans, fnp), mesh=MESH, **SPECS)
theirs = jax.shard_map(layer(lax, jnp), mesh=MESH, **SPECS, check_vma=False)


def loss(of: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    def function(w: Any, x: Any) -> Any:
        total, y = of(w, x)
        return total**2 * 1e-3 + (xp.sin(y) * C).sum()

    return function


def on_one_device(w: Any, x: Any) -> Any:
    y = jnp.tanh(x @ w)
    return (y**2).sum(), y


def test_values_and_derivatives_are_those_of_one_device() -> None:
    found = ours(W, X)
    assert [type(x) for x in found] == [np.ndarray] * 2
    jax.tree.map(close, found, on_one_device(W, X))
    slopes = jax.jit(jax.grad(loss(on_one_device, jnp), argnums=(0, 1)))(W, X)
    grad = ftrans.grad(loss(ours, fnp), argnums=(0, 1))
    jax.tree.map(close, grad(W, X), slopes)
    jax.tree.map(close, ftrans.jit(grad)(W, X), slopes)


@pytest.mark.slow
def test_a_gradient_of_a_gradient() -> None:
    v = np.cos(W)
    plain, sharded = jax.grad(loss(on_one_device, jnp)), ftrans.grad(loss(ours, fnp))
    product = jax.jit(lambda w: jax.jvp(lambda w: plain(w, X), (w,), (v,))[1])(W)
    close(ftrans.grad(lambda w: (sharded(w, X) * v).sum())(W), product)


@pytest.mark.slow
def test_jax_transforms_it_and_what_is_made_of_it() -> None:
    slopes = jax.jit(jax.grad(loss(on_one_device, jnp), argnums=(0, 1)))(W, X)
    grad = ftrans.grad(loss(ours, fnp), argnums=(0, 1))
    jax.tree.map(close, jax.jit(grad)(W, X), slopes)
    jax.tree.map(close, jax.grad(loss(ours, jnp), argnums=(0, 1))(W, X), slopes)
    jax.tree.map(close, jax.jit(jax.grad(loss(theirs, jnp), argnums=(0, 1)))(W, X), slopes)


def test_higher_derivatives_and_batches() -> None:
    v = np.cos(W)
    plain, sharded = jax.grad(loss(on_one_device, jnp)), ftrans.grad(loss(ours, fnp))
    product = jax.jit(lambda w: jax.jvp(lambda w: plain(w, X), (w,), (v,))[1])(W)
    close(func.jvp(lambda w: sharded(w, X), (W,), (v,))[1], product)
    many = np.stack([W, v, W + v])
    expected = jax.jit(jax.vmap(lambda w: plain(w, X)))(many)
    close(ftrans.vmap(lambda w: sharded(w, X))(many), expected)
    by_last = ftrans.vmap(lambda w: ours(w, X)[1], in_dims=2, out_dims=1)(np.moveaxis(many, 0, 2))
    close(by_last, np.tanh(X @ many).swapaxes(0, 1))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_results_lie_where_they_are_said_to(kind: Any) -> None:
    mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(kind, kind))
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
    w, x = put(W, P(None, "m")), put(X, P("d"))
    sharded = ftrans.shard_map(layer(ftrans, fnp), mesh=mesh, **SPECS)
    expected = jax.grad(loss(on_one_device, jnp), argnums=(0, 1))(W, X)
    for _ in range(2):
        total, y = sharded(w, x)
        assert y.sharding == NamedSharding(mesh, P("d"))
        assert total.sharding.is_equivalent_to(NamedSharding(mesh, P()), 0)
        jax.tree.map(close, (total, y), on_one_device(W, X))
    slopes = ftrans.grad(loss(sharded, fnp), argnums=(0, 1))(w, x)
    jax.tree.map(close, slopes, expected)
    assert slopes[0].sharding.is_equivalent_to(w.sharding, 2)
    assert slopes[1].sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_that_is_set_and_one_that_jax_traces_on(kind: Any) -> None:
    mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(kind, kind))
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
    w, x = put(W, P(None, "m")), put(X, P("d"))
    sharded = ftrans.shard_map(layer(ftrans, fnp), mesh=mesh, **SPECS)
    with jax.set_mesh(mesh):
        found = ftrans.shard_map(layer(ftrans, fnp), **SPECS)
        for given in ((W, X), (w, x)):
            jax.tree.map(close, found(*given), on_one_device(W, X))
        jax.tree.map(close, jax.jit(found)(w, x), on_one_device(W, X))
    if kind is AxisType.Explicit:
        jax.tree.map(close, jax.jit(sharded)(w, x), on_one_device(W, X))


RING = [(i, (i + 1) % 4) for i in range(4)]

COLLECTIVES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "psum": (lambda m, x: m.psum(x, "d"), P(None, "m")),
    "psum, both": (lambda m, x: m.psum(x, ("d", "m")), P()),
    "pmean": (lambda m, x: x * m.pmean(x, "m"), P("d", "m")),
    "all_gather": (lambda m, x: m.all_gather(x, "d"), P(None, None, "m")),
    "all_gather, both": (lambda m, x: m.all_gather(x[0], ("d", "m"), tiled=True), P()),
    "psum_scatter": (
        lambda m, x: m.psum_scatter(x, "d", scatter_dimension=1, tiled=True),
        P(None, ("m", "d")),
    ),
    "psum_scatter, both": (lambda m, x: m.psum_scatter(x.T, ("d", "m"), tiled=True), P(("d", "m"))),
    "all_to_all": (lambda m, x: m.all_to_all(x, "d", 0, 1, tiled=True), P("d", "m")),
    "all_to_all, whole": (lambda m, x: m.all_to_all(x, "d", 0, 0), P("d", "m")),
    "ppermute": (lambda m, x: x * m.ppermute(x, "d", RING), P("d", "m")),
    "ppermute, in part": (lambda m, x: m.ppermute(x, "d", [(0, 2), (3, 1)]), P("d", "m")),
    "axis_index": (lambda m, x: x * m.axis_index("d") + m.axis_index(("d", "m")), P("d", "m")),
    "axis_size": (lambda m, x: x / m.axis_size(("d", "m")), P("d", "m")),
}


@pytest.mark.parametrize("where", ["outside", pytest.param("inside", marks=pytest.mark.slow)])
def test_collectives_and_their_derivatives_are_those_of_jax(where: str) -> None:
    x = _rng.normal(size=(16, 16))

    def every(m: Any, make: Any, sin: Any) -> Any:
        """Returns all of them as one function, and the gradients of all outside and inside."""

        def whole(case: str) -> Any:
            function, spec = COLLECTIVES[case]
            body = lambda x: function(m, x)  # noqa: E731
            return make(body, mesh=MESH, in_specs=P("d", "m"), out_specs=spec, check_vma=False)

        def slope(case: str, grad: Any) -> Any:
            return grad(lambda x: sin(whole(case)(x)).sum())

        def inside(case: str, grad: Any) -> Any:
            function, _ = COLLECTIVES[case]
            own = grad(lambda x: sin(function(m, x)).sum())
            return make(
                own, mesh=MESH, in_specs=P("d", "m"), out_specs=P("d", "m"), check_vma=False
            )

        def function(x: Any, grad: Any) -> Any:
            taken = slope if where == "outside" else inside
            return {case: (whole(case)(x), taken(case, grad)(x)) for case in COLLECTIVES}

        return function

    expected = jax.jit(lambda x: every(lax, jax.shard_map, jnp.sin)(x, jax.grad))(x)
    jitted = ftrans.jit(lambda x: every(ftrans, ftrans.shard_map, fnp.sin)(x, ftrans.grad))(x)
    for case, values in jitted.items():
        for found, value in zip(values, expected[case], strict=True):
            np.testing.assert_allclose(found, value, 1e-10, 1e-12, err_msg=case)


def test_extrema() -> None:
    x = np.array([3.0, 1.0, 3.0, 2.0])
    most = ftrans.shard_map(
        lambda x: ftrans.pmax(x.max(), "d") - ftrans.pmin(x.min(), "d"),
        mesh=MESH,
        in_specs=P("d"),
        out_specs=P(),
    )
    close(most(x), 2.0)
    close(ftrans.grad(most)(x), [0.5, -1.0, 0.5, 0.0])


def test_loops_branches_captured_arrays_and_rules() -> None:
    weight = np.array([0.5, 2.0])

    @ftrans.custom_vjp
    def scaled(x: Any) -> Any:
        return x * ftrans.psum(x, "d").sum()

    scaled.defvjp(lambda x: (scaled(x), x), lambda x, ct: (ct * 0 + ftrans.psum(ct.sum(), "d"),))

    def body(x: Any) -> Any:
        def step(c: Any, w: Any) -> Any:
            c = fnp.tanh(c * w + ftrans.ppermute(c, "d", RING))
            return c, ftrans.psum(c, "d")

        last, sums = ftrans.scan(step, x, weight)
        last = ftrans.cond(sums.sum() > 0, lambda v: v * ftrans.psum(v, "d"), fnp.sin, last)
        return last + scaled(x), sums

    sharded = ftrans.shard_map(body, mesh=MESH, in_specs=P("d"), out_specs=(P("d"), P()))

    def plain(x: Any) -> Any:
        roll = lambda c: jnp.roll(c, x.shape[0] // 4)  # noqa: E731
        sums = []
        c = x
        for w in weight:
            c = jnp.tanh(c * w + roll(c))
            sums.append(c.reshape(4, -1).sum(0))
        total = jnp.tile(c.reshape(4, -1).sum(0), 4)
        c = jnp.where(sum(s.sum() for s in sums) > 0, c * total, jnp.sin(c))
        return c + x * x.sum(), jnp.stack(sums)

    x = np.linspace(-1.0, 2.0, 8)
    apart = lambda f: lambda x: ((f(x)[1] ** 2).sum(), f(x))  # noqa: E731
    both = ftrans.jit(ftrans.value_and_grad(apart(sharded), has_aux=True))(x)
    jax.tree.map(close, both, jax.jit(jax.value_and_grad(apart(plain), has_aux=True))(x))
    # by the rule, each gets the sum of all cotangents
    first = ftrans.shard_map(scaled, mesh=MESH, in_specs=P("d"), out_specs=P("d"))
    close(ftrans.grad(lambda x: first(x)[0])(x), np.ones(8))


def test_named_axes_of_both_kinds_nest() -> None:
    x = _rng.normal(size=(3, 8))
    row = ftrans.shard_map(
        lambda x: ftrans.psum(x, ("e", "d")) + ftrans.axis_index("e"),
        mesh=MESH,
        in_specs=P("d"),
        out_specs=P(),
    )
    found = ftrans.vmap(row, axis_name="e")(x)
    close(found, np.tile(x.sum(0).reshape(4, 2).sum(0), (3, 1)) + np.arange(3)[:, None])
    # a name of the mesh hides that of a vmap around it, and is hidden by one inside
    hidden = ftrans.shard_map(
        lambda x: (
            ftrans.psum(x, "d") + ftrans.vmap(lambda v: ftrans.psum(v, "d"), axis_name="d")(x).sum()
        ),
        mesh=MESH,
        in_specs=P("d"),
        out_specs=P("d"),
        check_vma=False,
    )
    parts = x.reshape(3, 4, 2)
    expected = parts.sum(1, keepdims=True) + 2 * parts.sum(2, keepdims=True)
    close(ftrans.vmap(hidden, axis_name="d")(x), expected.reshape(3, 8))


def test_some_axes_are_left_to_xla_and_shard_maps_nest() -> None:
    x = _rng.normal(size=(8, 4))
    partial = ftrans.shard_map(
        lambda x: ftrans.psum(x @ x.T, "d"),
        mesh=MESH,
        in_specs=P(None, "d"),
        out_specs=P(),
        axis_names={"d"},
    )
    close(partial(x), x @ x.T)
    close(ftrans.grad(lambda x: (partial(x) ** 2).sum())(x), 4 * (x @ x.T) @ x)

    def outer(x: Any) -> Any:
        inner = ftrans.shard_map(
            lambda v: ftrans.psum(v, "m"),
            mesh=MESH,
            in_specs=P(None, "m"),
            out_specs=P(),
            axis_names={"m"},
        )
        return ftrans.psum(inner(x), "d")

    nested = ftrans.shard_map(outer, mesh=MESH, in_specs=P("d"), out_specs=P(), axis_names={"d"})
    whole = lambda x: x.reshape(4, 2, 2, 2).sum((0, 2))  # noqa: E731
    close(nested(x), whole(x))
    slope = ftrans.grad(lambda x: (nested(x) ** 2).sum())(x)
    close(slope, jax.grad(lambda x: (whole(x) ** 2).sum())(x))


def test_a_batch_lies_along_the_axis_that_it_is_said_to() -> None:
    x = jax.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(MESH, P("d", None)))
    cut: Any = {"mesh": MESH, "in_specs": P("m"), "out_specs": P()}
    mine = ftrans.shard_map(lambda v: ftrans.psum(fnp.sin(v) * v, "m"), **cut)
    other = jax.shard_map(lambda v: lax.psum(jnp.sin(v) * v, "m"), **cut)
    slope = func.grad(lambda v: (mine(v) ** 2).sum())
    slope_of_other = jax.grad(lambda v: (other(v) ** 2).sum())
    for f, g in ((mine, other), (slope, slope_of_other)):
        expected = jax.jit(jax.vmap(g, spmd_axis_name="d"))(x)
        batched = func.vmap(f, spmd_axis_name="d")
        for function in (batched, ftrans.jit(batched), jax.jit(ftrans.to_jax(batched))):
            found = function(x)
            close(found, expected)
            assert found.sharding.is_equivalent_to(expected.sharding, found.ndim)
        code = jax.jit(ftrans.to_jax(batched)).lower(x).compile().as_text()
        assert "all-gather" not in code
    # where values lie along it already, or there is no other axis, all is as it was
    for of in ({"in_specs": P("d"), "out_specs": P("d")}, {"in_specs": P(), "out_specs": P()}):
        lines = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
        for mesh in (MESH, lines):
            f = ftrans.shard_map(fnp.sin, mesh=mesh, **of)
            close(func.vmap(f, spmd_axis_name="d")(x), jnp.sin(x))


def test_calls_of_python_are_made_by_each_device() -> None:
    seen = []

    def doubled(x: np.ndarray) -> np.ndarray:
        seen.append(x.shape)
        return 2 * x

    call = ftrans.external(doubled, ftrans.ArrayType((2,), "float64"))
    sharded = ftrans.shard_map(call, mesh=MESH, in_specs=P(("d", "m")), out_specs=P(("d", "m")))
    x = np.arange(16.0)
    close(sharded(x), 2 * x)
    assert (2,) in seen
    assert (16,) not in seen


def test_tensors_and_checks() -> None:
    leaf = ftrans.tensor(X, requires_grad=True)
    total, _ = ours(ftrans.tensor(W), leaf)
    total.backward()
    close(leaf.grad, jax.grad(lambda x: on_one_device(W, x)[0])(X))
    for setting in ("check", "check_nan"):
        before = getattr(ftrans.config, setting)
        setattr(ftrans.config, setting, True)
        try:
            jax.tree.map(close, ours(W, X), on_one_device(W, X))
        finally:
            setattr(ftrans.config, setting, before)
    before = ftrans.config.execution
    ftrans.config.execution = "interpret"
    try:
        close(ftrans.grad(loss(ours, fnp))(W, X), jax.grad(loss(on_one_device, jnp))(W, X))
    finally:
        ftrans.config.execution = before


# --------------------------------------------------------------------------------------- errors


def raised(kind: type[FtransError], function: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        ftrans.shard_map(function, **{"mesh": MESH, **options})(*args)
    return str(caught.value)


def same(x: Any) -> Any:
    return x


def test_specs_that_do_not_fit() -> None:
    with_x = {"out_specs": P("d")}
    assert raised(AxisError, same, X, in_specs=P("rows"), **with_x) == (
        "shard_map(same): in_specs names an axis that the mesh does not have.\n"
        "  x: P('rows',) for f64[16,6]\n  mesh: 'd' of size 4, 'm' of size 2\n"
        "  Write one of 'd', 'm', or None where it is not cut."
    )
    assert raised(AxisError, same, X, in_specs=P("m"), axis_names={"d"}, **with_x) == (
        "shard_map(same): in_specs names an axis that axis_names does not have.\n"
        "  x: P('m',) for f64[16,6]\n  mesh: 'd' of size 4, 'm' of size 2\n"
        "  Write one of 'd', or None where it is not cut."
    )
    assert raised(ShapeError, same, X, in_specs=P(None, "d"), **with_x) == (
        "shard_map(same): an axis cannot be cut into equal parts.\n"
        "  x: axis 1 of f64[16,6] has size 6\n  in_specs cuts it into 4 along 'd'\n"
        "  Pad it to a multiple of 4, or cut another axis."
    )
    assert raised(AxisError, same, X, in_specs=P("d", None, "m"), **with_x) == (
        "shard_map(same): in_specs has entries for more axes than there are.\n"
        "  x: P('d', None, 'm') for f64[16,6]\n  Give it at most 2."
    )
    assert raised(AxisError, same, X, in_specs=P("d", "d"), **with_x) == (
        "shard_map(same): in_specs cuts two axes along the same axis of the mesh.\n"
        "  x: P('d', 'd') for f64[16,6]\n  Name each axis once."
    )
    assert raised(StructureError, same, X, in_specs=(P(), P()), **with_x) == (
        "shard_map(same): in_specs does not fit the structure of the arguments.\n"
        "  in_specs: (P(), P())\n  arguments: (f64[16,6],)\n"
        "  Use the same containers, or one PartitionSpec for all that is in them."
    )
    assert raised(StructureError, same, X, in_specs=P(), out_specs=(P(), P())) == (
        "shard_map(same): out_specs does not fit the structure of the result.\n"
        "  out_specs: (P(), P())\n  result: f64[16,6]\n"
        "  Use the same containers, or one PartitionSpec for all that is in them."
    )
    assert raised(StructureError, same, X, in_specs=("d",), **with_x) == (
        "shard_map(same): the entries of in_specs are PartitionSpecs.\n  x: 'd' (str)\n"
        "  Write PartitionSpec() for what is whole on each device."
    )
    assert raised(ArgumentError, same, X, in_specs=P("d"), out_specs=P()) == (
        "shard_map(same): out_specs leaves out an axis along which a result may differ.\n"
        "  result: f64[4,6] on each device, along 'd'\n"
        "  Name the axis in out_specs, or go over it with psum, pmax or all_gather; where it is\n"
        "  the same for another reason, pass check_vma=False."
    )


def test_meshes_and_names_that_are_not_there() -> None:
    specs = {"in_specs": P("d"), "out_specs": P("d")}
    assert raised(AxisError, same, X, axis_names={"rows"}, **specs) == (
        "shard_map(same): axis_names names an axis that the mesh does not have.\n"
        "  axis_names: 'rows'\n  mesh: 'd' of size 4, 'm' of size 2\n"
        "  Leave axis_names out to go over all of them."
    )
    assert raised(ArgumentError, same, X, mesh=None, **specs) == (
        "shard_map(same): there is no mesh.\n"
        "  Pass mesh=jax.make_mesh(shape, names), or set one: with jax.set_mesh(mesh)."
    )
    assert raised(ArgumentError, same, X, mesh=8, **specs) == (
        "shard_map(same): mesh must be a jax.sharding.Mesh.\n  mesh: 8 (int)\n"
        "  Make one with jax.make_mesh(shape, names)."
    )
    for names, shown in ((3, "3 (int)"), (None, "None (NoneType)"), ([["d"]], "[['d']]")):
        assert raised(ArgumentError, same, X, axis_names=names, **specs) == (
            f"shard_map(same): axis_names is a set of names.\n  axis_names: {shown}\n"
            "  Leave it out to go over all axes of the mesh: 'd' of size 4, 'm' of size 2."
        )
    message = raised(AxisError, lambda x: ftrans.psum(x, "m"), X, axis_names={"d"}, **specs)
    assert message.startswith(
        "psum: no mapped axis is called 'm'.\n  axes here: 'd' of size 4\n  used at "
    )


def test_arguments_have_no_names() -> None:
    with pytest.raises(StructureError) as caught:
        ftrans.shard_map(same, mesh=MESH, in_specs=P("d"), out_specs=P("d"))(x=X, n=2)
    assert str(caught.value) == (
        "shard_map(same): arguments have no names here, since in_specs goes by their order.\n"
        "  x: f64[16,6]\n  n: 2 (int)\n  Pass them by position."
    )


def test_keys_of_jax_are_taken_as_their_words() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    x = np.ones(4, np.float32)
    expected = jax.vmap(lambda key: jax.random.uniform(key, dtype=jnp.float32))(keys)
    each = {"mesh": MESH, "in_specs": (P("d"), P("d")), "out_specs": P("d")}

    @ftrans.shard_map(**each)
    def drawn(key: Any, x: Any) -> Any:
        return x * ftrans.random.uniform(key[0], (1,), np.float32)

    close(drawn(keys, x), expected)
    close(jax.jit(drawn)(keys, x), expected)
    close(func.grad(lambda x: drawn(keys, x).sum())(x), expected)
    parts = {"mesh": MESH, "in_specs": P("d"), "out_specs": P("d")}

    def captured(keys: Any, x: Any) -> Any:
        own = lambda x: x * ftrans.random.uniform(keys[1], (1,), np.float32)  # noqa: E731
        return ftrans.shard_map(own, **parts)(x)

    for run in (captured, jax.jit(captured)):
        close(run(keys, x), np.full(4, expected[1]))
    returned = ftrans.shard_map(lambda key: key, **parts)(keys)
    close(returned, jax.random.key_data(keys))


def test_what_is_the_same_along_an_axis_is_known() -> None:
    def shown(function: Any, **options: Any) -> Any:
        return ftrans.shard_map(function, mesh=MESH, in_specs=P("d"), out_specs=P(), **options)

    x = np.arange(4.0)
    total = lambda x: ftrans.psum(x, "d")  # noqa: E731
    looped = lambda x: ftrans.fori_loop(0, 3, lambda i, c: c + total(x), 0 * total(x))  # noqa: E731
    close(shown(looped)(x), [18.0])
    close(shown(lambda x: ftrans.cond(total(x)[0] > 0, total, lambda x: 0 * total(x), x))(x), [6.0])
    for differs in (
        lambda x: total(x) + ftrans.axis_index("d"),
        lambda x: ftrans.ppermute(total(x), "d", RING),
        lambda x: ftrans.while_loop(lambda c: c[0] < x[0], lambda c: c + 1, total(x)),
        lambda x: ftrans.cond(x[0] > 0, lambda c: c, lambda c: 2 * c, total(x)),
        lambda x: ftrans.scan(lambda c, _: (total(x) + c, None), x, None, length=2)[0],
    ):
        with pytest.raises(ArgumentError, match="leaves out an axis along which a result may"):
            shown(differs)(x)
    close(shown(lambda x: ftrans.ppermute(total(x), "d", RING), check_vma=False)(x), [6.0])


PUT = NamedSharding(MESH, P("d"))
ON_EACH = jax.device_put(np.zeros((32, 64)), PUT)
OF_CONTAINER = ftrans.jit(lambda d: 2 * d["x"])
SEEN: dict[str, Any] = {
    "shard_map": ftrans.shard_map(lambda x: 2 * x, mesh=MESH, in_specs=P("d"), out_specs=P("d")),
    "jit": ftrans.jit(lambda x: 2 * x),
    "jit, in a container": lambda x: OF_CONTAINER({"x": x}),
    "gradient": func.grad(lambda x: (x * x).sum()),
    "device_put": lambda x: 2 * np.asarray(ftrans.device_put(x, PUT)),
    "device_put, on one": lambda x: 2 * np.asarray(ftrans.device_put(x)),
    "asarray": lambda x: 2 * np.asarray(fnp.asarray(x, device=jax.devices()[0])),
    "with what is sharded": lambda x: fnp.add(2 * ON_EACH, fnp.multiply(2, x)),
    "interpreted": lambda x: func.vmap(lambda a, b: a + 2 * b)(ON_EACH, x),
    "of jax.lax": lambda x: 2 * x * special.erfc(x) / special.erfc(1 * x),
    "convolution": lambda x: 2 * nn.conv1d(x, np.eye(32)[:, :, None]),
    "formula": lambda x: 2 * np.asarray(nn.leaky_relu(x)),
}
"""Functions that double what they are given, by ways through JAX."""


@pytest.mark.parametrize("double_of", SEEN.values(), ids=SEEN)
def test_arrays_that_jax_has_seen_in_single_precision_keep_theirs(double_of: Any) -> None:
    with jax.enable_x64(False):
        for number in range(30):  # JAX shares memory with some of them
            x = np.full((32, 64), number / 10 + 0.1)
            seen = jax.device_put(x, PUT)
            for _ in range(3):
                close(double_of(x), 2 * x)
            assert seen.dtype == np.float32
