"""The laws that every primitive in the registry obeys, on its own samples and in all its dtypes.

None of them states a derivative: tangents are held against finite differences, cotangents against
the dot-product identity, batches against a loop, NumPy against JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import ftrans.primitives
from ftrans.errors import DTypeError, MissingRuleError, ShapeError, TransposeError
from ftrans.interpreters import batch, jvp, linearize, simplify, transpose
from ftrans.interpreters.base import building, finish
from ftrans.ir import Params, Program, bind, type_of
from ftrans.ir.dtype import bfloat16
from ftrans.primitives import Absent, Joint, Primitive, Recursive, Sample, registry
from ftrans.primitives.control.common import program_from
from ftrans.primitives.evaluate import evaluate
from tests.helpers import (
    QUICK,
    assert_close,
    assert_written_out,
    equation,
    is_differentiable,
    pairing,
    run,
    types_of,
)

DTYPES = {
    "b": [np.dtype(bool)],
    "i": [np.dtype(f"int{n}") for n in (8, 16, 32, 64)],
    "u": [np.dtype(f"uint{n}") for n in (8, 16, 32, 64)],
    "f": [np.dtype("float16"), bfloat16, np.dtype("float32"), np.dtype("float64")],
    "c": [np.dtype("complex64"), np.dtype("complex128")],
}


def each(primitives: list[Primitive]) -> Any:
    """Runs a test once for each primitive, under its name."""
    return pytest.mark.parametrize("primitive", primitives, ids=[p.name for p in primitives])


# what raises wherever it is run has no laws, see tests/unit/test_missing.py
TAKEN = [p for p in registry.values() if "missing" not in p.tags]
every = each(TAKEN)
every_elementwise = each([p for p in registry.values() if "elementwise" in p.tags])
# what cuts tangents is there to have others than its values have
every_smooth = each(
    [p for p in registry.values() if not p.tags & {"stop", "missing", "once", "external"}]
)
every_linear = each(
    [
        p
        for p in registry.values()
        if not (isinstance(p.transpose, (Absent, Recursive)) or p.tags & {"missing", "external"})
    ]
)
# `call` has no rule, since interpreters inline it, and is batched nevertheless
every_batched = each(
    [
        p
        for p in registry.values()
        if (p.name == "call" or not (isinstance(p.batch, Absent) or "missing" in p.tags))
        and p.samples()[0].operands  # else there is nothing that can be mapped
    ]
)


def cast(array: Any, dtype: np.dtype) -> Any:
    """Casts an operand of a sample, which stands for every dtype where it is in float64."""
    array = np.asarray(array)
    if array.dtype != np.float64:
        return array
    if dtype.kind == "c":
        # imaginary parts that differ from element to element, and are never zero
        imag = 0.3 + 0.4 * np.cos(np.arange(array.size)).reshape(array.shape)
        return (array + 1j * imag).astype(dtype)
    finite = np.nan_to_num(array, posinf=3.0, neginf=-3.0)
    if dtype.kind == "b":
        return finite > 0
    if dtype.kind in "iu":
        whole = np.rint(finite)
        return (np.abs(whole) if dtype.kind == "u" else whole).astype(dtype)
    return array.astype(dtype)


def cases(primitive: Primitive, dtypes: Any = None) -> Iterator[tuple[str, list[Any], Sample]]:
    """Yields a name, operands and the sample, for each sample and each dtype."""
    wanted = [d for kind in primitive.kinds for d in DTYPES[kind]]
    for index, sample in enumerate(primitive.samples()):
        takes = any(np.asarray(x).dtype == np.float64 for x in sample.operands)
        for dtype in wanted if takes and primitive.kinds else [np.dtype("float64")]:
            if dtypes is None or dtype in dtypes:
                operands = [cast(x, dtype) for x in sample.operands]
                yield f"sample {index}, {types_of(operands)}, {sample.params}", operands, sample


OF_EACH_KIND = [
    np.dtype(name) for name in ("bool", "int64", "uint8", bfloat16, "float64", "complex64")
]


def in_turn(primitive: Primitive, dtypes: Any = OF_EACH_KIND) -> list[tuple[str, list, Sample]]:
    """Returns the cases of one dtype, float64 where it can be, and a case of each of the others.

    So each sample and each dtype is met, but not every one with every other.
    """
    found = {dtype: list(cases(primitive, (dtype,))) for dtype in dtypes}
    chosen = found.pop(np.dtype("float64"))
    if "f" not in primitive.kinds:
        chosen += found.pop(max(found, key=lambda dtype: len(found[dtype])))
    return chosen + [rows[n % len(rows)] for n, rows in enumerate(found.values()) if rows]


def crosswise(primitive: Primitive) -> list[tuple[str, list, Sample]]:
    """Returns every other dtype of one sample, and the others of the next."""
    found: dict[int, list[Any]] = {}
    for case in cases(primitive):
        found.setdefault(id(case[2]), []).append(case)
    if len(found) == 1:
        return next(iter(found.values()))
    return [case for n, rows in enumerate(found.values()) for case in rows[n % 2 :: 2] or rows]


def beside(
    primitive: Primitive, chosen: Iterable[tuple[str, list[Any], Sample]]
) -> tuple[Program, list[Any]]:
    """Returns a program with cases of a primitive beside each other, and arrays for it."""
    arrays: list[Any] = []
    applied = []
    for _, operands, sample in chosen:
        applied.append((len(arrays), len(operands), sample.params))
        arrays += operands
    with building(primitive.name, types_of(arrays)) as (frame, inputs):
        outs = [
            out
            for start, count, params in applied
            for out in bind(primitive, inputs[start : start + count], Params(dict(params)))
        ]
        return finish(frame, outs), arrays


def smooth(primitive: Primitive) -> Iterator[tuple[str, list[Any], Program, list[bool]]]:
    """Yields the cases in double precision: name, operands, program, what can have tangents."""
    for what, operands, sample in cases(primitive, (np.float64, np.complex128)):
        program = equation(primitive, sample.params, operands)
        active = [is_differentiable(x) for x in operands]
        if sample.smooth and any(active) and any(t.is_inexact for t in program.output_types):
            yield what, operands, program, active


def subsets(active: list[bool]) -> list[tuple[bool, ...]]:
    """Returns `active` as a whole, and each of its members alone."""
    singles = [tuple(i == j for j in range(len(active))) for i, a in enumerate(active) if a]
    return list(dict.fromkeys([tuple(active), *singles]))


def draw(arrays: Any, seed: int = 7) -> list[np.ndarray]:
    """Draws normal arrays of the shapes and dtypes of others, complex where they are."""
    generator = np.random.default_rng(seed)

    def one(shape: Any, dtype: Any) -> np.ndarray:
        x = generator.normal(size=shape)
        return np.asarray(x + 1j * generator.normal(size=shape) if dtype.kind == "c" else x, dtype)

    return [one(np.shape(x), x.dtype) for x in arrays]


def pick(values: Any, mask: Any) -> list[Any]:
    return [v for v, keep in zip(values, mask, strict=True) if keep]


def differences(program: Program, operands: list, mask: Any, tangents: list) -> list[np.ndarray]:
    """Returns central differences of the outputs along the tangents of the operands in `mask`."""

    def at(step: float) -> list[np.ndarray]:
        given = iter(tangents)
        moved = [x + step * next(given) if m else x for x, m in zip(operands, mask, strict=True)]
        return run(program, moved)

    h = 1e-5
    return [
        (a - b) / (2 * h) if is_differentiable(a) else None
        for a, b in zip(at(h), at(-h), strict=True)
    ]


def assert_tangents(what: str, program: Program, operands: list, mask: Any) -> Program | None:
    """Holds jvp against central differences in two directions; returns the jvp program."""
    try:
        pushed, nonzero = jvp(program, tuple(mask))
    except MissingRuleError:
        return None
    directions = draw(pick(operands, mask))
    for turn in (1, 1j) if any(t.dtype.kind == "c" for t in directions) else (1,):
        tangents = [t * turn if t.dtype.kind == "c" else t for t in directions]
        results = run(pushed, [*operands, *tangents])
        dots = iter(results[len(nonzero) :])
        expected = differences(program, operands, mask, tangents)
        for index, (is_nonzero, value) in enumerate(zip(nonzero, expected, strict=True)):
            if value is None:
                assert not is_nonzero, f"{what}: a tangent of an integer, output {index}"
                continue
            dot = next(dots) if is_nonzero else np.zeros_like(value)
            scale = 1 + np.max(np.abs(value), initial=0)
            assert_close(dot / scale, value / scale, 1e-6, f"{what}, tangents of {mask}\n{pushed}")
    return pushed


def assert_transposed(what: str, program: Program, operands: list, mask: Any) -> None:
    """Holds the transpose of the linearization against the dot-product identity and jvp."""
    split = linearize(program, tuple(mask))
    tangents = draw(pick(operands, mask))
    forward = run(split.forward, operands)
    count = len(split.active)
    residuals = forward[count:]
    outs = run(split.linear, [*tangents, *residuals])
    pushed, nonzero = jvp(program, tuple(mask))
    assert nonzero == split.active
    for dot, out in zip(run(pushed, [*operands, *tangents])[count:], outs, strict=True):
        assert_close(out, dot, 1e-10, f"{what}: linearize against jvp")
    cotangents = draw(outs, seed=8)
    marks = (True,) * len(tangents) + (False,) * len(residuals)
    try:
        back, given = transpose(split.linear, marks, (True,) * len(outs))
    except TransposeError:
        # only a loop of unknown length has tangents and no cotangents
        assert any(e.params.get("bound", 0) is None for e in program.equations), what
        return
    results = run(back, [*residuals, *cotangents])
    left, right = pairing(outs, cotangents), pairing(pick(tangents, given), results)
    assert_close(left, right, 1e-9 * (1 + abs(left)), f"{what}, tangents of {mask}\n{back}")


# --------------------------------------------------------------------------------------- laws


def test_every_primitive_is_exported() -> None:
    for name in registry:
        assert getattr(ftrans.primitives, f"{name}_p", None) is registry[name], name


@every
def test_declaration(primitive: Primitive) -> None:
    """Has samples, a rule or a reason for everything, and a rule for each operand."""
    samples = primitive.samples()
    assert samples, "no samples"
    assert primitive.kinds.strip("biufc") == ""
    for slot in ("jvp", "linearize", "transpose", "batch", "prune", "rewrite", "host"):
        rule = getattr(primitive, slot)
        rules = rule if isinstance(rule, (list, tuple)) else [rule]
        for one in rules:
            assert one is not None
            if isinstance(one, Absent):
                assert len(one.reason) > 8, f"{slot} is absent without a reason"
        if isinstance(rule, (list, tuple)):
            assert all(len(rules) == len(s.operands) for s in samples), f"{slot}: {len(rules)}"


@every
def test_it_is_the_same_where_it_is_written_out(primitive: Primitive) -> None:
    """What NumPy runs often is a function of Python's, in the place of a loop over equations."""
    with np.errstate(all="ignore"):
        for _, operands, sample in in_turn(primitive):
            assert_written_out(equation(primitive, sample.params, operands), operands)


