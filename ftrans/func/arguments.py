"""The arguments that a transform differentiates: chosen by position, flattened, checked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import ArgumentError, DTypeError
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array, is_float_array, is_scalar
from ftrans.pytree import argument_name, describe, holds_arrays, split


def chosen(
    name: str, func: Callable[..., Any], args: Sequence[Any], argnums: int | Sequence[int]
) -> Arguments | OneArray:
    """Returns the arguments split into what is differentiated and all else, see `Arguments`."""
    if type(argnums) is int and 0 <= argnums < len(args) and is_float_array(args[argnums]):
        return OneArray(func, args, argnums)
    return Arguments(name, func, args, argnums)


class OneArray:
    """Is `Arguments` where one is chosen that is an array by itself, as most often."""

    __slots__ = ("args", "func", "number", "values")

    def __init__(self, func: Callable[..., Any], args: Sequence[Any], number: int):
        self.func = func
        self.args = args
        self.number = number
        self.values = [args[number]]

    def name(self, index: int) -> str:
        """Is `Arguments.name`."""
        return argument_name(self.func, (tree.SequenceKey(self.number),))

    def call(self, func: Callable[..., Any], values: Sequence[Any], kwargs: Any) -> Any:
        """Is `Arguments.call`."""
        args, number = self.args, self.number
        if len(args) == 1:
            return func(*values, **kwargs)
        return func(*args[:number], *values, *args[number + 1 :], **kwargs)

    def build(self, values: Sequence[Any]) -> Any:
        """Is `Arguments.build`."""
        return values[0]


class Arguments:
    """Splits positional arguments into the leaves that are differentiated and all else.

    Args:
        name: the transform and the function, for errors.
        func: the function that takes the arguments.
        args: the positional arguments.
        argnums: which of them are differentiated: an int, or a sequence of ints.
        integers: whether integer arrays are let through, to be held fixed.

    Attributes:
        values: the leaves that are differentiated, arrays or Python floats.
        skeleton: the tuple of the arguments that were chosen, without those leaves.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        args: Sequence[Any],
        argnums: int | Sequence[int],
        integers: bool = False,
    ):
        self.func = func
        self.args = args
        self.single = type(argnums) is int or not isinstance(argnums, Sequence)
        numbers = (argnums,) if self.single else tuple(argnums)  # type: ignore[arg-type]
        self.numbers = [_position(name, number, len(args)) for number in numbers]
        if len(numbers) > 1 and len(set(self.numbers)) != len(self.numbers):
            raise ArgumentError(f"{name}: argnums={argnums} names an argument twice.")
        self.chosen = tuple([args[number] for number in self.numbers])
        self.values, self.skeleton = split(self.chosen, _is_differentiable)
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
            label = argument_name(self.func, self._places()[index])
            if not numeric:
                raise DTypeError(
                    f"{name}: differentiation takes arrays, Python floats and pytrees of them.\n"
                    f"  {label}: {describe(leaf)}\n  Leave it out of argnums."
                )
            scalar = is_scalar(leaf)
            fix = f"Write {float(leaf)}" if scalar else f"Convert it, {label}.astype('float32')"
            raise DTypeError(
                f"{name}: differentiation takes real or complex floating-point values.\n"
                f"  {label}: {describe(leaf)}\n"
                f"  {fix}, or leave it out of argnums."
            )

    def _places(self) -> list[tuple[Any, ...]]:
        """Returns the paths to all leaves in the tuple of all arguments."""
        paths = [path for path, _ in tree.tree_flatten_with_path(self.chosen)[0]]
        return [(tree.SequenceKey(self.numbers[path[0].idx]), *path[1:]) for path in paths]

    @property
    def paths(self) -> list[tuple[Any, ...]]:
        """Where the `values` stand in the arguments."""
        return self.skeleton.among(self._places())

    def name(self, index: int) -> str:
        """Returns how an error names one of the `values`."""
        return argument_name(self.func, self.paths[index])

    def call(self, func: Callable[..., Any], values: Sequence[Any], kwargs: Any) -> Any:
        """Calls `func` with these values in the place of the leaves that are differentiated."""
        args = list(self.args)
        for number, arg in zip(self.numbers, self.skeleton.build(values), strict=True):
            args[number] = arg
        return func(*args, **kwargs)

    def build(self, values: Sequence[Any]) -> Any:
        """Returns one value per differentiated leaf, in the structure of the chosen arguments.

        Leaves that are not differentiated become None.
        """
        found = self.skeleton.alone(values)
        return found[0] if self.single else found


def _is_differentiable(leaf: Any) -> bool:
    """Tells whether a leaf has derivatives: an array of floating point, or a Python float."""
    return is_float_array(leaf) or (
        type_of(leaf).is_inexact
        if is_array(leaf)
        else is_scalar(leaf) and not isinstance(leaf, int)
    )


def _position(name: str, number: Any, count: int) -> int:
    if type(number) is int and 0 <= number < count:
        return number
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
