"""Methods of a rule that need plain arrays: recorded as calls, and called when the program is run.

A method is found to be opaque when it asks a traced value for its array. The types of what it
returns are then learnt by calling it once, on the values where they are known, else on an example;
they are those it must return from then on. Its context travels as arrays, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.context import FunctionCtx, key_of
from ftrans.custom.external.host import HostCallee
from ftrans.custom.parts import Parts, defined
from ftrans.errors import RuleError
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.frame import Opaque, example, examples
from ftrans.ir.stack import state, untraced
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives import external_p
from ftrans.runtime.jaxlink import foreign

__all__ = ["HostForward", "Remembered", "calls_host", "host_call", "is_foreign"]


class Remembered(OrderedDict):
    """Is a dict that forgets what was not used for longest."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def find(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns the value for a key, made where there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
            while len(self) > self._most:
                self.popitem(last=False)
        else:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread has pushed it out
                self[key] = found
        return found


_opaque = Remembered(1024)
"""The functions that were found to be opaque."""
_typings = Remembered(1024)
_callees = Remembered(1024)


def calls_host(function: Any, call: Callable[[], Any], host: Callable[[], Any]) -> Any:
    """Calls a method of a rule on traced values; or records that it is called later.

    Args:
        function: the method.
        call: calls it.
        host: records it.
    """
    if function in _opaque:
        return host()
    try:
        return call()
    except Opaque:
        _opaque.find(function, lambda: True)
        return host()


def is_foreign(x: Any) -> bool:
    """Tells whether a value is an array, also one of another library, or a number."""
    return is_array(x) or is_scalar(x) or hasattr(x, "__dlpack__") or isinstance(x, np.ndarray)


# ------------------------------------------------------------------------------ the context


def _snapshot(ctx: FunctionCtx) -> Parts:
    """Returns what the rules may ask a context for."""
    kept = ctx._state
    return Parts(
        (kept.for_backward, kept.for_forward, dict(ctx.__dict__)),
        lambda x: is_array(x) or isinstance(x, (float, complex)) or hasattr(x, "__dlpack__"),
    )


def _restored(snapshot: Parts, values: Sequence[Any], ctx: FunctionCtx) -> None:
    """Gives a context what a snapshot says, with these arrays."""
    kept = ctx._state
    kept.for_backward, kept.for_forward, attributes = snapshot.build(values)
    ctx.__dict__.update(attributes)


# ------------------------------------------------------------------------------------ forward


class _Typing(NamedTuple):
    """Is what a call of an opaque `forward` has shown.

    Attributes:
        output: what it returned, without the arrays.
        is_tuple: whether that was a tuple.
        context: what it left in the context; None where it takes none.
        rigid: the results that were marked as not differentiable.
        dirty: the inputs that were marked as written to.
        materialize: whether cotangents of zero are arrays.
        returned: for inputs that were returned which result they are.
        weak: which arrays were Python scalars.
        callee: calls it.
    """

    output: Parts
    is_tuple: bool
    context: Parts | None
    rigid: tuple[int, ...]
    dirty: tuple[int, ...]
    materialize: bool
    returned: dict[int, int]
    weak: list[bool]
    callee: HostCallee


