"""Models and samplers written with JAX, through `from_jax`: values and slopes are those of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ftrans
from ftrans import from_jax, func

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_rng = np.random.default_rng(0)
IMAGES = _rng.normal(size=(4, 8, 8, 1)).astype("float32")
ROWS = _rng.normal(size=(2, 5, 8)).astype("float32")
CLASSES = np.array([1, 2, 3, 4])


class Convolutional(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.avg_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.LayerNorm()(nn.Dense(16)(x.reshape((x.shape[0], -1))))
        return nn.Dense(10)(nn.Dropout(0.5, deterministic=False)(x))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.RNN(nn.LSTMCell(8))(x)


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(2)(h, h)
        return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))


def convolutional() -> tuple[Callable[[Any], Any], Any]:
    model, key = Convolutional(), jax.random.key(0)
    params = model.init({"params": key, "dropout": key}, IMAGES)

    def loss(params: Any) -> Any:
        logits = model.apply(params, IMAGES, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, CLASSES).mean()

    return loss, params


def flax_model(model: Any) -> tuple[Callable[[Any], Any], Any]:
    params = model.init(jax.random.key(0), ROWS)
    return lambda params: (model.apply(params, ROWS) ** 2).mean(), params


def perceptron() -> tuple[Callable[[Any], Any], Any]:
    model = eqx.nn.MLP(8, 2, 8, 2, key=jax.random.key(1))
    params, static = eqx.partition(model, eqx.is_array)
    return lambda p: (jax.vmap(eqx.combine(p, static))(ROWS[0]) ** 2).mean(), params


def gated() -> tuple[Callable[[Any], Any], Any]:
    params, static = eqx.partition(eqx.nn.GRUCell(8, 4, key=jax.random.key(1)), eqx.is_array)

    def loss(params: Any) -> Any:
        cell = eqx.combine(params, static)
        last, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(4), ROWS[0])
        return (last**2).sum()

    return loss, params


MODELS = {
    "flax, convolutions": convolutional,
    "flax, LSTM": lambda: flax_model(Recurrent()),
    "flax, transformer": lambda: flax_model(Transformer()),
    "equinox, perceptron": perceptron,
    "equinox, GRU": gated,
}


def assert_same(found: Any, expected: Any) -> None:
    pairs = zip(*map(jax.tree_util.tree_leaves, (found, expected)), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    loss, params = MODELS[name]()
    value, slopes = jax.jit(jax.value_and_grad(loss))(params)
    arrays = jax.tree_util.tree_map(np.asarray, params)
    found, at = func.grad_and_value(from_jax(loss))(arrays)
    assert_same((at, found), (value, slopes))
    program = ftrans.trace(from_jax(loss))(arrays)
    assert len(program.equations) > 3


LOSSES = """
    l2_loss huber_loss log_cosh squared_error cosine_distance cosine_similarity hinge_loss
    sigmoid_binary_cross_entropy softmax_cross_entropy safe_softmax_cross_entropy kl_divergence
"""


@pytest.mark.parametrize("name", LOSSES.split())
def test_losses_of_optax(name: str) -> None:
    loss = getattr(optax.losses, name)
    given = np.random.default_rng(1).uniform(0.1, 0.9, (2, 3, 4)).astype("float32")
    theirs = jax.grad(lambda a: loss(a, given[1]).sum())(given[0])
    ours = func.grad(lambda a: from_jax(loss)(a, given[1]).sum())(given[0])
    assert_same(ours, theirs)


def test_a_step_of_adam() -> None:
    optimiser = optax.adam(1e-2)
    params = {"w": np.arange(3, dtype="float32")}

    def step(params: Any, state: Any) -> Any:
        slopes = jax.grad(lambda p: (p["w"] ** 2).sum())(params)
        updates, state = optimiser.update(slopes, state, params)
        return optax.apply_updates(params, updates), state

    state = optimiser.init(params)
    assert_same(from_jax(step)(params, state), step(params, state))


@pytest.mark.parametrize("name", ["hmc", "nuts"])
def test_steps_of_samplers(name: str) -> None:
    options: dict[str, Any] = {"num_integration_steps": 5} if name == "hmc" else {}
    sampler = getattr(blackjax, name)(
        lambda q: -(q["w"] ** 2).sum() / 2,
        step_size=0.1,
        inverse_mass_matrix=jnp.ones(3),
        **options,
    )
    state, key = sampler.init({"w": jnp.ones(3)}), jax.random.key(0)
    expected = sampler.step(key, state)[0].position
    assert_same(from_jax(lambda k, s: sampler.step(k, s)[0].position)(key, state), expected)
