"""Staged loops: `scan`, `while_loop`, `fori_loop`.

Bodies are traced once, in closed frames; what they use from outside they capture, and it is
differentiated and batched like any argument.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import jax.tree_util as tree
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, FtransError, ShapeError, StructureError
from ftrans.func.bodies import consts_first, flatten_arrays, stage_body
from ftrans.func.staging import Staged, name_of, named
from ftrans.ir import ArrayType, type_of
from ftrans.ir.dtype import is_complex, is_inexact
from ftrans.numpy.promotion import as_array, cast, default_dtype, result_type, weakly
from ftrans.primitives import scan_p, while_p
from ftrans.pytree import describe, leaf_names, shown
from ftrans.traceback import boundary


def _carry_mismatch(
    name: str, names: Sequence[str], before: Sequence[ArrayType], after: Sequence[ArrayType]
) -> FtransError:
    changed = [
        (label, a.update(), b.update())
        for label, a, b in zip(names, before, after, strict=True)
        if a.shape != b.shape or a.dtype != b.dtype
    ]
    lines = "".join(f"  {label}: {a} became {b}\n" for label, a, b in changed)
    if any(a.shape != b.shape for _, a, b in changed):
        return ShapeError(
            f"{name}: the carry changes its type from one step to the next.\n{lines}"
            f"  Start with an array of the size that is needed last, and write into it: "
            f"x.at[i].set(v)."
        )
    dtype = changed[0][1].dtype.name
    return DTypeError(
        f"{name}: the carry changes its type from one step to the next.\n{lines}"
        f"  Start with the type that it becomes, or convert it back: x.astype({dtype!r})."
    )


def _stage_carry(
    name: str,
    body: Callable[..., Any],
    init: Any,
    more: Sequence[ArrayType],
    more_structure: Any,
    names: Sequence[str] | None = None,
) -> tuple[Staged, list[Any], Any]:
    """Traces a loop's body until the carry has a stable type.

    Args:
        name: of the loop, for errors.
        body: takes the carry, and more.
        init: the first carry.
        more: the types of what else the body takes.
        more_structure: the pytree that they make.
        names: what errors call the leaves of the carry.

    Returns:
        The traced body, as the primitives take it; the leaves of `init`, converted; the structure
        of the carry.
    """
    leaves, own_names, weak, structure = flatten_arrays(name, "carry", init)
    while True:
        types = [
            ArrayType(type_of(x).shape, type_of(x).dtype, w)
            for x, w in zip(leaves, weak, strict=True)
        ]
        both = tree.treedef_tuple([structure, *more_structure.children()])
        staged = stage_body(name, "the body", body, [*types, *more], both)
        weak_outs = staged.weak
        carry_structure = staged.outputs.structure
        if more_structure != _EMPTY:
            carry_structure = carry_structure.children()[0]
        if carry_structure != structure:
            carried = staged.program.output_types[: carry_structure.num_leaves]
            raise StructureError(
                f"{name}: the carry changes its structure from one step to the next.\n"
                f"  before: {shown(structure, [t.update() for t in types])}\n"
                f"  after: {shown(carry_structure, carried)}\n"
                f"  Return the carry with the containers that it came in."
            )
        after = staged.program.output_types[: len(leaves)]
        changed = False
        for i, (t, new) in enumerate(zip(types, after, strict=True)):
            # A Python scalar takes the type that the body makes of it.
            if t.dtype == new.dtype and t.shape == new.shape:
                continue
            if weak_outs[i] and t.shape == new.shape and _holds(t.dtype, new.dtype):
                continue
            if not weak[i] or t.shape != new.shape or not _holds(new.dtype, t.dtype):
                raise _carry_mismatch(name, names or own_names, types, after)
            leaf = leaves[i]
            is_number = type(leaf) is np.ndarray  # which no equation need convert
            leaves[i] = leaf.astype(new.dtype) if is_number else cast(leaf, new.dtype)
            weak[i] = weak_outs[i]
            changed = True
        if not changed:
            dtypes = [t.dtype for t in (*types, *staged.program.output_types[len(leaves) :])]
            program = consts_first(staged.program, len(staged.captured), dtypes)
            kept = list(map(operator.and_, weak, weak_outs))
            weak_outs = kept + weak_outs[len(kept) :]
            return staged._replace(program=program, weak=weak_outs), leaves, structure


def _holds(dtype: np.dtype, scalar: np.dtype) -> bool:
    """Tells whether a Python scalar that counts as `scalar` can be held by an array of `dtype`."""

    def rank(d: np.dtype) -> int:
        return is_complex(d) + is_inexact(d) + (d.kind != "b")

    return rank(scalar) <= rank(dtype)


_EMPTY = tree.tree_structure(())


@boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Runs `f` once for each element, threading a carry and stacking the results.

    Args:
        f: from the carry and one element to `(carry, y)`; the carry keeps its structure and types.
        init: the first carry, a pytree of arrays.
        xs: a pytree of arrays whose axis 0 is gone through; None for none.
        length: the number of steps, needed only where `xs` holds no array.
        reverse: whether to go from the last element to the first; ys stay in the order of xs.
        unroll: how many steps XLA is to put into one turn of its loop; True for all,
            False for one.

    Returns:
        The last carry, and the ys stacked along axis 0.

    Example:
        >>> import numpy as np
        >>> total, partial = scan(lambda c, x: (c + x, c + x), 0.0, np.array([1.0, 2.0, 3.0]))
        >>> partial
        array([1., 3., 6.])
    """
    return scan_as("scan", f, init, xs, length, reverse, unroll)


