"""`Function`: PyTorch's way to write a custom rule, as a class of static methods."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ftrans.custom.context import FunctionCtx, VmapInfo, attributes_of
from ftrans.custom.function_call import Call
from ftrans.custom.left import left_of
from ftrans.custom.methods import Methods, methods_of
from ftrans.custom.recording import staged_for_jax
from ftrans.custom.reuse import Leap
from ftrans.custom.rule import listener
from ftrans.custom.tracing import needs_of
from ftrans.errors import RuleError
from ftrans.external.arrays import call_writing, read_only
from ftrans.ir import Tracer, is_tracing
from ftrans.ir.stack import asks, state
from ftrans.numpy.named import called_by_names
from ftrans.pytree import Parts
from ftrans.runtime.jaxlink import foreign, is_jax, to_jax, x64
from ftrans.traceback import boundary

F = TypeVar("F", bound=Callable[..., Any])


def _default(function: F) -> F:
    """Marks a method that a subclass has not written."""
    function.__ftrans_default__ = True  # type: ignore[attr-defined]
    return function


class Function:
    """Is the base of operations whose derivatives, or batches, their author writes.

    A subclass has static methods and is called by `apply`. `forward` computes the results; it takes
    the arguments of `apply`, and is followed by `setup_context(ctx, inputs, output)`, or takes a
    context in front of them. All other methods are optional, and one derivative is enough: the
    other is derived from it, and so are batches and derivatives of any order.

    What `forward` or `backward` compute with traced values, by functions of `ftrans.numpy` or
    NumPy's operators, is traced. A method that asks for plain arrays, by `np.asarray(x)`, is
    opaque: it is called on arrays that it must not write to; `forward` once, within `apply`, where
    its arguments have values, and all else when the program is run. So is a method that goes
    backward itself, from `x.detach().requires_grad_()`: it is called on tensors.

    Attributes:
        generate_vmap_rule: is for the sake of code for PyTorch: batches are derived in any case.
        boxed_grads_call: whether `backward` takes the cotangents as one list, after the context.

    Example:
        >>> import numpy as np
        >>> from ftrans import func
        >>> class Sort(Function):
        ...     @staticmethod
        ...     def forward(x):
        ...         order = np.argsort(np.asarray(x))
        ...         return np.asarray(x)[order], order
        ...
        ...     @staticmethod
        ...     def setup_context(ctx, inputs, output):
        ...         ctx.order = output[1]
        ...
        ...     @staticmethod
        ...     def backward(ctx, ct, _):
        ...         return ct[np.argsort(ctx.order)]
        >>> weights = np.array([1.0, 10.0, 100.0])
        >>> func.grad(lambda x: (Sort.apply(x)[0] * weights).sum())(np.array([3.0, 1.0, 2.0]))
        array([100.,   1.,  10.])

    Reference: https://docs.pytorch.org/docs/stable/notes/extending.func.html
    """

    generate_vmap_rule = boxed_grads_call = False
    _ftrans_methods: Any = None
    _ftrans_apply: Any = None

    def __init__(self, *args: Any, **kwargs: Any):
        name = type(self).__name__
        text = f"{name}: a Function is not instantiated; call {name}.apply(...)"
        warnings.warn(text, DeprecationWarning, stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: methods are static, and `apply` calls them.

        Raises:
            RuleError: always.
        """
        name = type(self).__name__
        raise RuleError(f"{name}: it has no instances to call.\n  Write {name}.apply(...).")

    @staticmethod
    @_default
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the results: an array, a tuple of arrays, or pytrees of them."""
        raise NotImplementedError  # `apply` has said so in better words

    @staticmethod
    @_default
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        """Saves what the rules need, where `forward` takes no context."""
        raise NotImplementedError

    @staticmethod
    @_default
    def backward(ctx: FunctionCtx, *cotangents: Any) -> Any:
        """Takes the cotangents of the outputs; returns those of the arguments, None for zero."""
        raise NotImplementedError

    vjp = backward

    @staticmethod
    @_default
    def jvp(ctx: FunctionCtx, *tangents: Any) -> Any:
        """Takes the tangents of the arguments; returns those of the outputs."""
        raise NotImplementedError

    @staticmethod
    @_default
    def vmap(info: VmapInfo, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """Computes the results for a batch; returns them and `out_dims`."""
        raise NotImplementedError

    @classmethod
    @boundary
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns what `forward` returns for these arguments.

        Args:
            args: anything; arrays and traced values, also inside pytrees, have derivatives.
            kwargs: as `forward` takes them; keyword-only arrays are treated as closed over.

        Raises:
            MissingRuleError: where `forward` is not written; where a derivative is asked for, and
                none is.
            RuleError: where a method does not do what it must.
        """
        passed = len(args) + len(kwargs)
        methods = methods_of(cls)
        args, kwargs = methods.parameters.bound(args, kwargs, methods.unfit)
        trail, guards, leap, left = state.trail, methods.guards, None, None
        if trail is not None and not kwargs and listener() is None:
            if guards is not None:
                leap = Leap(trail, methods.name, guards, args, (passed, asks()))
                found = leap.take()
            elif (again := methods.again) is not None and again.fits(args, passed):
                found, left = again.take(trail, args, lambda: needs_of(Parts(args), passed))
            else:
                found = None
            if found is not None:
                return found
        parts = Parts(args)
        if not is_tracing() or not any(type(x) is Tracer for x in parts.values):
            if not foreign(parts.values):
                return _call_at_once(methods, parts, kwargs, passed)
            # as a program, so that JAX learns of the rules
            staged = lambda *xs: Call(methods, Parts(parts.build(xs)), kwargs).record()  # noqa: E731
            return staged_for_jax(methods.name, staged, parts.values)
        call = Call(methods, parts, kwargs, min(passed, len(parts)))
        call.early = left
        result = call.record()
        if leap is not None:
            leap.learn(call, result)
        return result


