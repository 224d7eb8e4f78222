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
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import ftrans.numpy as fnp
from ftrans import func
from ftrans.custom.context import FunctionCtx
from ftrans.custom.methods import Methods, asks_needs, methods_of
from ftrans.errors import FtransError
from ftrans.func.anew import is_data
from ftrans.func.memo import MEMO
from ftrans.interop.closure import content
from ftrans.interop.function import Namespace, copied_by
from ftrans.numpy import linalg
from ftrans.pytree import is_constant
from ftrans.runtime.jaxlink import settings_of_jax

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
        self._spaces: list[tuple[Any, dict[str, Any]]] = []
        self._arrays: list[tuple[np.ndarray, Any, bytes]] = []
        self.asks_needs = False
        self.token = object()

    def name(self, space: dict[str, Any], name: str) -> Any:
        """Notes a name that is read, of globals or of a module, and returns what it denotes now."""
        value = space.get(name, _ABSENT)
        self._names.append((space, name, value))
        return value

    def watch(self, array: np.ndarray) -> None:
        """Notes an array whose contents are read."""
        self._arrays.append((array, _lies(array), array.tobytes()))

    def ask(self, owner: Any, ask: Callable[[Any], Any]) -> None:
        """Notes what `ask` finds of an object."""
        if not any(rule is owner for rule, *_ in self._rules):
            self._rules.append((owner, ask, ask(owner)))

    @property
    def reads(self) -> str:
        """The names of what is read outside of the functions."""
        names = {name for _, name, _ in self._names}
        return ", ".join(sorted(names | {f.__qualname__ for f, *_ in self._functions}))

    def hold(self) -> bool:
        """Tells whether all of it is as it was."""
        if len(vars(FunctionCtx)) != CONTEXT:
            return False
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
                or function.__kwdefaults__
                or len(function.__dict__) - (MEMO in function.__dict__) != attributes
            ):
                return False
        for array, kind, content_of in self._arrays:
            if _lies(array) != kind or array.tobytes() != content_of:
                return False
        for owner, attributes in self._spaces:
            found = vars(owner)
            if len(found) - ("_ftrans_methods" in found) != len(attributes):
                return False
            for name, value in attributes.items():
                if found.get(name, _ABSENT) is not value:
                    return False
        rules = self._rules
        return not rules or all(ask(rule) == found for rule, ask, found in rules)


def _lies(array: np.ndarray) -> Any:
    """Returns what there is of an array beside its elements."""
    return array.shape, array.dtype, array.strides, array.flags.writeable


class Ruled:
    """Is called by functions that are traced, and is traced then.

    Attributes:
        own: the attributes that it has of itself, beside those of the user's.
    """

    own: frozenset[str] = frozenset()

    def traced(self) -> tuple[Any, ...]:
        """Returns the functions that it may call."""
        raise NotImplementedError


def guards_of(functions: Sequence[Any]) -> Guards | None:
    """Returns what functions of a user's read; None where it may change unseen."""
    reader = Reader()
    return reader.guards if all(map(reader.method, functions)) else None


