"""One thread for products of small matrices: several wait for each other longer than they compute.

That is so where the machine has other work: a product may then take a hundred times as long. The
number of threads is NumPy's own, for the whole process, so it is put back when the last program
that wants one thread has ended.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

from ftrans.ir import Program
from ftrans.primitives import dot_p

_LARGE = 4e7
"""So many operations a product takes, those of 270 x 270 x 270, before it is left to all threads.

On a quiet machine two gain a third from 192 x 192 x 192 on; on a busy one they lose all of it, and
more.
"""

_TINY = 1 << 14
"""Up to so many operations a product is never given to several threads."""

Threads = tuple[Callable[[], int], Callable[[int], None]]

_NUMPYS, _SCIPYS = "numpy._core._multiarray_umath", "scipy.linalg._flapack"
"""The modules that bring a BLAS of their own; SciPy's is there once it has been imported."""


@functools.cache
def _threads(module: str) -> Threads | None:
    """Returns what reads and sets the number of threads; None where that BLAS is another one."""
    ending = "64_" if module == _NUMPYS else ""
    try:
        library = ctypes.CDLL(sys.modules[module].__file__)
        get = getattr(library, f"scipy_openblas_get_num_threads{ending}")
        put = getattr(library, f"scipy_openblas_set_num_threads{ending}")
    except (AttributeError, OSError):
        return None
    get.restype, put.argtypes, put.restype = ctypes.c_int, [ctypes.c_int], None
    return get, put


def is_small(program: Program) -> bool:
    """Tells whether a program multiplies matrices, but none that a second thread would help.

    Where all are so small that BLAS takes one thread anyway, nothing is to be said.

    What calls Python code is none: that may multiply others.
    """
    found = program.memo.get("small products")
    if found is None:
        sizes = _products(program)
        found = bool(sizes) and _TINY < max(sizes) <= _LARGE and not program.calls_host
        program.memo["small products"] = found
    return found


def _products(program: Program) -> list[float]:
    """Returns how many operations each product, or factorization, takes; inner ones included."""
    sizes: list[float] = []
    for home, equation in program.nested():
        if equation.primitive is dot_p:
            x, y = (home.type_of(operand).shape for operand in equation.operands)
            taken = equation.params["contract"][0] + equation.params["batch"][0]
            twice = math.prod([x[axis] for axis in equation.params["batch"][0]])
            # of one of a batch of products, which are computed one by one
            rows = math.prod([n for axis, n in enumerate(x) if axis not in taken])
            sizes.append(2.0 * rows * math.prod(y) / max(twice, 1))
        elif not equation.primitive.tags.isdisjoint(("linalg", "convolution")):
            types = tuple(map(home.type_of, equation.operands))
            flops = equation.primitive.cost(types, equation.types, equation.params).flops
            groups = equation.params.get("feature_groups")
            sizes.append(flops / (groups or max(math.prod(types[0].shape[:-2]), 1)))
    return sizes


class _OneThread:
    """Is a scope of one thread, which may be entered again, also from other threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before: list[tuple[Callable[[int], None], int]] = []

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                for module in (_NUMPYS, _SCIPYS):
                    threads = _threads(module) if module in sys.modules else None
                    if threads is not None:
                        get, put = threads
                        self.before.append((put, get()))
                        put(1)
            self.inside += 1

    def __exit__(self, *exception: Any) -> None:
        with self.lock:
            self.inside -= 1
            while not self.inside and self.before:
                put, count = self.before.pop()
                put(count)


one_thread = _OneThread()
