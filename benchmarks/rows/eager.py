"""Transforms as they are called at a prompt: without `jit`, after a warm-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import libraries
from benchmarks.measure import Task
from benchmarks.models import perceptron
from benchmarks.models.chain import backward, chain, vector
from benchmarks.race import Against, race
from benchmarks.result import Result, faster, time
from benchmarks.row import Row, Settings

__all__ = ["ROWS", "torch_backward"]


def _applied(library: Callable[[], Any], transform: Callable[[Any, Any], Any], x: Any) -> Task:
    """Returns the task that applies a transform of the chain, anew each time, to an array."""
    import jax

    lib = library()
    value = lib.array(x)

    def f(x: Any) -> Any:
        return chain(lib.numpy, x)

    if lib.name == "jax":
        return lambda: jax.block_until_ready(transform(lib, f)(value))
    return lambda: transform(lib, f)(value)


def _against(
    peer: str, library: Callable[[], Any], transform: Any, x: Any, times: float | None
) -> Against:
    return Against(peer, lambda: _applied(library, transform, x), faster(times))


def torch_backward(look: str = "") -> Task:
    """Returns the gradient as plain PyTorch computes it."""
    import torch

    return backward(torch, torch.as_tensor(vector(8)).requires_grad_(), look)


def _grad(row: Row, settings: Settings) -> Iterator[Result]:
    def grad(lib: Any, f: Any) -> Any:
        return lib.grad(f)

    x = vector(8)

    def rivals(by_func: float | None, backward: float | None) -> list[Against]:
        return [
            _against("torch.func", libraries.torch, grad, x, by_func),
            Against("PyTorch, .backward()", torch_backward, faster(backward)),
        ]

    others = [
        _against("JAX, un-jitted", libraries.jax, grad, x, 80),
        _against("HIPS autograd", libraries.autograd, grad, x, None),
    ]
    ours = lambda library: lambda: _applied(library, grad, x)  # noqa: E731
    yield from race(row, settings, "", ours(libraries.ftrans), [*others, *rivals(10, 4.5)])
    yield from race(row, settings, "by np", ours(_by_numpy), rivals(6, 2.5))
    traced = lambda: running_python(_applied(libraries.ftrans, grad, x))  # noqa: E731
    yield from race(row, settings, "Python at each call", traced, rivals(None, None))


@cache
def _by_numpy() -> Any:
    """Returns ftrans for functions that are written with plain NumPy."""
    return SimpleNamespace(**{**vars(libraries.ftrans()), "numpy": np})


def running_python(task: Task) -> Task:
    """Returns the task without leaving out the Python of a function that is proven."""
    import ftrans

    def run() -> Any:
        ftrans.config.skip_python = False
        try:
            return task()
        finally:
            ftrans.config.skip_python = True

    return run


def _hessian(row: Row, settings: Settings) -> Iterator[Result]:
    def hessian(lib: Any, f: Any) -> Any:
        return lib.hessian(f)

    x = vector(8)
    rivals = [
        _against("torch.func", libraries.torch, hessian, x, 40),
        _against("JAX, un-jitted", libraries.jax, hessian, x, 150),
    ]
    yield from race(row, settings, "", lambda: _applied(libraries.ftrans, hessian, x), rivals)


def _vmap(row: Row, settings: Settings) -> Iterator[Result]:
    def per_example(lib: Any, f: Any) -> Any:
        return lib.vmap(lib.grad(f))

    x = vector(32, 8)
    rivals = [
        _against("torch.func", libraries.torch, per_example, x, 6),
        _against("JAX, un-jitted", libraries.jax, per_example, x, None),
    ]
    yield from race(row, settings, "", lambda: _applied(libraries.ftrans, per_example, x), rivals)


RATE = 0.01


def _descend(params: Any, slopes: Any) -> Any:
    return [(w - RATE * dw, b - RATE * db) for (w, b), (dw, db) in zip(params, slopes, strict=True)]


def _problem(lib: Any, place: Callable[[Any], Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Returns the loss of the perceptron and its arguments, put in their place."""
    images, goals = perceptron.batch()

    def loss(params: Any, images: Any, goals: Any) -> Any:
        return perceptron.loss(lib.numpy, params, images, goals)

    return loss, (_on(place, perceptron.parameters()), place(images), place(goals))


def _step(library: Callable[[], Any]) -> Task:
    """Returns the training step, un-jitted, on the arrays of a library."""
    import jax

    lib = library()
    loss, arguments = _problem(lib, lib.array)

    def task() -> Any:
        value, slopes = lib.value_and_grad(loss)(*arguments)
        return jax.block_until_ready((value, _descend(arguments[0], slopes)))

    return task


