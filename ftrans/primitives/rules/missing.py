"""What stands where a derivative is missing: it raises where it is needed in the end, else not.

`missing` takes the place of a value that cannot be computed; `once` and `sampled` let values
through, but not their derivatives. So an error is raised for what a result depends on, and for
nothing else. `tied` lets a value through that counts on another one, which is computed for its
checks; `at_hand` one that was computed before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ftrans.errors import MissingRuleError
from ftrans.ir import ArrayType
from ftrans.ir.above import above
from ftrans.ir.stack import recording_place
from ftrans.primitives.axes import expand
from ftrans.primitives.family import free_cost, normal, plain, structural
from ftrans.primitives.namespace import is_traced_by_jax, without_derivative
from ftrans.primitives.record import Joint, Linear, Sample


def missing(operands: Sequence[Any], types: Sequence[ArrayType], message: str) -> Sequence[Any]:
    """Returns values of these types which raise where they are needed in the end.

    Args:
        operands: what they would be computed from, all of it, so that derivatives are missing as
            well; `None` is left out.
        types: their types.
        message: that of the `MissingRuleError`.
    """
    given = [x for x in operands if x is not None and not isinstance(x, Linear)]
    return missing_p(*given, types=tuple(t.update() for t in types), message=message)


def missing_cotangents(cts: Sequence[Any], operands: Sequence[Any], message: str) -> list[Any]:
    """Returns values that raise where they are needed for the operands that are `Linear`."""
    return [
        missing([*cts, *operands], [x.type], message)[0] if isinstance(x, Linear) else None
        for x in operands
    ]


class Deferred:
    """Stands in the place of a message for an exception, which is raised as it is."""

    holds_functions = True  # its traceback refers to all that was running

    def __init__(self, error: Exception):
        self.error = error
        self._facts = error.__traceback__, error.__cause__, error.__context__
        self._hides_context = error.__suppress_context__
        self._notes = list(getattr(error, "__notes__", ()))
        _recent.append(self)
        if len(_recent) > _RECENT:
            _recent.popleft()._let_go()

    def _let_go(self) -> None:
        """Keeps the exception without what was running, which would live as long as a program."""
        error, self._facts = self.error, (None, None, None)
        try:
            self.error = type(error).__new__(type(error), *error.args)
            self.error.__dict__.update(error.__dict__)
        except Exception:  # of a class that is made in another way
            error.__traceback__ = None
            self.error = error

    def again(self) -> Exception:
        """Returns the exception as it was at first, without what came of raising it."""
        error = self.error
        error.__traceback__, error.__cause__, error.__context__ = self._facts
        error.__suppress_context__ = self._hides_context
        if hasattr(error, "__notes__"):
            error.__notes__ = list(self._notes)
        return error

    def __repr__(self) -> str:
        return repr(f"{type(self.error).__qualname__}: {self.error}")


_RECENT = 8
"""So many of the exceptions that rules have raised are kept with what was running then."""
_recent: deque[Deferred] = deque()


def raise_missing(message: str | Deferred, where: str = "") -> NoReturn:
    """Raises what a missing value raises; `where` is added to the message."""
    if isinstance(message, Deferred):
        raise message.again()
    raise MissingRuleError(f"{message}{where}")


def _batch(size: int, operands: Any, dims: Any, *, types: Any, message: str) -> Any:
    batched = [t.update(shape=(size, *t.shape)) for t in types]
    return missing(operands, batched, message), [0] * len(types)


missing_p = plain(
    "missing",
    tags=["missing", "external"],
    kinds="",
    infer=lambda *operands, types, message: types,
    lower=lambda xp, *arrays, types, message: raise_missing(message),
    jvp=Joint(
        lambda tangents, outs, *primals, types, message: missing(
            [*tangents, *primals], types, message
        )
    ),
    transpose=Joint(
        lambda cts, *operands, types, message: missing_cotangents(cts, operands, message)
    ),
    batch=_batch,
    cost=free_cost,
    samples=lambda: [
        Sample(
            (normal(3),),
            {"types": (ArrayType((3,), "float64"),), "message": "a sample"},
            smooth=False,
        )
    ],
    multiple=True,
)


def _once_tangent(tangents: Any, out: Any, *primals: Any, message: str) -> Any:
    return missing([*tangents, *primals], [primals[0].type], message)[0]


def _once_cotangents(ct: Any, *operands: Any, message: str) -> list[Any]:
    used = [x for x in operands[1:] if not isinstance(x, Linear)]
    first = once_p(ct, *used, message=message) if isinstance(operands[0], Linear) else None
    return [first, *([None] * (len(operands) - 1))]


def _lower_once(xp: Any, x: Any, *used: Any, message: str) -> Any:
    if xp is np or not any(map(is_traced_by_jax, (x, *used))):
        return x
    return without_derivative(lambda x, *_: x, (x, *used), lambda: raise_missing(message))


once_p = structural(
    "once",
    tags=["once"],
    infer=lambda x, *used, message: x.update(),
    lower=_lower_once,
    jvp=Joint(_once_tangent),
    transpose=Joint(_once_cotangents),
    batch=lambda size, operands, dims, *, message: (once_p(*operands, message=message), dims[0]),
    samples=[Sample((normal(3),), {"message": "a sample"}, smooth=False)],
)
"""Is its first operand, which cannot be differentiated; the transpose is of the same kind.

