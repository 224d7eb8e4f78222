"""`external`: a function of arrays that is called, not traced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.custom.front_rules import check_rules, with_rules
from ftrans.errors import ArgumentError, DTypeError, RuleError
from ftrans.external.callee import METHODS, HostCallee
from ftrans.external.captures import check_captures
from ftrans.external.linear import Transpose
from ftrans.external.numba_kernel import MachineCallee, is_machine
from ftrans.func.staging import name_of, named
from ftrans.ir import ArrayType, type_of
from ftrans.ir.stack import is_tracing
from ftrans.numpy.promotion import as_array, is_array, is_numeric, is_scalar
from ftrans.primitives.rules.external import Callee, external_p
from ftrans.pytree import describe, flatten_like, leaf_name, shown
from ftrans.traceback import boundary, bounded

__all__ = ["calling", "check_method", "external", "flat_rule", "flat_transpose", "shared_key"]

Make = Callable[[str, Any, Any, "tuple[ArrayType, ...]", "tuple[ArrayType, ...]"], Callee]
"""Makes a callee of its name, the structures of arguments and results, and the types of both."""

_LIMIT = 256
"""How many callees one function remembers, one for each signature."""


@boundary
def external(
    fn: Callable[..., Any],
    out_type: Any,
    *,
    vmap_method: str | Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    transpose: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Returns a function that calls `fn` on arrays that have values, under every transform.

    `fn` is not traced: it may be NumPy, a C library through ctypes, another framework. Un-jitted it
    runs at once, on the arrays as they are; compiled code calls it when it gets there. What it
    returns is held against `out_type` at each call, and what it raises reaches the caller as it is.

    Args:
        fn: takes pytrees of NumPy arrays that it must not write to, of `jax.Array`s where they lie
            on an accelerator; returns a pytree of arrays, or of what has `__dlpack__` or
            `__array__`. It must not have effects, since it may be called more or less often than
            it is written.
        out_type: the types of the results, a pytree of `ArrayType`, `jax.ShapeDtypeStruct` or
            arrays; or a function from the types of the arguments to that.
        vmap_method: how a batch is computed. "sequential" calls `fn` for one example after the
            other; "expand_dims" and "broadcast_all" call it once, on arrays with one more axis in
            front, which has size 1, or the size of the batch, for an argument that is not mapped;
            a function `(axis_size, in_batched, *args) -> (out, out_batched)` is the rule itself,
            with mapped axes in front. None is "sequential", with one warning.
        jvp: a rule for forward mode, `(primals, tangents) -> (out, tangent_out)`, as that of
            `ftrans.custom_jvp`.
        vjp: a rule for reverse mode, `(primals, out, ct) -> cotangents`, one for each argument; or
            a pair `(fwd, bwd)`, as those of `ftrans.custom_vjp`.
        transpose: says that `fn` is linear in all its arguments together, and takes cotangents of
            the results to those of the arguments. One of the three rules is enough for all
            transforms. A rule is traced; it may call external functions.
        name: how errors and programs call it; the name of `fn` by default.

    Returns:
        The function. Results follow the container of the arguments.

    Raises:
        RuleError: at a call, where `fn` returns something other than `out_type`.

    Example:
        >>> import numpy as np
        >>> sort = external(np.sort, lambda x: x, vmap_method="broadcast_all")
        >>> sort(np.array([3.0, 1.0, 2.0]))
        array([1., 2., 3.])
        >>> from ftrans import func
        >>> func.vmap(sort)(np.array([[2.0, 1.0], [0.0, -1.0]]))
        array([[ 1.,  2.],
               [-1.,  0.]])
    """
    shown_name = name or name_of(fn)
    check_method(shown_name, vmap_method)
    check_rules(shown_name, jvp, vjp, transpose)

    def make(
        label: str,
        structure: Any,
        outs: Any,
        inputs: tuple[ArrayType, ...],
        types: tuple[ArrayType, ...],
    ) -> Callee:
        is_flat, is_one = _is_flat(structure, outs), tree.treedef_is_leaf(outs)

        def function(*leaves: Any) -> Sequence[Any]:
            if is_flat:
                found = fn(*leaves)
            else:
                args, kwargs = structure.unflatten(leaves)
                found = fn(*args, **kwargs)
            return [found] if is_one else _leaves(label, outs, found)

        method = vmap_method
        if callable(vmap_method):
            method = flat_rule(label, vmap_method, structure, outs)
        key = shared_key(fn, structure, outs, vmap_method, transpose)
        linear = flat_transpose(label, transpose, structure, outs, key)
        if is_flat and is_machine(fn):
            return MachineCallee(
                label, fn, inputs, types, key=key, vmap_method=method, linear=linear
            )
        return HostCallee(label, function, types, key=key, vmap_method=method, linear=linear)

    return with_rules(calling(fn, shown_name, out_type, make), jvp, vjp)


def _is_flat(structure: Any, outs: Any) -> bool:
    """Tells whether arguments and results are arrays by themselves, as machine code takes them."""
    args, kwargs = structure.unflatten([0] * structure.num_leaves)
    found = outs.unflatten([0] * outs.num_leaves)
    return (
        not kwargs
        and args == (0,) * structure.num_leaves
        and found in (0, (0,) * outs.num_leaves)
        and outs.num_leaves > 0
    )


