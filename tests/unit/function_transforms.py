"""Transforms by name, to be taken with `ftrans.func` and with JAX alike."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close
from tests.oracle import jaxpr
from tests.unit.function_database import Case

SIZE = 3

OURS = SimpleNamespace(
    np=fnp,
    array=np.asarray,
    grad=func.grad,
    vjp=func.vjp,
    jvp=func.jvp,
    linearize=func.linearize,
    jacfwd=func.jacfwd,
    jacrev=func.jacrev,
    hessian=func.hessian,
    vmap=lambda f, dims=0: func.vmap(f, dims),
    jit=ftrans.jit,
)
THEIRS = SimpleNamespace(
    np=jnp,
    array=jnp.asarray,
    grad=jax.grad,
    vjp=jax.vjp,
    jvp=jax.jvp,
    linearize=jax.linearize,
    jacfwd=jax.jacfwd,
    jacrev=jax.jacrev,
    hessian=jax.hessian,
    vmap=lambda f, dims=0: jax.vmap(f, dims),
    jit=jax.jit,
)


def like(arrays: Any, seed: int) -> Any:
    """Returns normal numbers of the shapes of a pytree of arrays."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: random.normal(size=np.shape(x)), arrays)


def batch(t: Any, arrays: Any, *sizes: int) -> Any:
    """Returns many examples of each array, along new axes in front."""
    random = np.random.default_rng(sizes)
    return tuple(t.array(random.uniform(0.8, 2.0, size=(*sizes, *x.shape))) for x in arrays)


