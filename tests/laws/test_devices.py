"""What is computed where arrays of JAX's lie is what NumPy computes; the device is JAX's first.

On a machine with an accelerator that is one: `python -m pytest tests/laws/test_devices.py -m ""`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
import ftrans.scipy.special as special
from ftrans import func, nn, random
from ftrans import primitives as p
from ftrans.ir.dtype import bfloat16
from ftrans.primitives.record import registry
from ftrans.runtime import run
from tests.helpers import assert_close, on_road, sampled
from tests.laws.test_primitives import beside, in_turn

TOLERANCES = {"float64": 1e-9, "complex128": 1e-9, "float32": 2e-4, "complex64": 2e-4}
"""An accelerator has other functions and orders of sums than NumPy."""

(DEVICE, *_) = jax.devices()

DTYPES = [np.dtype(name) for name in ("bool", "int32", "uint8", "float32", "float64", "complex64")]


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """Products are in the precision of their operands, which some accelerators do not give."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def placed(values: Any) -> Any:
    return jax.tree.map(lambda x: jax.device_put(jnp.asarray(x), DEVICE), values)


def assert_placed(found: Any, expected: Any, what: str = "") -> None:
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, jax.Array)
        assert x.devices() == {DEVICE}, what
        y = np.asarray(y)
        assert x.dtype == y.dtype, what
        narrow = 0.05 if y.dtype == bfloat16 else 0.01
        tolerance = 0.0 if y.dtype.kind in "biu" else TOLERANCES.get(y.dtype.name, narrow)
        assert_close(x, y, tolerance, what)


# ---------------------------------------------------------------------------------- primitives

APART = {
    "eig": "vectors have any phase",
    "eigh": "vectors have any phase",
    "svd": "vectors have any phase",
    "qr": "columns have any sign",
    "householder_product": "is of what `qr` gives",
    "schur": "vectors have any phase",
    "iota": "takes no arrays",
    "table": "takes no arrays",
    "missing": "raises",
    "bitcast": "floats that are NaN have several bits",
}
"""Primitives that are left out, and why."""


NAMES = sorted(registry.keys() - APART.keys())
"""On a CPU the other laws hold them, so that it is seen here that the test works."""


@pytest.mark.slow
@pytest.mark.parametrize("road", ["interpret", "compile"])
@pytest.mark.parametrize("name", NAMES[::8] if DEVICE.platform == "cpu" else NAMES)
def test_primitives(name: str, road: str) -> None:
    # cuDNN has no convolutions of integers
    floats = name == "conv" and DEVICE.platform != "cpu"
    dtypes = [dtype for dtype in DTYPES if dtype.kind not in "biu" or not floats]
    program, arrays = beside(registry[name], in_turn(registry[name], dtypes))
    with on_road("interpret"):
        expected = run(program, arrays)
    with on_road(road):
        assert_placed(run(program, placed(arrays)), expected, str(program))


# ----------------------------------------------------------------------------------- functions

G = np.random.default_rng(0)
A = G.normal(size=(5, 5))
S = A @ A.T + np.eye(5)
B = G.normal(size=(3, 5, 5))
V = G.normal(size=5)
POSITIVE = np.abs(V) + 0.5
IMAGES, KERNEL = G.normal(size=(2, 3, 8, 8)), G.normal(size=(4, 3, 3, 3))
la = fnp.linalg


def process(x: Any, y: Any) -> Any:
    """Returns the logarithm of the likelihood of a Gaussian process."""
    kernel = fnp.exp(-0.5 * (x[:, None] - x[None]) ** 2) + 0.1 * np.eye(5)
    return y @ la.solve(kernel, y) + fnp.log(fnp.diagonal(la.cholesky(kernel))).sum()


def filtered(x: Any, y: Any) -> Any:
    """Returns what a recursion over steps comes to."""

    def step(carry: Any, z: Any) -> Any:
        carry = fnp.tanh(x @ carry + z)
        return carry, (carry**2).sum()

    return ftrans.scan(step, y, y)[1].sum()


def doubled(x: Any) -> Any:
    """Returns it as often doubled as it takes."""
    return ftrans.while_loop(lambda c: fnp.sum(c) < 50, lambda c: c * 2, x, max_steps=9)


