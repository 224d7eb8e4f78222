"""Runs programs on arrays: interpreted with NumPy while they are cheap, else compiled by XLA.

The container follows the inputs: `jax.Array`s come out where one goes in, else NumPy arrays, which
are always the caller's own to write to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.config import config
from ftrans.interpreters import inline, simplify
from ftrans.ir import Params, Program, check
from ftrans.ir.frame import set_evaluator
from ftrans.primitives import call_p
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime.cache import counters
from ftrans.runtime.jaxlink import foreign, is_jax, on_cpu, to_jax, x64

__all__ = ["compiled", "evaluate_primitive", "ready", "run"]

# What the choice between the roads rests on, in seconds: the price of one equation interpreted by
# NumPy, of an operation and of a byte there, and of compiling a program and one equation of it.
_EQUATION, _FLOP, _BYTE = 2e-6, 5e-10, 1.5e-10
_COMPILE, _COMPILE_EQUATION = 0.03, 0.002


def run(program: Program, arrays: Sequence[Any], as_jax: bool | None = None) -> list[Any]:
    """Returns the outputs of `program` for `arrays`.

    Args:
        program: any program.
        arrays: NumPy or JAX arrays of exactly the types of its inputs.
        as_jax: whether to return `jax.Array`s; None does where one is among the arrays.
    """
    program = ready(program)
    if foreign(arrays):
        return evaluate(jnp, program, arrays)
    if as_jax is None:
        as_jax = any(is_jax(array) for array in arrays)
    if _should_compile(program, arrays):
        with x64():
            outputs = compiled(program)(*arrays)
            if as_jax:
                return [output if is_jax(output) else to_jax(output) for output in outputs]
        return [np.array(output) for output in outputs]
    counters.interpreted += 1
    if not on_cpu(arrays):
        with x64():
            outputs = [jnp.asarray(out) for out in evaluate(jnp, program, arrays)]
        return outputs if as_jax else [np.array(output) for output in outputs]
    host = [np.asarray(array) for array in arrays]
    with np.errstate(all="ignore"):
        outputs = evaluate(np, program, host)
    if as_jax:
        with x64():
            return [to_jax(output) for output in outputs]
    return _own(outputs, host)


def ready(program: Program) -> Program:
    """Returns the program in the form in which it is run: inlined and simplified."""
    final = simplify(inline(program))
    if config.check:
        check(final)
    return final


def compiled(program: Program) -> Callable[..., Any]:
    """Returns the function that JAX compiles for `program`, one for all programs equal to it.

    An output that is an input, or an output already, is handed on: compiled code would copy it.
    """
    memo = program.structure.memo
    function = memo.get("compiled")
    if function is None:
        inputs = range(len(program.inputs))
        atoms: tuple[Any, ...] = program.outputs
        places = {a: atoms.index(a) for a in atoms if a not in inputs}

        def lowered(*arrays: Any) -> list[Any]:
            outputs = evaluate(jnp, program, arrays)
            return [jnp.asarray(outputs[place]) for place in places.values()]

        lowered.__name__ = lowered.__qualname__ = "".join(
            c if c.isalnum() else "_" for c in program.name
        )
        counters.compiled += 1
        jitted = jax.jit(lowered)

        def handing_on(*arrays: Any) -> list[Any]:
            outputs = dict(zip(places, jitted(*arrays), strict=True))
            return [arrays[a] if a in inputs else outputs[a] for a in atoms]

        every = len(places) == len(atoms)
        function = memo.setdefault("compiled", jitted if every else handing_on)
    return function


def _should_compile(program: Program, arrays: Sequence[Any]) -> bool:
    """Decides by the cost of interpreting so far against that of compiling."""
    if config.execution != "auto":
        return config.execution == "compile"
    memo = program.structure.memo
    if "compiled" in memo:
        return True
    if not on_cpu(arrays):
        return True
    if "price" not in memo:
        memo["price"] = _price(program), _COMPILE + _COMPILE_EQUATION * program.count()
    once, compiling = memo["price"]
    spent = memo.get("spent", 0.0) + once
    memo["spent"] = spent
    return spent > compiling


def _price(program: Program) -> float:
    """Estimates the seconds that one interpretation takes."""
    total = 0.0
    for equation in program.equations:
        params = equation.params
        if equation.primitive.is_higher_order:
            inner = sum(_price(sub) for sub in params.programs())
            total += inner * (params.get("length") or params.get("bound") or 10)
            continue
        operands = tuple(program.type_of(atom) for atom in equation.operands)
        cost = equation.primitive.cost(operands, equation.types, params)
        total += _EQUATION + cost.flops * _FLOP + cost.nbytes * _BYTE
    return total


def _own(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[np.ndarray]:
    """Returns the outputs as arrays that share memory with nothing else."""
    taken = {id(array) for array in inputs}
    owned = []
    for output in outputs:
        array = np.asarray(output)
        if id(array) in taken or array.base is not None or not array.flags.writeable:
            array = np.array(array)
        taken.add(id(array))
        owned.append(array)
    return owned


def evaluate_primitive(primitive: Any, arrays: Sequence[Any], params: Params) -> tuple[Any, ...]:
    """Runs one primitive at once, outside any program."""
    if primitive is call_p:
        return tuple(run(params["program"], arrays))
    if any(is_jax(array) for array in arrays):
        with x64():
            found = primitive.lower(jnp, *arrays, **params)
            outs = found if primitive.multiple else [found]
            return tuple(jnp.asarray(out) for out in outs)
    host = [np.asarray(array) for array in arrays]
    with np.errstate(all="ignore"):
        found = primitive.lower(np, *host, **params)
    return tuple(_own(found if primitive.multiple else [found], host))


set_evaluator(evaluate_primitive)
