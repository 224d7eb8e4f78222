"""Samples a hierarchical model by Hamiltonian Monte Carlo: the eight schools.

    python examples/models/hamiltonian.py [--draws 1500] [--out hamiltonian.png]

Eight schools were coached, and the effect in each was measured with a known error. How much do the
schools differ? The model is the one of Rubin (1981), in coordinates that are not centred. All there
is of it is one function, the logarithm of the density; `grad_and_value` of that moves the sampler,
step by step in plain Python, with momenta and proposals from `ftrans.random.default_rng`. The means
are held against an integral over the two hyperparameters, for the rest is Gaussian given these.
Exits with 1 where they differ by more than chance.
"""

import argparse
import sys

import matplotlib as mpl
import numpy as np

import ftrans
from ftrans import func

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS, LEAPS = 4, 12


def log_density(q):
    """Returns the logarithm of the density, but for a constant.

    Args:
        q: f64[10]: the mean over five, the logarithm of the spread, and the schools' places in
            units of it.
    """
    mean, log_spread, places = 5 * q[0], q[1], q[2:]
    spread = np.exp(log_spread)
    missed = (EFFECTS - mean - spread * places) / ERRORS
    prior = -0.5 * (q[0] ** 2 + np.sum(places**2)) - np.log1p((spread / 5) ** 2) + log_spread
    return prior - 0.5 * np.sum(missed**2)


downhill = func.grad_and_value(lambda q: -log_density(q))


def leap(q, momentum, slope, step, count):
    """Follows the dynamics; returns place, momentum, slope and energy at the end."""
    for _ in range(count):
        momentum = momentum - 0.5 * step * slope
        q = q + step * momentum
        slope, energy = downhill(q)
        momentum = momentum - 0.5 * step * slope
    return q, momentum, slope, float(energy)


def sample(draws, rng, step=0.35):
    """Returns places f64[draws, 10] of one chain, after as many to settle, and how many moved."""
    q = rng.normal(size=10).astype("float64")
    slope, energy = downhill(q)
    energy, kept, moved = float(energy), [], 0
    for turn in range(2 * draws):
        momentum = rng.normal(size=10).astype("float64")
        count = int(rng.integers(1, LEAPS + 1))  # of one length, orbits might close
        new, after, new_slope, new_energy = leap(q, momentum, slope, step, count)
        before = energy + 0.5 * momentum @ momentum
        chance = np.exp(min(0.0, before - new_energy - 0.5 * after @ after))
        if rng.random() < chance:
            q, slope, energy = new, new_slope, new_energy
        if turn < draws:  # the step is learnt while the chain settles
            step *= np.exp((chance - 0.8) / (turn + 10) ** 0.6)
        else:
            kept.append(q)
            moved += chance
    return np.array(kept), moved / draws


def parameters(q):
    """Returns the mean, the spread, and the effects of the schools, f64[..., 10]."""
    mean, spread = 5 * q[..., :1], np.exp(q[..., 1:2])
    return np.concatenate([mean, spread, mean + spread * q[..., 2:]], -1)


def exact():
    """Returns the posterior means of the same, by a sum over mean and spread on a grid."""
    mean = np.linspace(-25, 35, 400)[:, None, None]
    log_spread = np.linspace(-8, 6, 500)[None, :, None]
    spread = np.exp(log_spread)
    scale = ERRORS**2 + spread**2
    weight = -0.5 * np.sum((EFFECTS - mean) ** 2 / scale + np.log(scale), -1)
    weight += (-0.5 * (mean / 5) ** 2 - np.log1p((spread / 5) ** 2) + log_spread)[..., 0]
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    shrunk = mean + (EFFECTS - mean) * spread**2 / scale
    average = lambda x: np.sum(weight[..., None] * x, (0, 1))  # noqa: E731
    return np.concatenate([average(mean), average(spread), average(shrunk)])


def mixing(chains):
    """Returns R-hat, one where chains agree, and the number of independent draws, f64[10] each."""
    halves = np.concatenate(np.split(chains, 2, axis=1))
    count = halves.shape[1]
    within = halves.var(1, ddof=1).mean(0)
    total = within * (count - 1) / count + halves.mean(1).var(0, ddof=1)
    centred = halves - halves.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * count, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :count].mean(0) / count
    correlation = 1 - (within - covariance) / total
    pairs = correlation[0 : count - 1 : 2] + correlation[1:count:2]
    positive = np.cumprod(pairs > 0, axis=0)
    return np.sqrt(total / within), halves.shape[0] * count / (2 * (pairs * positive).sum(0) - 1)


def draw(chains, out):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    flat = chains.reshape(-1, 10)
    left.plot(flat[:, 0], flat[:, 1], ".", ms=1)
    left.set(xlabel="mean effect", ylabel="spread of the schools", yscale="log")
    right.boxplot(flat[:, 2:], whis=(5, 95), showfliers=False)
    right.errorbar(np.arange(1, 9) + 0.3, EFFECTS, ERRORS, fmt=".", color="gray", label="measured")
    right.set(xlabel="school", title="effects, shrunk to each other")
    right.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="hamiltonian.png")
    options = parser.parse_args(arguments)

    rng = ftrans.random.default_rng(options.seed)
    runs = [sample(options.draws, own) for own in rng.spawn(CHAINS)]
    chains = parameters(np.stack([places for places, _ in runs]))
    rhat, independent = mixing(chains)
    found, deviation = chains.mean((0, 1)), chains.std((0, 1))
    apart = np.abs(found - exact()) / (deviation / np.sqrt(independent))
    draw(chains, options.out)
    names = ["mean", "spread", *[f"school {i}" for i in range(1, 9)]]
    for row in zip(names, found, deviation, exact(), independent, rhat, strict=True):
        print("{:9} {:6.2f} +- {:5.2f}   exact {:6.2f}   {:6.0f} draws   R-hat {:.3f}".format(*row))
    print(f"moved: {np.mean([moved for _, moved in runs]):.2f}")
    return 0 if apart.max() < 4.5 and rhat.max() < 1.05 else 1


if __name__ == "__main__":
    sys.exit(main())
