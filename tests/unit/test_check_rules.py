"""`check_rules`: silent on rules that are right; it finds what was planted, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from ftrans import check_rules
from tests.unit.right_rules import RIGHT


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_raise_no_alarm(name: str) -> None:
    rule, args = RIGHT[name]
    report = check_rules(rule, args)
    assert report.ok, str(report)
