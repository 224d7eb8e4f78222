"""`gradcheck` and `gradgradcheck`: derivatives held against differences, as PyTorch does it.

Verdicts, arguments and messages are PyTorch's. Every floating array among the inputs is checked:
there is no `requires_grad` here. Differences are taken of the function in double precision where
it takes that, so that inputs of lower precision get a verdict too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import GradcheckError, GradcheckInputError
from ftrans.func.staging import name_of
from ftrans.func.vjp import vjp
from ftrans.traceback import boundary
from ftrans.verify.call import is_floating, like
from ftrans.verify.comparison import Comparison
from ftrans.verify.promises import (
    batched_backward,
    batched_forward,
    multiplied_by_cotangent,
    nothing_defined,
    nothing_moves,
    same_twice,
    undefined,
)
from ftrans.verify.subject import (
    Settings,
    Subject,
    check_outputs,
    checked_call,
    random_like,
    values_of,
)

__all__ = ["gradcheck", "gradgradcheck"]


@boundary
def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Tells whether the derivatives of a function are what differences say, or raises.

    Every floating array among `inputs` is checked; hold one fixed by closing over it.

    Args:
        func: takes arrays, returns an array or a pytree of arrays.
        inputs: its arguments: an array, or a tuple of arrays and of anything else.
        eps: the step of differences; None for 1e-6 in double precision, PyTorch's default.
        atol: the absolute tolerance; None for 1e-5 in double precision, more in lower ones.
        rtol: the relative tolerance; None for 1e-3 in double precision, more in lower ones.
        raise_exception: whether a wrong derivative raises; else it returns False.
        nondet_tol: how far two runs of a pullback may differ, of one trace or of two.
        check_undefined_grad: whether outputs that are not used must be treated as zeros; so must be
            all at once, by each `backward` that has asked for None.
        check_grad_dtypes: whether gradients must have the dtype of their inputs.
        check_batched_grad: whether `vmap` of the pullback is held against single calls.
        check_batched_forward_grad: whether `vmap` of `jvp` is held against single calls.
        check_forward_ad: whether `jvp` is checked.
        check_backward_ad: whether `vjp` is checked.
        fast_mode: whether random projections of Jacobians are compared, not Jacobians.
        masked: taken for the sake of PyTorch's signature: there are no sparse arrays here.

    Returns:
        True where all derivatives are right.

    Raises:
        GradcheckError: where one is not, and `raise_exception` is set.
        GradcheckOutputError: where outputs have another type, or another number, beside the point;
            it is a `GradcheckError` and, as in PyTorch, an `AssertionError`.
        GradcheckInputError: where nothing can be checked: no floating input, overlapping memory.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> gradcheck(fnp.sin, np.array([0.3, 0.5]))
        True
        >>> gradcheck(lambda x: fnp.where(x > 0, x, 0.0), np.array([0.0]), raise_exception=False)
        False
    """
    name = f"gradcheck({_name(func)})"
    for asked, needed, flags in (
        (True, check_forward_ad or check_backward_ad, "check_forward_ad or check_backward_ad"),
        (check_batched_grad, check_backward_ad, "check_backward_ad for check_batched_grad"),
        (
            check_batched_forward_grad,
            check_forward_ad,
            "check_forward_ad for check_batched_forward_grad",
        ),
    ):
        if asked and not needed:
            raise GradcheckInputError(f"{name}: the flags leave nothing to check.\n  Set {flags}.")
    settings = Settings(
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_batched_forward_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
    )
    try:
        subject = Subject(name, func, _as_tuple(inputs), settings)
        _run(subject)
        if subject.outputs and check_backward_ad and check_undefined_grad:
            nothing_defined(subject)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