Function._ftrans_apply = Function.__dict__["apply"].__func__


def _call_at_once(methods: Methods, parts: Parts, kwargs: dict[str, Any], passed: int) -> Any:
    """Calls the methods where nothing that they are given is traced; the container follows."""
    ctx = FunctionCtx()
    ctx.__state__.needs = (False,) * passed

    def call(values: Sequence[Any]) -> Any:
        by_names = lambda named: methods.call(ctx, parts.build(named), kwargs)  # noqa: E731
        return called_by_names(methods.by_names, by_names, values, attributes_of(ctx))

    values = [read_only(x) for x in parts.values]
    left = left_of(*call_writing(call, values, methods.marks_dirty), ctx)
    given, dirty = left.inputs, left.dirty
    methods.check_written([i in dirty for i in left.written])
    methods.check_alone(dirty, parts.values)
    originals = dict(zip(map(id, given), parts.values, strict=True))
    for i in dirty:
        if i not in left.returned:
            raise methods.not_returned(given[i])
        original = parts.values[i]
        if isinstance(original, np.ndarray):
            np.copyto(original, given[i])  # what was declared is done
        else:
            originals[id(given[i])] = given[i]
    returned = list(map(id, left.output.values))
    found = [originals.get(key, x) for key, x in zip(returned, left.known(), strict=True)]
    if any(map(is_jax, parts.values)):
        with x64():
            found = [to_jax(x) if type(x) is np.ndarray else x for x in found]
    return left.make(left.output.build(found))


def once_differentiable(function: F) -> F:
    """Marks a `backward` whose result must not be differentiated; decorates the static method.

    Example:
        >>> class Double(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...
        ...     @staticmethod
        ...     @once_differentiable
        ...     def backward(ctx, ct):
        ...         return 2 * ct
        >>> from ftrans import grad
        >>> float(grad(Double.apply)(1.0))
        2.0
    """

    @functools.wraps(function)
    def once(ctx: FunctionCtx, *cotangents: Any) -> Any:
        return function(ctx, *cotangents)

    once.__ftrans_once__ = True  # type: ignore[attr-defined]
    return once  # type: ignore[return-value]
