"""The engine: `backward` and `grad`, a walk over segments from the last to the first.

What a plain `backward` meets most often, a loss that is pending, is run forward and backward as one
program. All else is run first, and goes backward segment by segment.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.autograd.ahead import Ahead, run_ahead, taken
from ftrans.autograd.levels import OPEN
from ftrans.autograd.nodes import GradientEdge, standing_for, target_of
from ftrans.autograd.pending import slopes_of
from ftrans.autograd.segment import Edge, Segment
from ftrans.autograd.tape import Tape, recorded, settle
from ftrans.autograd.tensor import STALE, Tensor, check_tensor, of_array
from ftrans.autograd.values import check_outside
from ftrans.autograd.variable import renamed
from ftrans.autograd.walk import Walk, deliver, key_of
from ftrans.errors import ArgumentError, DTypeError, GraphError, ShapeError
from ftrans.ir import ArrayType, Tracer
from ftrans.ir.dtype import is_complex
from ftrans.ir.location import here
from ftrans.ir.stack import state
from ftrans.numpy.promotion import as_array, cast
from ftrans.numpy.views import in_rule
from ftrans.pytree import ordered_like
from ftrans.runtime.profile import backward_pass
from ftrans.traceback import boundary

_INSIDE = ", whose values have no graph.\n  Write ftrans.func.grad(f)(x) there."


def _listed(x: Any) -> list[Any]:
    """Returns the tensors of an argument: one, a sequence or a pytree of them, or of edges."""
    if type(x) is Tensor:
        return [x]
    if isinstance(x, (Iterator, ValuesView)):
        x = list(x)
    found = tree.tree_leaves(x, is_leaf=_is_whole)
    return [standing_for(leaf) if type(leaf) is GradientEdge else leaf for leaf in found]


def _is_whole(x: Any) -> bool:
    return x is None or type(x) is GradientEdge


def _batch_size(given: Any) -> int:
    """Returns the size of the axis in front of gradients that are batched."""
    sizes = {x.shape[:1] for x in _listed(given) if x is not None}
    if len(sizes) != 1 or () in sizes:
        raise ShapeError(
            "grad(): with is_grads_batched=True all of grad_outputs have an axis in front, of one "
            f"size.\n  its sizes: {sorted(sizes)}"
        )
    return int(sizes.pop()[0])


def _seeds(
    call: str, roots: Sequence[Tensor], given: Any, create: bool, size: int | None = None
) -> list[Any]:
    """Returns the cotangents of roots: those given, or one for scalars."""
    create = create or bool(OPEN or state.stack)
    cts = [None] * len(roots) if given is None else _listed(given)
    if len(cts) != len(roots):
        raise ArgumentError(
            f"{call}: there is one gradient for each output.\n"
            f"  outputs: {len(roots)}\n  gradients: {len(cts)}"
        )
    pairs = enumerate(zip(roots, cts, strict=True))
    return [_seed(call, i, x._type, ct, create, size) for i, (x, ct) in pairs]


def _seed(call: str, index: int, t: ArrayType, ct: Any, create: bool, size: int | None) -> Any:
    expected = t.shape if size is None else (size, *t.shape)
    if ct is None:
        if t.size != 1:
            raise GraphError(
                f"{call}: grad can be implicitly created only for scalar outputs.\n"
                f"  output {index}: {t}\n"
                f"  Pass gradient=, a tensor of its shape; or reduce it first: x.sum()."
            )
        if is_complex(t.dtype):
            raise GraphError(
                f"{call}: grad can be implicitly created only for real scalar outputs but got "
                f"{t.dtype}.\n  Pass gradient=, or take the real part: x.real."
            )
        one = np.ones(expected, t.dtype)
        return of_array(one) if create else one
    ct = ct if type(ct) is Tensor else as_array(ct)
    given = ArrayType(ct.shape, ct.dtype)
    if given.shape != expected:
        batched = "" if size is None else ", behind the axis of the batch"
        raise ShapeError(
            f"{call}: Mismatch in shape: grad_output[{index}] has a shape of {given.shape} and "
            f"output[{index}] has a shape of {t.shape}{batched}."
        )
    if is_complex(given.dtype) != is_complex(t.dtype):
        raise DTypeError(
            f"{call}: For complex Tensors, both grad_output and output are required to have the "
            f"same dtype.\n  grad_output[{index}]: {given}\n  output[{index}]: {t}"
        )
    if create:
        ct = ct if type(ct) in (Tensor, Tracer) else of_array(ct)
        return ct if given.dtype == t.dtype else recorded(cast, ct, t.dtype)
    return cast(settle(ct) if type(ct) is Tensor else ct, t.dtype)


def _check_root(call: str, index: int, x: Any) -> None:
    check_tensor(call, f"element {index}", x)
    if not x.requires_grad:
        raise GraphError(
            f"{call}: element {index} of tensors does not require grad and does not have a "
            f"grad_fn.\n  tensor: {x._type}\n"
            f"  It was made under no_grad, from what does not require grad, or by detach()."
        )


def _walked(
    call: str,
    roots: Sequence[Tensor],
    seeds: Sequence[Any],
    sinks: Sequence[Any] | None,
    retain: bool,
    create: bool,
    size: int | None = None,
) -> Walk:
    if state.stack and isinstance(state.tape, Tape):  # as parts of one segment
        state.tape.finish(*roots, *(sinks or ()))
    for x in roots:
        settle(x)
    keys = None if sinks is None else [_sink(call, i, x) for i, x in enumerate(sinks)]
    walk = Walk(call, keys, create, size)
    for x, seed in zip(roots, seeds, strict=True):
        walk.send(x._target(), walk.seed(seed))
    walk.walk()
    if not retain:
        _free(walk, (call, here()))
    return walk


def _at_once(x: Any, call: str, given: Any = None, sinks: Any = None) -> Walk | None:
    """Goes backward by a derivative that is run with its root; None where that cannot be.

    What is pending is run so. What was asked for before has been, if one went back from it the last
    time that its program was run. `given` is the cotangent of the root, as it was given.
    """
    are_leaves = not any(type(s) is not Tensor or s._target() is not s for s in sinks or ())
    if OPEN or type(x) is not Tensor or x._v is None or not are_leaves:
        return None
    seed = None
    if given is not None:
        if x._v is not state.tape or not x.requires_grad:
            return None
        (seed,) = _seeds(call, [x], given, False)
    elif x._type.size != 1 or is_complex(x._type.dtype):
        return None
    walk, ahead = Walk(call, sinks, False), None
    if x._v is state.tape:
        ahead = _run_with_derivative(state.tape, x, seed, walk)
    elif seed is None and x._v is not STALE and isinstance(target := x._target(), Edge):
        ahead = taken(*target) if walk.asked_of(target.segment.targets) is None else None
    if ahead is None:
        return None
    place, edge = (call, here()), x._target()
    segment, plan, found = edge.segment, ahead.plan, ahead.pulled()
    targets = segment.targets
    for i in plan.reached:
        walk.reached[key_of(targets[i])] = targets[i]
    if plan.stops:  # hooks that are called may look at the segment, or even go back through it
        walk.reached.update({(segment.number, p): Edge(segment, p) for p in plan.stops})
        walk.go_on(segment, plan.stops, found, ahead)
    is_all = ahead.whole or segment.frees([plan.root], place, walk.asked_of(targets))
    if is_all and plan.saves is None:
        segment.spend(place)
    elif is_all:
        segment.free([plan.root], place, plan.saves)
    for slot, ct in found.items():
        if slot >= 0:
            walk.send(targets[slot], ct)
    walk.walk()
    _free(walk, place)
    return walk


def _run_with_derivative(found: Tape, root: Tensor, seed: Any, walk: Walk) -> Ahead | None:
    """Runs what is pending with the derivative of a result; None where that cannot be."""
    state.tape = None  # what finalizers record from here on is another tape's
    tensors = found.pending()
    places, program, operands, targets = found.gathered(tensors, found.hooks)
    segment = Segment(None, [], targets, program, operands)
    segment.put(found.hooks, places)
    ahead = found.ran(run_ahead, segment, places[root._index], seed, walk.asked_of(targets))
    if ahead is None:
        return None
    flags = ahead.plan.flags
    for x in tensors:
        at = places[x._index]
        x._settle(ahead.values[at], Edge(segment, at) if flags[at] else None)
    found.end()
    return ahead


def _free(walk: Walk, place: Any) -> None:
    for segment in walk.spent:
        segment.spend(place)
    for segment, positions in walk.visited.items():
        if segment.frees(positions, place, walk.asked_of(segment.targets)):
            segment.free(positions, place)


def _sink(call: str, index: int, x: Any) -> Any:
    """Returns the leaf or the edge that is asked for by a tensor."""
    check_tensor(call, f"input {index}", x)
    if not x.requires_grad:
        raise GraphError(
            f"{call}: One of the differentiated Tensors does not require grad.\n"
            f"  input {index}: {x._type}"
        )
    target = target_of(x)
    if isinstance(target, Edge) and x._v is not None:
        target.segment.values.setdefault(target.position, x._v)
    return target


@boundary
@backward_pass
def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    retain_variables: bool | None = None,
) -> None:
    """Accumulates the gradients of tensors in the leaves that they depend on.

    Args:
        tensors: a tensor, or several of them in a pytree; those that are no scalars need a
            gradient.
        grad_tensors: the gradients of something else with respect to them, of their shapes; None
            stands for 1.
        retain_graph: whether the graph can be used again; by default as `create_graph`.
        create_graph: whether the gradients can be differentiated in turn.
        grad_variables: the old name of `grad_tensors`, as `retain_variables` of `retain_graph`.
        inputs: the tensors in which gradients are accumulated, and in no others; not only leaves.
        retain_variables: see there.

    Raises:
        GraphError: where a tensor does not require grad, or the graph was freed.
        ShapeError: where a gradient has another shape.
    """
    if grad_variables is not None or retain_variables is not None:
        olds = grad_variables, retain_variables
        grad_tensors, retain_graph = renamed(grad_tensors, retain_graph, *olds)
    check_outside("backward()", _INSIDE)
    sinks = None
    if inputs is not None:
        sinks = _listed(inputs)
        if not sinks:
            raise GraphError("backward(): the inputs argument cannot be empty.")
    retain = create_graph if retain_graph is None else retain_graph
    walk = None
    if not (retain or create_graph):
        walk = _at_once(tensors, "backward()", grad_tensors, sinks)
    if walk is None:
        roots = _listed(tensors)
        for index, x in enumerate(roots):
            _check_root("backward()", index, x)
        seeds = _seeds("backward()", roots, grad_tensors, create_graph)
        walk = _walked("backward()", roots, seeds, sinks, retain, create_graph)
    if sinks is None:
        for key, leaf in walk.reached.items():
            if type(leaf) is Tensor and leaf._metadata().leaf:  # it may have been frozen since
                deliver(walk, leaf, walk.found.get(key))
        return
    for x in dict.fromkeys(sinks):
        key = key_of(x._target())
        if key in walk.reached and not (x.retains_grad and key in walk.found):  # has it already
            deliver(walk, x, walk.found.get(key))


@boundary
@backward_pass
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Returns the gradients of the sum of outputs with respect to inputs, accumulating none.

    It may be called inside of a transform on tensors from outside, so that `vmap` over
    `grad_outputs` returns a Jacobian.

    Args:
        outputs: a tensor, or several of them in a pytree.
        inputs: the same; a dict gives a dict of gradients, all else a tuple.
        grad_outputs: as `grad_tensors` of `backward`.
        retain_graph: as for `backward`.
        create_graph: as for `backward`.
        only_inputs: must be True; leaves that are not among the inputs are left alone.
        allow_unused: whether the gradient of an input that no output depends on is None; by default
            as `materialize_grads`. Otherwise that is an error.
        is_grads_batched: whether `grad_outputs` have an axis more in front, for each index of which
            a gradient is returned.
        materialize_grads: whether it is zero instead of None.

    Returns:
        The gradients, of the types of the inputs.

    Raises:
        GraphError: where an output does not require grad, an input is not used, the graph was
            freed, or a tensor is traced by a transform.
    """
    roots = _listed(outputs)
    sinks = _listed(inputs)
    if Tracer in map(type, [*roots, *sinks]) or in_rule():
        check_outside("grad()", _INSIDE)
    if not only_inputs:
        warnings.warn(
            "grad(): only_inputs=False is ignored: gradients of the inputs alone are computed. "
            "Call backward() to accumulate those of all leaves.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ArgumentError(
            "grad(): Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    if not sinks:
        raise GraphError("grad(): the inputs argument cannot be empty.")
    retain, walk = create_graph if retain_graph is None else retain_graph, None
    if len(roots) == 1 and not (retain or create_graph or is_grads_batched or state.stack):
        walk = _at_once(roots[0], "grad()", grad_outputs, sinks)
    if walk is None:
        for index, x in enumerate(roots):
            _check_root("grad()", index, x)
        size = _batch_size(grad_outputs) if is_grads_batched else None
        seeds = _seeds("grad()", roots, grad_outputs, create_graph, size)
        if create_graph and retain and size is None and not state.stack:
            slopes = slopes_of(roots, seeds, sinks)
            if slopes is not None:
                return _like(inputs, slopes)
        walk = _walked("grad()", roots, seeds, sinks, retain, create_graph, size)
    found: dict[Any, Any] = {}
    for index, x in enumerate(sinks):
        target = x._target()
        key = key_of(target)
        if key in found:
            continue
        ct = walk.found.get(key)
        if ct is not None and target is x:
            ct = walk.hooked(x._metadata().hooks, ct)
        if ct is None and (key in walk.reached or materialize_grads):
            ct = walk.nothing(x._type)
        if ct is None and not allow_unused:
            raise GraphError(
                f"grad(): One of the differentiated Tensors, at index {index}, appears to not have "
                f"been used in the graph. Set allow_unused=True if this is the desired behavior.\n"
                f"  input {index}: {x._type}"
            )
        found[key] = None if ct is None else walk.seen_by_user(ct)
    return _like(inputs, [found[key_of(x._target())] for x in sinks])


def _like(inputs: Any, gradients: Sequence[Any]) -> Any:
    """Returns gradients as a dict or a tuple, as they were asked for."""
    if type(inputs) is not Tensor and isinstance(inputs, Mapping):
        structure = tree.tree_structure(inputs, is_leaf=_is_whole)
        return ordered_like(inputs, tree.tree_unflatten(structure, gradients))
    return tuple(gradients)
