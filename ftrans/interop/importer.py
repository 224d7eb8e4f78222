"""Jaxprs as programs: imported equation by equation, so that JAX's code is transformed as ours is.

What has no counterpart here is a call of that one equation (`external`), whose derivatives and
batches JAX gives. A rule takes the importer, the equation and its operands, which are traced values
or literals, and returns the results; it raises `NoCounterpart` where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np

from ftrans.errors import FtransError, UnsupportedError
from ftrans.interop.callee import JaxCallee, static_key
from ftrans.interpreters.base import building
from ftrans.interpreters.builder import Builder
from ftrans.ir import ArrayType, Literal, Program, Tracer, type_of
from ftrans.primitives import broadcast_p, external_p, reshape_p, scalar
from ftrans.runtime.jaxlink import is_key, is_traced_by_jax

Rule = Callable[..., Any]
Imported = tuple[Program, list[Any]]
"""A program, and the arrays that it takes after its other inputs."""


_CARRIERS = {"jaxpr", "call_jaxpr", "branches", "cond_jaxpr"}
"""The params of primitives that carry jaxprs, which may go through keys."""


class NoCounterpart(Exception):
    """Says that an equation of JAX's is called, since nothing here means the same."""


def type_of_aval(aval: Any) -> ArrayType:
    """Returns the type of a value of JAX's.

    A key is the words that it consists of; the tangent of an integer, which has none, is false.
    """
    if is_key(aval):
        return ArrayType((*aval.shape, *key_shape(aval)), "uint32")
    return ArrayType(aval.shape, bool if aval.dtype == jax.dtypes.float0 else aval.dtype)


def key_shape(aval: Any) -> tuple[int, ...]:
    """Returns the shape of the words of one key."""
    return tuple(aval.dtype._impl.key_shape)


class RefusedError(UnsupportedError):
    """Says that an equation of JAX's can neither be imported nor called."""


