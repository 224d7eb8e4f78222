"""What the layers above give to this one, since it knows neither arrays nor primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftrans.ir.program import Params, Program


class _Above:
    """Is what the layers above give to this one, each when it is imported."""

    evaluate: Callable[[Any, Sequence[Any], Params], tuple[Any, ...]]
    """Runs one primitive on arrays."""

    run: Callable[[Program, Sequence[Any]], Sequence[Any]]
    """Runs a program."""

    hold: Callable[[Sequence[Any], list[Any]], None]
    """Keeps sources from being changed until `release` of the list, to which it adds them."""

    release: Callable[[list[Any]], None]

    broadcast: Callable[[Any, tuple[int, ...]], Any]
    """Broadcasts a traced scalar to a shape."""

    exchange: Callable[[Program, int, str], Program]
    """Transposes a program whose first inputs are linear, and gives the result the same form."""

    at_hand: Any
    """The primitive that says of a value where it is at hand."""


above = _Above()