def calling(fn: Any, name: str, out_type: Any, make: Make) -> Callable[..., Any]:
    """Returns a function of pytrees that calls one callee for each signature.

    Args:
        fn: whose docstring and signature it has.
        name: how errors call it.
        out_type: see `external`.
        make: makes the callee.
    """
    known: dict[Any, tuple[Any, Callee]] = {}
    lock = threading.Lock()

    def called(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            check_captures(name, fn)
        leaves, structure = tree.tree_flatten((args, kwargs))
        operands = []
        for index, leaf in enumerate(leaves):
            if not (is_array(leaf) or is_scalar(leaf)):
                raise _unfit(name, (args, kwargs), index, leaf)
            operands.append(as_array(leaf))
        inputs = tuple([type_of(x).update() for x in operands])
        key = structure, inputs
        found = known.get(key)
        if found is None:
            outs, types = out_types(name, out_type, structure, inputs)
            found = outs, make(name, structure, outs, inputs, types)
            with lock:
                if len(known) >= _LIMIT:
                    known.clear()
                found = known.setdefault(key, found)
        outs, callee = found
        return outs.unflatten(external_p(*operands, callee=callee))

    return named(bounded(fn)(called) if callable(fn) else called, name)


def out_types(
    name: str, out_type: Any, structure: Any, inputs: Sequence[ArrayType]
) -> tuple[Any, tuple[ArrayType, ...]]:
    """Returns the structure of the results, and their types.

    Raises:
        DTypeError: where one of them is no type.
    """
    declared = out_type
    if callable(out_type) and not isinstance(out_type, (ArrayType, type)):
        args, kwargs = structure.unflatten(inputs)
        declared = out_type(*args, **kwargs)
    leaves, outs = tree.tree_flatten(declared)
    types = []
    for path, leaf in zip(tree.tree_flatten_with_path(declared)[0], leaves, strict=True):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) or not is_numeric(
            np.dtype(leaf.dtype)
        ):
            raise DTypeError(
                f"{name}: out_type must hold the types of the results.\n"
                f"  {leaf_name('out_type', path[0])}: {leaf!r}\n"
                f'  Write ftrans.ArrayType(shape, "float32"), or a function of the types of the\n'
                f"  arguments: lambda x: x."
            )
        types.append(ArrayType(tuple(leaf.shape), np.dtype(leaf.dtype)))
    return outs, tuple(types)


def flat_rule(
    name: str, rule: Callable[..., Any], structure: Any, outs: Any
) -> Callable[..., tuple[Any, Any]]:
    """Returns a user's rule for a batch as one that takes and returns sequences of leaves."""

    def flat(size: int, in_batched: Sequence[bool], *leaves: Any) -> tuple[Any, Any]:
        args, kwargs = structure.unflatten(leaves)
        flags, _ = structure.unflatten(in_batched)
        if kwargs:
            raise RuleError(
                f"{name}: its rule for vmap takes no keyword arguments.\n"
                f"  given: {', '.join(kwargs)}\n  Pass them by position."
            )
        found = rule(size, list(flags), *args)
        try:
            out, batched = found
        except (TypeError, ValueError):
            return found, None
        if isinstance(batched, bool):
            batched = [batched] * outs.num_leaves
        else:
            batched = _leaves(name, outs, batched, "out_batched")
        return _leaves(name, outs, out), batched

    return flat


def flat_transpose(
    name: str, transpose: Callable[..., Any] | None, structure: Any, outs: Any, key: Any
) -> Transpose | None:
    """Returns a user's transpose as one that takes and returns leaves; None where there is none."""
    if transpose is None:
        return None
    args, kwargs = structure.unflatten([0] * structure.num_leaves)

    def function(*leaves: Any) -> list[Any]:
        found = transpose(outs.unflatten(leaves))
        if len(args) + len(kwargs) == 1 and not isinstance(found, tuple):
            found = (found,)
        expected = tree.tree_structure((*args, *kwargs.values()))
        matched = flatten_like(expected, tuple(found))
        if matched is None:
            raise RuleError(
                f"{name}: what its transpose returns does not have the structure of the "
                f"arguments.\n  arguments: {shown(expected)}\n  returned: {describe(found)}\n"
                f"  Return a tuple of one cotangent for each argument, None where it is zero."
            )
        return matched

    return Transpose(name, function, ("transpose", id(transpose) if key is None else key))


def _leaves(name: str, outs: Any, found: Any, what: str = "its result") -> list[Any]:
    """Returns the leaves of what a function returned, which must have the declared structure.

    Raises:
        RuleError: where it has another one.
    """
    leaves = flatten_like(outs, found)
    if leaves is None:
        raise RuleError(
            f"{name}: {what} does not have the structure that it declares.\n"
            f"  declared: {shown(outs)}\n"
            f"  returned: {describe(found)}\n"
            f"  Return a pytree of the same containers, or declare what it returns."
        )
    return leaves


def _unfit(name: str, arguments: Any, index: int, leaf: Any) -> DTypeError:
    path = tree.tree_flatten_with_path(arguments)[0][index][0]
    label = leaf_name("args" if path[0].idx == 0 else "kwargs", path[1:])
    return DTypeError(
        f"{name}: it takes arrays, Python scalars and pytrees of them.\n"
        f"  {label}: {describe(leaf)}\n"
        f"  Close over what is no array: ftrans.external(lambda x: f(x, option), ...)."
    )


def shared_key(*parts: Any) -> Any:
    """Returns the parts where they can be hashed, so that equal callees are known for equal."""
    try:
        hash(parts)
    except TypeError:
        return None
    return parts


def check_method(name: str, method: Any) -> None:
    """Raises unless `vmap_method` is one that there is."""
    if not (method is None or callable(method) or method in METHODS):
        raise ArgumentError(
            f"{name}: vmap_method is none that there is.\n  vmap_method: {method!r}\n"
            f"  Write one of {', '.join(map(repr, METHODS))}, or a rule\n"
            f"  (axis_size, in_batched, *args) -> (out, out_batched)."
        )
