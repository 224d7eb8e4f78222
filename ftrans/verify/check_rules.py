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
from ftrans.verify.checks.batch import check_batches
from ftrans.verify.checks.contract import (
    backward_of,
    check_contract,
    check_returned,
    is_function,
    marks,
)
from ftrans.verify.checks.derivative import check_derivatives, check_higher
from ftrans.verify.checks.linear import check_linear, check_parts, check_unused
from ftrans.verify.checks.state import check_jit, check_pure
from ftrans.verify.coordinates import host, is_finite, is_floating
from ftrans.verify.probe import Probe
from ftrans.verify.report import Failure, Findings, Report
from ftrans.verify.samples import describe_sample, nearby, other_precision, resized


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
    name = F.__name__ if is_function(F) else name_of(F)
    if not samples:
        raise ArgumentError(
            f"check_rules({name}): there is no sample.\n"
            f"  Pass arguments to try it on: check_rules({name}, (x, y))."
        )
    func: Callable[..., Any] = _applied(F) if is_function(F) else F
    report = Report(name)
    with warnings.catch_warnings():
        # that an opaque function is looped over is no news here
        warnings.simplefilter("ignore")
        for number, sample in enumerate(samples):
            args = _with_arrays(sample if isinstance(sample, tuple) else (sample,))
            label = describe_sample(number, args)
            _Sample(report, F, func, args, label, derived).run(order)
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
    if any(map(is_floating, tree.tree_leaves(args))):
        return args
    kinds = (float, complex)
    return tree.tree_map(lambda x: np.asarray(x) if type(x) in kinds else x, args)


class _Sample:
    """Runs all checks on one sample.

    Args:
        report: where findings go.
        rule: what is verified.
        func: the function that uses it.
        args: the sample.
        label: names it.
        derived: whether other samples are made of it.
    """

    def __init__(
        self, report: Report, rule: Any, func: Any, args: tuple[Any, ...], label: str, derived: bool
    ):
        self.report = report
        self.rule = rule
        self.func = func
        self.args = args
        self.label = label
        self.derived = derived

    def run(self, order: int) -> None:
        """Runs them, derivatives up to an order."""
        try:
            said = marks(self.rule, self.args)
            probe = Probe(self.func, self.args, said.rigid, self.derived).settled()
        except Exception as error:
            what = f"the function raised {type(error).__name__}: {error}"
            self.report.fail(Failure("forward", self.label, what))
            return
        findings = Findings(self.report, self.label, probe)
        other = _usable(nearby(probe))
        before = len(self.report.failures)
        check_derivatives(probe, findings)
        is_right = len(self.report.failures) == before
        check_linear(probe, findings)
        check_pure(probe, findings, other, said.dirty)
        check_parts(probe, findings)
        check_unused(probe, findings)
        if backward_of(self.rule) is not None:
            if is_function(self.rule):
                check_returned(probe, findings, self.rule)
            check_contract(probe, findings, self.rule, other)
        check_higher(probe, findings, order)
        check_batches(probe, findings)
        check_jit(probe, findings)
        if is_right:
            # what is wrong anyway need not be said again of each derived sample
            if other is not None:
                check_derivatives(other, self._findings(other, "at other values"), 1)
            if self.derived:
                self._check_derived(probe)

    def _findings(self, probe: Probe, label: str) -> Findings:
        return Findings(self.report, f"{self.label}, {label}", probe)

    def _check_derived(self, probe: Probe) -> None:
        """Checks first derivatives on what is made of the sample."""
        single = _usable(other_precision(probe))
        if single is not None and _is_same_kind(probe, single):
            self._check_again(single, self._findings(single, "in float32"))
        for cut in resized(probe):
            if _usable(cut.probe) and cut.fits(probe.leaves) and cut.probe.pulls_back():
                findings = self._findings(cut.probe, cut.label)
                # that something cannot be done with nothing is no fault of a rule
                findings.lenient, findings.derived = cut.new == 0, True
                self._check_again(cut.probe, findings)

    def _check_again(self, probe: Probe, findings: Findings) -> None:
        check_derivatives(probe, findings, 1)
        check_linear(probe, findings)
        if backward_of(self.rule) is not None:
            check_contract(probe, findings, self.rule, None)


def _usable(probe: Probe | None) -> Probe | None:
    """Returns the probe of a derived sample; None where the function does not take it."""
    if probe is None:
        return None
    try:
        with np.errstate(all="ignore"):
            outs = [host(out) for out in probe(*probe.values) if is_floating(out)]
            return probe.settled() if all(map(is_finite, outs)) else None
    except Exception:
        # the author has not promised it
        return None


def _is_same_kind(probe: Probe, other: Probe) -> bool:
    """Tells whether a derived sample is taken as one: as many outputs, of its precision."""
    is_wide = other.arrays[0].dtype == probe.arrays[0].dtype
    return len(other.outs) == len(probe.outs) and all(
        (a.dtype == b.dtype) == is_wide for a, b in zip(probe.outs, other.outs, strict=True)
    )
