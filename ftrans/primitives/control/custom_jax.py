"""Custom rules for JAX's own transformations: as `jax.custom_vjp`, or `jax.custom_jvp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ftrans.ir import Program, type_of
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.namespace import is_traced_by_jax

__all__ = ["with_rules"]


def with_rules(
    arrays: Sequence[Any],
    forward: Program,
    backward: Program | None,
    forward_mode: Program | None,
    spec: Any,
    saved: bool,
) -> Sequence[Any]:
    """Returns the results of a `custom` equation such that JAX differentiates them by its rules.

    Args:
        arrays: the operands, values that JAX traces.
        forward: as in the equation, and so are the others.
        backward: taken where it is given; JAX then refuses forward mode.
        forward_mode: taken where `backward` is not given.
        spec: that of the equation.
        saved: whether what is saved is returned as well.
    """
    inputs, n, arity = len(forward.inputs), len(spec.smooth), spec.arity
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
            return tuple(with_rules(xs, forward, backward, forward_mode, spec, True))
        return compute(*xs)

    def visible(outs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(outs) if saved else tuple(outs[:n])

    def looked_up(references: Any, xs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        place = {"operand": xs, "result": outs[:n], "saved": outs[n:]}
        return [place[kind][i] for kind, i in references]

    def keeps(outs: Sequence[Any]) -> bool:
        """Tells whether what is saved has derivatives."""
        return saved and any(map(_moves, outs[n:]))

    def natural(outs: Sequence[Any], asked: Sequence[bool]) -> list[int]:
        """Returns the operands whose derivative is that of `forward`, of those that are asked."""
        moving = range(inputs) if keeps(outs) else range(arity, inputs)
        return [i for i in moving if asked[i]]

    if backward is not None:

        @jax.custom_vjp
        def by_backward(*xs: Any) -> tuple[Any, ...]:
            return visible(compute(*typed(xs)))

        def fwd(*given: Any) -> Any:
            xs = typed([x.value for x in given])
            outs = again(xs)
            return visible(outs), (xs, outs, _Asked(tuple([x.perturbed for x in given])))

        def bwd(residuals: Any, given: Sequence[Any]) -> tuple[Any, ...]:
            *values, asked = residuals
            xs, outs = (list(map(_rigid, some)) for some in values)
            cts = list(map(_instantiated, given))
            smooth = [ct for ct, s in zip(cts, spec.smooth, strict=False) if s]
            found: list[Any] = [None] * len(xs)
            by_rule = evaluate(jnp, backward, [*smooth, *looked_up(spec.pulled, xs, outs)])
            for i, ct in zip((i for i, g in enumerate(spec.gives) if g), by_rule, strict=True):
                found[i] = ct
            moving = natural(outs, asked.mask)
            if moving:
                full = [*cts, *[_zero(out) for out in outs[len(cts) :]]]
                _, pull = jax.vjp(
                    lambda *ys: _with(compute, xs, moving, ys), *[xs[i] for i in moving]
                )
                for i, ct in zip(moving, pull(tuple(full)), strict=True):
                    if i >= arity:
                        found[i] = ct
                if keeps(outs):
                    kept = [*map(_zero, outs[:n]), *cts[n:]]
                    for i, ct in zip(moving, pull(tuple(kept)), strict=True):
                        if i < arity:
                            found[i] = ct if found[i] is None else found[i] + ct
            return tuple(found)

        by_backward.defvjp(fwd, bwd, symbolic_zeros=True)
        return list(map(_rigid, by_backward(*arrays)))

    assert forward_mode is not None

    @jax.custom_jvp
    def by_jvp(*xs: Any) -> tuple[Any, ...]:
        return visible(compute(*typed(xs)))

    def rule(given: Sequence[Any], tangents: Sequence[Any]) -> Any:
        xs = typed(given)
        asked = [not isinstance(dot, SymbolicZero) for dot in tangents]
        dots = list(map(_instantiated, tangents))
        outs = again(xs)
        taken = [dot for dot, t in zip(dots, spec.takes, strict=False) if t]
        results = evaluate(jnp, forward_mode, [*taken, *looked_up(spec.pushed, xs, outs)])
        if not spec.lasting:
            outs, results = (*results[:n], *outs[n:]), results[n:]
        by_rule = iter(results)
        found = [
            next(by_rule) if s else _no_tangent(out)
            for s, out in zip(spec.smooth, outs, strict=False)
        ]
        moving = [i for i in range(arity, inputs) if asked[i]]
        if moving:
            _, more = jax.jvp(
                lambda *ys: _with(compute, xs, moving, ys),
                [xs[i] for i in moving],
                [dots[i] for i in moving],
            )
            found = [x + y if s else x for x, y, s in zip(found, more, spec.smooth, strict=False)]
        if keeps(outs):
            moving = [i for i in range(inputs) if asked[i]]
            _, later = jax.jvp(
                lambda *ys: _with(compute, xs, moving, ys)[n:],
                [xs[i] for i in moving],
                [dots[i] for i in moving],
            )
            found += later
        elif saved:
            found += map(_no_tangent, outs[n:])
        return visible(outs), tuple(found)

    by_jvp.defjvp(rule, symbolic_zeros=True)
    return list(map(_rigid, by_jvp(*arrays)))


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Asked:
    """Says which operands JAX differentiates with respect to."""

    mask: tuple[bool, ...]


def _instantiated(x: Any) -> Any:
    """Returns what JAX knows to be zero as zeros."""
    return _zero(x) if isinstance(x, SymbolicZero) else x


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
    return jnp.zeros(x.shape, x.dtype) if _moves(x) else _no_tangent(x)


def _no_tangent(x: Any) -> Any:
    """Returns the zero tangent of a value, of JAX's dtype for what has none."""
    return jnp.zeros(x.shape, x.dtype) if _moves(x) else np.zeros(x.shape, jax.dtypes.float0)