def _jitted_step(library: Callable[[], Any]) -> Task:
    """Returns the training step, jitted as a whole, on arrays of JAX."""
    import jax

    lib = library()
    loss, arguments = _problem(lib, lib.device)

    @lib.jit
    def step(params: Any, images: Any, goals: Any) -> Any:
        value, slopes = lib.value_and_grad(loss)(params, images, goals)
        return value, _descend(params, slopes)

    return lambda: jax.block_until_ready(step(*arguments))


def _torch_step(threads: int | None = None) -> Task:
    """Returns the training step of eager PyTorch, from the same parameters each time.

    Args:
        threads: how many PyTorch takes; None for its default.
    """
    import torch

    before = torch.get_num_threads()

    params = _on(lambda x: torch.as_tensor(x).requires_grad_(), perceptron.parameters())
    images, goals = (torch.as_tensor(x) for x in perceptron.batch())

    def task() -> Any:
        torch.set_num_threads(threads or before)
        value = perceptron.loss(torch, params, images, goals)
        value.backward()
        with torch.no_grad():
            new = _descend(params, [(w.grad, b.grad) for w, b in params])
        for w, b in params:
            w.grad = b.grad = None
        torch.set_num_threads(before)
        return value, new

    return task


def _on(place: Callable[[Any], Any], params: Any) -> Any:
    return [(place(w), place(b)) for w, b in params]


def _training(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [
        Against("PyTorch, .backward()", _torch_step, faster(1.3)),
        Against("PyTorch, one thread", lambda: _torch_step(1), faster(None)),
        Against("JAX, un-jitted", lambda: _step(libraries.jax), faster(None)),
    ]
    yield from race(row, settings, "", lambda: _step(libraries.ftrans), rivals)


def _functions(row: Row, settings: Settings) -> Iterator[Result]:
    import ftrans.numpy as fnp
    from ftrans import nn

    x = np.random.default_rng(0).normal(size=(100, 8)).astype("float32")

    def of_jax(task: Callable[[Any, Any, Any], Any]) -> Task:
        import jax

        value = jax.numpy.asarray(x)
        return lambda: jax.block_until_ready(task(jax.numpy, jax.nn, value))

    def of_torch(task: Callable[[Any, Any, Any], Any]) -> Task:
        import torch

        value = torch.as_tensor(x)
        return lambda: task(torch, torch.nn.functional, value)

    cases: dict[str, Callable[[Any, Any, Any], Any]] = {
        "mean": lambda xp, nn, x: xp.mean(x, 0),
        "softmax": lambda xp, nn, x: nn.softmax(x, -1),
        "where": lambda xp, nn, x: xp.where(x > 0, x, 0.0),
        "einsum": lambda xp, nn, x: xp.einsum("ij,kj->ik", x, x),
    }
    for case, task in cases.items():
        rivals = [
            Against("JAX, un-jitted", lambda task=task: of_jax(task), time(None)),
            Against("PyTorch", lambda task=task: of_torch(task), time(None)),
        ]
        yield from race(row, settings, case, lambda task=task: lambda: task(fnp, nn, x), rivals)

    def given_jax() -> Task:
        import jax

        value = jax.numpy.asarray(x)
        return lambda: jax.block_until_ready(nn.softmax(value, -1))

    rivals = [Against("JAX, un-jitted", lambda: of_jax(cases["softmax"]), time(None))]
    yield from race(row, settings, "softmax of an array of JAX's", given_jax, rivals)


def _jitted_training(row: Row, settings: Settings) -> Iterator[Result]:
    rivals = [Against("jax.jit", lambda: _jitted_step(libraries.jax), time(1.02))]
    yield from race(row, settings, "", lambda: _jitted_step(libraries.ftrans), rivals)


ROWS = [
    Row("grad", "Un-jitted `grad` of 31 small operations on a vector of 8 numbers.", _grad),
    Row("hessian", "Un-jitted `hessian` of the same function.", _hessian),
    Row("vmap-grad", "Un-jitted `vmap(grad(...))` of the same function, batch 32.", _vmap),
    Row(
        "training",
        "Un-jitted training step, `value_and_grad` and the update, of a perceptron of three layers "
        "(64-64-64-10), batch 64.",
        _training,
    ),
    Row(
        "functions",
        "Functions of small NumPy arrays outside of transforms, as in evaluation: each of 100 by 8 "
        "numbers. JAX and PyTorch are given arrays of their own.",
        _functions,
    ),
    Row("training-jit", "The same step through `jit`.", _jitted_training),
]
