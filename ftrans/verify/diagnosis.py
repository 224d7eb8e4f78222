"""Guesses why a derivative is wrong, by trying on the numbers what people get wrong.

Each hypothesis would turn what the rule returned into what it should have returned; the first that
does so to many digits is named. None of them decides whether a rule is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ftrans.verify.coordinates import widened

_CLOSE = 1e-4
"""How well a hypothesis must explain the numbers; single precision comes that close."""

_MANY = 20_000
"""Beyond so many elements only the cheap hypotheses are tried."""


def _same(a: np.ndarray, b: np.ndarray, close: float = _CLOSE) -> bool:
    """Tells whether two arrays agree, relative to their size and not all zero."""
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        size = max(np.max(np.abs(a), initial=0.0), np.max(np.abs(b), initial=0.0))
        return bool(np.isfinite(size) and size > 0 and np.max(np.abs(a - b)) <= close * size)


def factor_between(given: np.ndarray, true: np.ndarray, close: float = _CLOSE) -> complex | None:
    """Returns c where `given` is c times `true` throughout, or None.

    Args:
        given: what a rule returned.
        true: what it should have returned.
        close: how well it must fit.
    """
    size = np.vdot(true, true).real
    if given.shape != true.shape or not size > 0 or not np.isfinite(given).all():
        return None
    factor = complex(np.vdot(true, given) / size)
    return factor if factor != 0 and _same(given, factor * true, close) else None


def diagnose(
    given: Any,
    true: Any,
    known: Mapping[str, Any] | None = None,
    elsewhere: Mapping[str, Any] | None = None,
) -> str:
    """Returns the likely cause of the difference, in a few words; "" where none is found.

    Args:
        given: what the rule returned.
        true: what it should have returned.
        known: values that may be missing as a factor or in a term, by their names.
        elsewhere: what would be right in another situation, by what it is called.
    """
    given, true = np.asarray(given), np.asarray(true)
    if given.shape != true.shape:
        return _of_shapes(given, true)
    if given.dtype.kind in "biu" or true.dtype.kind in "biu":
        given, true = given.astype(np.float64), true.astype(np.float64)
    if not np.isfinite(given).all():
        return f"not finite in {np.count_nonzero(~np.isfinite(given))} of {given.size} elements"
    size = float(np.max(np.abs(true), initial=0.0))
    apart = float(np.max(np.abs(given - true), initial=0.0)) / size if size else 1.0
    if apart < 1e-3:
        # so little would be explained by almost anything: only a constant factor is tried
        factor = factor_between(given, true, apart / 20)
        if factor is not None and given.size > 1:
            return f"a wrong factor: it is {factor.real:.10g} times what it should be, throughout"
        few = _some_elements(given, true, apart / 20)
        return few or f"it is off by {apart:.1g} of the largest element: too few digits, or noise"
    if given.size > _MANY:
        return _constant_factor(given, true) or _some_elements(given, true)
    for hypothesis in (
        _constant_factor,
        _conjugate,
        _stale(elsewhere or {}),
        _axes,
        _factor_of(known or {}),
        _term_of(known or {}),
        _order,
        _reduction,
        _some_elements,
    ):
        found = hypothesis(given, true)
        if found:
            return found
    return ""


def _of_shapes(given: np.ndarray, true: np.ndarray) -> str:
    lead = given.ndim - true.ndim
    if lead >= 0:
        wide = [
            axis
            for axis in range(given.ndim)
            if axis < lead or (true.shape[axis - lead] == 1 and given.shape[axis] != 1)
        ]
        summed = given.sum(axis=tuple(wide)).reshape(true.shape) if wide else given
        if wide and summed.shape == true.shape:
            return f"a missing reduction: sum it over axes {tuple(wide)}, which were broadcast"
    if given.size == true.size:
        return "a reshape or transpose is missing"
    return "the shape is wrong"


def _name(factor: float) -> str:
    """Returns a number as one would write it: 2, 1/3, 0.577."""
    for denominator in range(1, 13):
        scaled = factor * denominator
        if round(scaled) != 0 and abs(scaled - round(scaled)) < 2e-6 * abs(scaled):
            whole = round(scaled)
            return str(whole) if denominator == 1 else f"{whole}/{denominator}"
    return f"{factor:.6g}"


def _constant_factor(given: np.ndarray, true: np.ndarray) -> str:
    if not np.any(given):
        return "it is zero throughout: a missing term, or a value that is taken for a constant"
    if not np.any(true):
        return "it should be zero: a term too many"
    factor = factor_between(given, true)
    if factor is None:
        return ""
    if abs(factor.imag) > 1e-3 * abs(factor):
        return f"a wrong factor: it is {factor:.4g} times what it should be"
    if given.size == 1 and not np.iscomplexobj(true) and factor.real > 0:
        return f"it is {_name(factor.real)} times what it should be"
    if abs(factor.real + 1) < 1e-3:
        return "the sign is wrong"
    return f"a wrong factor: it is {_name(factor.real)} times what it should be, throughout"


def _conjugate(given: np.ndarray, true: np.ndarray) -> str:
    if not np.iscomplexobj(true) and not np.iscomplexobj(given):
        return ""
    if _same(given, true.conj()):
        return "a missing conjugate: it is the complex conjugate of what it should be"
    if _same(given, np.real(true).astype(given.dtype)):
        return "the imaginary part is missing"
    factor = factor_between(given, true.conj())
    if factor is not None:
        return f"a missing conjugate, and a factor of {factor:.4g}"
    return ""


def _stale(elsewhere: Mapping[str, Any]) -> Any:
    def try_them(given: np.ndarray, true: np.ndarray) -> str:
        for label, value in elsewhere.items():
            if _same(given, np.asarray(value)) and not _same(true, np.asarray(value)):
                return label
        return ""

    return try_them


def _rearranged(true: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what is made of an array by swapping, reversing and shifting axes."""
    axes = range(true.ndim)
    if 1 < true.ndim <= 4:
        for order in itertools.permutations(axes):
            if order != tuple(axes):
                turned = true.transpose(order)
                if turned.shape == true.shape:
                    yield f"swapped axes: it is the transpose {order} of what it should be", turned
                else:
                    text = f"a transpose {order} is missing: elements are in the wrong order"
                    yield text, turned.reshape(true.shape)
    for axis in axes:
        yield f"axis {axis} is reversed", np.flip(true, axis)
    for axis in axes:
        for shift in range(1, min(true.shape[axis], 9)):
            yield f"axis {axis} is shifted by {shift}", np.roll(true, shift, axis)


