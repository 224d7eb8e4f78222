"""Fits the density of two moons by a normalizing flow with its exact log-determinant.

    python examples/models/normalizing_flow.py [--steps 800] [--out normalizing_flow.png]

Eight layers of RealNVP: each scales and shifts one coordinate by a small network of the other, so
that the logarithm of the determinant of the Jacobian is a sum. Nothing is jitted; optax updates.
That the sum is right is asked of `vmap(jacfwd)` at the end, and that the density is one of its
integral. Exits with 1 where either is wrong, or the fit is worse than it should be.
"""

import argparse
import sys

import matplotlib as mpl
import numpy as np
import optax

import ftrans.numpy as fnp
from ftrans import func

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

LAYERS, HIDDEN, BATCH, GOAL = 8, 48, 256, 1.0
"""GOAL is in nats: a Gaussian with the covariance of the moons has 2.1."""


def moons(count, rng):
    """Returns points f32[count, 2] on two half circles, with noise."""
    angle = rng.uniform(0, np.pi, count)
    upper = rng.random(count) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle)) - 0.5
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle)) - 0.25
    return (np.stack([x, y], -1) + 0.08 * rng.normal(size=(count, 2))).astype("float32")


def initialise(rng):
    """Returns the layers of the flow, which begin as the identity."""

    def layer():
        sizes = [(1, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2)]
        weights = [rng.normal(size=(m, n)) / np.sqrt(m) for m, n in sizes]
        weights[-1] *= 0.01
        return [{"w": w.astype("float32"), "b": np.zeros(w.shape[1], "float32")} for w in weights]

    return [layer() for _ in range(LAYERS)]


def network(layer, x):
    """Returns the logarithm of a scale, and a shift, f32[...] each, for one coordinate f32[...]."""
    x = x[..., None]
    for part in layer[:-1]:
        x = fnp.tanh(x @ part["w"] + part["b"])
    out = x @ layer[-1]["w"] + layer[-1]["b"]
    return 2 * fnp.tanh(out[..., 0]), out[..., 1]


def to_normal(params, x):
    """Takes points f32[..., 2] to normal ones; returns these and the log-determinant f32[...]."""
    a, b = x[..., 0], x[..., 1]
    total = 0.0
    for layer in params:
        scale, shift = network(layer, a)
        a, b = b * fnp.exp(scale) + shift, a  # the coordinates change places
        total = total + scale
    return fnp.stack([a, b], -1), total


def from_normal(params, z):
    """Is the inverse."""
    a, b = z[..., 0], z[..., 1]
    for layer in reversed(params):
        scale, shift = network(layer, b)
        a, b = b, (a - shift) * fnp.exp(-scale)
    return fnp.stack([a, b], -1)


def log_density(params, x):
    z, total = to_normal(params, x)
    return total - 0.5 * fnp.sum(z * z, -1) - np.float32(np.log(2 * np.pi))


def loss(params, x):
    """Returns the mean of minus the logarithm of the density, in nats."""
    return -log_density(params, x).mean()


def train(params, steps, rng):
    optimiser = optax.adam(optax.cosine_decay_schedule(3e-3, steps))
    state, losses = optimiser.init(params), []
    for _ in range(steps):
        slopes, value = func.grad_and_value(loss)(params, moons(BATCH, rng))
        updates, state = optimiser.update(slopes, state)
        params = optax.apply_updates(params, updates)
        losses.append(float(value))
    return params, losses


def check(params, rng):
    """Returns the largest error of the log-determinant, and of the inverse, and the integral."""
    x = moons(100, rng)
    z, total = to_normal(params, x)
    jacobians = func.vmap(func.jacfwd(lambda x: to_normal(params, x)[0]))(x)
    exact = np.linalg.slogdet(np.asarray(jacobians, "float64"))[1]
    back = from_normal(params, z)
    side = np.linspace(-3, 3, 300, dtype="float32")
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    mass = float(np.exp(log_density(params, grid)).sum()) * (side[1] - side[0]) ** 2
    return np.abs(total - exact).max(), np.abs(back - x).max(), mass


def draw(params, losses, rng, out):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    side = np.linspace(-2.2, 2.2, 200, dtype="float32")
    grid = np.stack(np.meshgrid(side, side), -1)
    left.imshow(np.exp(log_density(params, grid)), origin="lower", extent=(-2.2, 2.2) * 2)
    left.set(title="density")
    points = from_normal(params, rng.normal(size=(2000, 2)).astype("float32"))
    middle.plot(*np.asarray(points).T, ".", ms=2, label="drawn")
    middle.plot(*moons(300, rng).T, ".", ms=2, color="black", label="data")
    middle.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal")
    middle.legend()
    right.plot(losses)
    right.set(xlabel="step", title="loss, nats")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="normalizing_flow.png")
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(options.seed)
    params, losses = train(initialise(rng), options.steps, rng)
    reached = float(loss(params, moons(4000, rng)))
    apart, back, mass = check(params, rng)
    draw(params, losses, rng, options.out)
    print(f"loss {losses[0]:.3f} -> {reached:.3f} nats")
    print(f"log-determinant to {apart:.1e}, inverse to {back:.1e}, integral {mass:.4f}")
    good = reached < GOAL and apart < 1e-3 and back < 1e-2 and abs(mass - 1) < 1e-2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
