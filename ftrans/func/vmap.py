"""Vectorization: `vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    ShapeError,
    StructureError,
    UnsupportedError,
)
from ftrans.func.bodies import spread
from ftrans.func.proven import proven
from ftrans.func.staging import (
    apply,
    check_chunk_size,
    check_randomness,
    is_whole,
    name_of,
    named,
    stage,
    wants_jax,
)
from ftrans.interpreters import batch_in_chunks, place_outputs
from ftrans.interpreters.placing import placed
from ftrans.ir import Abstract, ArrayType, Tracer, type_of
from ftrans.ir.axes import names_in
from ftrans.ir.stack import state
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.numpy.views import fresh
from ftrans.pytree import argument_name, describe, holds_arrays, leaf_names, shown
from ftrans.runtime.jaxlink import is_key, words
from ftrans.traceback import OnTape, boundary, bounded


@boundary
def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
    axis_size: int | None = None,
    axis_name: Hashable = None,
    spmd_axis_name: str | tuple[str, ...] | None = None,
) -> Callable[..., Any]:
    """Returns a function that maps `func` over an axis of its arguments, all examples at once.

    Args:
        func: takes single examples and returns a pytree of arrays. It cannot branch on mapped
            values; `ftrans.cond` and `ftrans.numpy.where` do.
        in_dims: which axis of each argument is mapped: an int for all, or a tuple with an int,
            None (not mapped) or a pytree of them per positional argument. Keyword arguments are
            not mapped. Arrays are traced inside all the same, so that `table[i]` is; Python
            scalars are not.
        out_dims: where the mapped axis goes in the results: an int, or a pytree of ints; None for
            a result that does not depend on the example.
        randomness: what a draw of a generator is in `func`: "error" forbids it, "different" draws
            anew for each example, "same" draws once for all. Functions that take a key draw what
            that key says: pass one for each, `ftrans.random.split(key, n)`.
        chunk_size: the most examples computed at once, to bound memory; None for all.
        axis_size: the number of examples, needed only where no argument is mapped; with it
            `in_dims` may be None, and there need be no argument.
        axis_name: what `psum` and other collectives in `func` call the mapped axis; None where
            there are none. What goes over it needs all examples at once.
        spmd_axis_name: the axes of a mesh of devices that the examples lie along, where `func`
            says by `ftrans.with_sharding_constraint` how one of them lies; None lets XLA choose.

    Raises:
        ValueError: where sizes differ, or `in_dims` does not fit the arguments.

    Example:
        >>> import numpy as np
        >>> vmap(lambda x: x.sum())(np.arange(6.0).reshape(3, 2))
        array([1., 5., 9.])
    """
    name = f"vmap({name_of(func)})"
    check_randomness(name, randomness)
    check_chunk_size(name, chunk_size)
    if axis_size is not None and not (is_whole(axis_size) and axis_size >= 0):
        raise ArgumentError(
            f"{name}: axis_size must be None or an int that is not negative.\n"
            f"  axis_size: {describe(axis_size)}\n"
            f"  Leave it out where an argument is mapped."
        )

    names = (spmd_axis_name,) if isinstance(spmd_axis_name, str) else spmd_axis_name
    try:
        hash((axis_name, names))
    except TypeError:
        lines = f"  axis_name: {axis_name!r}\n  spmd_axis_name: {spmd_axis_name!r}"
        raise ArgumentError(f"{name}: names of axes are strings, or tuples.\n{lines}") from None
    reason = f"the mapped axis of {name}"

    @bounded(func)
    @proven(
        name, func, "vmap", in_dims, out_dims, randomness, chunk_size, axis_size, axis_name, names
    )
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.tree_flatten(args)
        label = functools.partial(_label, func, args)
        if axis_size is not None and (in_dims is None or not args):
            dims: list[int | None] = [None] * len(leaves)
        else:
            dims = _dims(name, label, in_dims, args, leaves)
        size = _size(name, label, leaves, dims, axis_size)

        inputs, operands = [], []
        for leaf, dim in zip(leaves, dims, strict=True):
            if dim is None:
                continue
            array = as_array(words(leaf))
            t = type_of(array)
            source = Abstract(reason, array, dim)
            inputs.append((ArrayType(t.shape[:dim] + t.shape[dim + 1 :], t.dtype), source, False))
            operands.append(array)
        if randomness == "different":
            inputs.append((_LANE, Abstract(reason, _first, 0), False))
            operands.append(np.arange(size, dtype=np.uint32))

        def single(*tracers: Any) -> Any:
            lane = tracers[-1] if randomness == "different" else None
            state.stack[-1].lanes = randomness, lane
            given = iter(tracers)
            filled = [
                _whole(leaf) if dim is None else next(given)
                for leaf, dim in zip(leaves, dims, strict=True)
            ]
            given_by_name = _wholes(kwargs) if kwargs else kwargs
            return OnTape.returned(func(*structure.unflatten(filled), **given_by_name))

        staged = stage(
            name,
            single,
            inputs,
            randomness=randomness,
            passed=lambda leaf: is_array(leaf) or is_scalar(leaf),
            folds=True,
            axes=() if axis_name is None else ((axis_name, size),),
        )
        if chunk_size is not None and chunk_size < size and axis_name in names_in(staged.program):
            raise UnsupportedError(
                f"{name}: a collective needs all examples at once, and they come in chunks.\n"
                f"  axis_name: {axis_name!r}\n  chunk_size: {chunk_size}, of {size} examples\n"
                f"  Leave out chunk_size."
            )
        mapped_dims = tuple([dim for dim in dims if dim is not None])
        if randomness == "different":
            mapped_dims += (0,)
        all_dims = mapped_dims + (None,) * len(staged.captured)
        one = staged.program if names is None else placed(staged.program, names)
        program, which = batch_in_chunks(one, size, all_dims, chunk_size, axis_name)
        where = _out_dims(name, out_dims, staged.outputs, which, staged.program)
        found = apply(
            place_outputs(program, size, which, where),
            [*operands, *staged.captured],
            wants_jax(args, kwargs),
        )
        return staged.outputs.build(found)

    return named(mapped, name)


_LANE = ArrayType((), "uint32")
_first = np.zeros(1, np.uint32)


def _whole(leaf: Any) -> Any:
    """Returns an argument that is not mapped: arrays are traced, so that `table[t]` is too."""
    if is_scalar(leaf) or isinstance(leaf, (Tracer, np.generic)) or not is_array(leaf):
        return leaf
    return fresh(state.stack[-1].capture(leaf))


def _wholes(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments with traced arrays; without any they are those that were given."""
    traced = any(map(is_array, tree.tree_leaves(kwargs)))
    return tree.tree_map(_whole, kwargs) if traced else kwargs


