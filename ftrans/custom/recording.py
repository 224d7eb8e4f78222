"""Records a call of a custom rule as one equation, with what `forward` and the rules captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ftrans.config import config
from ftrans.custom.reuse import compare, facts
from ftrans.custom.tracing import Author, Rules, TracedRule, position
from ftrans.errors import TracedArrayError
from ftrans.func.staging import apply, known_inputs, rule_frame, sources, stage
from ftrans.ir import Frame, Params, Tracer, bind
from ftrans.ir.frame import opened
from ftrans.ir.location import here
from ftrans.ir.source import Opaque
from ftrans.ir.stack import Asks, asks, state
from ftrans.numpy.promotion import as_array, weakly
from ftrans.numpy.protocols import in_rule
from ftrans.primitives import custom_p
from ftrans.primitives.rules.custom_spec import Spec
from ftrans.runtime.jaxlink import foreign


def record(author: Author, values: Sequence[Any], known: Sequence[Any] = ()) -> list[Any]:
    """Calls a custom rule inside a traced function, and records it as one equation.

    Args:
        author: the rule.
        values: the inputs: arrays, traced values and Python scalars that are arrays.
        known: what `forward` takes besides, arrays and numbers that nobody differentiates.

    Returns:
        The results.

    Raises:
        TracedArrayError: where a method asks for plain arrays that the author does not call later.
    """
    inputs, extra = known_inputs(values), known_inputs(known)
    if not state.by_jax and foreign(values):
        state.by_jax = True
    around, key = asks(), author.lasting_key
    if key is not None:
        types = tuple([(t, weak) for t, _, weak in (*inputs, *extra)])
        key = (key, types, around, config.default_dtype, state.of_tensors)
        reuse = author.memory.get(key)
        params = None if reuse is None else reuse.params
        if reuse is not None and params is not None:
            if config.check:
                now = lambda: _traced_anew(author, inputs, extra, around)  # noqa: E731
                before = facts(params, reuse.made, reuse.weak, reuse.kept)
                compare(author.name, reuse, reuse.guards, before, now)
            author.__dict__.update(reuse.kept, taken_over=True)
            return _bound([*sources([*inputs, *extra]), *reuse.made], params, reuse.weak)
    try:
        traced = _traced(author, inputs, extra, around)
        if asks() != around:
            # it closes over what JAX is tracing
            traced = _traced(author, inputs, extra, asks())
    except Opaque:
        if in_rule() or author.retries():
            raise  # the rule that this one is called in may be called later
    else:
        results = _bound(traced.operands, traced.params, traced.weak)
        if key is not None and traced.made is not None and results:
            author.memory.learn(
                key, author.guards, results[0], traced.made, traced.weak, author.kept()
            )
        return results
    raise TracedArrayError(
        f"{author.name}: it asks for plain arrays, by np.asarray(x) or its like, and is traced.\n"
        f"  Write it with functions of ftrans.numpy; or wrap what needs plain arrays in\n"
        f"  ftrans.external(function, out_type), or write it as a ftrans.autograd.Function."
    )


def staged_for_jax(name: str, call: Callable[..., Any], values: Sequence[Any]) -> Any:
    """Calls what records a rule, on values that JAX traces.

    It is recorded in a program of its own, so that JAX learns of the rules: the call takes traced
    values in the place of these, some of which JAX traces.
    """
    inputs = known_inputs(values)
    staged = stage(name, call, inputs)
    return staged.outputs.build(apply(staged.program, staged.operands(inputs)))


def _traced_anew(
    author: Author, inputs: Sequence[Any], extra: Sequence[Any], around: Asks
) -> dict[str, Any]:
    """Traces a call in plain frames, inside one that is thrown away; nothing of it is left.

    Returns:
        What is to be compared of it.
    """
    before = dict(author.__dict__)
    try:
        with opened(Frame(author.name, entered=here())):
            traced = _traced(author, inputs, extra, around)
        return facts(traced.params, traced.made, traced.weak, author.kept())
    finally:
        author.__dict__.clear()
        author.__dict__.update(before)


class _Traced(NamedTuple):
    """Is a call whose methods were traced.

    Attributes:
        operands: the inputs, and what was captured.
        params: of the equation.
        weak: which results were Python scalars.
        made: the arrays that it captured, which its code has made, if it depends on nothing but its
            inputs and what its code reads; else None.
    """

    operands: list[Any]
    params: Params
    weak: list[bool]
    made: tuple[Any, ...] | None


def _traced(author: Author, inputs: Sequence[Any], extra: Sequence[Any], around: Asks) -> _Traced:
    """Traces `forward` and the rules that can be asked for."""
    demands = _demands()
    has_rules = author.has_backward or author.has_jvp
    has_rules = has_rules and any(t.is_inexact for t, _, _ in inputs)
    ruled = has_rules and around.order > 0
    declared = [*inputs, *extra]
    inside = around.fewer(2) if ruled and author.calls_itself else around
    rules: dict[str, TracedRule] = {}
    patterns: list[tuple[bool, ...]] = []
    missing = author.missing
    with rule_frame(author.name, declared, inside) as (frame, given):
        if not (author.has_backward or author.has_jvp or author.missing or author.holds):
            frame.differentiates = 0  # it has a rule for batches alone
        outs = [as_array(out) for out in author.forward(given, ruled)]
        smooth = author.smooth(outs)
        weak = [isinstance(out, Tracer) and out.weak for out in outs]
        if has_rules and any(smooth):
            if ruled:
                rules, patterns = Rules(author, inputs, outs, smooth, around).traced()
            else:
                missing = (
                    f"{author.name}: it is differentiated more often than its rules were traced "
                    f"for.\n  Take all derivatives by transforms around the function that calls it."
                )
        places = _Places(frame, outs)
        references = {key: places.of(rule.captured) for key, rule in rules.items()}
        program, captured = frame.close([*outs, *places.saved])
        demanded = _demands() != demands
    batch = author.batch(around, sources(inputs))
    operands = [*sources(declared), *captured]
    settled = {
        key: tuple([_settled(place, operands) for place in found])
        for key, found in references.items()
    }
    if batch is not None:
        batch.captured = tuple([position(value, operands) for value in batch.closed_over()])
    backward, jvp = rules.get("backward"), rules.get("jvp")
    spec = Spec(
        author.name,
        len(inputs),
        smooth,
        () if backward is None else backward.mask,
        () if jvp is None else jvp.mask,
        settled.get("backward", ()),
        settled.get("jvp", ()),
        missing,
        batch,
        tuple(patterns),
        # a jvp that raised has no results in the place of those of `forward` either
        author.lasting or (jvp is not None and jvp.failed),
        author.linear,
        author.holds,
    )
    params = Params(
        {
            "forward": program,
            "backward": None if backward is None else backward.program,
            "forward_mode": None if jvp is None else jvp.program,
            "variants": tuple([rules[f"backward {i}"].program for i in range(len(patterns))]),
            "spec": spec,
            "saved": False,
        }
    )
    # nothing that is understood can have captured an array that it was not given
    made = operands[len(declared) :]
    is_closed = not demanded and not (extra and made) and _are_small(made)
    return _Traced(operands, params, weak, tuple(made) if is_closed else None)


_MOST_MADE = 1 << 16
"""So many bytes are kept of arrays that a call makes."""


def _are_small(values: Sequence[Any]) -> bool:
    """Tells whether values are arrays that are not large; those of rank 0 may be literals."""
    if not all(type(x) is not Tracer and x.ndim for x in values):
        return False
    return sum([x.nbytes for x in values]) <= _MOST_MADE


def _demands() -> int:
    """Returns how often values have been asked for in all that is being traced."""
    return sum([frame.demands for frame in state.stack])


def _bound(operands: Sequence[Any], params: Params, weak: Sequence[bool]) -> list[Any]:
    return [weakly(x, w) for x, w in zip(bind(custom_p, operands, params), weak, strict=True)]


class _Places:
    """Says where the rules find what they captured of the frame of `forward`, with these results.

    Attributes:
        saved: what is neither an input nor a result, and so has to be returned as well.
    """

    def __init__(self, frame: Frame, outs: Sequence[Any]):
        self._frame = frame
        self._results: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        for number, out in enumerate(outs):
            if isinstance(out, Tracer) and out.frame is frame and out.index >= 0:
                self._results.setdefault(out.index, number)
        self.saved: list[Any] = []

    def of(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """Returns a reference for each value; `("outer", value)` for those of outer frames."""
        return [self._reference(value) for value in values]

    def _reference(self, value: Any) -> tuple[str, Any]:
        if type(value) is not Tracer or value.frame is not self._frame:
            return "outer", value
        if value.index < 0:
            return "operand", ~value.index
        if value.index in self._results:
            return "result", self._results[value.index]
        number = self._saved.setdefault(value.index, len(self.saved))
        if number == len(self.saved):
            self.saved.append(value)
        return "saved", number


def _settled(place: tuple[str, Any], operands: list[Any]) -> tuple[str, int]:
    kind, value = place
    return ("operand", position(value, operands)) if kind == "outer" else (kind, value)