def written(x: Any) -> Any:
    """Writes to each row, through a view."""

    def one(row: Any) -> Any:
        y = row * 1
        y[1:3][0] = 0.0
        return y * V

    return func.vmap(one)(x)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "process": (process, (V, POSITIVE)),
    "filter": (filtered, (A / 3, V)),
    "det": (la.det, (A,)),
    "singular det": (la.det, (A - A.mean(0),)),
    "slogdet": (lambda a: la.slogdet(a)[1], (B,)),
    "inv": (la.inv, (B,)),
    "pinv": (la.pinv, (G.normal(size=(5, 3)),)),
    "lstsq": (lambda a, b: la.lstsq(a, b)[0], (G.normal(size=(5, 3)), V)),
    "eigvalsh": (la.eigvalsh, (S,)),
    "eigh": (lambda a: fnp.abs(la.eigh(a)[1]), (S,)),
    "svdvals": (la.svdvals, (B,)),
    "svd": (lambda a: fnp.abs(la.svd(a)[0]), (A,)),
    "qr": (lambda a: fnp.abs(la.qr(a)[1]), (A,)),
    "nuclear norm": (lambda a: la.norm(a, "nuc"), (A,)),
    "expm": (ftrans.scipy.linalg.expm, (A,)),
    "fft": (lambda x: fnp.abs(fnp.fft.fft(x)), (V,)),
    "rfftn": (lambda x: fnp.abs(fnp.fft.rfftn(x)), (B,)),
    "convolution": (nn.conv2d, (IMAGES, KERNEL)),
    "transposed": (
        lambda x, w: nn.conv_transpose2d(x, w, stride=2), (IMAGES, KERNEL.swapaxes(0, 1))
    ),
    "pooled": (lambda x: nn.max_pool2d(x, 2), (IMAGES,)),
    "attention": (nn.scaled_dot_product_attention, (B, B + 1, B - 1)),
    "in chunks": (lambda *x: nn.scaled_dot_product_attention(*x, chunk=2), (B, B + 1, B - 1)),
    "cross entropy": (lambda x: nn.cross_entropy(x, np.array([0, 2, 4, 1, 1])), (A,)),
    "layer norm": (lambda x: nn.layer_norm(x, (5,)), (A,)),
    "sorted": (lambda x: fnp.sort(x) * fnp.arange(5.0), (V,)),
    "cumulative": (lambda x: fnp.cumsum(x) * fnp.cumprod(x), (V,)),
    "median": (fnp.median, (V,)),
    "gathered": (lambda x: x[np.array([0, 3, 3])] ** 2, (A,)),
    "written": (written, (A,)),
    "gamma": (lambda x: special.gammainc(x, 2.0) + special.digamma(x), (POSITIVE,)),
    "beta": (lambda x: special.betainc(x, 2.0, 0.3), (POSITIVE,)),
    "erf": (lambda x: special.erf(x) + special.ndtri(special.ndtr(x)), (V,)),
    "bessel": (lambda x: special.i0e(x) + special.i1(x), (V,)),
    "interpolated": (lambda x: fnp.interp(x, np.arange(4.0), np.arange(4.0) ** 2), (POSITIVE,)),
    "while": (doubled, (POSITIVE,)),
    "cond": (lambda x: ftrans.cond(fnp.sum(x) > 0, fnp.sin, fnp.cos, x), (V,)),
    "from jax": (ftrans.from_jax(lambda x: jax.nn.gelu(jnp.fft.ifft(x).real)), (V,)),
}  # fmt: skip


def derivatives(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the value, the gradient, and a derivative of that along ones."""

    def total(*args: Any) -> Any:
        return fnp.sum(fnp.sin(f(*args)))

    gradient = func.grad(total, argnums=0)

    def all_of_them(*args: Any) -> Any:
        ones = tuple([fnp.ones_like(x) for x in args])
        return f(*args), gradient(*args), func.jvp(gradient, args, ones)[1]

    return all_of_them


@pytest.mark.parametrize("name", sampled([*FUNCTIONS], 11))
def test_functions(name: str) -> None:
    f, args = FUNCTIONS[name]
    both = derivatives(f)
    with on_road("interpret"):
        expected = both(*args)
    assert_placed(both(*placed(args)), expected)
    assert_placed(ftrans.jit(both)(*placed(args)), expected)
    stacked = [np.stack([x, 0.5 * x]) for x in args]
    with on_road("interpret"):
        mapped = func.vmap(both)(*stacked)
    assert_placed(func.vmap(both)(*placed(stacked)), mapped)


# ------------------------------------------------------------------------------- random numbers


@pytest.mark.parametrize(
    "name",
    [
        "bits",
        "normal",
        *[
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("uniform", "gamma", "randint", "permutation")
        ],
    ],
)
def test_draws_are_those_of_the_host(name: str) -> None:
    given = {"gamma": (2.0, (50,)), "randint": ((50,), 0, 99), "permutation": (np.arange(50),)}
    draw = getattr(random, name)
    found = ftrans.jit(lambda key: draw(key, *given.get(name, ((50,),))))(placed(random.key(3)))
    expected = draw(random.key(3), *given.get(name, ((50,),)))
    assert_close(np.asarray(found), expected, 0 if name == "bits" else 1e-4)


# --------------------------------------------------------------------------------------- tensors


def test_tensors_stay_on_their_device() -> None:
    w = ftrans.tensor(placed(A), requires_grad=True)
    x = ftrans.tensor(placed(V))
    for _ in range(3):
        loss = (fnp.tanh(w @ x) ** 2).sum()
        loss.backward()
        with ftrans.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    m = A.copy()
    for _ in range(3):
        m -= 0.1 * func.grad(lambda m: (fnp.tanh(m @ V) ** 2).sum())(m)
    assert_placed(jnp.from_dlpack(w.detach()), m)


def test_values_that_are_equal_are_apart() -> None:
    """What is returned twice, or as it was given, is another array each time."""
    x = placed(V)
    for road in ("interpret", "compile"):
        with on_road(road):
            y, z, same = func.vjp(lambda x: (2 * x, p.stop_gradient_p(2 * x), x), x)[0]
        assert len({id(v) for v in (y, z, same)}) == 3


# ------------------------------------------------------------------------------- calls of Python


@pytest.mark.parametrize("road", ["un-jitted", "scan", "jit"])
def test_what_is_raised_reaches_the_caller(road: str) -> None:
    def fails(x: Any) -> Any:
        raise KeyError("as it is")

    call = ftrans.external(fails, lambda x: x)
    roads: dict[str, Callable[..., Any]] = {
        "un-jitted": call,
        "jit": ftrans.jit(call),
        "scan": lambda x: ftrans.scan(lambda c, _: (call(c), None), x, None, length=3)[0],
    }
    with pytest.raises(KeyError, match="as it is"):
        roads[road](placed(V))


def test_kernels_are_called_with_arrays() -> None:
    halved = ftrans.external(lambda x: np.asarray(x) / 2, lambda x: x)
    f = lambda x: (fnp.sin(x) * halved(ftrans.stop_gradient(x))).sum()  # noqa: E731
    assert_placed(func.grad(f)(placed(V)), np.cos(V) * V / 2)
    assert_placed(ftrans.jit(func.grad(f))(placed(V)), np.cos(V) * V / 2)
