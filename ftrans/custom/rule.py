"""Calls of `backward` and `jvp`: what they are given, and what they must return."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.context import FunctionCtx, attributes_of
from ftrans.custom.opaque import RuleCallee, restore, snapshot_of
from ftrans.errors import RuleError
from ftrans.external.captures import check_captures, defined
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.dtype import is_complex
from ftrans.ir.stack import is_tracing, state
from ftrans.numpy.named import asked_by_names
from ftrans.numpy.promotion import as_array, broadcast_to, cast, is_array, is_scalar, is_weak
from ftrans.primitives import external_p, reshape_p, sum_p
from ftrans.primitives.axes import zeros
from ftrans.pytree import Parts, describe, mapped
from ftrans.runtime.cache import Remembered

_callees = Remembered(128)


class Rule(NamedTuple):
    """Is one method of a rule, with what its arguments and results must be.

    Attributes:
        label: names it: "F.backward".
        which: "backward", or "forward" for `jvp`.
        method: the user's function.
        parts: the arguments of `apply`, without the arrays.
        output: the results, without the arrays.
        inputs: the types of the arrays among the arguments.
        types: the types of the results.
        smooth: which results have tangents.
        materialize: whether cotangents that are zero are given as arrays.
        names: those of the arguments.
        weak: which arrays among the arguments were Python numbers.
        passed: how many arguments were passed; the others are defaults, whose gradients may be left
            out.
        boxed: whether the method takes the cotangents as one list.
    """

    label: str
    which: str
    method: Any
    parts: Parts
    output: Parts
    inputs: tuple[ArrayType, ...]
    types: tuple[ArrayType, ...]
    smooth: tuple[bool, ...]
    materialize: bool
    names: tuple[str, ...]
    weak: tuple[bool, ...]
    passed: int
    boxed: bool = False

    def __call__(self, ctx: FunctionCtx, given: Sequence[Any]) -> list[Any]:
        """Calls the method on cotangents, or tangents; None stands for zero.

        Returns:
            A cotangent of the right type for each input, or a tangent for each result; or None.
        """
        if self.which != "backward":
            return self._dots(ctx, given)
        if self.materialize:
            pairs = zip(given, self.types, strict=True)
            given = [_zeros(t) if ct is None else ct for ct, t in pairs]
        return self._gradients(ctx, given)

    def _gradients(self, ctx: FunctionCtx, cotangents: Sequence[Any]) -> list[Any]:
        returned, inputs = self._returned(ctx, cotangents), self.inputs
        if len(inputs) == 1 and self.parts.arrays_alone and _is_exactly(returned, inputs[0]):
            return [returned]  # as most often
        flat = self._flat_gradients(returned)
        return [
            None if ct is None or not t.is_inexact else self.fitted(i, ct)
            for i, (ct, t) in enumerate(zip(flat, inputs, strict=True))
        ]

    def gradients(self, ctx: FunctionCtx, cotangents: Sequence[Any]) -> list[Any]:
        """Calls `backward`; returns what it returns for each input, which need not be `fitted`."""
        return self._flat_gradients(self._returned(ctx, cotangents))

    def fitted(self, number: int, ct: Any) -> Any:
        """Returns what `backward` has returned for an input, as an array of its type."""
        t = self.inputs[number]
        if _is_exactly(ct, t):
            return ct
        return self._fitted("gradient", number, chosen(ct, t) if self.weak[number] else ct, t)

    def _returned(self, ctx: FunctionCtx, cotangents: Sequence[Any]) -> Any:
        given = self.output.alone(cotangents)
        return self.method(ctx, list(given)) if self.boxed else self.method(ctx, *given)

    def _flat_gradients(self, returned: Any) -> list[Any]:
        parts = self.parts
        count = len(parts)
        found = _listed(returned, count)
        while len(found) > count and found[-1] is None:
            found.pop()
        if self.passed <= len(found) < count:
            found += [None] * (count - len(found))
        return self._flat(parts, found, "gradient", "argument")

    def _dots(self, ctx: FunctionCtx, tangents: Sequence[Any]) -> list[Any]:
        found = _listed(self.method(ctx, *self.parts.alone(tangents)), len(self.output))
        flat = self._flat(self.output, found, "tangent", "output")
        for i, (dot, t, s) in enumerate(zip(flat, self.types, self.smooth, strict=True)):
            if dot is not None and t.is_inexact and not s:
                raise RuleError(
                    f"{self._where}: result {i} is marked as not differentiable, and has a "
                    f"tangent.\n"
                    f"  Return None for it."
                )
        return [
            None if dot is None or not s else self._fitted("tangent", i, dot, t)
            for i, (dot, t, s) in enumerate(zip(flat, self.types, self.smooth, strict=True))
        ]

    def _flat(self, parts: Parts, found: list[Any], what: str, like: str) -> list[Any]:
        """Returns what a method returned for each array; raises where it does not fit."""
        if len(found) != len(parts):
            raise RuleError(
                f"{self._where}: it must return one {what} for each {like} of forward.\n"
                f"  expected {len(parts)}, got {len(found)}\n"
                f"  Return None for an {like} that has no {what}."
            )
        return parts.split(lambda: f"{self._where}: a {what}", found)

    def _fitted(self, what: str, number: int, value: Any, t: ArrayType) -> Any:
        is_gradient = what == "gradient"
        # its name is made only where it is needed: it costs more than the check
        try:
            return fit("", value, t, "", is_gradient)
        except RuleError:
            name = self._inputs()[number] if is_gradient else f"result {number}"
        return fit(f"{self._where}: the {what} of {name}", value, t, name, is_gradient)

    def later(self, ctx: FunctionCtx, values: Sequence[Any], needs: tuple[bool, ...]) -> list[Any]:
        """Records that the method is called on arrays when the program is run.

        What it takes, and what the context holds, is traced; `needs` is what the context says.
        """
        check_captures(self.label, self.method)
        types, wanted = self.types, self.smooth
        if self.which == "backward":
            types, wanted = self.inputs, tuple([t.is_inexact for t in self.inputs])
        snapshot = snapshot_of(ctx)
        template, (first, second, _) = snapshot.template(), snapshot.counts()
        saved = first + second
        given = tuple([x is not None for x in values])
        # what is an attribute was a Python number where it promotes as one
        numbers = [
            is_scalar(x) or (i >= saved and is_weak(x)) for i, x in enumerate(snapshot.values)
        ]
        operands = [x for x in values if x is not None]
        operands += [np.asarray(x) if is_scalar(x) else as_array(x) for x in snapshot.values]

        count = sum(given)
        whole = self.which == "backward" and count == len(given)
        # nothing but arrays was saved
        alone = template.structure.num_nodes == saved + 4 and template.arrays == saved

        by_names = self._replace(method=asked_by_names(self.method, attributes_of, mapped))

        def run(*arrays: Any) -> Sequence[Any]:
            inner, taken, kept = FunctionCtx(), arrays[:count], arrays[count:]
            if count < len(given):
                rest = iter(taken)
                taken = tuple([next(rest) if g else None for g in given])
            if True in numbers:
                pairs = zip(kept, numbers, strict=True)
                kept = tuple([x.item() if number else x for x, number in pairs])
            s = inner.__state__
            if alone:
                s.for_backward, s.for_forward = kept[:first], kept[first:]
            else:
                restore(template, kept, inner)
            s.which, s.needs = self.which, needs
            found = (by_names._gradients if whole else by_names)(inner, taken)
            if len(found) == 1 and found[0] is not None:
                return found  # it is wanted, else there were no call
            pairs = zip(found, types, wanted, strict=True)
            return [np.zeros(t.shape, t.dtype) if x is None else x for x, t, w in pairs if w]

        rule = self._replace(parts=self.parts.exact_key, output=self.output.exact_key)
        kinds = tuple([type_of(x).update() for x in operands])
        key = rule, snapshot.exact_key, given, tuple(numbers), needs, kinds
        results = [t for t, w in zip(types, wanted, strict=True) if w]
        callee = _callees.find(
            key, lambda: RuleCallee(self.label, run, results, key=key, vmap_method=None)
        )
        found = iter(external_p(*operands, callee=callee))
        return [next(found) if w else None for w in wanted]

    @property
    def _where(self) -> str:
        return f"{self.label} ({defined(self.method)})"

    def _inputs(self) -> list[str]:
        count = len(self.parts)
        roots = [self.names[i] if i < len(self.names) else f"args[{i}]" for i in range(count)]
        return self.parts.item_names(roots)


def only_once(label: str, method: Any) -> str:
    """Returns the error for a second derivative of what `once_differentiable` marks; "" if not."""
    if not getattr(method, "__ftrans_once__", False):
        return ""
    return (
        f"{label} is marked with once_differentiable, and is differentiated again.\n"
        f"  It is defined at {defined(method)}.\n"
        f"  Take the mark away where it is written with functions that have derivatives."
    )


def _listed(found: Any, count: int) -> list[Any]:
    several = isinstance(found, tuple) or (isinstance(found, list) and count > 1)
    return list(found) if several else [found]


def _zeros(t: ArrayType) -> Any:
    """Returns zeros; while something is traced, they are not made unless they are used."""
    return zeros(t) if is_tracing() else np.zeros(t.shape, t.dtype)


# ------------------------------------------------------------------------- what a rule has returned


def chosen(value: Any, expected: ArrayType) -> Any:
    """Returns a cotangent of a Python number, whose dtype nobody chose, in the expected one."""
    inexact = is_scalar(value) or (is_array(value) and type_of(value).is_inexact)
    return cast(as_array(value), expected.dtype) if inexact else value


def fit(label: str, value: Any, expected: ArrayType, like: str, gradient: bool = False) -> Any:
    """Returns what a rule returned as an array of exactly the type that it must have.

    Args:
        label: names what it is, for the error: "F.backward (file:line): the gradient of x".
        value: what was returned.
        expected: its type.
        like: says whose type that is, for the error.
        gradient: whether it may be summed to the shape, and converted to the width, of `expected`.

    Raises:
        RuleError: where it is no array, or has another shape or dtype.
    """
    if _is_exactly(value, expected):
        return value
    if not (is_array(value) or is_scalar(value)):
        if isinstance(value, (list, tuple)) or not hasattr(value, "__array__"):
            raise RuleError(
                f"{label} is no array.\n  returned: {describe(value)}\n"
                f"  Return {expected}, or None where it is zero."
            )
        value = as_array(value)
    weak = is_weak(value)
    array = as_array(value)
    t = type_of(array)
    if t.shape != expected.shape:
        if weak and t.shape == ():
            array = broadcast_to(array, expected.shape)
        else:
            array = _summed(array, expected.shape) if gradient else None
        if array is None:
            raise RuleError(
                f"{label} has the wrong shape.\n  returned: {t}\n  {like}: {expected}\n"
                f"  Return an array of shape {expected.shape}."
            )
    if t.dtype != expected.dtype:
        number = weak and (expected.is_inexact or not t.is_inexact)
        alike = is_complex(expected.dtype) or not is_complex(t.dtype)
        if number or (gradient and alike):
            return cast(array, expected.dtype)
        raise RuleError(
            f"{label} has the wrong dtype.\n  returned: {t}\n  {like}: {expected}\n"
            f"  Convert it: .astype({expected.dtype.name!r})."
        )
    if isinstance(array, Tracer) and array.weak:
        return cast(array, expected.dtype)
    return array


def _is_exactly(x: Any, t: ArrayType) -> bool:
    """Tells whether a value is an array of NumPy's of a type that has derivatives."""
    return type(x) is np.ndarray and x.shape == t.shape and x.dtype == t.dtype and t.is_inexact


