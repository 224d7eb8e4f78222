"""The kernels among the examples: their values and derivatives against plain programs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close, sampled

KERNELS = Path(__file__).parents[2] / "examples" / "kernels"
sys.path.append(str(KERNELS))

X = np.array([0.5, -1.0, 2.0])
BATCH = np.stack([X, -X, 2 * X, X + 1])


def weighted(f):
    """Returns a scalar function whose Hessian is full."""
    weights = np.arange(1.0, 4.0)
    return lambda x: (weights * f(x)).sum() ** 2


TRANSFORMS = {
    "value": lambda f: f,
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (x * x,))[1],
    "vjp": lambda f: lambda x: func.vjp(f, x)[1](x * x),
    "grad": lambda f: func.grad(weighted(f)),
    "hessian": lambda f: func.hessian(weighted(f)),
    "jacfwd of jacfwd": lambda f: func.jacfwd(func.jacfwd(weighted(f))),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(weighted(f))),
}


def check(kernel, plain, names=tuple(TRANSFORMS)):
    """Holds a kernel against a plain program: under all transforms, batched, and jitted."""
    for name in names:
        ours, theirs = TRANSFORMS[name](kernel), TRANSFORMS[name](plain)
        assert_close(ours(X), theirs(X))
        assert_close(func.vmap(ours)(BATCH), func.vmap(theirs)(BATCH))
        assert_close(ftrans.jit(func.vmap(ours))(BATCH), func.vmap(theirs)(BATCH))

    def repeated(f):
        return lambda x: ftrans.scan(lambda c, _: (f(c), None), x, None, length=2)[0].sum()

    assert_close(func.grad(repeated(kernel))(X), func.grad(repeated(plain))(X))


def test_numpy_sort():
    from numpy_sort import sort

    check(sort, fnp.sort)
    # what the documents of others get wrong: the last axis of a batch
    assert_close(sort(BATCH), np.sort(BATCH, axis=-1))
    assert_close(func.vmap(sort, in_dims=1)(BATCH), np.sort(BATCH.T, axis=-1))


def plain_smooth(x):
    powers = 0.9 ** np.maximum(np.subtract.outer(np.arange(3), np.arange(3)), 0)
    return fnp.matmul(np.tril(powers), x)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler"
)
def test_c_through_ctypes():
    from c_kernel import smooth

    check(smooth, plain_smooth)
    assert smooth(np.ones((0, 3))).shape == (0, 3)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "c++")) is None, reason="there is no C++ compiler"
)
def test_c_through_ffi():
    from c_kernel import smooth_in_xla

    check(smooth_in_xla, plain_smooth)
    for method in ("sequential", "expand_dims"):
        call = ftrans.external.ffi(
            "smooth", lambda x: x, vmap_method=method, decay=np.float64(0.9), reverse=False
        )
        assert_close(func.vmap(call)(BATCH), np.stack([plain_smooth(x) for x in BATCH]))


def test_no_compiler_is_said_plainly(monkeypatch):
    import compiled

    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(FileNotFoundError, match=r"smooth\.c.*set CC"):
        compiled.build.__wrapped__("smooth.c")


@pytest.mark.slow
@pytest.mark.parametrize("transform", sampled(["value", "hessian"], 2))
def test_numba(transform):
    pytest.importorskip("numba", reason="numba is not installed")
    from numba_kernel import solve

    lower, upper = np.array([0.0, 0.5, -0.3]), np.array([0.2, -0.4, 0.0])
    reference = ftrans.external.jax(jax.numpy.linalg.solve)

    def matrix(diagonal):
        return fnp.diag(diagonal) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)

    right = np.array([1.0, -2.0, 0.5])
    check(
        lambda x: solve(lower, x + 5.0, upper, right * x),
        lambda x: reference(matrix(x + 5.0), right * x),
        (transform,),  # numba takes a second for each new batch
    )


def test_gradients_by_numba():
    pytest.importorskip("numba", reason="numba is not installed")
    from numba_kernel import solve

    reference = ftrans.external.jax(jax.numpy.linalg.solve)
    rng = np.random.default_rng(0)
    bands = [rng.normal(size=4), rng.normal(size=4) + 5.0, rng.normal(size=4), rng.normal(size=4)]

    def dense(lower, diagonal, upper, b):
        full = fnp.diag(diagonal) + fnp.diag(lower[1:], -1) + fnp.diag(upper[:-1], 1)
        return (reference(full, b) ** 2).sum()

    ours = func.grad(lambda *bands: (solve(*bands) ** 2).sum(), argnums=(0, 1, 2, 3))(*bands)
    for found, expected in zip(ours, func.grad(dense, argnums=(0, 1, 2, 3))(*bands), strict=True):
        assert_close(found, expected)


@pytest.mark.slow
def test_pallas():
    from pallas_kernel import swish

    check(swish, lambda x: x * fnp.sigmoid(x))


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not among the requirements")
    from torch_function import erfcx

    reference = torch.special.erfcx(torch.tensor(X))
    assert_close(erfcx(X), reference.numpy())
    check(erfcx, lambda x: fnp.exp(x * x) * fnp.erfc(x))


def test_each_example_runs_by_itself():
    code = "from numpy_sort import sort; import numpy as np; print(sort(np.array([2.0, 1.0])))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=KERNELS, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["[1.", "2.]"]
