"""Runs programs on arrays: interpreted with NumPy while they are cheap, else compiled by XLA.

The container follows the inputs: `jax.Array`s come out where one goes in, else NumPy arrays, which
are always the caller's own to write to.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.config import PINNED, config
from ftrans.interpreters import inline, simplify
from ftrans.interpreters.base import building, finish
from ftrans.interpreters.placing import places
from ftrans.ir import ArrayType, Params, Program, Tracer, bind, check, type_of
from ftrans.ir.above import above
from ftrans.ir.frame import settled
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import recording_place
from ftrans.primitives import call_p
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.observe import Observes, observing
from ftrans.primitives.outside import silently
from ftrans.primitives.placing import place_p
from ftrans.primitives.record import Absent
from ftrans.runtime.anomaly import look_for_nan
from ftrans.runtime.blas import is_small, one_thread
from ftrans.runtime.cache import count, keep
from ftrans.runtime.choice import OBSERVED, choose, note, plan_of
from ftrans.runtime.executable import Executable, is_wide
from ftrans.runtime.explain import Why, call_of, note_trace, record
from ftrans.runtime.faults import explain_failure, raised
from ftrans.runtime.jaxlink import (
    host_view,
    is_concrete,
    is_jax,
    is_jax_tracing,
    is_traced_by_jax,
    on_cpu,
    to_jax,
    unseen,
    x64,
)
from ftrans.runtime.meshes import explicit_mesh, is_spread, mesh_around, on_automatic, to_host
from ftrans.runtime.segments import Segmented


def run(
    program: Program,
    arrays: Sequence[Any],
    as_jax: bool | None = None,
    *,
    by: Observes | None = None,
    own: bool = True,
) -> list[Any]:
    """Returns the outputs of `program` for `arrays`.

    Args:
        program: any program.
        arrays: NumPy or JAX arrays of exactly the types of its inputs.
        as_jax: whether to return `jax.Array`s; None does where one is among the arrays.
        by: who observes runs, where they have been told of this one.
        own: whether NumPy's arrays are to be the caller's own; where nobody writes to any, they may
            be the same as others, or as the arrays.
    """
    start = perf_counter()
    plan = program.memo.get("plan")
    if plan is None:
        plan = plan_of(program)
    final = plan.final(program)
    if config.check:
        check(final)
    host = _HOST.issuperset(map(type, arrays))
    if not host:
        kinds = set(map(_kind, arrays))
        if _OUTLIVED in kinds:
            values = [settled(x) for x in arrays]
            if Tracer in map(type, values):  # it is called on a tape
                return list(bind(call_p, values, Params({"program": program})))
            return run(program, values, as_jax)
        if _TRACED in kinds:
            note_trace(None)  # no run of ours follows that could tell of it
            # with its custom rules, so that JAX differentiates by them
            return evaluate(jnp, simplify(inline(program)), arrays)
        host = kinds == {_NUMPY}
        if host:
            arrays = list(map(np.asarray, arrays))
        else:
            mesh = explicit_mesh(arrays) or (places(final) and mesh_around()) or None
            if mesh is not None:
                return on_automatic(mesh, lambda xs: run(program, xs, as_jax, by=by), list(arrays))
    if by is None:
        by = observing.by
        if by is not None:
            return by.program(final.name, functools.partial(run, by=by), program, arrays, as_jax)
    if as_jax is None:
        as_jax = not host
    state, why = plan.state, Why.HOT
    executable = state.executable
    choice = None
    if by is not None and by.apart and config.execution not in PINNED:
        choice, executable = OBSERVED, None
    elif executable is None or config.execution == "interpret":
        on_device = not (host or on_cpu(arrays))
        spread = not host and (places(final) or (on_device and is_spread(arrays)))
        choice = choose(plan, final, arrays, host, on_device, spread)
        executable = choice.executable
    elif executable.fresh:
        # it is used again, so compiling it was no waste
        executable.fresh = False
        plan.family.prove()
    cause = None
    try:
        if executable is None and state.is_mapped:
            outputs = evaluate(jnp, final, arrays)
        elif executable is None:
            outputs = _interpret(final, arrays, host, as_jax, own)
        elif as_jax:
            outputs = _to_jax(executable, arrays)
        elif host:
            outputs = executable.host(arrays)
        else:
            outputs = list(map(to_host, executable.mixed(arrays)))
    except Exception as error:
        cause = raised(error)
        if cause is None:
            explain_failure(error, final, executable is not None)
            raise
        outputs = []
    if cause is not None:
        raise cause
    if config.check_nan:
        look_for_nan(final, arrays, outputs)
    hit, plan.runs = plan.runs, True
    seconds = perf_counter() - start
    if config.execution == "measured":
        note(state, final, choice, host, seconds)
    if choice is None:
        row = record(final.name, hit, "compiled", why, 0.0, 0.0, seconds)
    else:
        _, road, why, spent, price = choice
        row = record(final.name, hit, road, why, spent, price, seconds)
    if by is not None:
        by.ran(call=call_of(row), is_compiled=state.executable is not None)
    return outputs


_HOST = {np.ndarray}

# By type, since a look-up is quicker than what `isinstance` does for the classes of JAX.
_NUMPY, _JAX, _TRACED, _OUTLIVED = 0, 1, 2, 3
_kinds: dict[type, int] = {Tracer: _OUTLIVED}


def _kind(array: Any) -> int:
    """Tells whether an array is NumPy's, JAX's, one that JAX is tracing, or a value of ours."""
    found = _kinds.get(type(array))
    if found is None:
        found = _TRACED if is_traced_by_jax(array) else _JAX if is_jax(array) else _NUMPY
        _kinds[type(array)] = found
    return found


def _interpret(
    program: Program, arrays: Sequence[Any], host: bool, as_jax: bool, own: bool
) -> list[Any]:
    """Runs one equation after the other: by NumPy, or where the arrays lie."""
    count("interpreted")
    if not (host or on_cpu(arrays)):
        with x64(program.calls_host):
            outputs = evaluate(jnp, program, list(map(unseen, arrays)))
            outputs = _apart(list(map(jnp.asarray, outputs)), arrays)
            if program.calls_host:
                jax.block_until_ready(outputs)  # what Python raises is to be raised here
        return outputs if as_jax else list(map(to_host, outputs))
    inputs = arrays if host else list(map(np.asarray, arrays))
    outputs = _by_numpy(program, inputs)
    if as_jax:
        with x64():
            return [to_jax(output) for output in outputs]
    if not own:  # what is a view would keep alive what it is a view of
        return [x if type(x) is np.ndarray and x.base is None else np.array(x) for x in outputs]
    return _own(outputs, inputs)


def _by_numpy(program: Program, arrays: Sequence[Any]) -> list[Any]:
    if is_small(program):
        with one_thread:
            return silently(program.calls_host, evaluate, np, program, arrays)
    return silently(program.calls_host, evaluate, np, program, arrays)


_SMALL = 1 << 16
"""Up to so many bytes, to copy an array is cheaper than to wait for what reads it."""


def _to_jax(executable: Executable | Segmented, arrays: Sequence[Any]) -> list[jax.Array]:
    """Runs what is compiled without waiting for it, where no array of the caller's forbids that.

    JAX reads NumPy arrays where they lie, and after this function has returned the caller may
    write into them. What Python code raises that is called on the way is to be raised here.
    """
    given: list[Any] = []
    wait = False
    for array in arrays:
        if not isinstance(array, jax.Array):
            if array.nbytes <= _SMALL:
                array = array.copy()
            else:
                wait = True
        given.append(array)
    outputs = executable.mixed(given)
    if wait or executable.calls_host:
        jax.block_until_ready(outputs)
    return list(outputs)


def _apart(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[jax.Array]:
    """Returns the outputs as arrays each of which is another one: it may carry a tangent."""
    taken = set(map(id, inputs))
    found = []
    for output in outputs:
        array = output.copy() if id(output) in taken else output
        taken.add(id(array))
        found.append(array)
    return found


_OWNED = 0x505
"""The flags of an array that is C-contiguous, aligned, writeable, and has memory of its own."""


def _own(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[np.ndarray]:
    """Returns the outputs as contiguous arrays that share memory with nothing else."""
    taken = set(map(id, inputs))
    owned = []
    for output in outputs:
        array = output if type(output) is np.ndarray else np.asarray(output)
        if id(array) in taken or array.flags.num & _OWNED != _OWNED:
            array = np.array(array, order="C")
        taken.add(id(array))
        owned.append(array)
    return owned


def evaluate_primitive(primitive: Any, arrays: Sequence[Any], params: Params) -> tuple[Any, ...]:
    """Runs one primitive at once, outside any program."""
    if primitive is call_p:
        return tuple(run(params["program"], arrays))
    if primitive.is_higher_order:
        with building(primitive.name, [type_of(x).update() for x in arrays]) as (frame, inputs):
            program = finish(frame, bind(primitive, inputs, params))
        return tuple(run(program, arrays))
    calls = "callee" in params and params.calls_host
    by = observing.by
    lower = primitive.lower if by is None else functools.partial(_observed, by, primitive)
    if any(is_jax(array) for array in arrays):
        if (mesh := explicit_mesh(arrays)) is not None:
            again = lambda xs: evaluate_primitive(primitive, xs, params)  # noqa: E731
            return on_automatic(mesh, again, list(arrays))
        apart = "callee" in params or by is not None or primitive is place_p
        views = None if apart else _views(primitive, arrays, params)
        if views is not None:
            with x64():
                return tuple(map(to_jax, _at_once(primitive, views, params, calls)))
        with _precision(primitive, arrays, params, calls):
            found = lower(jnp, *map(unseen, arrays), **params)
            outs = found if primitive.multiple else [found]
            return tuple([out if is_jax(out) else jnp.asarray(out) for out in outs])
    host = [np.asarray(array) for array in arrays]
    if by is None:
        return tuple(_own(_at_once(primitive, host, params, calls), host))
    found = silently(calls, functools.partial(lower, np, **params), *host)
    return tuple(_own(found if primitive.multiple else [found], host))


def _views(primitive: Any, arrays: Sequence[Any], params: Params) -> list[np.ndarray] | None:
    """Returns small arrays, of which some are JAX's, as NumPy's; None where JAX is to compute.

    So it is in programs that are interpreted, to the bit; and NumPy compiles nothing. What becomes
    large of small arrays JAX makes faster.
    """
    if config.execution in PINNED or is_jax_tracing():
        return None
    found: list[Any] = [host_view(x, FEW) if is_concrete(x) else x for x in arrays]
    if not _HOST.issuperset(map(type, found)):
        return None
    if "elementwise" not in primitive.tags:
        types = tuple([ArrayType(x.shape, x.dtype) for x in found])
        if sum([t.size for t in primitive.infer_types(types, params)]) > 4 * FEW:
            return None
    return found


def _at_once(
    primitive: Any, arrays: Sequence[np.ndarray], params: Params, calls: bool
) -> list[Any]:
    """Returns what a primitive does to NumPy's arrays, by the function that it is in a program."""
    if isinstance(primitive.host, Absent):  # nothing is worked out, so nothing is remembered
        call = functools.partial(primitive.lower, np, **params)
    else:
        call = _call_of(primitive, tuple([ArrayType(x.shape, x.dtype) for x in arrays]), params)
    found = silently(calls, call, *arrays)
    return list(map(np.asarray, found if primitive.multiple else [found]))


