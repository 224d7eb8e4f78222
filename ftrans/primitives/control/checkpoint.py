"""`checkpoint` runs a program whose derivative computes again what it needs, but for what is saved.

What a policy saves on the host is put there, and taken back where it is needed. The linear part
carries the equations that make residuals of the operands. Transposed, it takes the operands by
`late`, so that no compiler takes what is computed again for what was computed before, and keeps
that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.ir import ArrayType, Program
from ftrans.ir.dtype import is_complex
from ftrans.ir.stack import state
from ftrans.primitives.arithmetic import mul_p
from ftrans.primitives.control.call import call_p
from ftrans.primitives.control.common import (
    Mask,
    grouped,
    opposite,
    pick,
    present,
    program_from,
    program_rules,
    spread,
    unknown,
)
from ftrans.primitives.elementary import sin_p
from ftrans.primitives.elementwise import elementwise
from ftrans.primitives.family import carrier, normal, structural
from ftrans.primitives.namespace import is_traced_by_jax, rematerialized
from ftrans.primitives.placing import DEVICE, HOST, place_p
from ftrans.primitives.record import Joint, Linear, Sample
from ftrans.primitives.shape import slice_p

Policy = Callable[..., bool | str] | None
"""Tells what is saved, "host" if it is there: `(primitive, *types, **params) -> bool | str`.

