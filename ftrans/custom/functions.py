"""What functions under transforms read: more than rules may, since all they are given is traced.

Arrays that they close over are read by their contents where these may be written to; so are
namespaces, of which every name counts that is asked of anything in the code that is read.
"""

from __future__ import annotations

import dis
import functools
import itertools
import operator
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans import nn
from ftrans.custom.guards import Guards, Reader
from ftrans.func.branches import cond, switch
from ftrans.func.loops import fori_loop, scan, while_loop
from ftrans.func.memo import origin
from ftrans.func.parallel import associative_scan
from ftrans.func.proof import Refused
from ftrans.func.proven import reader
from ftrans.interop.closure import codes_in, names_in
from ftrans.interop.function import copied_by
from ftrans.numpy import linalg
from ftrans.runtime.jaxlink import is_jax, is_traced_by_jax, settings_of_jax

_LARGEST = 1 << 16
"""The most bytes of an array that is compared at each call: that takes some microseconds."""

_HARMLESS = {id(x) for x in vars(nn).values() if callable(x) and not isinstance(x, type)}
_HARMLESS |= {id(x) for x in vars(itertools).values() if isinstance(x, type)}
_HARMLESS |= {id(x) for x in (functools.reduce, iter, next)}
_HARMLESS |= {id(x) for x in (associative_scan, cond, fori_loop, scan, switch, while_loop)}


_HANDED_ON = (np, np.linalg, np.fft, fnp, linalg, nn)
_ASKING = (isinstance, issubclass, callable, np.isscalar)
_OF_ARRAYS = frozenset({"base", "ctypes", "data", "flags"})
"""What leads from an array to what is not compared of it."""


class _Whole(Reader):
    """Reads functions whose arguments are traced, and the namespaces that they hand on."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[str] = set()
        self._handed_on: list[Any] = []

    def all(self, function: FunctionType) -> bool:
        """Reads a function, and what it may ask of namespaces that it hands on."""
        known: set[tuple[int, str]] = set()
        if not self.function(function):
            return False
        while new := [
            (space, name)
            for space in self._handed_on
            for name in self._asked
            if (id(space), name) not in known
        ]:
            for space, name in new:
                known.add((id(space), name))
                if name not in vars(space):
                    self.guards.name(vars(space), name)  # which may come to be there
                elif not self._of_space(space, (name,)):
                    return self._refuse(f"it may read `{name}` of {_called(space)}")
        return True

    def function(self, function: Any, is_method: bool = False) -> bool:
        base, _ = origin(function)  # options of transforms are constants
        if type(base) is FunctionType and copied_by(base) is None:
            names = set(names_in(base.__code__))
            self._asked |= names
            if found := names & _OF_ARRAYS:
                return self._refuse(f"{base.__qualname__} asks for {min(found)}")
            if why := next(filter(None, map(_refused, codes_in(base.__code__))), ""):
                return self._refuse(f"{base.__qualname__} {why}")
        return super().function(base, is_method)

    def _value(self, value: Any, attributes: tuple[str, ...]) -> bool:
        if type(value) in (ModuleType, SimpleNamespace):
            if attributes:
                return self._of_space(value, attributes)
            self._handed_on.append(value)
            if type(value) is ModuleType:
                return any(value is x for x in _HANDED_ON)  # others may be asked otherwise
            return self._whole(value)
        if any(value is x for x in _ASKING):
            return False  # what is traced answers otherwise
        if type(value) is np.ndarray:
            return self._array(value)
        if is_jax(value):
            # JAX computes with what is not traced, as it is told to
            self.guards.ask(settings_of_jax, operator.call)
            return not is_traced_by_jax(value)
        known = id(value) in _HARMLESS and not attributes
        return known or super()._value(value, attributes)

    def _whole(self, space: SimpleNamespace) -> bool:
        """Reads all of a namespace that is handed on, where it may be compared or printed."""
        self.guards.ask(space, _names_of)
        return all(self._handed(self.guards.name(vars(space), name)) for name in list(vars(space)))

    def _handed(self, value: Any) -> bool:
        if type(value) is np.ndarray:
            return self._array(value)
        is_one = callable(value) and type(value).__eq__ is object.__eq__  # equal to itself alone
        return is_one or type(value) in _HELD or self._value(value, ())

    def _array(self, array: np.ndarray) -> bool:
        if array.nbytes > _LARGEST:
            return self._refuse(f"it closes over an array that may change, of {array.nbytes} bytes")
        if array.dtype.hasobject or array.dtype.names:
            return False
        self.guards.watch(array)
        return True


_HELD = (ModuleType, type(None))


def _names_of(space: SimpleNamespace) -> tuple[str, ...]:
    return tuple(vars(space))


def _called(space: Any) -> str:
    return getattr(space, "__name__", "a namespace")


@functools.lru_cache(maxsize=1024)
def _refused(code: CodeType) -> str:
    """Says what a code does that turns out otherwise with traced values; empty for none of it."""
    found = {i.opname for i in dis.get_instructions(code)}
    if "PUSH_EXC_INFO" in found:
        return "catches exceptions"  # which traced values may raise alone
    return "asks for the class of a value" if "MATCH_CLASS" in found else ""


def _guards(function: FunctionType, is_anew: bool) -> Guards:
    found = _Whole()
    found.anew = function if is_anew else None
    if not found.all(function):
        raise Refused(found.reason or "it does what is not understood")
    return found.guards


reader.guards = _guards
