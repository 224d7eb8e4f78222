"""What a trace does not show in which all arrays are unknown: checks, and the rules of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ftrans.ir import Program
from ftrans.ir.dtype import is_half
from ftrans.primitives import call_p, convert_p


def by_library(program: Program, of_jax: Sequence[bool]) -> bool:
    """Tells whether NumPy, or JAX, would compute something by its own rules.

    A function is given plain arrays in the place of arguments that it is not differentiated for.
    What is made of these alone stands beside the call of what is differentiated. Types, checks and
    overflow are those of the library there; the same as ours for views, and, where it is NumPy, for
    functions of each element of one type of floating point, half precision aside, of which some are
    computed in single. JAX flushes what is denormal, and rounds by way of integers.

    Args:
        program: what was traced, with calls of what is differentiated.
        of_jax: for each input whether it is JAX's; what meets one of these is, too.
    """
    converted: set[Any] = set()
    theirs: set[Any] = {i for i, is_theirs in enumerate(of_jax) if is_theirs}
    calls = 0
    types = {t for p in (program, *(p for p, _ in program.nested())) for t in p.types}
    one_type = len({t.dtype for t in types if t.is_inexact}) == 1
    for equation, results, _ in program.numbered():
        primitive, operands, _, (t, *_) = equation
        of_numpy = theirs.isdisjoint(operands)
        if not of_numpy:
            theirs.update(results)
        if primitive is call_p:
            calls += 1  # the first may be one of a function of JAX's
            if calls > 1:
                return True
            continue
        given = [program.types[a] for a in operands if type(a) is int]
        if not converted.isdisjoint(operands):
            return True
        if primitive is convert_p and t.is_inexact:
            converted.update(results)  # as ours do, of what meets traced values
        elif "view" in primitive.tags:
            is_number = given and given[0].shape and not t.shape
            if is_number and not (one_type and t.is_inexact):
                return True  # one of NumPy's, which promotes in its own way
        elif not (
            of_numpy
            and "elementwise" in primitive.tags
            and t.is_inexact
            and not is_half(t.dtype)
            and all(x.dtype == t.dtype for x in given)
        ):
            return True
    return False


def checks_values(program: Program, count: int | None = None) -> bool:
    """Tells whether an argument that is known would be looked at: an index, a matrix, an exponent.

    Of one that is traced an index is clamped, and a singular matrix gives what is not finite.

    Args:
        program: the program.
        count: how many of its inputs are arguments; None for all.
    """
    given = {i for i, t in enumerate(program.inputs[:count]) if t.dtype.kind in "iub"}
    for equation, results, _ in program.numbered():
        tags = equation.primitive.tags
        if "linalg" in tags or any(map(checks_values, equation.params.programs())):
            return True
        depends = not given.isdisjoint([a for a in equation.operands if type(a) is int])
        whole = equation.types[0].dtype.kind in "iub"
        if depends and ("indexed" in tags or ("exponent" in tags and whole)):
            return True
        if depends and whole:
            given.update(results)
    return False
