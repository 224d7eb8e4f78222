"""Lowers programs to JAX by one of two roads, which mean the same.

*Splice* copies jaxprs of single equations together (`ftrans.runtime.splice`). *Replay* runs the
program by `jax.numpy` while JAX traces; it is slower, works with every JAX and under every
transformation of JAX, and is what splice is held against. `ftrans.config.lowering` pins the road.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ftrans.config import config
from ftrans.errors import FtransError
from ftrans.ir import ArrayType, Program
from ftrans.primitives import add_p, cos_p
from ftrans.primitives.control.common import program_from
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime.jaxlink import x64


def lower(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for values that JAX traces for `jax.jit`.

    For values that another transformation of JAX traces, call `replay`.

    Args:
        program: any program.
        arrays: of the types of its inputs; Python scalars, weak in JAX, take them.

    Raises:
        FtransError: where `config.lowering` is "splice" and this release of JAX does not take it.
    """
    chosen = config.lowering
    splice, reason = (None, "") if chosen == "replay" else _splicer()
    if splice is None:
        if chosen != "splice":
            return replay(program, arrays)
        raise FtransError(
            f"config.lowering: this release of JAX, {jax.__version__}, does not take spliced "
            f"programs.\n  reason: {reason}\n"
            f'  Set ftrans.config.lowering = "auto" to do without.'
        )
    try:
        return splice.splice(program, arrays)
    except Exception as error:
        if chosen == "splice" and not isinstance(error, splice.Unspliceable):
            raise
    # if the fault is a rule's own, this raises it as well
    return replay(program, arrays)


def replay(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program`, computed by `jax.numpy`."""
    given = [jnp.asarray(x, t.dtype) for x, t in zip(arrays, program.inputs, strict=True)]
    found = evaluate(jnp, program, given)
    # with the dtype given, a weak result, as of a Python scalar, becomes an array
    return [jnp.asarray(x, t.dtype) for x, t in zip(found, program.output_types, strict=True)]


@functools.cache
def _splicer() -> tuple[Any, str]:
    """Returns the module that splices; or None, and why this JAX does not take what it makes."""
    try:
        return _tried(), ""
    except Exception as error:
        # whatever a JAX that we have not seen may raise: the other road is always there
        return None, f"{type(error).__name__}: {error}"


def _tried() -> Any:
    """Returns the module that splices after it has spliced a program that JAX then lowered."""
    from ftrans.runtime import splice

    program = program_from(lambda x: [add_p(cos_p(x), 2.0), x], ArrayType((2,), "float64"))
    with x64():
        lowered = jax.jit(lambda *arrays: splice.splice(program, arrays)).lower(
            jax.ShapeDtypeStruct((2,), "float64")
        )
    text = lowered.as_text()
    missing = [word for word in ("cosine", "add", "f64") if word not in text]
    if missing:
        raise FtransError(f"the program that was tried lacks {missing}")
    return splice