@every
def test_what_runs_on_the_host_is_the_lowering(primitive: Primitive) -> None:
    """What is decided before a run changes no bit, nor shapes and dtypes."""
    if isinstance(primitive.host, Absent):
        return
    with np.errstate(all="ignore"):
        for what, operands, sample in cases(primitive):
            call = primitive.on_host([*map(type_of, operands)], sample.params)
            if call is None:
                continue
            found, expected = (
                np.asarray(out)
                for out in (call(*operands), primitive.lower(np, *operands, **sample.params))
            )
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), what
            assert found.tobytes() == expected.tobytes(), what


def by_jax(found: list[tuple[str, Program, list[Any]]]) -> Any:
    """Returns a function of all operands that computes all programs with JAX."""

    def compute(everything: list[list[Any]]) -> list[list[Any]]:
        return [
            list(evaluate(jax.numpy, program, given))
            for (_, program, _), given in zip(found, everything, strict=True)
        ]

    return compute


def programs(
    primitive: Primitive, chosen: Iterable[tuple[str, list[Any], Sample]]
) -> tuple[list[tuple[str, Program, list[Any]]], list[list[Any]]]:
    """Returns a name, the program and its operands for each case, and all operands."""
    found = [
        (what, equation(primitive, sample.params, operands), operands)
        for what, operands, sample in chosen
    ]
    return found, [operands for _, _, operands in found]


