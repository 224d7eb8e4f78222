"""The rules of JAX's primitives, all of them: what a jaxpr is imported by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import ftrans.primitives as p
from ftrans.errors import UnsupportedError
from ftrans.interop import collectives, control, elementwise, indexing, keys, rules, shapes, slopes
from ftrans.interop.importer import (
    Imported,
    Importer,
    NoCounterpart,
    RefusedError,
    Rule,
    import_jaxpr,
)
from ftrans.runtime.jaxlink import x64

SAME = """
    add sub mul div rem neg sign abs floor ceil max=maximum min=minimum add_any=add clamp
    sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
    exp exp2 expm1 log log1p sqrt rsqrt cbrt logistic
    erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e
    eq ne lt le gt ge and or xor not is_finite shift_left shift_right_arithmetic=shift_right
    real imag complex stop_gradient integer_pow(y=exponent)
    convert_element_type=convert(new_dtype=dtype) bitcast_convert_type=bitcast(new_dtype=dtype)
    iota(shape,dtype,dimension=axis) threefry2x32=threefry
    transpose(permutation) concatenate(dimension=axis) rev(dimensions=axes)
    reduce_sum=sum(axes) reduce_prod=prod(axes) reduce_max=max(axes) reduce_min=min(axes)
    reduce_or=any(axes) reduce_and=all(axes) sort(dimension=axis,num_keys=keys)
    cumsum(axis,reverse) cumprod(axis,reverse) cummax(axis,reverse) cummin(axis,reverse)
    cumlogsumexp(axis,reverse) cholesky lu
    triangular_solve(left_side=left,lower,transpose_a=transpose,conjugate_a=conj,unit_diagonal=unit)
"""
"""Primitives of JAX's that are one of ours, with their params; `theirs=ours` where names differ."""

_IGNORED = {"accuracy", "is_stable", "weak_type"}
"""Params that say nothing of what is computed."""


def _names(entries: Sequence[str]) -> dict[str, str]:
    """Returns our names by JAX's."""
    pairs = [entry.partition("=") for entry in entries]
    return {theirs: ours or theirs for theirs, _, ours in pairs}


def _same(ours: Callable[..., Any], names: dict[str, str]) -> Rule:
    """Makes the rule of a primitive of JAX's that is one of ours, with our names of its params."""
    is_elementwise = "elementwise" in ours.tags  # type: ignore[attr-defined]

    def rule(importer: Importer, equation: Any, *operands: Any) -> Any:
        params = {}
        for name, value in equation.params.items():
            if name in names:
                params[names[name]] = _static(value)
            elif name not in _IGNORED and value is not None:
                raise NoCounterpart
        if is_elementwise:
            return ours(*elementwise.spread(equation, operands), **params)
        return ours(*map(importer.array, operands), **params)

    return rule


def _static(value: Any) -> Any:
    """Returns a param of JAX's as one of ours: of Python's own integers and NumPy's dtypes."""
    if isinstance(value, (tuple, list)):
        return tuple(map(int, value))
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value)
    return value if isinstance(value, bool) else int(value)


RULES: dict[str, Rule] = {}
for _entry in SAME.split():
    _name, _, _params = _entry.rstrip(")").partition("(")
    for _theirs, _ours in _names([_name]).items():
        RULES[_theirs] = _same(getattr(p, f"{_ours}_p"), _names(_params.split(",")))
RULES |= {
    **elementwise.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **control.RULES,
    **collectives.RULES,
    **rules.RULES,
    **slopes.RULES,
    **{f"keys:{name}": rule for name, rule in keys.RULES.items()},
}
"""By name; where keys of random numbers are, behind "keys:"."""


def imported(closed: Any, name: str) -> Imported:
    """Returns the program of a closed jaxpr, and the arrays that it takes besides."""
    try:
        with x64():
            return import_jaxpr(closed, RULES, name)
    except RefusedError as error:
        raise UnsupportedError(*error.args) from None
    except NoCounterpart:
        raise UnsupportedError(
            f"from_jax({name}): it closes over a value that JAX is tracing outside.\n"
            f"  Pass it as an argument of the function."
        ) from None
