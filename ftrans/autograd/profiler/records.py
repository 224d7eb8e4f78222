"""What PyTorch's profiler counts and looks up by, for programs that use it apart from a profile."""

from __future__ import annotations

import ctypes
import ctypes.util
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.traceback import boundary


class KinetoStepTracker:
    """Counts the steps of several requesters: the step is that of the one that is furthest."""

    _current = 0
    _steps: ClassVar[dict[str, int]] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Has a requester begin at the present step."""
        cls._steps[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forgets a requester; tells whether it was known."""
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Counts one more step of a requester, and returns the step."""
        cls._steps[requester] = cls._steps.get(requester, cls._current) + 1
        cls._current = max(cls._current, cls._steps[requester])
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """Returns the step."""
        return cls._current


class MemRecordsAcc:
    """Finds records by their time: what `record[0].start_ns()` returns."""

    def __init__(self, mem_records: Sequence[Any]):
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())
        self._starts = [record[0].start_ns() for record in self._records]

    def in_interval(self, start_ns: float, end_ns: float) -> Iterator[Any]:
        """Yields those from one time to another, both included, in order."""
        first, stop = bisect_left(self._starts, start_ns), bisect_right(self._starts, end_ns)
        yield from self._records[first:stop]


class StringTable(defaultdict):
    """Is a dict whose keys stand for themselves, or for what is mangled in them by C++."""

    def __missing__(self, key: str) -> str:
        self[key] = _demangled(key) if key.startswith("_Z") else key
        return self[key]


def _demangled(name: str) -> str:
    """Asks the runtime library of C++, where there is one."""
    path = ctypes.util.find_library("stdc++") or ctypes.util.find_library("c++abi")
    if path is None:
        return name
    library = ctypes.CDLL(path)
    library.__cxa_demangle.restype = ctypes.c_void_p
    found = library.__cxa_demangle(name.encode(), None, None, None)
    text = ctypes.string_at(found).decode() if found else name
    library.free(ctypes.c_void_p(found))
    return text


class EnforceUnique:
    """Raises where a key is seen twice."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    @boundary
    def see(self, *key: Any) -> None:
        """Notes a key; raises an `ArgumentError` where it was seen before."""
        if key in self.seen:
            raise ArgumentError(f"duplicate key: {key}\n  Each is to be seen once.")
        self.seen.add(key)


@boundary
def parse_nvprof_trace(path: Any) -> Any:
    """Raises an `UnsupportedError`: nvprof knows no GPU that JAX still runs on."""
    raise UnsupportedError(
        f"parse_nvprof_trace: traces of nvprof are not read, nor is a file looked for.\n"
        f"  path: {path!r}\n"
        f"  For what a GPU does, write profile(compiled_trace_dir=...), or emit_nvtx under nsys."
    )


load_nvprof = parse_nvprof_trace
