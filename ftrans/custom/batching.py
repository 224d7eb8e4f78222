"""Rules for batches that their author wrote, as programs: traced when a batch is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from types import CellType, FunctionType
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.custom.context import VmapInfo
from ftrans.custom.guards import Guards
from ftrans.custom.reuse import compare
from ftrans.errors import RuleError
from ftrans.external.captures import defined, with_constants
from ftrans.func.staging import is_whole, rule_frame
from ftrans.interop.closure import content
from ftrans.interpreters import runnable
from ftrans.ir import Abstract, ArrayType, Program, Tracer, type_of
from ftrans.ir.stack import Asks, state
from ftrans.numpy.promotion import as_array
from ftrans.primitives.axes import moveaxis
from ftrans.pytree import Parts, describe


def _with_closed_over(function: Any, values: Sequence[Any]) -> Any:
    """Returns the function closing over these in the place of the traced values."""
    if not values:
        return function
    given = iter(values)
    cells = tuple(
        CellType(next(given)) if type(content(cell)) is Tracer else cell
        for cell in function.__closure__
    )
    code, space, name = function.__code__, function.__globals__, function.__name__
    made = FunctionType(code, space, name, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _identity_of(function: Any) -> tuple[Any, ...]:
    """Returns what makes a function do what it does: its code, defaults and what it closes over."""
    code = getattr(function, "__code__", None)
    if code is None:
        return (function,)
    cells = tuple(
        ("traced", x.type) if type(x) is Tracer else id(x)
        for x in map(content, function.__closure__ or ())
    )
    return code, cells, id(function.__defaults__)


class WrittenBatch:
    """Is a rule for batches that its author wrote; `call` says how it is called.

    It is traced when it is known where the mapped axes are. What it reads then may have changed
    since the call. So it is traced at the call, too, for the batch that is most likely asked for,
    and what comes of that is part of what makes two rules equal; unless `guards` say what it reads.

    Args:
        call: the call of the rule, which says what its arguments and its results are.
        name: names the rule in errors, with the name of the call in front.
        function: what the author wrote.
        around: what is asked of the call.
        extra: what else it depends on.
    """

    captured: tuple[int, ...] = ()
    """The operands, by number, that stand for what the author's function closes over."""
    one = "forward"
    """What errors call the function for one example."""

    def __init__(self, call: Any, name: str, function: Any, around: Asks, extra: Any = None):
        self.name = f"{call.name}.{name}"
        self.function = function
        self.parts: Parts = call.parts.template()
        self.output: Parts = call.output.template()
        self.is_tuple: bool = call.is_tuple
        self.types = tuple(call.types)
        self.around = around
        self.guards: Guards | None = None if call.lasting_key is None else call.guards()
        self._programs: dict[Any, Any] = {}
        self._at_call: tuple[Any, Any] | None = None
        statics = self.parts.exact_key, self.output.exact_key
        self._identity = (
            *(type(self), self.name, _identity_of(function), statics),
            *(self.is_tuple, self.types, around, extra, config.default_dtype, state.of_tensors),
            None if self.guards is None else self.guards.token,
        )

    def __hash__(self) -> int:
        return hash((self._identity, self.captured))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, WrittenBatch)
            and self._identity == other._identity
            and self.captured == other.captured
        )

    def __repr__(self) -> str:
        return self.name

    @property
    def unguarded(self) -> Any:
        """What makes two rules equal that were traced at different times."""
        return self._identity[:-1], self.captured

    @property
    def traces_anew(self) -> bool:
        """Whether what it reads is not known, so that no earlier trace stands for a later one."""
        return self.guards is None

    def at_call(self, values: Sequence[Any]) -> WrittenBatch:
        """Traces the rule now, for these inputs, if that is due; returns it."""
        guess = None if self.guards is not None else _likely(values)
        if guess is not None:
            self._at_call = guess, self._shown(guess)
            self._identity = (*self._identity, self._at_call)
        return self

    def closed_over(self) -> list[Tracer]:
        """Returns the traced values that the author's function closes over."""
        cells = getattr(self.function, "__closure__", None) or ()
        return [cell for cell in map(content, cells) if type(cell) is Tracer]

    def _shown(self, batch: tuple[int, Any, Any]) -> Any:
        """Returns what a trace for this batch gives, which may be an error."""
        try:
            return self._traced(*batch)
        except Exception as error:
            return type(error), str(error)  # where it is asked for, it is raised

    def program(
        self, size: int, types: Sequence[ArrayType], dims: Sequence[int | None]
    ) -> tuple[Program, tuple[int | None, ...]]:
        """Returns the rule as a program, and where its results are mapped.

        Args:
            size: the number of examples.
            types: of the inputs, with one axis more where they are mapped.
            dims: for each input where the mapped axis sits, or None.

        Returns:
            A program from the inputs, followed by what is captured, to the results.
        """
        key = (size, tuple(types), tuple(dims))
        if self._at_call is not None and self._at_call[0] == key:
            found = self._at_call[1]
            return found if isinstance(found[0], Program) else self._traced(*key)
        found = self._programs.get(key)
        if found is None:
            self._check_unchanged()
            found = self._traced(*key)
            if self.guards is not None:
                self._programs[key] = found
        elif config.check and self.guards.hold():  # type: ignore[union-attr]
            facts = lambda x: {"the program": x[0], "out_dims": x[1]}  # noqa: E731
            compare(self.name, found, self.guards, facts(found), lambda: facts(self._traced(*key)))
        return found

    def _check_unchanged(self) -> None:
        """Raises where the rule would do something else than it would have done at the call."""
        if self.guards is not None:
            same = self.guards.hold()
        else:
            same = self._at_call is None or _does_the_same(
                self._shown(self._at_call[0]), self._at_call[1]
            )
        if not same:
            raise RuleError(
                f"{self.name}: it reads what has changed between the call and its batch.\n"
                f"  it is defined at {defined(self.function)}\n"
                f"  Pass what it depends on as an argument."
            )

    def _traced(self, size: int, types: Any, dims: Any) -> tuple[Program, tuple[int | None, ...]]:
        source = Abstract(f"a batch that {self.name} is given")
        values = self.closed_over()
        inputs = [(t.update(), source, False) for t in types]
        inputs += [(v.type.update(), source, False) for v in values]
        with rule_frame(self.name, inputs, self.around, closed=True) as (frame, tracers):
            function = _with_closed_over(self.function, tracers[len(types) :])
            output, out_dims = self.call(function, size, tracers[: len(types)], tuple(dims))
            outs = [as_array(x) for x in output]
            out_dims = self._check(size, outs, out_dims)
            program, captured = frame.close(outs)
        for value in captured:
            if type(value) is Tracer:
                raise RuleError(
                    f"{self.name}: it uses a traced value that is not among its arguments.\n"
                    f"  value: {value.type}, {value.origin}\n"
                    f"  it is defined at {defined(self.function)}\n"
                    f"  Pass it as an argument, or let the rule close over it directly."
                )
        if captured:
            program = with_constants(program, captured)
        return program, tuple(out_dims)

    def call(
        self, function: Any, size: int, tracers: Sequence[Any], dims: tuple[int | None, ...]
    ) -> tuple[list[Any], list[int | None]]:
        """Calls the rule; returns the results, and where they are mapped."""
        raise NotImplementedError

    def _pair(self, found: Any, what: str, how: str) -> tuple[Any, Any]:
        """Returns the two things that the rule has returned."""
        if not (isinstance(found, tuple) and len(found) == 2):
            raise RuleError(
                f"{self.name}: it must return two things, {what}.\n"
                f"  returned: {describe(found)}\n  it is defined at {defined(self.function)}\n"
                f"  Write {how}."
            )
        return found

    def _split(self, output: Any) -> list[Any]:
        """Returns the results, of the structure that there is for one example."""
        items = output if isinstance(output, tuple) and self.is_tuple else (output,)
        if self.is_tuple and (not isinstance(output, tuple) or len(items) != len(self.output)):
            raise RuleError(
                f"{self.name}: its result does not have the structure of what {self.one} returns.\n"
                f"  returned: {describe(output)}\n"
                f"  {self.one} returns a tuple of {len(self.output)}\n"
                f"  it is defined at {defined(self.function)}"
            )
        label = f"{self.name} ({defined(self.function)}): its result"
        return self.output.split(lambda: label, items)

    def _of_each(self, what: str, given: Any, is_one: Callable[[Any], bool], how: str) -> list[Any]:
        """Returns what the rule says of each result: once for an item, or in its structure."""
        counts, children = self.output.counts(), self.output.structure.children()
        items = given if self.is_tuple and not is_one(given) else (given,) * len(counts)
        fits = isinstance(items, tuple) and len(items) == len(counts)
        found = []
        for item, count, child in zip(items if fits else (), counts, children, strict=False):
            whole = is_one(item) or tree.treedef_is_leaf(child)
            found.append([item] * count if whole else tree.tree_leaves(item, is_leaf=is_one))
        each = [*chain(*found)]
        if not (fits and list(map(len, found)) == counts and all(map(is_one, each))):
            raise RuleError(
                f"{self.name}: {what} does not have the structure of the output.\n"
                f"  {what}: {given!r}\n  expected: {how}\n"
                f"  it is defined at {defined(self.function)}"
            )
        return each

    def axis(self, number: int, found: ArrayType, dim: int) -> int:
        """Returns a mapped axis, counted from the front; raises where the result has none such."""
        rank = len(found.shape)
        if not -rank <= dim < rank:
            raise RuleError(
                f"{self.name}: out_dims names an axis that a result does not have.\n"
                f"  result {number}: {found}, out_dims {dim!r}\n"
                f"  it is defined at {defined(self.function)}"
            )
        return int(dim) % rank

    def _check(
        self, size: int, outs: Sequence[Any], dims: Sequence[int | None]
    ) -> list[int | None]:
        """Returns the mapped axes, counted from the front; raises where a result does not fit."""
        checked: list[int | None] = []
        for number, (out, dim, t) in enumerate(zip(outs, dims, self.types, strict=True)):
            found = type_of(out).update()
            dim = None if dim is None else self.axis(number, found, dim)
            checked.append(dim)
            if found is not _wide(t, size, dim).update():
                where = "nowhere (None)" if dim is None else f"at axis {dim}, of size {size}"
                raise RuleError(
                    f"{self.name}: a result does not have the type of what {self.one} returns, "
                    f"with the mapped axis.\n"
                    f"  result {number}: {found}, said to be mapped {where}\n"
                    f"  {self.one} returns {t} for one example\n"
                    f"  it is defined at {defined(self.function)}"
                )
        return checked