def scan_as(
    name: str,
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    unroll: int | bool,
) -> tuple[Any, Any]:
    """Is `scan`, by the name that errors call it."""
    if unroll is not False and int(unroll) < 1:
        raise ArgumentError(
            f"{name}: unroll must be at least 1.\n  unroll: {unroll}\n"
            f"  Leave it out for one step in each turn of the loop."
        )
    elements, names, _, structure = flatten_arrays(name, "xs", xs)
    lengths, lines = set(), ""
    repeat = "  To repeat without elements, pass xs=None and length=n."
    for x, label in zip(elements, names, strict=True):
        t = type_of(x)
        if t.ndim == 0:
            raise ShapeError(
                f"{name}: xs must have an axis to go through.\n  {label}: {t}\n"
                + (repeat if name == "scan" else "  For one element, call the function itself.")
            )
        lengths.add(t.shape[0])
        lines += f"  {label}: axis 0 of {t} has size {t.shape[0]}\n"
    if length is not None:
        if int(length) < 0:
            raise ArgumentError(
                f"{name}: length must not be negative.\n  length: {length}\n"
                f"  Pass length=0 for no step at all."
            )
        lengths.add(int(length))
        lines += f"  length: {length}\n"
    if not lengths:
        raise ArgumentError(
            f"{name}: the number of steps is not known.\n  xs: {describe(xs)}\n  Pass length=n."
        )
    if len(lengths) > 1:
        raise ShapeError(
            f"{name}: the lengths differ.\n{lines}  Cut them to one: x[:{min(lengths)}]."
        )
    (count,) = lengths
    if isinstance(unroll, bool):
        unroll = max(count, 1) if unroll else 1

    def body(carry: Any, element: Any) -> Any:
        result = f(carry, element)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise StructureError(
                f"{name}: the body must return a pair (carry, y).\n  returned: {describe(result)}\n"
                f"  Write return carry, None where there is no y."
            )
        return result

    named(body, name_of(f))
    types = [type_of(x).update(shape=type_of(x).shape[1:]) for x in elements]
    element_structure = tree.treedef_tuple([structure])
    staged, carry, _ = _stage_carry(name, body, init, types, element_structure)
    outs = scan_p(
        *staged.captured,
        *carry,
        *elements,
        body=staged.program,
        consts=len(staged.captured),
        carry=len(carry),
        length=count,
        reverse=bool(reverse),
        unroll=int(unroll),
    )
    return staged.outputs.build(list(map(weakly, outs, staged.weak)))


