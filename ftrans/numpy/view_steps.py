"""Views as chains of equations: how each is read from what it is a view of, and written back to it.

A chain is found by walking the program from the view back to its base, so that making a view costs
nothing. NumPy itself says where the elements lie: it takes the same steps on an array whose
elements are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans import primitives as p
from ftrans.errors import MutationError
from ftrans.ir import Frame, Tracer, bind, type_of
from ftrans.ir.program import Params


class Step(NamedTuple):
    """Is one equation between a base and its view, whose first operand it is read from."""

    primitive: Any
    params: Params
    others: tuple[Any, ...]


def chain(base: Tracer, view: Tracer) -> list[Step] | None:
    """Returns the equations that lead from one value to another; None where there are others."""
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
        if equation.primitive not in _writers:
            return None
        first, *rest = equation.operands
        others = tuple([_operand(frame, c) if type(c) is int else c for c in rest])
        steps.append(Step(equation.primitive, equation.params, others))
        code = first
    steps.reverse()
    return steps


def _operand(frame: Frame, code: int) -> Tracer:
    if code < 0:
        return Tracer(frame, code, frame.input_types[~code])
    equation, _, first = frame.produced(code)
    return Tracer(frame, code, equation.types[code - first])


def taken(base: Any, steps: Sequence[Step]) -> Any:
    """Reads a view from its base."""
    for primitive, params, others in steps:
        (base,) = bind(primitive, (base, *others), params)
    return base


def written(name: str, base: Any, steps: Sequence[Step], view: Any) -> Any:
    """Returns the base after a view of it has been given another value.

    Raises:
        MutationError: where an element of the base stands for several of the view.
    """
    bases = [base][: len(steps)]
    for step in steps[:-1]:
        bases.append(taken(bases[-1], (step,)))
    for (primitive, params, others), old in zip(reversed(steps), reversed(bases), strict=True):
        if primitive is p.broadcast_p and type_of(old).size != type_of(view).size:
            raise MutationError(
                f"{name}: x was broadcast, so that several of its elements are one in memory.\n"
                f"  x: {type_of(view)}, broadcast from {type_of(old)}\n"
                f"  Copy it first: x = x.copy()."
            )
        view = _writers[primitive](old, view, *others, **params)
    return view


# ----------------------------------------------------------------------------- steps backwards


def written_slice(
    x: Any, value: Any, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> Any:
    """Returns `x` with `value` in the place of `slice_p(x, ...)`."""
    sizes, shape = type_of(value).shape, type_of(x).shape
    if sizes == shape:
        return value
    if all(s == 1 for s in step):
        return p.dynamic_update_slice_p(x, value, *(p.scalar(a, "int32") for a in start))
    around = padding(start, step, sizes, shape)
    here = p.broadcast_p(p.scalar(True, bool), shape=sizes, axes=())
    return p.select_p(p.pad_p(here, value=False, **around), p.pad_p(value, value=0, **around), x)


def padding(
    start: Sequence[int], step: Sequence[int], sizes: Sequence[int], shape: Sequence[int]
) -> dict[str, Any]:
    """Returns the params of `pad_p` that put what was sliced back into its place."""
    ends = zip(start, step, sizes, shape, strict=True)
    return {
        "low": tuple(start),
        "high": tuple(n - (a + s * (m - 1) + 1 if m else a) for a, s, m, n in ends),
        "interior": tuple(s - 1 for s in step),
    }


def _written_broadcast(x: Any, value: Any, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    order = sorted(axes)
    value = p.reshape_p(value, shape=tuple(shape[axis] for axis in order))
    return p.transpose_p(value, permutation=tuple(order.index(axis) for axis in axes))


def _written_places(x: Any, value: Any, indices: Any, *, in_bounds: bool, fill: Any = None) -> Any:
    return p.scatter_p(x, indices, value, in_bounds=in_bounds)


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


_writers: dict[Any, Callable[..., Any]] = {
    p.slice_p: written_slice,
    p.rev_p: lambda x, value, *, axes: p.rev_p(value, axes=axes),
    p.reshape_p: lambda x, value, *, shape: p.reshape_p(value, shape=type_of(x).shape),
    p.transpose_p: lambda x, value, *, permutation: p.transpose_p(
        value, permutation=_inverse(permutation)
    ),
    p.broadcast_p: _written_broadcast,
    p.gather_p: _written_places,
    p.real_p: lambda x, value: p.complex_p(value, p.imag_p(x)),
    p.imag_p: lambda x, value: p.complex_p(p.real_p(x), value),
}
"""For each primitive that a view can be made by: `(base, view, *others, **params) -> base`."""


# --------------------------------------------------------------------------- where elements lie


class Layout(NamedTuple):
    """Says where the elements of a view lie.

    Attributes:
        array: has the shape and the strides; its elements are never touched.
        region: shares memory with all that the view may share it with, and is `array` itself where
            that lies just there: a place that is known when the program runs may be anywhere.
        is_copy: whether NumPy would have copied on the way, which it does where a reshape finds
            no strides for what it is asked; then both are those of memory of its own.
    """

    array: np.ndarray
    region: np.ndarray
    is_copy: bool = False

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Layout:
        """Returns that of an array that is no view."""
        array = np.empty(shape, np.bool_)
        return cls(array, array)

    def after(self, steps: Sequence[Step]) -> Layout:
        """Returns that of a view of this one."""
        array, region, exact = self.array, self.region, self.array is self.region
        is_copy = False
        for primitive, params, others in steps:
            if primitive is p.gather_p:
                region, exact = array if exact else region, False
                array = _gathered(array, type_of(others[0]).shape)
                continue
            if primitive in (p.real_p, p.imag_p):  # which of them, the layout does not say
                region, exact = array if exact else region, False
            array, before = _placed(primitive, params, array), array
            if primitive is p.reshape_p and array.size and not np.may_share_memory(array, before):
                is_copy, exact, array = True, True, np.empty(array.shape, np.bool_)
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


def _gathered(array: np.ndarray, indices: tuple[int, ...]) -> np.ndarray:
    """Returns the layout of what index tuples select: the first place, or memory of its own."""
    *batch, depth = indices
    if batch or not array.size:
        return np.empty((*batch, *array.shape[depth:]), np.bool_)
    return array[(0,) * depth]


def _placed(primitive: Any, params: Params, array: np.ndarray) -> np.ndarray:
    if primitive is p.slice_p:
        ends = zip(params["start"], params["stop"], params["step"], strict=True)
        return array[tuple([slice(*end) for end in ends])]
    if primitive is p.rev_p:
        return np.flip(array, params["axes"])
    if primitive is p.reshape_p:
        return array.reshape(params["shape"])
    if primitive is p.transpose_p:
        return array.transpose(params["permutation"])
    if primitive is p.broadcast_p:
        shape, axes = params["shape"], params["axes"]
        array = array.transpose(sorted(range(len(axes)), key=axes.__getitem__))
        aligned = np.expand_dims(array, tuple(i for i in range(len(shape)) if i not in axes))
        return np.broadcast_to(aligned, shape)
    return array[...]