def _axes(given: np.ndarray, true: np.ndarray) -> str:
    for label, candidate in _rearranged(true):
        if _same(given, candidate):
            return label
    return ""


def _factor_of(known: Mapping[str, Any]) -> Any:
    powers = {"{}": 1.0, "{}**2": 2.0, "1 / {}": -1.0, "sqrt({})": 0.5, "1 / {}**2": -2.0}

    def try_them(given: np.ndarray, true: np.ndarray) -> str:
        for name, value in known.items():
            value = np.asarray(value)
            for form, power in powers.items():
                with np.errstate(all="ignore"):
                    raised = np.asarray(value**power) if power != 1.0 else value
                if not np.isfinite(raised).all():
                    continue
                text = form.format(name)
                for label, a, b in (
                    (f"a missing factor of {text}", given, true),
                    (f"a factor of {text} too many", true, given),
                ):
                    with np.errstate(all="ignore"):
                        try:
                            product = a * raised
                        except ValueError:
                            continue
                    if product.shape == b.shape and _constant(product, b):
                        return label
        return ""

    return try_them


def _constant(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether one array is a simple multiple of the other, with more than one element."""
    factor = factor_between(a, b)
    return factor is not None and (a.size > 2 or abs(factor - 1) < 1e-3)


def _term_of(known: Mapping[str, Any]) -> Any:
    def try_them(given: np.ndarray, true: np.ndarray) -> str:
        difference = true - given
        if difference.size < 2:
            return ""
        if np.ptp(np.real(difference)) <= _CLOSE * np.max(
            np.abs(difference)
        ) and not np.iscomplexobj(difference):
            return f"a constant of {difference.flat[0]:.6g} is missing in each element"
        pairs = {**known}
        for (one, a), (two, b) in itertools.combinations(known.items(), 2):
            try:
                pairs[f"{one} * {two}"] = np.asarray(a) * np.asarray(b)
            except ValueError:
                continue
        for name, value in pairs.items():
            value = np.asarray(value)
            if value.shape != difference.shape or value.size < 3 or np.ptp(np.abs(value)) == 0:
                continue
            factor = factor_between(difference, value)
            if factor is not None:
                scale = factor.real if abs(factor.imag) < 1e-3 * abs(factor) else factor
                text = _name(scale) if isinstance(scale, float) else f"{scale:.4g}"
                return f"a missing term: {text} * {name}"
        return ""

    return try_them


def _order(given: np.ndarray, true: np.ndarray) -> str:
    if given.size < 3 or np.iscomplexobj(given):
        return ""
    if _same(np.sort(given, axis=None), np.sort(true, axis=None)):
        return "the same numbers in another order: a wrong axis, index or permutation"
    return ""


def _reduction(given: np.ndarray, true: np.ndarray) -> str:
    for axis in range(true.ndim):
        if true.shape[axis] < 2:
            continue
        for name, reduced in (
            ("sum", true.sum(axis, keepdims=True)),
            ("mean", true.mean(axis, keepdims=True)),
        ):
            if _same(given, np.broadcast_to(reduced, true.shape)):
                return f"axis {axis} was reduced: each element is the {name} over it"
            if _same(true, np.broadcast_to(given.sum(axis, keepdims=True), true.shape)):
                return f"a missing sum over axis {axis}"
    return ""


def _some_elements(given: np.ndarray, true: np.ndarray, close: float = _CLOSE) -> str:
    if given.size < 2:
        return ""
    size = np.max(np.abs(true), initial=0.0)
    wrong = np.abs(given - true) > close * size
    number = int(np.count_nonzero(wrong))
    if 0 < number < given.size:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"wrong in {number} of {given.size} elements, the first at {first}"
    return ""


# -------------------------------------------------------------------- what hypotheses may be about


def fitting(
    arrays: Sequence[np.ndarray], labels: Sequence[str], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Returns the arrays that broadcast to a shape, by their names."""
    found = {}
    for array, label in zip(arrays, labels, strict=True):
        try:
            if np.broadcast_shapes(array.shape, shape) == shape:
                found[label] = widened(array)
        except ValueError:
            continue
    return found


def sums(
    ct: np.ndarray, arrays: Sequence[np.ndarray], labels: Sequence[str], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Returns a cotangent, alone and times an argument, summed to the shape of a gradient."""
    over = ct.ndim - len(shape)
    if not 0 < over <= ct.ndim <= 4:
        return {}
    factors = {"the cotangent": np.ones((), ct.dtype)}
    for label, array in fitting(arrays, labels, ct.shape).items():
        factors[f"the cotangent times {label}"] = array
    totals = {
        f"a wrong axis: it is {name}, summed over {axes}": (ct * factor).sum(axes)
        for name, factor in factors.items()
        for axes in itertools.combinations(range(ct.ndim), over)
    }
    return {label: total for label, total in totals.items() if total.shape == shape}
