"""What the methods of a rule that need plain arrays have in common: a context as arrays, a callee.

A method is found to be opaque when it asks a traced value for its array. It is recorded as a call
(`Rule.later`); `forward`, of which it is not known what it returns, by `opaque_forward`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ftrans.custom.context import FunctionCtx
from ftrans.errors import (
    ConcretizationError,
    MissingAttributeError,
    RuleError,
    TracedArrayError,
)
from ftrans.external.callee import HostCallee
from ftrans.ir.source import Untraced
from ftrans.ir.stack import state
from ftrans.numpy.named import has_graph
from ftrans.numpy.promotion import is_array
from ftrans.pytree import Parts


def snapshot_of(ctx: FunctionCtx, statics: Collection[int] = ()) -> Parts:
    """Returns what the rules may ask a context for.

    Args:
        ctx: the context.
        statics: the identities of numbers that are none of the arrays, as other ones are: those
            that were arguments.
    """
    kept = ctx.__state__
    for name, value in ctx.__dict__.items():
        if has_graph(value) or is_array(value):
            continue
        if hasattr(type(value), "requires_grad") and value.requires_grad is True:
            raise RuleError(
                f"ctx.{name} belongs to the graph of another library, which does not outlive the "
                f"call.\n"
                f"  value: {type(value).__name__}\n"
                f"  Save its array, x.detach().numpy(), and build the graph in backward."
            )

    def is_value(x: Any) -> bool:
        if isinstance(x, (float, complex)):
            return id(x) not in statics
        if isinstance(x, np.ndarray):  # a subclass is more than that
            return is_array(x) or (type(x) is np.ndarray and x.dtype.kind in "biufc")
        return not has_graph(x) and (is_array(x) or hasattr(type(x), "__dlpack__"))

    return Parts((kept.for_backward, kept.for_forward, dict(ctx.__dict__)), is_value)


def restore(snapshot: Parts, values: Sequence[Any], ctx: FunctionCtx) -> None:
    """Gives a context what a snapshot says, with these arrays."""
    kept = ctx.__state__
    kept.for_backward, kept.for_forward, attributes = snapshot.build(values)
    ctx.__dict__.update(attributes)


UNKNOWN = (ConcretizationError, MissingAttributeError, TracedArrayError)
"""What methods meet that ask for what traced values do not know."""


def check_traced(error: Exception | None = None) -> None:
    """Raises `Untraced` where a method is traced that may be called on tensors instead.

    It is where something has failed, or has been done to what is traced that others will not see.
    """
    tape, (first, *frames) = state.tape, state.stack or (None,)
    on_tape = tape is not None and tape is first and tape.asks.only_reverse
    if on_tape and all(frame.rule is not None for frame in frames):
        raise Untraced(error) from None


_ASKS = "asks for plain arrays or values, or goes backward itself"


def missing_of(name: str) -> str:
    """Returns the error for what an opaque `forward` has computed, and nobody has a rule for."""
    return (
        f"{name}: it is opaque, since it {_ASKS}, and what it\n  computed in between, or closes "
        f"over, is differentiated.\n"
        f"  Return from forward what is saved, so that backward gets its cotangent; or write it "
        f"with ftrans.numpy."
    )


def again_of(name: str) -> str:
    """Returns the error for a derivative of an opaque method."""
    return (
        f"{name}: it is opaque, since it {_ASKS}, and is differentiated again.\n"
        f"  Write it with functions of ftrans.numpy, or let it call another Function that has "
        f"a backward of its own, in the place of {name}'s NumPy."
    )


class RuleCallee(HostCallee):
    """Is a method of a rule that is called on arrays."""

    def warn(self, size: int) -> None:
        """Warns once that a batch is computed in a loop."""
        owner = self.name.rpartition(".")[0]
        self.warn_once(
            "batch",
            f"{self.name}: vmap calls it {size} times, once for each example, since it asks for "
            f"plain arrays.\n"
            f"  Write @staticmethod def vmap(info, in_dims, *args) in {owner}, which computes the "
            f"examples at once.",
        )

    def missing(self, rule: str) -> str:
        """Returns the error for a method that is differentiated, and cannot be."""
        owner, _, method = self.name.rpartition(".")
        if method == "forward":
            return missing_of(self.name)
        if method == "backward" and rule == "transpose":
            return (
                f"{owner}: its jvp is asked for, and cannot be derived from backward, which is "
                f"opaque: it {_ASKS}.\n"
                f"  Write @staticmethod def jvp(ctx, *tangents); or backward with functions of "
                f"ftrans.numpy, or\n  by calling another Function that has a backward of its own."
            )
        return again_of(self.name)
