"""Holds the estimates of `ftrans/runtime/policy.py` against measurements, program by program.

Run `python -m benchmarks.calibrate_policy` on a machine that does nothing else. Each line gives the
measured time of a program on both roads and of compiling it, the estimate, and their ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

import ftrans
import ftrans.numpy as fnp
from benchmarks import libraries, session
from ftrans import func
from ftrans.interpreters import runnable, simplify
from ftrans.runtime import policy, run
from ftrans.runtime.executable import Executable

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def apart(call: Callable[[], Any]) -> float:
    """Returns the seconds of a call after other work, as in a session: the lower two thirds."""
    call()
    call()
    seconds: list[float] = []
    while len(seconds) < 7 or (sum(seconds) < 0.08 and len(seconds) < 300):
        begin = time.perf_counter() + 6e-5
        _OTHER_WORK.__iadd__(1)  # which empties the caches
        while time.perf_counter() < begin:
            pass
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(sorted(seconds)[: max(3, 2 * len(seconds) // 3)])


_OTHER_WORK = np.zeros(1 << 18)


def chain(length: int, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _ in range(length):
            x = step(x)
        return x

    return f


def network(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = fnp.tanh(x @ w)
    return (x * x).sum()


def attention(x: Any, w: Any) -> Any:
    q = x @ w
    scores = q @ q.T
    a = fnp.exp(scores - scores.max(-1, keepdims=True))
    return (a / a.sum(-1, keepdims=True) @ q).sum()


def newton(x: Any) -> Any:
    for _ in range(12):
        x = x - (x**3 - 2 * x - 5) / (3 * x * x - 2)
    return x.sum()


def sum_of(step: Callable[[Any], Any], length: int) -> Callable[[Any], Any]:
    return lambda x: chain(length, step)(x).sum()


def scanned(x: Any) -> Any:
    return ftrans.scan(lambda c, v: (fnp.sin(c + v), c * v), x[0], x)[0]


def cases() -> Iterator[Case]:
    generator = np.random.default_rng(0)
    for n in (1, 1000, 100_000, 1_000_000):
        x = generator.uniform(size=n).astype("f4")
        for k in (4, 40):
            if n * k > 5_000_000:
                continue
            yield f"add {k}, n={n}", chain(k, lambda x: x * 1.01 + 0.5), (x,)
            yield f"tanh {k}, n={n}", chain(k, fnp.tanh), (x,)
            wave = chain(k, lambda x: fnp.sin(x) * fnp.cos(x))
            yield f"wave {k} f64, n={n}", wave, (x.astype("f8"),)
            bump = func.grad(sum_of(lambda x: fnp.exp(-x * x), k // 2))
            yield f"grad bump {k}, n={n}", bump, (x,)
        softplus = func.grad(lambda x: fnp.log(1 + fnp.exp(x)).sum())
        yield f"grad softplus, n={n}", softplus, (x,)
        yield f"grad newton, n={n}", func.grad(newton), (x + 3,)
        yield f"take sorted, n={n}", lambda x: fnp.take(x, fnp.argsort(x)).cumsum(), (x,)
    for d in (4, 32, 128, 512):
        square = generator.uniform(size=(d, d)).astype("f4")
        batch = generator.uniform(size=(32, d)).astype("f4")
        gradient = func.grad(network, argnums=(1, 2, 3, 4))
        yield f"grad network, d={d}", gradient, (batch, *[square] * 4)
        yield f"grad attention, d={d}", func.grad(attention), (square, square)
        yield f"products, d={d}", lambda x: x @ x @ x @ x, (square,)
        yield f"sort, d={d}", lambda x: fnp.sort(x, axis=-1).mean(0), (square,)
        moved = lambda x: (x.T.reshape(-1) + 1).reshape(x.shape).sum(1)  # noqa: E731
        yield f"moved, d={d}", moved, (square,)
        hessian = func.hessian(lambda x: fnp.sum(fnp.sin(x) ** 2 * x[0]))
        yield f"hessian, d={d}", hessian, (square.reshape(-1)[: min(d, 128)],)
    yield "scan 200", scanned, (generator.uniform(size=200),)
    yield "grad scan 200", func.grad(scanned), (generator.uniform(size=200),)


def of_sessions() -> Iterator[Case]:
    """Yields what the sessions of `benchmarks.session` run: gradients, and steps of Adam."""
    library, optimiser = libraries.ftrans(), optax.adam(1e-3)
    for case in session.CASES:
        loss, params, data = session.model_of(case)
        yield f"{case}, gradient", func.grad_and_value(partial(loss, library)), (params, *data)
        if session.CASES[case] == "adam":
            state = jax.tree.map(np.asarray, optimiser.init(params))
            yield f"{case}, adam", ftrans.from_jax(optimiser.update), (params, state)


def main() -> None:
    ratios: dict[str, list[float]] = {"interpreted": [], "compiled": [], "compiling": []}
    for name, f, given in (*cases(), *of_sessions()):
        program = simplify(runnable(ftrans.trace(f)(*given)))
        arrays = [np.asarray(x) for x in jax.tree.leaves(given)]
        arrays += [np.zeros(t.shape, t.dtype) for t in program.inputs[len(arrays) :]]  # captured
        compiling = []
        for _ in range(3):
            executable = Executable(program)
            start = time.perf_counter()
            executable.prepare(arrays, host=True)
            compiling.append(time.perf_counter() - start)
        call = partial(run, program, arrays)
        measured = []
        before = ftrans.config.execution
        try:
            for ftrans.config.execution in ("interpret", "compile"):
                with np.errstate(all="ignore"):
                    measured.append(apart(call))
        finally:
            ftrans.config.execution = before
        measured.append(min(compiling))
        estimate = policy.price(program)
        line = f"{name:26}{program.count():5} equations"
        for (what, seen), real, guess in zip(ratios.items(), measured, estimate, strict=False):
            seen.append(guess / real)
            line += f"  {what} {real * 1e6:9.1f} µs, estimate {guess / real:5.2f} times"
        print(line, flush=True)
    for what, seen in ratios.items():
        two, three = (sum(1 / n <= ratio <= n for ratio in seen) for n in (2, 3))
        shown = f"median {statistics.median(seen):.2f}, within a factor of 2: {two}, of 3: {three}"
        print(f"{what}: {shown}, of {len(seen)}")


if __name__ == "__main__":
    main()
