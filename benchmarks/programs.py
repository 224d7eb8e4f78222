"""The programs that are compiled, traced and weighed: each a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from benchmarks.models import convnet, kepler, lstm, mixture, perceptron, small, transformer

__all__ = ["PROGRAMS", "Build"]

Build = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
"""From a library to a new function and its arguments, arrays of JAX."""


def _perceptron(lib: Any) -> Any:
    def loss(params: Any, images: Any, goals: Any) -> Any:
        return perceptron.loss(lib.numpy, params, images, goals)

    return lib.value_and_grad(loss), (perceptron.parameters(), *perceptron.batch())


def _convnet(lib: Any) -> Any:
    def loss(params: Any, images: Any, labels: Any) -> Any:
        return convnet.loss(lib, params, images, labels)

    return lib.value_and_grad(loss), (convnet.parameters(), *convnet.batch())


def _transformer(lib: Any) -> Any:
    def loss(params: Any, tokens: Any) -> Any:
        return transformer.loss(lib, params, tokens)

    return lib.value_and_grad(loss), (transformer.parameters(), transformer.batch())


def _lstm(lib: Any) -> Any:
    def loss(params: Any, xs: Any) -> Any:
        return lstm.loss(lib, params, xs)

    return lib.value_and_grad(loss), (lstm.parameters(), lstm.batch())


def _mixture(lib: Any) -> Any:
    def loss(params: Any, xs: Any) -> Any:
        return mixture.loss(lib, params, xs)

    return lib.value_and_grad(loss), (mixture.parameters(), mixture.points())


def _kepler(lib: Any) -> Any:
    def simulate(places: Any, velocities: Any, masses: Any, until: Any) -> Any:
        return kepler.simulate(lib, places, velocities, masses, until)

    return simulate, (*kepler.bodies(), jax.numpy.float32(5.0))


def _kepler_grad(lib: Any) -> Any:
    def spread(velocities: Any, places: Any, masses: Any) -> Any:
        return kepler.spread_after(lib, places, velocities, masses)

    places, velocities, masses = kepler.bodies()
    return lib.value_and_grad(spread), (velocities, places, masses)


def _small_hessian(lib: Any) -> Any:
    def loss(params: Any, inputs: Any, goals: Any) -> Any:
        return small.loss(lib.numpy, params, inputs, goals)

    return lib.hessian(loss), (small.parameters(), *small.data())


def _on_device(build: Build) -> Build:
    def built(lib: Any) -> Any:
        function, arguments = build(lib)
        return function, jax.tree.map(jax.numpy.asarray, arguments)

    return built


PROGRAMS: dict[str, Build] = {
    name: _on_device(build)
    for name, build in {
        "perceptron": _perceptron,
        "convolutions": _convnet,
        "transformer": _transformer,
        "lstm (scan)": _lstm,
        "mixture": _mixture,
        "kepler (while)": _kepler,
        "kepler (grad of scan)": _kepler_grad,
        "hessian of 64": _small_hessian,
    }.items()
}
