"""Functions of networks: attention in chunks, a convolutional network, dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import ftrans
from benchmarks.measure import Task
from benchmarks.models import convnet
from benchmarks.race import Against, race
from benchmarks.result import Result, compilations, faster, memory, time
from benchmarks.row import Row, Settings
from benchmarks.rows.recompiling import compiling
from ftrans import func, nn
from ftrans import numpy as fnp

__all__ = ["ROWS", "dropout_steps"]

_CHUNK = 512
_UNTIL_COMPILED = 4000


def _operands(length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(1, 2, length, 64)).astype("float32") for _ in range(3)]


def _slopes(chunk: int | None, causal: bool) -> Any:
    """Returns the gradient of attention with respect to all operands."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        out = nn.scaled_dot_product_attention(q, k, v, is_causal=causal, chunk=chunk)
        return fnp.sum(fnp.square(out))

    return func.grad(loss, argnums=(0, 1, 2))


def _attention(row: Row, settings: Settings) -> Iterator[Result]:
    given = _operands(1024 if settings.small else 4096)

    def task(chunk: int | None, causal: bool) -> Task:
        slopes = ftrans.jit(_slopes(chunk, causal))
        return lambda: jax.block_until_ready(slopes(*given))

    def temporary(chunk: int | None, causal: bool) -> int:
        compiled = jax.jit(_slopes(chunk, causal)).lower(*given).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    for case, causal in (("", False), ("causal", True)):
        ours, theirs = temporary(_CHUNK, causal), temporary(None, causal)
        yield Result(
            row=row.name,
            case=case,
            peer="all keys at once",
            target=memory(1 / 4),
            value=ours / theirs,
            note=f"{ours:,} and {theirs:,} bytes",
        )
        rivals = [
            Against("all keys at once", lambda causal=causal: task(None, causal), time(1.3)),
            Against("PyTorch", lambda causal=causal: _torch_attention(given, causal), time(None)),
        ]
        yield from race(row, settings, case, lambda causal=causal: task(_CHUNK, causal), rivals)


def _torch_attention(given: list[np.ndarray], causal: bool) -> Task:
    import torch
    from torch.nn import functional

    operands = [torch.tensor(x, requires_grad=True) for x in given]

    def task() -> Any:
        out = functional.scaled_dot_product_attention(*operands, is_causal=causal)
        return torch.autograd.grad((out**2).sum(), operands)

    return task


# ----------------------------------------------------------------------------- convolutions


def _loss(functions: Any, params: Any, images: Any, labels: Any) -> Any:
    """Returns the cross entropy of two convolutions, with a pooling after each."""
    x = functions.conv2d(images, params["first"], padding=1)
    x = functions.max_pool2d(functions.relu(x), 2)
    x = functions.conv2d(x, params["second"], padding=1)
    x = functions.max_pool2d(functions.relu(x), 2)
    logits = x.reshape(x.shape[0], -1) @ params["weights"] + params["biases"]
    return functions.cross_entropy(logits, labels)


def _network(row: Row, settings: Settings) -> Iterator[Result]:
    params, (images, goals) = convnet.parameters(), convnet.batch()
    labels = goals.argmax(1)

    def ours() -> Task:
        task = lambda: func.grad(lambda p: _loss(nn, p, images, labels))(params)  # noqa: E731
        # it is worth compiling after more calls than go before the first timing
        before = ftrans.cache_info().compiled
        for _ in range(_UNTIL_COMPILED):
            if ftrans.cache_info().compiled > before:
                break
            task()
        return task

    def theirs(threads: int | None) -> Task:
        import torch
        from torch.nn import functional

        leaves = {k: torch.tensor(x, requires_grad=True) for k, x in params.items()}
        given = torch.tensor(images), torch.tensor(labels)
        before = torch.get_num_threads()

        def task() -> Any:
            torch.set_num_threads(threads or before)
            try:
                loss = _loss(functional, leaves, *given)
                slopes = torch.autograd.grad(loss, list(leaves.values()))
            finally:
                torch.set_num_threads(before)
            return dict(zip(leaves, slopes, strict=True))

        return task

    def jitted() -> Task:
        function = ftrans.jit(func.grad(lambda p: _loss(nn, p, images, labels)))
        return lambda: function(params)

    rivals = [
        Against("PyTorch, one thread", lambda: theirs(1), time(1.2)),
        Against("PyTorch", lambda: theirs(None), faster(None)),
    ]
    yield from race(row, settings, "", ours, rivals)
    yield from race(row, settings, "jitted", jitted, rivals[:1])


# ---------------------------------------------------------------------------------- dropout


def dropout_steps(count: int) -> float:
    """Trains a network with dropout, with a key of its own for each step; returns the last loss."""
    rng = np.random.default_rng(0)
    images, goals = (rng.normal(size=(16, n)).astype("float32") for n in (8, 2))
    params = [rng.normal(size=shape).astype("float32") / 3 for shape in ((8, 8), (2, 8))]

    def loss(params: Any, key: Any) -> Any:
        hidden = nn.dropout(nn.relu(nn.linear(images, params[0])), 0.2, key=key)
        return nn.mse_loss(nn.linear(hidden, params[1]), goals)

    value = np.inf
    for key in jax.random.split(jax.random.key(0), count):
        slopes, value = func.grad_and_value(loss)(params, key)
        params = [
            w - np.float32(0.1) * np.asarray(dw) for w, dw in zip(params, slopes, strict=True)
        ]
    return float(value)


def _dropout(row: Row, settings: Settings) -> Iterator[Result]:
    count = 10 if settings.small else 100
    with compiling():
        dropout_steps(count)
        compiled = ftrans.cache_info().compiled
    yield Result(row=row.name, target=compilations(1), value=compiled, note=f"{count} steps")


ROWS = [
    Row(
        "attention",
        "Compiled gradient of attention over 4,096 positions, two heads of width 64, 512 keys at a "
        "time: its temporary memory and its time.",
        _attention,
    ),
    Row(
        "convnet",
        "Un-jitted gradient of a network of two convolutions, a `max_pool2d` after each, and a "
        "linear layer, once it has been compiled.",
        _network,
    ),
    Row(
        "dropout",
        "100 steps of un-jitted `grad_and_value` of a network with dropout, with a new key each "
        "time; compiling is forced.",
        _dropout,
    ),
]
