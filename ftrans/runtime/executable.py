"""What XLA compiles of a program, and how it is called at next to the cost of `jax.jit` itself.

Each NumPy array that is given to a compiled function costs five microseconds, and each result
three, so scalars that lie on the host travel packed, one array for each dtype, and small results
for the host come back so. (With arrays that are no scalars XLA takes twice as long to compile what
is no faster.) Arguments from NumPy alone go to a function compiled ahead of time; those that hold a
`jax.Array` go through `jax.jit`, which minds where they lie.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.interpreters.placing import placed
from ftrans.ir import ArrayType, Program
from ftrans.runtime import disk
from ftrans.runtime.jaxlink import host_sharding, unseen, x64
from ftrans.runtime.lower import lower

# A structure with so many patterns of scalars on devices among its arguments packs none of them.
_MOST_VARIANTS = 4

# JAX does not say how large the code for a CPU is. The growth of memory for each executable was
# measured over programs of 2, 20 and 100 equations (0.22, 0.33 and 0.86 MB), and fitted.
_BYTES, _BYTES_EQUATION = 200_000, 6_600

tick = functools.partial(next, itertools.count(1))
"""Returns, when called, the next number of the clock that counts uses."""


class Executable:
    """Is the compiled form of all programs of one structure.

    Args:
        program: one of them, inlined and simplified. It is not kept alive.

    Attributes:
        nbytes: the size of the code: what XLA says, else an estimate by the number of equations.
        used: when it was last run, on a clock that counts uses.
        fresh: whether it has not been used since it was compiled.
        calls_host: whether it calls Python code.
    """

    def __init__(self, program: Program):
        self._source = Source(program)
        self._scalars = [i for i, t in enumerate(program.inputs) if t.shape == ()]
        # Outside the scope of double precision, JAX rounds what it is given.
        self._wide = any(is_wide(t) for t in program.inputs)
        self._by_pattern: dict[tuple[int, ...], tuple[_Packing, Callable[..., Any]]] = {}
        self._host: Callable[..., Any] | None = None
        self._pack: _Packing | None = None
        types = program.output_types
        # what lies on several devices is not brought together
        apart = program.says("on_devices")
        self._results = _Packing(types, [t.nbytes <= _SMALL and not apart for t in types])
        self._lock = threading.RLock()
        self.nbytes = _BYTES + _BYTES_EQUATION * program.count()
        self.used = tick()
        self.fresh = True
        self.calls_host = program.calls_host

    def prepare(self, arrays: Sequence[Any], host: bool) -> None:
        """Compiles what a call with such arguments needs.

        Args:
            arrays: the arguments, or what they are like: their types, or `form_of` them.
            host: whether all are NumPy arrays.
        """
        with self._lock:
            if not host:
                packing, function = self._variant(arrays)
                with x64():
                    disk.prepare(function, *packing.pack(arrays))
            elif self._host is None:
                packing = self._packing(())
                compiled = self._compiled(packing)
                size = getattr(compiled.memory_analysis(), "generated_code_size_in_bytes", 0)
                self.nbytes = int(size or 0) or self.nbytes
                self._pack = packing if packing.groups else None
                self._host = compiled

    def _compiled(self, packing: _Packing) -> Any:
        """Returns what is compiled ahead of time for NumPy arrays."""
        function = self._source.function(packing, self._results)
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in packing.types]
        place = host_sharding()
        with x64():
            if place is not None:
                try:
                    placed = jax.jit(function, in_shardings=place, out_shardings=place)
                    return disk.compiled(placed.lower(*specs), *place.device_set)
                except ValueError:
                    pass  # a function of JAX's in it is bound to JAX's own devices
            return jax.jit(function).lower(*specs).compile()

    def host(self, arrays: Sequence[Any], own: bool = True) -> list[np.ndarray]:
        """Runs on NumPy arrays, and waits.

        Args:
            arrays: the arguments.
            own: whether the results are the caller's to write to, each in memory of its own.
        """
        found: Any = self._run_host(arrays)
        if not self._results.groups:
            return [*map(np.array if own else np.asarray, found)]
        read = self._results.unpack(list(map(np.asarray, found)))
        return [x.copy() for x in read] if own else read

    def _run_host(self, arrays: Sequence[Any]) -> Sequence[jax.Array]:
        self.used = tick()
        if self._host is None:
            self.prepare(arrays, host=True)
        pack = self._pack
        if pack is not None:
            arrays = pack.pack(arrays)
        if self._wide or self.calls_host:
            with x64(self.calls_host):
                return self._host(*map(unseen, arrays))  # type: ignore[misc]
        return self._host(*arrays)  # type: ignore[misc]

    def mixed(self, arrays: Sequence[Any]) -> Sequence[jax.Array]:
        """Runs on arrays of NumPy and JAX."""
        self.used = tick()
        packing, function = self._variant(arrays)
        with x64(self.calls_host):
            return function(*map(unseen, packing.pack(arrays)))

    def _packing(self, apart: tuple[int, ...]) -> _Packing:
        """Returns how arguments travel, these scalars by themselves."""
        types = self._source.inputs
        return _Packing(types, [t.shape == () and i not in apart for i, t in enumerate(types)])

    def _variant(self, arrays: Sequence[Any]) -> tuple[_Packing, Callable[..., Any]]:
        """Returns how such arguments are packed, and the function that takes them so."""
        apart = tuple(i for i in self._scalars if isinstance(arrays[i], _OF_JAX))
        found = self._by_pattern.get(apart)
        if found is None:
            with self._lock:
                if len(self._by_pattern) >= _MOST_VARIANTS:
                    apart = tuple(self._scalars)
                found = self._by_pattern.get(apart)
                if found is None:
                    packing = self._packing(apart)
                    found = packing, jax.jit(self._source.function(packing))
                    self._by_pattern[apart] = found
        return found


_OF_JAX = (jax.Array, jax.ShapeDtypeStruct)


def form_of(array: Any) -> Any:
    """Returns what an executable can be prepared for in the place of an array, and without it."""
    if not isinstance(array, jax.Array):
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)
    placed: Any = array.sharding if getattr(array, "_committed", True) else None
    weak = array.weak_type
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=placed, weak_type=weak)


class Source:
    """Gives back the program of an executable while it is alive, and an equal one afterwards.

    What is compiled hangs on the program: to refer to it would close a cycle.
    """

    __slots__ = ("_program", "_structure", "inputs", "name")

    def __init__(self, program: Program):
        self._program = weakref.ref(program)
        self._structure = weakref.ref(program.structure)
        self.inputs = program.inputs
        self.name = program.name

    def program(self) -> Program:
        """Returns the program, or an equal one; what is compiled is gone with the last of them."""
        program = self._program()
        if program is None:
            structure = self._structure()
            assert structure is not None, f"{self.name} runs after the cache has let go of it"
            program = Program.make(*structure.key.parts, name=self.name)
        return program

    def function(
        self, packing: _Packing, results: _Packing | None = None
    ) -> Callable[..., list[Any]]:
        """Returns what JAX is to compile."""

        def lowered(*packed: Any) -> list[Any]:
            if results is None:
                return lower(self.program(), packing.unpack(packed))
            program = placed(self.program(), None)  # arrays of NumPy's have no place
            return list(results.pack(lower(program, packing.unpack(packed)), jnp))

        lowered.__name__ = lowered.__qualname__ = "".join(
            c if c.isalnum() else "_" for c in self.name
        )
        return lowered


_SMALL = 1 << 12
"""Up to so many bytes, to copy a result twice is cheaper than to return it by itself."""


class _Packing:
    """Says which values travel together in one array: two or more of one dtype, as they are read.

    Args:
        types: those of the values.
        together: which may.

    Attributes:
        groups: for each array the values in it, by number, where they begin and end, their shapes.
        singles: the values that travel alone; they come after these.
        types: the types of what travels.
    """

    __slots__ = ("count", "groups", "singles", "types")

    def __init__(self, types: Sequence[ArrayType], together: Sequence[bool]):
        found: dict[np.dtype, list[int]] = {}
        for i, t in enumerate(types):
            if together[i]:
                found.setdefault(t.dtype, []).append(i)
        self.count = len(types)
        self.groups: list[list[tuple[int, int, int, tuple[int, ...]]]] = []
        self.types, packed = [], set()
        for dtype, group in found.items():
            if len(group) > 1:
                ends = list(itertools.accumulate([types[i].size for i in group]))
                places = zip(group, [0, *ends], ends, strict=False)
                self.groups.append([(i, a, b, types[i].shape) for i, a, b in places])
                self.types.append(ArrayType((ends[-1],), dtype))
                packed.update(group)
        self.singles = [i for i in range(self.count) if i not in packed]
        self.types += [types[i] for i in self.singles]

    def pack(self, values: Sequence[Any], xp: Any = np) -> Sequence[Any]:
        """Returns what travels."""
        if not self.groups:
            return values
        packed: list[Any] = [
            xp.concatenate([values[i].ravel() for i, *_ in group]) for group in self.groups
        ]
        return packed + [values[i] for i in self.singles]

    def unpack(self, packed: Sequence[Any]) -> list[Any]:
        """Returns the values, as views of what they travelled in."""
        if not self.groups:
            return list(packed)
        values: list[Any] = [None] * self.count
        for group, array in zip(self.groups, packed, strict=False):
            for i, begin, end, shape in group:
                values[i] = array[begin:end].reshape(shape)
        for i, array in zip(self.singles, packed[len(self.groups) :], strict=True):
            values[i] = array
        return values


def is_wide(t: ArrayType) -> bool:
    """Tells whether JAX keeps such numbers in double precision only."""
    return t.dtype.itemsize // (2 if t.dtype.kind == "c" else 1) > 4


def needs_x64(program: Program) -> bool:
    """Tells whether anything in a program is in double precision, at any depth."""
    found = program.memo.get("needs x64")
    if found is None:
        made = [t for _, equation in program.nested() for t in equation.types]
        found = program.memo["needs x64"] = any(map(is_wide, (*program.inputs, *made)))
    return found
