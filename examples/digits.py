"""Trains a small network on 1,797 handwritten digits, and looks at what it has learnt.

    python examples/digits.py [--epochs 30] [--seed 0] [--out digits.png]

Every derivative comes from `ftrans.func`, and nothing is jitted: `grad_and_value` for the steps of
an optax optimiser, `vmap` of `grad` for how far each image alone would move the network, `hvp` in
a Lanczos iteration for the curvature of the loss. Exits with 1 below 95 % on images held out.
"""

import argparse
import itertools
import sys

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


def load(seed):
    """Returns (images f32[n, 64], labels i32[n]) to train on, and a quarter of them held out."""
    images, labels = load_digits(return_X_y=True)
    images, labels = jnp.asarray(images / 16, "float32"), jnp.asarray(labels, "int32")
    parts = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=seed)
    return parts[::2], parts[1::2]


# ---------------------------------------------------------------------------------- the network


def initialise(rng, sizes=(64, 64, 10)):
    """Returns the layers of the network, any pytree would do: weights f32[m, n], biases f32[n]."""
    return [
        {
            "weights": jnp.asarray(rng.normal(size=(m, n)) / np.sqrt(m), "float32"),
            "biases": jnp.zeros(n, "float32"),
        }
        for m, n in itertools.pairwise(sizes)
    ]


def predict(params, images):
    """Returns the logits f32[..., 10] of images f32[..., 64]."""
    *hidden, last = params
    for layer in hidden:
        images = fnp.tanh(images @ layer["weights"] + layer["biases"])
    return images @ last["weights"] + last["biases"]


def loss(params, images, labels):
    """Returns the mean cross-entropy, in nats, of many images or of a single one."""
    log_probabilities = fnp.log_softmax(predict(params, images))
    return -fnp.take_along_axis(log_probabilities, labels[..., None], axis=-1).mean()


def accuracy(params, images, labels):
    return float((predict(params, images).argmax(-1) == labels).mean())


# ------------------------------------------------------------------- the derivatives, three ways


def train(params, data, held_out, epochs, rng):
    """Returns the trained network and, by epoch, both losses and both accuracies."""
    images, labels = data
    steps = len(labels) // BATCH
    optimiser = optax.adam(optax.cosine_decay_schedule(5e-3, epochs * steps))
    state = optimiser.init(params)
    history = []
    with tqdm(total=epochs * steps, unit="step") as progress:
        for _ in range(epochs):
            for rows in np.split(rng.permutation(len(labels))[: steps * BATCH], steps):
                # Python runs `loss` at every step; what was compiled for it is found again.
                gradient, _ = func.grad_and_value(loss)(params, images[rows], labels[rows])
                updates, state = optimiser.update(gradient, state)
                params = optax.apply_updates(params, updates)
                progress.update()
            measures = [float(loss(params, *part)) for part in (data, held_out)]
            measures += [accuracy(params, *part) for part in (data, held_out)]
            history.append(measures)
            progress.set_postfix(
                loss=f"{measures[0]:.3f}", held_out=f"{measures[3]:.1%}", refresh=False
            )
    return params, np.array(history)


def gradient_norm(params, image, label):
    """Returns how far one image alone would move the network."""
    gradient = func.grad(loss)(params, image, label)
    return fnp.sqrt(sum((g * g).sum() for g in tree.leaves(gradient)))


def curvatures(params, data, count, rng):
    """Returns the largest eigenvalues of the Hessian of the loss, which is never formed.

    SciPy's `eigsh` is a Lanczos iteration: it asks for no more than products with vectors.
    """
    flat, unravel = ravel_pytree(params)

    def product(vector):
        tangent = unravel(jnp.asarray(vector.ravel(), "float32"))
        _, result = func.hvp(lambda params: loss(params, *data), params, tangent)
        return np.asarray(ravel_pytree(result)[0])

    hessian = LinearOperator((flat.size, flat.size), product, dtype=np.float32)
    start = rng.normal(size=flat.size).astype("float32")  # else it would draw its own
    return eigsh(hessian, count, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)[::-1]


# ----------------------------------------------------------------------------------- the figure


def draw(history, spectrum, norms, images, labels, guesses, out):
    """Draws how the training went, and the images with the largest gradients."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    title = {"loc": "left", "fontweight": "bold", "fontsize": 10}
    blue, orange, red = "#2b6cb0", "#dd8b26", "#c0392b"
    figure = plt.figure(figsize=(10, 6.4), layout="constrained", dpi=150)
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.05))

    epochs = np.arange(1, len(history) + 1)
    left, middle, right = above.subplots(1, 3)
    for axes, first in ((left, 0), (middle, 2)):
        axes.plot(epochs, history[:, first], color=blue, label="training")
        axes.plot(epochs, history[:, first + 1], color=orange, label="held out")
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
    left.set(yscale="log", ylabel="cross-entropy, nats")
    left.set_title("Loss", **title)
    left.legend(frameon=False)
    middle.set_title(f"Accuracy: {history[-1, 3]:.1%} on images held out", **title)
    middle.axhline(GOAL, color="grey", linewidth=0.8, linestyle="--")
    middle.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    ranks = np.arange(1, len(spectrum) + 1)
    right.bar(ranks, spectrum, color=blue)
    right.set(xlabel="eigenvalue of the Hessian, by rank", xticks=ranks)
    right.set_title("Largest curvatures of the loss", **title)

    below.suptitle("Hardest images held out, and the norms of their gradients", x=0.01, ha="left",
                   weight="bold", size=10)  # fmt: skip
    for axes, i in zip(below.subplots(2, 8).flat, np.argsort(-norms), strict=False):
        axes.imshow(images[i].reshape(8, 8), cmap="gray_r")
        wrong = guesses[i] != labels[i]
        said = f"{labels[i]}, read as {guesses[i]}" if wrong else f"{labels[i]}"
        axes.set_title(said, color=red if wrong else "black", size=9, pad=3)
        axes.set_xlabel(f"{norms[i]:.1f}", color="grey", labelpad=2)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color="lightgrey")
    figure.savefig(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="digits.png", help="where to write the figure")
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    data, held_out = load(options.seed)
    params, history = train(initialise(rng), data, held_out, options.epochs, rng)
    norms = np.asarray(func.vmap(gradient_norm, in_dims=(None, 0, 0))(params, *held_out))
    spectrum = curvatures(params, data, 10, rng)
    guesses = predict(params, held_out[0]).argmax(-1)
    draw(history, spectrum, norms, *held_out, guesses, options.out)

    reached = history[-1, 3]
    print(f"accuracy        {reached:.1%} of {len(norms)} images held out")
    print(f"gradient norms  {np.median(norms):.2g} in the median, {norms.max():.2g} at most")
    print(f"top curvature   {spectrum[0]:.3g}")
    print(f"figure          {options.out}")
    if reached < GOAL:
        sys.exit(f"The accuracy is below {GOAL:.0%}.")


if __name__ == "__main__":
    main()
