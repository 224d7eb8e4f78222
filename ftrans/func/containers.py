"""Whose arrays the arguments of a compiled function are, which its results follow."""

from __future__ import annotations

from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.runtime.jaxlink import CONCRETE, is_concrete, is_jax, is_traced_by_jax
from ftrans.runtime.meshes import to_host


def holds_jax(args: Any, kwargs: Any) -> bool:
    """Tells whether results are to be those of JAX, which the first leaf mostly says."""
    leaf = args
    while type(leaf) in (tuple, list) and leaf:
        leaf = leaf[0]
    if type(leaf) in CONCRETE:
        return True
    leaves = tree.tree_leaves((args, kwargs))
    return any(type(x) is not np.ndarray and (is_concrete(x) or is_jax(x)) for x in leaves)


def holds_numpy(args: Any, kwargs: Any) -> bool:
    """Tells whether arrays of NumPy are among the arguments, which others may write to."""
    if not kwargs and CONCRETE.issuperset(map(type, args)):
        return False
    return np.ndarray in set(map(type, tree.tree_leaves((args, kwargs))))


def on_host(result: Any) -> Any:
    """Returns a result in arrays of NumPy's."""
    if type(result) in CONCRETE:
        return to_host(result)
    # inside a transformation of JAX, results may be traced though no argument was
    return tree.tree_map(lambda x: x if is_traced_by_jax(x) else to_host(x), result)
