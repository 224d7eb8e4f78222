"""Memory for time: `checkpoint` on the layers of a transformer, and gradients with a budget."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import libraries
from benchmarks.result import Result, memory, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS"]


def _normal(*shape: int) -> np.ndarray:
    drawn = np.random.default_rng(sum(shape)).normal(size=shape) / np.sqrt(shape[-2])
    return drawn.astype("float32")


def transformer(lib: Any, wrap: Callable[[Any], Any], layers: int) -> tuple[Any, Any]:
    """Returns the loss of a transformer of so many layers, and its arguments."""
    xp, heads, width, length, batch = lib.numpy, 4, 128, 128, 4

    def split(x: Any) -> Any:
        return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

    def norm(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / xp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def layer(p: Any, x: Any) -> Any:
        y = norm(x)
        q, k, v = (split(y @ p[name]) for name in "qkv")
        scores = xp.exp(q @ k.transpose(0, 1, 3, 2) / 6)
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(batch, length, width) @ p["o"]
        return x + xp.tanh(norm(x) @ p["up"]) @ p["down"]

    block = wrap(layer)

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = block(p, x)
        return (norm(x) ** 2 * x).mean()

    shapes = dict.fromkeys("qkvo", (width, width))
    shapes |= {"up": (width, 4 * width), "down": (4 * width, width)}
    params = [{name: _normal(*shape) for name, shape in shapes.items()} for _ in range(layers)]
    return loss, (params, _normal(batch, length, width))


def perceptron(lib: Any, wrap: Callable[[Any], Any], layers: int) -> tuple[Any, Any]:
    """Returns the loss of a residual perceptron of so many layers, and its arguments."""
    xp = lib.numpy
    block = wrap(lambda p, x: x + xp.tanh(xp.tanh(x @ p[0]) @ p[1]))

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = block(p, x)
        return (x**2).mean()

    params = [(_normal(128, 512), _normal(512, 128)) for _ in range(layers)]
    return loss, (params, _normal(1024, 128))


def recurrent(lib: Any, wrap: Callable[[Any], Any], layers: int) -> tuple[Any, Any]:
    """Returns the loss of a recurrent network over so many steps, written as a Python loop."""
    xp = lib.numpy
    block = wrap(lambda p, h, x: xp.tanh(xp.tanh(h @ p[0] + x @ p[1]) @ p[2]))

    def loss(params: Any, xs: Any) -> Any:
        h = xs[0] * 0
        for x in xs:
            h = block(params, h, x)
        return (h**2).mean()

    return loss, ([_normal(128, 128) for _ in range(3)], _normal(layers, 512, 128))


MODELS = {"transformer": transformer, "perceptron": perceptron, "recurrent": recurrent}


def _compiled(lib: Any, gradient: Any, arguments: Any) -> tuple[Any, int]:
    """Returns what runs a jitted gradient, and its temporary memory as XLA gives it."""
    import jax

    function = lib.jit(gradient)
    size = function.lower(*arguments).compile().memory_analysis().temp_size_in_bytes
    return lambda: jax.block_until_ready(function(*arguments)), size


def _ratio(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> float:
    """Returns the time of `first` by that of `second`, the least of so many turns of each."""
    spent: list[list[float]] = [[], []]
    for number in range(2 * rounds + 2):
        start = clock.perf_counter()
        (second if number % 2 else first)()
        spent[number % 2].append(clock.perf_counter() - start)
    return min(spent[0]) / min(spent[1])


def _checkpoint(row: Row, settings: Settings) -> Iterator[Result]:
    layers = 3 if settings.small else 12
    for name, lib in (("ftrans", libraries.ftrans()), ("jax", libraries.jax())):
        made = []
        for wrap in (lib.checkpoint, lambda f: f):
            loss, arguments = transformer(lib, wrap, layers)
            made.append(_compiled(lib, lib.value_and_grad(loss), arguments))
        (run, size), (plain, whole) = made
        note, bound = f"{size:,} and {whole:,} bytes", name == "ftrans"
        yield Result(
            row=row.name,
            case=f"{name}.checkpoint, memory",
            peer="none",
            target=memory(0.4 if bound else None),
            value=size / whole,
            note=note,
        )
        yield Result(
            row=row.name,
            case=f"{name}.checkpoint, time",
            peer="none",
            target=time(1.3 if bound else None),
            value=_ratio(run, plain, settings.rounds),
        )


def _budget(row: Row, settings: Settings) -> Iterator[Result]:
    lib, layers = libraries.ftrans(), 4 if settings.small else 12
    for name, model in MODELS.items():
        loss, arguments = model(lib, lambda f: f, layers)
        plain, whole = _compiled(lib, lib.value_and_grad(loss), arguments)
        for share in (0.75, 0.5, 0.25):
            budget = int(share * whole)
            made = lib.value_and_grad(loss, memory=budget)
            try:
                run, size = _compiled(lib, made, arguments)
            except ValueError as error:
                note = str(error).splitlines()[2].strip()
                case = f"{name}, {share:.0%}"
                yield Result(
                    row=row.name,
                    case=case,
                    peer="budget",
                    target=memory(1.15),
                    value=None,
                    note=note,
                )
                continue
            yield Result(
                row=row.name,
                case=f"{name}, {share:.0%}",
                peer="budget",
                target=memory(1.15),
                value=size / budget,
                note=f"{size:,} of {budget:,} bytes",
            )
            yield Result(
                row=row.name,
                case=f"{name}, {share:.0%}, time",
                peer="no budget",
                target=time(1.4 if share == 0.5 else None),
                value=_ratio(run, plain, settings.rounds),
            )


ROWS = [
    Row(
        "checkpoint",
        "`value_and_grad` of a transformer of 12 layers, compiled, with `checkpoint` on each "
        "against none: temporary memory by XLA's analysis, and time.",
        _checkpoint,
    ),
    Row(
        "budget",
        "`value_and_grad` with `memory=` at shares of the temporary memory that it takes without, "
        "as XLA's analysis gives it: what it takes of the budget, and its time.",
        _budget,
    ),
]
