"""`check_rules`: all checks, on all samples and on what is made of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.function import Function
from ftrans.errors import ArgumentError
from ftrans.func.staging import name_of
from ftrans.traceback import boundary
from ftrans.verify.batching import check_batches
from ftrans.verify.call import Call, host, is_floating
from ftrans.verify.compiled import check_jit
from ftrans.verify.derivatives import check_derivatives
from ftrans.verify.properties import check_linear, check_parts, check_pure, check_unused
from ftrans.verify.report import Failure, Report
from ftrans.verify.rules import check_returned, check_rule, direct, marks
from ftrans.verify.samples import describe_sample, nearby, other_precision, resized
from ftrans.verify.second import check_higher
from ftrans.verify.trial import Trial

__all__ = ["check_rules"]


@boundary
def check_rules(F: Any, *samples: Any, order: int = 2, derived: bool = True) -> Report:
    """Verifies the rules of an operation: its derivatives, its batches, and what else they promise.

    Derivatives are held against differences and against each other, batches against loops, compiled
    calls against others; rules must be linear, without side effects, and return what they declare.
    Each sample is also tried in single precision, with axes of size one and zero, and at other
    values, where the function takes that. What is random is the same at each call.

    Args:
        F: a `Function` class, a function with `custom_vjp`, `custom_jvp` or `custom_vmap`, an
            `external` call, or any function of arrays.
        samples: each a tuple of positional arguments, or a single array. Floating arrays are
            differentiated, and arrays are batched; anything else is passed as it is.
        order: the highest derivative that is checked.
        derived: whether samples are also tried in another precision and in other sizes. A native
            kernel that does not look at the dtype that it is given must not be: pass False.

    Returns:
        A report. It is true where everything holds, prints as a table, and lists `failures`, each
        with both values and the likely cause; `raise_if_failed()` raises `GradcheckError`.

    Raises:
        ArgumentError: where there is no sample.

    Example:
        >>> import numpy as np
        >>> from ftrans import custom_vjp, check_rules
        >>> @custom_vjp
        ... def cube(x):
        ...     return x**3
        >>> cube.defvjp(lambda x: (x**3, x), lambda x, ct: (2 * x**2 * ct,))
        >>> report = check_rules(cube, np.array([1.0, 2.0, 3.0]))
        >>> report.ok
        False
        >>> report.failures[0].cause
        'a wrong factor: it is 2/3 times what it should be, throughout'
    """
    is_class = isinstance(F, type) and issubclass(F, Function)
    name = F.__name__ if is_class else name_of(F)
    if not samples:
        raise ArgumentError(
            f"check_rules({name}): there is no sample.\n"
            f"  Pass arguments to try it on: check_rules({name}, (x, y))."
        )
    func: Callable[..., Any] = _applied(F) if is_class else F
    report = Report(name)
    with warnings.catch_warnings():
        # that an opaque function is looped over is no news here
        warnings.simplefilter("ignore")
        for number, sample in enumerate(samples):
            args = sample if isinstance(sample, tuple) else (sample,)
            call = Call(func, _with_arrays(args))
            label = describe_sample(number, call.structure.unflatten(call.leaves))
            _Sample(report, F, call, label, order, derived).run()
    return report


def _applied(cls: type[Function]) -> Callable[..., Any]:
    """Returns `apply` with the name of the class and the parameters of `forward`."""

    def applied(*args: Any) -> Any:
        return cls.apply(*args)

    applied.__name__ = cls.__name__
    try:
        parameters = list(inspect.signature(cls.forward).parameters.values())
    except ValueError:
        # it is written in C: arguments go by their numbers
        return applied
    if cls.setup_context is Function.setup_context:
        parameters = parameters[1:]
    applied.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return applied


def _with_arrays(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the arguments; where there is no floating array, Python floats are made arrays."""
    leaves = tree.tree_leaves(args)
    if any(map(is_floating, leaves)):
        return args
    kinds = (float, complex)
    return tree.tree_map(lambda x: np.asarray(x) if type(x) in kinds else x, args)


class _Sample:
    """Runs all checks on one sample.

    Args:
        report: where findings go.
        rule: what is verified.
        call: a call of it.
        label: names the sample.
        order: the highest derivative that is checked.
        derived: whether other samples are made of it.
    """

    def __init__(
        self, report: Report, rule: Any, call: Call, label: str, order: int, derived: bool
    ):
        self.report = report
        self.rule = rule
        self.call = call
        self.label = label
        self.order = order
        self.derived = derived
        call.may_widen = derived
        self.direct = direct(rule)

    def run(self) -> None:
        """Runs them."""
        trial = self._trial()
        if trial is None:
            return
        other = self._nearby()
        before = len(self.report.failures)
        check_derivatives(trial, 3)
        is_right = len(self.report.failures) == before
        check_linear(trial)
        check_pure(trial, other, self.marks.dirty)
        check_parts(trial)
        check_unused(trial)
        if self.direct is not None and self.direct.is_class:
            check_returned(trial, self.rule)
        if self.direct is not None:
            check_rule(trial, self.direct, None if other is None else other.call)
        check_higher(trial, self.order)
        check_batches(trial)
        check_jit(trial)
        if is_right:
            # what is wrong anyway need not be said again of each derived sample
            if other is not None:
                check_derivatives(other, 1)
            if self.derived:
                self._derived(trial)

    def _trial(self) -> Trial | None:
        """Returns the trial of the sample; None, and a failure, where the function raises."""
        try:
            self.marks = marks(self.rule, self._arguments(self.call))
            return Trial(self.call, self.report, self.label, self.marks.rigid)
        except Exception as error:
            what = f"the function raised {type(error).__name__}: {error}"
            self.report.fail(Failure("forward", self.label, what))
            return None

    def _arguments(self, call: Call) -> tuple[Any, ...]:
        return call.structure.unflatten(call.leaves)

    def _nearby(self) -> Trial | None:
        """Returns the function at another point, where its values are finite there."""
        return self._usable(nearby(self.call), f"{self.label}, at other values")

    def _usable(self, call: Call, label: str) -> Trial | None:
        """Returns the trial of a derived sample; None where the function does not take it."""
        try:
            with np.errstate(all="ignore"):
                outs = [host(out) for out in call(*call.values) if is_floating(out)]
                if not all(np.isfinite(out.astype(np.complex128)).all() for out in outs):
                    return None
                return Trial(call, self.report, label, self.marks.rigid)
        except Exception:
            # the author has not promised it
            return None

    def _derived(self, trial: Trial) -> None:
        """Checks first derivatives on what is made of the sample."""
        single = other_precision(self.call)
        if single is not None:
            found = self._usable(single, f"{self.label}, in float32")
            if found is not None and self._same_kind(trial, found):
                self._again(found)
        for cut in resized(self.call):
            found = self._usable(cut.call, f"{self.label}, {cut.label}")
            if found is not None and cut.fits(trial.leaves, found.leaves) and found.pulls_back():
                # that something cannot be done with nothing is no fault of a rule
                found.lenient, found.derived = cut.new == 0, True
                self._again(found)

    def _again(self, trial: Trial) -> None:
        check_derivatives(trial, 1)
        check_linear(trial)
        if self.direct is not None:
            check_rule(trial, self.direct, None)

    def _same_kind(self, trial: Trial, found: Trial) -> bool:
        """Tells whether a derived sample is taken as one: as many outputs, of its precision."""
        if len(found.outs) != len(trial.outs):
            return False
        return all(
            (a.dtype == b.dtype) == (found.values[0].dtype == trial.values[0].dtype)
            for a, b in zip(trial.outs, found.outs, strict=True)
        )
