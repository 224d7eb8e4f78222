"""The choice between interpreting and compiling, from estimates alone, so that it is reproducible.

Each interpreted run adds what a compiled one would have saved; a program is compiled when that
exceeds what compiling costs. A family of programs (one function, traced with other shapes or other
turns of a loop) whose compiled members are not seen again needs ever more evidence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ftrans.ir import ArrayType, Params, Program
from ftrans.runtime.cache import Remembered

# All in seconds. `benchmarks/calibrate_policy.py` measures some 80 programs (chains of cheap and of
# transcendental functions, networks, attention, sorts, loops and their gradients on 1 to 1e6
# elements; what sessions of training run) on both roads, after other work has passed the caches,
# and prints beside each what this file estimates. The constants are fitted to these: nine of ten
# are within a factor of two interpreted, of three compiled. The choice between the roads costs no
# more than that factor where it is wrong.

# What one run costs apart from its equations.
_EVALUATE = 8e-6
_CALL, _ARGUMENT, _RESULT = 1.5e-5, 6e-6, 1e-6
# What a compiled run gains besides where its arguments and results are JAX's, for each: these need
# not be copied, and the interpreter has to hand them over.
_JAX_ARGUMENT, _JAX_RESULT = 1e-5, 7e-6

# What a compiled equation costs apart from its elements, and a turn of a loop from its equations.
_COMPILED_EQUATION = 2e-8
_TURN, _COMPILED_TURN = 2e-6, 5e-8

# What compiling costs apart from the equations, and for each result, which is a loop of its own.
_COMPILE, _COMPILE_RESULT = 0.038, 2.5e-3


class _Rates(NamedTuple):
    """Gives the seconds for an equation, for one operation of it, and for one byte.

    Attributes:
        equation: one equation interpreted, apart from its elements.
        flop, byte: an operation and a byte of it.
        compiled_flop, compiled_byte: the same compiled.
        compiling: to lower and compile one equation.
    """

    equation: float
    flop: float
    byte: float
    compiled_flop: float
    compiled_byte: float
    compiling: float


# Compiled elementwise equations are fused: they hardly touch memory. What is bound by arithmetic
# gains nothing, and some of what XLA does on a CPU is slower than NumPy.
_ARITHMETIC = _Rates(8e-7, 1e-11, 3e-11, 2e-11, 0.0, 3.5e-4)
_TRANSCENDENTAL = _Rates(8e-7, 2.5e-10, 2e-11, 8e-10, 0.0, 1.8e-3)
_TRANSCENDENTAL_WIDE = _Rates(8e-7, 8e-9, 2e-11, 5e-9, 0.0, 1e-3)
# On an idle machine both roads multiply equally fast. The threads of NumPy's BLAS wait for each
# other, though, and where the machine has other work a product may take a hundred times as long.
_CONTRACTION = _Rates(2e-6, 5e-12, 1.5e-10, 4e-12, 1.2e-10, 2e-3)
# Both copy windows side by side, and multiply.
_CONVOLUTION = _Rates(6e-5, 1e-11, 2.5e-10, 1.1e-11, 8e-10, 6e-2)
_SORT = _Rates(2e-6, 5e-9, 6e-11, 2e-8, 6e-11, 1.5e-2)
_SCATTER = _Rates(1e-5, 5e-9, 6e-11, 2e-9, 6e-11, 5e-3)
_HASH = _Rates(5e-5, 1.7e-10, 6e-11, 1e-10, 3e-11, 1e-1)
_VIEW = _Rates(3e-7, 0.0, 5e-12, 0.0, 0.0, 2.5e-3)
_OTHER = _Rates(6e-6, 2e-10, 2.5e-10, 1e-9, 5e-11, 7e-3)

# JAX code that is no program of ours is dispatched operation by operation where it is interpreted;
# what Python does costs the same on both roads.
_EXTERNAL = _Rates(2e-4, 0.0, 6e-11, 0.0, 6e-11, 3e-2)
_HOST = _Rates(0.0, 0.0, 0.0, 0.0, 0.0, 5e-3)

_BY_TAG = {
    "view": _VIEW,
    "convolution": _CONVOLUTION,
    "contraction": _CONTRACTION,
    "sort": _SORT,
    "scatter": _SCATTER,
    "random": _HASH,
}

_LOOP_TURNS = 10
"""How often a loop is taken to turn where the program does not say."""

_NEVER = 1e6
"""So many seconds are said to take what is compiled for several devices at once."""

_MOST_UNPROVEN = 6


class Price(NamedTuple):
    """Says in seconds what a program is estimated to cost.

    Attributes:
        interpreted: one run by NumPy.
        compiled: one run of what XLA makes of it.
        compiling: to lower and compile it.
        gain: what one compiled run saves; zero where it saves nothing.
    """

    interpreted: float
    compiled: float
    compiling: float
    gain: float


def price(program: Program) -> Price:
    """Estimates what a program costs from the cost of its equations."""
    found = _running(program)
    interpreted = found.interpreted + _EVALUATE
    compiled = found.compiled + _CALL
    compiled += _ARGUMENT * len(program.inputs) + _RESULT * len(program.outputs)
    compiling = found.compiling + _COMPILE + _COMPILE_RESULT * len(program.outputs)
    return Price(interpreted, compiled, compiling, max(interpreted - compiled, 0.0))


def gain_of_jax(program: Program, prices: Price) -> float:
    """Returns what one compiled run saves where arguments and results are JAX's."""
    handing = _JAX_ARGUMENT * len(program.inputs) + _JAX_RESULT * len(program.outputs)
    return max(prices.interpreted - prices.compiled + handing, 0.0)


