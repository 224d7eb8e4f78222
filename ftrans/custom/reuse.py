"""Calls that are taken over from earlier ones, and the check that they would do the same.

A trace stands for a later call as long as what the code reads is as it was, see `guards`. It is
found by its place in the trail first, then by the rule. Under `config.check` each call that is
taken over is traced anew as well, in plain frames, and the two are compared.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.config import config
from ftrans.errors import CheckError
from ftrans.ir import Params, Program, Tracer
from ftrans.ir.location import user_place
from ftrans.ir.source import Opaque
from ftrans.ir.stack import state
from ftrans.ir.trail import Trail
from ftrans.numpy.calls import add_argument
from ftrans.primitives import missing_p
from ftrans.pytree import Parts
from ftrans.runtime.cache import on_clear


class Reuse(NamedTuple):
    """Is a call of a rule that later ones take over.

    Attributes:
        guards: what must be as it was.
        held: returns the params of the equation, kept weakly: the cache of programs keeps the
            programs, and they keep the rule alive that this is remembered with.
        made: the arrays that it made, and captured.
        weak: which results were Python scalars.
        kept: what the author has left.
    """

    guards: Any
    held: Callable[[], Params | None]
    made: tuple[Any, ...]
    weak: list[bool]
    kept: dict[str, Any]

    @property
    def params(self) -> Params | None:
        """The params of the equation; None where the call is to be traced."""
        return self.held() if self.guards.hold() else None


class _Never:
    """Stands for the guards of what reads more than is understood."""

    @staticmethod
    def hold() -> bool:
        return False


_NEVER = Reuse(_Never, lambda: None, (), [], {})


class Memory:
    """Is the table of calls of one rule, and goes with it; `ftrans.cache_clear` empties it."""

    __slots__ = ("_age", "_entries")

    def __init__(self) -> None:
        self._age = _age
        self._entries: dict[Any, Reuse] = {}

    def clear(self) -> None:
        """Forgets all calls."""
        self._entries = {}

    def get(self, key: Any) -> Reuse | None:
        """Returns the call with a key; None where there is none."""
        if self._age != _age:
            self._entries, self._age = {}, _age
        return self._entries.get(key)

    def learn(
        self,
        key: Any,
        guards: Callable[[], Any],
        result: Tracer,
        made: tuple[Any, ...],
        weak: list[bool],
        kept: Any,
    ) -> None:
        """Lets later calls take one over, as long as what its code reads is as it is.

        Args:
            key: what such calls have in common.
            guards: returns what the code reads; None where that is not known.
            result: the first result, of the equation that was recorded.
            made: the arrays that it made, and captured.
            weak: which results were Python scalars.
            kept: what the author has left.
        """
        if self.get(key) is _NEVER:
            return
        found = guards()
        if len(self._entries) >= _MOST:
            self._entries = {}
        equation, _, _ = result.frame.produced(result.index)  # an equal one may have been there
        held = weakref.ref(equation.params)
        self._entries[key] = _NEVER if found is None else Reuse(found, held, made, weak, kept)


_MOST = 64
"""How many calls of one rule are remembered at most."""

_age = 0
"""How often all was forgotten."""


@on_clear
def _forget() -> None:
    global _age
    _age += 1


class Leap:
    """Is a call of a `Function` at a point of a trace, where an equal one may have been before.

    Then there is nothing left to ask but whether the methods, which read what the guards say, would
    do the same. What the call depends on beside its arguments is `known`, and hashable: what is
    asked of it, too.
    """

    __slots__ = ("_call", "_mark", "_name", "_trail", "known")

    def __init__(self, trail: Any, name: str, guards: Any, args: Sequence[Any], known: Any):
        self._trail: Trail = trail
        self._call: Any = None
        self._name = name
        self.known = known
        if guards.asks_needs or not guards.hold():
            return
        call: list[Any] = [guards.token, known, config.default_dtype, state.of_tensors]
        for x in args:
            if not add_argument(call, trail, x):
                return
        call += user_place(sys._getframe(2))
        self._call = tuple(call)

    def take(self) -> Tracer | None:
        """Returns the result, where it is known; records the call then."""
        if self._call is None:
            return None
        found = self._trail.leap(self._call)
        if found is not None:
            return found[0]
        self._mark = self._trail.mark()
        return None

    def learn(self, call: Any, result: Any) -> None:
        """Remembers the call, which was recorded since, if that has no other effect."""
        if self._call is not None:
            view = None if call.dirty else (False,)
            self._trail.learn(
                self._mark, self._call, result, view, self._name, lasting=call.taken_over
            )


# ------------------------------------------------------------------------------------- the check


class _Checked(threading.local):
    """Holds what was traced anew since the outermost call that is being checked; None outside."""

    reuses: list[Any] | None = None


_checked = _Checked()


def compare(
    name: str, reuse: Any, guards: Any, before: Mapping[str, Any], trace: Callable[[], Any]
) -> None:
    """Raises where a call that is taken over is not what it was.

    What is taken over inside of what is traced anew is checked too, once.

    Args:
        name: that of the rule.
        reuse: what is taken over.
        guards: what is known of what it reads.
        before: the facts that are known of it, by the names by which the error calls them.
        trace: returns the same, traced anew.

    Raises:
        CheckError: naming what differs.
    """
    outermost = _checked.reuses is None
    if _checked.reuses is None:
        _checked.reuses = []
    elif any(x is reuse for x in _checked.reuses):
        return
    _checked.reuses.append(reuse)
    try:
        now = trace()
    except CheckError:
        raise
    except (Exception, Opaque) as error:
        found = f"{type(error).__name__}: {error}"
        raise _differs(name, guards, "what it raises", "nothing", found) from error
    finally:
        if outermost:
            _checked.reuses = None
    for what, value in before.items():
        if value != now[what]:
            raise _differs(name, guards, what, value, now[what])


def facts(
    params: Params, made: tuple[Any, ...] | None, weak: list[bool], kept: dict[str, Any]
) -> dict[str, Any]:
    """Returns what is compared of a call; `made` is None where it captures something else."""
    if made is None:
        return {"what it captures": "a value outside of it"}
    spec, arrays = params["spec"], [np.asarray(x) for x in made]
    return {
        "what it captures": [(x.dtype, x.shape, x.tobytes()) for x in arrays] or "nothing",
        **{what: _fact(params[what]) for what in params if what != "spec"},
        "how its parts belong together": spec._replace(batch=None),
        "its rule for batches": getattr(spec.batch, "unguarded", spec.batch),
        "which results are Python numbers": weak,
        "what it leaves": {k: v.key if isinstance(v, Parts) else v for k, v in kept.items()},
    }


def _fact(part: Any) -> Any:
    """Returns what is compared of a part: the text of what raises, as no two errors are equal."""
    raises = isinstance(part, Program) and any(e.primitive is missing_p for e in part.equations)
    return str(part) if raises else part


def _differs(name: str, guards: Any, what: str, before: Any, now: Any) -> CheckError:
    return CheckError(
        f"{name}: a call that is taken over from an earlier one does something else, traced anew.\n"
        f"  {what} was: {before}\n"
        f"  {what} is: {now}\n"
        f"  It reads: {guards.reads}; and what has changed, which was not seen."
    )
