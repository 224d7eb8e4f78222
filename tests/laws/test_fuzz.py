"""A few hundred random programs under random transforms, against JAX; `fuzz.py` runs more."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.laws import fuzz

SETTINGS = settings(
    deadline=None,
    derandomize=True,  # CI tries the same cases each time; new ones are tried by hand
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


@pytest.mark.slow
@settings(SETTINGS, max_examples=60)
@given(rng=st.randoms(use_true_random=False), seed=st.integers(0, 3))
def test_random_programs_agree_with_jax(rng: random.Random, seed: int) -> None:
    fuzz.compare(fuzz.generate(rng), "interpret", seed)


@settings(SETTINGS, max_examples=4)
@given(rng=st.randoms(use_true_random=False))
def test_random_programs_agree_with_jax_when_compiled(rng: random.Random) -> None:
    fuzz.compare(fuzz.generate(rng, depth=2), "compile")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_programs_agree_with_jax(part: int) -> None:
    for seed in range(35 * part, 35 * (part + 1)):
        fuzz.compare(fuzz.generate(random.Random(seed)), "interpret", seed % 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_more_random_programs_agree_with_jax_when_compiled(seed: int) -> None:
    fuzz.compare(fuzz.generate(random.Random(seed), depth=2), "compile")


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(3))
def test_a_few_programs_agree_with_jax(seed: int) -> None:
    assert fuzz.compare(fuzz.generate(random.Random(seed)), "interpret")


def test_the_generator_covers_what_it_promises() -> None:
    cases = [fuzz.generate(random.Random(seed)) for seed in range(300)]
    held = set().union(*(set(case.features) | set(case.stack) for case in cases))
    promised = {"if", "cond", "switch", "scan", "while", "fori", "inner grad", "inner vmap"}
    assert promised | set(fuzz.STACKED) <= held
    assert {len(case.stack) for case in cases} == {0, 1, 2, 3, 4}
    assert len({case.source for case in cases}) == len(cases)


def test_a_disagreement_is_reported_with_its_program() -> None:
    case = fuzz.Case("def main(x0, x1):\n    return np.cos(x0) + fault(x1)", ((3,), ()), (), None)
    before = dict(fuzz.OURS), dict(fuzz.THEIRS)
    fuzz.OURS["fault"], fuzz.THEIRS["fault"] = lambda x: x, lambda x: x + 1e-5
    try:
        with pytest.raises(fuzz.Disagreement, match=r"return np\.cos"):
            fuzz.compare(case)
    finally:
        (fuzz.OURS, fuzz.THEIRS) = before
