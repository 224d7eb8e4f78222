"""What holds for every test: it leaves the settings as it found them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ftrans.config import config


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    """Puts back what a test has set."""
    before = dict(vars(config))
    yield
    vars(config).update(before)
