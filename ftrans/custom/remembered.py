"""Tables of what was found out, which forget what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ftrans.runtime.cache import on_clear


class Remembered(OrderedDict):
    """Is a dict that forgets what was not used for longest; `ftrans.cache_clear` empties it.

    Args:
        most: how many entries it has at most.
    """

    def __init__(self, most: int):
        super().__init__()
        self._most = most
        on_clear(self.clear)

    def find(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns the value for a key, made where there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
            while len(self) > self._most:
                self.popitem(last=False)
        else:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread has pushed it out
                self[key] = found
        return found


class Memory:
    """Is a small table of a rule, and goes with it; `ftrans.cache_clear` empties it."""

    __slots__ = ("_age", "_entries")

    def __init__(self) -> None:
        self._age = _age
        self._entries: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """Returns the value for a key; None where there is none."""
        if self._age != _age:
            self._entries, self._age = {}, _age
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Sets the value for a key."""
        if len(self._entries) >= _MOST:
            self._entries = {}
        self._entries[key] = value


_MOST = 64
"""How many entries there are at most."""

_age = 0
"""How often all was forgotten."""


@on_clear
def _forget() -> None:
    global _age
    _age += 1