class Reader:
    """Collects what functions read; its methods tell whether that is understood.

    What a function gets hold of it may keep under a local name, or pass on; so the attributes of
    classes and rules are read as a whole, wherever they may be asked for.

    Attributes:
        guards: what was read.
        reason: what is not understood, of that the first.
        anew: a function that is another one at each call, but for its code, see `func/anew.py`.
    """

    anew: FunctionType | None = None

    def __init__(self) -> None:
        self.guards = Guards()
        self.reason = ""
        self._seen: set[Any] = set()
        self._spaces: set[Any] = set()

    def method(self, function: Any) -> bool:
        """Reads the code of a function that is given a context, or traced values, alone."""
        return self.function(function, True)

    def function(self, function: Any, is_method: bool = False) -> bool:
        """Reads the code of a function; a method may write to its first argument."""
        if type(function) is not FunctionType:
            return False
        if function in self._seen:
            return True
        self._seen.add(function)
        code, defaults = function.__code__, function.__defaults__
        attributes = len(function.__dict__) - (MEMO in function.__dict__)
        if (copied := copied_by(function)) is not None:  # which JAX has traced once for all
            self.guards._functions.append((function, code, defaults, attributes))
            self.guards.ask(settings_of_jax, operator.call)
            list(map(self.guards.watch, copied))
            return True
        reads = _reads(code)
        if isinstance(reads, str):
            return self._refuse(f"{function.__qualname__} {reads}")
        if reads.writes and not is_method:
            return self._refuse(f"{function.__qualname__} sets an attribute")
        if function.__kwdefaults__ or not is_constant(defaults):
            return self._refuse(f"{function.__qualname__} has defaults that may change")
        is_wrapper = is_method and "__ftrans_once__" in function.__dict__
        if not _HARMLESS_ATTRIBUTES.issuperset(function.__dict__):
            return False
        self.guards.asks_needs |= asks_needs(function)
        if function is not self.anew:
            self.guards._functions.append((function, code, defaults, attributes))
        space = function.__globals__
        for name, attributes in reads.names:
            value = self.guards.name(space, name)
            if value is _ABSENT:
                value = self.guards.name(function.__builtins__, name)  # type: ignore[attr-defined]
            if not self._value(value, attributes):
                return self._refuse(f"it reads `{'.'.join((name, *attributes))}`")
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for name, attributes in reads.free:
            value = content(cells[name])
            if function is not self.anew:
                self.guards._cells.append((cells[name], value))
            elif is_data(value):
                continue
            if is_wrapper and type(value) is FunctionType:
                if not self.method(value):
                    return False
            elif not self._value(value, attributes):
                return self._refuse(f"it reads `{'.'.join((name, *attributes))}`")
        return True

    def _refuse(self, reason: str) -> bool:
        self.reason = self.reason or reason
        return False

    def _value(self, value: Any, attributes: tuple[str, ...]) -> bool:
        """Looks at what is read, and at the attributes that are asked of it at once."""
        if isinstance(value, ModuleType):
            return self._module(value, attributes)
        if is_constant(value):
            return True
        if type(value) is tuple:
            return all(self._value(item, ()) for item in value)
        if isinstance(value, type):
            if hasattr(value, "_ftrans_methods"):
                return self._class(value, attributes)
            is_known = value in _HARMLESS_TYPES or id(value) in _TRUSTED
            return is_known and not (attributes and value.__flags__ & _WRITABLE)
        if type(value) is MethodType and not attributes:
            # as of `f = F.apply`
            is_apply = value.__func__ is getattr(value.__self__, "_ftrans_apply", None)
            return is_apply and self._class(value.__self__, ("apply",))
        if id(value) in _TRUSTED:
            return not attributes or isinstance(value, np.ufunc)  # as np.add.reduce
        if isinstance(value, Ruled):
            kind = type(value)
            if kind.__module__ != _DECORATORS or not self._rule(value, kind.traced):
                return False
            return self._space(value, kind.own)
        return not attributes and self.function(value)

    def _class(self, cls: Any, attributes: tuple[str, ...]) -> bool:
        """Reads a `Function`: its methods, and all else that it has unless `apply` is asked for."""
        if type(cls) is not type or getattr(cls.apply, "__func__", None) is not cls._ftrans_apply:
            return False
        if not self._rule(cls, methods_of):
            return False
        self.guards._rules.append((cls, _bases, cls.__mro__))
        *written, base, _ = cls.__mro__
        return attributes[:1] == ("apply",) or (
            hasattr(base, "_ftrans_methods")
            and self._space(base, frozenset(vars(base)))
            and all(self._space(owner, _OF_CLASSES) for owner in written)
        )

    def _space(self, owner: Any, known: frozenset[str]) -> bool:
        """Reads the attributes of an object; those that are `known` are looked at elsewhere."""
        if owner in self._spaces:
            return True
        self._spaces.add(owner)
        attributes = dict(vars(owner))
        attributes.pop("_ftrans_methods", None)
        self.guards._spaces.append((owner, attributes))
        return all(
            name in known
            or is_constant(value)
            or self.function(value.__func__ if isinstance(value, staticmethod) else value)
            for name, value in attributes.items()
        )

    def _module(self, module: ModuleType, attributes: tuple[str, ...]) -> bool:
        is_known = module.__name__ in _MODULES or isinstance(module, Namespace)
        return bool(attributes) and is_known and self._of_space(module, attributes)

    def _of_space(self, space: Any, attributes: tuple[str, ...]) -> bool:
        """Reads what is asked of a module, or of a namespace."""
        name, *rest = attributes
        if name not in vars(space):
            getattr(space, name, None)  # which may load a module
        return self._value(self.guards.name(vars(space), name), tuple(rest))

    def _rule(self, rule: Any, ask: Callable[[Any], Any]) -> bool:
        """Reads the methods of another rule, which is called."""
        if rule in self._seen:
            return True
        self._seen.add(rule)
        try:
            found = ask(rule)
        except FtransError:  # none that could be called, but for its constants
            return False
        self.guards._rules.append((rule, ask, found))
        functions = found.traced() if isinstance(found, Methods) else found
        return all(map(self.method, functions))


