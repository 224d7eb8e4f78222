"""What a tensor is to the graph: a leaf or a result, with a gradient, a history and hooks."""

from __future__ import annotations

import warnings
from typing import Any

import ftrans.numpy as fnp
from ftrans.autograd.engine import backward
from ftrans.autograd.hooks import register_hook, register_post_accumulate_grad_hook
from ftrans.autograd.levels import plain
from ftrans.autograd.nodes import Node, node_of, target_of
from ftrans.autograd.tape import Tape, settle
from ftrans.autograd.tensor import Tensor, base_of, forget
from ftrans.autograd.views import base_of_history, keep_grad, take_data, view
from ftrans.errors import DTypeError, GraphError
from ftrans.traceback import boundary


class GraphMembers:
    """Has what tensors are given that is about gradients."""

    def backward(
        self: Any,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
        retain_variables: bool | None = None,
    ) -> None:
        """Accumulates the gradient of the tensor in the leaves that it depends on.

        It is `autograd.backward` of this tensor; `gradient` is that of something else with respect
        to it, and 1 for a scalar. `retain_variables` is the old name of `retain_graph`.
        """
        backward(self, gradient, retain_graph, create_graph, None, inputs, retain_variables)

    register_hook = register_hook
    register_post_accumulate_grad_hook = register_post_accumulate_grad_hook

    @property
    def grad_fn(self: Any) -> Node | None:
        """The node of the operation that made the tensor; None for leaves."""
        return None if self.is_leaf else node_of(target_of(self))[0]

    @property
    def output_nr(self: Any) -> int:
        """Which result of that operation it is."""
        return node_of(target_of(self))[1]

    @property
    def grad(self: Any) -> Any:
        """The gradient that was accumulated, of the type of the tensor; None before the first."""
        meta = self._meta
        found = None if meta is None else meta.grad
        if found is None and not self.is_leaf and not self.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). Call "
                "x.retain_grad() before, if it is to be.",
                UserWarning,
                stacklevel=2,
            )
        return found

    @grad.setter
    @boundary
    def grad(self: Any, value: Any) -> None:
        if value is not None:
            if type(value) is not Tensor:
                raise DTypeError(
                    f"x.grad: a gradient is a tensor, or None, not of type {type(value).__name__}."
                )
            if value is self:
                raise GraphError(f"x.grad: a tensor is not its own gradient.\n  x: {self._type}")
            if value._type is not self._type:
                raise GraphError(
                    f"x.grad: a gradient has the type of its tensor.\n"
                    f"  x: {self._type}\n  gradient: {value._type}"
                )
        self._metadata().grad = value

    @grad.deleter
    def grad(self: Any) -> None:
        self._metadata().grad = None

    @property
    def grad_dtype(self: Any) -> Any:
        """The dtype of `x.grad`, which is always that of the tensor."""
        return self.dtype

    @grad_dtype.setter
    @boundary
    def grad_dtype(self: Any, value: Any) -> None:
        if value != self.dtype or value is None:
            raise DTypeError(
                f"x.grad_dtype: a gradient has the dtype of its tensor.\n  x: {self._type}\n"
                f"  Convert the tensor: x.to(dtype); or what is read: x.grad.to(dtype)."
            )

    @property
    def data(self: Any) -> Any:
        """The value, which what is written to goes to as well, and no gradient."""
        return self.detach()

    @data.setter
    @boundary
    def data(self: Any, value: Any) -> None:
        if type(value) is not Tensor:
            raise DTypeError(f"x.data: a value is a tensor, not of type {type(value).__name__}.")
        take_data(self, value)

    _base = property(lambda self: None if (x := base_of_history(self)) is self else x)
    _is_view = lambda self: self._base is not None  # noqa: E731

    @property
    def _version(self: Any) -> int:
        x = base_of(self)
        return 0 if x._meta is None else x._meta.version

    def is_inference(self: Any) -> bool:
        """Tells whether it was made in inference mode; a view is what its base is."""
        x = base_of(self)
        if x._meta is not None and (x._meta.inference or x._meta.version):
            return x._meta.inference
        return type(x._v) is Tape and x._v.inference

    def detach(self: Any) -> Any:
        """Returns the same value, in the same memory, without its history."""
        return view(self, fnp.stop_gradient, detached=True)

    def detach_(self: Any) -> Any:
        """Takes the history from a tensor, which becomes a leaf that does not require grad."""
        meta = self._metadata()
        if meta.parent is not None and not meta.detached:
            raise GraphError(
                f"Can't detach views in-place. Use detach() instead.\n  view: {self._type}"
            )
        settle(self)
        self._edge, meta.leaf = None, False
        self._v = plain(self._v)
        forget(self)
        return self

    def retain_grad(self: Any) -> None:
        """Has the gradient of a result kept in `x.grad`, as that of a leaf is."""
        if not self.requires_grad:
            raise GraphError(
                f"can't retain_grad on Tensor that has requires_grad=False\n  x: {self._type}"
            )
        if self.is_leaf:
            return
        self._metadata().retains = True
        keep_grad(self)

    retains_grad = property(lambda self: bool(self._meta and self._meta.retains))
