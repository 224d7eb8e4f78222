"""The graph as PyTorch shows it: a node for each operation, made when it is looked at."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ftrans.autograd.apart import open_up
from ftrans.autograd.creation import tensor
from ftrans.autograd.hooks import RemovableHandle
from ftrans.autograd.saved import SavedTensor, freed
from ftrans.autograd.segment import Edge, NodeHooks, Segment, current
from ftrans.autograd.tape import settle
from ftrans.autograd.tensor import Tensor, check_tensor, made
from ftrans.autograd.walk import Walk, deliver
from ftrans.errors import ArgumentError, GraphError, MissingAttributeError, StructureError
from ftrans.interpreters.dependence import required
from ftrans.interpreters.node_names import listed, name_of_part, settings
from ftrans.interpreters.parts import Part, parts
from ftrans.ir import ArrayType
from ftrans.ir.stack import state
from ftrans.primitives.control.common import present, spread
from ftrans.runtime.anomaly_mode import is_anomaly_enabled
from ftrans.runtime.device import Device, device_of
from ftrans.traceback import boundary

Hook = Callable[..., Any]


class InputMetadata(NamedTuple):
    """Says what the gradient of a result of a node is."""

    shape: tuple[int, ...]
    dtype: Any
    device: Device


def _metadata(types: Iterable[ArrayType], target: Any) -> tuple[InputMetadata, ...]:
    """Returns that of results of some types; they lie where a leaf does that they depend on."""
    while isinstance(target, Edge):
        target = next(to for to in target.segment.targets if to is not None)
    device = device_of(settle(target))
    return tuple([InputMetadata(t.shape, t.dtype, device) for t in types])


class Node:
    """Is a node of the graph: an operation, or a leaf in which gradients are accumulated."""

    __slots__ = ("__weakref__",)

    def name(self) -> str:
        """Returns the name, that of PyTorch where it has the operation: "MulBackward0"."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand the node that made it, and which of its results it is."""
        return ()

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whoever looks at the graph; it lives as long as that.

        In anomaly mode it says where the operation was recorded, as `"traceback_"`.
        """
        return self._hooks().metadata

    @boundary
    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Has a function called after the node computes gradients; returns a handle to remove it.

        Args:
            hook: takes the gradients of the operands, and those of the results, two tuples; it
                returns others in the place of the first, or None.
        """
        return RemovableHandle(self._hooks().after, hook)

    @boundary
    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Has a function called before the node computes gradients; returns a handle to remove it.

        Args:
            hook: takes the gradients of the results, a tuple; it returns others, or None.
        """
        return RemovableHandle(self._hooks().before, hook)

    def _hooks(self) -> NodeHooks:
        holder = self._own()
        holder.node = holder.node or NodeHooks()
        return holder.node  # type: ignore[no-any-return]

    def _own(self) -> Any:
        """Returns what holds what somebody has added to the node."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


class AccumulateGrad(Node):
    """Is the node of a leaf, its `variable`."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor):
        self.variable = variable

    def name(self) -> str:
        """Returns PyTorch's name of such nodes."""
        return "torch::autograd::AccumulateGrad"

    def __call__(self, gradient: Any) -> None:
        """Accumulates a gradient in the leaf."""
        walk = Walk(f"{self.name()}()", None, state.grad)
        deliver(walk, self.variable, _taken(walk, gradient))

    def _sequence_nr(self) -> int:
        """Returns a number that is larger than those of all operations."""
        return 2**64 - 1

    _input_metadata = property(lambda self: _metadata((self.variable._type,), self.variable))

    def _own(self) -> Any:
        return self.variable._metadata()


