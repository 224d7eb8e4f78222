"""Random programs under random stacks of transforms, the same in ftrans and in JAX.

A case is a piece of Python source, written once and run twice: with ftrans behind the names `np`,
`lax` and `T`, and with JAX behind them. There, control flow is spelled out (both branches and a
`where`, loops unrolled), and what JAX traces is run by NumPy: nothing is compiled.

    python -m tests.laws.fuzz --cases 10000 --seed 0
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import time
import traceback
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from tests.oracle import jaxpr

Shape = tuple[int, ...]

TOLERANCE = 1e-7
"""Relative to the largest number of a result; orders of magnitude above round-off."""
LARGEST = 1e9
"""A result beyond it has lost too many digits to be compared."""


# ------------------------------------------------------------------------- the two sets of names


def _choose(condition: Any, yes: Any, no: Any, x: Any) -> Any:
    """Branches in Python, on a value; the second branch also asks for a number."""
    return yes() if condition else no() * float(ftrans.stop_gradient(fnp.sum(x)))


def _choose_spelled_out(condition: Any, yes: Any, no: Any, x: Any) -> Any:
    return jnp.where(condition, yes(), no() * jax.lax.stop_gradient(jnp.sum(x)))


def _indices(*items: int) -> np.ndarray:
    return np.array(items)


def _constant(*shape: int) -> np.ndarray:
    """Returns a constant array without ties, away from the kinks of the programs."""
    count = math.prod(shape)
    return np.sin(1.7 * np.arange(1.0, count + 1.0)).reshape(shape) * 0.8


def _tree_where(condition: Any, x: Any, y: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def _cond(condition: Any, yes: Any, no: Any, *operands: Any) -> Any:
    return _tree_where(condition, yes(*operands), no(*operands))


def _switch(index: Any, branches: Sequence[Any], *operands: Any) -> Any:
    index = jnp.clip(index, 0, len(branches) - 1)
    out = branches[0](*operands)
    for number, branch in enumerate(branches[1:], 1):
        out = _tree_where(index == number, branch(*operands), out)
    return out


def _scan(
    step: Any, init: Any, xs: Any, length: int | None = None, reverse: bool = False, unroll: int = 1
) -> Any:
    if length is None:
        length = jax.tree.leaves(xs)[0].shape[0]
    order = range(length)
    ys: list[Any] = [None] * length
    carry = init
    for i in reversed(order) if reverse else order:
        carry, ys[i] = step(carry, jax.tree.map(lambda x, i=i: x[i], xs))
    return carry, jax.tree.map(lambda *rows: jnp.stack(rows), *ys)


def _while_loop(condition: Any, body: Any, init: Any, steps: int, bounded: bool) -> Any:
    for _ in range(steps):
        init = _tree_where(condition(init), body(init), init)
    return init


def _fori_loop(low: int, high: int, body: Any, init: Any) -> Any:
    for i in range(low, high):
        init = body(i, init)
    return init


def _hvp(f: Any, x: Any, v: Any) -> Any:
    return jax.jvp(jax.grad(f), (x,), (v,))[1]


THEIRS = {
    "np": SimpleNamespace(
        **{name: getattr(jnp, name) for name in fnp.__all__ if hasattr(jnp, name)},
        softmax=jax.nn.softmax,
        log_softmax=jax.nn.log_softmax,
        logsumexp=jax.nn.logsumexp,
        sigmoid=jax.nn.sigmoid,
        softplus=jax.nn.softplus,
        erf=jax.scipy.special.erf,
        stop_gradient=jax.lax.stop_gradient,
        at=lambda x: jnp.asarray(x).at,
    ),
    "lax": SimpleNamespace(
        cond=_cond, switch=_switch, scan=_scan, while_loop=_while_loop, fori_loop=_fori_loop
    ),
    "T": SimpleNamespace(
        grad=jax.grad,
        jvp=jax.jvp,
        vjp=jax.vjp,
        linearize=jax.linearize,
        vmap=lambda f, in_dims, out_dims=0, chunk=None: jax.vmap(f, in_dims, out_dims),
        jit=lambda f: f,
        hessian=lambda f, chunk=None: jax.hessian(f),
        jacfwd=lambda f, chunk=None: jax.jacfwd(f),
        jacrev=lambda f, chunk=None: jax.jacrev(f),
        hvp=_hvp,
    ),
    "k": _constant,
    "ix": _indices,
    "choose": _choose_spelled_out,
}

OURS = {
    "np": fnp,
    "lax": SimpleNamespace(
        cond=ftrans.cond,
        switch=ftrans.switch,
        scan=ftrans.scan,
        while_loop=lambda cond, body, init, steps, bounded: ftrans.while_loop(
            cond, body, init, max_steps=steps if bounded else None
        ),
        fori_loop=ftrans.fori_loop,
    ),
    "T": SimpleNamespace(
        grad=func.grad,
        jvp=func.jvp,
        vjp=func.vjp,
        linearize=func.linearize,
        vmap=lambda f, in_dims, out_dims=0, chunk=None: func.vmap(
            f, in_dims, out_dims, chunk_size=chunk
        ),
        jit=ftrans.jit,
        hessian=lambda f, chunk=None: func.hessian(f, chunk_size=chunk),
        jacfwd=lambda f, chunk=None: func.jacfwd(f, chunk_size=chunk),
        jacrev=lambda f, chunk=None: func.jacrev(f, chunk_size=chunk),
        hvp=lambda f, x, v: func.hvp(f, x, v)[1],
    ),
    "k": _constant,
    "ix": _indices,
    "choose": _choose,
}


# ------------------------------------------------------------------------------------ generation

UNARY = [
    "np.sin({})",
    "np.cos({})",
    "np.tanh({})",
    "np.arctan({})",
    "np.exp(-{0} * {0})",
    "np.log({} ** 2 + 1.5)",
    "np.sqrt({0} * {0} + 0.7)",
    "1.0 / (2.0 + {} ** 2)",
    "np.sigmoid({})",
    "np.softplus({})",
    "np.erf({})",
    "np.log1p({0} ** 2)",
    "np.expm1(0.5 * np.sin({}))",
    "np.arcsinh({})",
    "np.abs({} + 0.0137)",  # at 0 JAX goes with the right-hand side, ftrans with PyTorch
    "np.maximum({}, 0.2137)",
    "np.clip({}, -0.6137, 0.8137)",
    "np.where({0} > 0.1137, {0}, np.sin({0}))",
    "-{}",
    "np.sin({}) ** 3",
    "np.square({}) * 0.5",
    "0.7 * {} + 0.2",
    "np.reciprocal(2.5 + np.cos({}))",
    "np.sinh(np.tanh({}))",
    "np.stop_gradient({0}) * 0.3 + {0}",
    "{0} * np.stop_gradient(np.cos({0}))",
    "np.cosh(np.sin({}))",
    "np.arccos(0.8 * np.sin({}))",
    "np.exp2(np.cos({}))",
    "np.sign({0}) * {0} * 0.4",
    "np.floor({0}) * 0.1 + {0}",
]

BINARY = [
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "{} * {}",
    "{} / (1.5 + {} ** 2)",
    "np.maximum({}, {} + 0.3137)",
    "np.minimum({}, {} - 0.1137)",
    "np.arctan2({}, 1.5 + {} ** 2)",
    "np.hypot({}, 1.0 + np.abs({} + 0.0137))",
    "np.where({0} < {1} + 0.2137, {0} * {1}, {0} - {1})",
    "np.logaddexp({}, {})",
    "(1.2 + np.sin({})) ** {}",
    "({0} - {1}) * np.arctan({1} - {0})",
]

REDUCE = [
    "np.sum({}, axis={})",
    "np.mean({}, axis={})",
    "np.max({}, axis={})",
    "np.min({}, axis={})",
    "np.prod({}, axis={})",
    "np.logsumexp({}, axis={})",
    "np.sum({0} * (np.abs({0}) > 0.3137), axis={1})",
    "np.var({}, axis={})",
]

ALONG = [
    "np.cumsum({}, axis={})",
    "np.cumprod({}, axis={})",
    "np.flip({}, axis={})",
    "np.roll({}, 1, axis={})",
    "np.softmax({}, axis={})",
    "np.log_softmax({}, axis={})",
    "np.sort({}, axis={})",
    "np.take_along_axis({0}, np.argsort({0}, axis={1}), axis={1})",
]

TOTAL = [
    "np.sum(np.sin({}))",
    "np.mean({} ** 2)",
    "np.sum({0} * np.cos({0}))",
    "np.sum(np.tanh({}) * 1.3)",
    "np.logsumexp({})",
]


class Scope:
    """Is a function body that is being written: its lines, and the arrays it can use."""

    def __init__(self, writer: Writer, depth: int, pool: Sequence[tuple[str, Shape]], eager: bool):
        self.writer = writer
        self.depth = depth
        self.pool = list(pool)
        self.eager = eager
        self.lines: list[str] = []

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def let(self, expression: str, shape: Shape) -> str:
        name = self.writer.fresh("v")
        self.emit(f"{name} = {expression}")
        self.pool.append((name, shape))
        return name


class Writer:
    """Writes the source of one case."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.count = 0
        self.reverse = True  # whether some transform around runs backwards
        self.lawful = False
        self.length = 3  # of the longest inner function
        self.traced = False  # whether values cannot be asked for
        self.features: collections.Counter[str] = collections.Counter()

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # ------------------------------------------------------------------ choices

    def value(
        self, scope: Scope, test: Callable[[Shape], bool] = lambda shape: True
    ) -> tuple[str, Shape] | None:
        """Chooses an array, more often a recent one."""
        fitting = [entry for entry in scope.pool if test(entry[1])]
        if not fitting:
            return None
        return self.rng.choice(fitting[-3:] if self.rng.random() < 0.6 else fitting)

    def fit(self, value: tuple[str, Shape], shape: Shape) -> str:
        """Returns an expression of exactly this shape."""
        name, own = value
        if own == shape:
            return name
        try:
            if np.broadcast_shapes(own, shape) == shape:
                return f"np.broadcast_to({name}, {shape})"
        except ValueError:
            pass
        if math.prod(own) == math.prod(shape):
            return f"np.reshape({name}, {shape})"
        return f"np.broadcast_to(np.mean({name}), {shape})"

    def total(self, expression: str) -> str:
        return self.rng.choice(TOTAL).format(expression)

    # ------------------------------------------------------------- instructions

    def unary(self, scope: Scope) -> None:
        name, shape = self.value(scope)
        scope.let(self.one().format(name), shape)

    def one(self) -> str:
        """Returns a template of one operand."""
        template = self.rng.choice(UNARY)
        return "np.sin({})" if self.lawful and "stop_gradient" in template else template

    def binary(self, scope: Scope) -> None:
        x = self.value(scope)

        def broadcasts(shape: Shape) -> bool:
            try:
                return math.prod(np.broadcast_shapes(x[1], shape)) <= 12
            except ValueError:
                return False

        y = self.value(scope, broadcasts) or x
        if self.rng.random() < 0.15:
            y = (self.constant(x[1]), x[1])
        if self.rng.random() < 0.5 and y[0] != x[0]:
            x, y = y, x
        template = self.rng.choice(BINARY)
        scope.let(template.format(x[0], y[0]), np.broadcast_shapes(x[1], y[1]))

    def constant(self, shape: Shape) -> str:
        return f"k({', '.join(map(str, shape))})"

    def reduce(self, scope: Scope) -> None:
        found = self.value(scope, lambda s: len(s) > 0)
        if found is None:
            return self.unary(scope)
        name, shape = found
        axis = self.rng.choice([None, *range(len(shape)), -1])
        template = self.rng.choice(REDUCE)
        if axis is None:
            out: Shape = ()
        else:
            out = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
        if axis is not None and self.rng.random() < 0.3:
            text = template.format(name, f"{axis}, keepdims=True")
            out = tuple(1 if i == axis % len(shape) else n for i, n in enumerate(shape))
        else:
            text = template.format(name, axis)
        scope.let(text, out)

    def along(self, scope: Scope) -> None:
        found = self.value(scope, lambda s: len(s) > 0)
        if found is None:
            return self.binary(scope)
        name, shape = found
        axis = self.rng.randrange(len(shape))
        scope.let(self.rng.choice(ALONG).format(name, axis), shape)

    def arrange(self, scope: Scope) -> None:
        found = self.value(scope, lambda s: len(s) > 0)
        if found is None:
            name, shape = self.value(scope)
            scope.let(f"np.stack([{name}, np.sin({name})])", (2, *shape))
            return
        name, shape = found
        axis = self.rng.randrange(len(shape))
        n = shape[axis]
        choice = self.rng.randrange(9)
        if choice == 0 and len(shape) > 1:
            scope.let(f"np.transpose({name})", shape[::-1])
        elif choice == 1:
            scope.let(f"np.reshape({name}, -1)", (math.prod(shape),))
        elif choice == 2 and math.prod(shape) <= 6:
            scope.let(f"np.expand_dims({name}, {axis})", (*shape[:axis], 1, *shape[axis:]))
        elif choice == 3 and math.prod(shape) <= 6:
            other = self.fit(self.value(scope), shape)
            text = f"np.concatenate([{name}, {other}], axis={axis})"
            scope.let(text, tuple(2 * m if i == axis else m for i, m in enumerate(shape)))
        elif choice == 4 and math.prod(shape) <= 6:
            other = self.fit(self.value(scope), shape)
            scope.let(
                f"np.stack([{name}, {other}], axis={axis})", (*shape[:axis], 2, *shape[axis:])
            )
        elif choice == 5 and math.prod(shape) <= 6:
            widths = [(1, 0) if i == axis else (0, 1) for i in range(len(shape))]
            scope.let(f"np.pad({name}, {widths})", tuple(m + 1 for m in shape))
        elif choice == 6 and n > 1:
            out = tuple(m - 1 if i == axis else m for i, m in enumerate(shape))
            scope.let(f"np.diff({name}, axis={axis})", out)
        elif choice == 7:
            if len(shape) == 1 and n <= 3:
                scope.let(f"np.tril(np.outer({name}, {name}))", (n, n))
            else:
                scope.let(f"np.flip({name})", shape)
        else:
            scope.let(f"np.squeeze({name}[None], axis=0) + 0.1", shape)

    def index(self, scope: Scope) -> None:
        found = self.value(scope, lambda s: len(s) > 0)
        if found is None:
            return self.unary(scope)
        name, shape = found
        axis = self.rng.randrange(len(shape))
        n = shape[axis]
        before = ":, " * axis
        rest = shape[:axis] + shape[axis + 1 :]
        choice = self.rng.randrange(8)
        i = self.rng.randrange(-n, n)
        picks = [self.rng.randrange(-n, n) for _ in range(self.rng.randint(1, 3))]
        many = (*shape[:axis], len(picks), *shape[axis + 1 :])
        if choice == 0:
            scope.let(f"{name}[{before}{i}]", rest)
        elif choice == 1:
            scope.let(f"{name}[{before}::-1]", shape)
        elif choice == 2:
            scope.let(f"{name}[{before}ix(*{picks})]", many)
        elif choice == 3:
            scope.let(f"np.take({name}, ix(*{[p % n for p in picks]}), axis={axis})", many)
        elif choice == 4:
            out = self.fit(self.value(scope), rest)
            method = self.rng.choice(["set", "add", "multiply"])
            scope.let(f"np.at({name})[{before}{i}].{method}({out})", shape)
        elif choice == 5:
            out = self.fit(self.value(scope), many)
            scope.let(f"np.at({name})[{before}ix(*{picks})].add({out})", shape)
        elif choice == 6:
            # an index that is computed
            line = ", ".join(":" if j == axis else "0" for j in range(len(shape)))
            scope.let(f"{name}[{before}np.argmax({name}[{line}])]", rest)
        else:
            stop = self.rng.randint(1, n)
            out = tuple(stop if j == axis else m for j, m in enumerate(shape))
            scope.let(f"{name}[{before}:{stop}]", out)

    def matmul(self, scope: Scope) -> None:
        x = self.value(scope, lambda s: 0 < len(s) < 3)
        if x is None:
            return self.binary(scope)
        y = self.value(scope, lambda s: 0 < len(s) < 3 and s[max(0, len(s) - 2)] == x[1][-1])
        if y is None or self.rng.random() < 0.2:
            shape = (x[1][-1], self.rng.choice([2, 3]))
            y = (self.constant(shape), shape)
        out = (*x[1][:-1], *(y[1][1:] if len(y[1]) == 2 else ()))
        forms = ["{} @ {}", "np.matmul({}, {})", "np.dot({}, {})"]
        if len(x[1]) == len(y[1]) == 2:
            forms += ["np.einsum('ij,jk->ik', {}, {})", "np.tensordot({}, {}, axes=1)"]
        scope.let(self.rng.choice(forms).format(x[0], y[0]), out)

    # -------------------------------------------------------------- sub-functions

    def function(
        self,
        scope: Scope,
        parameters: Sequence[tuple[str, Shape]],
        result: Callable[[Scope], str],
        unpack: Sequence[str] = (),
        header: str | None = None,
        length: int = 3,
    ) -> str:
        """Writes a function that closes over the scope, and returns its name."""
        name = self.fresh("f")
        inner = Scope(self, scope.depth + 1, [*scope.pool, *parameters], False)
        header = header or ", ".join(p for p, _ in parameters)
        scope.emit(f"def {name}({header}):")
        for line in unpack:
            inner.emit(line)
        self.body(inner, self.rng.randint(1, min(length, self.length)))
        inner.emit(f"return {result(inner)}")
        scope.lines += inner.lines
        return name

    def shaped(self, shape: Shape) -> Callable[[Scope], str]:
        """Returns what writes a bounded result of this shape."""
        return lambda inner: f"np.tanh({self.fit(inner.pool[-1], shape)})"

    def python_if(self, scope: Scope) -> None:
        self.features["if"] += 1
        name, shape = self.value(scope)
        test = self.value(scope)[0]
        yes, no = (self.one().format(name) for _ in range(2))
        condition = f"{self.total(test)} > {self.rng.choice([0.1137, 0.5137])}"
        scope.let(f"choose({condition}, lambda: {yes}, lambda: {no}, {test})", shape)

    def python_loop(self, scope: Scope) -> None:
        name, shape = self.value(scope)
        out = self.fresh("v")
        other = self.fit(self.value(scope), shape)
        scope.emit(f"{out} = {name}")
        scope.emit(f"for i in range({self.rng.randint(1, 3)}):")
        scope.emit(f"    {out} = np.sin({out}) * {other} + i")
        scope.pool.append((out, shape))

    def cond(self, scope: Scope) -> None:
        self.features["cond"] += 1
        x, y = self.value(scope), self.value(scope)
        shape = x[1]
        branches = []
        for _ in range(2):
            a, b = self.fresh("a"), self.fresh("a")
            branches.append(self.function(scope, [(a, shape), (b, y[1])], self.shaped(shape)))
        test = self.value(scope)
        condition = f"{self.total(test[0])} > {self.rng.choice([0.0137, 0.4137, 0.9137])}"
        scope.let(f"lax.cond({condition}, {', '.join(branches)}, {x[0]}, {y[0]})", shape)

    def switch(self, scope: Scope) -> None:
        self.features["switch"] += 1
        x, y = self.value(scope), self.value(scope)
        branches = []
        for _ in range(self.rng.randint(2, 3)):
            a = self.fresh("a")
            branches.append(self.function(scope, [(a, x[1])], self.shaped(y[1]), length=2))
        test = self.value(scope)
        if self.rng.random() < 0.7:
            index = f"np.astype(np.floor(2.0 * np.sum({test[0]})), 'int32')"
        else:
            index = str(self.rng.randint(-1, 3))
        scope.let(f"lax.switch({index}, [{', '.join(branches)}], {x[0]})", y[1])

    def scan(self, scope: Scope) -> None:
        self.features["scan"] += 1
        init, second = self.value(scope), self.value(scope)
        xs = self.value(scope, lambda s: len(s) > 0 and s[0] > 0)
        options = f"reverse={self.rng.random() < 0.5}, unroll={self.rng.choice([1, 1, 2])}"
        c, e = self.fresh("c"), self.fresh("e")
        pytree = self.rng.random() < 0.4
        if xs is None:
            n, element, given = self.rng.randint(1, 3), [], f"None, length={self.rng.randint(1, 3)}"
            n = int(given[-1])
        else:
            n, element, given = xs[1][0], [(e, xs[1][1:])], xs[0]
        out_shape = self.value(scope)[1]

        def result(inner: Scope) -> str:
            # the carry must not depend on the last value alone, which may ignore it
            new = f"np.tanh({self.fit(inner.pool[-1], init[1])} + 0.5 * {c}a)"
            y = self.fit(self.value(inner), out_shape)
            if pytree:
                other = f"np.sin({c}b) + {self.fit(inner.pool[-1], second[1])}"
                return f"{{'a': {new}, 'b': ({other},)}}, [{y}, {c}a]"
            return f"{new}, {y}"

        unpack = [f"{c}a = {c}"]
        parameters = [(f"{c}a", init[1]), *element]
        start = init[0]
        if pytree:
            unpack = [f"{c}a, ({c}b,) = {c}['a'], {c}['b']"]
            parameters.insert(1, (f"{c}b", second[1]))
            start = f"{{'a': {init[0]}, 'b': ({second[0]},)}}"
        step = self.function(scope, parameters, result, unpack, f"{c}, {e}")
        last, ys = self.fresh("v"), self.fresh("v")
        scope.emit(f"{last}, {ys} = lax.scan({step}, {start}, {given}, {options})")
        if pytree:
            parts = f"{last}['a'], {last}['b'][0], {ys}[0], {ys}[1]"
            scope.emit(f"{last}, {last}b, {ys}, {ys}c = {parts}")
            scope.pool += [(f"{last}b", second[1]), (f"{ys}c", (n, *init[1]))]
        if n * math.prod(out_shape) <= 12:
            scope.pool.append((ys, (n, *out_shape)))
        scope.pool.append((last, init[1]))

    def loop(self, scope: Scope) -> None:
        init = self.value(scope)
        c, i = self.fresh("c"), self.fresh("i")
        if self.rng.random() < 0.4:
            self.features["fori"] += 1
            low = self.rng.randint(0, 2)
            high = low + self.rng.randint(0, 3)

            def step(inner: Scope) -> str:
                return f"np.tanh({self.fit(inner.pool[-1], init[1])} + 0.3 * {c} * {i})"

            body = self.function(scope, [(c, init[1])], step, header=f"{i}, {c}")
            scope.let(f"lax.fori_loop({low}, {high}, {body}, {init[0]})", init[1])
            return
        self.features["while"] += 1
        steps = self.rng.randint(1, 4)
        bounded = self.reverse or self.rng.random() < 0.5
        # the counter alone, or a condition that differs from example to example
        test = f"({c}[0] < {steps})"
        if self.rng.random() < 0.6:
            test += f" & (np.sum({c}[1] ** 2) < {self.rng.choice([1.5137, 4.0137])})"

        def advance(inner: Scope) -> str:
            return f"{c}[0] + 1, 1.3 * {c}[1] + 0.4 * np.sin({self.fit(inner.pool[-1], init[1])})"

        body = self.function(scope, [(f"{c}[1]", init[1])], advance, header=c)
        options = f"steps={steps}, bounded={bounded}"
        text = f"lax.while_loop(lambda {c}: {test}, {body}, (0, {init[0]}), {options})[1]"
        scope.let(text, init[1])

    def transform(self, scope: Scope) -> None:
        """Applies a transform to an inner function that closes over the values here."""
        kinds = ["jvp", "vmap", "linearize", "jit", "jacfwd"]
        if self.reverse or not self.features["while"]:
            kinds += ["grad", "grad", "vjp", "hessian", "hvp"]
        kind = self.rng.choice(kinds)
        small = kind in ("jacfwd", "hessian")
        x = self.value(scope, lambda s: math.prod(s) <= 3 if small else True)
        if kind == "vmap":
            x = self.value(scope, lambda s: len(s) > 0)
        if x is None:
            return self.unary(scope)
        self.features[f"inner {kind}"] += 1
        before = self.reverse
        self.reverse = before or kind in ("grad", "vjp", "hessian", "hvp")
        u = self.fresh("u")
        name, shape = x
        axis = self.rng.randrange(len(shape)) if kind == "vmap" else 0
        inner_shape = shape[:axis] + shape[axis + 1 :] if kind == "vmap" else shape
        out = self.value(scope, lambda s: math.prod(s) <= 3)
        out_shape = out[1] if out is not None else ()
        inner = self.function(scope, [(u, inner_shape)], self.shaped(out_shape))
        self.reverse = before
        tangent = self.fit(self.value(scope), shape)
        scalar = f"lambda {u}: {self.total(f'{inner}({u})')}"
        if kind == "grad":
            scope.let(f"T.grad({scalar})({name})", shape)
        elif kind == "jvp":
            scope.let(f"T.jvp({inner}, ({name},), ({tangent},))[1]", out_shape)
        elif kind == "linearize":
            scope.let(f"T.linearize({inner}, {name})[1]({tangent})", out_shape)
        elif kind == "vjp":
            ct = self.fit(self.value(scope), out_shape)
            scope.let(f"T.vjp({inner}, {name})[1]({ct})[0]", shape)
        elif kind == "jit":
            scope.let(f"T.jit({inner})({name})", out_shape)
        elif kind == "jacfwd":
            scope.let(f"T.jacfwd({inner})({name})", (*out_shape, *shape))
        elif kind == "hessian":
            scope.let(f"T.hessian({scalar})({name})", (*shape, *shape))
        elif kind == "hvp":
            scope.let(f"T.hvp({scalar}, {name}, {tangent})", shape)
        else:
            out_axis = self.rng.randint(0, len(out_shape))
            mapped = (*out_shape[:out_axis], shape[axis], *out_shape[out_axis:])
            scope.let(f"T.vmap({inner}, ({axis},), {out_axis})({name})", mapped)

    def body(self, scope: Scope, length: int) -> None:
        plain = [
            (self.unary, 5),
            (self.binary, 6),
            (self.reduce, 3),
            (self.along, 2),
            (self.arrange, 2),
            (self.index, 3),
            (self.matmul, 2),
            (self.python_loop, 0.5),
        ]
        if scope.eager and not self.traced:
            plain.append((self.python_if, 2))
        if scope.depth <= 2:
            plain += [
                (self.cond, 1.2),
                (self.switch, 0.5),
                (self.scan, 1.2),
                (self.loop, 1.2),
                (self.transform, 1.5),
            ]
        rules, weights = zip(*plain, strict=True)
        for _ in range(length):
            self.rng.choices(rules, weights)[0](scope)


