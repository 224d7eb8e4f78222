"""The IR: types, literals, hash-consed programs, tracing, the text and HTML forms, and `check`."""

from __future__ import annotations

import gc
import itertools
import pickle
import re
import textwrap
import threading
import weakref
from typing import Any
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import CheckError, LeakedTracerError
from ftrans.interpreters import inline, jvp, simplify
from ftrans.ir import (
    Abstract,
    ArrayType,
    Equation,
    Literal,
    Params,
    Program,
    check,
    is_tracing,
    open_frame,
)
from ftrans.ir.dtype import complex_of, is_float, is_inexact, real_of, short_name
from ftrans.ir.stack import state
from ftrans.primitives import add_p, cos_p, mul_p, sin_p, sum_p

F32, F64 = ArrayType((3,), "float32"), ArrayType((3,), "float64")


def text(s: str) -> str:
    return textwrap.dedent(s).strip("\n")


# ------------------------------------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bool", "bool"), ("int8", "i8"), ("int64", "i64"), ("uint16", "u16"), ("float16", "f16"),
        (ml_dtypes.bfloat16, "bf16"), ("float32", "f32"), ("float64", "f64"),
        ("complex64", "c64"), ("complex128", "c128"),
    ],
)  # fmt: skip
def test_names_of_dtypes(dtype: Any, name: str) -> None:
    assert short_name(np.dtype(dtype)) == name
    assert str(ArrayType((2, 0), dtype)) == f"{name}[2,0]"
    assert str(ArrayType((), dtype, weak=True)) == f"{name}[]~"
    inexact = name[0] in "fc" or name == "bf16"
    assert ArrayType((), dtype).is_inexact == is_inexact(np.dtype(dtype)) == inexact
    assert is_float(np.dtype(dtype)) == (inexact and name[0] != "c")


def test_real_and_complex_partners() -> None:
    assert real_of(np.dtype("complex64")) == np.float32
    assert real_of(np.dtype("float16")) == np.float16
    assert complex_of(np.dtype("float64")) == np.complex128
    assert complex_of(np.dtype("int32")) == np.complex64
    assert complex_of(np.dtype("complex64")) == np.complex64


def test_equal_types_are_one_object() -> None:
    t = ArrayType((3, 4), "float32")
    for same in (
        ArrayType((3, 4), np.float32),
        ArrayType((np.int64(3), 4), np.dtype("f4")),
        ArrayType([3, 4], "f4"),  # type: ignore[arg-type]
        t.update(),
        t.update(shape=(3, 4)),
        ArrayType((4, 3), "f8").update((3, 4), "f4"),
        pickle.loads(pickle.dumps(t)),
    ):
        assert same is t
    assert ArrayType((3, 4), "float64") is not t
    assert ArrayType((), "f4", weak=True) is not ArrayType((), "f4")
    assert ArrayType((), "f4", weak=True).update() is ArrayType((), "f4")
    assert (t.ndim, t.size, t.nbytes) == (2, 12, 48)
    assert ArrayType((0, 5), "f8").size == 0


def test_types_are_interned_across_threads() -> None:
    found: list[list[ArrayType]] = [[] for _ in range(8)]

    def make(mine: list[ArrayType]) -> None:
        mine += [ArrayType((n, 977), "f4") for n in range(200)]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for mine in found for a, b in zip(mine, found[0], strict=True))


# --------------------------------------------------------------------------------------- literals


def test_literals_are_equal_by_dtype_and_text() -> None:
    assert Literal(1.0, "f4") == Literal(1.0, np.float32)
    assert hash(Literal(1.0, "f4")) == hash(Literal(1.0, "f4"))
    assert Literal(0.0, "f4") != Literal(-0.0, "f4")
    assert Literal(float("nan"), "f4") == Literal(float("nan"), "f4")
    assert Literal(float("inf"), "f4") != Literal(float("-inf"), "f4")
    assert Literal(1.0, "f4") != Literal(1.0, "f8")
    assert Literal(1, "i4") != Literal(True, "i4")
    assert Literal(1.0, "f4") != 1.0
    assert np.signbit(Literal(-0.0, "f4").array)
    assert Literal(2.5, "f4").array.dtype == np.float32
    assert not Literal(2.5, "f4").array.flags.writeable
    assert Literal(2, "i4").type == ArrayType((), "i4", weak=True)


