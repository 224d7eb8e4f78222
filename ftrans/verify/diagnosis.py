"""Guesses why a derivative is wrong, by trying on the numbers what people get wrong.

Each hypothesis would turn what the rule returned into what it should have returned; the first that
does so to many digits is named. None of them decides whether a rule is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
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
    size = max(np.max(np.abs(a), initial=0.0), np.max(np.abs(b), initial=0.0))
    return bool(np.isfinite(size) and size > 0 and np.max(np.abs(a - b)) <= close * size)


def factor_between(given: np.ndarray, true: np.ndarray, close: float = _CLOSE) -> complex | None:
    """Returns c where `given` is c times `true` throughout, or None."""
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
        given, true = widened(given), widened(true)
    with np.errstate(all="ignore"):
        return next(_causes(given, true, known or {}, elsewhere or {}), "")


def _causes(
    given: np.ndarray, true: np.ndarray, known: Mapping[str, Any], elsewhere: Mapping[str, Any]
) -> Iterator[str]:
    """Yields what would explain the difference, the simplest first."""
    if not np.isfinite(given).all():
        yield f"not finite in {np.count_nonzero(~np.isfinite(given))} of {given.size} elements"
        return
    size = float(np.max(np.abs(true), initial=0.0))
    apart = float(np.max(np.abs(given - true), initial=0.0)) / size if size else 1.0
    if apart < 1e-3:
        # so little would be explained by almost anything: only a constant factor is tried
        factor = factor_between(given, true, apart / 20)
        if factor is not None and given.size > 1:
            yield f"a wrong factor: it is {factor.real:.10g} times what it should be, throughout"
        yield from _some_elements(given, true, apart / 20)
        yield f"it is off by {apart:.1g} of the largest element: too few digits, or noise"
        return
    yield from _scaled(given, true)
    if given.size <= _MANY:
        for text, candidate in (*elsewhere.items(), *_rearranged(true)):
            if _same(given, np.asarray(candidate)):
                yield text
        yield from _factors(given, true, known)
        yield from _terms(true - given, known)
        one, other = (np.sort(array, axis=None) for array in (given, true))
        if given.size > 2 and not np.iscomplexobj(given) and _same(one, other):
            yield "the same numbers in another order: a wrong axis, index or permutation"
        for axis in range(true.ndim):
            if _same(true, np.broadcast_to(given.sum(axis, keepdims=True), true.shape)):
                yield f"a missing sum over axis {axis}"
    yield from _some_elements(given, true)


def _of_shapes(given: np.ndarray, true: np.ndarray) -> str:
    lead = given.ndim - true.ndim
    if lead >= 0:
        full = (0,) * lead + true.shape
        axes = enumerate(zip(given.shape, full, strict=True))
        wide = tuple(axis for axis, (n, left) in axes if axis < lead or n != left == 1)
        if wide and given.sum(wide, keepdims=True).shape[lead:] == true.shape:
            return f"a missing reduction: sum it over axes {wide}, which were broadcast"
    if given.size == true.size:
        return "a reshape or transpose is missing"
    return "the shape is wrong"


def _name(factor: complex) -> str:
    """Returns a number as one would write it: 2, 1/3, 0.577; complex where its angle tells."""
    if abs(factor.imag) > 1e-3 * abs(factor):
        return f"{factor:.4g}"
    near = Fraction(factor.real).limit_denominator(12)
    is_near = near != 0 and abs(factor.real - near) < 2e-6 * abs(factor)
    return str(near) if is_near else f"{factor.real:.6g}"


def _scaled(given: np.ndarray, true: np.ndarray) -> Iterator[str]:
    """Yields constant factors, and what is wrong with complex numbers."""
    if not np.any(given):
        yield "it is zero throughout: a missing term, or a value that is taken for a constant"
    elif not np.any(true):
        yield "it should be zero: a term too many"
    factor = factor_between(given, true)
    if factor is not None:
        if given.size == 1 and not np.iscomplexobj(true) and factor.real > 0:
            yield f"it is {_name(factor)} times what it should be"
        elif abs(factor + 1) < 1e-3:
            yield "the sign is wrong"
        yield f"a wrong factor: it is {_name(factor)} times what it should be, throughout"
    if _same(given, true.conj()):
        yield "a missing conjugate: it is the complex conjugate of what it should be"
    factor = factor_between(given, true.conj())
    if factor is not None:
        yield f"a missing conjugate, and a factor of {factor:.4g}"


def _rearranged(true: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what is made of an array by swapping, reversing, shifting and reducing axes."""
    yield "the imaginary part is missing", np.real(true)
    axes = range(true.ndim)
    for order in itertools.permutations(axes) if 1 < true.ndim <= 4 else ():
        turned = true.transpose(order)
        if turned.shape != true.shape:
            text = f"a transpose {order} is missing: elements are in the wrong order"
            yield text, turned.reshape(true.shape)
        elif order != tuple(axes):
            yield f"swapped axes: it is the transpose {order} of what it should be", turned
    for axis in axes:
        yield f"axis {axis} is reversed", np.flip(true, axis)
    for axis in axes:
        for shift in range(1, min(true.shape[axis], 9)):
            yield f"axis {axis} is shifted by {shift}", np.roll(true, shift, axis)
    for axis in axes:
        for name, reduced in (("sum", true.sum(axis)), ("mean", true.mean(axis))):
            text = f"axis {axis} was reduced: each element is the {name} over it"
            yield text, np.broadcast_to(np.expand_dims(reduced, axis), true.shape)