ORDER = {"vmap": 0, "jit": 0, "hessian": 2, "hvp": 2}
"""How often a transform differentiates; once where it is not named."""
REVERSE = ("grad", "vjp", "hessian", "jacrev", "hvp")
STACKED = (
    "grad",
    "grad",
    "vjp",
    "jvp",
    "linearize",
    "vmap",
    "vmap",
    "jit",
    "hessian",
    "jacfwd",
    "jacrev",
    "hvp",
)


class Case(NamedTuple):
    """Is one generated case.

    Attributes:
        source: Python that defines `main`, over the names `np`, `lax`, `T` and `k`.
        shapes: those of the arguments of `main`.
        stack: the transforms, from the inside out.
        features: what the program holds.
    """

    source: str
    shapes: tuple[Shape, ...]
    stack: tuple[str, ...]
    features: collections.Counter[str]

    def arguments(self, seed: int = 0) -> list[np.ndarray]:
        """Returns values for the arguments, without ties."""
        draw = np.random.default_rng(seed)
        return [draw.uniform(-1.2, 1.2, size=shape) for shape in self.shapes]


def generate(rng: random.Random, depth: int = 4, lawful: bool = False) -> Case:
    """Returns a random case.

    Args:
        rng: makes all choices.
        depth: the most transforms.
        lawful: whether derivatives are limits of differences, in forward and in reverse mode:
            without `stop_gradient` and without loops that have no bound.
    """
    writer = Writer(rng)
    writer.lawful = lawful
    count = rng.randint(0, depth)
    forward_only = rng.random() < 0.15
    kinds = [k for k in STACKED if k not in REVERSE] if forward_only else list(STACKED)
    stack = [rng.choice(kinds) for _ in range(count)]
    order = sum(ORDER.get(kind, 1) for kind in stack)
    while order > 4:
        # the oracle's programs grow by a factor with each derivative
        order -= ORDER.get(stack.pop(), 1)
    writer.reverse = lawful or any(kind in REVERSE for kind in stack)
    writer.traced = any(kind in ("vmap", "jit") for kind in stack)
    shapes: list[Shape] = [rng.choice([(), (3,), (2,), (2, 3)]), rng.choice([(), (3,), (2, 3)])]
    lines = ["def g0(x0, x1):"]
    scope = Scope(writer, 1, [("x0", shapes[0]), ("x1", shapes[1])], not writer.traced)
    writer.length = 3 if order < 3 else 2
    writer.body(scope, rng.randint(2, 8 - order))
    last, out = scope.pool[-1]
    # what came before counts as well, so that little of the program is dead
    extra = " + ".join(f"0.1 * np.sum(np.sin({name}))" for name, _ in scope.pool[:-1][-4:])
    # at times the last value as it is: an elementwise result hides where a batch rule left an axis
    result = last if rng.random() < 0.3 else f"np.sin({last}) + {extra}"
    lines += [*scope.lines, f"    return {result}"]
    done: list[str] = []
    for kind in stack:
        level = len(done) + 1
        text, shapes_out, out_new = _wrap(writer, rng, kind, level, shapes, out)
        if text is None:
            continue
        lines += text
        shapes, out = shapes_out, out_new
        done.append(kind)
    lines.append(f"main = g{len(done)}")
    return Case("\n".join(lines), tuple(shapes), tuple(done), writer.features)