class HostForward:
    """Records calls of an opaque `forward`.

    Args:
        cls: the class.
        parts: the positional arguments.
        kwargs: the keyword-only ones.
        inputs: the traced values of the arrays among the arguments.
        old: whether `forward` takes the context.

    Attributes:
        returned: for inputs that `forward` returned which result they are.
    """

    def __init__(
        self, cls: Any, parts: Parts, kwargs: dict[str, Any], inputs: Sequence[Any], old: bool
    ):
        self.cls = cls
        self.parts = parts
        self.kwargs = kwargs
        self.inputs = inputs
        self.old = old
        self.returned: dict[int, int] = {}

    def record(self, ctx: FunctionCtx, needs: Any, with_context: bool) -> Any:
        """Records the call; returns the output with traced values, and fills the context."""
        types = tuple([type_of(x).update() for x in self.inputs])
        set_up = None if self.old or not with_context else self.cls.setup_context
        needed = needs() if self.old or set_up is not None else ()
        key = (
            self.cls.forward,
            set_up,
            types,
            self.parts.key,
            Parts(tuple(self.kwargs.values())).key,
            needed,
        )
        typing = _typings.find(key, lambda: self._typed(key, types, set_up, needed))
        outs = external_p(*map(as_array, self.inputs), callee=typing.callee)
        outs = [
            Tracer(x.frame, x.index, x.type, True) if weak and type(x) is Tracer else x
            for x, weak in zip(outs, typing.weak, strict=True)
        ]
        count = sum(typing.output.counts())
        output = typing.output.build(outs[:count])
        if typing.context is not None:
            _restored(typing.context, outs[count:], ctx)
            kept = ctx._state
            kept.rigid = tuple([outs[i] for i in typing.rigid])
            kept.dirty = tuple([self.inputs[i] for i in typing.dirty])
            kept.materialize = typing.materialize
        self.returned = typing.returned
        return output if typing.is_tuple else output[0]

    def _typed(self, key: Any, types: Any, set_up: Any, needs: Any) -> _Typing:
        """Calls the method once, and notes what it returns."""
        name = f"{self.cls.__name__}.forward"
        arrays = [_read_only(x) for x in self._examples()]
        call = _ForwardCall(self.cls, self.parts.template(), self.kwargs, self.old, set_up, needs)
        copies = False
        try:
            with untraced():
                try:
                    found = call(arrays)
                except ValueError as error:
                    if "read-only" not in str(error):
                        raise
                    copies = True
                    arrays = [np.array(x) for x in arrays]
                    found = call(arrays)
        except Exception as error:
            error.add_note(
                f"ftrans: {name} is opaque, since it asks for plain arrays; it was called on an "
                f"example to learn what it returns.\n  {defined(self.cls.forward)}"
            )
            raise
        self._check_no_capture(name, found)
        output, context, ctx, is_tuple = found
        values = [*output.values, *([] if context is None else context.values)]
        arrays_out = [_to_array(value) for value in values]
        outs = [key_of(x) for x in output.values]
        given = [key_of(x) for x in arrays]
        kept = ctx._state
        rigid = {key_of(x) for x in kept.rigid}
        dirty = {key_of(x) for x in kept.dirty}
        expected = (output.key, None if context is None else context.key)

        def run(*given: Any) -> list[Any]:
            output, context, _, _ = call(given)
            shown = (output.key, None if context is None else context.key)
            if shown != expected:
                raise RuleError(
                    f"{name}: what it returned, or left in the context, differs from call to call "
                    f"in more than its arrays.\n  it is defined at {defined(self_forward)}\n"
                    f"  Save what depends on values as an array: ctx.name = np.asarray(value)."
                )
            return [_to_array(x) for x in (*output.values, *(context.values if context else ()))]

        self_forward = self.cls.forward
        callee = _RuleCallee(
            name,
            run,
            [ArrayType(x.shape, x.dtype) for x in arrays_out],
            key=key,
            vmap_method=None,
            copies=copies,
        )
        return _Typing(
            output.template(),
            is_tuple,
            None if context is None else context.template(),
            tuple(i for i, k in enumerate(outs) if k in rigid),
            tuple(i for i, k in enumerate(given) if k in dirty),
            kept.materialize,
            {i: outs.index(k) for i, k in enumerate(given) if k in outs},
            [is_scalar(value) for value in values],
            callee,
        )

    def _examples(self) -> list[Any]:
        """Returns the values of the inputs where they are known, else examples of them."""
        with examples():
            found = [x.value() if type(x) is Tracer else x for x in self.inputs]
        pairs = zip(found, self.inputs, strict=True)
        return [example(type_of(x)) if foreign([value]) else value for value, x in pairs]

    def _check_no_capture(self, name: str, found: Any) -> None:
        output, context, _, _ = found
        for value in (*output.values, *([] if context is None else context.values)):
            if type(value) is Tracer:
                raise captured_error(name, self.cls.forward, value)


