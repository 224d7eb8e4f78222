"""What holds for every test: it leaves the settings as it found them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ftrans.config import config


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    """Puts back what a test has set."""
    before = dict(vars(config))
    yield
    vars(config).update(before)


@pytest.fixture(autouse=True, scope="session")
def old_objects_set_aside() -> None:
    """Spares the garbage collector what is there before the tests: JAX, and the tests themselves.

    They take most of a second at each full collection, and many tests ask for one. What tests leave
    is not set aside, since what is in cycles would never be freed.
    """
    gc.collect()
    gc.freeze()
