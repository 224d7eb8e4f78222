"""What JAX raises while it traces: that it asks for values, and errors that name its functions."""

from __future__ import annotations

import inspect
from typing import Any

import jax

from ftrans.errors import ArgumentError, AxisError, DTypeError, FtransError, UnsupportedError
from ftrans.ir import type_of


def asks_for_values(error: Exception) -> bool:
    """Tells whether JAX says that a function asks for values of what is traced."""
    kinds = jax.errors.JAXTypeError, jax.errors.JAXIndexError
    leaks = isinstance(error, jax.errors.UnexpectedTracerError)
    words = "concrete values", "Non-hashable static arguments"
    return not leaks and (isinstance(error, kinds) or any(word in str(error) for word in words))


_OURS = {
    NotImplementedError: UnsupportedError,
    IndexError: AxisError,
    (ValueError, ArithmeticError): ArgumentError,
}
"""Kinds of errors, and what they are here."""

REFUSALS = (TypeError, ValueError, IndexError, ArithmeticError, NotImplementedError)
"""What JAX raises for arguments that it does not take."""


def told(function: Any, args: Any, kwargs: Any, error: Exception) -> Exception:
    """Returns an error of a function that is JAX's own as one that names it and its arguments."""
    is_own = (getattr(function, "__module__", None) or "").startswith("jax.")
    if not is_own or isinstance(error, FtransError):
        return error
    kind = next((ours for theirs, ours in _OURS.items() if isinstance(error, theirs)), DTypeError)
    given = [*zip(inspect.signature(function).parameters, args, strict=False), *kwargs.items()]
    shown = [(key, str(type_of(x)) if hasattr(x, "dtype") else repr(x)) for key, x in given]
    lines = "".join(f"\n  {key}: {text:.60}" for key, text in shown)
    return kind(f"{function.__name__}: {str(error).splitlines()[0]}{lines}")
