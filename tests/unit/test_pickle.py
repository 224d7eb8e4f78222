"""Programs, pullbacks and derivatives are values: copied, pickled, loaded by another process."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import UnsupportedError
from ftrans.ir import ArrayType, Equation, Params, Program, type_of
from ftrans.primitives.record import Primitive, registry
from tests.helpers import assert_close

V = np.array([0.5, -1.0, 2.0])


def wave(p: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        return ftrans.cond(c > 0, lambda c: fnp.sin(c) * v, lambda c: c - v, c), c

    return {"y": ftrans.scan(step, p["c"], p["xs"])[1].sum() * 2.0, "n": -0.0 * p["c"]}


GIVEN = {"c": np.float64(0.3), "xs": V}


def program() -> Program:
    return ftrans.trace(wave)({"c": ArrayType((), "float64"), "xs": ArrayType((3,), "float64")})


def test_copies_of_a_program_are_the_program() -> None:
    made = program()
    assert copy.deepcopy(made) == made
    assert copy.copy(made) == made
    assert copy.deepcopy({"p": [made]})["p"][0] == made


def test_a_program_that_was_pickled_is_equal() -> None:
    made = program()
    loaded = pickle.loads(pickle.dumps(made))
    assert loaded == made
    assert hash(loaded) == hash(made)
    assert str(loaded) == str(made)


@pytest.mark.parametrize("primitive", registry.values(), ids=lambda p: p.name)
def test_equations_of_every_primitive(primitive: Primitive) -> None:
    dtype = {"b": "bool", "i": "int32", "c": "complex128"}.get(primitive.kinds[:1])
    for sample in primitive.samples():
        types = tuple([type_of(x).update() for x in sample.operands])
        if dtype is not None and "f" not in primitive.kinds:
            types = tuple([t.update(dtype=dtype) for t in types])
        params = Params(sample.params)
        outs = primitive.infer_types(types, params)
        equation = Equation(primitive, tuple(range(len(types))), params, outs)
        made = Program.make(types, [equation], range(len(types), len(types) + len(outs)))
        if primitive.name in ("place", "shard_map"):  # their meshes hold devices of this process
            with pytest.raises(TypeError, match="cannot pickle 'Device' object"):
                pickle.dumps(made)
        elif not made.holds_functions:
            assert pickle.loads(pickle.dumps(made)) == made


LOADING = """
import pickle, sys
import numpy as np
import ftrans
program, back, value = pickle.load(sys.stdin.buffer)
assert program == ftrans.ir.Program.make(program.inputs, program.equations, program.outputs)
params = program.equations[0].params
assert hash(params) == hash(type(params)(params))
(found,) = back({"y": np.float64(1.0), "n": np.float64(0.0)})
print(repr([float(found["c"]), found["xs"].tolist()]))
"""


def test_another_process_goes_on() -> None:
    value, back = func.vjp(wave, GIVEN)
    given = pickle.dumps((program(), back, value))
    done = subprocess.run([sys.executable, "-c", LOADING], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    (expected,) = back({"y": np.float64(1.0), "n": np.float64(0.0)})
    c, xs = eval(done.stdout.decode())
    assert_close(c, expected["c"], 1e-14)
    assert_close(np.array(xs), expected["xs"], 1e-14)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_pullbacks_and_derivatives(again: Any) -> None:
    _, back = func.vjp(lambda x, n: (x**n).sum() * 3, V, 2)
    found = again(back)(1.0)
    assert_close(found[0], 6 * V)
    assert found[1] is None
    _, push = func.linearize(lambda x: fnp.sin(x), V)
    assert_close(again(push)(np.ones(3)), np.cos(V))


def test_functions_of_pythons_are_no_part_of_a_program() -> None:
    host = ftrans.external(lambda x: x * 2, lambda t: t, vjp=lambda p, out, ct: (2 * ct,))
    made = ftrans.trace(lambda x: host(x) + 1)(ArrayType((3,), "float64"))
    for _ in range(2):
        with pytest.raises(UnsupportedError) as caught:
            pickle.dumps(made)
        assert str(caught.value) == (
            "pickle: the program lambda calls Python functions, which are no part of it.\n"
            "  equations: custom\n"
            "  Pickle the arguments, and trace the function where they are loaded."
        )
    assert copy.deepcopy(made) == made
