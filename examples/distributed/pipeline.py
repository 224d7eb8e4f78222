"""Trains a deep network whose blocks lie on different devices, one after the other: a pipeline.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m examples.distributed.pipeline

Each device has one of eight blocks. A batch is cut into parts, which enter one after the other:
at each tick a device computes its block for the part that it has, and hands the result on to the
next. After as many ticks as there are parts, and seven more, all have come through; backwards the
cotangents go the other way. Its losses are those of a single device.
"""

import argparse

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import ftrans
import ftrans.numpy as fnp
from examples.distributed import program
from examples.distributed.digits import load, rows_of
from examples.distributed.training import train
from ftrans import func

WIDTH, HIDDEN, CLASSES, PARTS = 64, 256, 16, 16


def initialise(rng, blocks):
    """Returns the weights: of all blocks, stacked, and of the last layer."""
    draw = lambda *shape: (rng.normal(size=shape) / np.sqrt(shape[-2])).astype("float32")  # noqa: E731
    stages = {"up": draw(blocks, WIDTH, HIDDEN), "down": draw(blocks, HIDDEN, WIDTH) / blocks}
    return {"stages": stages, "last": draw(WIDTH, CLASSES)}


def block(w, x):
    return x + fnp.tanh(x @ w["up"]) @ w["down"]


def in_turn(stages, x):
    """Returns what all blocks make of a batch, on one device."""
    return ftrans.scan(lambda x, w: (block(w, x), None), x, stages)[0]


def pipelined(stages, x):
    """Returns the same on the last device of the pipeline, from what its devices have.

    Args:
        stages: the block of this device, f32[1, ...].
        x: the batch, f32[n, width].
    """
    w = jax.tree.map(lambda stacked: stacked[0], stages)
    count, here = ftrans.axis_size("stage"), ftrans.axis_index("stage")
    following = [(i, i + 1) for i in range(count - 1)]
    parts = x.reshape(PARTS, -1, WIDTH)
    entering = fnp.concatenate([parts, fnp.zeros((count - 1, *parts.shape[1:]), x.dtype)])

    def tick(received, part):
        result = block(w, fnp.where(here == 0, part, received))
        return ftrans.ppermute(result, "stage", following), result

    _, results = ftrans.scan(tick, fnp.zeros_like(parts[0]), entering)
    return results[count - 1 :].reshape(x.shape)


def loss(params, images, labels, through=in_turn):
    """Returns the mean cross-entropy; `through` takes a batch through the blocks."""
    x = through(params["stages"], images)
    log_probabilities = fnp.log_softmax(x @ params["last"])
    return -(log_probabilities * (labels[:, None] == fnp.arange(CLASSES))).sum() / len(labels)


def loss_of_last(params, images, labels):
    """Returns the loss that the last device finds, on all of them."""
    is_last = ftrans.axis_index("stage") == ftrans.axis_size("stage") - 1
    found = loss(params, images, labels, pipelined)
    return ftrans.psum(fnp.where(is_last, found, 0.0), "stage")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    count = jax.device_count()
    mesh = jax.make_mesh((count,), ("stage",))
    whole, cut = PartitionSpec(), PartitionSpec("stage")
    spec = {"stages": {"up": cut, "down": cut}, "last": whole}
    sharded = ftrans.shard_map(
        loss_of_last, mesh=mesh, in_specs=(spec, whole, whole), out_specs=whole
    )
    (images, labels), _ = load()
    rows = [rows_of(step, len(labels), 0) for step in range(options.steps)]
    plain = [(images[r], labels[r]) for r in rows]
    start = initialise(np.random.default_rng(0), count)
    lies = jax.tree.map(lambda s: NamedSharding(mesh, s), spec)
    params = ftrans.device_put(start, lies)
    batches = ftrans.device_put(plain, NamedSharding(mesh, whole))

    gradient = func.value_and_grad(sharded)
    found = program.collectives(ftrans.jit(gradient), params, *batches[0])
    program.show(found)
    here, size = program.bytes_on_device(params["stages"]), program.bytes_of(start["stages"])
    print(f"weights of blocks: {size:,} bytes, {here:,} on each device")
    losses, *_ = train(gradient, params, batches, 1e-3)
    alone, *_ = train(func.value_and_grad(loss), start, plain, 1e-3)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; alone {alone[-1]:.3f}")

    # one in the loop over ticks, and one in that of the backward pass
    sent = [c.bytes for c in found if c.kind == "collective-permute"]
    part = len(plain[0][1]) // PARTS * WIDTH * 4
    program.expect("results go on, and cotangents back", sent == [part] * 2)
    program.expect("sums besides", {c.kind for c in found} == {"collective-permute", "all-reduce"})
    program.expect("one block on each device", count * here == size)
    program.expect("the losses of one device", np.allclose(losses, alone, rtol=1e-3, atol=1e-4))
    program.expect("a loss that falls", losses[-1] < losses[0])


if __name__ == "__main__":
    main()
