"""Teaches a small transformer a text, letter by letter, with dropout and Adam, and has it write.

    python examples/models/transformer.py [--steps 400] [--out transformer.png]

The text is the Zen of Python. Two layers, causal attention, layer norms and dropout are functions
of `ftrans.nn`; parameters are dicts of arrays; `optax` updates them. Nothing is jitted: the
generator draws another dropout mask at each call, of a program that is the same. Exits with 1 where
the text is not learnt, or the masks made more than one program.
"""

import argparse
import codecs
import contextlib
import io
import sys

import matplotlib as mpl
import numpy as np
import optax

import ftrans
from ftrans import func, nn

mpl.use("Agg")  # draws to a file, on machines without a display too
import matplotlib.pyplot as plt

with contextlib.redirect_stdout(io.StringIO()):  # it prints itself
    import this

TEXT = codecs.decode(this.s, "rot13")
LETTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 48, 16
GOAL = 1.2
"""In nats a letter: their frequencies alone give 3.0, pairs of them 2.1."""


def initialise(key):
    """Returns the parameters, a pytree of f32 arrays."""
    keys = iter(ftrans.random.split(key, 4 * LAYERS + 3))

    def weights(m, n):
        return nn.init.normal((m, n), std=m**-0.5, key=next(keys))

    def layer():
        norms = {name: np.ones(WIDTH, "float32") for name in ("before", "between")}
        return norms | {
            "qkv": weights(WIDTH, 3 * WIDTH),
            "out": weights(WIDTH, WIDTH),
            "up": weights(WIDTH, 4 * WIDTH),
            "down": weights(4 * WIDTH, WIDTH),
        }

    return {
        "letters": weights(len(LETTERS), WIDTH),
        "places": weights(CONTEXT, WIDTH),
        "layers": [layer() for _ in range(LAYERS)],
        "last": np.ones(WIDTH, "float32"),
        "logits": weights(WIDTH, len(LETTERS)),
    }


def attend(layer, x):
    """Lets each place of f32[b, n, width] look at those before it."""
    heads = (x @ layer["qkv"]).reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
    q, k, v = heads.transpose(2, 0, 3, 1, 4)
    seen = nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    return seen.transpose(0, 2, 1, 3).reshape(x.shape) @ layer["out"]


def predict(params, text, rng=None):
    """Returns logits f32[b, n, letters] of the next letters; with a generator, of a thinned net."""

    def thinned(x):
        return x if rng is None else nn.dropout(x, 0.1, rng=rng)

    x = nn.embedding(text, params["letters"]) + params["places"][: text.shape[1]]
    for layer in params["layers"]:
        x = x + thinned(attend(layer, nn.layer_norm(x, (WIDTH,), layer["before"])))
        hidden = nn.gelu(nn.layer_norm(x, (WIDTH,), layer["between"]) @ layer["up"])
        x = x + thinned(hidden @ layer["down"])
    return nn.layer_norm(x, (WIDTH,), params["last"]) @ params["logits"]


def loss(params, text, rng=None):
    """Returns the mean cross-entropy of the letters of i32[b, n + 1] but the first, in nats."""
    logits = predict(params, text[:, :-1], rng)
    return nn.cross_entropy(logits.reshape(-1, len(LETTERS)), text[:, 1:].reshape(-1))


def train(params, text, steps, rng):
    """Returns trained parameters, the losses, and how many programs were new after three steps."""
    optimiser = optax.adamw(optax.warmup_cosine_decay_schedule(0, 3e-3, 20, steps))
    state, losses, known = optimiser.init(params), [], 0
    for step in range(steps):
        starts = rng.integers(len(text) - CONTEXT, size=BATCH)
        batch = text[starts[:, None] + np.arange(CONTEXT + 1)]
        slopes, value = func.grad_and_value(lambda p, b=batch: loss(p, b, rng))(params)
        updates, state = optimiser.update(slopes, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(value))
        if step == 2:
            known = ftrans.cache_info().misses
    return params, losses, ftrans.cache_info().misses - known


def write(params, text, count, rng):
    """Returns how the net goes on from letters i32[context] on, all of which it has read before."""
    for _ in range(count):
        logits = np.asarray(predict(params, text[None, -CONTEXT:])[0, -1])
        text = np.append(text, rng.categorical(logits / 0.5))
    return "".join(LETTERS[i] for i in text)


def draw(losses, out):
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(losses)
    axes.axhline(GOAL, color="gray", ls="--")
    axes.set(xlabel="step", ylabel="nats a letter", title="a transformer learns the Zen of Python")
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="transformer.png")
    options = parser.parse_args(arguments)

    text = np.array([LETTERS.index(letter) for letter in TEXT], "int32")
    rng = ftrans.random.default_rng(options.seed)
    params, losses, new = train(initialise(rng.key()), text, options.steps, rng)
    draw(losses, options.out)
    reached = np.mean(losses[-20:])
    print(f"loss {losses[0]:.3f} -> {reached:.3f} nats a letter; new programs: {new}")
    print(write(params, text[:CONTEXT], 300, rng))
    return 0 if reached < GOAL and not new else 1


if __name__ == "__main__":
    sys.exit(main())
