"""Every function of the front end gives NumPy's answer for special values, and on both roads alike.

What differs is listed with its reason in `docs/explanation/special-values.csv`, which the page on
conventions shows; an entry that nothing differs by fails as well.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans.errors import FtransError
from ftrans.ir import Program
from ftrans.ir.dtype import is_half
from ftrans.runtime import run
from tests.helpers import TOLERANCE, on_road
from tests.oracle.special_cases import CASES, DTYPES, EITHER_ZERO, NOT_EXERCISED, NUMPY, grid
from tests.unit.front_end import leaves_of, program_of

TABLE = Path(__file__).parents[2] / "docs" / "explanation" / "special-values.csv"


def evaluate(case: str, xp: Any, operands: Iterable[np.ndarray]) -> list[Any]:
    names = dict(zip("uvwm", operands, strict=True))
    return leaves_of(eval(CASES[case][0], {"xp": xp, "np": np, **names}))


def by_numpy(case: str, dtype: np.dtype, operands: list[np.ndarray]) -> list[np.ndarray] | None:
    """Returns NumPy's answer, computed in float32 for half precision; None where it has none."""
    wide = [x.astype(np.float32) if is_half(dtype) else x for x in operands]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            found = [np.asarray(x) for x in evaluate(case, NUMPY, wide)]
            if dtype.kind in "biu" and found[0].dtype.kind == "f":
                # NumPy computes with as few bits as hold the integers
                found = [
                    np.asarray(x) for x in evaluate(case, NUMPY, [x.astype(float) for x in wide])
                ]
        except (TypeError, ValueError):
            return None
    return found


def agree(x: np.ndarray, y: np.ndarray, signed: bool) -> np.ndarray:
    """Tells which elements agree; a subnormal number counts as zero, which compiled code makes it.

    Args:
        x: what was computed.
        y: what it is held against.
        signed: whether zeros of two signs differ.
    """
    if "c" in (x.dtype.kind, y.dtype.kind):
        x, y = (z if z.dtype.kind == "c" else z + 0j for z in (x, y))
        return agree(x.real, y.real, signed) & agree(x.imag, y.imag, signed)
    if x.dtype.kind in "biu" or y.dtype.kind in "biu":
        return x == y
    tolerance, least = TOLERANCE[x.dtype.name], float(ml_dtypes.finfo(x.dtype).tiny)
    with np.errstate(all="ignore"):
        x, y = (z.astype(x.dtype).astype(np.float64) for z in (x, y))
        x, y = (np.where(np.abs(z) < least, np.copysign(0.0, z), z) for z in (x, y))
        close = np.abs(x - y) <= tolerance * np.abs(y)
    same = (x == y) if not signed else (x == y) & ((x != 0) | (np.signbit(x) == np.signbit(y)))
    return same | (np.isnan(x) & np.isnan(y)) | (close & (x != 0) & np.isfinite(y))


def traced(name: str, cases: Iterable[str]) -> tuple[Program, list[Any], dict[str, int]]:
    """Returns one program of all cases, its arrays, and how many results each case has.

    Those that raise for this dtype are left out.
    """
    operands = list(grid(DTYPES[name])[0].values())
    counts: dict[str, int] = {}

    def everything(*given: Any) -> list[Any]:
        outs: list[Any] = []
        for case in cases:
            try:
                found = evaluate(case, fnp, given)
            except (FtransError, TypeError):  # the latter of what is JAX's
                continue
            counts[case] = len(found)
            outs += found
        return outs

    program, captured = program_of(everything, *operands)
    return program, [*operands, *captured], counts