def _wrap(
    writer: Writer, rng: random.Random, kind: str, level: int, shapes: list[Shape], out: Shape
) -> tuple[Any, list[Shape], Shape]:
    """Returns the lines of a function that applies a transform to the one before."""
    before, name = f"g{level - 1}", f"g{level}"
    which = rng.randrange(2)
    x, other = f"x{which}", f"x{1 - which}"
    shape = shapes[which]
    head = f"def {name}(x0, x1):"
    closed = f"lambda {x}: {before}(x0, x1)"
    scalar = f"lambda {x}: {writer.total(f'{before}(x0, x1)')}"
    scalar_both = f"lambda x0, x1: {writer.total(f'{before}(x0, x1)')}"
    size, out_size = math.prod(shape), math.prod(out)
    tangent = rng.choice([f"np.cos({x})", f"{x} * 0.5", f"np.sin({x}) + np.mean({other})"])
    chunk = rng.choice(["", "", ", chunk=2", ", chunk=1"])
    if kind == "grad":
        if rng.random() < 0.5:
            return [head, f"    return T.grad({scalar})({x})"], shapes, shape
        return [head, f"    return T.grad({scalar_both}, {which})(x0, x1)"], shapes, shape
    if kind == "jvp":
        if rng.random() < 0.5:
            call = f"T.jvp({closed}, ({x},), ({tangent},))"
        else:
            call = f"T.jvp({before}, (x0, x1), (np.cos(x0), x1))"
        return [head, f"    out, dot = {call}", "    return 0.3 * out + dot"], shapes, out
    if kind == "linearize":
        lines = [head, f"    out, push = T.linearize({before}, x0, x1)"]
        return [*lines, "    return push(np.cos(x0), x1) + out * push(x0, np.sin(x1))"], shapes, out
    if kind == "vjp":
        lines = [
            head,
            f"    out, pull = T.vjp({before}, x0, x1)",
            f"    ct = pull(np.sin(out))[{which}]",
        ]
        return [*lines, f"    return ct + pull(np.cos(out))[{which}] * {x}"], shapes, shape
    if kind == "jit":
        return [head, f"    return T.jit({before})(x0, x1)"], shapes, out
    if kind == "hvp":
        return [head, f"    return T.hvp({scalar}, {x}, {tangent})"], shapes, shape
    if kind == "hessian":
        if size > 6:
            return None, shapes, out
        return [head, f"    return T.hessian({scalar}{chunk})({x})"], shapes, (*shape, *shape)
    if kind in ("jacfwd", "jacrev"):
        if size * out_size > 24:
            return None, shapes, out
        return [head, f"    return T.{kind}({closed}{chunk})({x})"], shapes, (*out, *shape)
    if max(size, out_size, *map(math.prod, shapes)) > 12:
        return None, shapes, out
    n = rng.choice([1, 2, 2, 3])
    out_axis = rng.randint(0, len(out))
    new_out = (*out[:out_axis], n, *out[out_axis:])
    axis = rng.randint(0, len(shape))
    mapped = (*shape[:axis], n, *shape[axis:])
    new_shapes = list(shapes)
    new_shapes[which] = mapped
    if rng.random() < 0.3:
        return (
            [head, f"    return T.vmap({closed}, ({axis},), {out_axis}{chunk})({x})"],
            new_shapes,
            new_out,
        )
    axes: list[int | None] = [None, None]
    axes[which] = axis
    if rng.random() < 0.5:
        second = rng.randint(0, len(shapes[1 - which]))
        axes[1 - which] = second
        own = shapes[1 - which]
        new_shapes[1 - which] = (*own[:second], n, *own[second:])
    text = f"    return T.vmap({before}, {tuple(axes)}, {out_axis}{chunk})(x0, x1)"
    return [head, text], new_shapes, new_out