class _Running(NamedTuple):
    """Adds up equations: seconds to run and to compile them."""

    interpreted: float
    compiled: float
    compiling: float


def _running(program: Program) -> _Running:
    """Returns what the equations cost in one run, and to compile."""
    interpreted = compiled = compiling = 0.0
    known: dict[Any, _Running] = {}  # a loop that is written out has few kinds of equations
    for equation in program.equations:
        compiled += _COMPILED_EQUATION
        primitive, params = equation.primitive, equation.params
        if primitive.is_higher_order:
            subs = [_running(sub) for sub in params.programs()]
            own, turns, turn, compiled_turn = _OTHER.compiling, 1, 0.0, 0.0
            if "branches" in params:
                once = _Running(*map(max, zip(*subs, strict=True)))
            else:
                once = _Running(*map(sum, zip(*subs, strict=True)))
                if "program" in params:
                    own = 0.0  # its equations stand for themselves
                else:
                    turns = params.get("length") or params.get("bound") or _LOOP_TURNS
                    turn, compiled_turn = _TURN, _COMPILED_TURN
            if params.says("on_devices"):
                interpreted += _NEVER
            interpreted += turns * (turn + once.interpreted)
            compiled += turns * (compiled_turn + once.compiled)
            compiling += own + sum(sub.compiling for sub in subs)
            continue
        operands = tuple([program.type_of(atom) for atom in equation.operands])
        key = (primitive, operands, equation.types, params or None)
        one = known.get(key)
        if one is None:
            one = known[key] = _of_equation(primitive, operands, equation.types, params)
        interpreted += one.interpreted
        compiled += one.compiled
        compiling += one.compiling
    return _Running(interpreted, compiled, compiling)


def _of_equation(primitive: Any, operands: Any, results: Any, params: Params) -> _Running:
    """Returns what one equation costs that carries no program."""
    flops, nbytes = primitive.cost(operands, results, params)
    if "external" in primitive.tags:
        rates = _HOST if params["callee"].calls_host else _EXTERNAL
    else:
        rates = _rates(primitive, results[0])
    interpreted = rates.equation + flops * rates.flop + nbytes * rates.byte
    compiled = flops * rates.compiled_flop + nbytes * rates.compiled_byte
    return _Running(interpreted, compiled, rates.compiling)


def _rates(primitive: Any, result: ArrayType) -> _Rates:
    if "elementwise" in primitive.tags:
        if "costly" not in primitive.tags:
            return _ARITHMETIC
        return _TRANSCENDENTAL if result.dtype == np.float32 else _TRANSCENDENTAL_WIDE
    for tag, rates in _BY_TAG.items():
        if tag in primitive.tags:
            return rates
    return _OTHER


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


_families = Remembered(1024)


def family_of(program: Program) -> Family:
    """Returns the family of a program: that of its name and of the first code it came from."""
    code = next((place.code for place in program.locations if place is not None), None)
    if code is None:
        key = (program.name, program.inputs)
    else:
        key = (program.name, code.co_filename, code.co_firstlineno, code.co_qualname)
    return _families.find(key, Family)
