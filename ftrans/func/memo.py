"""What is remembered of the calls of a function under transforms, and by what it is known again."""

from __future__ import annotations

import operator
import weakref
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from ftrans.interop.closure import content
from ftrans.runtime.cache import on_clear

MOST, _ATTEMPTS = 16, 4
"""How many signatures of one function are remembered, and how many proofs may cease to hold."""

MEMO, MARK = "__ftrans_memo__", "__ftrans_mark__"
"""The attributes of functions that hold a `Memo` and a `Mark`."""


class Mark(NamedTuple):
    """Says of a transformed function what it is made of.

    Attributes:
        called: the function that has this mark, weakly; what copied its attributes is another one.
        base: the function of the user's.
        places: the transforms around it and their options, the outermost first.
    """

    called: weakref.ref[Any]
    base: Any
    places: tuple[Any, ...]

    def __reduce__(self) -> Any:
        return _no_memo, ()  # it does not travel with its function


def origin(function: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the function of the user's that a transformed one is made of, and the transforms."""
    mark = function.__dict__.get(MARK) if type(function) is FunctionType else None
    if type(mark) is Mark:
        called = mark.called()
        if any(content(cell) is called for cell in function.__closure__ or ()):
            return mark.base, mark.places
    return function, ()


class Memo:
    """Is what is known of the calls of one function of the user's, or of all of one code.

    Attributes:
        owner: that function, since others may have copied its attributes; or a code.
        calls: by signature how many there were, then what they do, or why that is not known.
        codes: what is known of functions that are made anew at each call and close over this one,
            by their codes, which it keeps alive.
        held: what functions of a code close over beside data, of the latest ones that differ in
            that, each with what stands for it.
        is_new: whether nothing is known of a function by itself; of a code, whether nothing is
            proven.
        left: how many proofs may still cease to hold.
        turned: how many signatures were forgotten, since they were about other objects.
        reason: why none of its calls is proven; empty where one may be.
    """

    __slots__ = ("age", "calls", "codes", "held", "is_new", "left", "owner", "reason", "turned")

    def __init__(self, owner: FunctionType | CodeType):
        self.owner, self.is_new = weakref.ref(owner), True
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self.calls: dict[Any, Any] = {}
        self.codes: dict[int, tuple[CodeType, Memo]] = {}
        self.held: list[tuple[object, list[Any]]] = []
        self.left, self.turned, self.reason, self.age = _ATTEMPTS, 0, "", _age

    def give_up(self, reason: str) -> None:
        """Proves none of its calls from here on, and keeps nothing alive for it."""
        self.reason, self.calls = reason, {}
        self.held.clear()

    def make_room(self) -> None:
        """Forgets all calls; gives up where none of so many was like enough others."""
        if all(isinstance(known, (int, str)) for known in self.calls.values()):
            self.give_up("no two calls of it are alike")
        self.calls = {}

    def token_of(self, held: list[Any]) -> object:
        """Returns what stands for objects, told apart by identity; forgets calls with others."""
        for token, known in self.held:
            if len(known) == len(held) and all(map(operator.is_, known, held)):
                return token
        if len(self.held) == _ATTEMPTS:
            gone, _ = self.held.pop(0)
            before = len(self.calls)
            self.calls = {key: x for key, x in self.calls.items() if key[0][-1] is not gone}
            self.turned += before - len(self.calls)
            if self.turned >= MOST and self.is_new:
                self.give_up("what it closes over is another in each call")
                return gone
        self.held.append((object(), held))
        return self.held[-1][0]

    def __reduce__(self) -> Any:
        return _no_memo, ()  # it does not travel with its function


def _no_memo() -> None:
    return None


_age = 0
"""How often all was forgotten."""


@on_clear
def _forget() -> None:
    global _age
    _age += 1


def memo_of(function: FunctionType) -> Memo:
    """Returns what is known of the calls of a function."""
    memo = function.__dict__.get(MEMO)
    if type(memo) is not Memo or memo.owner() is not function:
        memo = function.__dict__[MEMO] = Memo(function)
    if memo.age != _age:
        memo.clear()
    return memo
