"""Trains attention over a sequence that is cut over devices, which hand their keys on in a ring.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m examples.distributed.ring

Each device has an eighth of the positions. It attends from its own queries to the keys that it
has, hands these on to the next device, and takes those of the one before, until it has seen all;
the softmax is completed as they come. No device ever has all keys, or scores of more than an
eighth by an eighth of the positions: these are computed again in the backward pass. It learns a
sequence whose second half repeats the first; its losses are those of a single device.
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

BATCH, LENGTH, WIDTH, HEADS, LETTERS = 8, 256, 32, 2, 16


def initialise(rng):
    draw = lambda *shape: (rng.normal(size=shape) / np.sqrt(shape[-2])).astype("float32")  # noqa: E731
    weights = {"letters": draw(LETTERS, WIDTH), "places": draw(LENGTH, WIDTH)}
    # what stood half a sequence before has the same place code, so that it is found by it
    weights["places"][LENGTH // 2 :] = weights["places"][: LENGTH // 2]
    return weights | {"qkv": draw(3, WIDTH, WIDTH), "mix": draw(WIDTH, WIDTH)}


@func.checkpoint
def see(q, kv, ahead, state):
    """Adds what queries find among some keys to what they have found before.

    Args:
        q: the queries, f32[b, q, h, d].
        kv: keys and values, f32[2, b, k, h, d].
        ahead: how far the first query is ahead of the first key, i32[].
        state: the largest score so far, f32[b, h, q]; the sum of exponentials, f32[b, h, q]; and
            the values weighted by these, f32[b, q, h, d].
    """
    top, total, mixed = state
    scores = fnp.einsum("bqhd,bkhd->bhqk", q, kv[0]) / q.shape[-1] ** 0.5
    earlier = fnp.arange(q.shape[1])[:, None] + ahead >= fnp.arange(kv.shape[2])
    scores = fnp.where(earlier, scores, -1e9)
    larger = fnp.maximum(top, scores.max(-1))
    weights, kept = fnp.exp(scores - larger[..., None]), fnp.exp(top - larger)
    mixed = mixed * kept.swapaxes(1, 2)[..., None]
    return (
        larger,
        total * kept + weights.sum(-1),
        mixed + fnp.einsum("bhqk,bkhd->bqhd", weights, kv[1]),
    )


def attend(q, kv, axis):
    """Attends to all earlier positions; `axis` names that of the devices, None is for one."""
    batch, length, heads, _ = q.shape
    state = (
        fnp.full((batch, heads, length), -1e9),
        fnp.zeros((batch, heads, length)),
        fnp.zeros_like(q),
    )
    if axis is None:
        _, total, mixed = see(q, kv, 0, state)
    else:
        count, here = ftrans.axis_size(axis), ftrans.axis_index(axis)
        ring = [(i, (i + 1) % count) for i in range(count)]
        for step in range(count):
            owner = (here - step) % count
            state = see(q, kv, (here - owner) * length, state)
            if step < count - 1:
                kv = ftrans.ppermute(kv, axis, ring)
        _, total, mixed = state
    return mixed / total.swapaxes(1, 2)[..., None]


def loss(params, places, given, wanted, counts, axis=None):
    """Returns the mean cross-entropy of the letters that count, over all positions.

    Args:
        params: the weights.
        places: the codes of the positions, f32[n, width].
        given: the letters, f32[b, n, letters], one of them 1 at each position.
        wanted: the next ones.
        counts: 1 where a letter is to be foreseen, f32[n].
        axis: that of the devices, where each has some of the positions.
    """
    x = given @ params["letters"] + places
    parts = fnp.einsum("bni,sio->sbno", x, params["qkv"])
    q, *kv = parts.reshape(3, *x.shape[:2], HEADS, -1)
    x = x + attend(q, fnp.stack(kv), axis).reshape(x.shape) @ params["mix"]
    foreseen = fnp.log_softmax(x @ params["letters"].T)
    total = -((foreseen * wanted).sum(-1) * counts).sum()
    return (total if axis is None else ftrans.psum(total, axis)) / (BATCH * (LENGTH // 2))


def batches(steps):
    """Yields letters, and those that follow them."""
    rng = np.random.default_rng(0)
    for _ in range(steps):
        half = rng.integers(0, LETTERS, (BATCH, LENGTH // 2))
        letters = np.concatenate([half, half], 1)
        yield tuple(np.eye(LETTERS, dtype="float32")[x] for x in (letters, np.roll(letters, -1, 1)))


COUNTS = (np.arange(LENGTH) >= LENGTH // 2).astype("float32")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()

    count = jax.device_count()
    mesh = jax.make_mesh((count,), ("ring",))
    whole, line = PartitionSpec(), PartitionSpec(None, "ring")
    cut = ftrans.shard_map(
        lambda *args: loss(*args, axis="ring"),
        mesh=mesh,
        in_specs=(whole, PartitionSpec("ring"), line, line, PartitionSpec("ring")),
        out_specs=whole,
    )
    of = lambda f: func.value_and_grad(lambda w, *letters: f(w, w["places"], *letters, COUNTS))  # noqa: E731
    gradient, alone = of(cut), of(loss)
    start = initialise(np.random.default_rng(1))
    params = ftrans.device_put(start, NamedSharding(mesh, whole))
    put = lambda batch: ftrans.device_put(batch, NamedSharding(mesh, line))  # noqa: E731

    compiled = ftrans.jit(gradient).lower(params, *put(next(batches(1)))).compile()
    found = program.read(compiled.as_text())
    program.show(found)
    here = compiled.memory_analysis().temp_size_in_bytes
    compiled = ftrans.jit(alone).lower(start, *next(batches(1))).compile()
    there = compiled.memory_analysis().temp_size_in_bytes
    print(f"temporary memory: {there:,} bytes on one device alone, {here:,} on each")
    losses, *_ = train(gradient, params, map(put, batches(options.steps)), 1e-2)
    expected, *_ = train(alone, start, batches(options.steps), 1e-2)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}; alone {expected[-1]:.3f}")

    # keys and values go round once, and their cotangents once more
    sent = [c.bytes for c in found if c.kind == "collective-permute"]
    parts = 2 * BATCH * (LENGTH // count) * WIDTH * 4
    program.expect("keys go round, and cotangents", sent == [parts] * 2 * (count - 1))
    program.expect("sums besides", {c.kind for c in found} == {"collective-permute", "all-reduce"})
    program.expect("less memory on each device", here < there / 2)
    program.expect("the losses of one device", np.allclose(losses, expected, rtol=1e-3, atol=1e-4))
    program.expect("a loss that falls", losses[-1] < losses[0])


if __name__ == "__main__":
    main()