def _label(func: Callable[..., Any], args: Any, number: int) -> str:
    """Returns how an error names a leaf of the arguments."""
    return argument_name(func, tree.tree_flatten_with_path(args)[0][number][0])


def _dims(
    name: str, label: Callable[[int], str], in_dims: Any, args: Any, leaves: list[Any]
) -> list[int | None]:
    """Returns for each leaf of the arguments the axis that is mapped, counted from the front."""
    if not (is_whole(in_dims) or isinstance(in_dims, tuple)):
        fix = f"in_dims={tuple(in_dims)}" if isinstance(in_dims, list) else "in_dims=0"
        raise StructureError(
            f"{name}: in_dims must be an int, or a tuple with one entry per positional argument.\n"
            f"  in_dims: {in_dims!r}\n  Write {fix}."
        )
    if not args:
        raise ArgumentError(
            f"{name}: there is no positional argument to map over.\n"
            f"  Keyword arguments are not mapped: pass the mapped arguments by position."
        )
    if not isinstance(in_dims, tuple):
        flat = [in_dims] * len(leaves)
        lenient = True
    else:
        if len(in_dims) != len(args):
            raise StructureError(
                f"{name}: in_dims has {len(in_dims)} entries for {len(args)} arguments.\n"
                f"  in_dims: {in_dims}\n"
                f"  Give one entry per positional argument, None where nothing is mapped."
            )
        flat, lenient = [], False
        for number, (spec, arg) in enumerate(zip(in_dims, args, strict=True)):
            flat += _spread(name, "in_dims", f"in_dims[{number}]", spec, arg)
    dims: list[int | None] = []
    for number, (leaf, dim) in enumerate(zip(leaves, flat, strict=True)):
        if dim is None:
            dims.append(None)
            continue
        if not (is_array(leaf) or is_key(leaf)):
            maybe = is_scalar(leaf) or isinstance(leaf, np.ndarray) or holds_arrays(leaf)
            if lenient and not maybe:
                dims.append(None)
                continue
            raise DTypeError(
                f"{name}: a mapped argument must be an array.\n"
                f"  {label(number)}: {describe(leaf)}\n"
                f"  Give it None in in_dims, which leaves it as it is."
            )
        ndim = leaf.ndim  # of keys that without the axis of their words
        if not -ndim <= dim < ndim:
            raise AxisError(
                f"{name}: in_dims names an axis that an argument does not have.\n"
                f"  {label(number)}: axis {dim} of {_type(leaf)}\n"
                + (f"  Its axes are {-ndim} ... {ndim - 1}. " if ndim else "  ")
                + "Where it is not mapped, give it None in in_dims."
            )
        dims.append(dim % ndim)
    return dims


def _type(leaf: Any) -> Any:
    return f"keys{list(leaf.shape)}" if is_key(leaf) else type_of(leaf)


