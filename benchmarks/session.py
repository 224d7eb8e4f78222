"""A session: the first steps of training a model, in a process that has done nothing before.

`python -m benchmarks.session MODEL LIBRARY STEPS` prints JSON: the seconds since the first step
began, after 1, 10, 100, ... steps, with all that was traced and compiled, and the last loss.
Imports and the making of arrays do not count. LIBRARY is `torch`, `jax` (jitted), `ftrans`,
`ftrans-jit`, `ftrans-measured`, whose roads are by what runs take, `ftrans-jax`, which begins with
arrays of JAX's, or `ftrans-optax`, which calls optax as it is, where the others take its functions
by `from_jax`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks import libraries

__all__ = ["CASES", "model_of", "session"]

CASES = {
    "perceptron": "adam",
    "pinn": "adam",
    "autoencoder": "adam",
    "transformer-2": "adam",
    "transformer-12": "adam",
    "schools": "leapfrog",
    "flow": "adam",
}
"""By the name of a case, what goes on with its gradient."""

Step = Callable[[Any, Any], tuple[Any, Any, Any]]
"""Takes parameters and the state of what moves them to new ones and the loss."""
RATE = 1e-3


def model_of(case: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the loss, as a function of a library, the parameters and the data."""
    name, _, layers = case.partition("-")
    model = import_module(f"benchmarks.models.{name}")
    if name == "transformer":
        return model.loss, model.parameters(int(layers)), (model.batch(),)
    if name == "perceptron":
        loss = lambda lib, *rest: model.loss(lib.numpy, *rest)  # noqa: E731
        return loss, model.parameters(), model.batch()
    return model.loss, model.parameters(), model.data()


def _leapfrog(slope: Any, momentum: Any, params: Any) -> tuple[Any, Any]:
    """Moves a particle by one step, as Hamiltonian Monte Carlo does between two slopes."""
    momentum = momentum - 1e-2 * slope
    return momentum, params + 1e-2 * momentum


def _by_jax(case: str, how: str) -> tuple[Step, Any, Any]:
    """Makes the step for ftrans (`how` says which of its ways) or `jax.jit`."""
    import jax
    import optax

    import ftrans

    if how.endswith("-measured"):
        ftrans.config.execution = "measured"
    lib = libraries.jax() if how == "jax" else libraries.ftrans()
    loss, params, data = model_of(case)
    optimiser = optax.adam(RATE)

    def move(slopes: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(slopes, state)
        return state, optax.apply_updates(params, updates)

    if CASES[case] == "leapfrog":
        move = _leapfrog
    elif how != "jax" and not how.endswith("-optax"):
        move = ftrans.from_jax(move)
    if how == "jax" or how.endswith("-jax"):
        params, data = jax.tree.map(jax.numpy.asarray, (params, data))
    gradient = lib.value_and_grad(lambda params, *data: loss(lib, params, *data))

    def step(params: Any, state: Any, *data: Any) -> tuple[Any, Any, Any]:
        value, slopes = gradient(params, *data)
        state, params = move(slopes, state, params)
        return params, state, value

    if how == "jax" or "-jit" in how:
        step = lib.jit(step)
    state = 0 * params if CASES[case] == "leapfrog" else optimiser.init(params)
    return lambda params, state: step(params, state, *data), params, state


def _by_torch(case: str) -> tuple[Step, Any, Any]:
    import torch
    from torch.utils import _pytree as pytree

    lib = libraries.torch()
    loss, params, data = model_of(case)
    data = [torch.as_tensor(x) for x in data]
    params = pytree.tree_map(lambda x: torch.tensor(x, requires_grad=True), params)
    leaves = pytree.tree_leaves(params)
    optimiser = torch.optim.Adam(leaves, RATE)

    def step(params: Any, state: Any) -> tuple[Any, Any, Any]:
        value = loss(lib, params, *data)
        for leaf in leaves:
            leaf.grad = None
        value.backward()
        if CASES[case] == "leapfrog":
            with torch.no_grad():
                state, moved = _leapfrog(params.grad, state, params)
                params.copy_(moved)
        else:
            optimiser.step()
        return params, state, value

    return step, params, torch.zeros(10)


def session(case: str, library: str, steps: int) -> dict:
    """Returns the seconds after 1, 10, ... steps, and the last loss."""
    made = _by_torch(case) if library == "torch" else _by_jax(case, library)
    step, params, state = made
    seconds, value = {}, None
    start = time.perf_counter()
    for i in range(1, steps + 1):
        params, state, value = step(params, state)
        if str(i).strip("0") == "1":
            value = float(value)
            seconds[i] = time.perf_counter() - start
    return {"seconds": seconds, "loss": float(value)}


if __name__ == "__main__":
    print(json.dumps(session(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
