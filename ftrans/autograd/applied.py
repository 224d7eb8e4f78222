"""A `Function` that is called on tensors, as in PyTorch.

It is traced instead, as under transforms, where its code shows that this cannot be told apart: that
it does nothing but to compute. What fails then, as since it asks for a value, is called as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any
from weakref import ref

import jax.tree_util as tree
import numpy as np

from ftrans.autograd.hooks import stacked
from ftrans.autograd.levels import OPEN
from ftrans.autograd.modes import Mode, calling
from ftrans.autograd.nodes import target_of
from ftrans.autograd.saved import SavedTensor, save
from ftrans.autograd.segment import Edge, Segment
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, forget, made, of_array
from ftrans.autograd.views import assign
from ftrans.custom import Function, FunctionCtx
from ftrans.custom.guards import guards_of
from ftrans.custom.left import maker
from ftrans.custom.methods import Methods, methods_of
from ftrans.custom.opaque import again_of, missing_of
from ftrans.custom.rule import Rule, only_once
from ftrans.errors import MissingRuleError
from ftrans.interpreters.parts import Part
from ftrans.ir import ArrayType, Equation, Params, Program
from ftrans.ir.source import Untraced
from ftrans.ir.stack import state
from ftrans.numpy.named import is_cut, needs_tensors, tensor_of
from ftrans.numpy.promotion import is_array
from ftrans.primitives import missing_p
from ftrans.primitives.control.common import Mask, present
from ftrans.pytree import Parts, is_constant, mapped
from ftrans.runtime.profile import record_function

APPLY = Function._ftrans_apply.__wrapped__
"""What `Function.apply` is inside."""


def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns what `cls.apply` returns for arguments that hold tensors."""
    methods = methods_of(cls)
    if methods.on_tensors is None:
        methods.on_tensors = _does_more(methods)
    given, named = methods.parameters.bound(args, kwargs, methods.unfit)
    is_called = methods.backward is not None and not OPEN
    if not (is_called and (methods.on_tensors or not all(map(_is_plain, given)))):
        try:
            return recorded(APPLY, cls, *args, **kwargs)
        except Untraced as found:
            if not is_called and found.error is not None:
                raise found.error from None
            methods.on_tensors = True
    passed = min(len(args) + len(kwargs), len(given))
    return _called(methods, Parts(given, _is_value), given, named, passed)


def _does_more(methods: Methods) -> bool:
    """Tells whether methods may do more than to compute, or go backward themselves."""
    written = [methods.forward, methods.setup_context, methods.backward]
    functions = [function for function in written if function is not None]
    return needs_tensors(*functions) or guards_of(functions) is None


def _is_plain(x: Any) -> bool:
    return _is_value(x) or is_constant(x)


class Context(FunctionCtx):
    """Is the context of such a call: what is saved on it is what it was then."""

    __slots__ = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Saves tensors; see there."""
        super().save_for_backward(*map(tensor_of, tensors))
        saved = self.__state__.for_backward
        self.__state__.arrays = tuple([x if x is None else settle(x) for x in saved])

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved."""
        found = super().saved_tensors
        return tuple([x.unpack() if type(x) is SavedTensor else x for x in found])


