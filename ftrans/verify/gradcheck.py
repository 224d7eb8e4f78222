"""`gradcheck` and `gradgradcheck`: derivatives held against differences, as PyTorch does it.

Verdicts, arguments and messages are PyTorch's. Every floating array among the inputs is checked:
there is no `requires_grad` here. Differences are taken of the function in double precision where
it takes that, so that inputs of lower precision get a verdict too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans.errors import GradcheckError, GradcheckInputError
from ftrans.func.staging import name_of
from ftrans.func.vjp import vjp
from ftrans.pytree import describe
from ftrans.traceback import boundary
from ftrans.verify.checks.jacobian import Comparison, Settings, check_outputs
from ftrans.verify.checks.promise import (
    batched_backward,
    batched_forward,
    multiplied_by_cotangent,
    nothing_defined,
    nothing_moves,
    random_like,
    same_twice,
    undefined,
)
from ftrans.verify.probe import Probe


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
    forward, backward = "check_forward_ad", "check_backward_ad"
    _check_flags(
        name,
        (True, check_forward_ad or check_backward_ad, f"{forward} or {backward}"),
        (check_batched_grad, check_backward_ad, f"{backward} for check_batched_grad"),
        (check_batched_forward_grad, check_forward_ad, f"{forward} for check_batched_forward_grad"),
    )
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
    return _verdict(name, _probe(name, func, inputs), settings, raise_exception)


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
    forward, backward = "check_fwd_over_rev", "check_rev_over_rev"
    _check_flags(
        name,
        (True, check_fwd_over_rev or check_rev_over_rev, f"{forward} or {backward}"),
        (check_undefined_grad, check_rev_over_rev, f"{backward} for check_undefined_grad"),
        (check_batched_grad, check_rev_over_rev, f"{backward} for check_batched_grad"),
    )
    probe = _probe(name, func, inputs)
    outs = [probe.leaves[i] for i in probe.outputs]
    if grad_outputs is None:
        cotangents = random_like(0, outs, gen_non_contig_grad_outputs)
    else:
        cotangents = list(_as_tuple(grad_outputs))
    size = len(probe.values)

    def pulled(*operands: Any) -> list[Any]:
        def select(*values: Any) -> list[Any]:
            found = probe(*values)
            # in double precision, the outputs may be of another one as well
            same = all(v.dtype == x.dtype for v, x in zip(values, probe.values, strict=True))
            check_outputs(name, probe.leaves, found, probe.outputs, with_dtypes=same)
            return [found[i] for i in probe.outputs]

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
    second = _probe(name, pulled, (*probe.values, *cotangents))
    return _verdict(name, second, settings, raise_exception)


def _name(func: Callable[..., Any]) -> str:
    """Returns how errors call a function; `apply` with the class that it belongs to."""
    owner = getattr(func, "__self__", None)
    return f"{owner.__name__}.apply" if isinstance(owner, type) else name_of(func)


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _check_flags(name: str, *flags: tuple[bool, bool, str]) -> None:
    """Raises where something is asked for, and what it needs is not set."""
    for is_asked, needed, text in flags:
        if is_asked and not needed:
            raise GradcheckInputError(f"{name}: the flags leave nothing to check.\n  Set {text}.")


def _probe(name: str, func: Callable[..., Any], inputs: Any) -> Probe:
    """Returns the probe; raises where it has no floating array, or one that overlaps itself."""
    args = _as_tuple(inputs)
    probe = Probe(func, args)
    if not probe.values:
        lines = "".join(f"  inputs[{i}]: {describe(arg)}\n" for i, arg in enumerate(args))
        raise GradcheckInputError(
            f"{name}: at least one input must be an array of floating point.\n{lines}"
            f"  Pass np.asarray(x, float): every floating array is checked, and nothing else is."
        )
    for label, value in zip(probe.labels, probe.values, strict=True):
        pairs = zip(getattr(value, "strides", ()), value.shape, strict=False)
        if value.size and any(stride == 0 and size > 1 for stride, size in pairs):
            raise GradcheckInputError(
                f"{name}: an input has a dimension with stride 0: its elements share memory.\n"
                f"  {label}: {describe(value)} with strides {value.strides}\n"
                f"  They cannot be perturbed one by one: pass {label}.copy()."
            )
    return probe


def _verdict(name: str, probe: Probe, settings: Settings, raise_exception: bool) -> bool:
    """Runs the checks in PyTorch's order, up to the first that fails."""
    forward, backward = settings.check_forward_ad, settings.check_backward_ad
    undefined_too = backward and settings.check_undefined_grad
    checks: tuple[tuple[bool, Callable[[Comparison], None]], ...] = (
        (backward, same_twice),
        (backward, lambda compared: compared.compare(forward=False)),
        (forward, lambda compared: compared.compare(forward=True)),
        (settings.check_batched_forward_grad, batched_forward),
        (backward and settings.check_batched_grad, batched_backward),
        (backward, multiplied_by_cotangent),
        (undefined_too, undefined),
        (undefined_too, nothing_defined),
    )
    try:
        compared = Comparison(name, probe, settings)
        if not probe.outputs:
            nothing_moves(compared)
            return True
        for is_asked, check in checks:
            if is_asked:
                check(compared)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True
