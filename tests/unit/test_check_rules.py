"""`check_rules`: silent on rules that are right; it finds what was planted, and says why."""

from __future__ import annotations

import pytest

from ftrans import check_rules
from tests.unit.right_rules import RIGHT
from tests.unit.wrong_rules import WRONG


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_raise_no_alarm(name: str) -> None:
    rule, args = RIGHT[name]
    report = check_rules(rule, args)
    assert report.ok, str(report)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_found(name: str) -> None:
    rule, args, says = WRONG[name]
    report = check_rules(rule, args)
    assert not report.ok
    assert says in str(report)
