"""A call as a function of its floating arrays alone: what is differentiated, compared, perturbed.

The arrays are the floating leaves of the arguments; all else stays as it is. Results are lists of
leaves. So the checks need know nothing of pytrees, static arguments and integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.func.staging import argument_name
from ftrans.func.vjp import vjp
from ftrans.ir import Tracer, type_of
from ftrans.numpy.promotion import is_array
from ftrans.runtime.jaxlink import is_jax, to_jax, x64

__all__ = ["Call", "host", "is_floating", "like"]


def is_floating(leaf: Any) -> bool:
    """Tells whether a leaf is an array of real or complex floating point."""
    return is_array(leaf) and type_of(leaf).is_inexact


def host(array: Any) -> np.ndarray:
    """Returns an array of NumPy or JAX as one of NumPy."""
    return np.asarray(array)


def like(array: Any, original: Any) -> Any:
    """Returns a NumPy array as a `jax.Array` where the original was one."""
    if not is_jax(original):
        return array
    with x64():
        return to_jax(array)


class Call:
    """Is a function together with arguments, seen as a function of their floating arrays.

    Args:
        func: the function.
        args: its positional arguments, pytrees.

    Attributes:
        values: the floating leaves of the arguments.
        labels: what they are called, by the signature of the function.
        needs_tracing: whether the function uses what traced values alone have.
        may_widen: whether it may be called in double precision where it is given single.
    """

    def __init__(self, func: Callable[..., Any], args: Sequence[Any]):
        self.func = func
        paths, self.structure = tree.tree_flatten_with_path(tuple(args))
        self.leaves = [leaf for _, leaf in paths]
        self.places = [i for i, leaf in enumerate(self.leaves) if is_floating(leaf)]
        self.values = [self.leaves[i] for i in self.places]
        self.labels = [argument_name(func, paths[i][0]) for i in self.places]
        self.positions = [paths[i][0][0].idx for i in self.places]
        self.needs_tracing = False
        self.may_widen = True

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the arguments with these values in the place of the floating leaves."""
        leaves = list(self.leaves)
        for place, value in zip(self.places, values, strict=True):
            leaves[place] = value
        return self.structure.unflatten(leaves)

    def __call__(self, *values: Any) -> list[Any]:
        """Returns the leaves of the result for these values of the floating leaves.

        The function is given copies of arrays of NumPy: it may write to them, and say so.
        """
        if self.needs_tracing and not any(type(value) is Tracer for value in values):
            return vjp(self, *values)[0]
        given = [value.copy() if type(value) is np.ndarray else value for value in values]
        return tree.tree_leaves(self.func(*self.arguments(given)))

    def with_values(self, values: Sequence[Any]) -> Call:
        """Returns the same call at another point."""
        made = Call(self.func, self.arguments(values))
        made.needs_tracing, made.may_widen = self.needs_tracing, self.may_widen
        return made
