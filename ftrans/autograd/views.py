"""Views of tensors, and writing in place, which gives a name another value.

A view knows what it is a view of and how it is made of that. To write to it is to write to its
base, by the steps between them taken backwards; all views of the base are made again when they are
next looked at. What was computed before keeps what it was computed of.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from ftrans.autograd.at_hand import put
from ftrans.autograd.levels import OPEN, plain, tangents_of
from ftrans.autograd.modes import differentiating
from ftrans.autograd.segment import Edge
from ftrans.autograd.short import taken
from ftrans.autograd.tape import recorded, settle, tape
from ftrans.autograd.tensor import STALE, Meta, Tensor, base_of, forget, made
from ftrans.autograd.values import pend
from ftrans.errors import DTypeError, GraphError, MutationError, ShapeError
from ftrans.ir import make_tracer
from ftrans.ir.dtype import is_of_kind
from ftrans.ir.program import NO_PARAMS
from ftrans.ir.stack import state
from ftrans.numpy.access import chain, written
from ftrans.numpy.methods import named
from ftrans.numpy.promotion import cast
from ftrans.primitives import broadcast_p, graft_p, no_grad_p, scalar, select_p, stop_gradient_p
from ftrans.primitives.axes import zeros

NO_GRAD = "A view was created in no_grad mode and is being modified inplace with grad mode enabled."
WRITES_OVER = {"copy_", "fill_", "x[index] = value"}
SEVERAL = "It is one of several views that a function returned, which cannot be modified inplace."


def view(
    x: Tensor,
    get: Callable[[Any], Any],
    by: tuple[Any, ...] = (),
    *,
    detached: bool = False,
    instead: Callable[[Any, int], Any] | None = None,
) -> Tensor:
    """Returns a view of a tensor, which `get` makes of a value; a detached one has no gradients.

    Where `get` is made anew at each call, `by` says of what; `instead` is as for `taken`.
    """
    return as_view(x, taken(get, (x,), None, by, instead), get, detached=detached)


def as_view(
    x: Tensor,
    made: Tensor,
    get: Callable[[Any], Any],
    *,
    detached: bool = False,
    fixed: str | None = None,
) -> Tensor:
    """Says of a tensor that it is a view of another one; returns it."""
    if type(made) is not Tensor:
        return made
    meta, of = made._metadata(), x
    if detached:
        base, get = _based(x)
        # what has the same memory without the history is kept, so that it is shared for good
        x = next((y for y in _views_of(base) if y._metadata().get is _same), base)
        of = ref(base) if x is base else x
    meta.of, meta.get = of, get
    meta.detached = detached or not (state.grad or OPEN or not x.requires_grad)
    meta.fixed = fixed or (None if state.grad or detached else NO_GRAD)
    views = x._metadata().views
    if len(views) > 8:
        views[:] = [found for found in views if found() is not None]
    views.append(ref(made))
    return made


def _same(x: Any) -> Any:
    return x


def _based(x: Tensor) -> tuple[Tensor, Callable[[Any], Any]]:
    """Returns the base of a tensor, and what makes a value of the tensor of one of the base."""
    parent = None if x._meta is None else x._meta.parent
    if parent is None:
        return x, _same
    own: Any = x._meta.get  # type: ignore[union-attr]
    base, get = _based(parent)
    return base, own if get is _same else lambda value: own(get(value))


def assign(name: str, x: Tensor, new: Any) -> Tensor:
    """Gives a tensor, and all that shares memory with it, another value of its type; returns it.

    Raises:
        GraphError: where it is a leaf that requires grad, or a view that is not to be written to.
        ShapeError: where the value has another shape.
        DTypeError: where its dtype does not fit.
    """
    if state.stack:
        _check_outside(name, x)
    t, given = x._type, new._type
    if given is not t:
        of_shape, of_dtype = given.shape == t.shape, given.dtype == t.dtype
        if not of_shape or not (of_dtype or is_of_kind(given.dtype, t.dtype)):
            what = "does not fit into" if of_shape else "has another shape than"
            raise (DTypeError if of_shape else ShapeError)(
                f"{name}: the result {what} the tensor that it is written to.\n"
                f"  tensor: {t}\n  result: {given}"
            )
        new = new if of_dtype else recorded(cast, new, t.dtype)
    if x._metadata().parent is None and _only_renames(x, new):
        _rename(x, new)
        return x
    lost = x.requires_grad and not new.requires_grad
    if OPEN and not (lost or tangents_of(settle(new))):
        lost = bool(tangents_of(settle(x)))
    if state.grad and lost:
        new = recorded(named(partial(over), name, None), new, x)
    _write(name, x, new, False)
    return x


def _only_renames(x: Tensor, new: Tensor) -> bool:
    """Tells whether a value that is there takes the place of another one, and no more."""
    if type(new._v) is not np.ndarray or new.requires_grad or OPEN or state.inference:
        return False
    return not state.grad if x._metadata().leaf else not x.requires_grad


def over(value: Any, old: Any) -> Any:
    """Returns what was written over a value: its derivatives with respect to that are zero."""
    never = broadcast_p(scalar(False, bool), shape=old.shape, axes=())
    return graft_p(value, value + select_p(never, old, zeros(old.type)))


def old_of(x: Tensor) -> tuple[Tensor, ...]:
    """Returns what is lost where a tensor is written over, if it has derivatives; no views."""
    is_base = x._meta is None or x._meta.parent is None
    return (x,) if state.grad and is_base and x.requires_grad else ()


def overwrite(name: str, x: Tensor, new: Tensor) -> None:
    """Gives a tensor that does not require grad another value, which is there already."""
    if x._metadata().parent is not None:
        _write(name, x, new, True)
    else:
        _rename(x, new)


def _rename(x: Tensor, new: Tensor) -> None:
    meta = x._metadata()
    meta.version += 1
    x._v = new._v
    if meta.views:
        _stale(x)
        _follow(x)
        _keep_again(x, False)


def _write(name: str, x: Tensor, new: Tensor, detached: bool) -> None:
    meta = x._metadata()
    parent = meta.parent
    _check(name, x, detached, new.requires_grad)
    if parent is not None:
        if (base := put(parent, meta.get, new)) is not None:
            _write(name, parent, base, detached or meta.detached)
            meta.version += 1
            x._v = new._v
            return
        whole = old_of(parent) if name in WRITES_OVER and x._type.size == parent._type.size else ()
        base = new if meta.get is _same else recorded(_put, name, meta.get, parent, new, *whole)
        own = meta.detached and state.grad and new.requires_grad
        if own:
            x._v = STALE  # without the history that it had
        _write(name, parent, base, detached or meta.detached)
        meta.version += 1
        if own:  # the history of what was written; what it is a view of has not
            found = tape()
            pend(found, x, found.code_of(new))
            _keep_again(x)
        return
    if _only_renames(x, new):
        _rename(x, new)
        return
    holds = detached or not state.grad  # what it was computed of
    if holds and not OPEN and x.requires_grad and not meta.leaf:
        replace(x, new)
        return
    found = tape()
    index = found.code_of(new)
    if holds and OPEN:
        # the derivatives that it had: in both modes, or in reverse mode
        primitive = graft_p if detached else no_grad_p
        with differentiating(found):
            index = _bound(found, primitive, index, found.code_of(x))
    if meta.leaf or (holds and not OPEN):
        index = found.twin(index)
    if state.inference:
        meta.inference = x.is_inference()
    meta.version += 1
    if meta.views:
        _stale(x)
    pend(found, x, index)
    if meta.views or meta.retains:
        _follow(x)
        _keep_again(x, not holds)
    if meta.leaf:
        found.leaves = True
        if state.grad:
            found.leave()
    if found.most < 0:
        found.flush()


def replace(x: Tensor, new: Tensor) -> None:
    """Gives a result another value, which is computed now, and leaves it its history."""
    settle(x)
    settle(new)
    target = x._target()
    target.segment.values.setdefault(target.position, x._v)
    _rename(x, new)


def take_data(x: Tensor, value: Tensor) -> None:
    """Has a tensor share memory with another one, and no longer with what it did share it with.

    Raises:
        MutationError: inside of a transform.
        ShapeError: where it is a result, and the value is of another type.
    """
    _check_outside("x.data", x)
    settle(value)
    settle(x)
    if x._metadata().leaf and not value._type.is_inexact:
        raise DTypeError(
            f"x.data: only floating point and complex numbers have gradients.\n"
            f"  tensor: {x._type}\n  value: {value._type}"
        )
    target = x._target()
    if isinstance(target, Edge):
        if value._type is not x._type:
            raise ShapeError(
                f"x.data: a result of what requires grad keeps its type.\n"
                f"  tensor: {x._type}\n  value: {value._type}"
            )
        target.segment.values.setdefault(target.position, x._v)
    (base, get), (own, own_get) = _based(value), _based(x)
    if base is own and get is own_get:  # it is the same memory
        return

    def share(was: Tensor) -> Tensor:
        return (view(was if own is x else own, get) if base is own else value).detach()

    become("x.data", x, share, True)


def become(name: str, x: Tensor, make: Callable[[Tensor], Tensor], detached: bool = False) -> Any:
    """Has a tensor be a view, of what it was or, detached, of any other one; returns it."""
    _check_outside(name, x)
    if not detached:
        _check(name, x, False)
    settle(x)
    was, own, old = made(x._v, 0, x._type), x._metadata(), Meta()
    for what in ("of", "get", "fixed", "detached", "version", "views", "inference"):
        setattr(old, what, getattr(own, what))
    was._edge, was._meta, views, own.views = x._edge, old, _views_of(x), []
    for found in views:  # which are views of what it was from here on
        settle(found)
        found._metadata().of = was
        found._metadata().detached |= own.leaf
    if old.parent is not None:
        old.parent._metadata().views.append(ref(was))
    with differentiating(tape()) if was._edge else nullcontext():  # also where others record none
        settle(new := make(was))
    x._v, x._type, meta = plain(new._v) if detached else new._v, new._type, new._metadata()
    own.of, own.get, own.detached = meta.of, meta.get, meta.detached
    own.parent._metadata().views.append(ref(x))  # type: ignore[union-attr]
    if not detached:
        x._edge = new._edge
        if own.retains:
            segment, position = was._target()
            segment.retained.pop(position, None)
            keep_grad(x)
        base_of(x)._metadata().version += 1
    forget(x)
    return x


def _check_outside(name: str, x: Tensor) -> None:
    if state.stack:
        raise MutationError(
            f"{name}: a tensor cannot be written to inside a transform, which may run it later.\n"
            f"  tensor: {x._type}\n"
            f"  Write x = ftrans.numpy.copy(x) in it first, or pass it as an argument."
        )


def base_of_history(x: Tensor) -> Tensor:
    """Returns what a tensor is a view of in the end, as far as it is not detached by itself."""
    while (
        x._meta is not None and x._meta.of is not None and (x._meta.fixed or not x._meta.detached)
    ):
        x = x._meta.of
    return x


def _views_of(x: Tensor) -> list[Tensor]:
    found = [view() for view in x._metadata().views]
    return [y for y in found if y is not None and y._metadata().parent is x]


def _keep_again(x: Tensor, moves: bool = True) -> None:
    """Has the gradients of a tensor that was written to, and of its views, kept of what is new."""
    if x._metadata().retains and (moves or x._v is STALE):
        keep_grad(x, moves)
    for found in _views_of(x):
        _keep_again(found, moves)


def keep_grad(x: Tensor, moves: bool = True) -> None:
    """Has the gradient of a result kept, that of the value which it has now.

    Unless it moves, that of the value before, whose history is as it was, is kept as well.
    """
    before = x._target() if moves else None
    if before is not None:
        before.segment.retained.pop(before.position, None)
    settle(x)
    if x._edge is not None:
        segment, position = x._target()
        segment.retained[position] = ref(x)
        segment.values.setdefault(position, x._v)


def _check(name: str, x: Tensor, detached: bool, moves: bool = False) -> None:
    """Raises where a tensor is not to be written to, by what requires grad if it `moves`."""
    meta = x._metadata()
    fixed = state.grad and meta.parent is not None and meta.fixed
    if fixed and (moves or base_of_history(x).requires_grad):
        raise GraphError(f"{name}: {fixed}\n  view: {x._type}\n  Write x = x.clone() first.")
    if meta.leaf and state.grad and not detached:
        raise GraphError(
            f"{name}: a leaf Variable that requires grad is being used in an in-place operation.\n"
            f"  tensor: {x._type}\n"
            f"  Write to it under no_grad(), or to a result: y = x.clone()."
        )


def _bound(found: Any, primitive: Any, *codes: int) -> int:
    """Records a primitive and returns the code of its result."""
    operands = [make_tracer(found, code, found.type(code)) for code in codes]
    return found.record(primitive, operands, NO_PARAMS)[0].index  # type: ignore[no-any-return]


def _put(name: str, get: Any, base: Any, new: Any, *whole: Any) -> Any:
    """Returns a base whose elements at a view have new values; `whole`, if these are all."""
    if whole:
        return over(_put(name, get, base, new), base)
    if hasattr(get, "inverse"):
        return get.inverse(new)
    steps = chain(base, get(base))
    if steps is None:
        raise MutationError(f"{name}: what leads from the base to the view cannot be undone.")
    return written(name, base, steps, new)


def _stale(x: Tensor) -> None:
    """Has the views of a tensor made again when they are next looked at, but for detached ones."""
    for found in _views_of(x):
        if not found._metadata().detached:
            found._v = STALE
        _stale(found)


def _follow(x: Tensor) -> None:
    """Gives detached views of a tensor, which may outlive it, the value that they have now."""
    _hand_on(x)
    if state.grad and state.tape is not None and state.tape.leaves:
        state.tape.leave()  # a leaf is an input


def _hand_on(x: Tensor) -> None:
    for found in _views_of(x):
        meta = found._metadata()
        if not meta.detached:
            continue
        now = x if meta.get is _same else recorded(meta.get, x)  # type: ignore[arg-type]
        if found.requires_grad and not (meta.leaf or OPEN):  # the history of a write of its own
            replace(found, now)
            continue
        if now._v is state.tape:
            cut = _bound(state.tape, stop_gradient_p, now._index) if OPEN else now._index
            pend(state.tape, found, state.tape.twin(cut))
            state.tape.leaves |= meta.leaf
        else:
            found._v, found._index = now._v, now._index
        if meta.views:
            _hand_on(found)
