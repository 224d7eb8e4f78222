"""Arrays on meshes of eight devices, with explicit axes and with automatic ones.

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
from tests.helpers import sampled_rows

P = PartitionSpec
KINDS = [AxisType.Auto, AxisType.Explicit]

_rng = np.random.default_rng(0)
WEIGHTS = {
    "up": _rng.normal(size=(16, 32)).astype("float32"),
    "down": _rng.normal(size=(32, 8)).astype("float32"),
}
X = _rng.normal(size=(64, 16)).astype("float32")
Y = _rng.normal(size=(64, 8)).astype("float32")

LAYOUTS = {
    "by data": ({"up": P(), "down": P()}, P("d"), P("d")),
    "by weights": ({"up": P(None, "m"), "down": P("m", None)}, P(), P()),
    "by both": ({"up": P(None, "m"), "down": P("m", None)}, P("d"), P("d")),
    "along two axes": ({"up": P(("d", "m")), "down": P()}, P("d", "m"), P()),
}


def mesh_of(kind: Any) -> Any:
    return jax.make_mesh((4, 2), ("d", "m"), axis_types=(kind, kind))


def loss_by(xp: Any) -> Callable[..., Any]:
    return lambda w, x, y: ((xp.tanh(x @ w["up"]) @ w["down"] - y) ** 2).mean()


def placed(kind: Any, layout: str) -> Any:
    mesh = mesh_of(kind)
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
    specs, of_x, of_y = LAYOUTS[layout]
    return {name: put(WEIGHTS[name], specs[name]) for name in WEIGHTS}, put(X, of_x), put(Y, of_y)


WAYS: dict[str, Callable[[Any], Any]] = {
    "un-jitted": func.grad,
    "jitted": lambda f: ftrans.jit(func.grad(f)),
    "value and gradient": lambda f: lambda *args: func.value_and_grad(f)(*args)[1],
    "from_jax": lambda f: func.grad(ftrans.from_jax(loss_by(jnp))),
}


@pytest.mark.parametrize(
    ("kind", "layout", "way"), sampled_rows(itertools.product(KINDS, LAYOUTS, WAYS), 5)
)
def test_gradients_are_right_and_lie_where_jax_puts_them(kind: Any, layout: str, way: str) -> None:
    given = placed(kind, layout)
    function = WAYS[way](loss_by(fnp))
    expected = jax.jit(jax.grad(loss_by(jnp)))(*placed(AxisType.Auto, layout))
    for _ in range(3):
        found = function(*given)
        for name, x in found.items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-4, atol=1e-6)
            assert x.sharding.mesh.axis_types == (kind, kind)
            assert x.sharding.is_equivalent_to(expected[name].sharding, x.ndim)


def test_explicit_arrays_after_others_beside_numpy_and_in_a_mesh_that_is_set() -> None:
    explicit = placed(AxisType.Explicit, "by both")
    expected = jax.grad(loss_by(jnp))(WEIGHTS, X, Y)
    jitted = ftrans.jit(func.grad(loss_by(fnp)))
    plain = jax.tree.map(jnp.asarray, (WEIGHTS, X, Y))
    for _ in range(4):
        jitted(*plain)
    w, x, _ = explicit
    with jax.set_mesh(mesh_of(AxisType.Explicit)):
        inside = [jitted(*explicit), func.grad(loss_by(fnp))(*explicit)]
        inside.append(func.grad(loss_by(fnp))(WEIGHTS, X, Y))
    for found in [jitted(*explicit), func.grad(loss_by(fnp))(w, x, Y), *inside]:
        for name, slope in found.items():
            np.testing.assert_allclose(slope, expected[name], rtol=1e-4, atol=1e-6)
    assert jitted(*plain)["up"].sharding.device_set == {jax.devices()[0]}


def test_one_operation_at_once_loops_precision_and_tensors() -> None:
    _, x, y = placed(AxisType.Explicit, "by data")
    np.testing.assert_allclose(fnp.matmul(x.T, y), X.T @ Y, rtol=1e-3, atol=1e-4)
    squares = lambda v: ftrans.scan(lambda c, r: (c + (r**2).sum(), None), fnp.zeros(()), v)[0]  # noqa: E731
    np.testing.assert_allclose(func.grad(squares)(x), 2 * X, rtol=1e-5)
    with jax.enable_x64(True):
        double = jax.device_put(X.astype("float64"), x.sharding)
    slope = func.grad(lambda v: (v**3).sum())(double)
    assert slope.dtype == np.float64
    np.testing.assert_allclose(slope, 3 * X.astype("float64") ** 2, rtol=1e-12)
    leaf = ftrans.tensor(x, requires_grad=True)
    (leaf.tanh() @ ftrans.tensor(WEIGHTS["up"])).sum().backward()
    expected = jax.grad(lambda v: (jnp.tanh(v) @ WEIGHTS["up"]).sum())(X)
    np.testing.assert_allclose(leaf.grad, expected, rtol=1e-4, atol=1e-5)


def test_what_jax_traces_follows_its_own_rules() -> None:
    w, x, y = placed(AxisType.Explicit, "by data")
    with pytest.raises(Exception, match="ambiguous how the output should be sharded"):
        jax.jit(func.grad(loss_by(fnp)))(w, x, y)
