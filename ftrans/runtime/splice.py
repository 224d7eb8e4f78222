"""Writes programs as jaxprs, equation by equation, from templates.

A template is what `jax.make_jaxpr` gives for one primitive's own `lower` rule on given operand
types; it is made once and copied with other variables from then on. So the params of JAX's
primitives are never written by hand, and no equation is traced twice. Importing this module fails
where JAX lacks what it needs; `ftrans.runtime.lower` then does without.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from ftrans.ir import ArrayType, Equation, Literal, Program
from ftrans.ir.axes import names_in
from ftrans.ir.location import Location
from ftrans.primitives.evaluate import Staging
from ftrans.runtime.cache import Remembered, on_clear
from ftrans.runtime.jaxlink import settings_of_jax

_TEMPLATES = 4096
"""How many templates are kept."""

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr"}
_CALLS |= dict.fromkeys(("closed_call", "core_call", "ftrans_call"), "call_jaxpr")
"""Primitives of JAX that call a jaxpr and do nothing else, with the param that holds it."""


class Unspliceable(Exception):
    """Says that a program cannot be written as a jaxpr in the present state of JAX."""


class _Step(NamedTuple):
    """Is one equation of a template; an int is a local value, all else stands as it is."""

    primitive: Any
    params: Any
    operands: tuple[Any, ...]
    avals: tuple[Any, ...]


class _Template(NamedTuple):
    """Is what becomes of one equation: local values are its operands, then results in order."""

    steps: tuple[_Step, ...]
    outs: tuple[Any, ...]
    consts: tuple[tuple[Any, Any], ...]
    """Variables among the operands, and outs, with the arrays that they stand for."""


_templates = Remembered(_TEMPLATES)
_avals = Remembered(_TEMPLATES)


def splice(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program`, as one equation of the JAX function being traced.

    Args:
        program: any program.
        arrays: values that JAX traces, of exactly the types of its inputs.

    Raises:
        Unspliceable: where this would not mean the same as to run the program by `jax.numpy`.
    """
    if not jax.sharding.get_abstract_mesh().empty:
        raise Unspliceable("a mesh is set, and the types of JAX's values hold shardings")
    if names_in(program):
        raise Unspliceable("it goes over axes that JAX maps")
    arrays = [
        # a constant stays where it is
        x if type(x) is np.ndarray and x.dtype == t.dtype else jnp.asarray(x, t.dtype)
        for x, t in zip(arrays, program.inputs, strict=True)
    ]
    for array, t in zip(arrays, program.inputs, strict=True):
        if not _is(jax.typeof(array), t):
            raise Unspliceable(f"JAX takes {jax.typeof(array)} for {t}")
    with source_info_util.reset_name_stack():
        jaxpr = _jaxpr(program)
    return call_p.bind(*arrays, call_jaxpr=jaxpr)


def _jaxpr(program: Program) -> Any:
    """Writes a program as a closed jaxpr."""
    state = settings_of_jax()
    make_equation = core.new_jaxpr_eqn
    make_var = core.Var
    sources: dict[Location | None, Any] = {}
    context: Any = None
    consts: dict[Any, Any] = {}
    equations: list[Any] = []
    inputs = [make_var(_aval(t)) for t in program.inputs]
    values: list[Any] = list(inputs)
    for equation, place in zip(program.equations, program.locations, strict=True):
        template = _template(equation, program, state)
        if template.consts:
            consts.update(template.consts)
        source = sources.get(place)
        if source is None:
            source = sources[place] = _source(place)
        local = [values[a] for a in equation.operands if type(a) is int]
        for primitive, params, operands, avals in template.steps:
            outs = [make_var(aval) for aval in avals]
            written = make_equation(
                [local[a] if type(a) is int else a for a in operands],
                outs,
                primitive,
                params,
                core.no_effects,
                source,
                context,
            )
            # the first equation takes what JAX is told by scopes at present; it is asked once
            context = written.ctx
            equations.append(written)
            local += outs
        values += [local[a] if type(a) is int else a for a in template.outs]
    outputs = []
    for atom in program.outputs:
        if isinstance(atom, Literal):
            [atom], constants = _literal(atom)
            consts.update(constants)
            outputs.append(atom)
        else:
            outputs.append(values[atom])
    return core.ClosedJaxpr(
        core.Jaxpr(
            list(consts),
            inputs,
            outputs,
            equations,
            core.no_effects,
            debug_info=core.DebugInfo("ftrans", program.name, None, None),
        ),
        list(consts.values()),
    )


def _template(equation: Equation, program: Program, state: Any) -> _Template:
    """Returns the template of an equation, made anew only where there is none."""
    types = program.types
    operands = tuple([types[a] if type(a) is int else a for a in equation.operands])
    if equation.primitive.is_higher_order or "callee" in equation.params:
        # kept, it would keep its programs alive, or the function that it calls; and these are
        # seldom lowered twice
        return _make_template(equation, operands)
    key = (equation.primitive, operands, equation.params, state)
    return _templates.find(key, lambda: _make_template(equation, operands))


_STAGING = Staging(jnp, splice)