def loss_of(t: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a scalar function all of whose derivatives depend on all outputs of `f`."""

    def loss(*arrays: Any) -> Any:
        out = f(*arrays)
        outs = out if isinstance(out, tuple) else (out,)
        return sum(((1.0 + i) * t.np.sin(x) * x).sum() for i, x in enumerate(outs))

    return loss


def everywhere(arrays: Any) -> tuple[int, ...]:
    return tuple(range(len(arrays)))


def gradient(t: Any, f: Any, arrays: Any) -> Any:
    return t.grad(loss_of(t, f), everywhere(arrays))


def again(t: Any, gradient: Any, arrays: Any) -> Any:
    """Returns the gradient of a weighted sum of a gradient."""

    def dotted(*xs: Any) -> Any:
        return sum((v * g).sum() for v, g in zip(like(arrays, 3), gradient(*xs), strict=True))

    return t.grad(dotted, everywhere(arrays))


def pull(t: Any, f: Any, arrays: Any) -> Any:
    out, pullback = t.vjp(f, *arrays)
    return pullback(like(out, 2))


def pull_ones(t: Any, f: Any) -> Any:
    def pulled(*xs: Any) -> Any:
        out, pullback = t.vjp(f, *xs)
        return pullback(jax.tree.map(t.np.cos, out))

    return pulled


def pushed(t: Any, f: Any, arrays: Any) -> Any:
    return t.jvp(f, arrays, like(arrays, 1))


def linearized(t: Any, f: Any, arrays: Any) -> Any:
    out, push = t.linearize(f, *arrays)
    return out, push(*like(arrays, 1))


ONCE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda t, f, xs: f(*xs),
    "vjp": pull,
    "grad": lambda t, f, xs: gradient(t, f, xs)(*xs),
    "jacrev": lambda t, f, xs: t.jacrev(f, everywhere(xs))(*xs),
    "vmap": lambda t, f, xs: t.vmap(f)(*batch(t, xs, SIZE)),
    "vmap of other axes": lambda t, f, xs: t.vmap(f, tuple(x.ndim for x in xs))(
        *(t.np.moveaxis(x, 0, -1) for x in batch(t, xs, SIZE))
    ),
    "vmap of the first": lambda t, f, xs: t.vmap(f, (0, *[None] * (len(xs) - 1)))(
        *batch(t, xs[:1], SIZE), *xs[1:]
    ),
    "vmap of the last": lambda t, f, xs: t.vmap(f, (*[None] * (len(xs) - 1), 0))(
        *xs[:-1], *batch(t, xs[-1:], SIZE)
    ),
    "vmap(vmap)": lambda t, f, xs: t.vmap(t.vmap(f))(*batch(t, xs, 2, SIZE)),
    "vmap(vjp)": lambda t, f, xs: t.vmap(pull_ones(t, f))(*batch(t, xs, SIZE)),
    "vjp(vmap)": lambda t, f, xs: pull(t, t.vmap(f), batch(t, xs, SIZE)),
    "vmap(grad)": lambda t, f, xs: t.vmap(gradient(t, f, xs))(*batch(t, xs, SIZE)),
    "vmap(vmap(grad))": lambda t, f, xs: t.vmap(t.vmap(gradient(t, f, xs)))(*batch(t, xs, 2, SIZE)),
    "jit": lambda t, f, xs: t.jit(f)(*xs),
    "jit(vmap)": lambda t, f, xs: t.jit(t.vmap(f))(*batch(t, xs, SIZE)),
    "jit(grad)": lambda t, f, xs: t.jit(gradient(t, f, xs))(*xs),
    "jit(vmap(grad))": lambda t, f, xs: t.jit(t.vmap(gradient(t, f, xs)))(*batch(t, xs, SIZE)),
    "grad(jit)": lambda t, f, xs: gradient(t, t.jit(f), xs)(*xs),
}
"""What takes the first derivative in reverse, and batches it."""

FURTHER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "jvp": pushed,
    "linearize": linearized,
    "jacfwd": lambda t, f, xs: t.jacfwd(f, everywhere(xs))(*xs),
    "vmap(jvp)": lambda t, f, xs: t.vmap(lambda *xs: t.jvp(f, xs, tuple(x * x for x in xs)))(
        *batch(t, xs, SIZE)
    ),
    "jvp(vmap)": lambda t, f, xs: pushed(t, t.vmap(f), batch(t, xs, SIZE)),
    "jit(jvp)": lambda t, f, xs: t.jit(lambda *xs: t.jvp(f, xs, xs))(*xs),
    "grad(grad)": lambda t, f, xs: again(t, gradient(t, f, xs), xs)(*xs),
    "grad(grad(grad))": lambda t, f, xs: again(t, again(t, gradient(t, f, xs), xs), xs)(*xs),
    "jvp(grad)": lambda t, f, xs: pushed(t, gradient(t, f, xs), xs),
    "grad(jvp)": lambda t, f, xs: gradient(
        t, lambda *xs: t.jvp(f, xs, tuple(x * x for x in xs))[1], xs
    )(*xs),
    "hessian": lambda t, f, xs: t.hessian(loss_of(t, f), everywhere(xs))(*xs),
    "jacrev(jacrev)": lambda t, f, xs: t.jacrev(t.jacrev(loss_of(t, f)))(*xs),
    "vmap(hessian)": lambda t, f, xs: t.vmap(t.hessian(loss_of(t, f)))(*batch(t, xs, SIZE)),
    "grad(vmap(grad))": lambda t, f, xs: again(t, t.vmap(gradient(t, f, xs)), batch(t, xs, SIZE))(
        *batch(t, xs, SIZE)
    ),
    "jit(grad(grad))": lambda t, f, xs: t.jit(again(t, gradient(t, f, xs), xs))(*xs),
}
"""What goes forward, or further than the first derivative."""

FORWARD = ("jvp", "linearize", "jacfwd", "vmap(jvp)", "jvp(vmap)", "jit(jvp)")
"""Those of them that go forward only."""


def check(case: Case, name: str) -> None:
    """Raises unless the Function gives what JAX gives for the plain function."""
    transform = (ONCE | FURTHER)[name]
    expected = jaxpr.evaluate(lambda *xs: transform(THEIRS, case.theirs, xs))(*case.arrays)
    got = transform(OURS, case.ours, case.arrays)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for found, right in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert found.dtype == right.dtype
        assert_close(found, right, 1e-10)
