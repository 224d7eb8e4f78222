"""Gradients of scalar functions: `grad`, `grad_and_value`, `value_and_grad`; `stop_gradient`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import jax.tree_util as tree

from ftrans.errors import DTypeError, ShapeError, StructureError
from ftrans.func.arguments import Arguments
from ftrans.func.budget import Budget
from ftrans.func.proven import proven
from ftrans.func.staging import (
    apply,
    known_inputs,
    name_of,
    named,
    split_aux,
    stage,
    wants_jax,
)
from ftrans.interpreters import value_and_grad as differentiate
from ftrans.ir import Tracer, type_of
from ftrans.ir.dtype import is_complex, is_float
from ftrans.ir.stack import REVERSE, state
from ftrans.numpy import elementwise
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.pytree import describe
from ftrans.traceback import boundary, bounded


def gradient_value_aux(
    name: str,
    func: Callable[..., Any],
    argnums: int | Sequence[int] | None,
    has_aux: bool,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    with_value: bool = True,
    budget: Budget | None = None,
) -> tuple[Any, Any, Any]:
    """Calls `func` and returns its gradient, value (None if not asked for) and aux.

    Its `name` is for errors.
    """
    arguments = Arguments(name, func, args, argnums)

    def scalar_first(*tracers: Any) -> Any:
        result = arguments.call(func, tracers, kwargs)
        if not has_aux:
            return _check_scalar(name, result, False)
        value, aux = split_aux(name, result)
        return _check_scalar(name, value, True), aux

    inputs = known_inputs(arguments.values)
    folds = budget is None  # else it is cut where it is narrow
    # what is made of other arguments counts as well, and may be made again
    closed = budget is not None and bool(state.stack)
    staged = stage(
        name, scalar_first, inputs, closed=closed, order=REVERSE, folds=folds, has_aux=has_aux
    )
    count = len(inputs)
    active = (True,) * count + (False,) * len(staged.captured)
    source = staged.program
    if budget is not None:
        source = budget.planned(source, active, with_value)
    program = differentiate(source, active, with_value)
    operands = staged.operands(inputs)
    weak = staged.weak and [*staged.weak[not with_value :], *map(itemgetter(2), inputs)]
    found = apply(program, operands, wants_jax(args, kwargs), weak=weak)
    if not has_aux:
        value, gradients = (found[0], found[1:]) if with_value else (None, found)
        return arguments.build(gradients), value, None
    if not with_value:
        found = [None, *found]
    outputs = staged.outputs.arrays
    value, aux = staged.outputs.build(found[:outputs])
    return arguments.build(found[outputs:]), value, aux


def _check_scalar(name: str, value: Any, has_aux: bool) -> Any:
    """Returns the value as an array, a real scalar; raises where it is none."""
    if type(value) is Tracer and value.type.shape == () and is_float(value.type.dtype):
        return value
    if is_array(value) or is_scalar(value):
        array = as_array(value)
        t = type_of(array)
        if t.shape == () and is_float(t.dtype):
            return array
        if t.shape != ():
            raise ShapeError(
                f"{name}: the function must return a scalar.\n"
                f"  returned: {t}\n"
                f"  Reduce it, value.sum(), or take func.jacrev of the function."
            )
        hint = (
            "Take the real part, value.real, or func.vjp with a cotangent of your choice."
            if is_complex(t.dtype)
            else "Integers and booleans have no derivative: return a value that depends smoothly."
        )
        raise DTypeError(
            f"{name}: the function must return a real floating-point scalar.\n"
            f"  returned: {t}\n  {hint}"
        )
    leaves = tree.tree_structure(value).num_leaves
    hint = (
        "To return more than the value, write return value, aux and pass has_aux=True."
        if leaves > 1 and not has_aux
        else "Return a single array of shape ()."
    )
    raise StructureError(
        f"{name}: the function must return a scalar.\n  returned: {describe(value)}\n  {hint}"
    )


@boundary
def grad(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    memory: int | str | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `func`.

    Args:
        func: returns a real scalar, or `(scalar, aux)` with `has_aux`. It may branch and loop on
            values.
        argnums: which positional arguments to differentiate: an int, or a tuple of them. Each may
            be a pytree; leaves that are no arrays are static and get the gradient None.
        has_aux: whether `func` returns something besides, of any type, that is passed through.
        memory: the bytes that the gradient may take beside its arguments and results, a number or
            a text such as "200 MB". So much of `func` is computed again as need be; XLA says what
            it comes to, for which up to some ten programs are compiled at the first call. What was
            chosen is told by `plan`, an attribute of the function that is returned. "offload"
            keeps what the derivative needs in the host's memory, which on a CPU is its own; there
            is nothing to choose then, and `plan` is None.

    Returns:
        A function of the same arguments that returns the gradient, in the structure of the
        argument (a tuple for a tuple of argnums), or `(gradient, aux)`. For complex arguments it
        is the conjugate Wirtinger derivative, as in PyTorch: the direction of steepest ascent.

    Raises:
        ArgumentError: where `memory` is none of these, or less than the gradient can do with.
        DTypeError: where an argument is an integer or no array, or the value is not real.
        ShapeError: where the value is not a scalar.

    Example:
        >>> float(grad(lambda x: x**3)(2.0))
        12.0
    """
    name = f"grad({name_of(func)})"
    budget = None if memory is None else Budget(name, memory)

    @bounded(func)
    @proven(name, func, "grad", argnums, has_aux, budget and (budget.nbytes,))
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, _, aux = gradient_value_aux(
            name, func, argnums, has_aux, args, kwargs, False, budget
        )
        return (found, aux) if has_aux else found

    made = named(gradient, name)
    return made if budget is None else budget.owned(made)


