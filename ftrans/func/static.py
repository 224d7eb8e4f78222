"""Leaves that are no arrays, carried through `jax.jit` as part of the structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.tree_util as tree

from ftrans.numpy.promotion import is_array, is_scalar


@tree.register_static
@dataclass(frozen=True)
class _Static:
    """Carries a leaf that is no array through `jax.jit`, as part of the structure."""

    value: Any


def wrapped(
    args: Any, kwargs: Any, numbers: tuple[int, ...], names: tuple[str, ...]
) -> tuple[Any, Any]:
    """Returns the arguments with leaves that are no arrays made static."""

    def wrap(leaf: Any) -> Any:
        given = is_array(leaf) or is_scalar(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
        return leaf if given else _Static(leaf)

    statics = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    args = tuple(arg if i in statics else tree.tree_map(wrap, arg) for i, arg in enumerate(args))
    kwargs = {k: arg if k in names else tree.tree_map(wrap, arg) for k, arg in kwargs.items()}
    return args, kwargs


def unwrapped(arguments: Any) -> Any:
    """Puts the leaves that are no arrays back into their places."""
    return tree.tree_map(
        lambda x: x.value if isinstance(x, _Static) else x,
        arguments,
        is_leaf=lambda x: isinstance(x, _Static),
    )
