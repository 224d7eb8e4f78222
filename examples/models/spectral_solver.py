"""Solves a wave equation by Fourier transforms, and finds the initial state behind a measurement.

    python examples/models/spectral_solver.py [--points 128] [--out spectral_solver.png]

Burgers' equation u_t + u u_x = v u_xx on a ring, in the Fourier basis, by a Runge-Kutta step with
an integrating factor, in a `scan`. Forward, it is held against the exact solution by the Cole-Hopf
transform. Backward, the gradient goes through all FFTs: from the state at the end, that at the
start is found by SciPy's L-BFGS. Exits with 1 where either is not good.
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

VISCOSITY, END, STEPS = 0.05, 0.6, 100


def grid(points):
    return 2 * np.pi * np.arange(points) / points


def initial(x):
    return np.sin(x) + 0.5 * np.cos(2 * x)


def solve(u):
    """Returns the state f64[n] at the end, and all states f64[steps, n], from that at the start."""
    points, step = u.shape[-1], END / STEPS
    waves = np.fft.rfftfreq(points, 1 / points)
    kept = waves < points / 3  # products of what is above would come back as something else
    decay = np.exp(-VISCOSITY * waves**2 * step / 2)  # in half a step

    def change(v):
        u = np.fft.irfft(v * kept, points)
        return -0.5j * waves * np.fft.rfft(u * u) * kept

    def advance(v, _):
        k1 = change(v) * step
        k2 = change(decay * (v + k1 / 2)) * step
        k3 = change(decay * v + k2 / 2) * step
        k4 = change(decay**2 * v + decay * k3) * step
        v = decay**2 * (v + k1 / 6) + decay * (k2 + k3) / 3 + k4 / 6
        return v, np.fft.irfft(v, points)

    _, states = ftrans.scan(advance, np.fft.rfft(u), None, length=STEPS)
    return states[-1], states


def exact(x):
    """Returns the solution at the end by the Cole-Hopf transform, whose heat equation is exact."""
    fine = grid(4096)
    potential = 1 - np.cos(fine) + 0.25 * np.sin(2 * fine)  # of `initial`
    modes = np.fft.rfft(np.exp(-potential / (2 * VISCOSITY)))
    k = np.arange(len(modes))
    heat = modes * np.exp(-VISCOSITY * k**2 * END)
    phi, slope = np.fft.irfft(heat, 4096), np.fft.irfft(1j * k * heat, 4096)
    return np.interp(x, fine, -2 * VISCOSITY * slope / phi)


def composed(waves, x):
    """Returns the state f64[n] that consists of waves f64[2, k], of cosines and of sines."""
    angles = np.arange(1, waves.shape[1] + 1)[:, None] * x
    return waves[0] @ np.cos(angles) + waves[1] @ np.sin(angles)


def recover(measured, x, most):
    """Returns the state at the start that leads to the measured end, and the misfits on the way.

    What is fine at the start is gone at the end: the search is among its six longest waves.
    """
    misfits = []

    def misfit(flat):
        end, _ = solve(composed(flat.reshape(2, -1), x))
        return np.mean((end - measured) ** 2)

    def slope(flat):
        gradient, value = func.grad_and_value(misfit)(flat)
        misfits.append(float(value))
        return value, gradient

    options = {"maxiter": most, "gtol": 1e-9, "ftol": 0}
    found = minimize(slope, np.zeros(12), jac=True, method="L-BFGS-B", options=options)
    return composed(found.x.reshape(2, -1), x), misfits


def draw(x, states, found, misfits, out):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    left.imshow(states, aspect="auto", origin="lower", extent=(0, 2 * np.pi, 0, END), cmap="RdBu")
    left.set(xlabel="place", ylabel="time", title="the wave steepens")
    middle.plot(x, initial(x), color="black", label="the start")
    middle.plot(x, found, "--", label="found from the end")
    middle.plot(x, states[-1], color="gray", label="the end")
    middle.set(xlabel="place")
    middle.legend()
    right.semilogy(misfits)
    right.set(xlabel="evaluation", title="misfit")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--most", type=int, default=100, help="iterations of the inversion")
    parser.add_argument("--out", default="spectral_solver.png")
    options = parser.parse_args(arguments)

    x = grid(options.points)
    end, states = solve(initial(x))
    error = np.abs(end - exact(x)).max()
    found, misfits = recover(end, x, options.most)
    away = np.abs(found - initial(x)).max()
    draw(x, states, found, misfits, options.out)
    print(f"largest error at the end {error:.1e}")
    print(f"the start is found to {away:.1e}, after {len(misfits)} gradients")
    return 0 if error < 1e-3 and away < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
