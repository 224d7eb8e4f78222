"""What holds for every test: it leaves the settings as it found them, and finds nothing on disk."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("FTRANS_CACHE_DIR", "")  # read by what follows, and by processes of tests

from ftrans.config import config
from tests.long import listed


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what takes long."""
    names = listed()
    for item in items:
        if item.nodeid in names:
            item.add_marker("long")


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    """Puts back what a test has set."""
    before = dict(vars(config))
    yield
    vars(config).update(before)


_modules = itertools.count()


@pytest.fixture(autouse=True, scope="module")
def old_objects_set_aside() -> Iterator[None]:
    """Spares the garbage collector what is there before a module: JAX, and the tests themselves.

    They take most of a second at each full collection, and many tests ask for one. What modules
    leave in cycles is freed once in a while.
    """
    if next(_modules) % 16 == 0:
        gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
