"""The arguments that a transform differentiates: chosen by position, flattened, checked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.tree_util as tree

from ftrans.errors import ArgumentError, DTypeError
from ftrans.func.staging import argument_name, describe
from ftrans.ir import type_of
from ftrans.numpy.promotion import as_array, is_array, is_float_array, is_scalar

__all__ = ["Arguments", "chosen"]


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
        positions: for each of them the number of its argument, and that of the leaf in it.
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
        self.values: list[Any] = []
        self.positions: list[tuple[int, int]] = []
        # for each chosen argument: structure, and which leaves are differentiated; and the leaves
        self.parts: list[tuple[Any, list[bool]]] = []
        self.leaves: list[list[Any]] = []
        for number in self.numbers:
            leaves, structure = tree.tree_flatten(args[number])
            mask = []
            for index, leaf in enumerate(leaves):
                is_active = is_float_array(leaf) or _is_active(
                    name, func, self._path(number, index), leaf, integers
                )
                if is_active:
                    self.values.append(leaf)
                    self.positions.append((number, index))
                mask.append(is_active)
            self.parts.append((structure, mask))
            self.leaves.append(leaves)

    def _path(self, number: int, index: int) -> tuple[Any, ...]:
        """Returns the path to a leaf in the tuple of arguments."""
        inner, _ = tree.tree_flatten_with_path(self.args[number])[0][index]
        return (tree.SequenceKey(number), *inner)

    @property
    def paths(self) -> list[tuple[Any, ...]]:
        """Where the `values` stand in the arguments."""
        return [self._path(*position) for position in self.positions]

    def name(self, index: int) -> str:
        """Returns how an error names one of the `values`."""
        return argument_name(self.func, self._path(*self.positions[index]))

    def call(self, func: Callable[..., Any], values: Sequence[Any], kwargs: Any) -> Any:
        """Calls `func` with these values in the place of the leaves that are differentiated."""
        args = list(self.args)
        given = iter(values)
        for number, (structure, mask), leaves in zip(
            self.numbers, self.parts, self.leaves, strict=True
        ):
            if False in mask:
                filled = [next(given) if m else leaf for leaf, m in zip(leaves, mask, strict=True)]
            else:
                filled = [next(given) for _ in mask]
            args[number] = structure.unflatten(filled)
        return func(*args, **kwargs)

    @property
    def selection(self) -> Selection:
        """Where the differentiated leaves stand, without the arguments themselves."""
        return Selection(
            self.single, tuple((structure, tuple(mask)) for structure, mask in self.parts)
        )

    def build(self, values: Sequence[Any]) -> Any:
        """Returns one value per differentiated leaf, in the structure of the chosen arguments.

        Leaves that are not differentiated become None.
        """
        return Selection(self.single, self.parts).build(values)


class Selection(NamedTuple):
    """Says where the leaves that are differentiated stand in the chosen arguments.

    Attributes:
        single: whether one argument was chosen, by an int.
        parts: for each chosen argument its structure, and which of its leaves are differentiated.
    """

    single: bool
    parts: Sequence[tuple[Any, Sequence[bool]]]

    def build(self, values: Sequence[Any]) -> Any:
        """Is `Arguments.build`."""
        if self.single:
            ((structure, mask),) = self.parts
            if False not in mask:
                return structure.unflatten(values)
        given = iter(values)
        trees = [
            tree.tree_unflatten(structure, [next(given) if m else None for m in mask])
            for structure, mask in self.parts
        ]
        return trees[0] if self.single else tuple(trees)


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


def _is_active(
    name: str, func: Callable[..., Any], path: tuple[Any, ...], leaf: Any, integers: bool
) -> bool:
    """Tells whether a leaf is differentiated; raises where it was asked for and cannot be."""
    nested = len(path) > 1
    if is_array(leaf) or (is_scalar(leaf) and not nested):
        t = type_of(as_array(leaf))
        if t.is_inexact:
            return True
        if integers:
            return False
        label = argument_name(func, path)
        fix = (
            f"Write {float(leaf)}" if is_scalar(leaf) else f"Convert it, {label}.astype('float32')"
        )
        raise DTypeError(
            f"{name}: differentiation takes real or complex floating-point values.\n"
            f"  {label}: {t if is_array(leaf) else describe(leaf)}\n"
            f"  {fix}, or leave it out of argnums."
        )
    if is_scalar(leaf):
        return isinstance(leaf, (float, complex))
    if nested:
        return False
    raise DTypeError(
        f"{name}: differentiation takes arrays, Python floats and pytrees of them.\n"
        f"  {argument_name(func, path)}: {describe(leaf)}\n  Leave it out of argnums."
    )
