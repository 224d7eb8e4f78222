"""What functions read apart from their arguments, so that the trace of one call can serve the next.

A rule is traced at every call, since it may read what has changed: an attribute of its class, a
list, another module. Where its code shows that it reads nothing but its arguments, constants,
functions of NumPy and ftrans, other rules, and functions of which the same holds, a trace stands
for all calls for as long as these are the same objects. To look at them costs a microsecond, where
to trace again costs a hundred. All that is not known to be harmless is taken to be harmful.
"""

from __future__ import annotations

import builtins
import cmath
import dis
import functools
import math
import operator
import re
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans import func
from ftrans.custom.methods import Methods, asks_needs, methods_of
from ftrans.custom.parts import is_constant
from ftrans.external.captures import content
from ftrans.numpy import linalg, nn

__all__ = ["Guards", "Ruled", "guards_of"]

_ABSENT = object()


class Guards:
    """Is what some functions read, as it was when they were traced.

    Attributes:
        asks_needs: whether one of them, or of those that they call, reads `ctx.needs_input_grad`.
        token: stands for this object, without keeping alive what it refers to.
    """

    def __init__(self) -> None:
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._functions: list[tuple[FunctionType, CodeType, Any, int]] = []
        self._rules: list[tuple[Any, Callable[[Any], Any], Any]] = []
        self.asks_needs = False
        self.token = object()

    def hold(self) -> bool:
        """Tells whether all of it is as it was."""
        for space, name, value in self._names:
            if space.get(name, _ABSENT) is not value:
                return False
        for cell, value in self._cells:
            if content(cell) is not value:
                return False
        for function, code, defaults, attributes in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or len(function.__dict__) != attributes
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
        code, defaults = function.__code__, function.__defaults__
        reads = _reads(code)
        if reads is None or function.__kwdefaults__ or not is_constant(defaults):
            return False
        if not _HARMLESS_ATTRIBUTES.issuperset(function.__dict__):
            return False
        self.guards.asks_needs |= asks_needs(function)
        self.guards._functions.append((function, code, defaults, len(function.__dict__)))
        space = function.__globals__
        for name, attributes in reads.names:
            value = space.get(name, _ABSENT)
            self.guards._names.append((space, name, value))
            if value is _ABSENT:
                space_of_builtins: Any = function.__builtins__  # type: ignore[attr-defined]
                value = space_of_builtins.get(name, _ABSENT)
                self.guards._names.append((space_of_builtins, name, value))
            if not self._value(value, attributes):
                return False
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, attributes in reads.free:
            value = content(cells[name])
            self.guards._cells.append((cells[name], value))
            if not self._value(value, attributes):
                return False
        return True

    def _value(self, value: Any, attributes: tuple[str, ...]) -> bool:
        """Looks at what is read, and at the attributes that are asked of it at once."""
        if isinstance(value, ModuleType):
            return self._module(value, attributes)
        if is_constant(value):
            return True
        if type(value) is tuple:
            return all(self._value(item, ()) for item in value)
        if isinstance(value, type):
            if attributes[:1] == ("apply",) and hasattr(value, "_ftrans_methods"):
                apply = getattr(value.apply, "__func__", None)
                return apply is value._ftrans_apply and self._rule(value, methods_of)
            return value in _HARMLESS_TYPES or id(value) in _TRUSTED
        if id(value) in _TRUSTED:
            return not attributes or isinstance(value, np.ufunc)  # as np.add.reduce
        if attributes:
            return False
        if isinstance(value, Ruled):
            kind = type(value)
            return kind.__module__ == _DECORATORS and self._rule(value, kind.traced)
        return self.function(value)

    def _module(self, module: ModuleType, attributes: tuple[str, ...]) -> bool:
        if not attributes or module.__name__ not in _MODULES:
            return False
        name, *rest = attributes
        space = module.__dict__
        if name not in space:
            getattr(module, name, None)  # which may load a module
        value = space.get(name, _ABSENT)
        self.guards._names.append((space, name, value))
        return self._value(value, tuple(rest))

    def _rule(self, rule: Any, ask: Callable[[Any], Any]) -> bool:
        """Reads the methods of another rule, which is called."""
        if rule in self._seen:
            return True
        self._seen.add(rule)
        found = ask(rule)
        self.guards._rules.append((rule, ask, found))
        functions = found.traced() if isinstance(found, Methods) else found
        return all(map(self.function, functions))


_DECORATORS = "ftrans.custom.decorators"

_HARMLESS_ATTRIBUTES = frozenset({"__wrapped__", "__ftrans_once__"})
"""The attributes that a function may have."""

_HARMLESS_TYPES = frozenset(x for x in builtins.__dict__.values() if isinstance(x, type)) - {
    object,
    property,
    super,
    type,
}
"""Builtin types read and write nothing but their arguments; most of them are errors."""

_BUILTINS = (abs, all, any, divmod, isinstance, len, max, min, pow, round, sorted, sum)
_MODULES = {
    module.__name__: module
    for module in (
        *(math, cmath, operator, np, np.linalg, np.fft),
        *(fnp, linalg, nn, func),
    )
} | {"ftrans": None}
"""The modules whose attributes are asked for."""


def _trusted() -> dict[int, Any]:
    """Returns what has no state, by its identity: functions of these modules, not all of NumPy."""
    found = list[Any](_BUILTINS)
    for module in _MODULES.values():
        for name, value in vars(module).items() if module is not None else ():
            if not name.startswith("_") and (module is not np or hasattr(fnp, name)):
                found.append(value)
    return {id(x): x for x in found if callable(x)}


_TRUSTED = _trusted()


class _Reads(NamedTuple):
    """Is what a code reads that is no argument, each with the attributes that are asked of it.

    Attributes:
        names: the globals.
        free: the variables that it closes over.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]
    free: tuple[tuple[str, tuple[str, ...]], ...]


_OUTSIDE = re.compile("GLOBAL|NAME|DEREF|CLOSURE|IMPORT|BUILD_CLASS|LOCALS")
"""Instructions that reach out of a function, one way or another."""

_FREE = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"})


@functools.lru_cache(maxsize=1024)
def _reads(code: CodeType) -> _Reads | None:
    """Returns what a code reads; None where it does what is not understood."""
    names: dict[tuple[str, tuple[str, ...]], None] = {}
    free: dict[tuple[str, tuple[str, ...]], None] = {}
    own = frozenset((*code.co_varnames, *code.co_cellvars))
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PUSH_NULL")]
    for number, instruction in enumerate(instructions):
        kind, name = instruction.opname, instruction.argval
        if kind in ("STORE_ATTR", "DELETE_ATTR"):
            # to set attributes of what is local, as the context is, has no effect elsewhere
            before = instructions[number - 1]
            is_own = before.opname == "LOAD_DEREF" and before.argval in own
            if not (is_own or before.opname.startswith("LOAD_FAST")):
                return None
        if not _OUTSIDE.search(kind):
            continue
        read = name, _attributes(instructions, number + 1)
        if kind == "LOAD_GLOBAL":
            names[read] = None
        elif kind in _FREE:
            if name in own:
                continue
            if kind != "LOAD_DEREF":
                return None
            free[read] = None
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


def _attributes(instructions: Sequence[dis.Instruction], start: int) -> tuple[str, ...]:
    """Returns the attributes that are asked for, one of the other, from an instruction on."""
    found = []
    for instruction in instructions[start:]:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        found.append(str(instruction.argval))
    return tuple(found)