_FITS = {
    "in_dims": ("an argument", "one int or None for the whole argument"),
    "out_dims": ("the result", "one int for all"),
}
_ENTRIES = {
    "in_dims": "the axis that is mapped, or None where nothing is",
    "out_dims": "where the mapped axis goes in each result",
}


def _spread(name: str, option: str, label: str, spec: Any, value: Any) -> list[int | None]:
    """Returns for each leaf of a pytree what an option says, which may be a prefix of the pytree.

    Args:
        name: of the transform, for errors.
        option: "in_dims" or "out_dims".
        label: names the spec.
        spec: what the option says of the value.
        value: the pytree.
    """
    structure = tree.tree_structure(value)
    if spec is None or is_whole(spec):
        return [spec] * structure.num_leaves
    is_none = lambda x: x is None  # noqa: E731
    flat = spread(spec, value, is_none)
    if flat is None:
        what, fix = _FITS[option]
        raise StructureError(
            f"{name}: {option} does not fit the structure of {what}.\n"
            f"  {label}: {spec}\n"
            f"  {what.split()[1]}: {shown(structure)}\n"
            f"  Use the same containers, or {fix}."
        )
    if not all(dim is None or is_whole(dim) for dim in flat):
        raise StructureError(
            f"{name}: the entries of {option} are ints and None.\n"
            f"  {label}: {describe(spec)}\n"
            f"  Write {_ENTRIES[option]}."
        )
    return flat


def _size(
    name: str,
    label: Callable[[int], str],
    leaves: list[Any],
    dims: list[int | None],
    axis_size: int | None,
) -> int:
    """Returns the size of the mapped axis, the same in all mapped leaves."""
    sizes = {x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None}

    def lines() -> str:
        return "".join(
            f"  {label(i)}: axis {d} of {_type(x)} has size {x.shape[d]}\n"
            for i, (x, d) in enumerate(zip(leaves, dims, strict=True))
            if d is not None
        )

    if axis_size is not None:
        if sizes and sizes != {axis_size}:
            raise ShapeError(
                f"{name}: axis_size={axis_size} is not the size of the mapped axes.\n{lines()}"
                f"  Leave axis_size out where an argument is mapped."
            )
        return int(axis_size)
    if not sizes:
        raise ArgumentError(
            f"{name}: no argument is mapped, so the number of examples is not known.\n"
            + "".join(f"  {label(i)}: {describe(x)}, not mapped\n" for i, x in enumerate(leaves))
            + "  Give one of them an axis in in_dims, or pass axis_size=n."
        )
    if len(sizes) > 1:
        raise ShapeError(
            f"{name}: mapped axes have different sizes.\n{lines()}"
            f"  To pass one of them whole to every example, give it None in in_dims."
        )
    return next(iter(sizes))


def _out_dims(
    name: str, out_dims: Any, outputs: Any, which: tuple[bool, ...], program: Any
) -> tuple[int | None, ...]:
    """Returns for each output of the program where the mapped axis goes, from the front."""
    if type(out_dims) is int and out_dims == 0 and outputs.arrays == len(outputs.leaves):
        return (0,) * outputs.arrays
    template = outputs.build([0] * outputs.arrays)
    if type(out_dims) is tuple and len(out_dims) == 1 and tree.all_leaves([template]):
        (out_dims,) = out_dims  # as PyTorch does where there is one result
    flat = _spread(name, "out_dims", "out_dims", out_dims, template)
    where: list[int | None] = []
    given = iter(zip(which, program.output_types, strict=True))
    labels = functools.cache(lambda: leaf_names("result", outputs.structure))
    for number, (dim, leaf) in enumerate(zip(flat, outputs.leaves, strict=True)):
        if leaf is not None:
            held = holds_arrays(leaf)
            if held or (dim is not None and not is_whole(out_dims)):
                fix = "Return its arrays instead" if held else "Give it None in out_dims"
                raise DTypeError(
                    f"{name}: a result that is no array has no axis.\n"
                    f"  {labels()[number]}: {describe(leaf)}\n  {fix}."
                )
            continue
        is_mapped, t = next(given)
        if dim is None:
            if is_mapped:
                raise ArgumentError(
                    f"{name}: out_dims is None for a result that depends on the example.\n"
                    f"  {labels()[number]}: {t} per example\n"
                    f"  Give it an int in out_dims, or reduce over the examples after vmap."
                )
            where.append(None)
            continue
        if not -t.ndim - 1 <= dim <= t.ndim:
            raise AxisError(
                f"{name}: out_dims={dim} is out of range.\n"
                f"  {labels()[number]}: {t} per example\n"
                f"  The mapped axis can be put at {-t.ndim - 1} ... {t.ndim}."
            )
        where.append(dim % (t.ndim + 1))
    return tuple(where)
