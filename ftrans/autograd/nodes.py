"""The graph as PyTorch shows it: a node for each operation, made when it is looked at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ftrans.autograd.anomaly import is_anomaly_enabled
from ftrans.autograd.apart import open_up
from ftrans.autograd.creation import tensor
from ftrans.autograd.hooks import RemovableHandle
from ftrans.autograd.parts import Part, parts, required
from ftrans.autograd.saved import SavedTensor, freed
from ftrans.autograd.segment import Edge, NodeHooks, Segment, current
from ftrans.autograd.tape import settle
from ftrans.autograd.tensor import Tensor, check_tensor, made
from ftrans.autograd.walk import Walk, deliver
from ftrans.errors import ArgumentError, GraphError, MissingAttributeError, StructureError
from ftrans.ir import ArrayType
from ftrans.ir.location import node_name
from ftrans.ir.stack import state
from ftrans.traceback import boundary

Hook = Callable[..., Any]


class Node:
    """Is a node of the graph: an operation, or a leaf in which gradients are accumulated.

    Two nodes are equal where they are the same operation.
    """

    __slots__ = ("__weakref__",)

    def name(self) -> str:
        """Returns the name, that of PyTorch where it has the operation: "MulBackward0"."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand the node that made it, and which of its results it is."""
        raise NotImplementedError

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for whoever looks at the graph; it lives as long as that.

        In anomaly mode it says where the operation was recorded, as `"traceback_"`.
        """
        return self._hooks().metadata

    @boundary
    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Has a function called once the node has computed gradients.

        Args:
            hook: takes the gradients of the operands, and those of the results, two tuples; it
                returns others in the place of the first, or None.

        Returns:
            A handle, by which the hook can be removed.
        """
        return RemovableHandle(self._hooks().after, hook)

    @boundary
    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Has a function called before the node computes gradients.

        Args:
            hook: takes the gradients of the results, a tuple; it returns others, or None.

        Returns:
            A handle, by which the hook can be removed.
        """
        return RemovableHandle(self._hooks().before, hook)

    def _hooks(self) -> NodeHooks:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"


def _gradient(x: Any) -> Any:
    return x if x is None or type(x) is Tensor else tensor(x)


class AccumulateGrad(Node):
    """Is the node of a leaf.

    Attributes:
        variable: the leaf.
    """

    __slots__ = ("variable",)

    variable: Tensor

    def name(self) -> str:
        """Returns PyTorch's name of such nodes."""
        return "torch::autograd::AccumulateGrad"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Nothing: a leaf was not made by an operation."""
        return ()

    def __call__(self, gradient: Any) -> None:
        """Accumulates a gradient in the leaf."""
        walk = Walk(f"{self.name()}()", None, state.grad)
        deliver(walk, self.variable, walk.taken_from_user(_gradient(gradient)))

    def _sequence_nr(self) -> int:
        """Returns a number that is larger than those of all operations."""
        return 2**64 - 1

    @property
    def _input_metadata(self) -> tuple[ArrayType, ...]:
        return (self.variable._type,)

    def _hooks(self) -> NodeHooks:
        meta = self.variable._metadata()
        if meta.node is None:
            meta.node = NodeHooks()
        return meta.node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return id(self.variable)


class Operation(Node):
    """Is the node of an operation. Its class has the operation's name.

    To be called, to have hooks, or to show what it has saved, it is run by itself: the segment that
    it is part of is split into its operations.
    """

    __slots__ = ("_part", "_segment", "place")

    _segment: Segment
    """What it was recorded in, or its own."""
    _part: Part
    place: tuple[float, int]
    """The number of what it was recorded in, and which operation of that it is."""

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand the node that made it, and which of its results it is."""
        takes, segment = self._part.takes, self._segment
        if segment.operation is None:
            return tuple([_behind(segment, number) for number in takes])
        targets = iter(segment.targets)
        return tuple([(None, 0) if a is None else node_of(next(targets)) for a in takes])

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
        found = open_up(self._segment)[self.place[1]]
        assert found is not None
        return found

    def _hooks(self) -> NodeHooks:
        own = self._own()
        if own.node is None:
            own.node = NodeHooks([a is not None for a in self._part.takes])
        return own.node

    @boundary
    def __call__(self, *gradients: Any) -> Any:
        """Applies the derivative of the operation to gradients of its results.

        Returns:
            The gradient of the operand, or of all of them, in a tuple.

        Raises:
            StructureError: where there is not one gradient for each result.
        """
        own = self._own()
        gradients = tuple([_gradient(x) for x in gradients])
        if len(gradients) != len(own.program.outputs):
            raise StructureError(
                f"{self.name()}: it takes a gradient for each result.\n"
                f"  results: {len(own.program.outputs)}\n  gradients: {len(gradients)}"
            )
        walk = Walk(f"{self.name()}()", None, state.grad)
        given = {i: walk.taken_from_user(ct) for i, ct in enumerate(gradients) if ct is not None}
        found = iter([ct for _, ct in walk.pulled(own, (), given, False)])
        cts = [None if target is None else next(found, None) for target in own.targets]
        tensors = iter([None if ct is None else walk.seen_by_user(ct) for ct in cts])
        shown = tuple([None if a is None else next(tensors) for a in self._part.takes])
        return shown[0] if len(shown) == 1 else shown

    def _sequence_nr(self) -> int:
        """Returns a number that is larger for what was recorded later."""
        return round(self.place[0] * 1e6) + self.place[1]

    @property
    def _input_metadata(self) -> tuple[ArrayType, ...]:
        program = self._part.program
        return tuple(map(program.type_of, program.outputs))

    @property
    @boundary
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What a `Function` has saved, or what an operation has."""
        return tuple([value.unpack() for value in self._saved()])

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        return tuple(self._saved())

    def _saved(self) -> list[SavedTensor]:
        own = self._own()
        if own.saved is None:
            raise freed()
        return list(own.saved)

    @boundary
    def __getattr__(self, name: str) -> Any:
        for start in ("_raw_saved_", "_saved_"):
            if name.startswith(start):
                for value in self._saved():
                    if value.name == name.removeprefix(start):
                        return value if start == "_raw_saved_" else value.unpack()
        there = [f"_saved_{x.name}" for x in self._saved()] if name.startswith("_saved") else []
        raise MissingAttributeError(
            f"{self.name()} has no attribute {name!r}."
            + (f"\n  It has saved: {', '.join(there) or 'nothing'}" if there else "")
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operation):
            return NotImplemented
        return self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)


# ------------------------------------------------------------------------------------------ finding

_nodes: WeakValueDictionary[Any, Any] = WeakValueDictionary()
"""The nodes that somebody has; they keep alive what they are found by."""


def leaf_node(leaf: Tensor) -> AccumulateGrad:
    """Returns the node of a leaf."""
    node = _nodes.get(id(leaf))
    if node is None:
        node = object.__new__(AccumulateGrad)
        node.variable = leaf
        node = _nodes.setdefault(id(leaf), node)
    return node  # type: ignore[no-any-return]


def _operation(segment: Segment, part: Part, place: tuple[float, int]) -> Operation:
    node = _nodes.get(place)
    if node is None:
        node = object.__new__(_kind(_shown_name(part)))
        node._segment, node._part, node.place = segment, part, place
        node = _nodes.setdefault(place, node)
    return node  # type: ignore[no-any-return]


def node_of(target: Any) -> tuple[Node | None, int]:
    """Returns the node that a gradient is for, and which of its results; None where there is none.

    Args:
        target: a leaf, an `Edge`, or None.
    """
    target = current(target)
    if not isinstance(target, Edge):
        return (None if target is None else leaf_node(target)), 0
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
    for index, part in enumerate(parts(program)):
        if number in part.gives:
            place = segment.number, index
            return _operation(segment, part, place), part.gives.index(number)
    raise AssertionError(f"no operation gives value {number}")


def target_of(x: Tensor) -> Any:
    """Returns what a gradient of a tensor is for, once it has a value: a leaf, an `Edge`, None."""
    settle(x)
    return x._target()


def edge_of(node: Node, index: int) -> Any:
    """Returns what a gradient for a result of a node is for: a leaf, or an `Edge`."""
    if isinstance(node, AccumulateGrad):
        return node.variable
    if not isinstance(node, Operation) or not 0 <= index < len(node._part.gives):
        raise ArgumentError(
            f"GradientEdge: there is no result {index} of "
            f"{node.name() if isinstance(node, Node) else repr(node)}.\n"
            f"  Take an edge from get_gradient_edge(x), or of next_functions."
        )
    segment, number = node._segment, node._part.gives[index]
    outputs = segment.program.outputs
    if segment.operation is None and number in outputs:
        return current(Edge(segment, outputs.index(number)))
    return Edge(node._own(), index)


class GradientEdge(NamedTuple):
    """Says where the gradient of a tensor goes: to a result of a node.

    Attributes:
        node: the node.
        output_nr: which of its results.
        ownership_token: is for the sake of code for PyTorch.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


