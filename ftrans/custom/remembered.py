"""Tables of what was found out, which forget what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ftrans.runtime.cache import on_clear

__all__ = ["Remembered"]


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
            found = make()
            self.put(key, found)
        else:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread has pushed it out
                self[key] = found
        return found

    def put(self, key: Any, value: Any) -> None:
        """Sets the value for a key."""
        self[key] = value
        while len(self) > self._most:
            self.popitem(last=False)
