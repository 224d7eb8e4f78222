"""Compares functions over primitives with functions over `jax.numpy`, under every interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from ftrans.interpreters import batch, jvp, linearize, transpose
from ftrans.ir import ArrayType, Program, check
from ftrans.ir.dtype import is_inexact
from ftrans.primitives.control.common import program_from
from ftrans.primitives.evaluate import evaluate
from tests.oracle import jaxpr


def assert_close(found: Any, expected: Any, rtol: float = 1e-10) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


def program_of(function: Callable[..., Any], arrays: Sequence[Any]) -> Program:
    """Returns the checked program of a function that returns one value, or a tuple of them."""

    def outputs(*operands: Any) -> Any:
        out = function(*operands)
        return out if isinstance(out, (tuple, list)) else [out]

    return check(program_from(outputs, *(ArrayType(a.shape, a.dtype) for a in arrays)))


def run(program: Program, arrays: Sequence[Any]) -> list[np.ndarray]:
    """Runs a program on NumPy and on JAX, which must agree."""
    found = [np.asarray(out) for out in evaluate(np, program, arrays)]
    by_jax = jaxpr.evaluate(lambda *operands: list(evaluate(jnp, program, operands)))
    for ours, theirs in zip(found, by_jax(*arrays), strict=True):
        assert_close(theirs, ours)
    for out, t in zip(found, program.output_types, strict=True):
        assert (out.shape, out.dtype) == (t.shape, t.dtype)
    return found


def like(arrays: Sequence[Any], seed: int) -> list[np.ndarray]:
    """Returns normal numbers of the shapes and dtypes of `arrays`."""
    random = np.random.default_rng(seed)

    def draw(array: Any) -> np.ndarray:
        out = random.normal(size=array.shape)
        if array.dtype.kind == "c":
            out = out + 1j * random.normal(size=array.shape)
        return np.asarray(out).astype(array.dtype)

    return [draw(array) for array in arrays]


def forward(program: Program, arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Returns outputs and tangents by `jvp`; `tangents` holds None where there is none."""
    active = tuple(t is not None for t in tangents)
    pushed, nonzero = jvp(program, active)
    outs = run(check(pushed), [*arrays, *(t for t in tangents if t is not None)])
    count = len(program.outputs)
    dots = iter(outs[count:])
    types = program.output_types
    return outs[:count] + [
        next(dots) if there else np.zeros(t.shape, t.dtype)
        for there, t in zip(nonzero, types, strict=True)
    ]


def backward(
    program: Program, arrays: Sequence[Any], active: Sequence[bool], cotangents: Sequence[Any]
) -> list[Any]:
    """Returns the cotangents of the active operands by `linearize` and `transpose`."""
    parts = linearize(program, tuple(active))
    outs = run(check(parts.forward), arrays)
    residuals = outs[len(program.outputs) :]
    linear = (True,) * sum(active) + (False,) * len(residuals)
    check(parts.linear)
    turned, there = transpose(parts.linear, linear, (True,) * sum(parts.active))
    given = [ct for ct, a in zip(cotangents, parts.active, strict=True) if a]
    found = iter(run(check(turned), [*residuals, *given]))
    taken = [array for array, a in zip(arrays, active, strict=True) if a]
    return [
        next(found) if is_there else np.zeros_like(array)
        for is_there, array in zip(there, taken, strict=True)
    ]


def check_derivatives(
    function: Callable[..., Any], oracle: Callable[..., Any], *arrays: Any, rtol: float = 1e-10
) -> None:
    """Compares value, jvp and vjp with those of JAX, with all and with each inexact operand."""
    program = program_of(function, arrays)
    with jax.enable_x64(True):
        constants = [jnp.asarray(array) for array in arrays]
    at = [i for i, array in enumerate(arrays) if is_inexact(array.dtype)]
    for chosen in {tuple(at), *((i,) for i in at)}:

        def varied(*values: Any, chosen: tuple[int, ...] = chosen) -> Any:
            operands = list(constants)
            for i, value in zip(chosen, values, strict=True):
                operands[i] = value
            out = oracle(*operands)
            return list(out) if isinstance(out, (tuple, list)) else [out]

        taken = [arrays[i] for i in chosen]
        tangents = like(taken, 1)
        pushed = jaxpr.evaluate(lambda taken, tangents: jax.jvp(varied, taken, tangents))
        outs, dots = pushed(taken, tangents)
        given = dict(zip(chosen, tangents, strict=True))
        found = forward(program, arrays, [given.get(i) for i in range(len(arrays))])
        count = len(outs)
        for ours, theirs in zip(found[:count], outs, strict=True):
            assert_close(ours, theirs, rtol)
        for ours, theirs in zip(found[count:], dots, strict=True):
            if is_inexact(ours.dtype):
                assert_close(ours, theirs, rtol)
        cotangents = like(outs, 2)
        pulled = jaxpr.evaluate(lambda taken, given: jax.vjp(varied, *taken)[1](given))
        expected = pulled(
            taken,
            [
                ct if is_inexact(ct.dtype) else np.zeros(ct.shape, jax.dtypes.float0)
                for ct in cotangents
            ],
        )
        active = [i in chosen for i in range(len(arrays))]
        for ours, theirs in zip(
            backward(program, arrays, active, cotangents), expected, strict=True
        ):
            assert_close(ours, theirs, rtol)


def stacked(array: Any, size: int, dim: int, seed: int, high: int | None) -> np.ndarray:
    """Returns `size` arrays like `array`, stacked along `dim`; integers are drawn below `high`."""
    random = np.random.default_rng(seed)
    shape = (size, *array.shape)
    if array.dtype.kind in "iu" and high is not None:
        out = random.integers(-1, high, size=shape).astype(array.dtype)
        out[0] = array
    else:
        (out,) = like([np.empty(shape, array.dtype)], seed)
    return np.moveaxis(out, 0, dim)


def check_batches(
    function: Callable[..., Any],
    *arrays: Any,
    size: int = 3,
    high: int | None = None,
    rtol: float = 1e-10,
) -> None:
    """Compares batching with a loop, for every choice of mapped operands and of their axes."""
    program = program_of(function, arrays)
    choices = [{None, 0, array.ndim} for array in arrays]
    for dims in product(*choices):
        if all(dim is None for dim in dims):
            continue
        operands = [
            array if dim is None else stacked(array, size, dim, seed, high)
            for seed, (array, dim) in enumerate(zip(arrays, dims, strict=True))
        ]
        mapped, _ = batch(program, size, dims, (True,) * len(program.outputs))
        check(mapped)
        found = [np.asarray(out) for out in evaluate(np, mapped, operands)]
        for i in range(size):
            single = [
                x if dim is None else np.moveaxis(x, dim, 0)[i]
                for x, dim in zip(operands, dims, strict=True)
            ]
            for ours, theirs in zip(found, evaluate(np, program, single), strict=True):
                assert_close(ours[i], theirs, rtol)


def directional(
    program: Program, arrays: Sequence[Any], tangents: Sequence[Any], step: float = 1e-6
) -> list[Any]:
    """Returns the derivative along `tangents` by central differences."""

    def at(t: float) -> list[Any]:
        moved = [x if dot is None else x + t * dot for x, dot in zip(arrays, tangents, strict=True)]
        return evaluate(np, program, moved)

    return [(b - a) / (2 * step) for a, b in zip(at(-step), at(step), strict=True)]