def _does_the_same(x: Any, y: Any) -> bool:
    """Tells whether two traces of a rule for batches compute the same, whatever rules they call."""
    if isinstance(x[0], Program) and isinstance(y[0], Program):
        return (runnable(x[0]), x[1]) == (runnable(y[0]), y[1])
    return x == y


class FunctionBatch(WrittenBatch):
    """Is the method `vmap` of a `Function`."""

    def __init__(self, call: Any, around: Asks):
        self.kwargs = call.kwargs  # keyword-only arguments, which it takes too
        named = Parts(tuple(self.kwargs.values()))
        extra = tuple(self.kwargs), named.exact_key, tuple(map(id, named.values))
        super().__init__(call, "vmap", call.methods.vmap, around, extra)

    def returned(self, function: Any, size: int, tracers: Any, dims: Any) -> tuple[Any, Any]:
        """Calls the rule; returns the output and `out_dims`."""
        # positive axes, as `vmap` counts them, for each argument in its structure
        info, in_dims = VmapInfo(size, self.around.randomness), self.parts.alone(dims)
        found = function(info, in_dims, *self.parts.build(tracers), **self.kwargs)
        return self._pair(found, "the output and out_dims", "return output, out_dims")

    def call(self, function: Any, size: int, tracers: Any, dims: Any) -> Any:
        """Calls the rule."""
        output, out_dims = self.returned(function, size, tracers, dims)
        if not self.types and tree.tree_leaves(output):
            raise RuleError(
                f"{self.name}: forward returns no array, and vmap does.\n"
                f"  vmap: {describe(output)}\n  it is defined at {defined(function)}\n"
                f"  Write forward for one example too: it says what vmap returns many of."
            )
        return self._split(output), self.dims(out_dims)

    def dims(self, out_dims: Any) -> list[int | None]:
        """Returns where each result is mapped."""
        how = f"a tuple of {len(self.output)}" if self.is_tuple else "one int, or None"
        return self._of_each("out_dims", out_dims, _is_dim, how)


