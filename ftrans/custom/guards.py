"""What functions read apart from their arguments, so that the trace of one call can serve the next.

A rule is traced at every call, since it may read what has changed: an attribute of its class, a
list, another module. Where its code shows that it reads nothing but its arguments, constants,
functions of NumPy and ftrans, other rules, and functions of which the same holds, a trace stands
for all calls for as long as these are the same objects. To look at them costs a microsecond, where
to trace again costs a hundred. All that is not known to be harmless is taken to be harmful.
"""

from __future__ import annotations

import builtins
import dis
import functools
import re
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans.custom.captures import content
from ftrans.custom.methods import Methods, methods_of
from ftrans.custom.parts import is_constant

__all__ = ["Guards", "Ruled", "guards_of"]

_ABSENT = object()


class Guards:
    """Is what some functions read, as it was when they were traced."""

    def __init__(self) -> None:
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self._rules: list[tuple[Any, Callable[[Any], Any], Any]] = []

    def hold(self) -> bool:
        """Tells whether all of it is as it was."""
        for space, name, value in self._names:
            if space.get(name, _ABSENT) is not value:
                return False
        for cell, value in self._cells:
            if content(cell) is not value:
                return False
        for function, code, defaults, named in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not named
            ):
                return False
        return all(ask(rule) == found for rule, ask, found in self._rules)


class Ruled:
    """Is called by functions that are traced, and is traced then."""

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that it may call."""
        raise NotImplementedError


def guards_of(functions: Sequence[Any]) -> Guards | None:
    """Returns what functions of a user's read; None where it may change unseen."""
    reader = _Reader()
    return reader.guards if all(map(reader.function, functions)) else None


class _Reader:
    """Collects what functions read; its methods tell whether that is understood."""

    def __init__(self) -> None:
        self.guards = Guards()
        self._seen: set[Any] = set()

    def function(self, function: Any) -> bool:
        """Reads the code of a function."""
        if type(function) is not FunctionType:
            return False
        if function in self._seen:
            return True
        self._seen.add(function)
        code, defaults, named = function.__code__, function.__defaults__, function.__kwdefaults__
        reads = _reads(code)
        if reads is None or not is_constant((*(defaults or ()), *(named or {}).values())):
            return False
        self.guards._functions.append((function, code, defaults, named))
        space = function.__globals__
        for name, attribute in reads.names:
            value = space.get(name, _ABSENT)
            self.guards._names.append((space, name, value))
            if value is _ABSENT:
                value = builtins.__dict__.get(name, _ABSENT)
                self.guards._names.append((builtins.__dict__, name, value))
            if not self._value(value, attribute):
                return False
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, attribute in reads.free:
            value = content(cells[name])
            self.guards._cells.append((cells[name], value))
            if not self._value(value, attribute):
                return False
        return True

    def _value(self, value: Any, attribute: str | None) -> bool:
        """Looks at what is read, and at the attribute that is asked of it at once, if any."""
        if isinstance(value, ModuleType):
            return self._module(value, attribute)
        if is_constant(value):
            return True
        if type(value) is tuple:
            return all(self._value(item, None) for item in value)
        if isinstance(value, Ruled):
            return self._rule(value, type(value).traced)
        if isinstance(value, type):
            if attribute == "apply" and hasattr(value, "_ftrans_methods"):
                return self._rule(value, methods_of)
            return value in _HARMLESS or value.__module__ == "numpy"
        if type(value) is FunctionType and not _is_ours(value):
            return self.function(value)
        return _is_known(value)

    def _module(self, module: ModuleType, attribute: str | None) -> bool:
        name = module.__name__
        if attribute is None or not (
            name in _MODULES
            or (name == "ftrans" and attribute in ("numpy", "func"))
            or (name == "numpy" and (attribute == "fft" or hasattr(fnp, attribute)))
        ):
            return False
        space = module.__dict__
        if attribute in space:  # else a module that is loaded when it is asked for
            self.guards._names.append((space, attribute, space[attribute]))
        return True

    def _rule(self, rule: Any, ask: Callable[[Any], Any]) -> bool:
        """Reads the methods of another rule, which is called."""
        if rule in self._seen:
            return True
        self._seen.add(rule)
        found = ask(rule)
        self.guards._rules.append((rule, ask, found))
        functions = found.traced() if isinstance(found, Methods) else found
        return all(map(self.function, functions))


_MODULES = frozenset(
    {
        *("ftrans.numpy", "ftrans.numpy.linalg", "ftrans.numpy.nn", "ftrans.func"),
        *("numpy.linalg", "numpy.fft", "math", "cmath", "operator"),
    }
)
"""The modules in which there is nothing that has a state."""

_HARMLESS = frozenset(
    {
        *(abs, all, any, bool, complex, dict, divmod, enumerate, float, int, isinstance, len),
        *(list, map, max, min, pow, range, reversed, round, slice, sorted, sum, tuple, zip),
        *(x for x in vars(builtins).values() if isinstance(x, type)),
    }
    - {object, property, super, type}
)
"""Builtins that read and write nothing but their arguments; the types are most of them errors."""


def _is_ours(function: FunctionType) -> bool:
    return function.__module__.partition(".")[0] in ("ftrans", "numpy")


def _is_known(value: Any) -> bool:
    """Tells whether a function is harmless, by what it is."""
    if isinstance(value, np.ufunc):
        return True
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", "")
    if isinstance(value, BuiltinFunctionType | FunctionType):
        if module is not None and module.startswith(("ftrans.numpy", "ftrans.func")):
            return True
        if module in ("math", "cmath", "_operator"):
            return True
        if module is not None and module.partition(".")[0] == "numpy":
            return getattr(np, name, None) is value and hasattr(fnp, name)
    try:
        return value in _HARMLESS
    except TypeError:
        return False


class _Reads(NamedTuple):
    """Is what a code reads that is no argument, each with the attribute that is asked of it.

    Attributes:
        names: the globals.
        free: the variables that it closes over.
    """

    names: tuple[tuple[str, str | None], ...]
    free: tuple[tuple[str, str | None], ...]


_OUTSIDE = re.compile("GLOBAL|NAME|DEREF|CLOSURE|IMPORT|BUILD_CLASS|LOCALS")
"""Instructions that reach out of a function, one way or another."""

_FREE = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"})


@functools.lru_cache(maxsize=1024)
def _reads(code: CodeType) -> _Reads | None:
    """Returns what a code reads; None where it does what is not understood."""
    names: dict[tuple[str, str | None], None] = {}
    free: dict[tuple[str, str | None], None] = {}
    own = frozenset((*code.co_varnames, *code.co_cellvars))
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PUSH_NULL")]
    for number, instruction in enumerate(instructions):
        kind, name = instruction.opname, instruction.argval
        if not _OUTSIDE.search(kind):
            continue
        following = instructions[number + 1] if number + 1 < len(instructions) else None
        attribute = None
        if following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attribute = str(following.argval)
        if kind == "LOAD_GLOBAL":
            names[name, attribute] = None
        elif kind in _FREE:
            if name in own:
                continue
            if kind != "LOAD_DEREF":
                return None
            free[name, attribute] = None
        elif kind not in ("COPY_FREE_VARS", "LOAD_CLOSURE"):
            # a cell that is passed on is read in the code inside
            return None
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = _reads(const)
            if inner is None:
                return None
            names.update(dict.fromkeys(inner.names))
            free.update(dict.fromkeys(x for x in inner.free if x[0] not in own))
    return _Reads(tuple(names), tuple(free))
