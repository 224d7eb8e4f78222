"""Trains a small network on 1,797 handwritten digits, and looks at what it has learnt.

    python examples/digits.py [--epochs 30] [--seed 0] [--out digits.png]

Every derivative comes from `ftrans.func`, and nothing is jitted: `grad_and_value` for the steps of
an optax optimiser, `vmap` of `grad` for how much each image would still change the network, `hvp`
in a Lanczos iteration for the curvature of the loss. Exits with 1 below 95 % on images held out.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any, NamedTuple

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import optax
from jax import tree
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import ftrans.numpy as fnp
from ftrans import func

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

GOAL = 0.95
BATCH = 64


class Data(NamedTuple):
    """Holds images f32[n, 64], with pixels from 0 to 1, and labels i32[n]."""

    images: Any
    labels: Any


def load(seed: int) -> tuple[Data, Data]:
    """Returns three quarters of the images to train on, and the rest to test with."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        jnp.asarray(images / 16, "float32"),
        jnp.asarray(labels, "int32"),
        test_size=0.25,
        stratify=labels,
        random_state=seed,
    )
    return Data(*parts[::2]), Data(*parts[1::2])


# ---------------------------------------------------------------------------------- the network


def initialise(rng: np.random.Generator, sizes: tuple[int, ...] = (64, 64, 10)) -> Any:
    """Returns the layers of the network: weights f32[m, n] and biases f32[n]."""
    return [
        {
            "weights": jnp.asarray(rng.normal(size=(m, n)) / np.sqrt(m), "float32"),
            "biases": jnp.zeros(n, "float32"),
        }
        for m, n in itertools.pairwise(sizes)
    ]


def predict(params: Any, images: Any) -> Any:
    """Returns the logits f32[..., 10] of images f32[..., 64]."""
    *hidden, last = params
    for layer in hidden:
        images = fnp.tanh(images @ layer["weights"] + layer["biases"])
    return images @ last["weights"] + last["biases"]


def loss(params: Any, images: Any, labels: Any) -> Any:
    """Returns the mean cross-entropy, in nats, of many images or of a single one."""
    log_probabilities = fnp.log_softmax(predict(params, images))
    return -fnp.take_along_axis(log_probabilities, labels[..., None], axis=-1).mean()


def accuracy(params: Any, data: Data) -> float:
    return float((predict(params, data.images).argmax(-1) == data.labels).mean())


# ------------------------------------------------------------------- the derivatives, three ways


def train(params: Any, data: Data, test: Data, epochs: int, rng: np.random.Generator) -> Any:
    """Returns the trained network, and for each epoch the losses and accuracies on both parts."""
    steps = len(data.labels) // BATCH
    optimiser = optax.adam(optax.cosine_decay_schedule(5e-3, epochs * steps))
    state = optimiser.init(params)
    history = []
    with tqdm(total=epochs * steps, unit="step") as progress:
        for _ in range(epochs):
            for rows in np.split(rng.permutation(len(data.labels))[: steps * BATCH], steps):
                batch = Data(data.images[rows], data.labels[rows])
                # The loss is traced anew each time, and what was compiled for it is found again.
                gradient, value = func.grad_and_value(loss)(params, *batch)
                updates, state = optimiser.update(gradient, state)
                params = optax.apply_updates(params, updates)
                progress.update()
            losses = [float(loss(params, *part)) for part in (data, test)]
            history.append(losses + [accuracy(params, part) for part in (data, test)])
            progress.set_postfix(loss=f"{value:.3f}", test=f"{history[-1][-1]:.1%}")
    return params, np.array(history)


def gradient_norm(params: Any, image: Any, label: Any) -> Any:
    """Returns how far one image alone would move the network: f32[]."""
    gradient = func.grad(loss)(params, image, label)
    return fnp.sqrt(sum((g * g).sum() for g in tree.leaves(gradient)))


