"""What a transform differentiates, and along what: arguments chosen, tangents matched to them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, FtransError, ShapeError, StructureError
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.ir.dtype import is_complex
from ftrans.numpy.promotion import as_array, cast, is_array, is_float_array, is_scalar
from ftrans.primitives.axes import zeros
from ftrans.pytree import (
    Skeleton,
    argument_name,
    describe,
    flatten_like,
    holds_arrays,
    shown,
    split,
    tuple_of,
)
from ftrans.traceback import OnTape

_ONE = tuple_of(1)


class Arguments:
    """Splits positional arguments into the leaves that are differentiated and all else.

    Args:
        name: the transform and the function, for errors.
        func: the function that takes the arguments.
        args: the positional arguments.
        argnums: which of them are differentiated: an int, or a sequence of ints; None for all.
        integers: whether integer arrays are let through, to be held fixed.

    Attributes:
        values: the leaves that are differentiated, arrays or Python floats.
        skeleton: the tuple of the arguments that were chosen, without those leaves.
    """

    __slots__ = ("args", "func", "numbers", "single", "skeleton", "values")

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        argnums: int | Sequence[int] | None,
        integers: bool = False,
    ):
        self.func = func
        self.args = args
        if type(argnums) is int and 0 <= argnums < len(args):
            self.single, self.numbers = True, (argnums,)
            self.values = [args[argnums]]
        else:
            self.single = not (argnums is None or isinstance(argnums, Sequence))
            self.numbers = _positions(name, argnums, len(args))
            self.values = [args[number] for number in self.numbers]
        if all(map(is_float_array, self.values)):  # as most often
            self.skeleton = tuple_of(len(self.values))
            return
        self.values, self.skeleton = split(tuple(self.values), is_differentiable)
        if len(self.values) < len(self.skeleton.leaves):
            self._check_rest(name, integers)

    def _check_rest(self, name: str, integers: bool) -> None:
        """Raises where a leaf was asked for by itself, or is an array, and cannot be one of them.

        Raises:
            DTypeError: there.
        """
        children = self.skeleton.structure.children()
        nested = [not tree.treedef_is_leaf(c) for c in children for _ in range(c.num_leaves)]
        for index, (leaf, inside) in enumerate(zip(self.skeleton.leaves, nested, strict=True)):
            numeric = is_array(leaf) or (is_scalar(leaf) and not inside)
            held = inside and not numeric and not holds_arrays(leaf)
            if leaf is None or (integers and numeric) or held:
                continue
            label = self._label(index)
            if isinstance(leaf, np.ndarray):
                as_array(leaf)  # raises where it is of no use, and says how to convert it
            if not numeric:
                raise DTypeError(
                    f"{name}: differentiation takes arrays, Python floats and pytrees of them.\n"
                    f"  {label}: {describe(leaf)}\n  Close over it, or leave it out of argnums."
                )
            scalar = is_scalar(leaf)
            fix = f"Write {float(leaf)}" if scalar else f"Convert it, {label}.astype('float32')"
            raise DTypeError(
                f"{name}: differentiation takes real or complex floating-point values.\n"
                f"  {label}: {describe(leaf)}\n"
                f"  {fix}; or close over it, or leave it out of argnums."
            )

    def _label(self, index: int) -> str:
        """Returns how an error names a leaf of the arguments that were chosen."""
        chosen = tuple([self.args[number] for number in self.numbers])
        path = tree.tree_flatten_with_path(chosen)[0][index][0]
        return argument_name(self.func, (tree.SequenceKey(self.numbers[path[0].idx]), *path[1:]))

    def name(self, index: int) -> str:
        """Returns how an error names one of the `values`."""
        places = self.skeleton.among(range(len(self.skeleton.leaves)))
        return self._label(places[index])

    def call(self, func: Callable[..., Any], values: Sequence[Any], kwargs: Any) -> Any:
        """Calls `func` with these values in the place of the leaves that are differentiated."""
        if len(self.args) == 1 and self.skeleton is _ONE:
            return OnTape.returned(func(*values, **kwargs))
        args = list(self.args)
        for number, arg in zip(self.numbers, self.skeleton.build(values), strict=True):
            args[number] = arg
        return OnTape.returned(func(*args, **kwargs))

    def build(self, values: Sequence[Any]) -> Any:
        """Returns one value per differentiated leaf, in the structure of the chosen arguments.

        Leaves that are not differentiated become None.
        """
        if self.single and self.skeleton is _ONE:
            return values[0]
        found = self.skeleton.alone(values)
        return found[0] if self.single else found


def is_differentiable(leaf: Any) -> bool:
    """Tells whether a leaf has derivatives: an array of floating point, or a Python float."""
    return is_float_array(leaf) or (
        type_of(leaf).is_inexact
        if is_array(leaf)
        else is_scalar(leaf) and not isinstance(leaf, int)
    )


def _positions(name: str, argnums: Any, count: int) -> Sequence[int]:
    """Returns the positions that were asked for, from the front; raises where there are none."""
    if argnums is None:
        return range(count)
    given = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)
    numbers = [_position(name, number, count) for number in given]
    if len(set(numbers)) != len(numbers):
        raise ArgumentError(f"{name}: argnums={argnums} names an argument twice.")
    return numbers


def _position(name: str, number: Any, count: int) -> int:
    try:
        number = operator.index(number)
    except TypeError:
        raise ArgumentError(
            f"{name}: argnums must be an int or a tuple of ints.\n  argnums: {describe(number)}\n"
            f"  Write the position of the argument: argnums=0."
        ) from None
    if not -count <= number < count:
        raise ArgumentError(
            f"{name}: argnums={number} is out of range.\n  positional arguments: {count}\n"
            f"  Pass the argument by position: keyword arguments are not differentiated."
        )
    return number % count


# ------------------------------------------------------------------------ tangents and cotangents


def match_structure(function: str, what: str, like: str, expected: Any, given: Any) -> list[Any]:
    """Returns the leaves of `given` where it has the structure `expected`; None is a leaf.

    Raises:
        StructureError: where it has not.
    """
    found = flatten_like(expected, given)
    if found is None:
        raise StructureError(
            f"{function}: {what} does not have the structure of {like}.\n"
            f"  {like}: {shown(expected)}\n"
            f"  {what}: {shown(tree.tree_structure(given))}\n"
            f"  Pass a pytree of the same containers; None stands for a zero leaf."
        )
    return found


def match_leaves(
    function: str,
    what: str,
    like: str,
    skeleton: Skeleton,
    types: Sequence[ArrayType],
    leaves: Sequence[Any],
) -> list[Any]:
    """Returns tangents or cotangents as arrays of exactly the types that they must have.

    Args:
        function: whose argument they are, for errors.
        what: names the pytree of them.
        like: names the pytree that they belong to.
        skeleton: that pytree.
        types: of the arrays in it.
        leaves: one for each leaf of it; None stands for zero.
    """
    found = []
    for number, (t, leaf) in enumerate(zip(types, skeleton.among(leaves), strict=True)):
        if not t.is_inexact and getattr(leaf, "dtype", None) == jax.dtypes.float0:
            leaf = None
        array = None if leaf is None else _fitted(t, leaf)
        if array is None and leaf is not None:
            path = skeleton.names("")[number]
            label = f"{like.removeprefix('the ')}{path}" if path else like
            raise _misfit(function, f"{what}{path}", label, t, leaf)
        found.append(array)
    return found


def _fitted(t: ArrayType, given: Any) -> Any:
    """Returns what was given as an array of a type; None where it is none."""
    if type(given) is np.ndarray and given.shape == t.shape and given.dtype == t.dtype:
        return given
    loses = isinstance(given, complex) and not is_complex(t.dtype)
    if is_scalar(given) and t.shape == () and not loses:
        return as_array(given, t.dtype)
    if not is_array(given) or type_of(given).shape != t.shape:
        return None
    if type_of(given).dtype == t.dtype:
        return as_array(given)
    return cast(given, t.dtype) if isinstance(given, Tracer) and given.weak else None


def _misfit(function: str, what: str, like: str, t: ArrayType, given: Any) -> FtransError:
    """Returns the error for a tangent or cotangent that does not have the type of `like`."""
    if not (is_array(given) or is_scalar(given)):
        return StructureError(
            f"{function}: {what} must be an array.\n  {what}: {describe(given)}\n"
            f"  Pass {t}, the type of {like}."
        )
    own = type_of(as_array(given))
    if own.shape != t.shape:
        return ShapeError(
            f"{function}: {what} does not have the shape of {like}.\n"
            f"  {like}: {t}\n  {what}: {own}\n"
            f"  Pass an array of shape {t.shape}."
        )
    return DTypeError(
        f"{function}: {what} does not have the dtype of {like}.\n"
        f"  {like}: {t}\n  {what}: {own}\n"
        f"  Convert it: {what}.astype({t.dtype.name!r})."
    )


def match_tangents(
    name: str, arguments: Skeleton, types: Sequence[ArrayType], tangents: Sequence[Any]
) -> list[Any]:
    """Returns the tangents of the leaves that are differentiated, `None` for zero.

    Args:
        name: of the function, for errors.
        arguments: the tuple of primals without those leaves.
        types: their types.
        tangents: one per primal.
    """
    leaves = flatten_like(arguments.structure, tuple(tangents))
    if leaves is None:
        children = arguments.structure.children()
        if len(tangents) != len(children):
            raise StructureError(
                f"{name}: there must be one tangent per primal.\n"
                f"  primals: {len(children)}\n  tangents: {len(tangents)}\n"
                f"  Pass None for a tangent that is zero."
            )
        leaves = []
        for i, (structure, tangent) in enumerate(zip(children, tangents, strict=True)):
            leaves += match_structure(name, f"tangents[{i}]", f"primals[{i}]", structure, tangent)
    if len(leaves) > len(types):
        _check_constant(name, arguments, leaves)
    return match_leaves(name, "tangents", "primals", arguments, types, leaves)


def _check_constant(name: str, arguments: Skeleton, tangents: Sequence[Any]) -> None:
    """Raises where a tangent that is not zero is given for an integer, which has none."""
    parts = arguments.among(range(len(tangents)))
    for number in sorted(set(range(len(tangents))).difference(parts)):
        primal, tangent = arguments.leaves[number], tangents[number]
        if tangent is None or not (is_array(primal) or is_scalar(primal)):
            continue
        if type(tangent) is Tracer or _is_nonzero(tangent):
            raise DTypeError(
                f"{name}: integers and booleans have no tangents.\n"
                f"  primal: {describe(primal)}\n  tangent: {describe(tangent)}\n"
                f"  Pass None for it, or convert the primal: x.astype('float32')."
            )


def _is_nonzero(tangent: Any) -> bool:
    array = np.asarray(tangent)
    return array.dtype != jax.dtypes.float0 and bool(np.any(array))


def match_cotangents(
    name: str, given: Any, outputs: Skeleton, types: Sequence[ArrayType]
) -> list[Any]:
    """Returns one cotangent per array that a function returned, of exactly its type.

    Args:
        name: of the function, for errors.
        given: the cotangents, in the structure of the outputs; None stands for zero.
        outputs: how the function's outputs make its result.
        types: the types of the outputs.
    """
    leaves = match_structure(name, "cotangent", "the output", outputs.structure, given)
    found = match_leaves(name, "cotangent", "the output", outputs, types, leaves)
    return [zeros(t.update()) if ct is None else ct for t, ct in zip(types, found, strict=True)]