None saves the results of calls alone.
"""


# --------------------------------------------------------------------------------------- late


def _lower_late(xp: Any, x: Any, *signals: Any) -> Any:
    if xp is np:
        return x
    import jax

    late = jax.custom_jvp(_late)
    late.defjvp(lambda primals, tangents: (_late(*primals), tangents[0]))
    return late(xp.asarray(x), *map(xp.asarray, signals))


def _late(x: Any, *signals: Any) -> Any:
    """Adds to the bits of `x` a zero that is computed of one number of each array."""
    from jax import lax

    if not x.size:
        return x
    zero: Any = np.int32(0)
    for signal in (x, *signals):  # of x itself too, since signals may be constants
        if signal.size:
            number = _bits(lax.slice(signal, (0,) * signal.ndim, (1,) * signal.ndim).reshape(()))
            zero = zero + lax.population_count(number).astype(np.int32)
    zero = lax.min(zero, np.int32(0))
    if x.dtype == np.bool_:
        return x | (zero != 0)
    if is_complex(x.dtype):
        return lax.complex(*[_offset(part, zero) for part in (lax.real(x), lax.imag(x))])
    return _offset(x, zero)


def _bits(x: Any) -> Any:
    from jax import lax

    if is_complex(x.dtype):
        x = lax.real(x)
    if x.dtype == np.bool_:
        return x.astype(np.uint8)
    return lax.bitcast_convert_type(x, np.dtype(f"uint{8 * x.dtype.itemsize}"))


def _offset(x: Any, zero: Any) -> Any:
    from jax import lax

    bits = _bits(x)
    return lax.bitcast_convert_type(bits + zero.astype(bits.dtype), x.dtype)


def _rewrite_late(scope: Any, operands: Any, types: Any, params: Any) -> Any:
    return operands[0] if scope.fill(operands[0]) is not None else None


late_p = structural(
    "late",
    tags=["late"],
    infer=lambda x, *signals: x.update(),
    lower=_lower_late,
    jvp=Joint(lambda tangents, out, x, *signals: tangents[0]),
    transpose=Joint(
        lambda ct, x, *signals: [ct if isinstance(x, Linear) else None, *[None for _ in signals]]
    ),
    batch=lambda size, operands, dims: (late_p(*operands), dims[0]),
    rewrite=_rewrite_late,
    samples=[Sample((normal(3), normal(2))), Sample((normal(0, 2), normal())), Sample((normal(),))],
)
"""Is its first operand to the bit, and not before the others are there, as far as XLA can know."""


named_p = elementwise(
    "named",
    kinds="biufc",
    domain=None,
    lower=lambda xp, x, *, name: x,
    jvp=[lambda t, out, x, *, name: t],
    transpose=[lambda ct, x, *, name: ct],
    rewrite=None,
    samples=[Sample((normal(3),), {"name": "x"})],
)
"""Is its operand, under a name by which policies find it."""


# --------------------------------------------------------------------------------- checkpoint


def _split(
    transforms: Any, program: Program, active: Mask, policy: Policy
) -> tuple[Program, Program, Mask]:
    """Splits a program for reverse mode.

    Returns:
        From the inputs to the outputs and what is saved; from the tangents of active inputs, all
        inputs, and what is saved, to the tangents of active outputs; and which outputs are active.
    """
    key = "checkpoint", active, policy
    found = program.memo.get(key)
    if found is not None:
        return found
    part = transforms.linearize(program, active)
    whole, count = part.forward, len(part.active)
    entries, inputs = list(whole.numbered()), range(len(whole.inputs))
    residuals = whole.outputs[count:]
    saved, away, again = _cut(entries, residuals, len(inputs), policy)
    forward = transforms.excerpt(whole, inputs, entries, [*whole.outputs[:count], *saved])
    if away:
        with transforms.building(forward.name, forward.inputs) as (frame, given):
            outs = transforms.replay(forward, given)
            forward = transforms.finish(frame, [*outs[:count], *_put(outs[count:], away, HOST)])
    remake = transforms.excerpt(whole, [*inputs, *saved], again, residuals)
    types = pick(program.inputs, active), program.inputs, [whole.types[n] for n in saved]
    with grouped(transforms, part.linear.name, *types) as (frame, (dots, primals, values)):
        made = transforms.replay(remake, [*primals, *_put(values, away, DEVICE)])
        linear = transforms.finish(frame, transforms.replay(part.linear, [*dots, *made]))
    result = transforms.simplify(forward), linear, part.active
    return program.memo.setdefault(key, result)


def _put(values: list[Any], which: set[int], memory: Any) -> list[Any]:
    """Puts some values into a memory."""
    put = lambda x: place_p(x, sharding=memory, names=None)  # noqa: E731
    return [put(x) if i in which else x for i, x in enumerate(values)]


def _cut(
    entries: list[Any], wanted: Any, inputs: int, policy: Policy
) -> tuple[list[int], set[int], list[Any]]:
    """Chooses what is saved: what is wanted is made of that, and of inputs.

    Returns the saved values, the places of those among them that are on the host, and the equations
    that are computed again. What is named is saved as it is before it gets its name: rules of what
    made it look at that.
    """
    savable: set[Any] = set()
    on_host: set[Any] = set()
    for equation, numbers, _ in entries:
        primitive, operands, params, types = equation
        values = operands if primitive is named_p else numbers
        if kind := policy(primitive, *types, **params) if policy else _calls(equation):
            savable |= set(values)
            on_host |= set(values if kind == "host" else ())
        elif params.get("name") in getattr(policy, "excluded", ()):
            savable -= set(values)
    needed, saved, again = {a for a in wanted if type(a) is int}, [], []
    for entry in reversed(entries):
        equation, numbers, _ = entry
        asked = [n for n in numbers if n in needed]
        saved += [n for n in asked if n in savable]
        if any(n not in savable for n in asked):
            again.append(entry)
            needed |= {a for a in equation.operands if type(a) is int}
    saved.sort()
    return saved, {i for i, n in enumerate(saved) if n in on_host}, again[::-1]


def _calls(equation: Any) -> bool:
    """Tells whether anything is called that is not traced."""
    inner = [e for program in equation.params.programs() for _, e in program.nested()]
    return any("external" in e.primitive.tags for e in (equation, *inner))


def _linearize(
    transforms: Any, tangents: Any, *primals: Any, program: Program, **params: Any
) -> Any:
    active = present(tangents)
    forward, linear, nonzero = _split(transforms, program, active, params["policy"])
    outs, count = checkpoint_p(*primals, program=forward, **params), len(nonzero)
    operands = [*pick(tangents, active), *primals, *outs[count:]]
    dots = checkpoint_p(*operands, program=linear, **params)
    return outs[:count], spread(dots, nonzero)


def _transpose(transforms: Any, cts: Any, *operands: Any, program: Program, **params: Any) -> Any:
    linear, nonzero = unknown(operands), present(cts)
    turned, found = transforms.transpose(program, linear, nonzero)
    constants, given = pick(operands, opposite(linear)), pick(cts, nonzero)
    frame: Any = state.stack[-1]  # a builder, as of all that transposes
    if params["prevent_cse"]:
        # and not before what is computed again before it is done with, whatever the cotangents are
        ties, after = _ties(turned, len(constants)), (*given, *frame.before)
        constants = [late_p(x, *after) if i in ties else x for i, x in enumerate(constants)]
    got = frame.before = checkpoint_p(*constants, *given, program=turned, **params)
    return spread(spread(got, found), linear)


def _ties(program: Program, count: int) -> set[int]:
    """Chooses among the first inputs those that are to be late, as few and small as may be.

    All that is computed depends on one of them, or on the inputs that follow.
    """
    # the input that a value shows, whose copy is for free; None where it is late, or a constant.
    # slices are not: what takes one makes XLA keep all of them, of a sequence as much as that
    shows: list[int | None] = [i if i < count else None for i in range(len(program.inputs))]
    late = [i >= count for i in range(len(program.inputs))]
    ties: set[int] = set()
    for primitive, operands, params, types in program.equations:
        taken = [a for a in operands if type(a) is int]
        roots = [root for a in taken if (root := shows[a]) is not None and root not in ties]
        # when what is on the host is taken back, XLA chooses
        is_back = primitive is place_p and params["sharding"] is DEVICE
        is_late = is_back or any(late[a] or shows[a] in ties for a in taken)
        shown = None
        if roots and not is_late:
            is_free = primitive is not slice_p and primitive.tags & {"view", "broadcast"}
            if len(taken) == 1 and is_free:
                shown = roots[0]
            else:
                ties.add(min(roots, key=lambda i: program.inputs[i].nbytes))
                is_late = True
        shows += [shown] * len(types)
        late += [is_late] * len(types)
    return ties


def _lower(xp: Any, *arrays: Any, program: Program, policy: Policy, prevent_cse: bool) -> Any:
    run = lambda *given: call_p.lower(xp, *given, program=program)  # noqa: E731
    if xp is not np and any(map(is_traced_by_jax, arrays)):
        return rematerialized(run, arrays, prevent_cse)  # JAX may be differentiating
    return run(*arrays)


def _samples() -> list[Sample]:
    t = ArrayType((3,), "float64")
    program = program_from(lambda x, y: [mul_p(sin_p(x), y), x, sin_p(mul_p(x, y))], t, t)
    params = {"program": program, "policy": None, "prevent_cse": True}
    return [
        Sample((normal(3), normal(3, seed=1)), params),
        Sample((normal(3), normal(3, seed=1)), {**params, "prevent_cse": False}),
    ]


checkpoint_p = carrier(
    "checkpoint",
    infer=lambda *types, program, **params: call_p.infer(*types, program=program),
    lower=_lower,
    **program_rules(lambda *xs, **params: checkpoint_p(*xs, **params)),
    linearize=_linearize,
    transpose=_transpose,
    cost=call_p.cost,
    samples=_samples,
)
