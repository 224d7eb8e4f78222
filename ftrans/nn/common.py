"""What functions of networks share: operators, operands, spatial axes, reductions of losses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ftrans import numpy as fnp
from ftrans import primitives as p
from ftrans.errors import ArgumentError, ShapeError
from ftrans.interpreters.base import building, finish
from ftrans.ir import ArrayType, Program, type_of
from ftrans.ir.dtype import is_float, is_half
from ftrans.numpy.promotion import as_array, cast, inexact
from ftrans.primitives.outside import silently
from ftrans.runtime.jaxlink import is_jax, unseen, x64

INT = np.dtype("int32")

Function = TypeVar("Function", bound=Callable[..., Any])


def formula(function: Function) -> Function:
    """Makes operators between arrays in a function mean what functions of `ftrans.numpy` do.

    Those of NumPy would warn of infinities, make scalars of arrays of rank 0 and single precision
    of `bfloat16`; those of JAX would round what is 64 bits wide.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        of_jax, narrow = any(map(is_jax, values)), any(map(_is_narrow, values))
        by_jax = of_jax or narrow
        if by_jax:
            args, kwargs = jax.tree.map(
                lambda x: jnp.asarray(x) if _is_narrow(x) else unseen(x), (args, kwargs)
            )
        with x64() if by_jax else nullcontext():
            found = silently(True, functools.partial(function, **kwargs), *args)
        if narrow and not of_jax:
            return jax.tree.map(lambda x: np.array(x) if is_jax(x) else x, found)
        return np.asarray(found) if isinstance(found, np.generic) else found

    return functools.wraps(function)(called)  # type: ignore[return-value]


def _is_narrow(x: Any) -> bool:
    """Tells whether a value is an array of floating point that NumPy itself does not have."""
    return type(x) is np.ndarray and x.dtype.kind == "V" and is_float(x.dtype)


# ------------------------------------------------------------------------------------- operands


def shown(**values: Any) -> str:
    """Returns a line for each argument that is there, with its type, for errors."""
    return "".join(f"\n  {name}: {type_of(x)}" for name, x in values.items() if x is not None)


def wide(x: Any) -> tuple[Any, np.dtype]:
    """Returns a strict operand in the dtype to compute in, single where it is half, and its own."""
    x = inexact(x)
    dtype = type_of(x).dtype
    return (cast(x, np.float32) if is_half(dtype) else x), dtype


def in_single(function: Function) -> Function:
    """Makes a function get its first operand as `wide` gives it, and converts its result back."""
    first = next(iter(inspect.signature(function).parameters))

    def called(*args: Any, **kwargs: Any) -> Any:
        given, *rest = args or (kwargs.pop(first, None),)
        x, dtype = wide(given)
        found = function(x, *rest, **kwargs)
        return (cast(found[0], dtype), *found[1:]) if type(found) is tuple else cast(found, dtype)

    return functools.wraps(function)(called)  # type: ignore[return-value]


def fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Tells whether a shape has the rank of another, to which it broadcasts."""
    return len(own) == len(shape) and all(n in (1, m) for n, m in zip(own, shape, strict=True))


def like(x: Any, other: Any) -> Any:
    """Returns a parameter in the dtype that another operand is computed in; None stays None."""
    return None if x is None else cast(as_array(x), type_of(other).dtype)


def per_channel(
    name: str, argument: str, x: Any, of: Any, axis: int = 1, what: str = "channel"
) -> Any:
    """Returns one number per channel, f32[c], so that it broadcasts with an operand; or None."""
    if x is None:
        return None
    x, t = as_array(x), type_of(of)
    (size,) = t.shape[axis : axis + 1] or (1,)
    if type_of(x).shape != (size,):
        raise ShapeError(
            f"{name}: {argument} has one number for each {what}, axis {axis} of input."
            f"{shown(input=of)}\n  {argument}: {type_of(x)}\n  Pass f32[{size}]."
        )
    return fnp.reshape(x, (-1, *(1,) * (t.ndim - axis - 1)))


def ranked(name: str, x: Any, form: str, least: int, most: int = 64) -> ArrayType:
    """Returns the type of an operand, whose rank is to be between two numbers, as a form says."""
    t = type_of(x)
    if not least <= t.ndim <= most:
        raise ShapeError(f"{name}: input is {form}.{shown(input=x)}")
    return t


def program(name: str, function: Callable[..., Sequence[Any]], types: Sequence[Any]) -> Program:
    """Returns the program of a function of strict operands that uses nothing else."""
    with building(name, [t.update() for t in types]) as (frame, inputs):
        return finish(frame, function(*inputs))


# ---------------------------------------------------------------------------------- spatial axes


def sizes(name: str, argument: str, value: Any, count: int, least: int = 0) -> tuple[int, ...]:
    """Returns a setting as one number for each spatial axis, each of at least some size."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    whole = all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in given)
    if not whole or len(given) not in (1, count) or min(given) < least:
        raise ArgumentError(
            f"{name}: {argument} is a number of at least {least}, or {count} of them, "
            f"one for each spatial axis.\n  {argument}: {value!r}\n"
            f"  Write {argument}={max(least, 1)}, or {argument}={(max(least, 1),) * count}."
        )
    return tuple(map(int, given * count if len(given) == 1 else given))


def padded(x: Any, axis: int, low: int, high: int, fill: Any) -> Any:
    """Adds elements around an axis, or takes some off where numbers are negative."""
    if not (low or high):
        return x
    none = (0,) * type_of(x).ndim
    low_all, high_all = put(none, axis, low), put(none, axis, high)
    return p.pad_p(x, low=low_all, high=high_all, interior=none, value=fill)


def put(values: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    """Returns numbers for all axes with another one for one axis."""
    return (*values[:axis], n, *values[axis + 1 :])


def family(function: Callable[..., Any]) -> list[Any]:
    """Makes the functions over one, two and three spatial axes of one that is over any number.

    That takes f32[n, c, ...] first. In its docstring `{axes}` stands for the spatial axes, and
    `{count}` for their number.
    """

    def over(count: int) -> Callable[..., Any]:
        axes = ", ".join("dhw"[3 - count :])
        name = f"{function.__name__.removeprefix('_')}{count}d"

        @functools.wraps(function)
        def called(input: Any, *args: Any, **kwargs: Any) -> Any:
            x = as_array(input)
            t = ranked(name, x, f"f32[n, c, {axes}] or f32[c, {axes}]", count + 1, count + 2)
            if t.ndim == count + 2:
                return function(x, *args, **kwargs)
            found = function(p.reshape_p(x, shape=(1, *t.shape)), *args, **kwargs)
            return tuple([x[0] for x in found]) if type(found) is tuple else found[0]

        called.__name__ = called.__qualname__ = name
        doc = str(function.__doc__)
        called.__doc__ = doc.replace("{axes}", axes).replace("{count}", str(count))
        return called

    return [over(1), over(2), over(3)]


# ------------------------------------------------------------------------------------ reductions


def loss(function: Function, known: Sequence[str] = ("none", "mean", "sum")) -> Function:
    """Makes a loss of a function of each element's, which has an argument `reduction`.

    The function returns values; or values, and what their sum is divided by for a mean.
    """
    place = list(inspect.signature(function).parameters).index("reduction")

    def called(*args: Any, **kwargs: Any) -> Any:
        how = args[place] if len(args) > place else kwargs.get("reduction", "mean")
        if how not in known:
            raise ArgumentError(
                f"{function.__name__}: there is no reduction {how!r}.\n  reduction: {how!r}\n"
                f"  Write {', '.join(map(repr, known[:-1]))} or {known[-1]!r}."
            )
        found = function(*args, **kwargs)
        values, total = found if type(found) is tuple else (found, None)
        if how == "none":
            return values
        if how == "mean":
            return fnp.mean(values) if total is None else fnp.sum(values) / total
        examples = type_of(values).shape[:1] or (1,)
        return fnp.sum(values) / float(examples[0]) if how == "batchmean" else fnp.sum(values)

    return functools.wraps(function)(called)  # type: ignore[return-value]
