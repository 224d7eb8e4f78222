"""Checks of functions of tensors: at their values where they can be traced, else on tensors.

What asks for graphs, hooks or tangents cannot be traced. It is called as it is, on leaves, and
differentiated by the graph of what it returns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax.tree_util as tree
import numpy as np

from ftrans.errors import GradcheckError, GradcheckInputError
from ftrans.ir.stack import state
from ftrans.numpy.named import Plain, has_graph, tensor_of
from ftrans.pytree import mapped
from ftrans.traceback import OnTape, boundary
from ftrans.verify.probe import Probe

F = TypeVar("F", bound=Callable[..., Any])
Vectors = Sequence[Any]


class Graph(NamedTuple):
    """What differentiates tensors: functions by the names of `torch.autograd`.

    Attributes:
        as_arrays: makes a block in which transforms that close over tensors return arrays.
    """

    grad: Callable[..., Any]
    dual_level: Callable[[], Any]
    make_dual: Callable[..., Any]
    unpack_dual: Callable[..., Any]
    as_arrays: Callable[[], Any]


class TensorProbe(Probe):
    """A function at a point that is called on tensors, and differentiated by their graph.

    Args:
        func: the function.
        args: its arguments, with arrays in the place of the leaves that it is given.
        graph: what differentiates.
    """

    traced = False

    def __init__(self, func: Callable[..., Any], args: Sequence[Any], graph: Graph):
        super().__init__(func, args)
        self.graph = graph

    def like(self, func: Callable[..., Any], args: Sequence[Any]) -> Probe:
        """Returns the probe of another function, which is called on tensors too."""
        return TensorProbe(func, args, self.graph)

    def results(self, tensors: Sequence[Any]) -> list[Any]:
        """Returns the leaves of the result, tensors or not."""
        return tree.tree_leaves(self.func(*mapped(tensor_of, self.arguments(tensors))))

    def __call__(self, *values: Any) -> list[Any]:
        """Returns the leaves of the result, as arrays, for values of the floating arguments."""
        return list(map(Plain(), self.results(_leaves(values))))

    @functools.cached_property
    def leaves(self) -> list[Any]:
        """The leaves of the result; those that do not require grad have no derivative."""
        found = self.results(_leaves(self.values))
        self.rigid = tuple([i for i, x in enumerate(found) if not has_graph(x)])
        return list(map(Plain(), found))

    def pullback(
        self,
        values: Sequence[Any] | None = None,
        outputs: Sequence[int] | None = None,
        only: Sequence[int] | None = None,
    ) -> Any:
        """Returns a pullback by `autograd.grad`; the function is called anew for each."""
        numbers = self.outputs if outputs is None else outputs
        leaves = _leaves(self.values if values is None else values)
        found = self.results(leaves)
        outs = [found[i] for i in numbers]
        sinks = leaves if only is None else [leaves[i] for i in only]

        def pull(cotangents: Vectors, is_grads_batched: bool = False) -> list[Any]:
            options = {"retain_graph": True, "is_grads_batched": is_grads_batched}
            return list(map(Plain(), self._gradients(outs, sinks, cotangents, **options)))

        return pull

    def _gradients(self, outs: Vectors, sinks: Vectors, cts: Vectors, **options: Any) -> list[Any]:
        pairs = zip(outs, map(tensor_of, cts), strict=True)
        used = [(x, ct) for x, ct in pairs if ct is not None and has_graph(x)]
        if not used:
            return [tensor_of(np.zeros(x.shape, x.dtype)) for x in sinks]
        roots, given = map(list, zip(*used, strict=True))
        return list(self.graph.grad(roots, sinks, given, materialize_grads=True, **options))

    def pulled(self, *operands: Any) -> list[Any]:
        """Returns the gradients for tensors and cotangents, with a graph of their own."""
        size = len(self.values)
        leaves = [x.requires_grad_() for x in operands[:size]]
        found = self.results(leaves)
        outs = [found[i] for i in self.outputs]
        return self._gradients(outs, leaves, operands[size:], create_graph=True)

    def heard(self) -> tuple[Any, list[Any]]:
        """Returns a pullback; nothing is heard of what it calls."""
        return self.pullback(), []

    def pushforward(self, values: Sequence[Any] | None = None) -> Callable[..., list[Any]]:
        """Returns the map from tangents to those of the outputs, by dual tensors."""
        primals = list(self.values if values is None else values)

        def push(tangents: Vectors, is_grads_batched: bool = False) -> list[Any]:
            if is_grads_batched:  # one by one: a level is no transform
                columns = zip(*map(push, zip(*tangents, strict=True)), strict=True)
                return list(map(np.stack, columns))
            filled = [
                np.zeros_like(x) if t is None else t for x, t in zip(primals, tangents, strict=True)
            ]
            with self.graph.dual_level():
                pairs = zip(map(tensor_of, primals), map(tensor_of, filled), strict=True)
                found = self.results([self.graph.make_dual(x, t) for x, t in pairs])
                moved = [self.graph.unpack_dual(found[i]).tangent for i in self.outputs]
                return [
                    np.zeros_like(out) if t is None else Plain()(t)
                    for out, t in zip(self.outs, moved, strict=True)
                ]

        return push

    def batch(self, function: Callable[..., Any], stacked: Vectors) -> list[Any]:
        """Returns what a pullback, or a pushforward, gives for many vectors at once."""
        return list(function(stacked, is_grads_batched=True))


def _leaves(values: Sequence[Any]) -> list[Any]:
    return [tensor_of(np.asarray(x)).requires_grad_() for x in values]


def array_of(x: Any) -> Any:
    """Returns an array of its own in the place of a tensor."""
    return np.array(x.numpy(force=True)) if type(x) in OnTape.types else x


def of_tensors(check: F, graph: Graph) -> F:
    """Returns a check that takes tensors as well, of which those that require grad are checked.

    Args:
        check: `gradcheck` or `gradgradcheck`.
        graph: what differentiates where the function cannot be traced.
    """

    @boundary
    @functools.wraps(check)
    def checked(func: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if OnTape.types.isdisjoint(map(type, tree.tree_leaves((inputs, args, kwargs)))):
            return check(func, inputs, *args, **kwargs)
        inputs = tuple(inputs) if isinstance(inputs, list) else inputs
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        tensors = [x for x in tree.tree_leaves(given) if type(x) in OnTape.types]
        fixed = {
            i: x for i, x in enumerate(given) if type(x) in OnTape.types and not x.requires_grad
        }
        if len(fixed) == len(tensors):
            raise GradcheckInputError(
                f"{check.__name__}: none of the tensors that are given requires grad.\n"
                f"  Make those that are to be checked with requires_grad=True."
            )
        values, rest, named = mapped(array_of, (given, args, kwargs))
        at = tuple([x for i, x in enumerate(values) if i not in fixed])

        @functools.wraps(func)
        def called(*xs: Any) -> Any:
            others = iter(xs)
            return func(*[fixed[i] if i in fixed else next(others) for i in range(len(given))])

        @functools.wraps(func)
        def traced(*xs: Any) -> Any:
            others, outer, state.of_tensors = iter(xs), state.of_tensors, True
            full = [x if i in fixed else next(others) for i, x in enumerate(values)]
            try:
                found = func(*mapped(tensor_of, full))
                return mapped(array_of, found)  # of a tensor that it closes over, or makes
            finally:
                state.of_tensors = outer

        try:
            with graph.as_arrays():
                return check(traced, at, *rest, **named)
        except (GradcheckError, GradcheckInputError):
            raise
        except Exception:
            # whatever it was: on tensors it raises what is the user's own
            called.__ftrans_probe__ = functools.partial(TensorProbe, graph=graph)  # type: ignore[attr-defined]
        return check(called, at, *rest, **named)

    return checked  # type: ignore[return-value]
