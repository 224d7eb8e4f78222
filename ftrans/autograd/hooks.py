"""Hooks: functions of a user's that a backward pass calls with gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ftrans import numpy as fnp
from ftrans.autograd.tape import Tape, recorded, refresh, settle
from ftrans.autograd.tensor import STALE, Tensor
from ftrans.errors import ArgumentError, GraphError
from ftrans.ir import ArrayType
from ftrans.ir.stack import state

Hook = Callable[..., Any]
_handles = itertools.count()


class RemovableHandle:
    """Takes a hook away again, by `remove()` or at the end of a `with` block.

    Args:
        hooks: by their handles' `id`.
        hook: what is put there; without one, whoever makes the handle does so.

    Raises:
        ArgumentError: where the hook cannot be called.
    """

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[int, Hook], *hook: Hook):
        self.id = next(_handles)
        self._hooks = hooks
        for found in hook:
            if not callable(found):
                raise ArgumentError(
                    f"register_hook: a hook is a function.\n  given: {type(found).__name__}"
                )
            hooks[self.id] = found

    def remove(self) -> None:
        """Takes the hook away; to do so twice is no error."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_hook(x: Tensor, hook: Hook) -> RemovableHandle:
    """Has a function called with each gradient of a tensor; returns a handle to remove it.

    Args:
        x: the tensor, a leaf or a result. Of a result that is written to later, the hook stays with
            the value that it was registered for.
        hook: takes the gradient, which is not to be written to, and returns another one in its
            place, or None. Hooks are called in the order in which they were registered.

    Raises:
        ArgumentError: where the hook cannot be called.
        GraphError: where the tensor does not require grad.
    """
    meta = x._meta
    if meta is not None and meta.leaf:
        return RemovableHandle(meta.hooks, hook)
    _check_requires_grad(x)
    if x._v is STALE:
        refresh(x)
    found = x._v
    if type(found) is Tape and found is state.tape and x._index >= 0:
        # the hook waits as the value does, and goes with it when it is run
        return RemovableHandle(found.hooks.setdefault(x._index, {}), hook)
    settle(x)
    segment, position = x._target()
    if x._v is not None:  # else it stands for an edge
        segment.values.setdefault(position, x._v)
    return RemovableHandle(segment.hooks.setdefault(position, {}), hook)


def _check_requires_grad(x: Tensor) -> None:
    if not x.requires_grad:
        what = "a tensor that doesn't require gradient"
        raise GraphError(f"cannot register a hook on {what}\n  x: {x._type}")


def register_post_accumulate_grad_hook(x: Tensor, hook: Hook) -> RemovableHandle:
    """Has a function called with a leaf whenever its gradient was accumulated; see `register_hook`.

    Args:
        x: the leaf.
        hook: takes the leaf, whose `grad` is up to date; it returns nothing.

    Raises:
        GraphError: where the tensor is no leaf that requires grad.
    """
    _check_requires_grad(x)
    if not x.is_leaf:
        raise GraphError(
            f"post accumulate grad hooks cannot be registered on non-leaf tensors\n  x: {x._type}"
        )
    return RemovableHandle(x._metadata().after, hook)


def checked(hook: Hook, given: Any, new: Any) -> Any:
    """Returns what a hook has returned, of the type of what it was given: a tensor, or a tuple."""
    name = getattr(hook, "__name__", repr(hook))
    if type(given) is tuple:
        if not isinstance(new, (Tensor, tuple, list)):
            raise GraphError(
                f"hook {name!r}: a hook of a node returns a tuple of gradients, or None.\n"
                f"  returned: {type(new).__name__}"
            )
        new = (new,) if isinstance(new, Tensor) else tuple(new)
        if len(new) != len(given):
            raise GraphError(
                f"hook {name!r} has returned an incorrect number of values.\n"
                f"  given: {len(given)}\n  returned: {len(new)}"
            )
        pairs = zip(given, new, strict=True)
        return tuple([None if y is None else checked(hook, x, y) for x, y in pairs])
    if not isinstance(new, Tensor):
        raise GraphError(
            f"hook {name!r}: a hook returns a tensor, or None to leave the gradient as it is.\n"
            f"  returned: {type(new).__name__}"
        )
    before, after = [x is not None and ArrayType(x.shape, x.dtype) for x in (given, new)]
    if given is not None and after != before:
        raise GraphError(
            f"hook {name!r} has changed the type of the gradient.\n"
            f"  given: {before}\n  returned: {after}"
        )
    return new


def stacked(rows: Sequence[Any]) -> Any:
    """Returns several cotangents as one, or as a tuple of some; None where one is None."""
    if type(rows[0]) is tuple:
        return tuple(map(stacked, zip(*rows, strict=True)))
    return None if any(x is None for x in rows) else recorded(lambda *xs: fnp.stack(xs), *rows)