@every
def test_types(primitive: Primitive) -> None:
    """Infers the types that JAX has for every dtype."""
    found, everything = programs(primitive, cases(primitive))
    with jax.enable_x64(True):
        types = jax.eval_shape(by_jax(found), everything)
    for (what, program, _), others in zip(found, types, strict=True):
        for t, other in zip(program.output_types, others, strict=True):
            assert (t.shape, t.dtype) == (other.shape, other.dtype), f"{what}: {t}, JAX {other}"


@pytest.mark.parametrize(
    "choose",
    [in_turn, pytest.param(crosswise, marks=pytest.mark.slow)],
    ids=lambda f: f.__name__,
)
@every
def test_types_and_values(primitive: Primitive, choose: Any) -> None:
    """Infers the types that NumPy and JAX compute, whose values agree."""
    found, everything = programs(primitive, choose(primitive))
    with jax.enable_x64(True):
        computed = jax.jit(by_jax(found), compiler_options=QUICK)(everything)
    for (what, program, operands), others in zip(found, computed, strict=True):
        for out, other in zip(run(program, operands), others, strict=True):
            assert out.dtype == other.dtype, f"{what}: NumPy {out.dtype}, JAX {other.dtype}"
            assert_close(out, other, what=f"{what}: NumPy against JAX")


