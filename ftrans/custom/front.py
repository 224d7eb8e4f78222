"""`external` and its kin: functions of arrays that are called, and not traced by ftrans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.custom.decorators import custom_jvp, custom_vjp, custom_vmap, linear
from ftrans.errors import ArgumentError, DTypeError
from ftrans.external.arrays import leaves_of
from ftrans.external.callee import METHODS, HostCallee
from ftrans.external.captures import check_captures
from ftrans.external.numba_kernel import NumbaCallee, is_numba
from ftrans.func.staging import name_of, named
from ftrans.interop.callee import JaxCallee, traced
from ftrans.ir import ArrayType, type_of
from ftrans.ir.stack import is_tracing
from ftrans.numpy.promotion import as_array, is_array, is_numeric, is_scalar
from ftrans.primitives.rules.external import Callee, Same, external_p
from ftrans.pytree import describe, leaf_name, structure_key
from ftrans.runtime.jaxlink import foreign
from ftrans.traceback import boundary, bounded

Made = tuple[Any, Callee, Sequence[Any]]
"""The structure of the results, what computes them, and arrays that it takes besides."""

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
    label = name or name_of(fn)

    def make(structure: Any, inputs: Sequence[ArrayType]) -> Made:
        outs, types = _out_types(label, out_type, structure, inputs)
        is_flat, is_one = _is_flat(structure, outs), tree.treedef_is_leaf(outs)

        def function(*leaves: Any) -> Sequence[Any]:
            if is_flat:
                found = fn(*leaves)
            else:
                args, kwargs = structure.unflatten(leaves)
                found = fn(*args, **kwargs)
            return [found] if is_one else leaves_of(label, outs, found)

        method: Any = "sequential" if callable(vmap_method) else vmap_method
        key = Same(fn), structure_key(structure, True), structure_key(outs, True)
        options: Any = {"key": key, "vmap_method": method}
        if is_flat and is_numba(fn):
            return outs, NumbaCallee(label, fn, inputs, types, **options), ()
        return outs, HostCallee(label, function, types, **options), ()

    return _calling(fn, label, make, vmap_method, jvp, vjp, transpose)


@boundary
def ffi(
    target: str,
    out_type: Any,
    *,
    vmap_method: str | Callable[..., Any] | None = None,
    jvp: Any = None,
    vjp: Any = None,
    transpose: Any = None,
    name: str | None = None,
    **attrs: Any,
) -> Callable[..., Any]:
    """Returns a function that calls a compiled handler, registered with `jax.ffi`.

    The call is part of the compiled program, wherever that runs; un-jitted it is dispatched by JAX.

    Args:
        target: the name under which `jax.ffi.register_ffi_target` knows the handler.
        out_type: the types of the results, as for `ftrans.external`.
        vmap_method: how a batch is computed, as for `ftrans.external`: "sequential" loops in the
            compiled program; the handler reads the sizes of "expand_dims" and "broadcast_all" from
            its buffers. None is "sequential".
        jvp: a rule for forward mode, as for `ftrans.external`.
        vjp: a rule for reverse mode, as there.
        transpose: the transpose, where it is linear, as there.
        name: how errors and programs call it; `target` by default.
        **attrs: attributes of the call, which the handler is given by name. Their types are those
            of NumPy's scalars: write `np.float32(2)` where the handler takes a `float`.

    Returns:
        The function, of arrays and pytrees of them.
    """
    label = name or target
    method = vmap_method if isinstance(vmap_method, str) else "sequential"

    def make(structure: Any, inputs: Sequence[ArrayType]) -> Made:
        outs, types = _out_types(label, out_type, structure, inputs)
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]

        def function(*arrays: Any) -> Any:
            call: Any = jax.ffi.ffi_call(target, specs, vmap_method=method)
            return outs.unflatten(call(*arrays, **attrs))

        return _traced(label, function, structure, inputs)

    return _calling(None, label, make, vmap_method, jvp, vjp, transpose)


@boundary
def traceable(
    fn: Callable[..., Any],
    *,
    vmap_method: Callable[..., Any] | None = None,
    jvp: Any = None,
    vjp: Any = None,
    transpose: Any = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Returns a function that calls one which JAX traces: one equation, whatever it does.

    That may be a Pallas kernel, a function of `jax.scipy` or of another library on JAX. The types
    of its results are those that JAX finds; its rules are asked of JAX at every order, by
    `jax.jvp`, `jax.vjp` and `jax.vmap`. As under `jax.jit`, what it closes over is what it was when
    it was first called on arguments of these types. One that is made anew, as a lambda where it is
    called, is traced anew, and compiled only where it does something else than before.

    Args:
        fn: takes and returns pytrees of arrays. It is traced with 64 bits switched on.
        vmap_method: a rule, `(axis_size, in_batched, *args) -> (out, out_batched)`; None has JAX
            map it.
        jvp: a rule for forward mode, as for `ftrans.external`; the rules of JAX are not used then.
        vjp: a rule for reverse mode, as there.
        transpose: the transpose, where it is linear, as there.
        name: how errors and programs call it; the name of `fn` by default.

    Returns:
        The function.

    Example:
        >>> import jax, numpy as np
        >>> from ftrans import func
        >>> norm = traceable(jax.scipy.special.logsumexp)
        >>> func.grad(norm)(np.zeros(4))
        array([0.25, 0.25, 0.25, 0.25])
    """
    label = name or name_of(fn)

    def make(structure: Any, inputs: Sequence[ArrayType]) -> Made:
        def function(*leaves: Any) -> Any:
            args, kwargs = structure.unflatten(leaves)
            return fn(*args, **kwargs)

        return _traced(label, function, structure, inputs)

    return _calling(fn, label, make, vmap_method, jvp, vjp, transpose)


