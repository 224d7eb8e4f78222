"""`external.ffi` and `external.jax`: what JAX can put into a compiled program, as one equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util as tree

from ftrans.custom.front import (
    calling,
    check_method,
    flat_rule,
    flat_transpose,
    shared_key,
)
from ftrans.custom.front_rules import check_rules, with_rules
from ftrans.external.batching import ruled
from ftrans.external.traceable import JaxCallee
from ftrans.func.staging import name_of
from ftrans.ir import ArrayType
from ftrans.ir.stack import untraced
from ftrans.runtime.jaxlink import x64
from ftrans.traceback import boundary

__all__ = ["ffi", "traceable"]


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
    check_method(label, vmap_method)
    check_rules(label, jvp, vjp, transpose)
    method = vmap_method if isinstance(vmap_method, str) else "sequential"

    def make(
        label: str, structure: Any, outs: Any, inputs: Sequence[ArrayType], types: Any
    ) -> JaxCallee:
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]

        def function(*arrays: Any) -> Sequence[Any]:
            call: Any = jax.ffi.ffi_call(target, specs, vmap_method=method)
            return call(*arrays, **attrs)

        given = tuple(sorted(attrs.items()))
        key = shared_key("ffi", target, structure, outs, vmap_method, transpose, given)
        return JaxCallee(
            label,
            function,
            types,
            key=key,
            rule=_rule(label, vmap_method, structure, outs, types),
            linear=flat_transpose(label, transpose, structure, outs, key),
        )

    return with_rules(calling(None, label, out_type, make), jvp, vjp)


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
    it was first called on arguments of these types.

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
    check_method(label, vmap_method)
    check_rules(label, jvp, vjp, transpose)

    def declared(*args: Any, **kwargs: Any) -> Any:
        given = tree.tree_map(lambda t: jax.ShapeDtypeStruct(t.shape, t.dtype), (args, kwargs))
        with x64(), untraced():
            return jax.eval_shape(fn, *given[0], **given[1])

    def make(
        label: str, structure: Any, outs: Any, inputs: Sequence[ArrayType], types: Any
    ) -> JaxCallee:
        def function(*leaves: Any) -> Sequence[Any]:
            args, kwargs = structure.unflatten(leaves)
            with untraced():  # it may call functions of ours on what JAX traces
                return outs.flatten_up_to(fn(*args, **kwargs))

        key = shared_key("jax", fn, structure, outs, vmap_method, transpose)
        return JaxCallee(
            label,
            function,
            types,
            key=key,
            rule=_rule(label, vmap_method, structure, outs, types),
            linear=flat_transpose(label, transpose, structure, outs, key),
        )

    return with_rules(calling(fn, label, declared, make), jvp, vjp)


def _rule(label: str, rule: Any, structure: Any, outs: Any, types: Any) -> Any:
    """Returns a user's rule for a batch as `JaxCallee` takes it; None where there is none."""
    if not callable(rule):
        return None
    flat = flat_rule(label, rule, structure, outs)

    def batch(size: int, operands: Sequence[Any], dims: Sequence[int | None]) -> Any:
        return ruled(label, flat, types, size, operands, dims)

    return batch
