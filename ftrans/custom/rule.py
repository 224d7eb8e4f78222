"""Calls of `backward` and `jvp`: what they are given, and what they must return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.context import FunctionCtx
from ftrans.custom.fit import chosen, fit
from ftrans.custom.opaque import host_call
from ftrans.errors import RuleError
from ftrans.external.captures import defined
from ftrans.ir import ArrayType
from ftrans.ir.stack import is_tracing
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts

__all__ = ["Rule"]


class Rule(NamedTuple):
    """Is one method of a rule, with what its arguments and results must be.

    Attributes:
        label: names it: "F.backward".
        method: the user's function.
        parts: the arguments of `apply`, without the arrays.
        output: the results, without the arrays.
        inputs: the types of the arrays among the arguments.
        types: the types of the results.
        smooth: which results have tangents.
        materialize: whether cotangents that are zero are given as arrays.
        names: those of the arguments.
        weak: which arrays among the arguments were Python numbers.
        passed: how many arguments were passed; the others are defaults, whose gradients may be left
            out.
    """

    label: str
    method: Any
    parts: Parts
    output: Parts
    inputs: tuple[ArrayType, ...]
    types: tuple[ArrayType, ...]
    smooth: tuple[bool, ...]
    materialize: bool
    names: tuple[str, ...]
    weak: tuple[bool, ...]
    passed: int

    # --------------------------------------------------------------------------- backward

    def gradients(self, ctx: FunctionCtx, cotangents: Sequence[Any]) -> list[Any]:
        """Calls `backward`; returns a cotangent of the right type, or None, for each input."""
        given = cotangents
        if self.materialize:
            given = [
                _zeros(t) if ct is None else ct
                for ct, t in zip(cotangents, self.types, strict=True)
            ]
        found = self.method(ctx, *self.output.alone(given))
        gradients = list(found) if isinstance(found, tuple) else [found]
        count = len(self.parts)
        if isinstance(found, list) and count > 1:
            gradients = list(found)
        while len(gradients) > count and gradients[-1] is None:
            gradients.pop()
        if self.passed <= len(gradients) < count:
            gradients += [None] * (count - len(gradients))
        if len(gradients) != count:
            raise RuleError(
                f"{self._where}: it must return one gradient for each argument of forward.\n"
                f"  expected {count}, got {len(gradients)}\n"
                f"  Return None for an argument that has no gradient."
            )
        flat = self.parts.split(lambda: f"{self._where}: a gradient", gradients)
        return [
            None if ct is None or not t.is_inexact else self._gradient(i, ct, t)
            for i, (ct, t) in enumerate(zip(flat, self.inputs, strict=True))
        ]

    def _gradient(self, number: int, ct: Any, t: ArrayType) -> Any:
        ct = chosen(ct, t, self.weak[number])
        return self._fit("gradient", lambda: self._inputs()[number], ct, t, reduced=True)

    def _fit(
        self, what: str, name: Callable[[], str], value: Any, t: ArrayType, reduced: bool = False
    ) -> Any:
        # the label is made only where it is needed: it costs more than the check
        try:
            return fit("", value, t, "", reduced)
        except RuleError:
            label = f"{self._where}: the {what} of {name()}"
        return fit(label, value, t, name(), reduced)

    def host_gradients(
        self,
        ctx: FunctionCtx,
        cotangents: Sequence[Any],
        needs: tuple[bool, ...],
    ) -> list[Any]:
        """Records that `backward` is called when the program is run."""
        wanted = [i for i, t in enumerate(self.inputs) if t.is_inexact]
        return self._called_later(self.gradients, ctx, cotangents, needs, wanted, self.inputs)

    # -------------------------------------------------------------------------------- jvp

    def tangents(self, ctx: FunctionCtx, tangents: Sequence[Any]) -> list[Any]:
        """Calls `jvp`; returns a tangent of the right type, or None, for each result."""
        found = self.method(ctx, *self.parts.alone(tangents))
        dots = found if isinstance(found, tuple) else (found,)
        if isinstance(found, list) and len(self.output) > 1:
            dots = tuple(found)
        if len(dots) != len(self.output):
            raise RuleError(
                f"{self._where}: it must return one tangent for each output of forward.\n"
                f"  expected {len(self.output)}, got {len(dots)}\n"
                f"  Return None for an output that has no tangent."
            )
        flat = self.output.split(lambda: f"{self._where}: a tangent", dots)
        given = enumerate(zip(flat, self.types, self.smooth, strict=True))
        return [None if dot is None else self._tangent(i, dot, t, s) for i, (dot, t, s) in given]

    def _tangent(self, number: int, dot: Any, t: ArrayType, smooth: bool) -> Any:
        if smooth:
            return self._fit("tangent", lambda: f"result {number}", dot, t)
        if t.is_inexact:
            raise RuleError(
                f"{self._where}: result {number} is marked as not differentiable, and has a "
                f"tangent.\n"
                f"  Return None for it."
            )
        return None

    def host_tangents(
        self,
        ctx: FunctionCtx,
        tangents: Sequence[Any],
        needs: tuple[bool, ...],
    ) -> list[Any]:
        """Records that `jvp` is called when the program is run."""
        wanted = [i for i, s in enumerate(self.smooth) if s]
        return self._called_later(self.tangents, ctx, tangents, needs, wanted, self.types)

    # ------------------------------------------------------------------------------ shared

    def _called_later(
        self,
        call: Callable[[FunctionCtx, Sequence[Any]], list[Any]],
        ctx: FunctionCtx,
        values: Sequence[Any],
        needs: tuple[bool, ...],
        wanted: Sequence[int],
        types: Sequence[ArrayType],
    ) -> list[Any]:
        """Records a call of the method on arrays; returns the results that are wanted, else None.

        Args:
            call: calls the method.
            ctx: the context, with traced values in it.
            values: what the method takes, traced, or None.
            needs: what `ctx.needs_input_grad` is.
            wanted: which results there are.
            types: those of all results.
        """
        given = tuple(x is not None for x in values)
        kinds = [types[i] for i in wanted]

        def body(inner: FunctionCtx, arrays: Sequence[Any]) -> list[Any]:
            rest = iter(arrays)
            found = call(inner, [next(rest) if g else None for g in given])
            return _filled([found[i] for i in wanted], kinds)

        operands = [x for x in values if x is not None]
        key = (given, *self._key)
        outs = host_call(self.label, self.method, ctx, operands, kinds, key, body, needs)
        found: list[Any] = [None] * len(types)
        for i, out in zip(wanted, outs, strict=True):
            found[i] = out
        return found

    @property
    def _key(self) -> tuple[Any, ...]:
        return (
            self.parts.key,
            self.output.key,
            self.inputs,
            self.types,
            self.smooth,
            self.materialize,
            self.weak,
            self.passed,
        )

    @property
    def _where(self) -> str:
        return f"{self.label} ({defined(self.method)})"

    def _inputs(self) -> list[str]:
        count = len(self.parts)
        roots = [self.names[i] if i < len(self.names) else f"args[{i}]" for i in range(count)]
        return self.parts.item_names(roots)


def _filled(values: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    return [
        np.zeros(t.shape, t.dtype) if x is None else x for x, t in zip(values, types, strict=True)
    ]


def _zeros(t: ArrayType) -> Any:
    """Returns zeros; while something is traced, they are not made unless they are used."""
    return zeros(t) if is_tracing() else np.zeros(t.shape, t.dtype)