class Applied(Segment):
    """Is one call, whose `backward` a walk calls.

    Args:
        name: that of the class.
        rule: what `backward` is given, and must return.
        ctx: the context.
        targets: what the gradients of its operands are for.
    """

    def __init__(self, name: str, rule: Rule, ctx: Context, targets: Sequence[Any]):
        part = _part(f"{name}Backward", rule.inputs, rule.types)
        super().__init__(None, [], targets, part.program, [])
        self.operation, self.place = part, (self.number, 0)
        self.name, self.rule, self.ctx = name, rule, ctx
        self.computed: list[tuple[Any, str]] = []
        self.message = only_once(rule.label, rule.method)
        if not self.message and is_cut(rule.method):
            self.message = again_of(rule.label)

    def frees(self, given: Iterable[int], call: Any, wanted: Mask | None) -> bool:
        """Notes nothing: whatever was saved is freed by the first `backward`, as in PyTorch."""
        return True

    def free(self, positions: Iterable[int], call: Any, saves: Any = None) -> None:
        """Lets go of what was saved."""
        for value in self.saved or ():
            value.free()

    def pull(self, walk: Any, given: dict[int, Any]) -> list[Any]:
        """Calls `backward`; returns the gradients of operands, each with its target."""
        cts = [walk.seen_by_user(given.get(p)) for p in range(len(self.rule.types))]
        with Mode(walk.create), self._marking(walk.create):
            if walk.size is None:
                found = self._gradients(walk.create, cts)
            else:
                rows = [[ct if ct is None else ct[i] for ct in cts] for i in range(walk.size)]
                columns = zip(*[self._gradients(walk.create, row) for row in rows], strict=True)
                pairs = zip(columns, self.rule.inputs, strict=True)
                found = [
                    stacked(_filled(xs, [t] * len(xs))) if any(present(xs)) else None
                    for xs, t in pairs
                ]
            return [*zip(self.targets, map(walk.taken_from_user, found), strict=True)]

    @contextmanager
    def _marking(self, create: bool) -> Iterator[None]:
        """Is a block in which derivatives of what `forward` has computed in between are errors.

        They would be zero, since nobody knows them. It is one where `backward` is differentiated.
        """
        marked = self.computed if create else []
        unknown = Edge(Unknown(missing_of(f"{self.name}.forward"), self), 0) if marked else None
        for x, name in marked:
            setattr(x, name, unknown)
        try:
            yield
        finally:
            for x, name in marked:
                setattr(x, name, None)
                forget(x)

    def _gradients(self, create: bool, cts: Sequence[Any]) -> list[Any]:
        rule, message = self.rule, self.message
        with Mode(False) if message else Mode(True) if create else calling():
            given = _filled(cts, rule.types) if rule.materialize else cts
            with record_function(rule.label):
                returned = rule.gradients(self.ctx, given)
        found = [
            None if ct is None or to is None else self._fitted(i, ct)
            for i, (ct, to) in enumerate(zip(returned, self.targets, strict=True))
        ]
        if not (message and create):
            return found
        edge = Edge(Unknown(message, self), 0)
        return [ct if ct is None else _result(ct, edge, True) for ct in found]

    def _fitted(self, number: int, ct: Any) -> Tensor:
        if type(ct) is Tensor and ct._type is self.rule.inputs[number]:
            return ct
        fitted = partial(self.rule.fitted, number)
        return recorded(fitted, ct) if type(ct) is Tensor else tensor_of(fitted(ct))


class Unknown(Segment):
    """Is what nobody knows the derivatives of: to go back through it is an error that says so."""

    def __init__(self, message: str, call: Applied):
        program = _part(message, call.rule.inputs, call.rule.types[:1]).program
        super().__init__(None, [], call.targets, program, [])
        self.ctx = call.ctx

    def pull(self, walk: Any, given: dict[int, Any]) -> list[Any]:
        """Raises a `MissingRuleError`."""
        raise MissingRuleError(self.program.name)