@boundary
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Tells whether second derivatives are what differences of first ones say, or raises.

    It is `gradcheck` of the pullback, as a function of the inputs and of the cotangents.

    Args:
        func: takes arrays, returns an array or a pytree of arrays.
        inputs: its arguments: an array, or a tuple of arrays and of anything else.
        grad_outputs: the cotangents, one per floating output; None for random ones.
        eps: see `gradcheck`.
        atol: see `gradcheck`.
        rtol: see `gradcheck`.
        gen_non_contig_grad_outputs: whether random cotangents are made non-contiguous.
        raise_exception: see `gradcheck`.
        nondet_tol: see `gradcheck`.
        check_undefined_grad: see `gradcheck`.
        check_grad_dtypes: see `gradcheck`.
        check_batched_grad: see `gradcheck`.
        check_fwd_over_rev: whether the `jvp` of the pullback is checked.
        check_rev_over_rev: whether the `vjp` of the pullback is checked.
        fast_mode: see `gradcheck`.
        masked: taken for the sake of PyTorch's signature.

    Returns:
        True where all second derivatives are right.

    Raises:
        GradcheckError: where one is not, and `raise_exception` is set.
        GradcheckInputError: where nothing can be checked.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> gradgradcheck(fnp.sin, np.array([0.3, 0.5]), check_fwd_over_rev=True)
        True
    """
    name = f"gradgradcheck({_name(func)})"
    for asked, needed, flags in (
        (
            True,
            check_fwd_over_rev or check_rev_over_rev,
            "check_fwd_over_rev or check_rev_over_rev",
        ),
        (check_undefined_grad, check_rev_over_rev, "check_rev_over_rev for check_undefined_grad"),
        (check_batched_grad, check_rev_over_rev, "check_rev_over_rev for check_batched_grad"),
    ):
        if asked and not needed:
            raise GradcheckInputError(f"{name}: the flags leave nothing to check.\n  Set {flags}.")
    args = _as_tuple(inputs)
    call = checked_call(name, func, args)
    outs = values_of(call)
    numbers = [i for i, out in enumerate(outs) if is_floating(out)]
    if grad_outputs is None:
        draw = np.random.default_rng(0)
        cotangents = tuple(
            like(random_like(draw, outs[i], gen_non_contig_grad_outputs), outs[i]) for i in numbers
        )
    else:
        cotangents = _as_tuple(grad_outputs)
    size = len(call.values)

    def pulled(*operands: Any) -> list[Any]:
        def select(*values: Any) -> list[Any]:
            found = call(*values)
            # in double precision, the outputs may be of another one as well
            same = all(v.dtype == x.dtype for v, x in zip(values, call.values, strict=True))
            check_outputs(name, outs, found, numbers, with_dtypes=same)
            return [found[i] for i in numbers]

        _, pullback = vjp(select, *operands[:size])
        return list(pullback(list(operands[size:])))

    settings = Settings(
        eps,
        atol,
        rtol,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        False,
        check_fwd_over_rev,
        check_rev_over_rev,
        fast_mode,
    )
    try:
        _run(Subject(name, pulled, (*call.values, *cotangents), settings))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _name(func: Callable[..., Any]) -> str:
    """Returns how errors call a function; `apply` with the class that it belongs to."""
    owner = getattr(func, "__self__", None)
    return f"{owner.__name__}.apply" if isinstance(owner, type) else name_of(func)


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _run(subject: Subject) -> None:
    """Runs the checks in PyTorch's order; raises `GradcheckError` at the first that fails."""
    settings = subject.settings
    if not subject.outputs:
        nothing_moves(subject)
        return
    comparison = Comparison(subject)
    compare = comparison.compare_fast if settings.fast_mode else comparison.compare
    if settings.check_backward_ad:
        same_twice(subject)
        compare(forward=False)
    if settings.check_forward_ad:
        compare(forward=True)
    if settings.check_batched_forward_grad:
        batched_forward(subject)
    if not settings.check_backward_ad:
        return
    if settings.check_batched_grad:
        batched_backward(subject)
    multiplied_by_cotangent(subject)
    if settings.check_undefined_grad:
        undefined(subject)