The other operands are what it was computed from, though its derivatives may not say so.
"""


def _no_score(tangents: Any, *values: Any, message: str) -> NoReturn:
    raise_missing(message, f"\n  called at {recording_place()}")


sampled_p = structural(
    "sampled",
    tags=["sampled", "once"],
    infer=lambda x, *, message: x.update(),
    lower=_lower_once,
    jvp=Joint(_no_score),
    transpose=Joint(_no_score),
    batch=lambda size, operands, dims, *, message: (sampled_p(*operands, message=message), dims[0]),
    samples=[Sample((normal(3),), {"message": "a sample"}, smooth=False)],
)
"""Is a parameter of a distribution whose draws do not follow it smoothly: they are integers, say.

Unlike `once` it raises wherever a derivative comes to it, since none would leave the draws.
"""


def _batch_tied(size: int, operands: Any, dims: Any) -> tuple[Any, int | None]:
    x, token = operands
    if dims[1] is not None and dims[0] is None:
        return tied_p(expand(x, size), token), 0
    return tied_p(x, token), dims[0]


def _lower_tied(xp: Any, x: Any, token: Any) -> Any:
    # XLA would leave out what nothing depends on
    if xp is np:
        return x
    other = np.nan if xp.issubdtype(x.dtype, xp.inexact) else 0
    return xp.where(xp.all(token), x, xp.full_like(x, other))


tied_p = structural(
    "tied",
    infer=lambda x, token: x.update(),
    lower=_lower_tied,
    jvp=Joint(
        lambda tangents, out, x, token: None if tangents[0] is None else tied_p(tangents[0], token)
    ),
    transpose=Joint(
        lambda ct, x, token: [tied_p(ct, token) if isinstance(x, Linear) else None, None]
    ),
    batch=_batch_tied,
    samples=[Sample((normal(3), np.bool_(True)))],
)
"""Is its first operand; the second is computed as well."""


at_hand_p = structural(
    "at_hand",
    infer=lambda x, value: x.update(),
    lower=lambda xp, x, value: x,
    jvp=Joint(lambda tangents, out, x, value: tangents[0]),
    transpose=Joint(lambda ct, x, value: [ct if isinstance(x, Linear) else None, None]),
    batch=lambda size, operands, dims: (operands[0], dims[0]),
    samples=[Sample((normal(3), normal(3)))],
)
"""Is its first operand, whose value is that of the second: that is taken where it is run.

So derivatives are those of the first, and nothing is evaluated again that a demand has evaluated.
"""

above.at_hand = at_hand_p
