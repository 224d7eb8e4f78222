"""NumPy's protocols on traced values: what `np.sin(x)`, `array + x` and `np.asarray(x)` do.

A NumPy function is mapped by its name to ours, so that unmodified NumPy code traces. Conversion to
a plain array is refused where it would cut a gradient silently.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

import ftrans.numpy as fnp
from ftrans.errors import ConcretizationError, MutationError, TracedArrayError, UnsupportedError
from ftrans.interop import from_jax
from ftrans.ir import Frame, Tracer, type_of
from ftrans.ir.location import here
from ftrans.ir.source import Opaque
from ftrans.ir.stack import PAST, state
from ftrans.numpy.advice import instead_of, is_storing, meant, stored
from ftrans.numpy.borrowed import listed
from ftrans.numpy.inplace import SIGNS, put_along_axis, ufunc_at
from ftrans.numpy.promotion import as_array, is_array
from ftrans.numpy.ufunc import codes_of, direct
from ftrans.numpy.views import in_rule
from ftrans.primitives import reshape_p, stop_gradient_p
from ftrans.primitives.record import zero
from ftrans.runtime.jaxlink import foreign
from ftrans.traceback import boundary

__all__ = ["in_rule", "is_differentiated", "may_have_gradient"]

_REDUCE = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
    "logical_or": "any",
}  # fmt: skip
_ARRAYS = frozenset({Tracer, np.ndarray})
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


def array_namespace(self: Any, *, api_version: str | None = None) -> Any:
    """Returns the namespace of the array API: `ftrans.numpy`."""
    return fnp


# ------------------------------------------------------------------------------- NumPy's functions


def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Applies a ufunc of NumPy's or SciPy's by the function of the same name."""
    name = ufunc.__name__
    if method == "__call__" and not kwargs:
        trail: Any = state.trail
        primitive = direct.get(ours(ufunc, name))
        if trail is not None and primitive is not None and (codes := codes_of(trail, *inputs)):
            return trail.take(primitive, *codes, depth=3)  # the short way
        plain = np.ndarray in map(type, inputs)
        if plain and trail is not None and any(getattr(x, "frame", None) is trail for x in inputs):
            # as captured values they can be taken over, see `composite`
            inputs = tuple(
                [trail.capture(x) if type(x) is np.ndarray and is_array(x) else x for x in inputs]
            )
        return ours(ufunc, name)(*inputs)
    target = (kwargs.get("out") or (None,))[0]
    if target is not None and target is inputs[0] and type(target) is not Tracer and name in SIGNS:
        sign = SIGNS[name]
        raise MutationError(
            f"array {sign}= x: a plain array cannot be overwritten by a traced value.\n"
            f"  array: {type_of(target)}\n  x: {type_of(as_array(inputs[-1]))}\n"
            f"  Write array = array {sign} x, or create it in the traced function by\n"
            f"  ftrans.numpy.zeros(shape) or ftrans.numpy.array(array)."
        )
    if method == "__call__":
        return ours(ufunc, name)(*inputs, **kwargs)
    if method == "at":
        return ufunc_at(name, *inputs)
    if method == "outer":
        x, y = map(as_array, inputs)
        shape = type_of(x).shape + (1,) * type_of(y).ndim
        return ours(ufunc, name)(reshape_p(x, shape=shape), y, **kwargs)
    table = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}.get(method, {})
    if name not in table:
        theirs = getattr(getattr(jnp, name, None), method, None)
        if theirs is None or target is not None:
            return _by_numpy(getattr(ufunc, method), f"np.{name}.{method}")(*inputs, **kwargs)
        kwargs.pop("out", None)
        return from_jax(theirs)(*map(listed, inputs), **kwargs)
    kwargs = {key: value for key, value in kwargs.items() if value is not None or key == "axis"}
    if kwargs.get("out") == (None,):
        del kwargs["out"]
    return ours(ufunc, table[name])(*inputs, **{"axis": 0, **kwargs})


def array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Applies a function of NumPy's by the function of the same name."""
    if not _ARRAYS.issuperset(types) and not all(issubclass(t, tuple(_ARRAYS)) for t in types):
        return NotImplemented
    if func is np.put_along_axis:  # ours returns what NumPy's writes
        return put_along_axis(*args, **kwargs)
    if kwargs.get("casting") == "same_kind":  # the default, which NumPy's own functions hand on
        kwargs = {name: x for name, x in kwargs.items() if name != "casting"}
    return ours(func, func.__name__)(*args, **kwargs)


@cache
def ours(function: Any, name: str) -> Any:
    """Returns our function for one of NumPy's."""
    if isinstance(function, np.ufunc):
        places = {"np": np, "scipy.special": sys.modules.get("scipy.special")}
        own = function.__name__
        if own in ("_zeta", "_riemann_zeta"):  # what SciPy's `zeta` calls
            zeta = from_jax(_of_jax("zeta"))
            return zeta if own == "_zeta" else lambda x: zeta(x, 1.0)
        prefix = next((p for p, m in places.items() if getattr(m, own, None) is function), None)
        home, label = fnp if prefix else None, f"{prefix}.{name}" if prefix else name
    else:
        module = function.__module__
        home = {"numpy": fnp, "numpy.linalg": fnp.linalg, "numpy.fft": fnp.fft}.get(module)
        label = f"{module.replace('numpy', 'np', 1)}.{name}"
    found = getattr(home, name, None) if name in getattr(home, "__all__", ()) else None
    if found is function:
        found = None  # NumPy's own, which would ask us again
    if found is None and label.startswith("scipy.special"):
        theirs = _of_jax(name)
        found = None if theirs is None else from_jax(theirs)
    return _by_numpy(function, label) if found is None else found