_bases = operator.attrgetter("__mro__")

_DECORATORS = "ftrans.custom.decorators"

_OF_CLASSES = frozenset({"__dict__", "__weakref__", "__annotations__"})
"""The attributes that any class has, beside constants and methods."""

_HARMLESS_ATTRIBUTES = frozenset({"__wrapped__", "__ftrans_once__", MEMO})
"""The attributes that a function may have."""

_HARMLESS_TYPES = {x for x in vars(builtins).values() if isinstance(x, type)}
_HARMLESS_TYPES -= {object, property, super, type}
"""Builtin types read and write nothing but their arguments; most of them are errors."""

_WRITABLE = 1 << 9
"""The flag of types that are made by Python, whose attributes somebody may set."""

_BUILTINS = (abs, all, any, divmod, isinstance, len, max, min, pow, round, sorted, sum)
_MODULES: dict[str, ModuleType | None] = {"ftrans": None}
"""The modules whose attributes are asked for."""


class _Reads(NamedTuple):
    """Is what a code reads that is no argument, each with the attributes that are asked of it.

    Attributes:
        names: the globals.
        free: the variables that it closes over.
        writes: whether it sets attributes of its first argument.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]
    free: tuple[tuple[str, tuple[str, ...]], ...]
    writes: bool


_LOCAL = {"LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST"}
_LOCAL |= {"LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"}
"""Instructions that load a variable of the function, the last one that they name."""

_REBINDS = ("STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF")

CONTEXT = len(vars(FunctionCtx))
"""How many attributes contexts share, as long as no user adds one."""

_REFUSED = re.compile("__.*__$|(gi|cr|ag)_|f_(globals|locals|builtins|back)$|(dump|tofile)$")
"""Names that lead to what functions and classes are made of, and of methods that write files."""

_STATEFUL = re.compile(
    "load|save|from|.*print|array2|array_(repr|str)|show|info|test|get|set|err|empty"
)
"""Names of functions of modules that read or write files and settings, or memory as it is."""

_OF_TORCH = re.compile(
    f"{_STATEFUL.pattern}|(no|enable)_grad|is_grad|bernoulli|normal$|poisson$|multinomial|.*_$|"
    ".*(rand|dropout|seed|inference|anomaly|default|deterministic|Generator)|"
    "batch_norm|instance_norm|gumbel|rrelu|scaled_dot|as_tensor"
)
"""The same of modules like PyTorch's: that draw or write, or are about modes and histories."""