def standing_for(edge: GradientEdge) -> Tensor:
    """Returns the leaf that an edge is of, or a tensor without a value for the engine."""
    target = edge_of(*edge[:2])
    if not isinstance(target, Edge):
        return target  # type: ignore[no-any-return]
    segment, position = target
    if segment.operation is None and position not in segment.known() and segment.operands:
        open_up(segment)  # its value may be asked for, to differentiate by it
        target = current(target)
    program = target.segment.program
    x = made(None, 0, program.type_of(program.outputs[target.position]))
    x._metadata().edge = target
    return x


@boundary
def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Returns where the gradient of a tensor goes; it stays so if the tensor is written to.

    Args:
        tensor: a tensor that requires grad.

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


# ------------------------------------------------------------------------------------------ names

_WHOLE = {"_put": "torch::autograd::CopySlices", "copy_": "CopyBackwards"}
_BY_RANK: dict[tuple[int, ...], str] = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (3, 3): "Bmm"}


def _shown_name(part: Part) -> str:
    """Returns the name of the node of an operation."""
    equations = part.program.equations
    rules = [e for e in equations if part.name == "apply" and "custom" in e.primitive.tags]
    first = rules[0] if rules else equations[0]
    if "custom" in first.primitive.tags and "spec" in first.params:
        return f"{first.params['spec']}Backward"
    if part.name == "matmul":
        ranks = tuple([t.ndim for t in part.program.inputs[:2]])
        return f"{_BY_RANK.get(ranks, 'Matmul')}Backward0"
    if part.name in _WHOLE:
        return _WHOLE[part.name]
    called = first.primitive.name if part.name in ("", "<lambda>") else part.name
    return f"{node_name(called)}Backward0"


@functools.cache
def _kind(name: str) -> type[Operation]:
    return type(name, (Operation,), {"__slots__": ()})
