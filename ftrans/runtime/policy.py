"""The choice between interpreting and compiling, from estimates alone, so that it is reproducible.

Each interpreted run adds what a compiled one would have saved; a program is compiled when that
exceeds what compiling costs. A family of programs (one function, traced with other shapes or other
turns of a loop) whose compiled members are not seen again needs ever more evidence.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from ftrans.ir import Program

__all__ = ["Family", "Price", "family_of", "forget_families", "price"]

# In seconds, for one equation interpreted by NumPy and for one compiled call with its arguments and
# results, measured with `benchmarks`-like programs of 1 to 300 equations on arrays of 1 to 1e6
# elements (see docs/explanation/runtime.md for the fit and for how well it holds).
_EQUATION = 6e-7
_CALL, _ARGUMENT, _RESULT = 7e-6, 1.4e-6, 1e-6
_COMPILED_EQUATION = 1e-7

# Seconds for one operation and for one byte, by NumPy and by XLA, by the tag of the primitive.
_ELEMENTWISE = (6e-10, 1.5e-10, 3e-10, 0.2e-10)
_CONTRACTION = (2e-11, 1e-10, 2e-11, 1e-10)
_OTHER = (6e-10, 2e-10, 6e-10, 1e-10)

# Seconds for lowering and compiling a program, and each equation of it.
_COMPILE, _COMPILE_EQUATION = 0.025, 0.0009

_LOOP_TURNS = 10
"""How often a loop is taken to turn where the program does not say."""

_MOST_UNPROVEN = 6
_MOST_FAMILIES = 1024


class Price(NamedTuple):
    """Says in seconds what a program is estimated to cost.

    Attributes:
        interpreted: one run by NumPy.
        compiled: one run of what XLA makes of it.
        compiling: to lower and compile it.
    """

    interpreted: float
    compiled: float
    compiling: float

    @property
    def gain(self) -> float:
        """What one compiled run saves."""
        return max(self.interpreted - self.compiled, 0.0)


def price(program: Program) -> Price:
    """Estimates what a program costs from the cost of its equations."""
    interpreted, compiled = _running(program)
    ends = _CALL + _ARGUMENT * len(program.inputs) + _RESULT * len(program.outputs)
    return Price(interpreted, compiled + ends, _COMPILE + _COMPILE_EQUATION * program.count())


def _running(program: Program) -> tuple[float, float]:
    """Returns the seconds that one run takes, interpreted and compiled, without its ends."""
    interpreted = compiled = 0.0
    for equation in program.equations:
        params, tags = equation.params, equation.primitive.tags
        interpreted += _EQUATION
        compiled += _COMPILED_EQUATION
        if equation.primitive.is_higher_order:
            subs = [_running(sub) for sub in params.programs()]
            turns = params.get("length") or params.get("bound") or _LOOP_TURNS
            if "branches" in params:
                subs, turns = [max(subs)], 1
            interpreted += turns * sum(sub[0] for sub in subs)
            compiled += turns * sum(sub[1] for sub in subs)
            continue
        operands = tuple(program.type_of(atom) for atom in equation.operands)
        flops, nbytes = equation.primitive.cost(operands, equation.types, params)
        rates = _OTHER
        if "elementwise" in tags:
            rates = _ELEMENTWISE
        elif "contraction" in tags:
            rates = _CONTRACTION
        interpreted += flops * rates[0] + nbytes * rates[1]
        compiled += flops * rates[2] + nbytes * rates[3]
    return interpreted, compiled


class Family:
    """Counts the compiled programs of one function that were not seen again since.

    Attributes:
        unproven: how many; each doubles the evidence that the next one needs.
    """

    __slots__ = ("unproven",)

    def __init__(self) -> None:
        self.unproven = 0

    @property
    def factor(self) -> int:
        """By how much evidence must exceed the price of compiling."""
        return 2 ** min(self.unproven, _MOST_UNPROVEN)

    def prove(self) -> None:
        """Says that one of the compiled programs was used again."""
        self.unproven = max(self.unproven - 1, 0)


_families: OrderedDict[tuple, Family] = OrderedDict()
_lock = threading.Lock()


def family_of(program: Program) -> Family:
    """Returns the family of a program: that of its name and of the first code it came from."""
    code = next((place.code for place in program.locations if place is not None), None)
    if code is None:
        key = (program.name, program.inputs)
    else:
        key = (program.name, code.co_filename, code.co_firstlineno, code.co_qualname)
    with _lock:
        family = _families.setdefault(key, Family())
        _families.move_to_end(key)
        while len(_families) > _MOST_FAMILIES:
            _families.popitem(last=False)
    return family


def forget_families() -> None:
    """Forgets what was learnt of families."""
    with _lock:
        _families.clear()