_BY_NAME = (operator.attrgetter, operator.methodcaller, operator.is_, operator.is_not)
"""What asks for attributes by a string, and whether two objects are one."""


_TRUSTED: dict[int, Any] = {id(x): x for x in _BUILTINS}
"""What has no state, by its identity: functions of such modules, not all of NumPy."""


def trust(*modules: ModuleType, but: re.Pattern[str] = _OF_TORCH) -> None:
    """Takes modules for known; their functions have no state, but for those of such names."""
    for module in modules:
        _MODULES[module.__name__] = module
        for name, value in vars(module).items():
            known = (module is not np or name in vars(fnp)) and not but.match(name)
            known = known and not (name.startswith("_") or any(value is x for x in _BY_NAME))
            if known and callable(value):
                _TRUSTED[id(value)] = value


trust(math, cmath, operator, np, np.linalg, np.fft, fnp, linalg, func, but=_STATEFUL)

_OUTSIDE = re.compile("GLOBAL|(?<!KW_)NAME|DEREF|CLOSURE|IMPORT|BUILD_CLASS|LOCALS")
"""Instructions that reach out of a function, one way or another."""

_FREE = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"})


@functools.lru_cache(maxsize=1024)
def _reads(code: CodeType) -> _Reads | str:
    """Returns what a code reads; where it does what is not understood, what that is."""
    names: dict[tuple[str, tuple[str, ...]], None] = {}
    free: dict[tuple[str, tuple[str, ...]], None] = {}
    own = frozenset((*code.co_varnames, *code.co_cellvars))
    first = code.co_varnames[0] if code.co_argcount else None
    writes = False
    if refused := next(filter(_REFUSED.match, code.co_names), None):
        return f"asks for {refused}"
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PUSH_NULL")]
    for number, instruction in enumerate(instructions):
        kind, name = instruction.opname, instruction.argval
        if kind in ("STORE_ATTR", "DELETE_ATTR"):
            # to set attributes of the context has no effect elsewhere
            before = instructions[number - 1]
            if before.opname not in _LOCAL or _names(before.argval)[-1] != first:
                return f"sets the attribute {name}"
            writes = True
        elif kind.startswith(_REBINDS) and first in _names(name):
            first = None  # it may be something else from then on, or from before in a loop
            if writes:
                return f"sets attributes of what {name} may be"
        elif kind == "IS_OP" and not _loads_none(instructions[number - 1]):
            return "asks whether two objects are one"  # arrays may be what traced values are not
        if not _OUTSIDE.search(kind):
            continue
        read = name, _attributes(instructions, number + 1)
        if kind == "LOAD_GLOBAL":
            names[read] = None
        elif kind in _FREE:
            if name in own:
                continue
            if kind != "LOAD_DEREF":
                return f"sets {name}, which is not its own"
            free[read] = None
        elif kind not in ("COPY_FREE_VARS", "LOAD_CLOSURE"):
            # a cell that is passed on is read in the code inside
            return f"has the instruction {kind} {name}"
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = _reads(const)
            if isinstance(inner, str):
                return inner
            if inner.writes:
                return "sets attributes in a function inside"
            names.update(dict.fromkeys(inner.names))
            free.update(dict.fromkeys(x for x in inner.free if x[0] not in own))
    return _Reads(tuple(names), tuple(free), writes)


def _loads_none(instruction: dis.Instruction) -> bool:
    return instruction.opname == "LOAD_CONST" and instruction.argval in (None, ...)


def _names(argument: Any) -> tuple[Any, ...]:
    """Returns the variables that an instruction names, which may be two."""
    return argument if isinstance(argument, tuple) else (argument,)


def _attributes(instructions: Sequence[dis.Instruction], start: int) -> tuple[str, ...]:
    """Returns the attributes that are asked for, one of the other, from an instruction on."""
    found = []
    for instruction in instructions[start:]:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        found.append(str(instruction.argval))
    return tuple(found)