class Operation(Node):
    """Is the node of an operation. Its class has the operation's name.

    To be called, to have hooks, or to show what it has saved, it is run by itself: the segment that
    it is part of is split into its operations.

    Args:
        segment: what it was recorded in, or its own.
        part: what it does there.
        place: the number of what it was recorded in, and which operation of that it is.
    """

    __slots__ = ("_part", "_place", "_segment")

    def __init__(self, segment: Segment, part: Part, place: tuple[float, int]):
        self._segment, self._part, self._place = segment, part, place

    def name(self) -> str:
        """Returns the name, that of PyTorch where it has the operation: "MulBackward0"."""
        return name_of_part(self._part)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand the node that made it, and which of its results it is."""
        takes, segment = self._part.takes, self._segment
        if segment.operation is None:
            return tuple([_behind(segment, takes[i]) for i in listed(self._part)])
        targets = spread(segment.targets, present(takes))
        return tuple([node_of(targets[i]) for i in listed(self._part)])

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whoever looks at the graph; see `Node`."""
        found, place = self._hooks().metadata, self._part.location
        if is_anomaly_enabled() and place is not None:
            found["traceback_"] = [f"{place}\n", f"  {place.source}\n"]
        return found

    def _own(self) -> Segment:
        """Returns the segment of this operation alone."""
        if self._segment.operation is not None:
            return self._segment
        return open_up(self._segment)[self._place[1]]  # type: ignore[return-value]

    @boundary
    def __call__(self, *gradients: Any) -> Any:
        """Returns the gradient of the operand, or of all in a tuple, from those of the results.

        Raises:
            StructureError: where there is not one gradient for each result.
        """
        own = self._own()
        if len(gradients) != self._part.results:
            raise StructureError(
                f"{self.name()}: it takes a gradient for each result.\n"
                f"  results: {self._part.results}\n  gradients: {len(gradients)}"
            )
        walk = Walk(f"{self.name()}()", None, state.grad)
        given = {i: _taken(walk, x) for i, x in enumerate(gradients) if x is not None}
        found = [walk.seen_by_user(ct) for _, ct in walk.pulled(own, (), given)]
        cts = spread(found or [None] * len(own.targets), present(self._part.takes))
        shown = tuple([cts[i] for i in listed(self._part)])
        return shown[0] if len(shown) == 1 else shown

    def _sequence_nr(self) -> int:
        """Returns a number that is larger for what was recorded later."""
        return round(self._place[0] * 1e6) + self._place[1]

    @property
    def _input_metadata(self) -> Any:
        types = self._part.program.output_types[: self._part.results]
        return _metadata(types, Edge(self._segment, 0))

    @property
    @boundary
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What a `Function` has saved, or what an operation has."""
        return tuple([value.unpack() for value in self._raw_saved_tensors])

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        saved = self._own().saved
        if saved is None:
            raise freed()
        return tuple(saved)

    @boundary
    def __getattr__(self, name: str) -> Any:
        if name[0] != "_" and hasattr(self._segment.ctx, name):  # which it is, in PyTorch
            return getattr(self._segment.ctx, name)
        text = f"{self.name()} has no attribute {name!r}."
        if name.startswith(("_saved_", "_raw_saved_")):
            key, known = name.removeprefix("_saved_"), settings(self._part)
            if known.get(key) is not None:
                return tensor(known[key]) if isinstance(known[key], np.ndarray) else known[key]
            values = self._raw_saved_tensors
            for value in values:
                if name in (f"_saved_{value.name}", f"_raw_saved_{value.name}"):
                    return value if name.startswith("_raw") else value.unpack()
            if key in known:
                return None
            there = ", ".join([f"_saved_{value.name}" for value in values])
            text += f"\n  It has saved: {there or 'nothing'}"
        raise MissingAttributeError(text)


def _taken(walk: Walk, x: Any) -> Any:
    """Returns the gradient that a node is called with, as a walk has it."""
    return walk.taken_from_user(x if x is None or type(x) is Tensor else tensor(x))


# ------------------------------------------------------------------------------------------ finding

_nodes: WeakValueDictionary[Any, Any] = WeakValueDictionary()
"""The nodes that somebody has; they keep alive what they are found by."""
_making = threading.RLock()


def _the(kind: type[Node], key: Any, *about: Any) -> Any:
    """Returns the one node that is found by a key."""
    with _making:  # `setdefault` of a weak dictionary is not atomic
        return _nodes.get(key) or _nodes.setdefault(key, kind(*about))


def _operation(segment: Segment, part: Part, place: tuple[float, int]) -> Operation:
    return _the(_kind(name_of_part(part)), place, segment, part, place)  # type: ignore


def node_of(target: Any) -> tuple[Node | None, int]:
    """Returns the node of a leaf, an `Edge` or None, which has none, and which of its results."""
    target = current(target)
    if not isinstance(target, Edge):
        return None if target is None else _the(AccumulateGrad, id(target), target), 0
    segment, position = target
    if segment.operation is not None:
        assert segment.place is not None
        return _operation(segment, segment.operation, segment.place), position
    return _behind(segment, segment.program.outputs[position])


def _behind(segment: Segment, number: Any) -> tuple[Node | None, int]:
    """Returns the node that made a value of a segment, and which of its results that is."""
    program = segment.program
    if type(number) is not int or number not in required(program, segment.active):
        return None, 0
    if number < len(program.inputs):
        return node_of(segment.targets[number])
    index, part = next((i, p) for i, p in enumerate(parts(program)) if number in p.gives)
    return _operation(segment, part, (segment.number, index)), part.gives.index(number)


def target_of(x: Tensor) -> Any:
    """Returns what a gradient of a tensor is for, once it has a value: a leaf, an `Edge`, None."""
    settle(x)
    return x._target()


class GradientEdge(NamedTuple):
    """Says where the gradient of a tensor goes: to a node, and which result of it."""

    node: Node
    output_nr: int
    ownership_token: Any = None  # for the sake of code for PyTorch


def standing_for(edge: GradientEdge) -> Tensor:
    """Returns the leaf that an edge is of, or a tensor without a value for the engine."""
    node, index, *_ = edge
    if isinstance(node, AccumulateGrad):
        return node.variable
    if not isinstance(node, Operation) or not 0 <= index < node._part.results:
        raise ArgumentError(
            f"GradientEdge: there is no result {index} of "
            f"{node.name() if isinstance(node, Node) else repr(node)}.\n"
            f"  Take an edge from get_gradient_edge(x), or of next_functions."
        )
    segment, number = node._segment, node._part.gives[index]
    outputs = segment.program.outputs
    at = outputs.index(number) if segment.operation is None and number in outputs else None
    if at is None or (segment.operands and at not in segment.known()):
        target = Edge(node._own(), index)  # its value may be asked for, to differentiate by it
    else:
        target = current(Edge(segment, at))
    program = target.segment.program
    x = made(None, 0, program.type_of(program.outputs[target.position]))
    x._edge = target
    return x


@boundary
def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns where the gradient of a tensor goes; it stays so if the tensor is written to.

    Raises:
        ArgumentError: where it is no tensor.
        GraphError: where it does not require grad.
    """
    check_tensor("get_gradient_edge", "it", tensor)
    if not tensor.requires_grad:
        raise GraphError(
            f"It is not possible to get the gradient edge for a Tensor that does not require "
            f"gradients.\n  tensor: {tensor._type}"
        )
    node, index = node_of(target_of(tensor))
    assert node is not None
    return GradientEdge(node, index)


@functools.cache
def _kind(name: str) -> type[Operation]:
    return type(name.rpartition(":")[2], (Operation,), {"__slots__": ()})
