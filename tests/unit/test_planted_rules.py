"""`check_rules` on rules that were written by someone who had not seen it: wrong and right ones."""

from __future__ import annotations

import pytest

import ftrans
from tests.helpers import sampled
from tests.unit.planted_rules import RIGHT, WRONG, Subject

pytestmark = [
    # opaque functions without a vmap rule warn of their loop, and kernels of overflow
    pytest.mark.filterwarnings("ignore"),
]


def _name(subject: Subject) -> str:
    return subject.name


def test_there_are_enough_of_them() -> None:
    assert len({subject.name for subject in WRONG}) == len(WRONG) >= 40
    assert len({subject.name for subject in RIGHT}) == len(RIGHT) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("subject", sampled(WRONG, 5), ids=_name)
def test_wrong_rules_are_found(subject: Subject) -> None:
    report = ftrans.check_rules(subject.function, *subject.samples)
    assert not report.ok, f"{subject.name}: not found: {subject.fault}\n{report}"


@pytest.mark.slow
@pytest.mark.parametrize("subject", sampled(RIGHT, 5), ids=_name)
def test_right_rules_raise_no_alarm(subject: Subject) -> None:
    report = ftrans.check_rules(subject.function, *subject.samples)
    assert report.ok, f"{subject.name}:\n{report}"
