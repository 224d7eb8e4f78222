"""Custom rules for JAX's own transformations: as `jax.custom_vjp`, or `jax.custom_jvp`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ftrans.errors import MissingRuleError
from ftrans.ir import Program, type_of
from ftrans.ir.above import above
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.namespace import is_traced_by_jax, without_derivative
from ftrans.primitives.rules.custom_spec import Rule, Spec, look_up
from ftrans.primitives.rules.missing import missing_p, once_p


def with_rules(arrays: Sequence[Any], rule: Rule) -> Sequence[Any]:
    """Returns the results of a `custom` equation such that JAX differentiates them by its rules.

    Args:
        arrays: the operands, values that JAX traces.
        rule: what the params of the equation say. A `backward` that JAX can transpose back is
            transposed, so that there are both modes. Otherwise `backward` is taken where it is
            given, and JAX then refuses forward mode; `forward_mode` where it is not, or only
            transposes what is linear.
    """
    computes = rule.forward_mode is not None and not rule.spec.lasting  # results as well
    forward, backward, forward_mode, _, spec, saved = _both_modes(rule)
    inputs, n, arity = len(forward.inputs), len(spec.smooth), spec.arity
    captured = () if spec.holds else range(arity, inputs)
    types = [type_of(array) for array in arrays]

    def typed(xs: Sequence[Any]) -> list[Any]:
        """Returns the operands with the types that JAX says they have; they may be numbers."""
        return [
            x if is_traced_by_jax(x) else jnp.asarray(x, t.dtype)
            for x, t in zip(xs, types, strict=True)
        ]

    def compute(*xs: Any) -> tuple[Any, ...]:
        return tuple(evaluate(jnp, forward, xs[:inputs]))

    def again(xs: Sequence[Any]) -> tuple[Any, ...]:
        """Returns all that `forward` does, by the rules for what JAX differentiates further out."""
        if spec.lasting and any(map(is_traced_by_jax, xs)):
            return tuple(with_rules(xs, rule._replace(saved=True)))
        return compute(*xs)

    def visible(outs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(outs) if saved else tuple(outs[:n])

    def keeps(outs: Sequence[Any]) -> bool:
        """Tells whether what is saved has derivatives."""
        return saved and any(map(_moves, outs[n:]))

    solves = spec.linear > 0 and forward_mode is not None
    if backward is not None and not solves:

        @jax.custom_vjp
        def by_backward(*xs: Any) -> tuple[Any, ...]:
            return visible(compute(*typed(xs)))

        def fwd(*given: Any) -> Any:
            xs = typed([x.value for x in given])
            outs = again(xs)
            # None is no leaf, so that JAX hands it on
            return visible(outs), (xs, outs, [0 if x.perturbed else None for x in given])

        def bwd(residuals: Any, given: Sequence[Any]) -> tuple[Any, ...]:
            *values, asked = residuals
            xs, outs = (list(map(_rigid, some)) for some in values)
            cts = list(map(_instantiated, given))
            smooth = [ct for ct, s in zip(cts, spec.smooth, strict=False) if s]
            found: list[Any] = [None] * len(xs)
            by_rule = evaluate(jnp, backward, [*smooth, *look_up(spec.pulled, xs, outs, n)])
            for i, ct in zip((i for i, g in enumerate(spec.gives) if g), by_rule, strict=True):
                found[i] = ct

            def natural(operands: Sequence[int], cts: Sequence[Any]) -> None:
                """Adds the cotangents by the code of `forward`."""
                moving = [i for i in operands if asked[i] is not None]
                if moving:
                    some = [xs[i] for i in moving]
                    _, pull = jax.vjp(lambda *ys: _with(compute, xs, moving, ys), *some)
                    for i, ct in zip(moving, pull(tuple(cts)), strict=True):
                        found[i] = ct if found[i] is None else found[i] + ct

            blank = list(map(_zero, outs))
            natural(captured, [*cts[:n], *blank[n:]])
            if keeps(outs):
                natural(range(inputs), [*blank[:n], *cts[n:]])
            return tuple(found)

        by_backward.defvjp(fwd, bwd, symbolic_zeros=True)
        return list(map(_rigid, by_backward(*arrays)))

    assert forward_mode is not None

    @jax.custom_jvp
    def by_jvp(*given: Any) -> tuple[Any, ...]:
        xs = typed(given)
        if solves and backward is not None:
            return visible(_transposable(compute, xs, forward, backward, spec))
        return visible(compute(*xs))

    def push(given: Sequence[Any], tangents: Sequence[Any]) -> Any:
        xs = typed(given)
        asked = [not isinstance(dot, SymbolicZero) for dot in tangents]
        dots = list(map(_instantiated, tangents))
        outs = again(xs)
        taken = [dot for dot, t in zip(dots, spec.takes, strict=False) if t]
        results = evaluate(jnp, forward_mode, [*taken, *look_up(spec.pushed, xs, outs, n)])
        if computes:
            outs, results = (*results[:n], *outs[n:]), results[n:]
        by_rule = iter(results)
        found = [
            next(by_rule) if s else _zero(out) for s, out in zip(spec.smooth, outs, strict=False)
        ]

        def natural(operands: Sequence[int], start: int) -> Sequence[Any]:
            """Returns tangents by the code of `forward`, of its results from `start` on."""
            moving = [i for i in operands if asked[i]]
            some = [xs[i] for i in moving], [dots[i] for i in moving]
            return jax.jvp(lambda *ys: _with(compute, xs, moving, ys)[start:], *some)[1]

        if any(asked[i] for i in captured):
            more = natural(captured, 0)
            found = [x + y if s else x for x, y, s in zip(found, more, spec.smooth, strict=False)]
        if keeps(outs):
            found += natural(range(inputs), n)
        elif saved:
            found += map(_zero, outs[n:])
        return visible(outs), tuple(found)

    by_jvp.defjvp(push, symbolic_zeros=True)
    return list(map(_rigid, by_jvp(*arrays)))


def _both_modes(rule: Rule) -> Rule:
    """Returns a rule with a linear `backward` alone as one with its transpose in that place."""
    backward, spec = rule.backward, rule.spec
    if backward is None or rule.forward_mode is not None or spec.linear or backward.calls_host:
        return rule
    found = above.exchange(backward, sum(spec.smooth), "")
    if _holds({missing_p, once_p}, found) or _holds({once_p}, backward):
        return rule
    spec = spec._replace(takes=spec.gives, pushed=spec.pulled)
    return rule._replace(backward=None, forward_mode=found, spec=spec)


def _holds(primitives: Collection[Any], program: Program) -> bool:
    """Tells whether a program has an equation of these, at any depth."""
    return any(equation.primitive in primitives for _, equation in program.nested())


def with_batches(compute: Any, arrays: Sequence[Any], spec: Spec) -> Sequence[Any]:
    """Returns what `compute` does such that JAX batches it by the author's rule.

    Args:
        compute: takes the operands; JAX differentiates it as it is.
        arrays: the operands, values that JAX traces.
        spec: that of the equation, with a rule for batches.
    """

    def plain(*xs: Any) -> tuple[Any, ...]:
        return tuple(compute(*xs))

    by_rule = jax.custom_batching.custom_vmap(plain)

    @by_rule.def_vmap
    def _(size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        dims, rule, arity = [0 if m else None for m in mapped], spec.batch, spec.arity
        if rule is None or any(mapped[arity:]):
            return jax.vmap(plain, dims, axis_size=size)(*xs), (True,) * spec.outs
        program, out_dims = rule.program(size, [type_of(x) for x in xs[:arity]], dims[:arity])
        outs = evaluate(jnp, program, [*xs[:arity], *[xs[i] for i in rule.captured]])
        pairs = zip(outs, out_dims, strict=True)
        front = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in pairs]
        return tuple(front), tuple(dim is not None for dim in out_dims)

    differentiable = jax.custom_jvp(by_rule)
    differentiable.defjvp(lambda xs, dots: jax.jvp(plain, xs, dots))
    return differentiable(*arrays)


def _instantiated(x: Any) -> Any:
    """Returns what JAX knows to be zero as zeros."""
    return _zero(x) if isinstance(x, SymbolicZero) else x


def _transposable(
    compute: Any, xs: Sequence[Any], forward: Program, backward: Program, spec: Spec
) -> Sequence[Any]:
    """Returns what `compute` does, such that JAX transposes it by `backward` where it is linear.

    JAX transposes a function that has a jvp by its code. What it has for a function that knows its
    transpose, and has batches as well, is a linear solve; the operator is of no account here. So
    JAX would hold constant what the transpose, and what stands in a linear map, depends on.
    """
    first, n = spec.arity - spec.linear, spec.linear
    given = [i for i, x in enumerate(xs) if _moves(x) and not first <= i < spec.arity]
    held = without_derivative(
        lambda *ys: ys, [xs[i] for i in given], lambda: _once_alone(spec.name)
    )
    xs = list(xs)
    for i, x in zip(given, held, strict=True):
        xs[i] = x
    types, rest = forward.output_types[:n], forward.output_types[n:]
    wide = jnp.result_type(*[t.dtype for t in types])

    def joined(ys: Sequence[Any]) -> Any:
        # as one array: JAX wants all parts to be linear, where others may be constants
        return jnp.concatenate([jnp.ravel(y).astype(wide) for y in ys])

    def parts(y: Any) -> list[Any]:
        ends = np.cumsum([math.prod(t.shape) for t in types])[:-1]
        pieces = zip(jnp.split(y, ends), types, strict=True)
        return [_narrowed(piece, t.dtype).reshape(t.shape) for piece, t in pieces]

    def solve(_: Any, b: Any) -> Any:
        outs = compute(*xs[:first], *parts(b), *xs[spec.arity :])
        return joined(outs[:n]), tuple(outs[n:])

    def transpose_solve(_: Any, ct: Any) -> Any:
        # results are what the other cotangents are computed from, which are left out
        blank = [jnp.zeros(t.shape, t.dtype) for t in (*types, *rest)]
        taken = look_up(spec.pulled, xs, blank, spec.outs)
        found = evaluate(jnp, backward, [*parts(ct), *taken])
        return joined(found[-n:]), tuple(blank[n:])

    b = joined(xs[first : spec.arity])
    absent = _holds({missing_p}, backward)
    y, others = jax.lax.custom_linear_solve(
        lambda x: x, b, solve, None if absent else transpose_solve, has_aux=True
    )
    return *parts(y), *others


def _once_alone(name: str) -> NoReturn:
    raise MissingRuleError(
        f"{name}: JAX differentiates a gradient that it has taken of a solution.\n"
        f"  Take the inner derivatives by ftrans: jax.grad(ftrans.grad(f)) in the place of\n"
        f"  jax.grad(jax.grad(f)); jax.jvp and jax.jacfwd can be nested."
    )


def _narrowed(x: Any, dtype: Any) -> Any:
    """Converts to a dtype that is as wide or narrower, from complex numbers as well."""
    real = jnp.iscomplexobj(x) and not jnp.issubdtype(dtype, jnp.complexfloating)
    return (jnp.real(x) if real else x).astype(dtype)


def _rigid(x: Any) -> Any:
    """Takes the tangent of zeros from an integer or a bool: JAX would ask for derivatives of it."""
    return x if _moves(x) else jax.lax.stop_gradient(x)


def _with(compute: Any, xs: Sequence[Any], moving: Sequence[int], ys: Sequence[Any]) -> Any:
    full = list(xs)
    for i, y in zip(moving, ys, strict=True):
        full[i] = y
    return compute(*full)


def _moves(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _zero(x: Any) -> Any:
    """Returns the zero tangent of a value, of JAX's dtype for what has none."""
    return jnp.zeros(x.shape, x.dtype) if _moves(x) else np.zeros(x.shape, jax.dtypes.float0)