class _ForwardCall:
    """Calls `forward`, and what belongs to it, on arrays."""

    def __init__(
        self, cls: Any, parts: Parts, kwargs: dict[str, Any], old: bool, set_up: Any, needs: Any
    ):
        self.cls = cls
        self.parts = parts
        self.kwargs = kwargs
        self.old = old
        self.set_up = set_up
        self.needs = needs

    def __call__(self, arrays: Sequence[Any]) -> tuple[Parts, Parts | None, FunctionCtx, bool]:
        ctx = FunctionCtx()
        ctx._state.needs = self.needs
        args = self.parts.build(arrays)
        if self.old:
            output = self.cls.forward(ctx, *args, **self.kwargs)
        else:
            output = self.cls.forward(*args, **self.kwargs)
            if self.set_up is not None:
                self.set_up(ctx, args, output)
        is_tuple = isinstance(output, tuple)
        returned = Parts(output if is_tuple else (output,), is_foreign)
        has_context = self.old or self.set_up is not None
        return returned, _snapshot(ctx) if has_context else None, ctx, is_tuple


def captured_error(name: str, function: Any, value: Any) -> RuleError:
    """Returns the error for an opaque method that closes over a traced value, naming it."""
    variable = next(
        (
            variable
            for variable, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            )
            if _content(cell) is value
        ),
        None,
    )
    what = f"the variable {variable}" if variable else "a value"
    return RuleError(
        f"{name}: it is opaque, and closes over {what} that is traced, {value.type}, so that its "
        f"derivative would be lost.\n"
        f"  it is defined at {defined(function)}\n"
        f"  Pass {variable or 'it'} to apply as an argument."
    )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


# -------------------------------------------------------------------------------- other methods


def host_call(
    label: str,
    function: Any,
    ctx: FunctionCtx,
    operands: Sequence[Any],
    types: Sequence[ArrayType],
    key: Any,
    body: Callable[[FunctionCtx, Sequence[Any]], Sequence[Any]],
    needs: tuple[bool, ...],
) -> list[Any]:
    """Records the call of an opaque `backward` or `jvp`.

    Args:
        label: names it.
        function: the method.
        ctx: the context of the call, with traced values in it.
        operands: cotangents or tangents, traced.
        types: those of the results.
        key: what the body depends on, apart from the method and the context.
        body: takes a context with arrays in it, and arrays for the operands; returns arrays.
        needs: what `ctx.needs_input_grad` is.
    """
    snapshot = _snapshot(ctx)
    template = snapshot.template()
    which, count = ctx._state.which, len(operands)
    given = [*operands, *(_as_operand(x) for x in snapshot.values)]
    kinds = tuple([type_of(x).update() for x in given])
    numbers = [is_scalar(x) for x in snapshot.values]
    identity = (function, snapshot.key, tuple(numbers), which, needs, kinds, tuple(types), key)

    def run(*arrays: Any) -> Sequence[Any]:
        inner = FunctionCtx()
        saved = [
            x.item() if number else x for x, number in zip(arrays[count:], numbers, strict=True)
        ]
        _restored(template, saved, inner)
        inner._state.which = which
        inner._state.needs = needs
        return body(inner, arrays[:count])

    def make() -> HostCallee:
        return _RuleCallee(label, run, types, key=identity, vmap_method=None)

    return list(external_p(*given, callee=_callees.find(identity, make)))


def _as_operand(x: Any) -> Any:
    if isinstance(x, (float, complex)):
        return np.asarray(x)
    return as_array(x)


class _RuleCallee(HostCallee):
    """Is a method of a rule that is called on arrays."""

    def missing(self, rule: str) -> str:
        """Returns the error for a method that is differentiated, and cannot be."""
        owner, _, method = self.name.rpartition(".")
        if method == "forward":
            return (
                f"{self.name}: it is opaque, since it asks for plain arrays, and what it computed "
                f"in between, or closes over, is differentiated.\n"
                f"  Return from forward what is saved, so that backward gets its cotangent; or "
                f"write it with ftrans.numpy."
            )
        return (
            f"{self.name}: it is opaque, since it asks for plain arrays, and is differentiated "
            f"again.\n"
            f"  Write it with functions of ftrans.numpy, or let it call another Function that has "
            f"a backward of its own, in the place of {owner}.{method}'s NumPy."
        )


def _to_array(value: Any) -> Any:
    if is_array(value):
        return value
    if is_scalar(value):
        return as_array(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _read_only(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


assert state