class Importer:
    """Records the equations of jaxprs in a frame.

    Attributes:
        frame: the frame.
        rules: those of JAX's primitives, by name.
        around: the functions whose custom rules are imported around this, the innermost last.
        answer: in such a rule, what the function is called with, and its results, since most rules
            call it again.
    """

    def __init__(self, frame: Builder, rules: Mapping[str, Rule], around: tuple[Any, ...] = ()):
        self.frame = frame
        self.rules = rules
        self.around = around
        self.answer: tuple[list[Any], list[Any]] | None = None

    def run(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Records a jaxpr; returns what its results are."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Any:
            return literal(atom) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            results = self.equation(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def constant(self, value: Any) -> Any:
        """Returns what stands for a constant of a jaxpr: an array is an operand, a number is not.

        JAX hands on the user's own array of NumPy, so that what is written to it later is seen.
        """
        if is_traced_by_jax(value):
            raise NoCounterpart  # a rule in a rule that closes over a value of that
        value = getattr(value, "val", value)
        if value.dtype == jax.dtypes.float0:
            return broadcast_p(scalar(False, bool), shape=value.shape, axes=())
        if is_key(value):
            return self.frame.capture(np.asarray(jax.random.key_data(value)))
        if value.ndim == 0:
            return scalar(np.asarray(value).item(), np.dtype(value.dtype))
        return self.frame.capture(value)

    def equation(self, equation: Any, operands: list[Any]) -> list[Any]:
        """Records one equation of JAX's; returns its results."""
        name, ends = equation.primitive.name, (*equation.invars, *equation.outvars)
        rule = self.rules.get(name)
        if any(is_key(x.aval) for x in ends) and not equation.params.keys() & _CARRIERS:
            rule = self.rules.get(f"keys:{name}", self.rules["keys:"])
        types = [type_of_aval(var.aval) for var in equation.outvars]
        if rule is not None:
            try:
                found = rule(self, equation, *operands)
                found = list(found) if isinstance(found, (list, tuple)) else [found]
                if [type_of(x).update() for x in found] == types:
                    return found
            except RefusedError:
                raise
            except (NoCounterpart, FtransError):
                pass  # perhaps of a dtype that our primitive does not take
        return self.called(equation, operands)

    def called(self, equation: Any, operands: Sequence[Any]) -> list[Any]:
        """Records a call of one equation of JAX's."""
        if equation.effects:
            raise RefusedError(
                f"from_jax: {equation.primitive.name} has effects, which a program that is "
                f"transformed must not have.\n  effects: {', '.join(map(str, equation.effects))}\n"
                f"  Leave it out of the function, or call external.jax(f) instead."
            )
        return list(external_p(*map(self.array, operands), callee=callee_of(equation)))

    def array(self, value: Any) -> Tracer:
        """Returns a traced value in the place of a literal."""
        return self.frame.tracer(value) if type(value) is Literal else value

    def program(self, closed: Any, name: str) -> Imported:
        """Returns the program of a closed jaxpr, in a frame of its own."""
        return import_jaxpr(closed, self.rules, name, self.around)


def literal(atom: Any) -> Any:
    """Returns the literal that one of JAX's is."""
    if atom.aval.dtype == jax.dtypes.float0:
        return scalar(False, bool)
    return scalar(np.asarray(atom.val).item(), np.dtype(atom.aval.dtype))


def import_jaxpr(
    closed: Any, rules: Mapping[str, Rule], name: str, around: tuple[Any, ...] = ()
) -> Imported:
    """Returns the program of a closed jaxpr, and the arrays that it takes; see `Importer`."""
    with building(name, [type_of_aval(aval) for aval in closed.in_avals]) as (frame, inputs):
        importer = Importer(frame, rules, around)
        outs = importer.run(closed.jaxpr, closed.consts, inputs)
        program, captured = frame.close([importer.array(out) for out in outs])
    return program, captured


def alone(equation: Any) -> Any:
    """Returns one equation as a closed jaxpr."""
    inputs = [core.Var(var.aval) for var in equation.invars]
    outs = [core.Var(var.aval) for var in equation.outvars]
    only = equation.replace(invars=inputs, outvars=outs)
    about = core.DebugInfo("from_jax", equation.primitive.name, None, None)
    jaxpr = core.Jaxpr([], inputs, outs, [only], core.no_effects, debug_info=about)
    return core.ClosedJaxpr(jaxpr, [])


def callee_of(equation: Any, ruled: Callable[[Any], Any] = lambda function: function) -> JaxCallee:
    """Returns one equation of JAX's as what an `external` equation calls.

    Args:
        equation: the equation.
        ruled: is given its function, and returns one with derivatives where JAX's have not all.
    """
    plain = ruled(core.jaxpr_as_fun(alone(equation)))
    kinds = [var.aval.dtype._impl.name if is_key(var.aval) else None for var in equation.invars]

    def function(*arrays: Any) -> list[Any]:
        given = [
            x if kind is None else jax.random.wrap_key_data(jnp.asarray(x), impl=kind)
            for x, kind in zip(arrays, kinds, strict=True)
        ]
        pairs = zip(plain(*given), equation.outvars, strict=True)
        return [jax.random.key_data(x) if is_key(var.aval) else x for x, var in pairs]

    avals = tuple([str(var.aval) for var in (*equation.invars, *equation.outvars)])
    key = equation.primitive.name, static_key(equation.params), avals
    types = [type_of_aval(var.aval) for var in equation.outvars]
    return JaxCallee(equation.primitive.name, function, types, key)


def shape_of(value: Any) -> tuple[int, ...]:
    """Returns the shape of an operand."""
    return type_of(value).shape


def broadcast(value: Any, shape: tuple[int, ...], axes: Sequence[int] | None = None) -> Any:
    """Broadcasts an operand: its axes become those given, and such of size 1 may grow.

    Args:
        value: a traced value or a literal.
        shape: the shape of the result.
        axes: for each axis of the operand which one of the result it becomes; the last ones.
    """
    own = shape_of(value)
    axes = range(len(shape) - len(own), len(shape)) if axes is None else axes
    kept = [(n, a) for n, a in zip(own, axes, strict=True) if n == shape[a]]
    if len(kept) < len(own):
        value = reshape_p(value, shape=tuple([n for n, _ in kept]))
    elif own == shape and type(value) is not Literal:
        return value
    return broadcast_p(value, shape=shape, axes=tuple([a for _, a in kept]))
