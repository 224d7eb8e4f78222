"""What the rules of the four primitives share: masks over operands, fixpoints, pruned programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from ftrans.ir import Abstract, ArrayType, Equation, Program, open_frame, type_of
from ftrans.ir.axes import names_of
from ftrans.primitives.axes import zeros
from ftrans.primitives.record import Cost, Linear

Mask = tuple[bool, ...]


def pick(values: Iterable[Any], mask: Iterable[bool]) -> list[Any]:
    """Returns the values at which `mask` is true."""
    return [value for value, keep in zip(values, mask, strict=True) if keep]


def spread(values: Iterable[Any], mask: Iterable[bool], other: Any = None) -> list[Any]:
    """Puts values back to where `mask` is true, and `other` elsewhere: undoes `pick`."""
    given = iter(values)
    return [next(given) if keep else other for keep in mask]


def merged(values: Iterable[Any], others: Iterable[Any], mask: Iterable[bool]) -> list[Any]:
    """Returns values in turn where `mask` is true, and others in turn elsewhere."""
    first, second = iter(values), iter(others)
    return [next(first) if marked else next(second) for marked in mask]


def present(values: Iterable[Any]) -> Mask:
    """Tells which values are there: which tangents are not zero, which operands are mapped."""
    return tuple(value is not None for value in values)


def unknown(operands: Iterable[Any]) -> Mask:
    """Tells which operands of a transpose rule are `Linear`."""
    return tuple(isinstance(x, Linear) for x in operands)


def opposite(mask: Iterable[bool]) -> Mask:
    """Returns where a mask is false."""
    return tuple(not marked for marked in mask)


def split(values: Sequence[Any], first: int, second: int) -> tuple[Any, Any, Any]:
    """Splits the operands of a loop: `first` of them, the `second` that follow, and the rest."""
    both = first + second
    return values[:first], values[first:both], values[both:]


def union(*masks: Sequence[bool]) -> Mask:
    """Returns where any of the masks is true."""
    return tuple(any(column) for column in zip(*masks, strict=True))


def stable(start: Mask, step: Callable[[Mask], Mask]) -> Mask:
    """Grows a mask by `step` until it no longer changes."""
    while True:
        grown = union(start, step(start))
        if grown == start:
            return start
        start = grown


def fill_zeros(values: Iterable[Any], types: Iterable[ArrayType], mask: Iterable[bool]) -> list:
    """Returns the values at which `mask` is true, zeros standing for `None`."""
    return [
        zeros(t) if value is None else value
        for value, t, keep in zip(values, types, mask, strict=True)
        if keep
    ]


def types_of(values: Iterable[Any]) -> list[ArrayType]:
    """Returns the types of operands."""
    return [type_of(value) for value in values]


def varying(program: Program, inputs: Mask, along: Hashable = None) -> Mask:
    """Tells which outputs depend on the inputs marked.

    Args:
        program: the program.
        inputs: the marks.
        along: the name of an axis; then they tell what differs along it.
    """
    depends = list(inputs)
    for equation in program.equations:
        operands = [type(a) is int and depends[a] for a in equation.operands]
        depends += moved(equation, operands, along)
    return tuple(type(a) is int and depends[a] for a in program.outputs)


def moved(equation: Equation, operands: Sequence[bool], along: Hashable = None) -> Mask:
    """Tells which results of an equation depend on the operands marked; `along` as above."""
    params, every = equation.params, (any(operands),) * len(equation.types)
    if not equation.primitive.is_higher_order:
        if along is not None and along in names_of(params):
            return ("gathers" not in equation.primitive.tags,)
        return every
    if "program" in params:
        return varying(params["program"], tuple(operands), along)
    if "forward" in params and along is not None:
        forward = params["forward"]
        return varying(forward, tuple(operands[: len(forward.inputs)]), along)[: len(every)]
    if "branches" in params and not operands[0]:
        branches = params["branches"]
        return union(*(varying(branch, tuple(operands[1:]), along) for branch in branches))
    if "cond" in params:
        first, second = params["cond_consts"], params["body_consts"]
        found = carried(params["body"], operands[first:], second, len(every), along)
        tested = varying(params["cond"], (*operands[:first], *found), along)
        return (True,) * len(every) if tested[0] else found
    if "body" in params:
        consts, carry = params["consts"], params["carry"]
        found = carried(params["body"], operands, consts, carry, along)
        inputs = (*operands[:consts], *found, *operands[consts + carry :])
        return (*found, *varying(params["body"], inputs, along)[carry:])
    return every


def carried(
    body: Program, operands: Sequence[bool], consts: int, carry: int, along: Hashable = None
) -> Mask:
    """Tells which carried values of a loop depend on the operands marked, in the end."""
    fixed, init, xs = split(tuple(operands), consts, carry)
    return stable(init, lambda mask: varying(body, (*fixed, *mask, *xs), along)[:carry])


def needed_inputs(program: Program, outputs: Mask) -> Mask:
    """Tells which inputs the outputs marked depend on."""
    needed = [False] * len(program.types)
    for atom, keep in zip(program.outputs, outputs, strict=True):
        if keep and type(atom) is int:
            needed[atom] = True
    for equation, numbers, _ in reversed(list(program.numbered())):
        used = tuple([needed[number] for number in numbers])
        if any(used):
            for atom, is_needed in zip(equation.operands, needs(equation.params, used)):  # noqa: B905
                if type(atom) is int and is_needed:
                    needed[atom] = True
    return tuple(needed[: len(program.inputs)])


def needs(params: Mapping[str, Any], used: Mask) -> Iterable[bool]:
    """Tells which operands of an equation the results marked depend on: undoes `moved`."""
    if "program" in params:
        return needed_inputs(params["program"], used)
    if "branches" in params:
        return (True, *union(*(needed_inputs(branch, used) for branch in params["branches"])))
    if "cond" in params:
        body, consts = params["body"], params["body_consts"]
        tested = needed_inputs(params["cond"], (True,))
        first, state, _ = split(tested, params["cond_consts"], len(used))
        kept = stable(union(used, state), lambda mask: needed_inputs(body, mask)[consts:])
        return (*first, *needed_inputs(body, kept)[:consts], *kept)
    if "carry" in params:
        body, consts, carry = params["body"], params["consts"], params["carry"]
        last, ys = used[:carry], used[carry:]
        kept = stable(last, lambda mask: split(needed_inputs(body, (*mask, *ys)), consts, carry)[1])
        fixed, _, xs = split(needed_inputs(body, (*kept, *ys)), consts, carry)
        return (*fixed, *kept, *xs)
    return repeat(True)


def restrict(transforms: Any, program: Program, inputs: Mask, outputs: Mask) -> Program:
    """Returns the program with only the outputs marked, and only the inputs marked.

    The inputs left out must not be needed by the outputs kept.
    """
    if all(inputs) and all(outputs):
        return program
    key = ("restrict", inputs, outputs)
    found = program.memo.get(key)
    if found is None:
        with transforms.building(program.name, pick(program.inputs, inputs)) as (frame, given):
            # what is computed of zeros in the place of inputs is needed by nothing
            filled = fill_zeros(spread(given, inputs), program.inputs, (True,) * len(inputs))
            outs = pick(transforms.replay(program, filled), outputs)
            found = program.memo.setdefault(key, transforms.finish(frame, outs))
    return found


def program_rules(run: Callable[..., Any]) -> dict[str, Any]:
    """Returns the rules `jvp`, `batch` and `prune` of what runs its `program` and changes nothing.

    Args:
        run: records such an equation, of operands and params.
    """

    def jvp(transforms: Any, tangents: Any, *primals: Any, program: Program, **params: Any) -> Any:
        active = present(tangents)
        pushed, nonzero = transforms.jvp(program, active)
        outs = run(*primals, *pick(tangents, active), program=pushed, **params)
        count = len(nonzero)
        return outs[:count], spread(outs[count:], nonzero)

    def batch(
        transforms: Any, size: int, operands: Any, dims: Any, *, program: Program, **params: Any
    ) -> Any:
        mapped, which = transforms.batch(program, size, tuple(dims))
        outs = run(*operands, program=mapped, **params)
        return outs, [0 if m else None for m in which]

    def prune(transforms: Any, used: Mask, operands: Any, params: Any) -> Any:
        needed = tuple(needs(params, used))
        if all(used) and all(needed):
            return None
        part = restrict(transforms, params["program"], needed, used)
        return tuple(pick(operands, needed)), {**params, "program": part}, used

    return {"jvp": jvp, "batch": batch, "prune": prune}


@contextmanager
def grouped(
    transforms: Any, name: str, *groups: Sequence[ArrayType]
) -> Iterator[tuple[Any, list[list[Any]]]]:
    """Opens a frame as `building` does, with inputs for several groups of types."""
    with transforms.building(name, [t for group in groups for t in group]) as (frame, inputs):
        given = iter(inputs)
        yield frame, [[next(given) for _ in group] for group in groups]


def push_loop(
    transforms: Any,
    tangents: Sequence[Any],
    primals: Sequence[Any],
    body: Program,
    consts: int,
    carry: int,
    run: Callable[[Program, int, int, list[Any]], Sequence[Any]],
) -> tuple[list[Any], list[Any]]:
    """Returns the results of a loop and their tangents, in forward mode.

    Args:
        transforms: the interpreters.
        tangents: those of the operands, `None` for zero.
        primals: the operands: what is constant, what is carried, and what the loop goes through.
        body: `(*consts, *carry, *elements) -> (*carry, *results)`.
        consts: the number of operands that are constant.
        carry: the number of those that are carried.
        run: from the body of the loop that carries tangents too, its counts and operands to what
            that returns.
    """
    const_mask, init_mask, xs_mask = split(present(tangents), consts, carry)
    carry_mask = stable(
        init_mask, lambda mask: transforms.jvp(body, (*const_mask, *mask, *xs_mask))[1][:carry]
    )
    program, active = transforms.jvp(body, (*const_mask, *carry_mask, *xs_mask))
    ys_mask, count = active[carry:], len(active)
    fixed, state, elements = split(body.inputs, consts, carry)
    moving = pick(fixed, const_mask), pick(state, carry_mask), pick(elements, xs_mask)
    groups = (fixed, moving[0], state, moving[1], elements, moving[2])
    with grouped(transforms, program.name, *groups) as (frame, (c, ct, s, st, e, et)):
        outs = transforms.replay(program, [*c, *s, *e, *ct, *st, *et])
        dots = spread(outs[count:], active)
        next_dots = fill_zeros(dots[:carry], state, carry_mask)
        ys_dots = pick(dots[carry:], ys_mask)
        step = transforms.finish(frame, [*outs[:carry], *next_dots, *outs[carry:count], *ys_dots])
    pc, ps, px = split(primals, consts, carry)
    tc, ts, tx = split(tangents, consts, carry)
    front = [*pc, *pick(tc, const_mask), *ps, *fill_zeros(ts, state, carry_mask)]
    operands = [*front, *px, *pick(tx, xs_mask)]
    outs = run(step, consts + sum(const_mask), carry + sum(carry_mask), operands)
    last, dots, ys = split(outs, carry, sum(carry_mask))
    ys, ys_dots = ys[: len(ys_mask)], ys[len(ys_mask) :]
    return [*last, *ys], [*spread(dots, carry_mask), *spread(ys_dots, ys_mask)]


def derivative(
    transforms: Any, mode: str, program: Program, primals: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """Returns the tangents of a program's outputs, `None` for zero, in the frames of the operands.

    Args:
        transforms: the interpreters.
        mode: "jvp" or "linearize", which says how what the primals determine is kept apart.
        program: any program.
        primals: its operands.
        tangents: their tangents, `None` for zero.
    """
    active = present(tangents)
    moving = pick(tangents, active)
    count = len(program.outputs)
    if mode == "jvp":
        pushed, mask = transforms.jvp(program, active)
        dots = transforms.replay(pushed, [*primals, *moving])[count:]
    else:
        part = transforms.linearize(program, active)
        residuals = transforms.replay(part.forward, primals)[count:]
        dots, mask = transforms.replay(part.linear, [*moving, *residuals]), part.active
    return spread(dots, mask)


def program_cost(program: Program) -> Cost:
    """Adds up the cost of the equations of a program."""
    found = program.memo.get("cost")
    if found is None:
        flops = nbytes = 0
        for equation in program.equations:
            operands = tuple(program.type_of(a) for a in equation.operands)
            cost = equation.primitive.cost(operands, equation.types, equation.params)
            flops += cost.flops
            nbytes += cost.nbytes
        found = program.memo["cost"] = Cost(flops, nbytes)
    return found


def program_from(function: Callable[..., Sequence[Any]], *types: ArrayType) -> Program:
    """Returns the program of a function over strict operands, to be a sample.

    Args:
        function: takes one traced value per type and returns a sequence of them.
        types: the types of the inputs.
    """
    with open_frame("sample", closed=True) as frame:
        inputs = [frame.input(t, Abstract("a sample")) for t in types]
        program, captured = frame.close(function(*inputs))
    assert not captured
    return program