@boundary
def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    max_steps: int | None = None,
) -> Any:
    """Runs `body_fun` for as long as `cond_fun` says so.

    Args:
        cond_fun: from the carry to a boolean scalar.
        body_fun: from the carry to the next carry, of the same structure and types.
        init_val: the first carry, a pytree of arrays.
        max_steps: the most steps that are taken, after which the loop stops. With it the loop can
            be differentiated in reverse mode; without, in forward mode only.

    Returns:
        The last carry.

    Example:
        >>> float(while_loop(lambda x: x < 100, lambda x: 2 * x, 3.0))
        192.0
    """
    return _while("while_loop", cond_fun, body_fun, init_val, max_steps)


def _while(
    name: str,
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None,
    names: Sequence[str] | None = None,
) -> Any:
    """Is `while_loop`, by the name that errors call it."""
    if max_steps is not None and (not isinstance(max_steps, SupportsIndex) or int(max_steps) < 0):
        raise ArgumentError(
            f"{name}: max_steps is an integer that is not negative.\n  max_steps: {max_steps!r}\n"
            f"  Leave it out for a loop without a bound."
        )
    staged, carry, structure = _stage_carry(name, body_fun, init_val, [], _EMPTY, names)
    types = [type_of(x) for x in carry]
    one = tree.treedef_tuple([structure])
    test = stage_body(name, "the condition", cond_fun, types, one)
    outs = test.program.output_types
    if len(outs) != 1 or outs[0].shape != ():
        raise ShapeError(
            f"{name}: the condition must return a boolean scalar.\n"
            f"  returned: {shown(test.outputs.structure, outs)}\n"
            f"  Reduce it: ftrans.numpy.any(...), ftrans.numpy.all(...)."
        )
    found = while_p(
        *test.captured,
        *staged.captured,
        *carry,
        cond=consts_first(test.program, len(test.captured), [np.dtype(bool)]),
        body=staged.program,
        cond_consts=len(test.captured),
        body_consts=len(staged.captured),
        bound=None if max_steps is None else int(max_steps),
    )
    return staged.outputs.build(list(map(weakly, found, staged.weak)))


@boundary
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Runs `body_fun(i, carry)` for i from `lower` to `upper` - 1.

    Args:
        lower: the first i.
        upper: one more than the last. Where both bounds are Python integers the loop is a scan,
            which has a reverse mode; else it is a while loop.
        body_fun: from i, an integer scalar, and the carry to the next carry.
        init_val: the first carry.
        unroll: as for `scan`, where the loop is one.

    Returns:
        The last carry.

    Example:
        >>> float(fori_loop(0, 4, lambda i, x: x * 2, 1.0))
        16.0
    """
    if isinstance(lower, (int, np.integer)) and isinstance(upper, (int, np.integer)):
        steps = np.arange(int(lower), int(upper), dtype=default_dtype(int))
        # i is no wider than what it meets, as numbers of Python's are
        step = named(lambda c, i: (body_fun(weakly(i, True), c), None), name_of(body_fun))
        unroll = 1 if unroll is None else unroll
        return scan_as("fori_loop", step, init_val, steps, None, False, unroll)[0]
    first, last = as_array(lower), as_array(upper)
    for label, x in (("lower", first), ("upper", last)):
        t = type_of(x)
        if t.shape != () or t.dtype.kind not in "iu":
            raise DTypeError(
                f"fori_loop: the bounds must be integer scalars.\n  {label}: {t}\n"
                f"  Convert it: {label}.astype('int32')."
            )
    dtype = result_type(first, last)
    first, last = cast(first, dtype), cast(last, dtype)
    names = ["i", *leaf_names("carry", tree.tree_structure(init_val))]
    _, carry = _while(
        "fori_loop",
        lambda state: state[0] < last,
        named(lambda state: (state[0] + 1, body_fun(*state)), name_of(body_fun)),
        (first, init_val),
        None,
        names,
    )
    return carry
