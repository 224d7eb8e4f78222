"""Lowers programs to JAX by one of two roads, which mean the same.

*Splice* copies jaxprs of single equations together (`ftrans.runtime.splice`). *Replay* runs the
program by `jax.numpy` while JAX traces; it is slower, works with every JAX and under every
transformation of JAX, and is what splice is held against. `ftrans.config.lowering` pins the road.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ftrans.config import config
from ftrans.errors import FtransError
from ftrans.ir import ArrayType, Equation, Literal, Params, Program
from ftrans.primitives import add_p, cos_p
from ftrans.primitives.evaluate import evaluate
from ftrans.runtime.cache import on_clear
from ftrans.runtime.jaxlink import x64

_lock = threading.RLock()
_splice: Any = None
"""The module that splices; None before it was tried."""
_reason: str | None = None
"""Why this JAX does not take the splice."""
_failure: str | None = None
"""Why the last program that was not spliced was not."""


def lower(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program` for values that JAX traces for `jax.jit`.

    For values that another transformation of JAX traces, call `replay`.

    Args:
        program: any program.
        arrays: of the types of its inputs; Python scalars, weak in JAX, take them.

    Raises:
        FtransError: where `config.lowering` is "splice" and this release of JAX does not take it.
    """
    global _failure
    chosen = config.lowering
    if chosen == "replay" or (chosen == "auto" and not _works()):
        return replay(program, arrays)
    if not _works():
        raise FtransError(
            f"config.lowering: this release of JAX, {jax.__version__}, does not take spliced "
            f"programs.\n  reason: {_reason}\n"
            f'  Set ftrans.config.lowering = "auto" to do without.'
        )
    try:
        return _splice.splice(program, arrays)
    except Exception as error:
        if chosen == "splice" and not isinstance(error, _splice.Unspliceable):
            raise
        # if the fault is a rule's own, replay raises it as well
        _failure = f"{program.name}: {type(error).__name__}: {error}"
    return replay(program, arrays)


def replay(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """Returns the outputs of `program`, computed by `jax.numpy`."""
    given = [jnp.asarray(x, t.dtype) for x, t in zip(arrays, program.inputs, strict=True)]
    found = evaluate(jnp, program, given)
    # with the dtype given, a weak result, as of a Python scalar, becomes an array
    return [jnp.asarray(x, t.dtype) for x, t in zip(found, program.output_types, strict=True)]


def why_replay() -> str | None:
    """Returns why programs are replayed, or why the last one was; None where none is."""
    _works()
    return _reason or _failure


@on_clear
def _forget() -> None:
    global _failure
    _failure = None


def _works() -> bool:
    """Tells whether JAX takes spliced programs; tried once, on a small one."""
    global _splice, _reason
    if _splice is None and _reason is None:
        with _lock:
            if _splice is None and _reason is None:
                try:
                    module = _tried()
                except Exception as error:
                    # whatever a JAX that we have not seen may raise: the other road is always there
                    _reason = f"{type(error).__name__}: {error}"
                else:
                    _splice = module
    return _splice is not None


def _tried() -> Any:
    """Returns the module that splices after it has spliced a program that JAX then lowered."""
    from ftrans.runtime import splice

    t = ArrayType((2,), "float64")
    program = Program.make(
        [t],
        [
            Equation(cos_p, (0,), Params(), (t,)),
            Equation(add_p, (1, Literal(2.0, "float64")), Params(), (t,)),
        ],
        [2, 0],
    )
    with x64():
        lowered = jax.jit(lambda *arrays: splice.splice(program, arrays)).lower(
            jax.ShapeDtypeStruct((2,), "float64")
        )
    text = lowered.as_text()
    missing = [word for word in ("cosine", "add", "f64") if word not in text]
    if missing:
        raise FtransError(f"the program that was tried lacks {missing}")
    return splice