def _traced(
    label: str, function: Callable[..., Any], structure: Any, inputs: Sequence[ArrayType]
) -> Made:
    """Has JAX trace a function of leaves."""
    shapes, call, key, arrays = traced(label, function, inputs)
    outs, types = _out_types(label, shapes, structure, inputs)
    return outs, JaxCallee(label, call, types, key), arrays


# ------------------------------------------------------------------------------- calls and types


def _calling(
    fn: Any,
    name: str,
    make: Callable[[Any, Sequence[ArrayType]], Made],
    vmap_method: Any,
    jvp: Any,
    vjp: Any,
    transpose: Any,
) -> Callable[..., Any]:
    """Returns a function of pytrees that calls one callee for each signature, with these rules.

    It has the docstring and the signature of `fn`. The callee is made of the structure of the
    arguments and the types of their leaves.
    """
    _check_options(name, vmap_method, jvp, vjp, transpose)
    known: dict[Any, Made] = {}

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
        key = structure_key(structure, True), inputs
        found = known.get(key)
        if found is None:
            found = make(structure, inputs)
            if not foreign(found[2]):  # what JAX traces is gone after its transformation
                if len(known) >= _LIMIT:
                    known.clear()
                found = known.setdefault(key, found)
        outs, callee, arrays = found
        return outs.unflatten(external_p(*operands, *arrays, callee=callee))

    function: Any = named(bounded(fn)(called) if callable(fn) else called, name)
    if callable(vmap_method):
        function = custom_vmap(function)
        function.vmap_rule, function.vmap_name = vmap_method, "vmap_method"
        function.written = (vmap_method,)
    if transpose is not None:
        return linear(function, transpose)
    if jvp is None and vjp is None:
        return function
    made: Any = custom_jvp(function) if vjp is None else custom_vjp(function)
    made.lasting = True  # the function has no other derivative
    made.rule = jvp
    made.fwd, made.bwd = vjp if isinstance(vjp, tuple) else (None, vjp)
    made.written = (jvp, made.fwd, made.bwd)
    return made


def _check_options(name: str, method: Any, jvp: Any, vjp: Any, transpose: Any) -> None:
    """Raises unless the rules have the forms that there are."""
    if not (method is None or callable(method) or method in METHODS):
        raise ArgumentError(
            f"{name}: vmap_method is none that there is.\n  vmap_method: {method!r}\n"
            f"  Write one of {', '.join(map(repr, METHODS))}, or a rule\n"
            f"  (axis_size, in_batched, *args) -> (out, out_batched)."
        )
    if transpose is not None and not (jvp is None and vjp is None):
        raise ArgumentError(
            f"{name}: transpose= says that it is linear, and all derivatives follow from that.\n"
            f"  Leave out jvp= and vjp=, or transpose=."
        )
    pair = isinstance(vjp, tuple) and len(vjp) == 2 and all(map(callable, vjp))
    if not (vjp is None or callable(vjp) or pair):
        raise ArgumentError(
            f"{name}: vjp= takes a rule, or a pair.\n  vjp: {vjp!r}\n"
            f"  Write vjp=lambda primals, out, ct: cotangents, or vjp=(fwd, bwd)."
        )
    jvp_form, transpose_form = "primals, tangents: (out, tangent_out)", "ct: cotangents"
    for label, rule, form in (("jvp", jvp, jvp_form), ("transpose", transpose, transpose_form)):
        if not (rule is None or callable(rule)):
            raise ArgumentError(
                f"{name}: {label}= takes a rule.\n  {label}: {rule!r}\n"
                f"  Write {label}=lambda {form}."
            )


def _out_types(
    name: str, out_type: Any, structure: Any, inputs: Sequence[ArrayType]
) -> tuple[Any, list[ArrayType]]:
    """Returns the structure of the results, and their types, as they are declared.

    Raises:
        DTypeError: where one of them is no type.
    """
    if callable(out_type) and not isinstance(out_type, (ArrayType, type)):
        args, kwargs = structure.unflatten(inputs)
        out_type = out_type(*args, **kwargs)
    leaves, outs = tree.tree_flatten_with_path(out_type)
    for path, leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) or not is_numeric(
            np.dtype(leaf.dtype)
        ):
            raise DTypeError(
                f"{name}: out_type must hold the types of the results.\n"
                f"  {leaf_name('out_type', path)}: {leaf!r}\n"
                f'  Write ftrans.ArrayType(shape, "float32"), or a function of the types of the\n'
                f"  arguments: lambda x: x."
            )
    return outs, [ArrayType(tuple(leaf.shape), np.dtype(leaf.dtype)) for _, leaf in leaves]


def _is_flat(structure: Any, outs: Any) -> bool:
    """Tells whether arguments and results are arrays by themselves, as machine code takes them."""
    n, m = structure.num_leaves, outs.num_leaves
    takes_arrays = structure.unflatten([0] * n) == ((0,) * n, {})
    return takes_arrays and m > 0 and outs.unflatten([0] * m) in (0, (0,) * m)


def _unfit(name: str, arguments: Any, index: int, leaf: Any) -> DTypeError:
    path = tree.tree_flatten_with_path(arguments)[0][index][0]
    label = leaf_name("args" if path[0].idx == 0 else "kwargs", path[1:])
    return DTypeError(
        f"{name}: it takes arrays, Python scalars and pytrees of them.\n"
        f"  {label}: {describe(leaf)}\n"
        f"  Close over what is no array: ftrans.external(lambda x: f(x, option), ...)."
    )