def test_programs_tell_minus_zero_from_zero() -> None:
    plus, minus, nan = (
        ftrans.trace(lambda x, c=c: fnp.maximum(x, c))(np.ones(3, "f4"))
        for c in (0.0, -0.0, float("nan"))
    )
    assert plus != minus
    assert nan == ftrans.trace(lambda x: fnp.maximum(x, float("nan")))(np.ones(3, "f4"))


# --------------------------------------------------------------------------------------- programs


def program(name: str = "f", primitive: Any = sin_p) -> Program:
    return Program.make(
        [F32], [Equation(primitive, (0,), Params(), (F32,))], [1], locations=[None], name=name
    )


def test_programs_are_hash_consed() -> None:
    assert program() is program()
    assert program() == program("g")
    assert program() is not program("g")
    assert hash(program()) == hash(program("g"))
    assert program().structure is program("g").structure
    assert program().memo is not program("g").memo
    assert program() != program(primitive=cos_p)
    assert program().renamed("g") is program("g")
    assert program() != "program"


def test_the_same_lambda_made_anew_gives_the_same_program() -> None:
    made = [ftrans.trace(lambda x: fnp.sin(x) * 2)(np.ones(3)) for _ in range(3)]
    assert made[0] is made[1] is made[2]
    again = ftrans.trace(lambda x: fnp.sin(x) * 2)(np.ones(3))
    assert again == made[0]
    assert again is not made[0], "another line of the user's is another program"
    assert again.structure is made[0].structure


def test_interpreters_remember_on_the_program() -> None:
    p = program()
    found = jvp(p, (True,))
    assert jvp(p, (True,))[0] is found[0]
    assert jvp(program("g"), (True,))[0] == found[0]
    p.structure.memo["mine"] = 1
    assert program("g").structure.memo["mine"] == 1
    del p.structure.memo["mine"]


def test_programs_are_forgotten_with_their_last_user() -> None:
    def make() -> weakref.ref[Program]:
        p = Program.make(
            [F32],
            [Equation(mul_p, (0, Literal(0.123456, "f4")), Params(), (F32,))],
            [1],
            name="ephemeral",
        )
        assert p.type_of(p.equations[0].operands[1]) == ArrayType((), "f4", weak=True)
        return weakref.ref(p)

    alive = make()
    gc.collect()
    assert alive() is None


def test_nested_programs_that_differ_in_lines_only() -> None:
    def first(c: Any, x: Any) -> Any:
        return c + x, None

    def second(c: Any, x: Any) -> Any:
        return c + x, None

    trace = ftrans.trace(lambda f: ftrans.scan(f, np.float64(0), np.ones(3))[0])
    one, two = trace(first), trace(second)
    assert one == two
    assert one is not two


def test_counts_and_numbers() -> None:
    def f(x: Any) -> Any:
        total, _ = ftrans.scan(lambda c, v: (fnp.sin(c) * v, None), x[0], x)
        return total * 2

    p = ftrans.trace(f)(np.ones(3))
    assert p.count() > len(p)
    assert [n for _, numbers, _ in p.numbered() for n in numbers] == list(
        range(len(p.inputs), len(p.types))
    )
    assert p.output_types == (ArrayType((), "f8"),)


def test_params_can_be_hashed_and_mapped() -> None:
    p = program()
    params = Params({"body": p, "branches": (p, p), "n": 3})
    assert hash(params) == hash(Params(dict(reversed(params.items()))))
    assert list(params.programs()) == [p, p, p]
    mapped = params.map_programs(lambda q: q.renamed("g"))
    assert [q.name for q in mapped.programs()] == ["g"] * 3
    assert mapped["n"] == 3


