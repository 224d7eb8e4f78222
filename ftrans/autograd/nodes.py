"""The graph as PyTorch shows it: a node for each operation, made when it is looked at."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ftrans.autograd.anomaly import is_anomaly_enabled
from ftrans.autograd.apart import open_up
from ftrans.autograd.hooks import RemovableHandle
from ftrans.autograd.parts import Part, parts, required
from ftrans.autograd.saved import SavedTensor, freed
from ftrans.autograd.segment import Edge, NodeHooks, Segment
from ftrans.autograd.tape import settle
from ftrans.autograd.tensor import Tensor, made
from ftrans.autograd.walk import Walk
from ftrans.errors import ArgumentError, GraphError, MissingAttributeError
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
        found = self._hooks().metadata
        place = self._part.location if isinstance(self, Operation) else None
        if is_anomaly_enabled() and place is not None:
            found["traceback_"] = [f"{place}\n", f"  {place.source}\n"]
        return found

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Has a function called once the node has computed gradients.

        Args:
            hook: takes the gradients of the operands, and those of the results, two tuples; it
                returns others in the place of the first, or None.

        Returns:
            A handle, by which the hook can be removed.
        """
        return RemovableHandle(self._hooks().after, hook)

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

    __slots__ = ("_index", "_segment")

    _segment: Segment
    _index: int

    @property
    def _part(self) -> Part:
        return parts(self._segment.whole)[self._index]

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each operand the node that made it, and which of its results it is."""
        return tuple([_behind(self._segment, number) for number in self._part.takes])

    def _own(self) -> Segment:
        """Returns the segment of this operation alone."""
        found = open_up(self._segment)[self._index]
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
            ArgumentError: where there is not one gradient for each result.
        """
        own = self._own()
        if len(gradients) != len(own.program.outputs):
            raise ArgumentError(
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

    def _sequence_nr(self) -> float:
        """Returns a number that is larger for what was recorded later."""
        return self._segment.number + self._index / len(parts(self._segment.whole))

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
        return (self._segment, self._index) == (other._segment, other._index)

    def __hash__(self) -> int:
        return hash((self._segment, self._index))


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


def _operation(segment: Segment, index: int) -> Operation:
    node = _nodes.get((id(segment), index))
    if node is None:
        node = object.__new__(_kind(_shown_name(parts(segment.whole)[index])))
        node._segment, node._index = segment, index
        node = _nodes.setdefault((id(segment), index), node)
    return node  # type: ignore[no-any-return]


def node_of(target: Any) -> tuple[Node | None, int]:
    """Returns the node that a gradient is for, and which of its results; None where there is none.

    Args:
        target: a leaf, an `Edge`, or None.
    """
    if not isinstance(target, Edge):
        return (None if target is None else leaf_node(target)), 0
    segment, position = target
    return _behind(segment, segment.whole.outputs[position])


def _behind(segment: Segment, number: Any) -> tuple[Node | None, int]:
    """Returns the node that made a value of a segment, and which of its results that is."""
    whole = segment.whole
    if type(number) is not int or number not in required(whole, _active(segment)):
        return None, 0
    if number < len(whole.inputs):
        return node_of(_targets(segment)[number])
    for index, part in enumerate(parts(whole)):
        if number in part.gives:
            return _operation(segment, index), part.gives.index(number)
    raise AssertionError(f"no operation gives value {number}")


def _targets(segment: Segment) -> Any:
    return segment.targets if segment.origins is None else segment.origins


def _active(segment: Segment) -> tuple[bool, ...]:
    return tuple([target is not None for target in _targets(segment)])


def edge_of(node: Node, index: int) -> Any:
    """Returns what a gradient for a result of a node is for: a leaf, or an `Edge`."""
    if isinstance(node, AccumulateGrad):
        return node.variable
    assert isinstance(node, Operation)
    segment, number = node._segment, node._part.gives[index]
    outputs = segment.whole.outputs
    if number in outputs:
        return Edge(segment, outputs.index(number))
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
        GraphError: where it does not.
    """
    if not tensor.requires_grad:
        raise GraphError(
            f"It is not possible to get the gradient edge for a Tensor that does not require "
            f"gradients.\n  tensor: {tensor._type}"
        )
    settle(tensor)
    node, index = node_of(tensor._target())
    assert node is not None
    return GradientEdge(node, index)


# ------------------------------------------------------------------------------------------ names

_TORCH = {
    "absolute": "Abs", "arccos": "Acos", "arcsin": "Asin", "arctan": "Atan", "astype": "ToCopy",
    "concatenate": "Cat", "copy": "Clone", "divide": "Div", "expand_dims": "Unsqueeze",
    "multiply": "Mul", "negative": "Neg", "power": "Pow", "subtract": "Sub", "true_divide": "Div",
    "float_power": "Pow", "swapaxes": "Transpose", "reshape": "View", "getitem": "Index",
    "mT": "Transpose", "setitem": "IndexPut", "T": "Permute", "broadcast_to": "Expand",
    "take_along_axis": "Gather",
}  # fmt: skip
"""PyTorch's names of functions that have others here."""

_WHOLE = {"_put": "CopySlices", "copy_": "CopyBackwards"}
_BY_RANK: dict[tuple[int, ...], str] = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (3, 3): "Bmm"}


def _shown_name(part: Part) -> str:
    """Returns the name of the node of an operation."""
    first = part.program.equations[0]
    if "custom" in first.primitive.tags and "spec" in first.params:
        return f"{first.params['spec']}Backward"
    if part.name == "matmul":
        ranks = tuple([t.ndim for t in part.program.inputs[:2]])
        return f"{_BY_RANK.get(ranks, 'Matmul')}Backward0"
    if part.name in _WHOLE:
        return _WHOLE[part.name]
    called = first.primitive.name if part.name in ("", "<lambda>") else part.name
    words = [word[:1].upper() + word[1:] for word in re.split(r"\W+|_+", called)]
    return f"{_TORCH.get(called) or ''.join(words)}Backward0"


@functools.cache
def _kind(name: str) -> type[Operation]:
    return type(name, (Operation,), {"__slots__": ()})
