"""What XLA compiles of a program, and how it is called at next to the cost of `jax.jit` itself.

Each argument of a compiled function costs about a microsecond, and each result three, so scalars
that lie on the host travel packed, one array for each dtype, and small results for the host come
back so. Arguments from NumPy alone go to a function compiled ahead of time; those that hold a
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

from ftrans.ir import ArrayType, Program
from ftrans.runtime.jaxlink import host_sharding, x64
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
        self._results = _Results(program.output_types)
        self._lock = threading.RLock()
        self.nbytes = _BYTES + _BYTES_EQUATION * program.count()
        self.used = tick()
        self.fresh = True
        self.calls_host = program.calls_host

    def prepare(self, arrays: Sequence[Any], host: bool) -> None:
        """Compiles what a call with such arguments needs.

        Args:
            arrays: the arguments, or only the types of them.
            host: whether all are NumPy arrays.
        """
        with self._lock:
            if not host:
                packing, function = self._variant(arrays)
                with x64():
                    function.lower(*packing.pack(arrays)).compile()  # type: ignore[attr-defined]
            elif self._host is None:
                packing = _Packing(self._source.inputs, ())
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
                    return placed.lower(*specs).compile()
                except ValueError:
                    pass  # a function of JAX's in it is bound to JAX's own devices
            return jax.jit(function).lower(*specs).compile()

    def host(self, arrays: Sequence[Any], own: bool = True) -> list[np.ndarray]:
        """Runs on NumPy arrays, and waits.

        Args:
            arrays: the arguments.
            own: whether the results are the caller's to write to, each in memory of its own.
        """
        return self._results.unpack(self._run_host(arrays), own)

    def _run_host(self, arrays: Sequence[Any]) -> Sequence[jax.Array]:
        self.used = tick()
        if self._host is None:
            self.prepare(arrays, host=True)
        pack = self._pack
        if pack is not None:
            arrays = pack.pack(arrays)
        if self._wide or self.calls_host:
            with x64(self.calls_host):
                return self._host(*arrays)  # type: ignore[misc]
        return self._host(*arrays)  # type: ignore[misc]

    def mixed(self, arrays: Sequence[Any]) -> Sequence[jax.Array]:
        """Runs on arrays of NumPy and JAX."""
        self.used = tick()
        packing, function = self._variant(arrays)
        with x64(self.calls_host):
            return function(*packing.pack(arrays))

    def _variant(self, arrays: Sequence[Any]) -> tuple[_Packing, Callable[..., Any]]:
        """Returns how such arguments are packed, and the function that takes them so."""
        apart = tuple(i for i in self._scalars if isinstance(arrays[i], jax.Array))
        found = self._by_pattern.get(apart)
        if found is None:
            with self._lock:
                if len(self._by_pattern) >= _MOST_VARIANTS:
                    apart = tuple(self._scalars)
                found = self._by_pattern.get(apart)
                if found is None:
                    packing = _Packing(self._source.inputs, apart)
                    found = packing, jax.jit(self._source.function(packing))
                    self._by_pattern[apart] = found
        return found


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
        self, packing: _Packing, results: _Results | None = None
    ) -> Callable[..., list[Any]]:
        """Returns what JAX is to compile."""

        def lowered(*packed: Any) -> list[Any]:
            found = lower(self.program(), packing.unpack(packed))
            return found if results is None else results.pack(found)

        lowered.__name__ = lowered.__qualname__ = "".join(
            c if c.isalnum() else "_" for c in self.name
        )
        return lowered


def _by_dtype(types: Sequence[ArrayType], together: Sequence[bool]) -> tuple[list[Any], Any]:
    """Returns which values travel together, two or more of one dtype, and which alone."""
    found: dict[np.dtype, list[int]] = {}
    for i, t in enumerate(types):
        if together[i]:
            found.setdefault(t.dtype, []).append(i)
    groups = [(dtype, tuple(group)) for dtype, group in found.items() if len(group) > 1]
    packed = {i for _, group in groups for i in group}
    return groups, tuple([i for i in range(len(types)) if i not in packed])


class _Packing:
    """Says which inputs travel together in one array: scalars of one dtype, where two or more do.

    Args:
        inputs: the types of the inputs of the program.
        apart: the scalars that travel alone, since they lie on a device.
    """

    __slots__ = ("groups", "singles", "types")

    def __init__(self, inputs: Sequence[ArrayType], apart: tuple[int, ...]):
        together = [t.shape == () and i not in apart for i, t in enumerate(inputs)]
        self.groups, self.singles = _by_dtype(inputs, together)
        self.types = [ArrayType((len(group),), dtype) for dtype, group in self.groups]
        self.types += [inputs[i] for i in self.singles]

    def pack(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the arguments of the compiled function."""
        if not self.groups:
            return arrays
        packed = [np.array([arrays[i] for i in group], dtype) for dtype, group in self.groups]
        return packed + [arrays[i] for i in self.singles]

    def unpack(self, packed: Sequence[Any]) -> list[Any]:
        """Returns the inputs of the program, inside the compiled function."""
        if not self.groups:
            return list(packed)
        inputs: dict[int, Any] = {}
        for (_, group), array in zip(self.groups, packed, strict=False):
            inputs.update((i, array[n]) for n, i in enumerate(group))
        inputs.update(zip(self.singles, packed[len(self.groups) :], strict=True))
        return [inputs[i] for i in range(len(inputs))]


_SMALL = 1 << 12
"""Up to so many bytes, to copy a result twice is cheaper than to return it by itself."""


class _Results:
    """Says which results come back together in one array: small ones of one dtype, two or more.

    Args:
        types: the types of the results.
    """

    __slots__ = ("count", "groups", "singles")

    def __init__(self, types: Sequence[ArrayType]):
        groups, self.singles = _by_dtype(types, [t.nbytes <= _SMALL for t in types])
        self.count = len(types)
        self.groups = []
        for _, group in groups:
            ends = itertools.accumulate([types[i].size for i in group])
            self.groups.append(
                [
                    (i, end - types[i].size, end, types[i].shape)
                    for i, end in zip(group, ends, strict=True)
                ]
            )

    def pack(self, results: Sequence[Any]) -> list[Any]:
        """Returns what the compiled function does, inside of it."""
        packed = [jnp.concatenate([results[i].ravel() for i, *_ in group]) for group in self.groups]
        return packed + [results[i] for i in self.singles]

    def unpack(self, packed: Sequence[Any], own: bool) -> list[np.ndarray]:
        """Returns the results as NumPy arrays."""
        if not self.groups:
            return [*map(np.array if own else np.asarray, packed)]
        results: list[Any] = [None] * self.count
        for group, array in zip(self.groups, packed, strict=False):
            whole = np.asarray(array)
            for i, begin, end, shape in group:
                part = whole[begin:end].reshape(shape)
                results[i] = part.copy() if own else part
        for i, array in zip(self.singles, packed[len(self.groups) :], strict=True):
            results[i] = np.array(array) if own else np.asarray(array)
        return results


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
