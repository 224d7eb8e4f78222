"""Whether what is taken over from an earlier call is what the call would do: for `config.check`.

A trace stands for a later call as long as what the code reads is as it was, see `guards`. Under
`config.check` each such call is traced anew as well, in plain frames, and the two are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ftrans.errors import CheckError
from ftrans.ir.source import Opaque
from ftrans.pytree import Parts

__all__ = ["compare_batches", "compare_rules"]


def compare_rules(name: str, guards: Any, before: Any, trace: Callable[[], Any]) -> None:
    """Raises where a call of a rule is not what it was.

    Args:
        name: that of the rule.
        guards: what is known of what it reads.
        before: the params of its equation, and what else is known of it.
        trace: returns the same, traced anew; None in the place of params that capture something.

    Raises:
        CheckError: naming what differs.
    """
    (params, known), (found, known_now) = before, _traced(name, guards, trace)
    if found is None:
        raise _differs(name, guards, "what it captures", "nothing", "a value outside of it")
    for what in params:
        if what != "spec" and params[what] != found[what]:
            raise _differs(name, guards, what, params[what], found[what])
    for what, x, y in _facts(params["spec"], found["spec"], known, known_now):
        if x != y:
            raise _differs(name, guards, what, x, y)


def compare_batches(name: str, guards: Any, before: Any, trace: Callable[[], Any]) -> None:
    """Raises where a rule for batches is not what it was; see `compare_rules`.

    Args:
        name: that of the rule.
        guards: what is known of what it reads.
        before: its program, and where the results are mapped.
        trace: returns the same, traced anew.
    """
    now = _traced(name, guards, trace)
    for what, x, y in zip(("the program", "out_dims"), before, now, strict=True):
        if x != y:
            raise _differs(name, guards, what, x, y)


def _traced(name: str, guards: Any, trace: Callable[[], Any]) -> Any:
    try:
        return trace()
    except CheckError:
        raise
    except (Exception, Opaque) as error:
        found = f"{type(error).__name__}: {error}"
        raise _differs(name, guards, "what it raises", "nothing", found) from error


def _facts(x: Any, y: Any, known: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields what is known of a call besides its programs, as it was and as it is."""
    yield "how its parts belong together", x._replace(batch=None), y._replace(batch=None)
    yield "its rule for batches", _of_batch(x.batch), _of_batch(y.batch)
    yield "which results are Python numbers", known.weak, now.weak
    yield "whether it lacks derivatives inside", known.falls_short, now.falls_short
    yield "what it leaves", *[{k: _of_kept(v) for k, v in c.kept.items()} for c in (known, now)]


def _of_batch(batch: Any) -> Any:
    return getattr(batch, "unguarded", batch)


def _of_kept(value: Any) -> Any:
    return value.key if isinstance(value, Parts) else value


def _differs(name: str, guards: Any, what: str, before: Any, now: Any) -> CheckError:
    return CheckError(
        f"{name}: a call that is taken over from an earlier one does something else, traced anew.\n"
        f"  {what} was: {before}\n"
        f"  {what} is: {now}\n"
        f"  It reads: {guards.reads}; and what has changed, which was not seen."
    )