def _of_jax(name: str) -> Any:
    """Returns a function of `jax.scipy.special`, with all its derivatives; None for none."""
    import jax.scipy.special  # which takes its time, as the other one does

    from ftrans.interop.slopes import FUNCTIONS

    return FUNCTIONS.get(name) or getattr(jax.scipy.special, name, None)


def _by_numpy(function: Any, label: str) -> Any:
    """Makes what calls a function of NumPy's itself, where no gradient is lost by that."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not in_rule():
                return function(*tree.tree_map(_plain, args), **tree.tree_map(_plain, kwargs))
        except (ConcretizationError, TracedArrayError):
            pass  # for which there is better advice
        raise _missing(label, args)

    return call


def _plain(x: Any) -> Any:
    if type(x) is not Tracer:
        return x
    plain = array(x)
    plain.flags.writeable = False  # it is a copy: what is written into it would be lost
    return plain


def _missing(label: str, args: Iterable[Any]) -> UnsupportedError:
    """Returns the error for a function that is not there: JAX may have it."""
    shown = ", ".join(str(type_of(x)) if is_array(x) else type(x).__name__ for x in args)
    advice = instead_of(re.sub(r"^np\b", "numpy", label))
    return UnsupportedError(
        f"{label}: there is no such function of traced values.\n"
        f"  arguments: {shown or 'a traced value'}\n  {advice};\n"
        f"  or, as a constant that no gradient goes through, {label}(np.asarray(x.detach()))."
    )


def give_methods() -> None:
    """Gives functions that stand for ufuncs of two arrays the methods of these: `add.reduce`."""
    for name in fnp.__all__:
        ufunc = getattr(np, name, None)
        if isinstance(ufunc, np.ufunc) and (ufunc.nin, ufunc.nout, ufunc.signature) == (2, 1, None):
            for method in ("accumulate", "at", "outer", "reduce", "reduceat"):
                setattr(getattr(fnp, name), method, _method(ufunc, method))


def _method(ufunc: np.ufunc, method: str) -> Any:
    def applied(*inputs: Any, **kwargs: Any) -> Any:
        return array_ufunc(None, ufunc, method, *inputs, **kwargs)

    applied.__name__ = applied.__qualname__ = f"{ufunc.__name__}.{method}"
    applied.__doc__ = f"Is `numpy.{ufunc.__name__}.{method}`."
    return boundary(applied)


# -------------------------------------------------------------------------------- plain arrays


def array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """Returns the value as a NumPy array, where no gradient can be lost by that.

    Raises:
        TracedArrayError: where the value depends on what is being differentiated.
    """
    if in_rule() and may_have_gradient(self):
        if self.frame.rule is None:
            raise Opaque
        found = self.frame.rule(self)
        return found if dtype is None or dtype == found.dtype else found.astype(dtype)
    try:
        value = self.value(lambda: meant("np.asarray()"))
        if foreign([value]) and in_rule():
            raise Opaque
        value = np.asarray(value)
    except ConcretizationError as error:
        failed = stored(self) if is_storing() else error
        raise Opaque(failed) if in_rule() else failed from None
    if may_have_gradient(self):
        failed = stored(self) if is_storing() else _cut(self)
        raise Opaque(failed) if in_rule() else failed
    return np.array(value, dtype=dtype)


def _cut(x: Tracer) -> TracedArrayError:
    use, advice = meant("np.asarray()")
    return TracedArrayError(
        f"{use}: it would become a plain array, which cuts its gradient.\n"
        f"  value: {x.type}, {x.origin}\n  converted at {here()}\n{advice}"
    )


def dlpack(self: Any, **options: Any) -> Any:
    """Hands the value to another library, as `np.asarray` does."""
    return array(self).__dlpack__(**options)


def dlpack_device(self: Any) -> Any:
    """Says where `dlpack` puts the value."""
    return array(self).__dlpack_device__()


def may_have_gradient(x: Tracer) -> bool:
    """Tells whether a value depends, other than through `stop_gradient`, on an argument.

    Arguments are the declared inputs of frames; what a frame captured from outside is followed.
    Integers and booleans have no gradient.
    """
    return any(True for _ in _arguments(x, beyond=False))


def is_differentiated(x: Tracer) -> bool:
    """Tells whether a value depends on what is being differentiated, as far as frames know.

    In a method of a custom rule one derivative is by the rule, whatever the method does.
    """
    return any(frame.differentiates > 0 and not n for frame, n in _arguments(x, beyond=True))


def _arguments(x: Tracer, beyond: bool) -> Iterator[tuple[Frame, int]]:
    """Yields the frames on whose arguments a value depends, other than through `stop_gradient`.

    Args:
        x: the value.
        beyond: whether what an argument stands for is followed, in frames further out.

    Yields:
        A frame, and how many derivatives of it are by the rules in which `x` is.
    """
    pending, seen = [(x.frame, x.index, 0)], set()
    while pending:
        frame, code, ruled = pending.pop()
        if frame.depth == PAST or (id(frame), code, ruled) in seen:
            continue
        seen.add((id(frame), code, ruled))
        if code < 0:
            if not frame.input_types[~code].is_inexact:
                continue
            if frame.is_argument(code):
                yield frame, ruled
                if not beyond:
                    continue
                ruled = max(ruled - frame.differentiates, 0)
            source = frame.sources[~code]
            if isinstance(source, Tracer):
                pending.append((source.frame, source.index, ruled))
            continue
        equation = frame.produced(code)[0]
        if equation.primitive is stop_gradient_p or equation.primitive.jvp == [zero]:
            continue  # as with a rounding, no gradient is lost that goes through it
        if any(t.is_inexact for t in equation.types):
            pending += [(frame, c, ruled) for c in equation.operands if type(c) is int]
