"""Learns the hyperparameters of a Gaussian process by the gradient of its marginal likelihood.

    python examples/models/gaussian_process.py [--points 120] [--out gaussian_process.png]

The kernel is a smooth one times a periodic one, whose period is to be found: 2.0 where the data
come from. Everything is plain NumPy: `np.linalg.cholesky` and `np.linalg.solve` are differentiated
as they stand, and SciPy's L-BFGS is handed value and gradient. Exits with 1 where the period is
missed.
"""

import argparse
import sys

import matplotlib as mpl
import numpy as np
from scipy.optimize import minimize

from ftrans import func

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

PERIOD, NOISE = 2.0, 0.1
NAMES = ("amplitude", "length", "period", "noise")


def signal(t):
    return np.sin(2 * np.pi * t / PERIOD) * np.exp(-0.02 * t**2) + 0.3 * np.cos(0.5 * t)


def kernel(theta, s, t):
    """Returns the covariances f64[n, m] of the process at times f64[n] and f64[m]."""
    amplitude, length, period, _ = np.exp(theta)
    apart = s[:, None] - t[None, :]
    smooth = np.exp(-0.5 * (apart / length) ** 2)
    wave = np.exp(-2 * np.sin(np.pi * apart / period) ** 2)
    return amplitude**2 * smooth * (0.1 + wave)


def covariance(theta, t):
    """Returns that of what is observed at times f64[n], noise included."""
    return kernel(theta, t, t) + np.exp(2 * theta[3]) * np.eye(len(t))


def loss(theta, t, y):
    """Returns minus the logarithm of the marginal likelihood of y f64[n], per point."""
    factor = np.linalg.cholesky(covariance(theta, t))
    white = np.linalg.solve(factor, y)
    halves = 0.5 * white @ white + np.sum(np.log(np.diagonal(factor)))
    return halves / len(t) + 0.5 * np.log(2 * np.pi)


def learn(t, y, start):
    """Returns the hyperparameters, by their logarithms f64[4], and the losses on the way."""
    losses = []

    def slope(theta):
        gradient, value = func.grad_and_value(loss)(theta, t, y)
        losses.append(float(value))
        return value, gradient

    found = minimize(slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return found.x, losses


def predict(theta, t, y, at):
    """Returns mean and standard deviation of the process at other times, f64[m] each."""
    across = kernel(theta, at, t)
    weights = np.linalg.solve(covariance(theta, t), np.column_stack([y, across.T]))
    mean, reduction = across @ weights[:, 0], np.sum(across * weights[:, 1:].T, axis=1)
    return mean, np.sqrt(np.maximum(np.diagonal(kernel(theta, at, at)) - reduction, 0))


def draw(theta, t, y, losses, out):
    at = np.linspace(t.min() - 2, t.max() + 4, 400)
    mean, deviation = predict(theta, t, y, at)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 1))
    left.fill_between(at, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25, lw=0)
    left.plot(at, mean, label="posterior mean")
    left.plot(at, signal(at), "--", lw=1, color="gray", label="the truth")
    left.plot(t, y, ".", ms=3, color="black", label="observed")
    left.set(xlabel="time", title=f"period {np.exp(theta[2]):.3f}, where {PERIOD} is true")
    left.legend()
    right.plot(losses)
    right.set(xlabel="evaluation", title="loss per point, nats")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="gaussian_process.png")
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(options.seed)
    t = np.sort(rng.uniform(0, 12, options.points))
    y = signal(t) + NOISE * rng.normal(size=t.shape)
    start = np.log([1.0, 2.0, 1.7, 0.3])
    theta, losses = learn(t, y, start)
    draw(theta, t, y, losses, options.out)
    for name, value in zip(NAMES, np.exp(theta), strict=True):
        print(f"{name:10} {value:.4f}")
    print(f"loss per point {losses[0]:.3f} -> {min(losses):.3f}, after {len(losses)} gradients")
    return 0 if abs(np.exp(theta[2]) - PERIOD) < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
