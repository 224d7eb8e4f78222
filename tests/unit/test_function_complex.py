"""Rules for complex numbers follow PyTorch: gradients are conjugate Wirtinger derivatives.

Each Function has `backward` alone, and has to come to what PyTorch makes of the plain function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from tests.helpers import assert_close
from tests.oracle.complex_functions import ANSWERS, INPUTS, plain


class Square(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx, ct):
        return 2 * ctx.saved_tensors[0].conj() * ct


class Exp(Function):
    @staticmethod
    def forward(z):
        return np.exp(np.asarray(z))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ctx.saved_tensors[0].conj() * ct


class Conj(Function):
    @staticmethod
    def forward(ctx, z):
        return z.conj()

    @staticmethod
    def backward(ctx, ct):
        return ct.conj()


class AbsSquared(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z * z.conj()).real

    @staticmethod
    def backward(ctx, ct):
        return 2 * ctx.saved_tensors[0] * ct


class Product(Function):
    @staticmethod
    def forward(ctx, z, x):
        ctx.save_for_backward(z, x)
        return z * x

    @staticmethod
    def backward(ctx, ct):
        z, x = ctx.saved_tensors
        return x * ct, (z.conj() * ct).real


class Polar(Function):
    @staticmethod
    def forward(ctx, r, phi):
        ctx.unit = fnp.exp(1j * phi)
        ctx.r = r
        return r * ctx.unit

    @staticmethod
    def backward(ctx, ct):
        return (ctx.unit.conj() * ct).real, ((1j * ctx.r * ctx.unit).conj() * ct).real


class Real(Function):
    @staticmethod
    def forward(ctx, z):
        return z.real

    @staticmethod
    def backward(ctx, ct):
        return ct + 0j


class SquareJvp(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.z = z
        return z * z

    @staticmethod
    def jvp(ctx, t):
        return 2 * ctx.z * t


class AbsSquaredJvp(Function):
    @staticmethod
    def forward(ctx, z):
        ctx.z = z
        return (z * z.conj()).real

    @staticmethod
    def jvp(ctx, t):
        return 2 * (ctx.z.conj() * t).real


class PolarJvp(Function):
    @staticmethod
    def forward(ctx, r, phi):
        ctx.out = r * fnp.exp(1j * phi)
        ctx.unit = fnp.exp(1j * phi)
        return ctx.out

    @staticmethod
    def jvp(ctx, r_dot, phi_dot):
        return r_dot * ctx.unit + 1j * phi_dot * ctx.out


FUNCTIONS = [
    ("square", Square.apply),
    ("square", SquareJvp.apply),
    ("square", plain(fnp)["square"]),
    ("exp", Exp.apply),
    ("conj", Conj.apply),
    ("abs_squared", AbsSquared.apply),
    ("abs_squared", AbsSquaredJvp.apply),
    ("product", Product.apply),
    ("polar", Polar.apply),
    ("polar", PolarJvp.apply),
    ("real", Real.apply),
]


@pytest.fixture(scope="module")
def answers() -> dict[str, np.ndarray]:
    with np.load(ANSWERS) as stored:
        return dict(stored)


@pytest.mark.filterwarnings("ignore")  # for the loop of vmap
@pytest.mark.parametrize(("name", "f"), FUNCTIONS)
@pytest.mark.parametrize("wrap", ["plain", "jit", "vmap"])
def test_what_pytorch_says(name: str, f: Any, wrap: str, answers: dict[str, np.ndarray]) -> None:
    xs = [answers[f"{name}/x{i}"] for i in range(len(INPUTS[name]))]
    dots = [answers[f"{name}/t{i}"] for i in range(len(xs))]
    ct = answers[f"{name}/ct"]
    around = {"plain": lambda f: f, "jit": ftrans.jit, "vmap": func.vmap}[wrap]
    argnums = tuple(range(len(xs)))

    def pulled(ct: Any, *xs: Any) -> Any:
        return func.vjp(f, *xs)[1](ct)

    def pushed(*both: Any) -> Any:
        return func.jvp(f, both[: len(xs)], both[len(xs) :])[1]

    def gradient(*xs: Any) -> Any:
        return func.grad(lambda *xs: (abs(f(*xs)) ** 4).sum(), argnums)(*xs)

    def second(*xs: Any) -> Any:
        return func.grad(lambda *xs: sum((abs(g) ** 2).sum() for g in gradient(*xs)), argnums)(*xs)

    assert_close(around(f)(*xs), answers[f"{name}/out"])
    assert_close(around(pushed)(*xs, *dots), answers[f"{name}/jvp"])
    for i, got in enumerate(around(pulled)(ct, *xs)):
        assert got.dtype == xs[i].dtype
        assert_close(got, answers[f"{name}/vjp{i}"])
    for i, got in enumerate(around(second)(*xs)):
        assert_close(got, answers[f"{name}/second{i}"], 1e-10)