def _is_dim(x: Any) -> bool:
    return x is None or is_whole(x)


def example_by(
    rule: FunctionBatch, values: Sequence[Any]
) -> tuple[Parts, bool, list[ArrayType]] | None:
    """Returns what a rule for batches says of one example, where `forward` says nothing.

    The rule learns what the output is; the values are the inputs, which an enclosing `vmap` maps.

    Returns:
        The output, whether it is a tuple, and the types of the arrays in it; None where no batch
        is asked for.
    """
    guess = _likely(values)
    if guess is None:
        return None
    size, types, dims = guess
    source = Abstract(f"a batch that {rule.name} is given")
    inputs = [(t, source, False) for t in types]
    with rule_frame(rule.name, inputs, closed=True) as (_, tracers):
        output, out_dims = rule.returned(rule.function, size, tracers, dims)
        is_tuple = isinstance(output, tuple)
        parts = Parts(output if is_tuple else (output,))
        rule.output, rule.is_tuple = parts, is_tuple
        found = [type_of(x).update() for x in parts.values]
        rule.types = tuple(found)
        for i, dim in enumerate(rule.dims(out_dims)):
            if dim is not None:
                shape = list(found[i].shape)
                del shape[rule.axis(i, found[i], dim)]
                found[i] = found[i].update(shape=tuple(shape))
    return parts.template(), is_tuple, found


