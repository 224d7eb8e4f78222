"""Calls of a `Function`'s methods: how arguments are bound, and calls where nothing is traced."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.context import FunctionCtx
from ftrans.custom.opaque_forward import call_writing, read_only, to_array
from ftrans.custom.parts import Parts, defined
from ftrans.errors import MissingRuleError, RuleError
from ftrans.numpy.promotion import is_array
from ftrans.runtime.jaxlink import is_jax, to_jax, x64

__all__ = ["bound", "call_at_once", "check_written", "names_of", "overrides"]


def overrides(cls: type, name: str) -> bool:
    """Tells whether a subclass of `Function` has written a method."""
    return not hasattr(getattr(cls, name), "__ftrans_default__")


_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""The parameters of functions, for as long as these live."""


def parameters_of(forward: Any, skipped: int) -> tuple[inspect.Signature | None, int]:
    """Returns what `_parameters` finds, asked once."""
    found = _known.get(forward)
    if found is None or found[0] != skipped:
        found = _known[forward] = skipped, _parameters(forward, skipped)
    return found[1]


def _parameters(forward: Any, skipped: int) -> tuple[inspect.Signature | None, int]:
    """Returns the signature without the context, and the number of arguments that need no binding.

    That is -1 where any number does.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return None, -1
    parameters = list(signature.parameters.values())
    if skipped and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    signature = signature.replace(parameters=parameters)
    kinds = {p.kind for p in parameters}
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        return signature, -2
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return signature, -1
    return signature, sum(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters)


def bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the positional arguments with defaults, and those that are keyword-only."""
    if not overrides(cls, "forward"):
        raise MissingRuleError(
            f"{cls.__name__}: forward is missing.\n"
            f"  Write @staticmethod def forward(x, ...), and setup_context(ctx, inputs, output);\n"
            f"  or @staticmethod def forward(ctx, x, ...)."
        )
    old = not overrides(cls, "setup_context")
    signature, count = parameters_of(cls.forward, int(old))
    if not kwargs and (len(args) == count or (count == -1 and signature is None)):
        return args, kwargs
    assert signature is not None
    try:
        found = signature.bind(*args, **kwargs)
    except TypeError as error:
        hint = ""
        if old and len(signature.parameters) < len(args) + len(kwargs):
            hint = (
                "\n  Without setup_context, forward takes a context in front: write "
                "forward(ctx, x, ...);\n"
                "  or write @staticmethod def setup_context(ctx, inputs, output) as well."
            )
        raise RuleError(
            f"{cls.__name__}.apply: the arguments are not those of forward: {error}.\n"
            f"  forward{inspect.signature(cls.forward)}, defined at {defined(cls.forward)}{hint}"
        ) from None
    found.apply_defaults()
    return found.args, found.kwargs


def call_at_once(cls: Any, parts: Parts, kwargs: dict[str, Any]) -> Any:
    """Calls the methods where nothing that they are given is traced; the container follows."""
    ctx = FunctionCtx()
    ctx._state.needs = (False,) * len(parts)

    def call(values: Sequence[Any]) -> Any:
        args = parts.build(values)
        if not overrides(cls, "setup_context"):
            return cls.forward(ctx, *args, **kwargs)
        output = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, output)
        return output

    values = [read_only(x) for x in parts.values]
    output, given, written = call_writing(call, values)
    places = {id(x): i for i, x in enumerate(given)}
    dirty = [places[id(x)] for x in ctx._state.dirty if id(x) in places]
    check_written(cls, [i in dirty for i in written])
    originals = {id(x): original for x, original in zip(given, parts.values, strict=True)}
    for i in dirty:
        original = parts.values[i]
        if isinstance(original, np.ndarray):
            np.copyto(original, given[i])  # what was declared is done
        else:
            originals[id(given[i])] = given[i]
    as_jax = any(is_jax(x) for x in parts.values)

    def returned(leaf: Any) -> Any:
        leaf = originals.get(id(leaf), leaf)
        if not is_array(leaf) and (hasattr(leaf, "__dlpack__") or isinstance(leaf, np.ndarray)):
            leaf = to_array(leaf)
        if as_jax and type(leaf) is np.ndarray:
            with x64():
                return to_jax(leaf)
        return leaf

    return tree.tree_map(returned, output)


def check_written(cls: Any, marked: Sequence[bool]) -> None:
    """Raises where `forward` has written to what is not marked."""
    if not all(marked):
        raise RuleError(
            f"{cls.__name__}.forward: it writes into an argument, and does not say so.\n"
            f"  it is defined at {defined(cls.forward)}\n"
            f"  Write into a copy, x = np.array(x); or mark the argument, ctx.mark_dirty(x), and "
            f"return it."
        )


def names_of(cls: Any, old: bool) -> tuple[str, ...]:
    """Returns the names of the positional parameters of `forward`, as far as they have any."""
    signature, _ = parameters_of(cls.forward, int(old))
    if signature is None:
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple([p.name for p in signature.parameters.values() if p.kind in positional])
