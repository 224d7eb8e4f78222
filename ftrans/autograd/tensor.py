"""The tensor: a name for a value, which is an array, or pending in a tape.

Operators, methods and properties are attached from tables, in `methods.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import numpy as np

from ftrans.errors import ArgumentError, DTypeError, GraphError, UnsupportedError
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.stack import state
from ftrans.ir.trail import Trail
from ftrans.traceback import boundary

STALE = object()
"""Is the value of a view whose base was written to, until it is made again."""


class Meta:
    """Is what few tensors have: those that are leaves, views, and results that were looked at.

    Attributes:
        leaf: whether it is a leaf that requires grad.
        inference: whether it was made in inference mode.
        grad: the gradient that was accumulated.
        hooks: what is called with the gradient of a leaf, in order, by handle.
        after: what is called with a leaf once its gradient was accumulated.
        retains: whether a result keeps its gradient.
        of: what this is a view of; a weak reference to what has a history, where it is detached,
            since a value without its history is to keep none alive.
        get: makes the view of its parent; `None` where this is none.
        fixed: why a view is not to be written to.
        detached: whether what is written to the view leaves the graph of its parent as it is.
        views: weak references to the views of this.
        version: how often it was written to.
        node: the hooks of a leaf as a node of the graph; None where it has none.
    """

    __slots__ = (
        "after", "detached", "fixed", "get", "grad", "hooks", "inference", "leaf", "node", "of",
        "retains", "version", "views",
    )  # fmt: skip

    def __init__(self) -> None:
        self.leaf = False
        self.inference = False
        self.grad: Tensor | None = None
        self.hooks: dict[int, Callable[..., Any]] = {}
        self.after: dict[int, Callable[..., Any]] = {}
        self.retains = False
        self.of: Any = None
        self.get: Callable[[Any], Any] | None = None
        self.fixed: str | None = None
        self.detached = False
        self.views: list[ref[Tensor]] = []
        self.version = 0
        self.node: Any = None

    @property
    def parent(self) -> Tensor | None:
        """What this is a view of, if that is still there."""
        return self.of() if type(self.of) is ref else self.of  # type: ignore[no-any-return]


class _Kind(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return type(x) is cls or (type(x) is Tracer and state.of_tensors)


@final
class Tensor(metaclass=_Kind):
    """Is PyTorch's tensor: a value that can be named, written to, and differentiated backwards.

    It is made by `tensor`, `as_tensor`, `from_numpy`, or by operations on tensors.
    """

    __slots__ = ("__dict__", "__weakref__", "_edge", "_index", "_meta", "_type", "_v")

    _v: Any
    """An array that nobody writes to, the `Tape` in which the value is pending, or `STALE`."""
    _index: int
    """The value, where it is pending, as `Tracer.index` is one of a tracer."""
    _type: ArrayType
    _edge: Any
    """Where a value that is there comes from, if that requires grad: a result of a `Segment`."""
    _meta: Meta | None

    __hash__ = object.__hash__

    def __new__(cls, *data: Any, **options: Any) -> Tensor:
        """Is what `ftrans.torch` replaces by PyTorch's old constructor."""
        raise UnsupportedError(
            "Tensor: a tensor is made of data by ftrans.tensor, ftrans.as_tensor or "
            "ftrans.from_numpy."
        )

    def _metadata(self) -> Meta:
        """Returns what this tensor has besides its value, to be changed."""
        if self._meta is None:
            self._meta = Meta()
        return self._meta

    def _settle(self, array: Any, edge: Any) -> None:
        """Gives a pending tensor its value, and says where it comes from."""
        if self._meta is None or not self._meta.leaf:
            self._edge = edge
        self._v = array

    def _target(self) -> Any:
        """Returns what the cotangent of a value that is there is for: a leaf, an edge or None."""
        edge = self._edge
        if self._meta is not None and self._meta.leaf:
            return self
        if edge is not None and edge.segment.moved is not None:
            self._edge = edge.segment.moved[edge.position]
            return self._target()
        return edge

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it: gradients are accumulated in leaves."""
        return bool(self._meta and self._meta.leaf) or not self.requires_grad

    @property
    def requires_grad(self) -> bool:
        """Whether gradients go through it; may be set where it is a leaf."""
        meta = self._meta
        if meta is not None and meta.leaf:
            return True
        if self._v is STALE:
            assert meta is not None
            assert meta.parent is not None
            return meta.parent.requires_grad and not meta.detached
        if isinstance(self._v, Trail):
            return self._v.requires(self._index)  # type: ignore[attr-defined]
        return self._edge is not None

    @requires_grad.setter
    @boundary
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @boundary
    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Says of a leaf whether gradients are accumulated in it; returns it.

        Raises:
            GraphError: where it is no leaf.
            DTypeError: where it is not of floating point.
        """
        if not self.is_leaf:
            if requires_grad:
                return self
            raise GraphError(
                f"requires_grad_(False): only leaves can be told not to require grad; this is the "
                f"result of an operation.\n  tensor: {self._type}\n"
                f"  Take x.detach(), which is the same value without its history."
            )
        if requires_grad and not self._type.is_inexact:
            raise DTypeError(
                f"requires_grad: only tensors of floating point and complex numbers have gradients."
                f"\n  tensor: {self._type}\n  Convert it: x.to('float32')."
            )
        if requires_grad or self._meta is not None:
            if isinstance(self._v, Trail):
                self._v.finish(self)  # type: ignore[attr-defined]  # a leaf is an input
            self._metadata().leaf = bool(requires_grad)
            forget(self)
        return self

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def check_tensor(call: str, what: str, x: Any, hint: str = "") -> None:
    """Raises an `ArgumentError` where an argument is no tensor."""
    if type(x) is not Tensor:
        raise ArgumentError(f"{call}: {what} is no tensor, but of {type(x).__name__}.{hint}")


def forget(x: Any) -> None:
    """Has a tensor be another input of what this thread records from here on."""
    if state.tape is not None:
        state.tape.owners.pop(id(x), None)


def base_of(x: Tensor) -> Tensor:
    """Returns what a tensor is a view of, in the end; the tensor itself where it is none."""
    while x._meta is not None and x._meta.parent is not None:
        x = x._meta.parent
    return x


def made(value: Any, index: int, type_: ArrayType) -> Tensor:
    """Returns a new tensor with a value, or one that is pending."""
    tensor: Tensor = object.__new__(Tensor)
    tensor._v = value
    tensor._index = index
    tensor._type = type_
    tensor._edge = tensor._meta = None
    return tensor


def of_array(array: Any, type_: ArrayType | None = None) -> Tensor:
    """Returns the tensor of an array, of that type, that nobody else will write to."""
    if isinstance(array, np.ndarray):
        array.setflags(write=False)
    return made(array, 0, type_of(array) if type_ is None else type_)
