"""PyTorch's frozen answers to its own samples, against ours: see `pytorch.py`.

The default part takes the first sample of every operation; the others, and the road of compiled
programs, are slow tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import on_road
from tests.oracle.pytorch import ANSWERS, Sample, load
from tests.oracle.replay import KINDS, differences

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "int64": 0.0}
"""Relative to the largest number of a result, and to 1: the answers are kept to twelve digits."""

LOOSE = {"linalg.cond": 1e-7}
"""Where samples are badly conditioned."""

SAMPLES = load()


class Differs(NamedTuple):
    """Says where we do not agree with PyTorch.

    Attributes:
        names: the operations.
        kinds: of the answers that differ.
        why: the rule of "Autograd mechanics" that decides, or what PyTorch does.
        numbers: of the samples; all where there are none.
        dtype: that of the samples; any where there is none.
    """

    names: str
    kinds: str
    why: str
    numbers: tuple[int, ...] = ()
    dtype: str = ""

    def holds(self, sample: Sample, kind: str) -> bool:
        """Tells whether this is about an answer to a sample."""
        return (
            sample.name in self.names.split()
            and kind in self.kinds.split()
            and (not self.numbers or sample.number in self.numbers)
            and self.dtype in ("", sample.dtype)
        )


ALL = "out vjp jvp hvp vmap"

CONVENTIONS = [
    Differs(
        "cholesky_solve cholesky_inverse",
        "vjp jvp hvp",
        "Rule 1: what is not read has the derivative 0. PyTorch's depends on the other triangle.",
    ),
    Differs(
        "triangular_solve",
        "jvp",
        "Rule 1, as before; PyTorch's pullback agrees, its pushforward takes the other triangle.",
    ),
    Differs(
        "linalg.norm.subgradients_at_zero",
        "hvp",
        "Rule 2: the subgradient of least norm is 0, and so is its derivative; PyTorch's is NaN.",
    ),
    Differs(
        "special.entr",
        "vjp jvp hvp",
        "Rule 5: of a negative number it is not defined. PyTorch's slope there is NaN, ours 0.",
    ),
    Differs(
        "var var_mean var.unbiased var_mean.unbiased",
        "jvp",
        "Rule 5: the variance of nothing is NaN, and ours has the slope NaN, PyTorch's 0.",
    ),
    Differs(
        "masked.amax masked.amin",
        "vjp jvp",
        "Rule 5: the value is NaN. We give the slope to the elements that are, PyTorch NaN to all.",
    ),
    Differs(
        "logcumsumexp",
        "jvp",
        "Rule 1: PyTorch's pushforward is right to five digits, its pullback to all.",
        dtype="float64",
    ),
]
"""Answers that differ by convention."""

MISSING = [
    Differs("logaddexp logcumsumexp", ALL, "No complex numbers yet.", dtype="complex128"),
    Differs("nextafter", "vjp jvp hvp vmap", "JAX has no derivative of it."),
    Differs("nonzero argwhere", "vmap", "How many there are differs from lane to lane."),
]
"""What ftrans has not."""

UNLIKE = [
    Differs("tensordot", ALL, "Axes of size 1 do not fit others, as in NumPy."),
]
"""Where arguments mean in NumPy, and here, what they do not mean in PyTorch."""

LISTED = [*CONVENTIONS, *MISSING, *UNLIKE]


def unexpected(samples: Sequence[Sample], kinds: Sequence[str]) -> Iterator[str]:
    """Yields what differs and is not listed."""
    for sample in samples:
        tolerance = LOOSE.get(sample.name, TOLERANCE[sample.dtype])
        with np.errstate(all="ignore"):
            found = differences(sample, tolerance, kinds)
        for kind, text in found.items():
            if not any(entry.holds(sample, kind) for entry in LISTED):
                yield f"{sample}, {kind}: {text}"


def first(name: str) -> list[Sample]:
    """Returns the first sample of each dtype."""
    found: dict[str, Sample] = {}
    for sample in SAMPLES[name]:
        found.setdefault(sample.dtype, sample)
    return list(found.values())


def test_there_are_enough_of_them() -> None:
    assert len(SAMPLES) >= 250
    for dtype in ("float64", "complex128"):
        assert sum(s.dtype == dtype for samples in SAMPLES.values() for s in samples) >= 1000
    assert ANSWERS.stat().st_size <= 3e6


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_agree(name: str) -> None:
    """The first, and one in four; `python -m tests.oracle.test_pytorch` takes all of them."""
    with on_road("interpret"):
        wrong = list(unexpected([*first(name)[:1], *SAMPLES[name][1::4]], KINDS))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SAMPLES)[::3])
def test_first_samples_agree_compiled(name: str) -> None:
    """Of some: to compile all of them takes a quarter of an hour."""
    with on_road("compile"):
        wrong = list(unexpected(first(name)[:1], ["out", "vjp"]))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.names.split()[0])
def test_what_is_listed_differs(entry: Differs) -> None:
    for name in entry.names.split():
        found = set()
        for sample in SAMPLES[name]:
            with np.errstate(all="ignore"), on_road("interpret"):
                told = differences(sample, TOLERANCE[sample.dtype], entry.kinds.split())
            found |= {kind for kind in told if entry.holds(sample, kind)}
        assert found == set(entry.kinds.split()), name


def main() -> None:
    """Takes all samples, and prints what differs and is not listed."""
    count = 0
    for samples in SAMPLES.values():
        with on_road("interpret"):
            for text in unexpected(samples, KINDS):
                count += 1
                print(text)
    print(f"{sum(map(len, SAMPLES.values()))} samples, {count} differ unexpectedly")


if __name__ == "__main__":
    main()
