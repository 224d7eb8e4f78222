"""Who is told of everything that is run, where somebody asks for that: a profile, for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ftrans.errors import UnsupportedError
from ftrans.ir import Location, Params


class Observes(Protocol):
    """Is what is told of runs; it makes them, and returns what they return.

    Attributes:
        apart: whether programs are run one equation after the other, which it is told of.
    """

    apart: bool

    def program(self, name: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs a program."""

    def ran(self, call: Any, is_compiled: bool) -> None:
        """Is told how the program was run that is at its end.

        Args:
            call: what `explain` tells of it.
            is_compiled: whether there is compiled code of it, used or not.
        """

    def equation(
        self,
        primitive: Any,
        params: Params,
        place: Location | None,
        run: Callable[..., Any],
        operands: Sequence[Any],
    ) -> Any:
        """Runs one equation on arrays."""


class _Observing:
    by: Observes | None = None
    """Who is told at present, in all threads; one look at it is all that it costs to ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self, by: Observes) -> None:
        """Has one told from here on; raises an `UnsupportedError` where another one is."""
        with self._lock:
            if self.by is not None and self.by is not by:
                raise UnsupportedError(
                    f"{type(by).__name__}: a profile is active already, and they cannot be "
                    f"nested, nor can two threads have one each.\n"
                    f"  Write record_function(name) for a part of it."
                )
            self.by = by

    def end(self, by: Observes) -> None:
        """Ends that, for whoever it was begun."""
        if self.by is by:
            self.by = None


observing = _Observing()