def _called(methods: Methods, parts: Parts, args: Any, kwargs: Any, passed: int) -> Any:
    """Calls `forward`, and makes the node of what it returns, if that requires grad."""
    given, ctx = [tensor_of(x) for x in parts.values], Context()
    versions, flags = [x._version for x in given], iter([x.requires_grad for x in given])
    needs = [True in [next(flags) for _ in range(count)] for count in parts.counts()]
    ctx.__state__.needs = tuple(needs[:passed])
    is_node = state.grad and True in needs
    targets = [target_of(x) if is_node else None for x in given]
    with calling():
        output = methods.call(ctx, args, kwargs)
    kept, make = ctx.__state__, maker(output)
    rigid, dirty = {id(x) for x in kept.rigid}, {id(x) for x in kept.dirty}
    outs = Parts(output if isinstance(output, tuple) else (output,), _is_value)
    pairs = zip(given, versions, strict=True)
    written = [x for x, before in pairs if x._version != before and x.requires_grad]
    methods.check_written([id(x) in dirty for x in written])
    if not dirty.issubset(map(id, given)):
        raise methods.no_input()
    for x in given:
        if id(x) in dirty and not any(x is y for y in outs.values):
            raise methods.not_returned(settle(x))
    if not is_node:
        return mapped(tensor_of, output)
    values = [tensor_of(x) for x in outs.values]
    rule = Rule(
        label=f"{methods.name}.{methods.backward_name}",
        which="backward",
        method=methods.backward,
        parts=parts.template(),
        output=outs.template(),
        inputs=tuple([x._type for x in given]),
        types=tuple([x._type for x in values]),
        smooth=tuple([x._type.is_inexact and id(x) not in rigid for x in values]),
        materialize=kept.materialize,
        names=methods.parameters.names,
        weak=(False,) * len(given),
        passed=passed,
        boxed=methods.boxed,
    )
    node = Applied(methods.name, rule, ctx, targets)
    before = zip(given, targets, strict=True)
    places = {id(x): target for x, target in before if id(x) not in dirty}
    results = []
    for i, (x, smooth) in enumerate(zip(values, rule.smooth, strict=True)):
        edge = Edge(node, i) if smooth else None
        y = _result(x, edge, id(x) in places or id(x) in dirty)
        if smooth:
            places.setdefault(id(x), (ref(node), i))
        results.append(assign(methods.name, x, y) if id(x) in dirty else y)
    _save(node, places)
    return make(outs.build(results))


def _result(x: Tensor, edge: Any, is_known: bool) -> Tensor:
    """Returns a tensor with a history, or without: another one, if it is known as what it is."""
    settle(x)
    meta = x._meta
    if is_known or x.requires_grad or (meta is not None and meta.parent is not None):
        x = made(x._v, 0, x._type)
    if edge is not None:
        x._edge = edge
        edge.segment.results.append((edge.position, ref(x)))
        forget(x)
    return x


def _save(node: Applied, places: dict[int, Any]) -> None:
    """Has hooks pack what was saved; what has a place there is for that, or for its own history."""
    kept, saved = node.ctx.__state__, []

    def is_computed(x: Any) -> bool:
        if type(x) is not Tensor or not x._type.is_inexact or id(x) in places:
            return False
        settle(x)
        return not x.requires_grad

    for x, array in zip(kept.for_backward, kept.arrays, strict=True):
        to = None if x is None else places[id(x)] if id(x) in places else x._target()
        saved.append(x if x is None else save("tensors", array, to))
        if is_computed(x):
            node.computed.append((saved[-1], "_target"))
    node.saved = [x for x in saved if x is not None]
    node.computed += [(x, "_edge") for x in tree.tree_leaves(node.ctx.__dict__) if is_computed(x)]
    kept.for_backward, kept.arrays, kept.dirty, kept.rigid = tuple(saved), (), (), ()


@lru_cache(1024)
def _part(name: str, takes: tuple[ArrayType, ...], gives: tuple[ArrayType, ...]) -> Part:
    """Returns what the graph knows of a call: each result depends on all operands."""
    ins, outs = tuple(range(len(takes))), tuple(range(len(takes), len(takes) + len(gives)))
    equation = Equation(missing_p, ins, Params({"types": gives, "message": name}), gives)
    program = Program.make(takes, [equation], outs, name=name)
    return Part(name, program, ins, outs, len(outs), None)


def _filled(xs: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    """Returns tensors of zeros in the place of None."""
    pairs = zip(xs, types, strict=True)
    return [of_array(np.zeros(t.shape, t.dtype)) if x is None else x for x, t in pairs]


def _is_value(x: Any) -> bool:
    return type(x) is Tensor or is_array(x)