def _factors(given: np.ndarray, true: np.ndarray, known: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is known and is missing as a factor, or is one too many."""
    powers = {"{}": 1.0, "{}**2": 2.0, "1 / {}": -1.0, "sqrt({})": 0.5, "1 / {}**2": -2.0}
    for (name, value), (form, power) in itertools.product(known.items(), powers.items()):
        raised = np.asarray(widened(value) ** power)
        if _shape(raised, true) != true.shape or not np.isfinite(raised).all():
            continue
        text = form.format(name)
        if _is_multiple(given * raised, true):
            yield f"a missing factor of {text}"
        if _is_multiple(true * raised, given):
            yield f"a factor of {text} too many"


def _is_multiple(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether one array is a simple multiple of the other, with more than one element."""
    factor = factor_between(a, b)
    return factor is not None and (a.size > 2 or abs(factor - 1) < 1e-3)


def _shape(*arrays: np.ndarray) -> tuple[int, ...] | None:
    """Returns the shape that arrays broadcast to, or None."""
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return None


def _terms(missing: np.ndarray, known: Mapping[str, Any]) -> Iterator[str]:
    """Yields terms of which a difference consists: a constant, what is known, products of two."""
    if missing.size < 2:
        return
    if not np.iscomplexobj(missing) and np.ptp(missing) <= _CLOSE * np.max(np.abs(missing)):
        yield f"a constant of {missing.flat[0]:.6g} is missing in each element"
    terms = {name: widened(value) for name, value in known.items()}
    for (one, a), (two, b) in itertools.combinations(list(terms.items()), 2):
        if _shape(a, b) is not None:
            terms[f"{one} * {two}"] = a * b
    for name, value in terms.items():
        if value.shape != missing.shape or value.size < 3 or np.ptp(np.abs(value)) == 0:
            continue
        factor = factor_between(missing, value)
        if factor is not None:
            yield f"a missing term: {_name(factor)} * {name}"


def _some_elements(given: np.ndarray, true: np.ndarray, close: float = _CLOSE) -> Iterator[str]:
    """Yields where it is wrong, if that is not everywhere."""
    wrong = np.abs(given - true) > close * np.max(np.abs(true), initial=0.0)
    number = int(np.count_nonzero(wrong))
    if 0 < number < given.size:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        yield f"wrong in {number} of {given.size} elements, the first at {first}"


def sums(
    ct: np.ndarray, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Returns a cotangent, alone and times an argument, summed to the shape of a gradient."""
    over = ct.ndim - len(shape)
    if not 0 < over <= ct.ndim <= 4:
        return {}
    factors = {"the cotangent": np.ones((), ct.dtype)}
    for label, array in arrays.items():
        if _shape(array, ct) == ct.shape:
            factors[f"the cotangent times {label}"] = widened(array)
    totals = {
        f"a wrong axis: it is {name}, summed over {axes}": (ct * factor).sum(axes)
        for name, factor in factors.items()
        for axes in itertools.combinations(range(ct.ndim), over)
    }
    return {label: total for label, total in totals.items() if total.shape == shape}