@boundary
def grad_and_value(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    memory: int | str | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the gradient of `func` and its value, in this order.

    Args:
        func: as for `grad`.
        argnums: as for `grad`.
        has_aux: as for `grad`.
        memory: as for `grad`.

    Returns:
        A function that returns `(gradient, value)`, or `(gradient, (value, aux))`.

    Example:
        >>> gradient, value = grad_and_value(lambda x: x**2)(3.0)
        >>> float(gradient), float(value)
        (6.0, 9.0)
    """
    name = f"grad_and_value({name_of(func)})"
    budget = None if memory is None else Budget(name, memory)

    @bounded(func)
    @proven(name, func, "grad_and_value", argnums, has_aux, budget and (budget.nbytes,))
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        found, value, aux = gradient_value_aux(
            name, func, argnums, has_aux, args, kwargs, budget=budget
        )
        return found, (value, aux) if has_aux else value

    made = named(gradient_and_value, name)
    return made if budget is None else budget.owned(made)


@boundary
def value_and_grad(
    func: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    memory: int | str | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes the value of `func` and its gradient, in JAX's order.

    Args:
        func: as for `grad`.
        argnums: as for `grad`.
        has_aux: as for `grad`.
        memory: as for `grad`.

    Returns:
        A function that returns `(value, gradient)`, or `((value, aux), gradient)`.

    Example:
        >>> value, gradient = value_and_grad(lambda x: x**2)(3.0)
        >>> float(value), float(gradient)
        (9.0, 6.0)
    """
    name = f"value_and_grad({name_of(func)})"
    budget = None if memory is None else Budget(name, memory)

    @bounded(func)
    @proven(name, func, "value_and_grad", argnums, has_aux, budget and (budget.nbytes,))
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        found, value, aux = gradient_value_aux(
            name, func, argnums, has_aux, args, kwargs, budget=budget
        )
        return ((value, aux) if has_aux else value), found

    made = named(value_and_gradient, name)
    return made if budget is None else budget.owned(made)


@boundary
def stop_gradient(x: Any) -> Any:
    """Returns the arrays of a pytree as constants: no derivative goes through them.

    Example:
        >>> loss = lambda w: w["a"] * stop_gradient(w)["a"]
        >>> float(grad(loss)({"a": 3.0})["a"])
        3.0
    """
    return tree.tree_map(elementwise.stop_gradient, x)
