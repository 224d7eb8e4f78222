"""Traces the methods of a rule: each in a frame of its own, inside that of `forward`.

`backward` and `jvp` are traced while the frame of `forward` is open. So what they use of it, saved
on a context or closed over, is what their frames capture, as anywhere: nothing need be declared,
and what is saved is differentiated through. Their frames are closed: what they compute of a result
is computed of what the equation returns, whose derivative is the rule's. Rules are traced at each
call, as `forward` is.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from itertools import combinations, islice
from typing import Any, NamedTuple

from ftrans.custom.guards import Guards
from ftrans.custom.reuse import Memory
from ftrans.func.staging import rule_frame
from ftrans.ir import Abstract, ArrayType, Program, Tracer, make_tracer, type_of
from ftrans.ir.program import Equation
from ftrans.ir.source import Opaque
from ftrans.ir.stack import Asks, state
from ftrans.numpy.promotion import as_array
from ftrans.numpy.protocols import may_have_gradient
from ftrans.primitives import missing_p
from ftrans.primitives.axes import zeros
from ftrans.primitives.conversion import conjugate
from ftrans.primitives.rules.missing import Deferred
from ftrans.pytree import Parts


class Author:
    """Is what the author of a rule wrote, called with flat lists of arrays.

    Attributes:
        name: how errors call it.
        has_backward: whether there is a `backward`.
        has_jvp: whether there is a `jvp`.
        patterns: whether cotangents that are zero are passed to `backward` as `None`.
        missing: the error where a derivative is needed and there is no rule; None where `forward`
            is differentiated then.
        linear: where JAX is to transpose a call, how many inputs, the last ones, the results are
            linear in, jointly; `jvp` and `backward` are both given, and this one needs no results
            for the cotangents of these.
        holds: whether `forward` holds constant what it captures.
        calls_itself: whether `forward` may call the function that the rule is for; the call inside
            needs one derivative less.
        lasting: whether second derivatives of results are by the rules again, see `Spec`.
        rule_outs: where it is not lasting, the results as `jvp` has computed them.
        taken_over: whether the call was like an earlier one, and may be stepped over as a whole.
    """

    name: str
    has_backward = False
    has_jvp = False
    patterns = False
    missing: str | None = None
    linear = 0
    holds = False
    calls_itself = False
    lasting = True
    rule_outs: Sequence[Any] = ()
    taken_over = False

    def forward(self, inputs: Sequence[Any], ruled: bool) -> Sequence[Any]:
        """Returns the results, arrays; `ruled` says whether the rules are traced after it."""
        raise NotImplementedError

    def backward(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """Takes a cotangent for each result, and returns one for each input; None for zero."""
        raise NotImplementedError

    def jvp(self, tangents: Sequence[Any]) -> Sequence[Any]:
        """Takes a tangent for each input, and returns one for each result; None for zero."""
        raise NotImplementedError

    def retries(self) -> bool:
        """Tells whether the call is recorded once more, since `forward` turned out to be opaque."""
        return False

    def smooth(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Tells which results have tangents."""
        raise NotImplementedError

    def batch(self, around: Asks, values: Sequence[Any]) -> Any:
        """Returns its `WrittenBatch`, or None."""
        return None

    # ------------------------------------------------- what calls of it have in common

    @property
    def lasting_key(self) -> Any:
        """What it depends on for good, as long as its `guards` hold; None where that is unknown."""
        return None

    memory = Memory()
    """What is remembered of the rule, by `lasting_key`."""

    def guards(self) -> Guards | None:
        """Returns what the rule read when it was traced; None where that is not known."""
        return None

    def kept(self) -> dict[str, Any]:
        """Returns the attributes that say how the results make what the author returns."""
        return {}


class TracedRule(NamedTuple):
    """Is a method as a program.

    Attributes:
        program: takes cotangents of smooth results, or tangents of inputs, then what it captured.
        captured: that.
        mask: for each input whether `backward` returns a cotangent, or `jvp` takes a tangent.
        failed: whether the method raised, and so will the program.
    """

    program: Program
    captured: list[Any]
    mask: tuple[bool, ...]
    failed: bool = False