class DecoratedBatch(WrittenBatch):
    """Is a rule of `custom_vmap`: mapped axes in front, and booleans that say what is mapped."""

    one = "the function"

    def call(self, function: Any, size: int, tracers: Any, dims: Any) -> Any:
        """Calls the rule."""
        front = [
            x if dim is None else moveaxis(x, dim, 0) for x, dim in zip(tracers, dims, strict=True)
        ]
        batched = [dim is not None for dim in dims]
        in_batched = [False if item is None else item for item in self.parts.alone(batched)]
        found = function(size, in_batched, *self.parts.build(front))
        what = "the result and which of it is batched"
        output, out_batched = self._pair(found, what, "return out, True")
        flags = self._of_each(
            "out_batched", out_batched, _is_flag, "a bool, or a pytree of them like the result"
        )
        return self._split(output), [0 if flag else None for flag in flags]


def _is_flag(x: Any) -> bool:
    return isinstance(x, (bool, np.bool_))


# ------------------------------------------------------------------------------ the likely batch


def _likely(values: Sequence[Any]) -> tuple[int, tuple[Any, ...], tuple[Any, ...]] | None:
    """Returns the batch that the innermost `vmap` most likely makes of these: size, types, axes."""
    for frame in reversed(state.stack):
        mapped = [s for s in frame.sources if isinstance(s, Abstract) and s.dim is not None]
        if not mapped:
            continue
        dims = tuple([_axis(x, frame) for x in values])
        if all(dim is None for dim in dims):
            if any(inner.rule is not None for inner in state.stack[frame.depth :]):
                continue
            # the body of a loop, say, does not show what is mapped
            dims = tuple([0 if type(x) is Tracer else None for x in values])
        size = mapped[0].array.shape[mapped[0].dim]
        pairs = zip(values, dims, strict=True)
        return size, tuple([_wide(type_of(x).update(), size, dim) for x, dim in pairs]), dims
    return None


def _wide(t: ArrayType, size: int, dim: int | None) -> ArrayType:
    """Returns the type of a batch of values of a type, mapped at an axis or not at all."""
    return t if dim is None else t.update(shape=(*t.shape[:dim], size, *t.shape[dim:]))


def _axis(x: Any, mapping: Any) -> int | None:
    """Returns where the axis that a frame maps likely is in a value; None where it is not."""
    if type(x) is not Tracer:
        return None
    pending, seen = [(x.frame, x.index)], set()
    while pending:
        frame, code = pending.pop()
        if (id(frame), code) in seen or frame.depth < mapping.depth:
            continue
        seen.add((id(frame), code))
        if code < 0:
            source = frame.sources[~code]
            if frame is mapping and isinstance(source, Abstract) and source.dim is not None:
                return source.dim if len(seen) == 1 else 0
            if type(source) is Tracer:
                pending.append((source.frame, source.index))
            continue
        equation = frame.produced(code)[0]
        pending += [(frame, c) for c in equation.operands if type(c) is int]
    return None
