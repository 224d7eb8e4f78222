"""Gradients at special points: which convention each follows, in all modes.

Docs: docs/explanation/conventions.md. The gradients of PyTorch 2.13 and JAX 0.10.2 were read off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
import ftrans.torch as torch
import ftrans.torch.nn.functional as F
from ftrans import func

inf, nan = np.inf, np.nan

# point, function, x, the gradient in PyTorch, in JAX, and here where it is neither's
POINTS: list[tuple[str, Callable[[Any], Any], Any, Any, Any, Any]] = [
    ("abs(0)", torch.abs, 0.0, 0.0, 1.0, None),
    ("clamp(0, 1) at 0", lambda x: torch.clamp(x, 0.0, 1.0), 0.0, 1.0, 0.5, 0.0),
    ("clamp(0, 1) at 1", lambda x: torch.clamp(x, 0.0, 1.0), 1.0, 1.0, 0.5, 0.0),
    ("leaky_relu at 0", lambda x: F.leaky_relu(x, 0.1), 0.0, 0.1, 1.0, None),
    ("hardtanh at 1", F.hardtanh, 1.0, 0.0, 1.0, None),
    ("norm at 0", torch.linalg.vector_norm, [0.0, 0.0], [0.0, 0.0], [nan, nan], None),
    ("norm 1", lambda x: torch.norm(x, 1), [0.0, 1.0], [0.0, 1.0], [1.0, 1.0], None),
    ("std", torch.std, [1.0, 1.0], [0.0, 0.0], [nan, nan], None),
    (
        "dist(x, x)",
        lambda x: torch.norm(x - torch.ones(2, dtype=torch.float64)),
        [1.0, 1.0], [0.0, 0.0], [nan, nan], None,
    ),
    ("median", fnp.median, [1.0, 1.0, 2.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], None),
    ("x ** 0", lambda x: torch.pow(x, 0.0), 0.0, 0.0, nan, None),
    ("0 ** y at -1", lambda y: torch.pow(0.0, y), -1.0, -inf, nan, None),
    ("0 ** y at 0", lambda y: torch.pow(0.0, y), 0.0, 0.0, 0.0, None),
    ("0 ** y at 1", lambda y: torch.pow(0.0, y), 1.0, 0.0, 0.0, None),
    ("atan2", lambda x: torch.atan2(x[0], x[1]), [0.0, 0.0], [0.0, 0.0], [nan, nan], None),
    ("hypot", lambda x: torch.hypot(x, 0.0 * x), 0.0, nan, 0.5, 0.0),
    ("hypot of two", lambda x: torch.hypot(x[0], x[1]), [0.0] * 2, [nan] * 2, [0.5] * 2, [0.0] * 2),
    ("cummax", lambda x: fnp.cummax(x).sum(), [1.0, 1.0, 0.0], [1.0, 2, 0], [2.0, 1, 0], None),
    ("relu", F.relu, 0.0, 0.0, 0.0, None),
    ("maximum", lambda x: torch.maximum(x, torch.zeros_like(x)), 0.0, 0.5, 0.5, None),
    ("max", torch.max, [1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0], None),
    ("max(dim)", lambda x: torch.max(x, 0)[0], [1.0, 1.0, 0.0], [1.0, 0, 0], [0.5, 0.5, 0], None),
    (
        "amax(dim)",
        lambda x: torch.amax(x, 0), [1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0], None,
    ),
    ("norm inf", lambda x: torch.norm(x, inf), [1.0, 1.0], [0.5, 0.5], [0.5, 0.5], None),
    ("sqrt(0)", torch.sqrt, 0.0, inf, inf, None),
    ("x ** 0.5", lambda x: x**0.5, 0.0, inf, inf, None),
    ("elu(0)", F.elu, 0.0, 1.0, 1.0, None),
    ("relu6(6)", lambda x: F.hardtanh(x, 0.0, 6.0), 6.0, 0.0, 0.0, None),
    ("sort", lambda x: torch.sort(x)[0][0], [1.0, 1.0, 2.0], [1.0, 0, 0], [1.0, 0, 0], None),
    ("prod", torch.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0], [6.0, 0.0, 0.0], None),
    (
        "cumprod",
        lambda x: torch.cumprod(x, 0).sum(), [0.0, 1.0, 1.0], [3.0, 0, 0], [3.0, 0, 0], None,
    ),
    ("log(-1)", torch.log, -1.0, -1.0, -1.0, None),
    ("sqrt(-1)", torch.sqrt, -1.0, nan, nan, None),
    ("sinc(0)", torch.sinc, 0.0, 0.0, 0.0, None),
    ("sign(0)", torch.sign, 0.0, 0.0, 0.0, None),
    ("fmod(2, 2)", lambda x: torch.fmod(x, 2.0), 2.0, 1.0, 1.0, None),
    (
        "nan_to_num",
        lambda x: torch.nan_to_num(x).sum(), [nan, inf, 1.0], [0.0, 0, 1], [0.0, 0, 1], None,
    ),
    ("logsumexp", lambda x: torch.logsumexp(x, 0), [-inf] * 2, [nan] * 2, [nan] * 2, [0.0] * 2),
    ("xlogy", lambda x: torch.xlogy(x, x), 0.0, nan, nan, 0.0),
    ("digamma(0)", torch.digamma, 0.0, inf, inf, None),
    ("digamma(-1)", torch.digamma, -1.0, 6.6e32, inf, inf),
]  # fmt: skip


def modes(function: Callable[[Any], Any], point: Any) -> dict[str, Any]:
    """Returns the gradient at a point, by the modes that find it."""
    x = np.asarray(point)
    several = np.stack([x + 0.25, x, x - 0.25])
    tensor = torch.tensor(x, requires_grad=True)
    function(tensor).backward()
    dual = func.linearize(function, x)[1]
    columns = [dual(t.reshape(x.shape)) for t in np.eye(x.size)]
    return {
        "backward": tensor.grad.numpy(),
        "grad": func.grad(function)(x),
        "pushforward": np.reshape(columns, x.shape),
        "jacfwd": func.jacfwd(function)(x),
        "vmap of grad": func.vmap(func.grad(function))(several)[1],
        "vmap of jacfwd": func.vmap(func.jacfwd(function))(several)[1],
        "grad of vmap": func.grad(lambda xs: func.vmap(function)(xs)[1])(several)[1],
    }


def convention(torch_says: Any, jax_says: Any, ours: Any) -> str:
    """Returns whose gradient it is; "ftrans" where it is neither of them."""
    expected = torch_says if ours is None else ours
    pairs = (("PyTorch", torch_says), ("JAX", jax_says))
    found = [name for name, x in pairs if np.array_equal(expected, x, equal_nan=True)]
    return " and ".join(found) or "ftrans"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [
        pytest.param(
            function,
            x,
            answers[0] if answers[-1] is None else answers[-1],
            id=f"{name}: {convention(*answers)}",
        )
        for name, function, x, *answers in POINTS
    ],
)
def test_conventions(function: Callable[[Any], Any], point: Any, expected: Any) -> None:
    for mode, found in modes(function, point).items():
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=mode)


# point, function, z, the gradient of a cotangent of 1; JAX has the conjugate, and NaN for the last
COMPLEX: list[tuple[str, Callable[[Any], Any], complex, complex]] = [
    ("abs(3 + 4j)", torch.abs, 3 + 4j, 0.6 + 0.8j),
    ("z ** 2", lambda z: z**2, 3 + 4j, 6 - 8j),
    ("abs(0j)", torch.abs, 0j, 0j),
    ("angle(0j)", torch.angle, 0j, 0j),
]


@pytest.mark.parametrize(
    ("function", "point", "expected"),
    [pytest.param(*row[1:], id=row[0]) for row in COMPLEX],
)
def test_complex_conventions(
    function: Callable[[Any], Any], point: complex, expected: complex
) -> None:
    def reverse(z: Any) -> Any:
        out, pull = func.vjp(function, z)
        return pull(fnp.ones_like(out))[0]

    def forward(z: Any) -> Any:
        along = [func.jvp(function, (z,), (fnp.full_like(z, t),))[1] for t in (1.0, 1j)]
        return fnp.real(along[0]) + 1j * fnp.real(along[1])

    z = np.asarray(point)
    tensor = torch.tensor(z, requires_grad=True)
    out = function(tensor)
    out.backward(torch.ones_like(out))
    several = np.stack([z + 0.25, z, z - 0.25j])
    for found in (
        tensor.grad.numpy(),
        reverse(z),
        forward(z),
        func.vmap(reverse)(several)[1],
        func.vmap(forward)(several)[1],
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