# ----------------------------------------------------------------------------------------- frames


def test_operations_land_in_the_deepest_frame_of_their_operands() -> None:
    with open_frame("outer") as outer:
        x = outer.input(F32, np.ones(3, "f4"))
        with open_frame("inner") as inner:
            y = inner.input(F32, np.ones(3, "f4"))
            a, b = sin_p(x), sin_p(y)
            both = add_p(x, y)
            assert (a.frame, b.frame, both.frame) == (outer, inner, inner)
            assert state.stack[-1] is inner
            with open_frame("body", closed=True) as body:
                c = sin_p(x)
                assert c.frame is body
                assert [type(source) for source in body.sources] == [type(x)]
            assert len(outer.equations) == 1
            assert len(inner.equations) == 2
            p, captured = inner.close([both])
            assert len(captured) == 1
            assert captured[0] is x
            assert p.inputs == (F32, F32)
    assert not is_tracing()


def test_inputs_are_declared_then_captured() -> None:
    data, more = np.ones(3, "f4"), np.zeros(3, "f4")
    with open_frame("f") as frame:
        x = frame.input(F32, Abstract("nothing"))
        y = add_p(data, x)
        z = frame.input(F32, Abstract("nothing"))
        out = add_p(add_p(y, z), add_p(more, data))
        p, captured = frame.close([out])
    assert [id(v) for v in captured] == [id(data), id(more)]
    assert len(p.inputs) == 4
    # x + data comes first: x is input 0, data the first that was captured
    assert p.equations[0].operands == (2, 0)


def test_a_frame_left_by_an_exception_is_gone() -> None:
    with pytest.raises(KeyboardInterrupt), open_frame("a"), open_frame("b"):
        raise KeyboardInterrupt
    assert not state.stack


def test_demand_evaluates_what_is_needed_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        y = fnp.exp(x)
        z = fnp.sin(x)
        calls.append(y.value())
        frame = y.frame
        known = dict(frame.known)
        assert y.index in known
        assert z.index not in known, "what was not asked for was computed"
        assert y > 0
        assert frame.known[y.index] is known[y.index]
        return y * z

    func.grad(f)(0.0)
    assert calls == [1.0]


def test_values_belong_to_their_thread() -> None:
    caught: list[BaseException] = []

    def f(x: Any) -> Any:
        def use() -> None:
            assert not is_tracing()
            try:
                fnp.sin(x)
            except LeakedTracerError as error:
                caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return x

    func.grad(f)(1.0)
    assert len(caught) == 1


# -------------------------------------------------------------------------------------- locations


def lines_of(p: Program) -> list[str]:
    return [location.source for location in p.locations if location is not None]


def test_locations_name_the_users_lines() -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return (y * 2).sum()

    p = ftrans.trace(f)(np.ones(3))
    assert lines_of(p) == ["y = fnp.sin(x)", "return (y * 2).sum()", "return (y * 2).sum()"]
    location = p.locations[0]
    assert location is not None
    assert location.function.endswith("test_locations_name_the_users_lines.<locals>.f")
    assert str(location) == f"{__file__}:{location.line} ({location.function})"
    backward = ftrans.trace(func.grad(f))(np.ones(3))
    assert None not in backward.locations
    assert set(lines_of(backward)) <= {
        *lines_of(p),
        "backward = ftrans.trace(func.grad(f))(np.ones(3))",
    }


def test_locations_pass_over_jaxs_helpers() -> None:
    import jax

    p = ftrans.trace(lambda x: jax.tree.map(fnp.sin, {"a": x}))(np.ones(3))
    assert lines_of(p) == [
        'p = ftrans.trace(lambda x: jax.tree.map(fnp.sin, {"a": x}))(np.ones(3))'
    ]


# -------------------------------------------------------------------------------------- text, HTML