FEW = 1 << 14
"""How many elements NumPy computes in about the time that it takes to record an operation."""


@functools.lru_cache(4096)
def _call_of(primitive: Any, types: tuple[ArrayType, ...], params: Params) -> Any:
    """Returns what NumPy does for a primitive of operands of these types."""
    return primitive.on_host(types, params) or functools.partial(primitive.lower, np, **params)


def run_small(primitive: Any, t: ArrayType, arrays: Sequence[Any]) -> np.ndarray | None:
    """Runs an elementwise primitive at once; None where a program of it is to be run.

    It is where arrays are large or JAX's, where the road is pinned, and where somebody looks on.

    Args:
        primitive: takes no params.
        t: the type of the operands, scalars aside.
        arrays: the operands.
    """
    if t.size > FEW or config.execution in PINNED or config.check_nan or observing.by:
        return None
    if not _HOST.issuperset(map(type, arrays)):
        return None
    types = (t,) * len(arrays)
    primitive.infer_types(types, NO_PARAMS)  # which raises where it does not take them
    found = silently(False, _call_of(primitive, types, NO_PARAMS), *arrays)
    return found if type(found) is np.ndarray else np.asarray(found)


def _observed(by: Observes, primitive: Any, xp: Any, /, *arrays: Any, **params: Any) -> Any:
    lower = functools.partial(primitive.lower, xp, **params)
    if any(map(is_traced_by_jax, arrays)):
        return lower(*arrays)
    return by.equation(primitive, Params(params), recording_place(), lower, arrays)


