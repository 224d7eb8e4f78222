"""The arguments that a transform differentiates: chosen by position, flattened, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree

from ftrans.errors import DTypeError
from ftrans.func.staging import describe, leaf_name
from ftrans.ir import type_of
from ftrans.numpy.promotion import as_array, is_array, is_scalar

__all__ = ["Arguments"]


class Arguments:
    """Splits positional arguments into the leaves that are differentiated and all else.

    Args:
        function: the transform, for errors.
        args: the positional arguments.
        argnums: which of them are differentiated: an int, or a sequence of ints.
        integers: whether integer arrays are let through, to be held fixed.

    Attributes:
        values: the leaves that are differentiated, arrays or Python floats.
        names: how errors name them.
    """

    def __init__(
        self,
        function: str,
        args: Sequence[Any],
        argnums: int | Sequence[int],
        integers: bool = False,
    ):
        self.args = args
        self.single = isinstance(argnums, int)
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self.numbers = [_position(function, number, len(args)) for number in numbers]
        if len(set(self.numbers)) != len(self.numbers):
            raise ValueError(f"{function}: argnums={argnums} names an argument twice.")
        self.values: list[Any] = []
        self.names: list[str] = []
        # for each chosen argument: structure, leaves, and which leaves are differentiated
        self.parts: list[tuple[Any, list[Any], list[bool]]] = []
        for number in self.numbers:
            paths, structure = tree.tree_flatten_with_path(args[number])
            leaves, mask = [], []
            for path, leaf in paths:
                name = leaf_name(f"args[{number}]", path)
                is_active = _is_active(function, name, leaf, bool(path), integers)
                if is_active:
                    self.values.append(leaf)
                    self.names.append(name)
                leaves.append(leaf)
                mask.append(is_active)
            self.parts.append((structure, leaves, mask))

    def call(self, func: Callable[..., Any], values: Sequence[Any], kwargs: Any) -> Any:
        """Calls `func` with these values in the place of the leaves that are differentiated."""
        args = list(self.args)
        given = iter(values)
        for number, (structure, leaves, mask) in zip(self.numbers, self.parts, strict=True):
            args[number] = tree.tree_unflatten(
                structure,
                [next(given) if m else leaf for leaf, m in zip(leaves, mask, strict=True)],
            )
        return func(*args, **kwargs)

    def build(self, values: Sequence[Any]) -> Any:
        """Returns one value per differentiated leaf, in the structure of the chosen arguments.

        Leaves that are not differentiated become None.
        """
        given = iter(values)
        trees = [
            tree.tree_unflatten(structure, [next(given) if m else None for m in mask])
            for structure, _, mask in self.parts
        ]
        return trees[0] if self.single else tuple(trees)


def _position(function: str, number: int, count: int) -> int:
    if not -count <= number < count:
        raise ValueError(
            f"{function}: argnums={number}, but there are {count} positional arguments.\n"
            f"  Pass the argument by position: keyword arguments are not differentiated."
        )
    return number % count


def _is_active(function: str, name: str, leaf: Any, nested: bool, integers: bool) -> bool:
    """Tells whether a leaf is differentiated; raises where it was asked for and cannot be."""
    if is_array(leaf) or (is_scalar(leaf) and not nested):
        t = type_of(as_array(leaf))
        if t.is_inexact:
            return True
        if integers:
            return False
        raise DTypeError(
            f"{function}: differentiation takes real or complex floating-point values.\n"
            f"  {name}: {t}\n"
            f"  Convert it, {name}.astype('float32'), or leave it out of argnums."
        )
    if is_scalar(leaf):
        return isinstance(leaf, (float, complex))
    if nested:
        return False
    raise DTypeError(
        f"{function}: differentiation takes arrays, Python floats and pytrees of them.\n"
        f"  {name}: {describe(leaf)}\n  Leave it out of argnums."
    )
