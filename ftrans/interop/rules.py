"""What has `jax.custom_jvp` or `jax.custom_vjp`: a custom rule of ours, with JAX's for its own.

JAX makes the rule, as a jaxpr; what it captures of the function is known by its place there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.interop.callee import key_of
from ftrans.interop.importer import Importer, NoCounterpart, Rule, alone, core, type_of_aval
from ftrans.interpreters.base import building
from ftrans.ir import ArrayType
from ftrans.primitives import Spec, custom_p
from ftrans.primitives.control.common import Mask, merged, opposite, pick

_DEEPEST = 2
"""How many rules are imported inside each other. Each rule of `odeint` holds another `odeint`."""


def _specs(types: Sequence[ArrayType]) -> list[Any]:
    return [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]


def _rule_of(rule: Callable[..., Any], *specs: Any) -> Any:
    """Returns a rule of JAX's as a jaxpr.

    Raises:
        NoCounterpart: where it raises, which is to be told to who asks for the derivative.
    """
    try:
        return jax.make_jaxpr(rule)(*specs)
    except Exception as error:
        raise NoCounterpart from error


def _entered(
    importer: Importer, equation: Any, closed: Any, operands: Sequence[Any]
) -> tuple[Any, Any]:
    """Returns what a function is known by, and its results, if these are known already.

    Raises:
        NoCounterpart: where there are too many rules around it.
    """
    name = equation.primitive.name, key_of(closed.jaxpr)
    around = importer.around
    if around and around[-1] == name and importer.answer is not None:
        given, results = importer.answer
        if len(given) == len(operands) and all(map(lambda a, b: a is b, given, operands)):
            return name, results
    if around.count(name) > (name[0] == "custom_jvp_call"):  # `fwd` calls the function itself
        results = importer.run(closed.jaxpr, closed.consts, operands)
        importer.answer = list(operands), results
        return name, results
    if len(around) >= _DEEPEST or equation.params.get("symbolic_zeros"):
        raise NoCounterpart
    return name, None


def _custom_jvp(importer: Importer, equation: Any, *operands: Any) -> Any:
    closed = equation.params["call_jaxpr"]
    xs = [importer.array(x) for x in operands]
    name, known = _entered(importer, equation, closed, xs)
    if known is not None:
        return known
    inputs = [type_of_aval(var.aval) for var in equation.invars]
    outs = [type_of_aval(var.aval) for var in equation.outvars]
    moving, smooth = (tuple([t.is_inexact for t in types]) for types in (inputs, outs))
    if not all(moving) and closed.jaxpr.debug_info.func_name in ("xlogy", "xlog1py"):
        return importer.run(closed.jaxpr, closed.consts, operands)  # their rules refuse integers
    function = core.jaxpr_as_fun(alone(equation))

    def push(dots: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        results, tangents = jax.jvp(function, tuple(given), _filled(dots, moving, inputs))
        return [*results, *pick(tangents, smooth)]

    taken = pick(inputs, moving)
    pushed = _rule_of(push, _specs(taken), _specs(inputs))
    forward, held = importer.program(closed, "forward")
    around, n = (*importer.around, name), len(outs)
    given = [*taken, *inputs]
    with building("jvp", [*given, *outs]) as (frame, values):
        inner = Importer(frame, importer.rules, around)
        results = values[len(given) :]
        inner.answer = values[len(taken) : len(given)], results
        found = inner.run(pushed.jaxpr, pushed.consts, values[: len(given)])
        lasting = _are(found[:n], results, smooth)
        forward_mode, more = frame.close([inner.array(dot) for dot in found[n:]])
    if not lasting:  # the rule has results of its own, which are differentiated as they are
        forward_mode, more = inner.program(pushed, "jvp")
    count = len(xs)
    references = [("operand", i) for i in range(count)]
    references += [("result", i) for i in range(n)] if lasting else []
    references += [("operand", count + len(held) + i) for i in range(len(more))]
    spec = Spec(
        _name(equation), count, smooth, takes=moving, pushed=tuple(references), lasting=lasting
    )
    programs = {"forward": forward, "backward": None, "forward_mode": forward_mode}
    return _recorded(importer, xs, (*held, *more), spec, **programs)


def _custom_vjp(importer: Importer, equation: Any, *operands: Any, expanded: Any = None) -> Any:
    closed = expanded or equation.params["call_jaxpr"]
    xs = [importer.array(x) for x in operands]
    name, known = _entered(importer, equation, closed, xs)
    if known is not None:
        return known
    inputs = [type_of_aval(var.aval) for var in equation.invars]
    outs = [type_of_aval(var.aval) for var in equation.outvars]
    smooth = tuple([t.is_inexact for t in outs])
    first = int(equation.params.get("num_consts", 0))  # JAX does not differentiate these
    gives = tuple([t.is_inexact and i >= first for i, t in enumerate(inputs)])
    function = core.jaxpr_as_fun(alone(equation))
    structure: Any = None

    def fwd(*given: Any) -> list[Any]:
        nonlocal structure
        fixed = pick(given, opposite(gives))
        results, pull = jax.vjp(
            lambda *chosen: function(*merged(chosen, fixed, gives)), *pick(given, gives)
        )
        residuals, structure = tree.tree_flatten(pull)
        return [*results, *residuals]

    forwards = _rule_of(fwd, *_specs(inputs))
    residuals = [type_of_aval(aval) for aval in forwards.out_avals[len(outs) :]]
    cotangents = pick(outs, smooth)

    def bwd(cts: Sequence[Any], left: Sequence[Any]) -> list[Any]:
        return list(structure.unflatten(left)([*_filled(cts, smooth, outs)]))

    backwards = _rule_of(bwd, _specs(cotangents), _specs(residuals))
    around = (*importer.around, name)
    with building("forward", inputs) as (frame, values):
        inner = Importer(frame, importer.rules, around)
        found = [inner.array(x) for x in inner.run(forwards.jaxpr, forwards.consts, values)]
        own = inner.answer or ([], [])  # else `fwd` has results of its own
        lasting = _are(own[0], values, (True,) * len(values)) and _are(found, own[1], smooth)
        # what is saved may be an argument or a result
        places = {id(x): ("result", i) for i, x in enumerate(found[: len(outs)])}
        places.update({id(x): ("operand", i) for i, x in enumerate(values)})
        saved = [x for x in found[len(outs) :] if id(x) not in places]
        places.update({id(x): ("saved", i) for i, x in enumerate(saved)})
        references = [places[id(x)] for x in found[len(outs) :]]
        forward, held = frame.close([*found[: len(outs)], *saved])
    backward, more = inner.program(backwards, "backward")
    count = len(xs)
    references += [("operand", count + len(held) + i) for i in range(len(more))]
    spec = Spec(
        _name(equation), count, smooth, gives=gives, pulled=tuple(references), lasting=lasting
    )
    programs = {"forward": forward, "backward": backward, "forward_mode": None}
    return _recorded(importer, xs, (*held, *more), spec, **programs)


def _high_level(importer: Importer, equation: Any, *operands: Any) -> Any:
    """Imports a primitive that JAX, from 0.12 on, says how to expand, with rules of its own."""
    called = equation.params["_prim"]

    def expand(*flat: Any) -> list[Any]:
        return tree.tree_leaves(called.expand(*called.in_tree.unflatten(flat)))

    closed = jax.make_jaxpr(expand)(*_specs([type_of_aval(var.aval) for var in equation.invars]))
    if not any(type_of_aval(var.aval).is_inexact for var in equation.outvars):
        return importer.run(closed.jaxpr, closed.consts, operands)
    return _custom_vjp(importer, equation, *operands, expanded=closed)


def _recorded(
    importer: Importer, xs: Sequence[Any], captured: Sequence[Any], spec: Spec, **programs: Any
) -> Any:
    """Records the call of a rule of these programs on operands, and on what they have captured."""
    held = map(importer.frame.capture, captured)
    return custom_p(*xs, *held, **programs, variants=(), spec=spec, saved=False)


def _are(found: Sequence[Any], results: Sequence[Any], mask: Sequence[bool]) -> bool:
    """Tells whether the first values are results, where a mask says that it matters."""
    pairs = zip(found, results, mask, strict=False)
    return len(found) >= len(mask) and all(a is b for a, b, matters in pairs if matters)


def _filled(dots: Sequence[Any], mask: Mask, types: Sequence[ArrayType]) -> tuple[Any, ...]:
    """Returns tangents with what JAX takes for the tangent of what has none, by the mask."""
    none = [np.zeros(t.shape, jax.dtypes.float0) for t in pick(types, opposite(mask))]
    return tuple(merged(dots, none, mask))


def _name(equation: Any) -> str:
    """Returns how errors call the function."""
    called = equation.params.get("call_jaxpr")
    if called is None:
        return type(equation.params["_prim"]).__name__
    found = getattr(called, "jaxpr", called).debug_info
    return str(getattr(found, "func_name", None) or equation.primitive.name)


RULES: dict[str, Rule] = {
    "call_hi_primitive": _high_level,
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
}
