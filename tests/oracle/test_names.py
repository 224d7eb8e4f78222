"""Names, arguments and defaults are those of NumPy, JAX and the array API, but for a list."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans.errors import MissingAttributeError

HOMES = {"": fnp, "linalg.": fnp.linalg, "fft.": fnp.fft}
SUBMODULES = {"linalg", "fft"}
IN_MODULES = {"dtypes", "ufunc"}
"""Names of modules of ours, which NumPy and JAX have for something else."""


def public(module: ModuleType) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]


def counterpart(library: Any, place: str) -> Any:
    home, _, name = place.rpartition(".")
    return getattr(getattr(library, home) if home else library, name, None)


# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("library", [np, jnp], ids=lambda library: library.__name__)
def test_every_name_is_there_or_says_what_to_write(library: Any) -> None:
    there, advised = 0, 0
    for prefix, home in HOMES.items():
        theirs = getattr(library, prefix[:-1]) if prefix else library
        for name in public(theirs):
            if name in home.__all__:
                there += 1
                continue
            if not prefix and name in IN_MODULES:
                continue
            with pytest.raises(MissingAttributeError, match=r"\.\n  (Write|Draw) "):
                getattr(home, name)
            advised += 1
    assert there > 370
    assert advised < 130


NEWER = {"minmax"}
"""What the oldest version of JAX has not that is taken."""


def test_jax_has_no_function_that_is_missing() -> None:
    left = [
        prefix + name
        for prefix, home in HOMES.items()
        for name in public(counterpart(jnp, prefix[:-1]) if prefix else jnp)
        if name not in home.__all__
    ]
    narrow = [name for name in left if name.startswith(("float4", "float6", "int", "uint"))]
    # what makes ufuncs, since functions here are plain ones
    assert set(left) - set(narrow) - NEWER == {"frompyfunc", "ufunc"}
    assert {np.dtype(getattr(jnp, name)).itemsize for name in narrow} == {1}


# ------------------------------------------------------------------------------------- signatures

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NO_VALUE = inspect.signature(np.sum).parameters["keepdims"].default


def parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def differing(ours: Any, theirs: Any, defaults: bool) -> Iterator[tuple[str, str]]:
    """Yields the parameters of theirs that ours does not take likewise, and what differs."""
    own, other = parameters(ours), parameters(theirs)
    if own is None or other is None:
        return
    places = [name for name, p in own.items() if p.kind in POSITIONAL]
    rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in own.values())
    for at, (name, p) in enumerate(other.items()):
        if p.kind in STARRED or name == "out":  # which `composite` takes everywhere
            continue
        if p.kind is inspect.Parameter.POSITIONAL_ONLY:
            if at >= len(places) and not rest:
                yield name, "missing"
        elif name not in own:
            yield name, "missing"
        elif p.kind in POSITIONAL and name in places and places.index(name) != at:
            yield name, f"place {places.index(name)}"
        elif p.kind in POSITIONAL and name not in places:
            yield name, "only by name"
        if defaults and name in own and p.default is not NO_VALUE:
            own_default = own[name].default
            if own_default is not p.default and own_default != p.default:
                yield name, f"default {own_default!r}"


def functions() -> Iterator[tuple[str, Any]]:
    for prefix, home in HOMES.items():
        for name in home.__all__:
            value = getattr(home, name)
            if callable(value) and not isinstance(value, type):
                yield prefix + name, value


EXCEPTIONS = {
    "it says how an array lies in memory, which is left to XLA, or which subclass it is of": """
        *:order *:subok *:like
    """,
    "it says how NumPy goes about it": "*:casting *:kind array:ndmax einsum_path:einsum_call",
    "None stands for NumPy's default": """
        eye:dtype tri:dtype indices:dtype argsort:stable sort:stable take:mode
    """,
    "NumPy has order and subok before it": """
        empty_like:shape full_like:shape ones_like:shape zeros_like:shape
    """,
    "it may be left out": "expand_dims:axis",
    "orders of contraction are always sought": "einsum:optimize",
    "it is given by name, as in JAX and the array API": "fft.fftfreq:device fft.rfftfreq:device",
    "NumPy has two names for one bound": "clip:a_min clip:a_max",
    "operands of ufuncs are not named": "imag:val real:val",
}


def test_arguments_and_defaults_are_numpys() -> None:
    listed = {entry for text in EXCEPTIONS.values() for entry in text.split()}
    unlisted, used, compared = [], set(), 0
    for place, ours in functions():
        theirs = counterpart(np, place)
        if not callable(theirs) or isinstance(theirs, (type, np.ufunc)):
            continue
        compared += 1
        for name, what in differing(ours, theirs, defaults=True):
            entry = next((e for e in (f"*:{name}", f"{place}:{name}") if e in listed), None)
            if entry is None:
                unlisted.append(f"{place}:{name} {what}")
            used.add(entry)
    assert not unlisted
    assert listed == used - {None}
    assert compared > 280


OF_JAX = {
    "it is for sharding, precision or speed in XLA alone": """
        *:out_sharding *:precision *:preferred_element_type *:indices_are_sorted *:unique_indices
        *:promote_integers *:_dot_general *:symmetrize_input
        *:wrap_negative_indices
    """,
    "arrays are written in place here, or not at all": "*:inplace",
    "a slice of all singular values does that": "linalg.svd:subset_by_index",
    "nonzero(condition, size=n) does that": "mask_indices:size",
    "NumPy has it otherwise": """
        promote_types:a promote_types:b fmax:x1 fmax:x2 fmin:x1 fmin:x2 matmul:a matmul:b
        linalg.matrix_rank:M take:fill_value
    """,
    "x.astype(dtype) does that": "dstack:dtype argsort:dtype",
    "the oldest version of JAX has it not that is taken": """
        top_k:mode top_k:sorted
    """,
    "an index out of bounds is an error where it is known, as in NumPy": """
        put_along_axis:mode take_along_axis:mode take_along_axis:fill_value
    """,
}


def of_numpy(place: str) -> dict[str, inspect.Parameter]:
    function = counterpart(np, place)
    is_plain = callable(function) and not isinstance(function, (type, np.ufunc))
    return (parameters(function) or {}) if is_plain else {}


def test_arguments_are_jaxs() -> None:
    listed = {entry for text in OF_JAX.values() for entry in text.split()}
    unlisted, used = [], set()
    for place, ours in functions():
        theirs = counterpart(jnp, place)
        if not callable(theirs) or isinstance(theirs, (type, jnp.ufunc)):
            continue
        for name, what in differing(ours, theirs, defaults=False):
            entry = next((e for e in (f"*:{name}", f"{place}:{name}") if e in listed), None)
            if entry is None and name not in of_numpy(place):
                unlisted.append(f"{place}:{name} {what}")
            used.add(entry)
    assert not unlisted
    newer = {"top_k:mode", "top_k:sorted"}
    assert listed - {"*:_dot_general"} - newer <= used


STANDARD = """
    abs | acos | all axis keepdims | any axis keepdims | arange start stop step dtype device
    argmax axis keepdims | argmin axis keepdims | argsort axis descending stable
    asarray dtype device copy | astype copy device | can_cast | clip min max | concat axis
    count_nonzero axis keepdims | cumulative_prod axis dtype include_initial
    cumulative_sum axis dtype include_initial | diff axis n prepend append | empty dtype device
    empty_like dtype device | expand_dims axis | eye k dtype device | flip axis
    from_dlpack device copy | full dtype device | full_like dtype device | isdtype
    linspace num dtype device endpoint | matmul | matrix_transpose | max axis keepdims
    mean axis keepdims | meshgrid indexing | min axis keepdims | moveaxis | nonzero
    ones dtype device | ones_like dtype device | permute_dims axes | prod axis dtype keepdims
    repeat axis | reshape shape copy | roll axis | searchsorted side sorter
    sort axis descending stable | squeeze axis | stack axis | std axis correction keepdims
    sum axis dtype keepdims | take axis | take_along_axis axis | tensordot axes | tile | tril k
    triu k | unique_all | unique_counts | unique_inverse | unique_values | unstack axis
    var axis correction keepdims | vecdot axis | where | zeros dtype device
    zeros_like dtype device
    linalg.cholesky upper | linalg.cross axis | linalg.det | linalg.diagonal offset | linalg.eigh
    linalg.eigvalsh | linalg.inv | linalg.matmul | linalg.matrix_norm keepdims ord
    linalg.matrix_power | linalg.matrix_rank rtol | linalg.matrix_transpose | linalg.outer
    linalg.pinv rtol | linalg.qr mode | linalg.slogdet | linalg.solve | linalg.svd full_matrices
    linalg.svdvals | linalg.tensordot axes | linalg.trace offset dtype | linalg.vecdot axis
    linalg.vector_norm axis keepdims ord
    fft.fft n axis norm | fft.ifft n axis norm | fft.fftn s axes norm | fft.ifftn s axes norm
    fft.rfft n axis norm | fft.irfft n axis norm | fft.rfftn s axes norm | fft.irfftn s axes norm
    fft.hfft n axis norm | fft.ihfft n axis norm | fft.fftfreq d dtype device
    fft.rfftfreq d dtype device | fft.fftshift axes | fft.ifftshift axes
"""
"""The functions of the standard of 2024.12 with the arguments that they take by name."""


def test_arguments_are_those_of_the_array_api() -> None:
    entries = [entry.split() for line in STANDARD.splitlines() for entry in line.split("|")]
    for place, *names in filter(None, entries):
        function = counterpart(fnp, place)
        taken = parameters(function)
        if taken is not None and "options" not in taken:
            lacking = set(names) - taken.keys()
            assert not lacking, f"{place} lacks {lacking}"