class Rules:
    """Traces the rules of one call, while the frame of its `forward` is open.

    The inputs are as for `Frame.declare`; `smooth` says which results have tangents, and `around`
    what is asked of the call.
    """

    def __init__(
        self,
        author: Author,
        inputs: Sequence[tuple[ArrayType, Any, bool]],
        outs: Sequence[Any],
        smooth: tuple[bool, ...],
        around: Asks,
    ):
        self.author = author
        self.inputs = inputs
        self.types = [type_of(out) for out in outs]
        self.smooth = smooth
        self.around = around
        # the tangent of a Python number has no more of a dtype than the number has
        self.moving = [(t.update(), weak) for t, _, weak in inputs if t.is_inexact]
        self.outcome = [t.update() for t, s in zip(self.types, smooth, strict=True) if s]

    def traced(self) -> tuple[dict[str, TracedRule], list[tuple[bool, ...]]]:
        """Returns the rules that there are, and the patterns of cotangents."""
        rules: dict[str, TracedRule] = {}
        patterns: list[tuple[bool, ...]] = []
        author = self.author
        if author.has_backward:
            if author.patterns and sum(self.smooth) > 1:
                patterns = _patterns(self.smooth)
                found = self._pull_patterns(patterns)
                rules = {f"backward {i}": rule for i, rule in enumerate(found[1:])}
                rules["backward"] = found[0]
            else:
                rules["backward"] = self._tried("backward", self._pull)
        if author.has_jvp and not (author.has_backward and self.around.only_reverse):
            rules["jvp"] = self._tried("jvp", self._push)
        return rules, patterns

    def _tried(self, method: str, trace: Callable[..., TracedRule], *given: Any) -> TracedRule:
        """Traces a rule; what it raises is raised where its result is needed: maybe nowhere.

        Where it is found to be opaque, what it had recorded until then is no part of it.
        """
        try:
            try:
                return trace(*given)
            except Opaque:
                return trace(*given)
        except Exception as error:
            return self._failed(method, error)

    def _pull(self, pattern: tuple[bool, ...] | None = None) -> TracedRule:
        """Traces `backward`, with `None` for the cotangents that are not in the pattern."""
        author = self.author
        source = Abstract(f"a cotangent of {author.name}")
        declared = [(t, source, False) for t in self.outcome]
        name, asks = f"{author.name}.backward", self.around.fewer(2)
        with rule_frame(name, declared, asks, closed=True) as (frame, given):
            cts = iter(map(conjugate, given))
            taken = [next(cts) if s else None for s in self.smooth]
            if pattern is not None:
                taken = [ct if p else None for ct, p in zip(taken, pattern, strict=True)]
            found = author.backward(taken)
            returned, mask = [], []
            for ct, (t, _, _) in zip(found, self.inputs, strict=True):
                keep = t.is_inexact and (ct is not None or pattern is not None)
                mask.append(keep)
                if keep:
                    returned.append(zeros(t) if ct is None else conjugate(as_array(ct)))
            program, captured = frame.close(returned)
        return TracedRule(program, captured, tuple(mask))

    def _push(self) -> TracedRule:
        """Traces `jvp`."""
        author = self.author
        source = Abstract(f"a tangent of {author.name}")
        mask = tuple([t.is_inexact for t, _, _ in self.inputs])
        declared = [(t, source, weak) for t, weak in self.moving]
        name, asks = f"{author.name}.jvp", self.around.fewer(1)
        with rule_frame(name, declared, asks, closed=True) as (frame, given):
            tangents = iter(given)
            found = author.jvp([next(tangents) if m else None for m in mask])
            returned = [
                zeros(t) if dot is None else as_array(dot)
                for dot, t, s in zip(found, self.types, self.smooth, strict=True)
                if s
            ]
            if not author.lasting:
                # JAX goes on with what the rule returns as the result
                returned = [*author.rule_outs, *returned]
            program, captured = frame.close(returned)
        return TracedRule(program, captured, mask)

    def _pull_patterns(self, patterns: Sequence[tuple[bool, ...]]) -> list[TracedRule]:
        """Traces `backward` for all cotangents and for each pattern; all take the same captures.

        What it raises for one pattern may be meant for others.
        """
        found = [self._tried("backward", self._pull, p) for p in (self.smooth, *patterns)]
        captured: list[Any] = []
        places = [[position(v, captured) for v in rule.captured] for rule in found]
        kinds = [type_of(value) for value in captured]
        return [
            rule._replace(
                program=_with_captures(rule.program, len(self.outcome), kinds, place),
                captured=captured,
            )
            for rule, place in zip(found, places, strict=True)
        ]

    def _failed(self, method: str, error: Exception) -> TracedRule:
        """Returns a rule that raises where it is needed."""
        traceback.clear_frames(error.__traceback__)  # of what was traced only the lines are kept
        name = f"{self.author.name}.{method}"
        inner = [t for t, _ in self.moving]
        pulls = method == "backward"
        given, wanted = (self.outcome, inner) if pulls else (inner, self.outcome)
        source = Abstract(f"an argument of {name}")
        # what it may be computed from as well, so that its derivatives are missing too, and not
        # zero: who knows what it would have closed over. Not of what is pending on a tape, which
        # is whatever happens to be, and would have the result require grad.
        used = [
            make_tracer(frame, ~i, t)
            for frame in state.stack
            if frame is not state.tape
            for i, t in enumerate(frame.input_types)
            if t.is_inexact
        ]
        declared = [(t, source, False) for t in given]
        with rule_frame(name, declared, closed=True) as (frame, tracers):
            found = missing_p(*tracers, *used, types=tuple(wanted), message=Deferred(error))
            program, captured = frame.close(found)
        mask = tuple([t.is_inexact for t, _, _ in self.inputs])
        return TracedRule(program, captured, mask, failed=True)


