"""A budget of memory: which stretches of a program are computed again, so that it is kept.

The program is cut at its narrow places. A stretch between two of them keeps its residuals, or is
made a `checkpoint` with some that follow, and keeps what goes into it. For a chain the choice of
least time within a budget is found among all such choices; then XLA says what it comes to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import numpy as np

from ftrans.errors import ArgumentError
from ftrans.func.residuals import size
from ftrans.interpreters import (
    building,
    excerpt,
    finish,
    inline,
    linearize,
    runnable,
    simplify,
    value_and_grad,
)
from ftrans.interpreters.base import walk
from ftrans.ir import Equation, Location, Params, Program, bind
from ftrans.ir.stack import Placing
from ftrans.primitives import checkpoint_p, policies, scan_p
from ftrans.runtime.jaxlink import x64
from ftrans.runtime.lower import lower
from ftrans.runtime.policy import price


def parsed(name: str, memory: Any) -> int | None:
    """Returns a budget in bytes, or None where residuals are to be on the host.

    Raises:
        ArgumentError: where it is neither.
    """
    if isinstance(memory, str) and memory == "offload":
        return None
    found = None
    if isinstance(memory, str) and (match := _SIZE.fullmatch(memory.strip())):
        found = float(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(memory, (int, float, np.number)) and not isinstance(memory, bool):
        found = float(memory)
    if found is None or not 1 <= found < math.inf:
        raise ArgumentError(
            f"{name}: memory is a number of bytes, a text such as '200 MB', or 'offload'.\n"
            f"  memory: {memory!r}\n  Units are B, kB, MB, GB, TB, and KiB, MiB, GiB, TiB."
        )
    return int(found)


_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?i?b)", re.IGNORECASE)
_UNITS = {"b": 1, "ib": 1}
_UNITS |= {f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)}
_UNITS |= {f"{p}ib": 1024**i for i, p in enumerate("kmgt", 1)}


class Plan(NamedTuple):
    """Is what was chosen for a budget.

    Attributes:
        program: the function, with a `checkpoint` for each stretch that is computed again.
        budget: the bytes that were asked for.
        default: the bytes that its derivative takes beside arguments and results as it is.
        peak: those that it takes as chosen; both as XLA says.
        again: for each stretch that is computed again, how many operations it has, and its first
            and last line.
        share: the time of what is computed again, as estimated, by that of the function.
    """

    program: Program
    budget: int
    default: int
    peak: int
    again: tuple[tuple[int, Location | None, Location | None], ...]
    share: float

    def __str__(self) -> str:
        head = f"{size(self.peak)} of {size(self.budget)}; without a budget {size(self.default)}"
        lines = [
            f"  again: {count} operations, {first} to line {last.line if last else '?'}"
            for count, first, last in self.again
        ]
        return "\n".join([head, *(lines or ["  nothing is computed again"])])

    __repr__ = __str__


class Budget:
    """Is the budget of a transformed function, which is told what was chosen as its `plan`.

    Where residuals are to be on the host there is nothing to choose, and `plan` stays None.
    """

    def __init__(self, name: str, memory: Any):
        self.name = name
        self.nbytes = parsed(name, memory)

    def owned(self, function: Any) -> Any:
        """Returns the function, which has not been called yet."""
        self.function, function.plan = function, None
        return function

    def planned(self, program: Program, active: tuple[bool, ...], with_value: bool) -> Program:
        """Returns the program with what is chosen in it."""
        if self.nbytes is None:
            return _offloaded(program)
        self.function.plan = plan = planned(self.name, program, active, with_value, self.nbytes)
        return plan.program


def temporary(program: Program) -> int:
    """Returns the bytes that a program takes beside its arguments and results, as XLA says."""
    final = runnable(program)
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in final.inputs]
    with x64():
        compiled = jax.jit(lambda *arrays: lower(final, arrays)).lower(*specs).compile()
    found: Any = compiled.memory_analysis()
    return int(found.temp_size_in_bytes)


def planned(
    name: str, program: Program, active: tuple[bool, ...], with_value: bool, budget: int
) -> Plan:
    """Chooses what is computed again, so that a gradient takes no more than a budget.

    Args:
        name: of the transform, for errors.
        program: what is differentiated.
        active: for each input whether it is differentiated by.
        with_value: whether the value is asked for as well.
        budget: the bytes that the gradient may take beside its arguments and results.

    Raises:
        ArgumentError: where it takes more whatever is computed again.
    """
    key = "budget", active, with_value, budget
    found = program.memo.get(key)
    if found is None:
        plain = simplify(inline(program))
        measure = lambda made: temporary(value_and_grad(made, active, with_value))  # noqa: E731
        found = _search(_Chain(plain, active), budget, measure)
        if found.peak > budget and (steps := _with_steps(plain)) is not plain:
            found = min(found, _search(_Chain(steps, active), budget, measure), key=_rank)
        program.memo[key] = found
    if found.peak > budget:
        raise ArgumentError(
            f"{name}: the derivative takes more memory, whatever is computed again.\n"
            f"  memory: {size(budget)}\n  least found: {size(found.peak)}\n"
            f"  without a budget: {size(found.default)}\n"
            f"  Write memory={math.ceil(found.peak / 1e3) * 1000}, or split the batch."
        )
    return found


def _rank(plan: Plan) -> tuple[float, ...]:
    return max(plan.peak, plan.budget), plan.share, plan.peak


def _offloaded(program: Program) -> Program:
    """Returns a program whose derivative has its residuals on the host."""
    found = program.memo.get("offloaded")
    if found is None:
        params = {"policy": policies.everything_offloaded, "prevent_cse": True}
        with building(program.name, program.inputs) as (frame, inputs):
            body = simplify(inline(program))
            found = finish(frame, checkpoint_p(*inputs, program=body, **params))
        program.memo["offloaded"] = found
    return found


def _with_steps(program: Program) -> Program:
    """Returns a program whose loops compute each step again, and keep what is carried."""
    if all(equation.primitive is not scan_p for equation in program.equations):
        return program

    def step(equation: Equation, taken: list[Any]) -> Sequence[Any]:
        params = dict(equation.params)
        if equation.primitive is scan_p:
            body = params["body"]
            with building(body.name, body.inputs) as (frame, inputs):
                outs = checkpoint_p(*inputs, program=body, policy=None, prevent_cse=False)
                params["body"] = finish(frame, outs)
        return bind(equation.primitive, taken, Params(params))

    with building(program.name, program.inputs) as (frame, inputs):
        return finish(frame, walk(program, inputs, step))


_TRIES = 7
"""How many programs are compiled at most, to see what they take."""


def _search(chain: _Chain, budget: int, measure: Callable[[Program], int]) -> Plan:
    """Returns the plan of least time within the budget among those tried, else of least memory."""
    default, count = measure(chain.program), len(chain.kept)
    if default <= budget:
        return Plan(chain.program, budget, default, default, (), 0.0)
    seen: dict[Program, Plan] = {}

    def tried(groups: tuple[Group, ...]) -> Plan:
        made = chain.plan(groups, budget, default)
        if made.program not in seen:
            seen[made.program] = made._replace(peak=measure(made.program))
        return seen[made.program]

    least = int(np.isfinite(chain.best[0, count]).argmax())
    # the estimate is a guide to what XLA says, by which the next one is chosen
    low, high, level = least, _LEVELS, int(_LEVELS * budget / default)
    for _ in range(_TRIES):
        level = min(max(level, low), high)
        peak = tried(chain.groups(0, count, level)).peak
        if 0.9 * budget <= peak <= budget or high - low <= _LEVELS // 128:
            break
        low, high = (level, high) if peak <= budget else (low, level)
        margin = (high - low) // 8 + 1
        level = min(max(int(level * budget / peak), low + margin), high - margin)
    if all(plan.peak > budget for plan in seen.values()):
        for more in (0, 1 / 16, 1 / 6):  # what is least by the estimate may not be least
            tried(chain.groups(0, count, least + int(more * (_LEVELS - least))))
        for parts in (2, 3, 5, 8):  # XLA has most use of memory again where all are alike
            length = count // parts or 1
            tried(tuple([(i, min(i + length, count), ()) for i in range(0, count, length)]))
    return min(seen.values(), key=_rank)


# ------------------------------------------------------------------------------------ a chain


_MOST_PIECES = 48
_LEVELS = 1024
"""The units of memory in which all residuals together are counted."""


class _Chain:
    """Is a program as a sequence of pieces, between its narrow places.

    Args:
        program: inlined and simplified.
        active: for each input whether it is differentiated by.

    Attributes:
        cuts: the equations at which pieces begin, and where the last ends.
        kept: the units of memory that the residuals of each piece take.
        width: those of what goes into each piece.
        time: what each piece takes forward.
        best: see `_tables`; and so is `choice`.
    """

    def __init__(self, program: Program, active: tuple[bool, ...]):
        self.program = program
        self.entries = list(program.numbered())
        widths = _widths(program)
        self.cuts = _narrow(widths)
        moving = _moving(program, active)
        pieces = list(zip(self.cuts, self.cuts[1:], strict=False))
        parts = [self._part(a, b) for a, b in pieces]
        kept = [_kept_bytes(part, [moving[n] for n in taken]) for part, taken, _ in parts]
        unit = sum(kept) / _LEVELS or 1.0
        # in units, rounded up; all is kept where there is room for it
        self.kept = [math.floor(nbytes / unit) for nbytes in kept]
        self.width = [math.ceil(widths[a] / unit) for a in self.cuts]
        self.time = [price(part).compiled for part, _, _ in parts]
        self.best, self.choice = _tables(self.kept, self.width, self.time)

    def _part(self, start: int, stop: int) -> tuple[Program, list[int], list[int]]:
        """Returns the program of some equations, the values that it takes, and those it gives."""
        entries = self.entries[start:stop]
        made = {n for _, numbers, _ in entries for n in numbers}
        taken = dict.fromkeys(
            a for e, _, _ in entries for a in e.operands if type(a) is int and a not in made
        )
        used = {a for e, _, _ in self.entries[stop:] for a in e.operands if type(a) is int}
        given = sorted(made & (used | {a for a in self.program.outputs if type(a) is int}))
        return excerpt(self.program, [*taken], entries, given), [*taken], given

    def plan(self, groups: tuple[Group, ...], budget: int, default: int) -> Plan:
        """Returns the program that computes some groups again, not measured yet."""
        ends = [(self.cuts[i], self.cuts[j]) for i, j, _ in groups]
        again = tuple([(b - a, self.entries[a][2], self.entries[b - 1][2]) for a, b in ends])
        share = self._again(groups) / (sum(self.time) or 1.0)
        with building(self.program.name, self.program.inputs) as (frame, inputs):
            env: dict[Any, Any] = dict(enumerate(inputs))
            self._run(env, 0, len(self.kept), groups)
            made = finish(frame, [env[a] if type(a) is int else a for a in self.program.outputs])
        return Plan(made, budget, default, 0, again, share)

    def _again(self, groups: tuple[Group, ...]) -> float:
        """Returns the time of what is computed again."""
        return sum(sum(self.time[i:j]) + self._again(inner) for i, j, inner in groups)

    def groups(self, start: int, stop: int, level: int) -> tuple[Group, ...]:
        """Returns what is cheapest to compute again of some pieces, by units: from, to, inside."""
        groups = []
        while start < stop:
            choice = int(self.choice[start, stop][level])
            if choice:
                groups.append((start, choice, self.groups(start, choice, level)))
                level -= self.width[choice]
                start = choice
            else:
                level -= self.kept[start]
                start += 1
        return tuple(groups)

    def _run(self, env: dict[Any, Any], start: int, stop: int, groups: tuple[Group, ...]) -> None:
        """Records some pieces, groups as checkpoints."""
        until = {i: (j, inner) for i, j, inner in groups}
        with Placing() as at:
            while start < stop:
                end, inner = until.get(start, (start + 1, None))
                first, last = self.cuts[start], self.cuts[end]
                if inner is None:
                    for equation, numbers, place in self.entries[first:last]:
                        at.move(place)
                        taken = [env[a] if type(a) is int else a for a in equation.operands]
                        outs = bind(equation.primitive, taken, equation.params)
                        env.update(zip(numbers, outs, strict=True))
                else:
                    at.move(self.entries[first][2])
                    _, needed, given = self._part(first, last)
                    types = [self.program.types[n] for n in needed]
                    with building("again", types) as (frame, inputs):
                        inside = dict(zip(needed, inputs, strict=True))
                        self._run(inside, start, end, inner)
                        body = finish(frame, [inside[n] for n in given])
                    operands = [env[n] for n in needed]
                    outs = checkpoint_p(*operands, program=body, policy=None, prevent_cse=True)
                    env.update(zip(given, outs, strict=True))
                start = end


Group = tuple[int, int, tuple[Any, ...]]
"""Pieces that are computed again: the first, that after the last, and such groups among them."""


def _tables(
    kept: Sequence[int], width: Sequence[int], time: Sequence[float]
) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int], Any]]:
    """Returns the least time of computing again, for all stretches and amounts of memory.

    `best[i, j][m]` is that of going forward and back through the pieces from `i` to `j` with `m`
    units of memory, where what goes into `i` is there. The first piece is kept, `best[i + 1, j]`
    with so much less memory; or the pieces up to some `k` are computed again, after what is from
    `k` on: `time[i:k] + best[k, j]`, with what goes into `k` kept, `+ best[i, k]`. Which `k` that
    is says `choice`; 0 where the piece is kept.

    Reference:
        Beaumont et al., Optimal checkpointing for heterogeneous chains, 2019, arXiv:1911.13214.
    """
    count, none = len(kept), np.full(_LEVELS + 1, np.inf)

    def less(table: np.ndarray, units: int) -> np.ndarray:
        return np.concatenate([none[:units], table[: len(table) - units]])[: _LEVELS + 1]

    spent = [0.0, *accumulate(time)]
    best: dict[tuple[int, int], Any] = {(i, i): np.zeros(_LEVELS + 1) for i in range(count + 1)}
    choice: dict[tuple[int, int], Any] = {}
    for length in range(1, count + 1):
        for i in range(count + 1 - length):
            j = i + length
            rows = [less(best[i + 1, j], kept[i])]
            for k in range(i + 1, j):
                rows.append(spent[k] - spent[i] + less(best[k, j], width[k]) + best[i, k])
            table = np.array(rows)
            chosen = table.argmin(axis=0)
            best[i, j] = table.min(axis=0)
            choice[i, j] = np.where(chosen, i + chosen, 0)
    return best, choice


def _moving(program: Program, active: tuple[bool, ...]) -> list[bool]:
    """Tells of each value whether it is inexact and depends on what is differentiated by."""
    depends = [a and t.is_inexact for a, t in zip(active, program.inputs, strict=True)]
    for e in program.equations:
        found = any(type(a) is int and depends[a] for a in e.operands)
        depends += [found and t.is_inexact for t in e.types]
    return depends


def _kept_bytes(part: Program, active: Sequence[bool]) -> int:
    """Returns the bytes of residuals of a piece."""
    split = linearize(part, tuple(active))
    forward = split.forward
    atoms = {a for a in forward.outputs[len(split.active) :] if type(a) is int}
    return sum(forward.types[a].nbytes for a in atoms if a >= len(forward.inputs))


def _widths(program: Program) -> list[int]:
    """Returns for each equation the bytes of values made before it that are used from it on."""
    count = len(program.equations)
    last: dict[int, int] = {a: count for a in program.outputs if type(a) is int}
    for index in range(count - 1, -1, -1):
        for a in program.equations[index].operands:
            if type(a) is int:
                last.setdefault(a, index)
    change = [0] * (count + 2)
    for index, (_, numbers, _) in enumerate(program.numbered()):
        for n in numbers:
            change[index + 1] += program.types[n].nbytes
            change[last.get(n, index) + 1] -= program.types[n].nbytes
    return list(accumulate(change))[: count + 1]


def _narrow(widths: Sequence[int]) -> list[int]:
    """Returns where a program is cut, its two ends among it."""
    count = len(widths) - 1
    inner = range(1, count)
    low = [
        i for i in inner if widths[i] <= min(widths[i - 1] if i > 1 else math.inf, widths[i + 1])
    ]
    bound = sorted(widths[i] for i in low)[len(low) // 2] * 2 if low else 0
    low = [i for i in low if widths[i] <= bound]
    step = max(1, math.ceil(len(low) / _MOST_PIECES))
    return [0, *low[::step], count]
