"""What every function of the front end returns of plain arrays shares memory where NumPy's does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.numpy import borrowed

A = np.arange(1.0, 13.0).reshape(3, 4)
ARRAYS = {
    "matrix": A,
    "vector": np.arange(1.0, 5.0),
    "scalar": np.array(3.0),
    "complex": A * (1 + 1j),
    "integers": np.arange(6).reshape(2, 3),
    "booleans": A > 3,
    "square": np.arange(9.0).reshape(3, 3),
    "axes of size 1": np.ones((1, 3, 1)),
    "empty": np.zeros((0, 3)),
    "columns": np.asfortranarray(A),
    "part": A[:, ::2],
    "transpose": A.T,
    "backwards": A[::-1],
}

ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "append": [([],)],
    "array_split": [(2,)],
    "astype": [(float,), (int,)],
    "broadcast_to": [((3, 4),), ((2, 3, 4),)],
    "clip": [(0, 100)],
    "copy": [("C",), ("F",), ("A",), ("K",)],
    "delete": [([], 0)],
    "diff": [(0,)],
    "dsplit": [(1,)],
    "expand_dims": [(0,)],
    "flip": [(0,), ((),)],
    "full_like": [(3.0,)],
    "hsplit": [(1,)],
    "max": [((),)],
    "median": [(0,)],
    "moveaxis": [(0, 1), (0, 0)],
    "pad": [(0,)],
    "partition": [(0,)],
    "percentile": [(50,)],
    "power": [(1,)],
    "prod": [((),)],
    "ravel": [("C",), ("F",), ("A",), ("K",)],
    "repeat": [(1, 0)],
    "reshape": [((-1,),), ((-1,), "F"), ((-1,), "A")],
    "roll": [(0,), (1, 0), (0, 0)],
    "rot90": [(0,), (1,), (2,), (3,)],
    "round": [(0,), (2,)],
    "split": [(1,)],
    "squeeze": [(0,)],
    "sum": [((),)],
    "swapaxes": [(0, 1), (1, 1)],
    "take": [(0, 0), ([0], 0)],
    "tile": [(1,)],
    "transpose": [((1, 0),), ((0, 1),)],
    "vsplit": [(1,)],
    "where": [(A, A)],
}
"""What functions are given besides an array; all are called without that, too."""

WRITES = {"copyto", "fill_diagonal", "place", "put", "putmask"}
NEW_ARRAYS = set(borrowed.__all__)
"""Functions of JAX's, where results share nothing."""


def arrays_in(x: Any) -> Iterator[np.ndarray]:
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from arrays_in(item)
    elif isinstance(x, np.ndarray):
        yield x


def how(function: Any, x: np.ndarray, args: tuple[Any, ...]) -> list[tuple[bool, bool]] | None:
    """Returns for each result whether it shares memory, and can be written to."""
    try:
        found = function(x, *args)
    except Exception:  # it does not take such arguments: other tests say which
        return None
    return [(np.shares_memory(y, x), y.flags.writeable) for y in arrays_in(found)]


def test_views_of_plain_arrays_are_those_of_numpy() -> None:
    functions = {
        name: (theirs, getattr(fnp, name))
        for name in fnp.__all__
        if callable(theirs := getattr(np, name, None)) and not isinstance(theirs, type)
    }
    different, compared, views = [], 0, set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in functions.keys() - WRITES - NEW_ARRAYS:
            theirs, ours = functions[name]
            for kind, x in ARRAYS.items():
                for args in [(), *ARGUMENTS.get(name, [])]:
                    expected, found = how(theirs, x, args), how(ours, x, args)
                    if not expected or not found or len(expected) != len(found):
                        continue  # of rank zero NumPy returns scalars, which share nothing
                    compared += 1
                    views |= {name for shares, _ in expected if shares}
                    if expected != found:
                        different.append((name, kind, args, expected, found))
    assert not different
    assert compared > 1500
    assert len(views) > 30, views