_MOST_PATTERNS = 3
"""With up to so many smooth results, every choice of cotangents that are zero is traced."""


def _patterns(smooth: tuple[bool, ...]) -> list[tuple[bool, ...]]:
    """Returns which cotangents are given, for each choice of them but none and all."""
    places = [i for i, s in enumerate(smooth) if s]
    if len(places) <= _MOST_PATTERNS:
        sizes: Sequence[int] = range(1, len(places))
    else:
        sizes = (1, len(places) - 1)
    return [
        tuple(i in chosen for i in range(len(smooth)))
        for size in sizes
        for chosen in combinations(places, size)
    ]


def _with_captures(
    program: Program, count: int, kinds: Sequence[ArrayType], positions: Sequence[int]
) -> Program:
    """Returns the program with captured inputs of these types, of which it uses those named."""
    old, new = len(program.inputs), count + len(kinds)

    def moved(atom: Any) -> Any:
        if type(atom) is not int:
            return atom
        if atom < count:
            return atom
        return count + positions[atom - count] if atom < old else atom - old + new

    equations = [
        Equation(e.primitive, tuple(map(moved, e.operands)), e.params, e.types)
        for e in program.equations
    ]
    return Program.make(
        [*program.inputs[:count], *kinds],
        equations,
        list(map(moved, program.outputs)),
        program.locations,
        program.name,
    )


def position(value: Any, values: list[Any]) -> int:
    """Returns where a value is in a list; appends it where it is not."""
    for number, other in enumerate(values):
        if other is value:
            return number
    values.append(value)
    return len(values) - 1


def may_move(x: Any) -> bool:
    """Tells whether a gradient with respect to a value may be asked for."""
    return type(x) is Tracer and x.type.is_inexact and may_have_gradient(x)


def needs_of(parts: Parts, passed: int) -> tuple[bool, ...]:
    """Returns the same for each argument of those that were passed."""
    moving = iter(map(may_move, parts.values))
    return tuple([any(list(islice(moving, count))) for count in parts.counts()[:passed]])


def codes_of(values: Sequence[Any]) -> list[int]:
    """Returns which values are traced: to write to one is to make it another."""
    return [x.index for x in values if type(x) is Tracer]
