"""Trains with parameters and optimiser state that are cut over all devices (fully sharded).

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m examples.distributed.sharded

Each device keeps an eighth of every weight and of both moments of Adam, and a part of the batch.
For a layer, the whole weight is gathered and let go of again; its gradient is summed to where its
part lies. The losses are those of a single device.
"""

import argparse
import itertools

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from examples.distributed import program
from examples.distributed.digits import load, rows_of
from examples.distributed.training import train
from ftrans import func

SIZES = (64, 512, 512, 16)  # ten classes and six that never come, so that eight divide them


def initialise(rng):
    draw = lambda m, n: (rng.normal(size=(m, n)) / np.sqrt(m)).astype("float32")  # noqa: E731
    return [draw(m, n) for m, n in itertools.pairwise(SIZES)]


def loss(params, images, labels, whole):
    """Returns the mean cross-entropy; `whole` gives a weight from its parts."""
    x = images
    for weight in params[:-1]:
        x = fnp.tanh(x @ whole(weight))
    log_probabilities = fnp.log_softmax(x @ whole(params[-1]))
    return -(log_probabilities * (labels[:, None] == fnp.arange(SIZES[-1]))).sum() / len(labels)


def gathering(mesh):
    """Returns what gathers a weight, and cuts its cotangent into the same parts."""
    parts, all_of_it = (NamedSharding(mesh, PartitionSpec(*n)) for n in (("data",), ()))

    def whole(weight):
        weight = ftrans.with_sharding_constraint(weight, parts)
        return ftrans.with_sharding_constraint(weight, all_of_it)

    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    count = jax.device_count()
    mesh = jax.make_mesh((count,), ("data",))
    parts = NamedSharding(mesh, PartitionSpec("data"))
    (images, labels), _ = load()
    rows = [rows_of(step, len(labels), 0) for step in range(options.steps)]
    plain = [(images[r], labels[r]) for r in rows]
    cut = ftrans.device_put(plain, parts)
    start = initialise(np.random.default_rng(0))
    of = lambda whole: func.value_and_grad(lambda *args: loss(*args, whole))  # noqa: E731
    gradient = of(gathering(mesh))

    params = ftrans.device_put(start, parts)
    found = program.collectives(ftrans.jit(gradient), params, *cut[0])
    program.show(found)
    losses, params, state = train(gradient, params, cut, 1e-3)
    alone, *kept = train(of(lambda weight: weight), start, plain, 1e-3)
    here, there = program.bytes_on_device((params, state)), program.bytes_of(kept)
    print(f"parameters and state: {there:,} bytes, {here:,} on each device")
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; alone {alone[-1]:.3f}")

    size = program.bytes_of(start)
    gathered = sum(c.bytes for c in found if c.kind == "all-gather")
    summed = [c for c in found if c.kind in ("reduce-scatter", "all-reduce")]
    program.expect("gathers and sums alone", {c.kind for c in found} <= KINDS)
    program.expect("each weight gathered once", gathered == size)
    program.expect("sums of all gradients", sum(c.bytes for c in summed) >= size // count)
    program.expect("an eighth of all on each device", here * count <= there * 1.01 + 64 * count)
    program.expect("the losses of one device", np.allclose(losses, alone, rtol=1e-3, atol=1e-4))
    program.expect("a loss that falls", losses[-1] < losses[0])


KINDS = {"all-gather", "reduce-scatter", "all-reduce"}
"""XLA sums to parts by reduce-scatter; on CPUs by all-reduce, of which each takes its part."""


if __name__ == "__main__":
    main()
