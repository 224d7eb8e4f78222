"""A place in an array as a chain of steps: how it is read, how written, and where it lies.

An index is such a chain (`index_plan`), and so is what leads from an array to a view of it: that is
found by walking the program, so that making a view costs nothing. Where elements lie NumPy itself
says: it takes the same steps on an array whose elements are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans import primitives as p
from ftrans.errors import MutationError
from ftrans.ir import Frame, Tracer, bind, is_tracing, make_tracer, type_of
from ftrans.ir.program import Params
from ftrans.primitives.axes import inverse


class Step(NamedTuple):
    """Is one equation on the way to a place, whose first operand it is read from.

    Attributes:
        shape: that of its first operand.
        others: the further operands.
    """

    primitive: Any
    params: Params
    shape: tuple[int, ...]
    others: tuple[Any, ...] = ()


def chain(base: Tracer, view: Tracer) -> list[Step] | None:
    """Returns the steps that lead from one value to another; None where there are others."""
    steps: list[Step] = []
    frame: Frame = view.frame
    code: Any = view.index
    while frame is not base.frame or code != base.index:
        if code < 0:
            source = frame.sources[~code] if ~code < len(frame.sources) else None
            if type(source) is not Tracer:
                return None
            frame, code = source.frame, source.index
            continue
        equation = frame.produced(code)[0]
        if equation.primitive not in _inverses and equation.primitive not in _writers:
            return None
        first, *rest = [_operand(frame, c) if type(c) is int else c for c in equation.operands]
        if type(first) is not Tracer:
            return None
        steps.append(Step(equation.primitive, equation.params, first.type.shape, tuple(rest)))
        code = first.index
    steps.reverse()
    return steps


def _operand(frame: Frame, code: int) -> Tracer:
    if code < 0:
        return make_tracer(frame, code, frame.input_types[~code])
    equation, _, first = frame.produced(code)
    return make_tracer(frame, code, equation.types[code - first])


def taken(base: Any, steps: Sequence[Step]) -> Any:
    """Reads a place; of a plain array as NumPy does, a view where nothing has to be gathered.

    What promotes as a Python scalar does so in another shape too.
    """
    weak = type(base) is Tracer and base.weak
    for primitive, params, _, others in steps:
        if primitive in _views and isinstance(base, np.ndarray) and not is_tracing():
            base = primitive.lower(np, base, **params)
        else:
            (base,) = bind(primitive, (base, *others), params)
    return make_tracer(base.frame, base.index, base.type, weak=True) if weak and steps else base


def written(name: str, base: Any, steps: Sequence[Step], value: Any, op: str = "set") -> Any:
    """Returns an array after its elements at a place were set to a value, added to, ...

    The value is of the type of what is read there; `name` names the write, for errors: "x += v".

    Raises:
        MutationError: where an element of the array stands for several of the place.
    """
    last = max((i for i, step in enumerate(steps) if step.primitive in _writers), default=-1)
    bases = [base]
    for step in steps[:last]:
        bases.append(taken(bases[-1], (step,)))
    for i in reversed(range(len(steps))):
        primitive, params, shape, others = steps[i]
        if primitive in _writers:
            value, op = _writers[primitive](op, bases[i], value, *others, **params), "set"
            continue
        of_base = type_of(base).update(shape=shape)
        if primitive is p.broadcast_p and of_base.size != type_of(value).size:
            raise MutationError(
                f"{name}: x was broadcast, so that several of its elements are one in memory.\n"
                f"  x: {type_of(value)}, broadcast from {of_base}\n"
                f"  Copy it first: x = x.copy()."
            )
        value = _inverses[primitive](value, shape, **params)
    return updates[op](base, value)


# ----------------------------------------------------------------------------- steps backwards

updates: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda x, v: v,
    "add": p.add_p,
    "mul": p.mul_p,
    "min": p.minimum_p,
    "max": p.maximum_p,
}
"""What a write makes of the elements of an array and of those that are given."""

_scatters = {
    "set": p.scatter_p,
    "add": p.scatter_add_p,
    "mul": p.scatter_mul_p,
    "min": p.scatter_min_p,
    "max": p.scatter_max_p,
}


def _write_slice(op: str, x: Any, value: Any, **window: Any) -> Any:
    start, step = window["start"], window["step"]
    sizes, shape = type_of(value).shape, type_of(x).shape
    ends = list(zip(start, step, sizes, shape, strict=True))
    around = {  # the params that put what was sliced back into its place
        "low": tuple(start),
        "high": tuple(n - (a + s * (m - 1) + 1 if m else a) for a, s, m, n in ends),
        "interior": tuple(s - 1 for s in step),
    }
    if op == "add":
        return p.add_p(x, p.pad_p(value, value=0, **around))
    if op != "set":
        value = updates[op](p.slice_p(x, **window), value)
    if all(s == 1 for s in step):
        return p.dynamic_update_slice_p(x, value, *(p.scalar(a, "int32") for a in start))
    here = p.broadcast_p(p.scalar(True, bool), shape=sizes, axes=())
    return p.select_p(p.pad_p(here, value=False, **around), p.pad_p(value, value=0, **around), x)


def _write_places(op: str, x: Any, value: Any, places: Any, *, in_bounds: bool, **_: Any) -> Any:
    return _scatters[op](x, places, value, in_bounds=in_bounds)


_writers: dict[Any, Callable[..., Any]] = {
    p.slice_p: _write_slice,
    p.gather_p: _write_places,
    p.real_p: lambda op, x, value: p.complex_p(value, p.imag_p(x)),
    p.imag_p: lambda op, x, value: p.complex_p(p.real_p(x), value),
    # the derivatives are not in that place: what is written there leaves them as they were
    p.stop_gradient_p: lambda op, x, value: p.graft_p(value, x),
}
"""For each primitive that reads a part: `(op, base, value, *others, **params) -> base`."""


def _undo_broadcast(value: Any, _: Any, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    order = sorted(axes)
    value = p.reshape_p(value, shape=tuple(shape[axis] for axis in order))
    return p.transpose_p(value, permutation=tuple(order.index(axis) for axis in axes))


_inverses: dict[Any, Callable[..., Any]] = {
    p.rev_p: lambda value, _, *, axes: p.rev_p(value, axes=axes),
    p.reshape_p: lambda value, base, *, shape: p.reshape_p(value, shape=base),
    p.transpose_p: lambda value, _, *, permutation: p.transpose_p(
        value, permutation=inverse(permutation)
    ),
    p.broadcast_p: _undo_broadcast,
}
"""For each primitive that reads all elements: `(value, shape of the base, **params) -> base`."""


# --------------------------------------------------------------------------- where elements lie


_views = frozenset(
    (p.slice_p, p.rev_p, p.reshape_p, p.transpose_p, p.broadcast_p, p.real_p, p.imag_p)
)
"""Those that NumPy makes a view by, which `lower` is; but a reshape may have to copy."""


class Layout(NamedTuple):
    """Says where the elements of a view lie.

    Attributes:
        array: has the type and the strides; its elements are never touched.
        region: shares memory with all that the view may share it with, and is `array` itself where
            that lies just there: a place that is known when the program runs may be anywhere.
        is_copy: whether NumPy would have copied on the way, which it does where a reshape finds
            no strides for what it is asked; then both are those of memory of its own.
    """

    array: np.ndarray
    region: np.ndarray
    is_copy: bool = False

    def after(self, steps: Sequence[Step]) -> Layout:
        """Returns that of a view of this one."""
        array, region, exact = self.array, self.region, self.array is self.region
        is_copy = False
        for primitive, params, _, others in steps:
            if primitive is p.gather_p:
                region, exact = array if exact else region, False
                array = _gathered(array, type_of(others[0]).shape)
                continue
            array, before = primitive.lower(np, array, **params), array
            if primitive is p.reshape_p and array.size and not np.may_share_memory(array, before):
                is_copy, exact, array = True, True, np.empty(array.shape, array.dtype)
        return Layout(array, array if exact else region, is_copy)

    def overlaps(self, other: Layout) -> bool:
        """Tells whether the two may have elements in common."""
        try:
            return np.shares_memory(self.region, other.region, max_work=10_000)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True

    def is_same(self, array: np.ndarray) -> bool:
        """Tells whether another array has just the same elements in the same places."""
        mine, other = self.array.__array_interface__, array.__array_interface__
        same = self.array is self.region and mine["data"] == other["data"]
        return same and array.shape == self.array.shape and array.strides == self.array.strides


def _gathered(array: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    """Returns the layout of what index tuples select: the first place, or memory of its own."""
    *batch, depth = places
    if batch or not array.size:
        return np.empty((*batch, *array.shape[depth:]), array.dtype)
    return array[(0,) * depth]