def curvatures(params: Any, data: Data, count: int, rng: np.random.Generator) -> Any:
    """Returns the largest eigenvalues of the Hessian of the loss, which is never formed.

    SciPy's `eigsh` is a Lanczos iteration: all it asks for are products with vectors.
    """
    flat, unravel = ravel_pytree(params)

    def product(vector: Any) -> Any:
        vector = unravel(jnp.asarray(vector.ravel(), "float32"))
        _, result = func.hvp(lambda params: loss(params, *data), params, vector)
        return np.asarray(ravel_pytree(result)[0])

    hessian = LinearOperator((flat.size, flat.size), product, dtype=np.float32)
    start = rng.normal(size=flat.size).astype(np.float32)
    return eigsh(hessian, count, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)[::-1]


# ----------------------------------------------------------------------------------- the figure


def draw(history: Any, spectrum: Any, norms: Any, test: Data, guesses: Any, out: str) -> None:
    """Draws how the training went, and the images with the largest gradients."""
    plt.rcParams.update({
        "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlesize": 10, "axes.titlelocation": "left", "axes.titleweight": "bold",
        "legend.frameon": False,
    })  # fmt: skip
    figure = plt.figure(figsize=(10, 6.4), layout="constrained", dpi=150)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.05))
    blue, orange, red = "#2b6cb0", "#dd8b26", "#c0392b"

    epochs = np.arange(1, len(history) + 1)
    left, middle, right = above.subplots(1, 3)
    for axes, title, columns in ((left, "Loss", (0, 1)), (middle, "Accuracy", (2, 3))):
        for column, label, colour in zip(columns, ("train", "test"), (blue, orange), strict=True):
            axes.plot(epochs, history[:, column], color=colour, label=label)
        axes.set(title=title, xlabel="epoch")
        axes.grid(alpha=0.25)
    left.set(yscale="log", ylabel="cross-entropy, nats")
    left.legend()
    middle.axhline(GOAL, color="grey", linewidth=0.8, linestyle="--")
    middle.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    middle.annotate(
        f"{history[-1, 3]:.1%}", (epochs[-1], history[-1, 3]), (0, -14),
        textcoords="offset points", ha="right", color=orange, weight="bold",
    )  # fmt: skip
    right.bar(np.arange(1, len(spectrum) + 1), spectrum, color=blue)
    right.set(title="Largest curvatures of the loss", xlabel="eigenvalue of the Hessian, by rank")

    below.suptitle("Hardest test images, by the norm of their gradient", x=0.01, ha="left",
                   fontsize=10, weight="bold")  # fmt: skip
    hardest = np.argsort(-norms)
    for axes, i in zip(below.subplots(2, 8).flat, hardest, strict=False):
        axes.imshow(test.images[i].reshape(8, 8), cmap="gray_r", interpolation="nearest")
        right_guess = guesses[i] == test.labels[i]
        said = "" if right_guess else f", read as {guesses[i]}"
        axes.set_title(f"{test.labels[i]}{said}", loc="center", weight="normal", pad=3,
                       color="black" if right_guess else red)  # fmt: skip
        axes.set_xlabel(f"{norms[i]:.1f}", labelpad=2, color="grey")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color="lightgrey")
    figure.savefig(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="digits.png", help="where to write the figure")
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    data, test = load(options.seed)
    params, history = train(initialise(rng), data, test, options.epochs, rng)
    norms = np.asarray(func.vmap(gradient_norm, in_dims=(None, 0, 0))(params, *test))
    spectrum = curvatures(params, data, 10, rng)
    guesses = np.asarray(predict(params, test.images).argmax(-1))
    draw(history, spectrum, norms, test, guesses, options.out)

    reached = history[-1, 3]
    print(f"test accuracy      {reached:.1%} of {len(test.labels)} images held out")
    print(f"top curvature      {spectrum[0]:.3g}")
    print(f"gradient norms     {np.median(norms):.2g} in the median, {norms.max():.2g} at most")
    print(f"figure             {options.out}")
    if reached < GOAL:
        print(f"The accuracy is below {GOAL:.0%}.", file=sys.stderr)
    return int(reached < GOAL)


if __name__ == "__main__":
    sys.exit(main())