def differences(
    name: str, road: str, cases: Iterable[str] = CASES
) -> Iterator[tuple[str, list[str], str]]:
    """Yields the case, the classes of the operands and the values of all that differs.

    Args:
        name: the dtype.
        road: "compile" holds compiled results against interpreted ones, all in one program;
            "interpret" holds those against NumPy's.
        cases: which are tried.
    """
    arrays, classes = grid(DTYPES[name])
    program, operands, counts = traced(name, cases)
    with on_road("interpret"):
        found = iter(run(program, operands))
    if road == "compile":
        with on_road("compile"):
            compiled = iter(run(program, operands))
    for case, count in counts.items():
        kind = CASES[case][1]
        ours = [np.asarray(next(found)) for _ in range(count)]
        if road == "compile":
            theirs: Any = ours
            ours = [np.asarray(next(compiled)) for _ in range(count)]
        else:
            theirs = by_numpy(case, DTYPES[name], list(arrays.values()))
        for x, y in zip(ours, theirs or ours, strict=True):
            assert x.shape == y.shape, f"{case} of {name}: shape {x.shape}, not {y.shape}"
            # XLA keeps no signs of zeros in complex numbers
            open_sign = case in EITHER_ZERO or (road == "compile" and name.startswith("complex"))
            signed = kind in ("u", "v") and not open_sign
            for place in np.argwhere(~agree(x, y, signed)):
                words = classes[kind][place[0]].split() if kind else ["any"]
                if "subnormal" not in words:
                    at = {k: arrays[k][place[0]] for k in {"v": "vw"}.get(kind, kind)}
                    yield case, words, f"{case} at {at}: {x[tuple(place)]}, not {y[tuple(place)]}"


class Entry(NamedTuple):
    """Is one line of the table."""

    functions: list[str]
    dtypes: list[str]
    operands: list[str]
    against: str
    reason: str


GROUPS = {
    "float": ["float16", "bfloat16", "float32", "float64"],
    "complex": ["complex64", "complex128"],
    "signed": ["int8", "int16", "int32", "int64"],
    "unsigned": ["uint8", "uint16", "uint32", "uint64"],
}


def table() -> list[Entry]:
    with TABLE.open() as file:
        return [
            Entry(
                line["functions"].split(", "),
                [name for word in line["dtypes"].split() for name in GROUPS.get(word, [word])],
                line["operands"].split(),
                line["against"],
                line["reason"],
            )
            for line in csv.DictReader(file)
        ]


def check(name: str, road: str, cases: Iterable[str] = CASES) -> None:
    """Raises where something differs that the table does not list, or lists and does not differ."""
    against = "NumPy" if road == "interpret" else "interpreted"
    entries = [e for e in table() if e.against.split(", ")[0] == against and name in e.dtypes]
    # what differs on some processors only is covered wherever it is
    listed = {
        (case, word): e.against != against
        for e in entries
        for case in e.functions
        for word in e.operands
    }
    unlisted = []
    for case, words, shown in differences(name, road, cases):
        covering = [(case, word) for word in words if (case, word) in listed]
        listed |= dict.fromkeys(covering, True)
        if not covering:
            unlisted.append(f"{' '.join(words)}: {shown}")
    assert not unlisted, f"{name}, not as {against}:\n" + "\n".join(unlisted)
    idle = [key for key, differs in listed.items() if not differs and key[0] in cases]
    assert not idle, f"{name}: listed as differing from {against}, and does not: {idle}"


def test_every_function_is_exercised_or_excused() -> None:
    exercised = {case.split()[0] for case in CASES if hasattr(fnp, case.split()[0])}
    excused = set(" ".join(NOT_EXERCISED.values()).split())
    assert exercised | excused == set(fnp.__all__)
    assert not exercised & excused
    taken: set[str] = set()
    for name in ("float64", "int32"):
        taken |= set(traced(name, CASES)[2])
    assert taken == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", DTYPES)
def test_interpreted_as_numpy(name: str) -> None:
    check(name, "interpret")


def test_elementwise_functions_compiled_as_interpreted() -> None:
    check("float64", "compile", [case for case, (_, kind) in CASES.items() if kind == "u"])


@pytest.mark.slow
@pytest.mark.parametrize("name", DTYPES)
def test_compiled_as_interpreted(name: str) -> None:
    check(name, "compile")
