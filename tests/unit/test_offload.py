"""Residuals on the host: what goes there and comes back is what JAX's own policies move."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.helpers import assert_close

OURS, THEIRS = func.checkpoint_policies, jax.checkpoint_policies
RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(4, 4)).astype("f4"), RNG.normal(size=(3, 4)).astype("f4")


def layers(lib: Any, wrap: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    xp = fnp if lib is ftrans else jnp
    name = func.checkpoint_name if lib is ftrans else checkpoint_name

    def f(w: Any, x: Any) -> Any:
        y = name(xp.sin(x @ w), "first")
        return (name(xp.sin(y @ w), "second") ** 2).sum()

    return wrap(f)


def loop(lib: Any, wrap: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    xp, scan = (fnp, ftrans.scan) if lib is ftrans else (jnp, jax.lax.scan)

    def f(w: Any, x: Any) -> Any:
        step = wrap(lambda h, _: (xp.sin(h @ w), None))
        return scan(step, x, None, length=5)[0].sum()

    return f


def moves(f: Callable[..., Any]) -> tuple[int, int]:
    """Returns how many values a GPU's program takes to the host, and how many back."""
    traced = jax.jit(lambda *args: f(*args)).trace(jnp.asarray(W), jnp.asarray(X))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    lines = [line for line in text.splitlines() if "buffer_placement" in line]
    return tuple(sum(kind in line for line in lines) for kind in ('"pinned_host"', '"device"'))


def by_name(policies: Any, **_: Any) -> Any:
    names = {"names_which_can_be_saved": ["first"], "names_which_can_be_offloaded": ["second"]}
    return policies.save_and_offload_only_these_names(
        **names, offload_src="device", offload_dst="pinned_host"
    )


def dots(policies: Any) -> Any:
    return policies.offload_dot_with_no_batch_dims("device", "pinned_host")


@pytest.mark.parametrize("policies", [OURS, THEIRS], ids=["ours", "theirs"])
@pytest.mark.parametrize(
    ("model", "policy"), [(layers, dots), (layers, by_name), (loop, dots)], ids=lambda x: x.__name__
)
def test_what_is_moved_is_what_jax_moves(model: Any, policy: Any, policies: Any) -> None:
    ours = func.grad(model(ftrans, functools.partial(func.checkpoint, policy=policy(policies))))
    theirs = jax.grad(model(jax, functools.partial(jax.checkpoint, policy=policy(THEIRS))))
    assert moves(ours) == moves(theirs) != (0, 0)
    expected = theirs(W, X)
    for given in ((W, X), (jnp.asarray(W), jnp.asarray(X))):
        assert_close(ours(*given), expected, 1e-5)
        assert_close(ftrans.jit(ours)(*given), expected, 1e-5)


def test_a_policy_of_ones_own_and_other_transforms() -> None:
    wrap = functools.partial(func.checkpoint, policy=lambda primitive, *_, **__: "host")
    f, plain = layers(ftrans, wrap), layers(ftrans, lambda f: f)
    assert moves(func.grad(f)) == moves(func.grad(plain, memory="offload"))
    rows = np.stack([X, 2 * X])
    for transform in (
        lambda f: func.vmap(func.grad(f), (None, 0))(W, rows),
        lambda f: func.hessian(f)(W, X),
        lambda f: func.jvp(func.grad(f), (W, X), (W, X))[1],
    ):
        assert_close(transform(f), transform(plain), 1e-5)


@pytest.mark.smoke
@pytest.mark.parametrize("model", [layers, loop], ids=["layers", "loop"])
def test_all_residuals_on_the_host(model: Any) -> None:
    f = model(ftrans, lambda f: f)
    gradient = func.value_and_grad(f, memory="offload")
    for ours, plain in zip(gradient(W, X), func.value_and_grad(f)(W, X), strict=True):
        assert_close(ours, plain)
    assert gradient.plan is None  # nothing was measured
    there, back = moves(gradient)
    assert there == back > 0
    assert moves(func.value_and_grad(f)) == (0, 0)
    twice = lambda f: func.grad(lambda w: func.grad(f, **options)(w, X).sum())(W)  # noqa: E731
    options: dict[str, Any] = {}
    expected = twice(f)
    options = {"memory": "offload"}
    assert_close(twice(f), expected, 1e-5)
    # neither is taken for the other
    again = func.grad(f)
    assert_close(func.grad(f, memory="offload")(W, X), again(W, X))
    assert moves(again) == (0, 0)
