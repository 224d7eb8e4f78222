"""Tracks a point that turns, from noisy positions, and learns the noise of model and sensor.

    python examples/models/kalman_smoother.py [--steps 200] [--out kalman_smoother.png]

The Kalman filter is one `ftrans.scan`; its gradient, of the likelihood of all that was observed,
goes back through it. The smoother needs no recursion of its own: the smoothed states are the
filter's first guess plus covariance times the gradient of the log-likelihood with respect to that
guess, at each step. Exits with 1 where smoothing does not beat filtering, or the noise is missed.
"""

import argparse
import sys

import matplotlib as mpl
import numpy as np
from scipy.optimize import minimize

import ftrans
from ftrans import func

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

STEP = 0.1
PUSH, SENSOR = 0.5, 0.4
"""Standard deviations: of the acceleration, and of what the sensor says of a position."""

SEEN = np.eye(2, 4)


def dynamics():
    """Returns the matrix f64[4, 4] of one step of position and velocity, which turns slowly."""
    angle = 0.25 * STEP
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.block([[np.eye(2), STEP * np.eye(2)], [np.zeros((2, 2)), turn]])


def push():
    """Returns how an acceleration f64[2] moves the state in one step, f64[4, 2]."""
    return np.vstack([0.5 * STEP**2 * np.eye(2), STEP * np.eye(2)])


def simulate(steps, rng):
    """Returns the states f64[steps, 4] and what is seen of them, f64[steps, 2]."""
    state, states = np.array([1.0, 0.0, 0.0, 1.0]), []
    for _ in range(steps):
        state = dynamics() @ state + push() @ rng.normal(scale=PUSH, size=2)
        states.append(state)
    states = np.array(states)
    return states, states @ SEEN.T + rng.normal(scale=SENSOR, size=(steps, 2))


def filtered(log_noise, seen, shifts):
    """Runs the filter.

    Args:
        log_noise: f64[2], the logarithms of the deviations of push and sensor.
        seen: f64[steps, 2].
        shifts: f64[steps, 4], added to the predicted states: zeros, to differentiate by.

    Returns:
        The log-likelihood, and for each step mean and covariance of the state, before what is
        seen then and after.
    """
    pushed, sensed = np.exp(2 * log_noise[0]), np.exp(2 * log_noise[1])
    model, moved = dynamics(), push() @ push().T * pushed

    def step(carry, given):
        mean, spread, total = carry
        z, shift = given
        mean, spread = model @ mean + shift, model @ spread @ model.T + moved
        error, scale = z - SEEN @ mean, SEEN @ spread @ SEEN.T + sensed * np.eye(2)
        gain = np.linalg.solve(scale, SEEN @ spread).T
        total -= 0.5 * (error @ np.linalg.solve(scale, error) + np.linalg.slogdet(scale)[1])
        after = mean + gain @ error, spread - gain @ scale @ gain.T
        return (*after, total - np.log(2 * np.pi)), (mean, spread, *after)

    start = np.zeros(4), 4 * np.eye(4), 0.0
    (_, _, total), estimates = ftrans.scan(step, start, (seen, shifts))
    return total, estimates


def smoothed(log_noise, seen):
    """Returns mean f64[steps, 4] of the states given all that is seen, and the filter's own.

    For Gaussians, E[x | all] = m + P d log p(all) / d m, with m, P what is known of x before.
    """
    nothing = np.zeros((len(seen), 4))
    run = lambda shifts: filtered(log_noise, seen, shifts)  # noqa: E731
    slopes, (_, (before, spreads, after, _)) = func.grad_and_value(run, has_aux=True)(nothing)
    return before + np.einsum("tij,tj->ti", spreads, slopes), after


def learn(seen, start):
    """Returns the logarithms of the deviations, f64[2], under which `seen` is most likely."""
    nothing = np.zeros((len(seen), 4))

    def slope(log_noise):
        loss = lambda noise: -filtered(noise, seen, nothing)[0] / len(seen)  # noqa: E731
        gradient, value = func.grad_and_value(loss)(log_noise)
        return value, gradient

    return minimize(slope, start, jac=True, method="L-BFGS-B").x


def draw(states, seen, after, smooth, out):
    figure, axes = plt.subplots(figsize=(6, 6))
    axes.plot(*seen.T, ".", ms=3, color="gray", label="seen")
    axes.plot(*states[:, :2].T, color="black", label="the truth")
    axes.plot(*after[:, :2].T, lw=1, label="filtered")
    axes.plot(*smooth[:, :2].T, label="smoothed")
    axes.set(aspect="equal", title="a point that turns")
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="kalman_smoother.png")
    options = parser.parse_args(arguments)

    states, seen = simulate(options.steps, np.random.default_rng(options.seed))
    log_noise = learn(seen, np.log([2.0, 2.0]))
    smooth, after = smoothed(log_noise, seen)
    draw(states, seen, after, smooth, options.out)
    pushed, sensed = np.exp(log_noise)
    print(f"push {pushed:.3f} (true {PUSH}), sensor {sensed:.3f} (true {SENSOR})")
    errors = [np.sqrt(np.mean((x[:, :2] - states[:, :2]) ** 2)) for x in (seen, after, smooth)]
    print("root mean square error: seen {:.3f}, filtered {:.3f}, smoothed {:.3f}".format(*errors))
    good = errors[2] < errors[1] < errors[0] and abs(sensed - SENSOR) < 0.1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