def _summed(array: Any, target: tuple[int, ...]) -> Any:
    """Returns the sum of an array that has a shape which broadcasts to its own; None for others."""
    shape = type_of(array).shape
    extra = len(shape) - len(target)
    pairs = list(zip((1,) * extra + target, shape, strict=False))
    if extra < 0 or any(n not in (1, m) for n, m in pairs):
        return None
    array = sum_p(array, axes=tuple([i for i, (n, m) in enumerate(pairs) if i < extra or n != m]))
    return array if type_of(array).shape == target else reshape_p(array, shape=target)


# --------------------------------------------------------------- who listens to calls of `backward`

Heard = Callable[[str, Callable[[], Sequence[Any]]], None]
"""Is told the name of a `backward`, and how to call it with None for all cotangents.

No transform calls it so, since what comes of that has to be zero; PyTorch's engine does.
"""


class _Listener(threading.local):
    heard: Heard | None = None
    depth = 0


_listener = _Listener()


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Tells of each `backward` that is traced in the block, called by the functions traced there.

    Those deeper inside, in the rules of others or in `jit`, do not count.
    """
    before = _listener.heard, _listener.depth
    _listener.heard, _listener.depth = heard, len(state.stack) + 1
    try:
        yield
    finally:
        _listener.heard, _listener.depth = before


def listener() -> Heard | None:
    """Returns who listens to a call that is recorded now."""
    return _listener.heard if len(state.stack) == _listener.depth else None
