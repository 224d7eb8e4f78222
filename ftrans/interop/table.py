"""The rules of JAX's primitives, all of them: what a jaxpr is imported by."""

from __future__ import annotations

from typing import Any

from ftrans.errors import UnsupportedError
from ftrans.interop import control, elementwise, factors, indexing, keys, rules, shapes, slopes
from ftrans.interop.importer import Imported, NoCounterpart, RefusedError, Rule, import_jaxpr
from ftrans.runtime.jaxlink import x64

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **control.RULES,
    **factors.RULES,
    **rules.RULES,
    **slopes.RULES,
    **{f"keys:{name}": rule for name, rule in keys.RULES.items()},
}
"""By name; where keys of random numbers are, behind "keys:"."""


def imported(closed: Any, name: str) -> Imported:
    """Returns the program of a closed jaxpr, and the arrays that it takes besides."""
    try:
        with x64():
            return import_jaxpr(closed, RULES, name)
    except RefusedError as error:
        raise UnsupportedError(*error.args) from None
    except NoCounterpart:
        raise UnsupportedError(
            f"from_jax({name}): it closes over a value that JAX is tracing outside.\n"
            f"  Pass it as an argument of the function."
        ) from None
