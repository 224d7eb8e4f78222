"""Trains a transformer whose attention heads and hidden units are split over devices.

    export XLA_FLAGS=--xla_force_host_platform_device_count=8
    python -m examples.distributed.tensor_parallel

Four groups of two devices: a group takes a quarter of the batch, a device of it half of the heads
of each attention and half of the hidden units of each perceptron. So a block has one sum over the
group after its attention and one after its perceptron, and their transposes in the backward pass.
It learns to write a sequence backwards; its losses are those of a single device.
"""

import argparse

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from examples.distributed import program
from examples.distributed.training import train
from ftrans import func

BLOCKS, WIDTH, HEADS, HIDDEN, LETTERS, LENGTH, BATCH = 2, 64, 4, 256, 16, 12, 32

# which axis of each weight is split over a group
SPLIT = {
    "heads": (None, None, "model"),
    "mix": ("model", None),
    "up": (None, "model"),
    "down": ("model", None),
}
SHAPES = {"heads": (3, WIDTH, WIDTH), "mix": (WIDTH, WIDTH)}
SHAPES |= {"up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}


def initialise(rng):
    """Returns the weights: of the letters, of the places, of each block."""
    draw = lambda *shape: (rng.normal(size=shape) / np.sqrt(shape[-2])).astype("float32")  # noqa: E731
    blocks = [{name: draw(*SHAPES[name]) for name in SPLIT} for _ in range(BLOCKS)]
    return {"letters": draw(LETTERS, WIDTH), "places": draw(LENGTH, WIDTH), "blocks": blocks}


def shardings(mesh):
    """Returns how the weights lie: those of blocks are split, all else is whole everywhere."""
    whole = NamedSharding(mesh, PartitionSpec())
    block = {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in SPLIT.items()}
    return {"letters": whole, "places": whole, "blocks": [block] * BLOCKS}


def normed(x):
    return (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attend(w, x):
    batch, length, _ = x.shape
    # by one product, so that its transpose has one sum over a group
    q, k, v = fnp.einsum("bni,sio->sbno", x, w["heads"]).reshape(3, batch, length, HEADS, -1)
    scores = fnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    mixed = fnp.einsum("bhqk,bkhd->bqhd", fnp.softmax(scores, -1), v)
    return mixed.reshape(batch, length, WIDTH) @ w["mix"]


def loss(params, given, wanted, place=lambda tree, how: tree):
    """Returns the mean cross-entropy of letters, f32[b, n, letters], one of them 1 at each place.

    `place` says of weights and activations how they lie, and so of their cotangents.
    """
    params = place(params, "weights")
    x = place(given @ params["letters"] + params["places"], "rows")
    for w in params["blocks"]:
        x = place(x + place(attend(w, place(normed(x), "rows")), "rows"), "rows")
        up = place(normed(x), "rows") @ w["up"]
        x = place(x + place(fnp.maximum(up, 0) @ w["down"], "rows"), "rows")
    log_probabilities = fnp.log_softmax(normed(x) @ params["letters"].T)
    return -(log_probabilities * wanted).sum() / (BATCH * LENGTH)


def batches(steps):
    """Yields sequences, and the same backwards."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        letters = rng.integers(0, LETTERS, (BATCH, LENGTH))
        given = np.eye(LETTERS, dtype="float32")[letters]
        yield given, np.ascontiguousarray(given[:, ::-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    groups = jax.device_count() // 2
    mesh = jax.make_mesh((groups, 2), ("data", "model"))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    start = initialise(np.random.default_rng(1))
    params = ftrans.device_put(start, shardings(mesh))
    put = lambda batch: ftrans.device_put(batch, rows)  # noqa: E731

    how = {"weights": shardings(mesh), "rows": rows}
    place = lambda tree, name: ftrans.with_sharding_constraint(tree, how[name])  # noqa: E731
    gradient = func.value_and_grad(lambda *args: loss(*args, place))
    found = program.collectives(ftrans.jit(gradient), params, *put(next(batches(1))))
    program.show(found)
    blocks, here = start["blocks"], program.bytes_on_device(params["blocks"])
    print(f"weights of blocks: {program.bytes_of(blocks):,} bytes, {here:,} on each device")
    losses, *_ = train(gradient, params, map(put, batches(options.steps)), 3e-3)
    alone, *_ = train(func.value_and_grad(loss), start, batches(options.steps), 3e-3)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; alone {alone[-1]:.3f}")

    # a block sums its activations twice, and their cotangents twice
    activations = BATCH // groups * LENGTH * WIDTH * 4
    within = sum(c.bytes for c in found if c.devices == 2)
    over = sum(c.bytes for c in found if c.devices == groups)
    program.expect("sums alone", {c.kind for c in found} == {"all-reduce"})
    program.expect("four sums a block within a group", within == 4 * BLOCKS * activations)
    # the letters stand at both ends, and the loss is summed with the gradients
    gradients = program.bytes_on_device(params) + start["letters"].nbytes + 4
    program.expect("sums of gradients over groups", over == gradients)
    program.expect("half of each block on a device", 2 * here == program.bytes_of(blocks))
    program.expect("the losses of one device", np.allclose(losses, alone, rtol=1e-2, atol=1e-3))
    program.expect("a loss that falls", losses[-1] < losses[0])


if __name__ == "__main__":
    main()
