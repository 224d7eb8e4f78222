"""The tests that take half a second or more, by what a run has measured: they are run apart.

To write the list anew: `python -m pytest -q -m "not slow" --durations=0 | python -m tests.long`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

_LIST = Path(__file__).with_name("long.txt")
_SECONDS = 0.5


def listed() -> frozenset[str]:
    """Returns what pytest calls these tests."""
    return frozenset(_LIST.read_text().splitlines())


def measured(log: str) -> list[str]:
    """Returns which tests a log says to take so long."""
    seconds: Counter[str] = Counter()
    for took, name in re.findall(r"^ *([\d.]+)s call +(\S.*?) *$", log, re.MULTILINE):
        seconds[name] += float(took)  # type: ignore[assignment]
    return sorted(name for name, took in seconds.items() if took >= _SECONDS)


if __name__ == "__main__":
    _LIST.write_text("\n".join(measured(sys.stdin.read())) + "\n")