def test_text_of_a_function() -> None:
    def loss(w: Any, x: Any) -> Any:
        return fnp.tanh(x @ w).sum()

    assert str(ftrans.trace(loss)(np.ones(3, "f4"), np.ones((4, 3), "f4"))) == text("""
        loss(a: f32[3], b: f32[4,3]) -> f32[]:
            c: f32[4] = dot(b, a, contract=((1,), (0,)))
            d: f32[4] = tanh(c)
            e: f32[]  = sum(d, axes=(0,))
            return e
    """)


def test_text_of_sub_programs() -> None:
    def f(x: Any) -> Any:
        total, _ = ftrans.scan(lambda c, v: (c * v, None), 1.0, x)
        return ftrans.cond(total > 0, lambda t: t, lambda t: -t, total)

    assert str(ftrans.trace(f)(np.ones(3, "f4"))) == text("""
        f(a: f32[3], b: f32[]) -> f32[]:
            c: f32[]  = scan(b, a, consts=0, carry=1, length=3, unroll=1):
                body(a: f32[], b: f32[]) -> f32[]:
                    c: f32[] = mul(a, b)
                    return c
            d: bool[] = gt(c, 0.0)
            e: i32[]  = convert(d, dtype=i32)
            f: f32[]  = switch(e, c):
                branches[0](a: f32[]) -> f32[]:
                    b: f32[] = neg(a)
                    return b
                branches[1](a: f32[]) -> f32[]:
                    return a
            return f
    """)


def test_text_of_edges() -> None:
    assert str(ftrans.trace(lambda: ())()) == "lambda() -> ():\n    return"
    two = ftrans.trace(lambda x: (x, fnp.sin(x)))(np.ones(1, "f4"))
    assert str(two).startswith("lambda(a: f32[1]) -> (f32[1], f32[1]):")
    many = ftrans.trace(lambda *xs: sum(xs[1:], xs[0]))(*[np.float32(i) for i in range(30)])
    head = str(many).split("\n")[0]
    assert "z: f32[], aa: f32[], ab: f32[]" in head


def test_text_is_stable_from_run_to_run() -> None:
    f = func.grad(lambda x: fnp.tanh(x).sum())
    texts = {str(ftrans.trace(f)(np.ones(3))) for _ in range(3)}
    assert len(texts) == 1
    assert repr(ftrans.trace(f)(np.ones(3))) in texts


def test_html_shows_the_text_and_tells_where_it_is_from() -> None:
    def f(x: Any) -> Any:
        y = fnp.where(x < 0, x, 2.0)  # a line with characters to escape
        return ftrans.scan(lambda c, v: (c + v, None), np.float64(0), y)[0]

    p = ftrans.trace(f)(np.ones(3))
    html = p._repr_html_()
    assert html.startswith("<div style=")
    assert html.count("<span") == html.count("</span>") == p.count()
    assert "test_ir.py:" in html
    assert "y = fnp.where(x &lt; 0, x, 2.0)" in html
    assert "operations" in html
    import re
    from html import unescape

    plain = unescape(re.sub(r"<[^>]*>", "", html))
    assert plain == str(p)


# ------------------------------------------------------------------------------------------ check


def broken(
    operands: Any, types: Any, outputs: Any, primitive: Any = sin_p, **params: Any
) -> Program:
    equation = Equation(primitive, operands, Params(params), types)
    return Program.make([F32], [equation], outputs, name="broken")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: broken((1,), (F32,), [1]), "uses value 1, which is not defined yet"),
        (lambda: broken((-1,), (F32,), [1]), "uses value -1, which is not defined yet"),
        (lambda: broken((0,), (F64,), [1]), r"has types \(f64\[3\],\), inferred are \(f32\[3\],\)"),
        (lambda: broken((0,), (F32, F32), [1]), "inferred are"),
        (lambda: broken((0,), (F32,), [2]), "output 2 is not defined"),
        (lambda: broken((0, 0), (F32,), [1]), "does not type"),
        (lambda: broken((0,), (F32,), [1], sum_p, axes=(5,)), "does not type"),
        (
            lambda: broken((0, Literal(1.0, "f8")), (F32,), [1], add_p),
            "does not type",
        ),
    ],
)  # fmt: skip
def test_check_refuses(make: Any, message: str) -> None:
    with pytest.raises(CheckError, match=message) as caught:
        check(make())
    assert "broken" in str(caught.value)


