"""Memory for time: `checkpoint`, whose derivative computes again what is not saved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import jax.tree_util as tree

from ftrans.errors import ArgumentError, MutationError
from ftrans.func.staging import is_whole, known_inputs, name_of, named, stage
from ftrans.interpreters.dependence import depends
from ftrans.ir import Params, Tracer, bind
from ftrans.ir.stack import state
from ftrans.numpy.promotion import is_array, weakly
from ftrans.primitives import checkpoint_p, named_p, stop_gradient_p
from ftrans.primitives.policies import checked
from ftrans.pytree import argument_name, describe, leaf_name, split
from ftrans.runtime.jaxlink import is_traced_by_jax
from ftrans.traceback import OnTape, boundary, bounded


@boundary
def checkpoint(
    func: Callable[..., Any] | None = None,
    *,
    policy: Callable[..., bool | str] | None = None,
    prevent_cse: bool = True,
    static_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:
    """Returns a function whose derivatives compute again what they need, instead of keeping it.

    Between forward and backward, memory holds the arguments of the function, what it closes over
    and what the policy saves. What is computed again is computed of the same numbers: keys and
    draws of generators are arguments. It is real in compiled code too, where XLA would take what is
    computed twice for the same, and on the CPU undoes `jax.checkpoint`.

    Args:
        func: any function. What it takes and returns may hold what is no array, which passes
            through. It must not write to its arguments. Without it a decorator is returned.
        policy: which results are saved besides, one of `func.checkpoint_policies` or a function
            `(primitive, *types, **params) -> bool | str` of an equation, "host" for what is saved
            in the host's memory; make it once, since it is told from others by its identity. By
            default those of calls of what is not traced (`external`, opaque methods of a
            `Function`) are saved, and of loops and branches that hold some, so that nothing is
            called again; and nothing else is.
        prevent_cse: False leaves it to XLA whether anything is computed twice; in the body of a
            `scan` it is, whatever is said here.
        static_argnums: positional arguments whose arrays are passed as they are, not traced.

    Raises:
        ArgumentError: where the policy is none, or positions are no ints; and those of no argument,
            when it is called.
        MutationError: where the function writes to an argument, when it is called.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> layer = checkpoint(lambda x: fnp.tanh(fnp.sin(x)))
        >>> from ftrans.func import grad
        >>> grad(lambda x: layer(layer(x)).sum())(np.zeros(2))
        array([1., 1.])
    """
    given: Any = (static_argnums,) if is_whole(static_argnums) else static_argnums
    if not (isinstance(given, Sequence) and all(map(is_whole, given))):
        raise ArgumentError(
            f"checkpoint: static_argnums is an int, or a tuple of them.\n"
            f"  static_argnums: {describe(static_argnums)}\n"
            f"  Leave it out: what is no array is static anyway."
        )
    saves = None if policy is None else checked("checkpoint", policy)
    if func is None:
        options: Any = {"policy": saves, "prevent_cse": prevent_cse, "static_argnums": given}
        return functools.partial(checkpoint, **options)
    name = f"checkpoint({name_of(func)})"

    @bounded(func)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        if wrong := [number for number in given if not -count <= number < count]:
            raise ArgumentError(
                f"{name}: static_argnums names an argument that is not passed by position.\n"
                f"  static_argnums: {wrong[0]}\n  positional arguments: {count}\n"
                f"  Count them from 0, or from the last with -1; those with names are traced."
            )
        static = {number % count for number in given}
        passed = tuple([None if i in static else x for i, x in enumerate(args)])
        values, skeleton = split((passed, kwargs), is_array)
        if not (state.stack or any(map(is_traced_by_jax, values))):
            return func(*args, **kwargs)  # nothing is differentiated

        def call(*tracers: Any) -> Any:
            before = [x.index for x in tracers]
            built, by_name = skeleton.build(tracers)
            filled = [args[i] if i in static else x for i, x in enumerate(built)]
            result = OnTape.returned(func(*filled, **by_name))
            for number, x in enumerate(tracers):
                if x.index != before[number]:
                    raise _written(name, func, (passed, kwargs), number)
            return result

        inputs = known_inputs(values)
        staged = stage(name, call, inputs)
        params = {"program": staged.program, "policy": saves, "prevent_cse": bool(prevent_cse)}
        found = bind(checkpoint_p, staged.operands(inputs), Params(params))
        moved = [bool(needs.inputs) for needs in depends(staged.program)]
        # what no derivative goes through inside is none to those who ask outside
        found = [x if m else stop_gradient_p(x) for x, m in zip(found, moved, strict=True)]
        weak = zip_longest(found, staged.weak, fillvalue=False)
        return staged.outputs.build([weakly(x, w) if w else x for x, w in weak])

    return named(checkpointed, name)


def _written(name: str, func: Any, given: Any, number: int) -> MutationError:
    paths = [(path, x) for path, x in tree.tree_flatten_with_path(given)[0] if is_array(x)]
    (kind, *path), x = paths[number]
    label = leaf_name("kwargs", path) if kind.idx else argument_name(func, path)
    return MutationError(
        f"{name}: the function writes to an argument, which is computed with again.\n"
        f"  {label}: {describe(x)}\n  Write to a copy, x = x.copy(), and return it."
    )


remat = checkpoint


@boundary
def checkpoint_name(x: Any, name: str) -> Any:
    """Gives arrays a name by which the policy of a `checkpoint` around them can save them.

    Args:
        x: a pytree; leaves that are no arrays are returned as they are.
        name: any string.

    Returns:
        The same values.

    Raises:
        ArgumentError: where the name is no string.

    Example:
        >>> from ftrans.func import checkpoint_policies, grad
        >>> saves = checkpoint_policies.save_only_these_names("square")
        >>> layer = checkpoint(lambda x: checkpoint_name(x**2, "square") ** 2, policy=saves)
        >>> float(grad(layer)(2.0))
        32.0
    """
    if not isinstance(name, str):
        raise ArgumentError(
            f"checkpoint_name: the name must be a string.\n  name: {describe(name)}\n"
            f"  Write checkpoint_name(x, 'x')."
        )

    def called(leaf: Any) -> Any:
        if not (isinstance(leaf, Tracer) or is_traced_by_jax(leaf)):
            return leaf
        return weakly(named_p(leaf, name=name), isinstance(leaf, Tracer) and leaf.weak)

    return tree.tree_map(called, x)
