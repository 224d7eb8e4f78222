"""The derivatives of an external function, in the forms in which an author may write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans.custom.decorators import custom_jvp, custom_vjp
from ftrans.errors import ArgumentError

__all__ = ["check_rules", "with_rules"]


class _Both(custom_vjp):
    """Is a function with a rule for each mode."""

    _kind = "external"
    rule: Any = None
    _jvp = custom_jvp._jvp


def with_rules(function: Callable[..., Any], jvp: Any, vjp: Any) -> Callable[..., Any]:
    """Returns the function with the derivatives that were given for it.

    Args:
        function: the external function.
        jvp: `(primals, tangents) -> (out, tangent_out)`, or None.
        vjp: a pair `(fwd, bwd)`, or `(primals, out, ct) -> cotangents`, or None.
    """
    if vjp is None:
        if jvp is None:
            return function
        made: Any = custom_jvp(function)
        made.lasting = True
        made.defjvp(jvp)
        return made
    made = custom_vjp(function) if jvp is None else _Both(function)
    made.lasting = True  # the function has no other derivative
    made.rule = jvp
    if callable(vjp):
        made.defvjp(*_pair(made, vjp))
    else:
        made.defvjp(*vjp)
    return made


def _pair(function: Callable[..., Any], vjp: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns `fwd` and `bwd` for a rule that needs no residuals but arguments and result.

    Args:
        function: with its rule, so that the result, where it is used, is differentiated by that.
        vjp: the rule.
    """

    def fwd(*args: Any) -> tuple[Any, Any]:
        out = function(*args)
        return out, (args, out)

    def bwd(residuals: Any, ct: Any) -> Any:
        args, out = residuals
        found = vjp(args, out, ct)
        return found if len(args) != 1 or isinstance(found, (tuple, list)) else (found,)

    bwd.__wrapped__ = vjp  # type: ignore[attr-defined]
    return fwd, bwd


def check_rules(name: str, jvp: Any, vjp: Any, transpose: Any) -> None:
    """Raises unless the rules have the forms that there are."""
    if transpose is not None and not (jvp is None and vjp is None):
        raise ArgumentError(
            f"{name}: transpose= says that it is linear, and all derivatives follow from that.\n"
            f"  Leave out jvp= and vjp=, or transpose=."
        )
    pair = isinstance(vjp, tuple) and len(vjp) == 2 and all(map(callable, vjp))
    if not (vjp is None or callable(vjp) or pair):
        raise ArgumentError(
            f"{name}: vjp= takes a rule, or a pair.\n  vjp: {vjp!r}\n"
            f"  Write vjp=lambda primals, out, ct: cotangents, or vjp=(fwd, bwd)."
        )
    for label, rule in (("jvp", jvp), ("transpose", transpose)):
        if not (rule is None or callable(rule)):
            form = "primals, tangents: (out, tangent_out)" if label == "jvp" else "ct: cotangents"
            raise ArgumentError(
                f"{name}: {label}= takes a rule.\n  {label}: {rule!r}\n"
                f"  Write {label}=lambda {form}."
            )
