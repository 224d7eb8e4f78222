"""The names of `torch.autograd.graph`: nodes and edges, hooks of several tensors, saved values."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ftrans.autograd.hooks import RemovableHandle, register_hook
from ftrans.autograd.nodes import GradientEdge, Node, get_gradient_edge, standing_for, target_of
from ftrans.autograd.saved import (
    SavedTensor,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from ftrans.autograd.tensor import Tensor, base_of, check_tensor
from ftrans.autograd.walk import walking
from ftrans.errors import ArgumentError
from ftrans.numpy.advice import declining
from ftrans.traceback import boundary

__all__ = [
    "GradientEdge", "Node", "SavedTensor", "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip


class _Several(dict[int, Any]):
    """Is hooks that are taken away at once, each by its handle."""

    def pop(self, *_: Any) -> None:
        for handle in self.values():
            handle.remove()


@boundary
def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """Has a function called with gradients of several tensors, once in each backward pass.

    The handle that it returns takes the hook away.

    Args:
        tensors: tensors that require grad, or edges.
        fn: takes, in the mode "all", a list of the gradients, once all have been computed, with
            None for tensors that this pass does not reach; in the mode "any" the first gradient
            that is computed.
        mode: "all" or "any".

    Raises:
        ArgumentError: where there is no such mode.
        GraphError: where a tensor does not require grad.
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"Expects mode to be one of ('all', 'any') but got {mode!r}.")
    given = [tensors] if type(tensors) is Tensor else tensors
    tensors = [standing_for(x) if type(x) is GradientEdge else x for x in given]
    targets: list[Any] = []
    lock = threading.Lock()
    arrived: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()

    def arrive(index: int, gradient: Any) -> None:
        walk = walking()
        with lock:
            found = arrived.setdefault(walk, {})
            found[index] = gradient
            awaited = 1 if mode == "any" else sum(map(walk.reaches, targets))
            is_last = len(found) == awaited
        if is_last:
            fn(gradient if mode == "any" else [found.get(i) for i in range(len(targets))])

    handles = {i: register_hook(x, partial(arrive, i)) for i, x in enumerate(tensors)}
    targets += [target_of(x) for x in tensors]
    return RemovableHandle(_Several(handles))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[dict[Any, Any]]:
    """Is for the sake of code for PyTorch: what was saved is never changed by a write here.

    A write gives a name another value; what was computed before keeps what it was computed of, with
    this block or without, and `backward` may be called outside of it. There are no copies to clear.
    """
    yield {}


@boundary
def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Counts one more write to a tensor, or to several: `x._version`."""
    for x in [tensor] if type(tensor) is Tensor else tensor:
        check_tensor("increment_version", "what is written to", x)
        if not x.is_inference():  # which has no version
            base_of(x)._metadata().version += 1


_INSTEAD = {
    "region_activation_memory_budget": "What is saved is chosen for a program as a whole; to save "
    "less, pack it: saved_tensors_hooks, or save_on_cpu.",
    "set_override_stale_capture_stream": "There are no streams. Leave the call out.",
    "set_warn_on_accumulate_grad_stream_mismatch": "There are no streams. Leave the call out.",
}

__getattr__ = declining(__name__, _INSTEAD.get)
