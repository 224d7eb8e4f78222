"""Trains on the handwritten digits by data: each device takes a part of each batch.

    python -m examples.distributed.digits [--processes 2] [--devices 2] [--steps 200]

With more than one process, workers are started on this machine. Under Slurm, Kubernetes or MPI
the same command, without `--processes`, joins the workers that are there. Each process writes its
part of a checkpoint every few steps; a run that was ended goes on from the last one, with the
losses of a run that was not. Nothing that is drawn depends on the number of processes or devices.
"""

import argparse
import itertools
import json
import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import ftrans
import ftrans.numpy as fnp
from examples.distributed import program
from examples.distributed.workers import is_worker, join, launch
from ftrans import func

BATCH = 64
SIZES = (64, 128, 10)
HELD_OUT = 397


def load():
    """Returns (images f32[n, 64], labels i32[n]) to train on, and those held out."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    data = (images[order] / 16).astype("float32"), labels[order].astype("int32")
    return [x[HELD_OUT:] for x in data], [x[:HELD_OUT] for x in data]


def rows_of(step, count, seed):
    """Returns which examples are the batch of a step: each once in an epoch, in its order."""
    epoch, number = divmod(step, count // BATCH)
    order = np.random.default_rng((seed, epoch)).permutation(count)
    return order[number * BATCH : (number + 1) * BATCH]


def initialise(rng):
    return [
        {"w": (rng.normal(size=(m, n)) / np.sqrt(m)).astype("float32"), "b": np.zeros(n, "float32")}
        for m, n in itertools.pairwise(SIZES)
    ]


def predict(params, images, key=None):
    """Returns the logits f32[n, 10]; with a key a tenth of the hidden units are left out."""
    (first, last) = params
    hidden = fnp.tanh(images @ first["w"] + first["b"])
    if key is not None:
        hidden = hidden * ftrans.random.bernoulli(key, 0.9, hidden.shape) / 0.9
    return hidden @ last["w"] + last["b"]


def loss(params, images, labels, key):
    """Returns the mean cross-entropy, in nats."""
    log_probabilities = fnp.log_softmax(predict(params, images, key))
    # to read by an index that lies on several devices XLA would gather the indices
    return -(log_probabilities * (labels[:, None] == fnp.arange(10))).sum() / len(labels)


def spread(array, sharding):
    """Returns an array that every process knows, of which each device gets its part."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def train(options):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    by_rows, whole = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("data",), ()))
    (images, labels), held_out = load()
    params = initialise(np.random.default_rng(options.seed))
    optimiser = optax.adam(1e-3)
    update = jax.jit(optimiser.update)
    put = lambda tree: jax.tree.map(lambda x: spread(np.asarray(x), whole), tree)  # noqa: E731
    params, state = put(params), put(optimiser.init(params))
    keys = ftrans.random.key(options.seed)

    def batch(step):
        rows = rows_of(step, len(labels), options.seed)
        given = spread(images[rows], by_rows), spread(labels[rows], by_rows)
        return *given, ftrans.random.fold_in(keys, step)

    is_first = jax.process_index() == 0
    if is_first:
        print(f"{jax.process_count()} processes, {jax.device_count()} devices")
    check(params, batch(0), is_first)
    with checkpoints(options) as manager:
        start = manager.latest_step() or 0
        if start:
            restored = manager.restore(start, args=ocp.args.StandardRestore((params, state)))
            params, state = restored
            if is_first:
                print(f"goes on from step {start}", flush=True)
        for step in range(start, options.steps):
            if step == options.fail_at and start == 0 and not is_first:
                os.kill(os.getpid(), signal.SIGKILL)
            # Python runs `loss` at every step; what was compiled for it is found again
            value, gradient = func.value_and_grad(loss)(params, *batch(step))
            updates, state = update(gradient, state)
            params = optax.apply_updates(params, updates)
            if is_first:
                note(options, step, float(value))
            manager.save(step + 1, args=ocp.args.StandardSave((params, state)))
    here = jax.tree.map(np.asarray, params)
    right = float((predict(here, held_out[0]).argmax(-1) == held_out[1]).mean())
    if is_first:
        print(f"accuracy {right:.1%} of {HELD_OUT} images held out", flush=True)
    program.expect("an accuracy of 90 % after 200 steps", options.steps < 200 or right > 0.9)


def checkpoints(options):
    """Returns what writes checkpoints, each process its part, and keeps the last two."""
    how = ocp.CheckpointManagerOptions(
        save_interval_steps=options.every,
        max_to_keep=2,
        enable_async_checkpointing=False,  # it is whole before the next step begins
    )
    return ocp.CheckpointManager(Path(options.out).resolve() / "checkpoints", options=how)


def note(options, step, value):
    """Adds the loss of a step to a file."""
    with (Path(options.out) / "losses.jsonl").open("a") as file:
        file.write(json.dumps([step, value]) + "\n")


def check(params, batch, shows):
    """Looks at the program of a step: one sum over all devices, of gradients and the loss."""
    found = program.collectives(ftrans.jit(func.value_and_grad(loss)), params, *batch)
    if shows:
        print(f"parameters: {program.bytes_of(params):,} bytes, all of them on each device")
        whole, part = program.bytes_of(batch[0]), program.bytes_on_device(batch[0])
        print(f"images: {whole:,} bytes, {part:,} on each")
        program.show(found)
    count = jax.device_count()
    if count > 1:
        program.expect("sums alone", {c.kind for c in found} == {"all-reduce"})
        summed = sum(c.bytes for c in found)
        program.expect("sums of the gradients", 0 <= summed - program.bytes_of(params) <= 64)
    images = batch[0]
    part = program.bytes_on_device(images) * count
    program.expect("a part of the images on each device", part == images.nbytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=1, help="workers to start here")
    parser.add_argument("--devices", type=int, default=2, help="virtual devices of each of them")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="digits", help="a folder for losses and checkpoints")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all that is started")
    parser.add_argument("--restarts", type=int, default=0, help="how often, where a worker dies")
    parser.add_argument("--fail-at", type=int, help="a step at which all but one die, for show")
    options = parser.parse_args()
    if options.processes > 1 and not is_worker():
        command = [sys.executable, "-m", "examples.distributed.digits", *sys.argv[1:]]
        started = options.processes, options.devices, options.limit, options.restarts
        sys.exit(launch(command, *started))
    Path(options.out).mkdir(parents=True, exist_ok=True)
    join()
    train(options)


if __name__ == "__main__":
    main()