def _make_template(equation: Equation, operands: Sequence[Any]) -> _Template:
    primitive, params = equation.primitive, equation.params

    def lowered(*arrays: Any) -> list[Any]:
        given = iter(arrays)
        full = [x.array if isinstance(x, Literal) else next(given) for x in operands]
        found = primitive.lower(_STAGING, *full, **params)
        outs = found if primitive.multiple else [found]
        # the dtype is given so that what JAX holds to be a Python scalar becomes an array
        return [jnp.asarray(x, t.dtype) for x, t in zip(outs, equation.types, strict=True)]

    return _traced(lowered, [t for t in operands if isinstance(t, ArrayType)], equation.types)


def _traced(function: Any, types: Sequence[ArrayType], results: Sequence[ArrayType]) -> _Template:
    """Traces a function with JAX, and flattens the jaxpr."""
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
    closed = jax.make_jaxpr(function)(*specs)
    if closed.effects:
        raise Unspliceable(f"it has effects: {closed.effects}")
    steps: list[_Step] = []
    consts: list[tuple[Any, Any]] = []
    count = len(specs)

    def flatten(closed: Any, operands: Sequence[Any]) -> list[Any]:
        nonlocal count
        jaxpr = getattr(closed, "jaxpr", closed)
        local: dict[Any, Any] = dict(zip(jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            # every template has its own, which stand side by side in a program
            local[var] = core.Var(var.aval)
            consts.append((local[var], value))

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, core.Literal) else local[atom]

        for equation in jaxpr.eqns:
            ins, params = tuple(map(read, equation.invars)), equation.params
            called = params.get(_CALLS.get(equation.primitive.name))
            if called is not None:
                outs = flatten(called, ins)
            else:
                avals = tuple(var.aval for var in equation.outvars)
                steps.append(_Step(equation.primitive, params, ins, avals))
                outs = range(count, count := count + len(avals))
            local.update(zip(equation.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    outs = flatten(closed, range(count))
    for aval, t in zip(closed.out_avals, results, strict=True):
        if not _is(aval, t):
            raise Unspliceable(f"JAX computes {aval}, not {t}")
    return _Template(tuple(steps), tuple(outs), tuple(consts))


def _literal(literal: Literal) -> tuple[tuple[Any, ...], tuple[tuple[Any, Any], ...]]:
    """Returns a literal of ours as an atom of a jaxpr, and the array if that is a variable."""
    template = _traced(lambda: [np.asarray(literal.array)], [], [literal.type.update()])
    if template.steps:
        raise Unspliceable(f"JAX computes the literal {literal}")
    return template.outs, template.consts


def _aval(t: ArrayType) -> Any:
    """Returns the type as JAX writes it."""

    def made() -> Any:
        spec = jax.ShapeDtypeStruct(t.shape, t.dtype)
        return jax.make_jaxpr(lambda x: x)(spec).in_avals[0]

    return _avals.find(t, made)


def _is(aval: Any, t: ArrayType) -> bool:
    """Says whether JAX's type says what ours says; a mesh without explicit axes adds nothing."""
    return aval == _aval(t) or str(aval) == str(_aval(t))


# -------------------------------------------------------------------------------- where it is from


def _source(place: Location | None) -> Any:
    """Returns where an equation comes from as JAX writes it.

    JAX looks at the stack; so it is asked by code that claims to be the user's expression.
    """
    if place is None:
        return source_info_util.new_source_info()
    return FunctionType(_claiming(place), {"current": source_info_util.current})()


@lru_cache(maxsize=_TEMPLATES)
def _claiming(place: Location) -> CodeType:
    positions = next(islice(place.code.co_positions(), place.offset // 2, None), (None,) * 4)
    if None in positions:
        positions = (place.line, place.line, 0, 0)
    call = ast.parse("current()", mode="eval")
    for node in ast.walk(call):
        node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = positions  # type: ignore[attr-defined]
    made = compile(call, place.filename, "eval")
    return made.replace(co_name=place.code.co_name, co_qualname=place.function)


on_clear(_claiming.cache_clear)


source_info_util.register_exclusion(os.path.dirname(os.path.dirname(__file__)))


# --------------------------------------------------------------------------------- the call itself


def _make_call() -> Any:
    """Returns the primitive of JAX that runs a jaxpr, with all of its rules."""
    # from JAX 0.11 on
    create = getattr(core, "create_call_primitive", None)
    if create is not None:
        return create("ftrans_call")
    from jax.interpreters import ad, batching, mlir

    def run(*arrays: Any, call_jaxpr: Any) -> Any:
        return core.jaxpr_as_fun(call_jaxpr)(*arrays)

    def lower(context: Any, *values: Any, call_jaxpr: Any) -> Any:
        return mlir.core_call_lowering(context, *values, name="ftrans", call_jaxpr=call_jaxpr)

    def jvp(primals: Any, tangents: Any, *, call_jaxpr: Any) -> Any:
        full = [ad.instantiate_zeros(t) for t in tangents]
        return jax.jvp(core.jaxpr_as_fun(call_jaxpr), list(primals), full)

    def batch(arrays: Any, dims: Any, *, call_jaxpr: Any) -> Any:
        outs = jax.vmap(core.jaxpr_as_fun(call_jaxpr), tuple(dims))(*arrays)
        return outs, [0] * len(outs)

    primitive = core.Primitive("ftrans_call")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *avals, call_jaxpr: call_jaxpr.out_avals)
    primitive.def_impl(run)
    mlir.register_lowering(primitive, lower)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    return primitive


call_p = _make_call()
