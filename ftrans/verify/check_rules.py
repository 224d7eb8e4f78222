"""`check_rules`: all checks, on all samples and on what is made of them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.function import Function
from ftrans.custom.methods import methods_of
from ftrans.errors import ArgumentError
from ftrans.func.staging import is_whole, name_of, named
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.traceback import boundary
from ftrans.verify.checks.batch import check_batches
from ftrans.verify.checks.consistency import (
    gradients_of_some,
    jitted,
    linear,
    pulled_twice,
    repeated,
    tangents_of_some,
    unchanged,
    unused,
)
from ftrans.verify.checks.contract import check_contract, check_returned, is_function, marks
from ftrans.verify.checks.derivative import check_derivatives, check_higher
from ftrans.verify.coordinates import are_finite, is_floating, moved
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings, Report

LINEAR = "backward is linear"


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
        ArgumentError: where there is no sample, or no such order.

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
    name = name_of(F)
    if not samples:
        raise ArgumentError(
            f"check_rules({name}): there is no sample.\n"
            f"  Pass arguments to try it on: check_rules({name}, (x, y))."
        )
    if not is_whole(order) or order < 1:
        raise ArgumentError(
            f"check_rules({name}): order must be a whole number, at least 1.\n  order: {order!r}\n"
            f"  Write order=2 for first and second derivatives."
        )
    report = Report(name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # that an opaque function is looped over is no news here, nor is what is not finite
        warnings.simplefilter("ignore")
        for number, sample in enumerate(samples):
            args = _with_arrays(sample if isinstance(sample, tuple) else (sample,))
            shown = tree.tree_map(lambda x: type_of(x) if is_array(x) else x, args)
            label = f"{number}: ({', '.join(map(str, shown))})"
            _check(report, F, args, label, order, derived)
    return report


def _applied(cls: type[Function]) -> Callable[..., Any]:
    """Returns `apply` with the name of the class and the parameters of `forward`."""
    applied: Any = named(lambda *args: cls.apply(*args), cls.__name__)
    # it is None where forward is written in C: arguments go by their numbers
    applied.__signature__ = methods_of(cls).parameters.signature
    return applied


def _with_arrays(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the arguments; where there is no floating array, Python floats are made arrays."""
    if any(map(is_floating, tree.tree_leaves(args))):
        return args
    kinds = (float, complex)
    return tree.tree_map(lambda x: np.asarray(x) if type(x) in kinds else x, args)


def _check(
    report: Report, rule: Any, args: tuple[Any, ...], label: str, order: int, derived: bool
) -> None:
    """Runs all checks on one sample, derivatives up to an order."""
    findings = Findings(report, label, Probe(rule, args))
    try:
        rigid, writes = marks(rule, args)
        func = _applied(rule) if is_function(rule) else rule
        findings.probe = probe = Probe(func, args, rigid, derived).settled()
    except Exception as error:
        findings.fail("forward", f"the function raised {type(error).__name__}: {error}")
        return
    # elements in another order, and a little larger
    other = _usable(probe.at([moved(array, 1) for array in probe.values]))
    check_derivatives(findings)
    is_right = not any(failure.sample == label for failure in report)
    compare, pure, parts = findings.compare, "no side effects", "gradients of some inputs"
    compare(LINEAR, "backward", linear(probe))
    compare(pure, "the function", repeated(probe))
    compare(pure, "backward", pulled_twice(probe, other))
    if not writes:
        compare(pure, "the function", unchanged(probe))
    compare(parts, "backward", gradients_of_some(probe))
    compare(parts, "jvp", tangents_of_some(probe))
    compare("outputs that are not used", "backward", unused(probe))
    check_returned(findings, rule)
    check_contract(findings, rule, other)
    check_higher(findings, order)
    check_batches(findings)
    compare("jit against un-jitted", "jit", jitted(probe))
    # what is wrong anyway need not be said again of each derived sample
    for again in _derived(findings, other, derived) if is_right else ():
        check_derivatives(again, 1)
        if again.probe is not other:
            again.compare(LINEAR, "backward", linear(again.probe))
            check_contract(again, rule)


def _derived(findings: Findings, other: Probe | None, resizes: bool) -> Iterator[Findings]:
    """Yields where to record what is found of each sample that is made of one."""
    report, label, probe = findings.report, findings.sample, findings.probe
    if other is not None:
        yield Findings(report, f"{label}, at other values", other)
    pairs = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
    if resizes and probe.values and all(array.dtype in pairs for array in probe.values):
        narrow = [array.astype(pairs[array.dtype]) for array in probe.values]
        single = _usable(probe.at(narrow))
        # it is taken as one: as many outputs, of its precision
        dtypes = [pairs.get(out.dtype) for out in probe.outs]
        if single is not None and [out.dtype for out in single.outs] == dtypes:
            yield Findings(report, f"{label}, in float32", single)
    if resizes:
        yield from _resized(findings)


def _usable(probe: Probe) -> Probe | None:
    """Returns the probe of a derived sample; None where the function does not take it."""
    try:
        outs = [out for out in probe(*probe.values) if is_floating(out)]
        return probe.settled() if are_finite(outs) else None
    except Exception:
        # the author has not promised it
        return None


def _resized(findings: Findings) -> Iterator[Findings]:
    """Yields the function with each size that its arrays have cut down to one, and to zero.

    Equal sizes are cut together, since they have to fit each other as likely as not; where first
    axes have the size of others, the first ones are also cut alone: a batch of one. Only where
    results are cut as arguments are, or not at all, is it the same operation: a convolution with a
    kernel that is longer than what is left is another one.
    """
    probe = findings.probe
    places = [i for i, leaf in enumerate(probe.given) if is_array(leaf)]
    arrays = [probe.given[i] for i in places]
    shapes = list(map(np.shape, arrays))
    first = {shape[0] for shape in shapes if shape}
    sizes = sorted({n for shape in shapes for n in shape if n > 1})
    for new, size in itertools.product((1, 0), sizes):
        is_mixed = first == {size} and any(size in shape[1:] for shape in shapes)
        for which in ("axes", "first axes") if is_mixed else ("axes",):
            cut = [_cut(array, which, size, new) for array in arrays]
            small = _usable(probe.at(cut, places))
            if small is not None and len(small.leaves) == len(probe.leaves):
                pairs = [(np.shape(x), _left(x, which, size, new)) for x in probe.leaves]
                fits = all(np.shape(x) in pair for x, pair in zip(small.leaves, pairs, strict=True))
                if fits and small.pulls_back():
                    label = f"{findings.sample}, with {which} of size {size} cut to {new}"
                    yield Findings(findings.report, label, small, new)


def _left(array: Any, which: str, size: int, new: int) -> tuple[int, ...]:
    """Returns the shape that is left of an array."""
    axes = enumerate(np.shape(array))
    return tuple(new if n == size and (which == "axes" or axis == 0) else n for axis, n in axes)


def _cut(array: Any, which: str, size: int, new: int) -> np.ndarray:
    left = np.array(np.asarray(array)[tuple(map(slice, _left(array, which, size, new)))], order="C")
    if left.dtype.kind in "iu" and new and np.all(np.abs(left) < size):
        # it may be an index into what was cut
        left = np.clip(left, -new if left.dtype.kind == "i" else 0, new - 1)
    return left