@every_smooth
def test_tangents(primitive: Primitive) -> None:
    """Has the tangents that finite differences have."""
    for what, operands, program, active in smooth(primitive):
        for mask in subsets(active):
            assert_tangents(what, program, operands, mask)


@every
def test_missing_tangents_are_declared(primitive: Primitive) -> None:
    """Raises MissingRuleError only where a rule is Absent."""
    for what, _, program, active in smooth(primitive):
        for mask in subsets(active):
            try:
                jvp(program, mask)
            except MissingRuleError:
                rules = primitive.jvp if isinstance(primitive.jvp, list) else [primitive.jvp]
                assert any(isinstance(rule, Absent) for rule in rules), what


@every_smooth
def test_second_tangents(primitive: Primitive) -> None:
    """Has, differentiated twice, the tangents of its tangents."""
    for what, operands, program, active in smooth(primitive):
        try:
            pushed, _ = jvp(program, tuple(active))
        except MissingRuleError:
            continue
        inputs = [*operands, *draw(pick(operands, active), seed=9)]
        mask = [*active, *(True for a in active if a)]
        assert_tangents(f"{what}, twice", pushed, inputs, mask)
        assert_transposed(f"{what}, twice", pushed, inputs, mask)


@every
def test_cotangents(primitive: Primitive) -> None:
    """Pulls cotangents back so that pairings are kept."""
    for what, operands, program, active in smooth(primitive):
        for mask in subsets(active):
            try:
                assert_transposed(what, program, operands, mask)
            except MissingRuleError:
                assert any(isinstance(r, Absent) for r in np.ravel(primitive.jvp)), what


@every_linear
def test_transpose(primitive: Primitive) -> None:
    """Transposes as it stands, in each operand that it is linear in and in all together."""
    rule = primitive.transpose
    for what, operands, program, active in smooth(primitive):
        masks = subsets(active)
        if "linear" not in primitive.tags:
            masks = [mask for mask in masks if sum(mask) == 1]
        for mask in masks:
            if isinstance(rule, Joint) or not any(isinstance(r, Absent) for r in pick(rule, mask)):
                _assert_own_transpose(what, operands, program, mask)


def _assert_own_transpose(what: str, operands: list, program: Program, mask: Any) -> None:
    constants = [x for x, m in zip(operands, mask, strict=True) if not m]
    try:
        back, given = transpose(program, mask, (True,) * len(program.outputs))
    except TransposeError:
        return
    zeros = [np.zeros_like(x) if m else x for x, m in zip(operands, mask, strict=True)]
    # a constant part, as of pad, is no matter of the transpose
    outs = [a - b for a, b in zip(run(program, operands), run(program, zeros), strict=True)]
    cotangents = draw(outs, seed=8)
    results = run(back, [*constants, *cotangents])
    left = pairing(outs, cotangents)
    right = pairing(pick(pick(operands, mask), given), results)
    assert_close(left, right, 1e-9 * (1 + abs(left)), f"{what}, operands {mask}\n{back}")


