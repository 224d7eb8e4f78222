"""What two processes do with arrays of which each has a half: run by `test_distributed.py`."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from examples.distributed.workers import join
from ftrans import func

X = np.arange(32, dtype="float32").reshape(8, 4)
W = np.ones((4, 2), "float32")


def loss(w, x):
    return ((x @ w) ** 2).mean()


def check(kind):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("d",), ()))
    x, w = ftrans.device_put(X, rows), ftrans.device_put(W, whole)
    assert not x.is_fully_addressable
    slope = X.T @ (2 * (X @ W)) / 16
    for _ in range(3):
        np.testing.assert_allclose(func.grad(loss)(w, x), slope, rtol=1e-5)
        np.testing.assert_allclose(ftrans.jit(func.grad(loss))(w, x), slope, rtol=1e-5)
        by_x = func.grad(loss, 1)(w, x)
        assert by_x.sharding.is_equivalent_to(rows, 2)
        assert by_x.sharding.mesh == mesh
    assert float(func.value_and_grad(loss)(w, x)[0]) == pytest.approx(((X @ W) ** 2).mean())
    assert func.vmap(func.grad(loss), (None, 0))(w, x).sharding.is_equivalent_to(rows, 3)
    assert func.grad(lambda v: v.sum() * float(v.sum().detach()))(x).shape == (8, 4)
    total, _ = ftrans.scan(lambda c, r: (c + r, None), w[:, 0] * 0, x)
    np.testing.assert_allclose(total, X.sum(0))
    gathered = lambda v: (ftrans.with_sharding_constraint(v, whole) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(func.grad(gathered)(x), 2 * X)
    leaf = ftrans.tensor(x, requires_grad=True)
    (leaf**2).sum().backward()
    # arrays of NumPy's alone are given, but a part of the result is not here
    assert isinstance(func.vjp(lambda v: x * v, np.ones(4, "float32"))[0], jax.Array)
    # compiled where it is pinned that nothing is, too
    ftrans.config.execution = "interpret"
    assert func.grad(loss, 1)(w, x).sharding.is_equivalent_to(rows, 2)
    ftrans.config.execution = "auto"

    sine = ftrans.external(np.sin, jax.ShapeDtypeStruct((8, 4), "float32"))
    for asks in (
        lambda v: (v * (v.detach() * 2).tolist()[0][0]).sum(),
        lambda v: (v * np.asarray(fnp.sin(v.detach()))).sum(),
        lambda v: sine(v).sum(),
    ):
        with pytest.raises(RuntimeError, match="non-addressable") as caught:
            func.vjp(asks, x)
        assert NOTE in caught.value.__notes__


NOTE = (
    "ftrans: a part of this array lies in another process, and Python has asked for all of it.\n"
    "Reduce it first, as by x.sum(), or have it lie whole on each device:\n"
    "ftrans.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, "
    "jax.sharding.PartitionSpec()))."
)


if __name__ == "__main__":
    join()
    for each in (AxisType.Auto, AxisType.Explicit):
        check(each)
    (Path(sys.argv[1]) / f"{jax.process_index()}").write_text("right")
