"""What `gradcheck` is about: a function at a point, its outputs, and what was asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.undefined import Undefined, listening
from ftrans.errors import GradcheckInputError, GradcheckOutputError
from ftrans.func.jvp import jvp
from ftrans.func.staging import describe
from ftrans.ir import Tracer
from ftrans.numpy.promotion import is_array
from ftrans.verify.analytic import Derivative
from ftrans.verify.call import Call, is_floating
from ftrans.verify.coordinates import count, from_coordinates
from ftrans.verify.reference import in_double
from ftrans.verify.tolerances import tolerance_for

__all__ = [
    "Settings",
    "Subject",
    "check_outputs",
    "checked_call",
    "close",
    "random_like",
    "values_of",
]


class Settings(NamedTuple):
    """Is what the caller asked for; None where the dtypes are to decide."""

    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool


class Subject:
    """Is a function at a point, with all that its checks need.

    Args:
        name: begins errors.
        func: the function.
        args: its arguments.
        settings: what was asked for.

    Attributes:
        call: the call.
        leaves: the leaves of its result.
        outputs: the numbers of those that are floating.
        wide: the call in double precision, where the function takes that.
    """

    def __init__(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], settings: Settings
    ):
        self.name = name
        self.call = checked_call(name, func, args)
        self.settings = settings
        # traced, since promotion of plain arrays is not always that of traced values
        leaves = values_of(self.call)
        self.outputs = [i for i, out in enumerate(leaves) if is_floating(out)]
        self.leaves = leaves
        wide = in_double(self.call, leaves)
        self.wide = self.call if wide is None else wide
        self._seen: list[Any] | None = None
        dtypes = [v.dtype for v in (*self.call.values, *(leaves[i] for i in self.outputs))]
        defaults = tolerance_for(dtypes, wide is not None)
        given = (settings.eps, settings.atol, settings.rtol)
        self.eps, self.atol, self.rtol = (
            d if g is None else g for g, d in zip(given, defaults, strict=True)
        )

    @functools.cached_property
    def derivative(self) -> Derivative:
        """The derivative of the floating outputs, by the rules."""
        return Derivative(self.call, self.outputs)

    @property
    def again(self) -> Derivative:
        """The same, traced anew: what was random while the first was traced is another there."""
        return self._again[0]

    @property
    def undefined(self) -> list[Undefined]:
        """What each `backward` that asks for None did where it got nothing else."""
        return self._again[1]

    @functools.cached_property
    def _again(self) -> tuple[Derivative, list[Undefined]]:
        if not self.settings.check_undefined_grad:
            return Derivative(self.call, self.outputs), []
        with listening() as found:
            return Derivative(self.call, self.outputs), found

    def evaluated(self, *values: Any) -> list[Any]:
        """Returns the leaves of the result, in double precision where that is taken.

        Raises:
            GradcheckOutputError: where the floating ones, or all if there are none, have other
                types than at the point itself.
        """
        outs = self.wide(*values)
        # the types of traced values are held against those of others where they are batched
        if not any(type(value) is Tracer for value in values):
            numbers = self.outputs or range(len(self.leaves))
            # dtypes are held against those of plain arrays, which may not be promoted as others
            before = self.leaves if self._seen is None else self._seen
            check_outputs(self.name, before, outs, numbers, self._seen is not None)
            self._seen = outs
        return outs

    def selected(self, *values: Any) -> list[Any]:
        """Returns the floating outputs, see `evaluated`."""
        outs = self.evaluated(*values)
        return [outs[i] for i in self.outputs]


def values_of(call: Call) -> list[Any]:
    """Returns the leaves of a call's result as traced code computes them, without a derivative."""
    return jvp(call, tuple(call.values), (None,) * len(call.values))[0]


def check_outputs(
    name: str,
    before: Sequence[Any],
    after: Sequence[Any],
    numbers: Sequence[int],
    with_dtypes: bool = True,
) -> None:
    """Checks that the outputs of a function are what they were before its inputs were perturbed.

    Args:
        name: begins the error.
        before: the outputs at the point itself, as leaves.
        after: those beside it.
        numbers: the outputs whose types are compared.
        with_dtypes: whether dtypes are, and not shapes alone.

    Raises:
        GradcheckOutputError: where there are more or fewer, or where a type differs.
    """
    if len(before) != len(after):
        raise GradcheckOutputError(
            f"{name}: Expected `func` to return the same number of outputs when inputs are "
            f"perturbed.\n"
            f"  outputs: {len(before)}, and {len(after)} where inputs are perturbed\n{_DECIDE}"
        )
    for i in numbers:
        one, other = before[i], after[i]
        # Python numbers have no dtype of their own
        dtypes = {x.dtype for x in (one, other) if is_array(x)}
        for what, differs in (
            ("shape", np.shape(one) != np.shape(other)),
            ("dtype", with_dtypes and len(dtypes) > 1),
        ):
            if differs:
                raise GradcheckOutputError(
                    f"{name}: Expected `func` to return outputs with the same {what} when inputs "
                    f"are perturbed.\n"
                    f"  output {i}: {describe(one)}, and {describe(other)} where inputs are "
                    f"perturbed\n{_DECIDE}"
                )


_DECIDE = "  Move the inputs to where the values do not decide which types the function returns."


def random_like(draw: np.random.Generator, out: Any, strided: bool) -> np.ndarray:
    """Returns numbers between -1 and 1 like an output, with gaps in memory where asked for."""
    vector = draw.uniform(-1, 1, count(out))
    array = from_coordinates(vector, out)
    if not strided or not array.ndim:
        return array
    wide = np.repeat(array, 2, axis=-1)
    return wide[..., ::2]


def checked_call(name: str, func: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    """Returns the call; raises where it has no floating array, or one that overlaps itself."""
    call = Call(func, args)
    if not call.values:
        lines = "".join(f"  inputs[{i}]: {describe(arg)}\n" for i, arg in enumerate(args))
        raise GradcheckInputError(
            f"{name}: at least one input must be an array of floating point.\n{lines}"
            f"  Pass np.asarray(x, float): every floating array is checked, and nothing else is."
        )
    for label, value in zip(call.labels, call.values, strict=True):
        pairs = zip(getattr(value, "strides", ()), value.shape, strict=False)
        if value.size and any(stride == 0 and size > 1 for stride, size in pairs):
            raise GradcheckInputError(
                f"{name}: an input has a dimension with stride 0: its elements share memory.\n"
                f"  {label}: {describe(value)} with strides {value.strides}\n"
                f"  They cannot be perturbed one by one: pass {label}.copy()."
            )
    return call


def close(a: np.ndarray, n: np.ndarray, atol: float, rtol: float) -> bool:
    """Tells whether two arrays are the same within tolerances, those of the second one."""
    if a.shape != n.shape:
        return False
    with np.errstate(all="ignore"):
        same = (a == n) | (np.abs(a - n) <= atol + rtol * np.abs(n))
    return bool(same.all())
