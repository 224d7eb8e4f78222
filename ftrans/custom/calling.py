"""Calls of a `Function`'s methods where nothing is traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import FunctionCtx
from ftrans.custom.methods import Methods
from ftrans.errors import RuleError
from ftrans.external.arrays import call_writing, read_only, to_array
from ftrans.external.captures import defined
from ftrans.external.results import owned
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.pytree import Parts
from ftrans.runtime.jaxlink import is_jax, to_jax, x64


def call_at_once(methods: Methods, parts: Parts, kwargs: dict[str, Any]) -> Any:
    """Calls the methods where nothing that they are given is traced; the container follows."""
    ctx = FunctionCtx()
    ctx._state.needs = (False,) * len(parts)

    def call(values: Sequence[Any]) -> Any:
        args = parts.build(values)
        if methods.old:
            return methods.forward(ctx, *args, **kwargs)
        output = methods.forward(*args, **kwargs)
        methods.setup_context(ctx, args, output)
        return output

    values = [read_only(x) for x in parts.values]
    output, given, written = call_writing(call, values, methods.marks_dirty)
    places = {id(x): i for i, x in enumerate(given)}
    dirty = [places[id(x)] for x in ctx._state.dirty if id(x) in places]
    check_written(methods, [i in dirty for i in written])
    returned_as_they_are = set(map(id, tree.tree_leaves(output))) if dirty else set()
    for i in dirty:
        if id(given[i]) not in returned_as_they_are:
            raise not_returned(methods, given[i])
    originals = {id(x): original for x, original in zip(given, parts.values, strict=True)}
    for i in dirty:
        original = parts.values[i]
        if isinstance(original, np.ndarray):
            np.copyto(original, given[i])  # what was declared is done
        else:
            originals[id(given[i])] = given[i]
    as_jax = any(is_jax(x) for x in parts.values)
    leaves, structure = tree.tree_flatten(output)
    held = Counter(map(id, (*leaves, *ctx._held())))
    held.update(dict.fromkeys(originals, inf))  # type: ignore[arg-type]

    def returned(leaf: Any) -> Any:
        leaf = originals.get(id(leaf), leaf)
        if not is_array(leaf) and (hasattr(leaf, "__dlpack__") or isinstance(leaf, np.ndarray)):
            leaf = to_array(leaf)
        if as_jax and type(leaf) is np.ndarray:
            with x64():
                return to_jax(leaf)
        return leaf

    return structure.unflatten(map(returned, owned(leaves, held)))


def not_returned(methods: Methods, value: Any) -> RuleError:
    """Returns the error for an input that is marked as dirty, and is not among the results."""
    return RuleError(
        f"{methods.name}: an input is marked as dirty, and is not returned.\n"
        f"  input: {type_of(value)}\n  it is defined at {defined(methods.forward)}\n"
        f"  Return it from forward, itself and not a copy: return x."
    )


def check_written(methods: Methods, marked: Sequence[bool]) -> None:
    """Raises where `forward` has written to what is not marked."""
    if not all(marked):
        raise RuleError(
            f"{methods.name}.forward: it writes into an argument, and does not say so.\n"
            f"  it is defined at {defined(methods.forward)}\n"
            f"  Write into a copy, x = np.array(x); or mark the argument, ctx.mark_dirty(x), and "
            f"return it."
        )
