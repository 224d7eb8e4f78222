"""The signature of a call: what JAX tells calls of a jitted function apart by."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, StaticArgumentError
from ftrans.ir import ArrayType, Tracer
from ftrans.numpy.promotion import as_array, default_dtype, is_array, is_scalar
from ftrans.pytree import Skeleton, argument_name, describe, leaf_name, split
from ftrans.runtime.jaxlink import is_jax, is_key, words


class Chosen(NamedTuple):
    """Is the arguments that an option of `jax.jit` names, by position and by name.

    Attributes:
        numbers: the positions, from the front or, if negative, from the back.
        names: the names, which hold for keyword arguments.
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def by_option(
        cls, signature: inspect.Signature | None, options: dict[str, Any], which: str
    ) -> Chosen:
        """Returns what the options say; JAX infers one by the other.

        Args:
            signature: of the user's function, where it is known.
            options: those of `jax.jit`.
            which: "static" or "donate".
        """
        given = options.get(f"{which}_argnums"), options.get(f"{which}_argnames")
        numbers = _tuple(f"{which}_argnums", given[0], int)
        names = _tuple(f"{which}_argnames", given[1], str)
        if signature is not None and (given[0] is None) != (given[1] is None):
            positional = [
                p.name
                for p in signature.parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            if given[0] is None:
                numbers = tuple(i for i, p in enumerate(positional) if p in names)
            else:
                count = len(positional)
                names = tuple(positional[i] for i in numbers if -count <= i < count)
        return cls(numbers, names)

    def positions(self, args: Sequence[Any]) -> set[int]:
        """Returns the positions of those among these arguments, from the front."""
        count = len(args)
        return {n % count for n in self.numbers if -count <= n < count}

    def apart(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns the arguments with None in the place of these, without those by name."""
        if not (self.numbers or self.names):
            return tuple(args), kwargs
        positions = self.positions(args)
        return (
            tuple([None if i in positions else arg for i, arg in enumerate(args)]),
            {name: value for name, value in kwargs.items() if name not in self.names},
        )

    def joined(
        self, others: tuple[Any, Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns what `apart` gave, with these arguments back in their places."""
        positions = self.positions(args)
        full = tuple([args[i] if i in positions else arg for i, arg in enumerate(others[0])])
        return full, others[1] | {name: kwargs[name] for name in self.names if name in kwargs}


def _tuple(option: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Returns what an option of `jax.jit` says, one or several, as a tuple."""
    if value is None:
        return ()
    found = tuple(value) if isinstance(value, Iterable) and type(value) is not str else (value,)
    if not all(isinstance(x, (kind, np.integer)) for x in found):
        what, example = ("positions", "(0, 2)") if kind is int else ("names", "('size',)")
        raise ArgumentError(
            f"jit: {option} are {what} of arguments.\n  {option}: {value!r}\n"
            f"  Write {option}={example}."
        )
    return found


# ---------------------------------------------------------------------------------- the signature


def signature_of(statics: Chosen, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """Returns the signature of a call, and the leaves of the arguments that are not static.

    Raises:
        TypeError: where a leaf is no array.
    """
    static: Any = ()
    if statics.numbers or statics.names:
        static = (
            tuple([(i, type(args[i]), args[i]) for i in sorted(statics.positions(args))]),
            tuple([(n, type(kwargs[n]), kwargs[n]) for n in statics.names if n in kwargs]),
        )
        args, kwargs = statics.apart(args, kwargs)
    leaves, structure = tree.tree_flatten((args, kwargs))
    return (structure, tuple(map(_leaf_type, leaves)), static), leaves


_SCALARS = {
    bool: ((), np.dtype("bool"), False),
    int: ((), np.dtype("int64"), True),
    float: ((), np.dtype("float64"), True),
    complex: ((), np.dtype("complex128"), True),
}
"""How JAX takes Python scalars where it keeps 64 bits."""


def _leaf_type(leaf: Any) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Returns shape, dtype and whether JAX holds the leaf to be a Python scalar."""
    found = _SCALARS.get(type(leaf))
    if found is not None:
        return found
    if is_array(leaf):
        return leaf.shape, leaf.dtype, is_jax(leaf) and leaf.weak_type
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.shape, np.dtype(leaf.dtype), leaf.weak_type
    for kind, found in _SCALARS.items():
        if isinstance(leaf, kind):
            return found
    raise DTypeError(f"{type(leaf).__name__} is no array")  # which the caller makes static


def input_type(leaf: Any) -> ArrayType:
    """Returns the type of an argument; Python integers take our default dtype."""
    if isinstance(leaf, Tracer):
        return ArrayType(leaf.type.shape, leaf.type.dtype, leaf.weak)
    shape, dtype, weak = _leaf_type(leaf)
    if weak and shape == ():
        return ArrayType((), default_dtype(int) if dtype.kind in "iu" else dtype, weak=True)
    return ArrayType(shape, dtype)


def is_given(leaf: Any) -> bool:
    """Tells whether a leaf is an array for JAX, or stands for one by its type."""
    return is_array(leaf) or is_scalar(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def check_integers(leaves: Sequence[Any]) -> None:
    """Raises where a Python integer does not fit, which JAX takes at 64 bits and we may cut.

    Raises:
        OverflowError: there, as it is raised without `jit`.
    """
    for leaf in leaves:
        if type(leaf) is int and not -(1 << 31) <= leaf < 1 << 31:
            as_array(leaf)


# ----------------------------------------------------------------------- leaves that are no arrays


@tree.register_static
@dataclass(frozen=True)
class _Static:
    """Carries a leaf that is no array through `jax.jit`, as part of the structure."""

    value: Any


def wrapped(
    name: str, func: Callable[..., Any], statics: Chosen, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    """Returns the arguments with leaves that are no arrays made static, and words for keys.

    Raises:
        StaticArgumentError: where what is static, an argument or such a leaf, cannot be hashed, and
            where such a leaf equals only itself.
    """
    check_static(name, func, statics, args, kwargs)
    values, rest = split(statics.apart(args, kwargs), is_given)
    made = lambda leaf: words(leaf) if is_key(leaf) else _Static(leaf)  # noqa: E731
    leaves = [None if leaf is None else made(leaf) for leaf in rest.leaves]
    return statics.joined(Skeleton(rest.structure, leaves).build(values), args, kwargs)


def check_static(
    name: str, func: Callable[..., Any], statics: Chosen, args: Any, kwargs: Any
) -> None:
    """Raises where what is static, an argument or a leaf that is no array, cannot be.

    What is static must be hashable. What nobody has said to be static must have a value besides: an
    object that equals only itself may hold something else at the next call, and look the same.
    """
    positions = statics.positions(args)
    given = [((tree.SequenceKey(i),), arg, i in positions) for i, arg in enumerate(args)]
    given += [((tree.GetAttrKey(k),), arg, k in statics.names) for k, arg in kwargs.items()]
    for root, value, static in given:
        if static:
            _check_hashable(name, _label(func, root), value)
            continue
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            if is_array(leaf) or is_scalar(leaf) or is_key(leaf):
                continue
            label = _label(func, (*root, *path))
            _check_hashable(name, label, leaf)
            holder = _known_by_itself(leaf)
            if holder is not None:
                kind = type(holder).__name__
                raise StaticArgumentError(
                    f"{name}: an object that equals only itself is no static argument: when what "
                    f"it holds has changed,\n  the function would not be traced anew.\n"
                    f"  {label}: {describe(leaf)}\n"
                    f"  Make it a pytree, jax.tree_util.register_dataclass({kind}); "
                    f"or give its class __eq__ and __hash__;\n"
                    f"  or, where it never changes, name it in static_argnums or static_argnames."
                )


_FUNCTIONS = (type, FunctionType, BuiltinFunctionType, ModuleType, np.ufunc, Enum, jax.Device)
"""What equals only itself, and is what it is: a function is taken with what it closes over."""


def _known_by_itself(value: Any) -> Any:
    """Returns the object in it that equals only itself, and may hold what changes; None if none."""
    if isinstance(value, MethodType):
        return _known_by_itself(value.__self__)
    if isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
        return next((x for x in map(_known_by_itself, parts) if x is not None), None)
    kind: Any = type(value)
    by_identity = kind.__eq__ is object.__eq__ and kind is not object
    return value if by_identity and not isinstance(inspect.unwrap(value), _FUNCTIONS) else None


def _label(func: Callable[..., Any], path: Any) -> str:
    first = path[0]
    if isinstance(first, tree.SequenceKey):
        return argument_name(func, path)
    return leaf_name(first.name, path[1:])


def _check_hashable(name: str, label: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise StaticArgumentError(
            f"{name}: a static argument must be hashable, since programs are found by it.\n"
            f"  {label}: {describe(value)}\n"
            f"  Pass a tuple or another immutable value instead."
        ) from None