# ------------------------------------------------------------------------------------ comparison


class Disagreement(AssertionError):
    """Says that ftrans and JAX gave different answers, or that ftrans gave none."""


def program(case: Case, names: dict[str, Any]) -> Callable[..., Any]:
    """Returns the function of a case, over one of the two sets of names."""
    space = dict(names)
    exec(compile(case.source, "<fuzz>", "exec"), space)
    return space["main"]


def expected(case: Case, arguments: Sequence[np.ndarray]) -> np.ndarray | None:
    """Returns the answer of JAX; None where it has too few digits to be compared."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        theirs = np.asarray(jaxpr.evaluate(program(case, THEIRS))(*arguments))
    fine = np.isfinite(theirs).all() and (theirs.size == 0 or np.abs(theirs).max() < LARGEST)
    return theirs if fine else None


def compare(case: Case, execution: str = "interpret", seed: int = 0) -> bool:
    """Raises `Disagreement` where ftrans and JAX disagree; returns whether they were compared.

    Args:
        case: what to run.
        execution: how ftrans runs it.
        seed: of the values of the arguments.
    """
    arguments = case.arguments(seed)
    theirs = expected(case, arguments)
    if theirs is None:
        return False
    before = ftrans.config.execution, ftrans.config.check, ftrans.config.traceback
    settings = ftrans.config
    settings.execution, settings.check, settings.traceback = execution, True, "full"
    try:
        call = program(case, OURS)
        call(*arguments)
        ours = np.asarray(call(*arguments))  # for which traces of the first call may stand
    except Exception as error:
        raise Disagreement(
            f"{''.join(traceback.format_exception(error))}\n{case.source}"
        ) from error
    finally:
        settings.execution, settings.check, settings.traceback = before
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    gap = np.abs(ours - theirs).max() if same and ours.size else 0.0
    scale = 1.0 + (np.abs(theirs).max() if theirs.size else 0.0)
    if not same or not gap <= TOLERANCE * scale:
        shapes = ", ".join(map(str, case.shapes))
        raise Disagreement(
            f"{execution}: {ours.dtype}{ours.shape} differs from {theirs.dtype}{theirs.shape} of "
            f"JAX by {gap:.3g} at a scale of {scale:.3g}\n"
            f"stack (from the inside): {' '.join(case.stack)}; shapes {shapes}\n"
            f"{case.source}\nftrans:\n{ours!r}\nJAX:\n{theirs!r}"
        )
    return True


def main() -> None:
    """Runs many cases and prints what disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--compile-every", type=int, default=25, help="compile one case in n")
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    start = time.perf_counter()
    seen: collections.Counter[str] = collections.Counter()
    by_depth: collections.Counter[int] = collections.Counter()
    failures = compared = done = 0
    for number in range(options.cases):
        if time.perf_counter() - start > options.seconds:
            break
        seed = options.seed + number
        case = generate(random.Random(seed), options.depth)
        seen.update(set(case.features) | set(case.stack))
        by_depth[len(case.stack)] += 1
        done += 1
        roads = ["interpret"]
        if options.compile_every and number % options.compile_every == 0:
            roads.append("compile")
        try:
            compared += min([compare(case, road, seed) for road in roads])
        except Disagreement as error:
            failures += 1
            print(f"--- case {seed}\n{error}\n", flush=True)
        except Exception as error:
            print(f"--- case {seed}: the oracle failed\n{error!r}\n{case.source}\n", flush=True)
        if done % 250 == 0:
            rate = done / (time.perf_counter() - start)
            print(
                f"{done} cases, {compared} compared, {failures} disagree, {rate:.1f}/s", flush=True
            )
    rate = done / (time.perf_counter() - start)
    print(f"{done} cases from seed {options.seed}: {compared} compared, {failures} disagree")
    print(f"{rate:.1f} cases per second; by depth of the stack: {dict(sorted(by_depth.items()))}")
    print("cases that hold:", dict(seen.most_common()))


if __name__ == "__main__":
    main()