@every_batched
def test_batch(primitive: Primitive) -> None:
    """Computes over a mapped axis what a loop over it computes, wherever the axis sits."""
    seen = set()
    for what, operands, sample in cases(primitive):
        # one dtype is enough, the best that the sample has
        key = (id(sample.params), tuple(x.shape for x in operands), sample.operands[0].tobytes())
        if key in seen or (
            "f" in primitive.kinds and not any(x.dtype.itemsize >= 8 for x in operands)
        ):
            continue
        seen.add(key)
        _assert_batched(what, primitive, operands, sample.params)


LITERALS = {"b": (False, True), "i": (0, 1, -1), "u": (0, 1, 2), "f": (0.0, -0.0, 1.0, -1.0, 2.0)}


@every_elementwise
def test_identities(primitive: Primitive) -> None:
    """Computes the same to the last bit when it is simplified, with literals and equal operands."""
    dtypes = [np.dtype(name) for name in ("bool", "int32", "uint8", "float32", "complex64")]
    for what, operands, sample in cases(primitive, dtypes):
        for index, x in enumerate(operands):
            if x.dtype == np.float32:
                operands[index] = np.resize(np.roll(EDGES, index), x.shape)
        values = [None, *LITERALS.get(operands[-1].dtype.kind, LITERALS["f"])]
        for chosen in product([*values, "same", "negative", "conjugate"], repeat=len(operands)):
            try:
                program = _with_operands(primitive, sample.params, operands, chosen)
            except (DTypeError, ShapeError):
                continue  # all are literals, or one cannot be negative
            outs = run(program, operands)
            simpler = simplify(program)
            for out, other in zip(outs, run(simpler, operands), strict=True):
                same = np.all(_same_bits(out.real, other.real) & _same_bits(out.imag, other.imag))
                assert same, f"{what}, {chosen}\n{program}\n{simpler}\n{out}\n{other}"


EDGES = np.array([0.0, -0.0, 1.5, -1.5, np.inf, np.nan, 0.25], np.float32)


def _same_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    nan = (x != x) & (y != y)
    return nan | ((x == y) & (np.signbit(x) == np.signbit(y) if x.dtype.kind == "f" else True))


def _with_operands(primitive: Primitive, params: Any, operands: list, chosen: Any) -> Program:
    """Returns the program of a primitive with other operands than its own."""
    from ftrans.primitives import conj_p, neg_p, scalar

    def choose(own: Any, first: Any, choice: Any) -> Any:
        if choice is None:
            return own
        if choice == "same":
            return first
        if choice in ("negative", "conjugate"):
            return (neg_p if choice == "negative" else conj_p)(own)
        return scalar(choice, own.type.dtype)

    def function(*given: Any) -> list[Any]:
        taken = [choose(x, given[0], c) for x, c in zip(given, chosen, strict=True)]
        return list(bind(primitive, taken, Params(params)))

    return program_from(function, *types_of(operands))


def _vary(x: np.ndarray) -> np.ndarray:
    """Returns another operand that the primitive takes as well."""
    if x.dtype == bool:
        return ~x
    return np.flip(x) if x.dtype.kind in "iu" else np.flip(x) * x.dtype.type(0.75)


def _assert_batched(what: str, primitive: Primitive, operands: list, params: Any) -> None:
    program = equation(primitive, params, operands)
    few = len(operands) <= 3
    choices = [list(dict.fromkeys([None, 0, x.ndim if few else 0])) for x in operands]
    looped: dict[tuple[bool, ...], list[list[np.ndarray]]] = {}
    for dims in product(*choices):
        if all(dim is None for dim in dims):
            continue
        which = tuple(dim is not None for dim in dims)
        if which not in looped:
            other = [_vary(x) if m else x for x, m in zip(operands, which, strict=True)]
            looped[which] = [run(program, operands), run(program, other)]
        stacked = [
            x if dim is None else np.stack([x, _vary(x)], axis=dim)
            for x, dim in zip(operands, dims, strict=True)
        ]
        batched, mapped = batch(program, 2, dims)
        results = run(batched, stacked)
        for out, is_mapped, *rows in zip(results, mapped, *looped[which], strict=True):
            out = out if is_mapped else np.broadcast_to(out, (2, *out.shape))
            assert_close(out, np.stack(rows), 1e-9, f"{what}, dims {dims}\n{batched}")