def _precision(
    primitive: Any, arrays: Sequence[Any], params: Params, calls: bool
) -> AbstractContextManager[Any]:
    """Returns the scope of double precision, unless JAX traces and nothing needs it.

    What JAX traces may be a Python number inside, which that scope would make a wider one.
    """
    if any(map(is_traced_by_jax, arrays)):
        types = tuple([type_of(array).update() for array in arrays])
        # among the operands may be what was a literal, of no shape; and nothing else is wider
        plain = "elementwise" in primitive.tags and not params
        made = () if plain else primitive.infer_types(types, params)
        if not any(map(is_wide, (*types, *made))):
            return nullcontext()
    return x64(calls)


def run_part(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Runs what a value that is asked for while tracing is computed by.

    Where that takes no longer than to ask what is best, it is interpreted at once. The results may
    share memory with the arrays.
    """
    plan = program.memo.get("plan") or plan_of(keep(program))
    price = plan.state.price
    if (
        price is None
        or price.gain
        or config.execution in PINNED
        or config.check
        or observing.by is not None
        or not _HOST.issuperset(map(type, arrays))
    ):
        return run(program, arrays)
    return run_at_once(program, arrays)


def run_at_once(
    program: Program, arrays: Sequence[np.ndarray], own: bool = False
) -> list[np.ndarray]:
    """Runs what is small by NumPy, whatever there is to gain by compiling it.

    The results may share memory with the arrays, unless they are to be the caller's own.
    """
    plan = program.memo.get("plan") or plan_of(keep(program))
    found = _by_numpy(plan.final(program), arrays)
    if own:
        return _own(found, arrays)
    return found if _HOST.issuperset(map(type, found)) else list(map(np.asarray, found))


above.evaluate, above.run = evaluate_primitive, run_part