def test_check_looks_into_sub_programs() -> None:
    p = ftrans.trace(lambda x: ftrans.cond(x[0] > 0, fnp.sin, fnp.cos, x))(np.ones(3, "f4"))
    assert check(p) is p
    bad = broken((0,), (F64,), [1])
    equations = [
        e._replace(params=Params({**e.params, "branches": (bad, bad)}))
        if e.primitive.name == "switch"
        else e
        for e in p.equations
    ]
    with pytest.raises(CheckError):
        check(Program.make(p.inputs, equations, p.outputs))


def test_check_runs_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from ftrans.runtime import run

    bad = Program.make([F32], [Equation(sin_p, (0,), Params(), (F64,))], [1])
    monkeypatch.setattr(ftrans.config, "check", True)
    with pytest.raises(CheckError):
        run(bad, [np.ones(3, "f4")])


def test_every_transform_makes_well_formed_programs() -> None:
    def f(x: Any) -> Any:
        total, ys = ftrans.scan(lambda c, v: (fnp.sin(c) * v, c), x[0], x)
        return (ys * total).sum()

    one, many = np.ones(3), np.ones((2, 3))
    for g, x in ((f, one), (func.grad(f), one), (func.hessian(f), one), (func.vmap(f), many)):
        check(simplify(inline(check(ftrans.trace(g)(x)))))


def _drawn() -> Program:
    def f(x, y):
        total = fnp.sin(x) * y + 2.0
        return ftrans.fori_loop(0, 3, lambda i, c: c * 0.5, total), y

    return ftrans.trace(f)(np.ones(3), np.ones(3))


def test_a_program_is_drawn_for_graphviz():
    program = _drawn()
    dot = program.to_dot()
    assert dot.startswith("digraph")
    assert dot.count("{") == dot.count("}") == 1
    nodes = re.findall(r'^  (n\d+) \[label="([^"]*)"', dot, re.MULTILINE)
    count = len(program.inputs) + len(program.equations) + len(program.outputs)
    assert len(dict(nodes)) == count
    named = dict(nodes)
    edges = re.findall(r"(n\d+) -> (n\d+)", dot)
    assert {(named[a], named[b]) for a, b in edges} >= {
        ("input 0", "sin"),
        ("sin", "mul"),
        ("input 1", "mul"),
        ("mul", "add"),
        ("input 1", "output 1"),
    }


def test_a_program_is_drawn_in_svg():
    program = _drawn()
    root = ElementTree.fromstring(program.to_svg())
    space = {"s": "http://www.w3.org/2000/svg"}
    texts = {
        text.text: (float(text.get("x")), float(text.get("y")))
        for text in root.iterfind(".//s:text", space)
    }
    assert texts["input 0"][1] < texts["sin"][1] < texts["mul"][1] < texts["add"][1]
    assert any("test_ir.py" in (t.text or "") for t in root.iterfind(".//s:title", space))
    boxes = [r.attrib for r in root.iterfind(".//s:rect", space)]
    for a, b in itertools.combinations(boxes, 2):
        left, right = sorted((a, b), key=lambda r: float(r["x"]))
        apart = float(left["x"]) + float(left["width"]) <= float(right["x"])
        assert apart or a["y"] != b["y"]


def test_programs_without_equations_are_drawn():
    program = Program.make([], [], [])
    assert ElementTree.fromstring(program.to_svg()).tag.endswith("svg")
    assert program.to_dot().endswith("}")
