"""`gradcheck` and `gradgradcheck`: derivatives held against differences, as PyTorch does it.

Verdicts, arguments and messages are PyTorch's. Every floating array among the inputs is checked:
there is no `requires_grad` here. Differences are taken of the function in double precision where
it takes that, so that inputs of lower precision get a verdict too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import GradcheckError, GradcheckInputError
from ftrans.func.staging import name_of
from ftrans.pytree import describe
from ftrans.traceback import boundary
from ftrans.verify.checks.contract import is_function
from ftrans.verify.checks.jacobian import Comparison, Settings, steady
from ftrans.verify.coordinates import (
    close,
    hosts,
    is_complex,
    is_floating,
    largest,
    precision_of,
    with_gaps,
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
    _check_arguments(
        name,
        eps,
        (True, check_forward_ad or check_backward_ad, f"{forward} or {backward}"),
        (check_batched_grad, check_backward_ad, f"{backward} for check_batched_grad"),
        (check_batched_forward_grad, check_forward_ad, f"{forward} for check_batched_forward_grad"),
    )
    modes = (check_backward_ad, check_forward_ad, check_batched_grad, check_batched_forward_grad)
    details = (check_undefined_grad, check_grad_dtypes, fast_mode)
    asked = Settings(eps, atol, rtol, nondet_tol, *details, *modes)
    return _verdict(name, _probe(name, func, inputs), asked, raise_exception)


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
        grad_outputs: the cotangents, one per floating output, of its shape; None for random ones.
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
    _check_arguments(
        name,
        eps,
        (True, check_fwd_over_rev or check_rev_over_rev, f"{forward} or {backward}"),
        (check_undefined_grad, check_rev_over_rev, f"{backward} for check_undefined_grad"),
        (check_batched_grad, check_rev_over_rev, f"{backward} for check_batched_grad"),
    )
    probe = _probe(name, func, inputs)
    if grad_outputs is None:
        cotangents = probe.cotangents("given")
        if gen_non_contig_grad_outputs:
            cotangents = list(map(with_gaps, cotangents))
    else:
        cotangents = list(_as_tuple(grad_outputs))
        if len(cotangents) != len(probe.outs) or not all(map(_is_like, cotangents, probe.outs)):
            raise GradcheckInputError(
                f"{name}: grad_outputs are not like the outputs of floating point.\n"
                f"  outputs: {', '.join(map(describe, probe.outs))}\n"
                f"  grad_outputs: {', '.join(map(describe, cotangents))}\n"
                f"  Pass an array of the same shape for each output, or None for random ones."
            )
        cotangents = list(map(_fitted, cotangents, probe.outs))

    modes = (check_rev_over_rev, check_fwd_over_rev, check_batched_grad, False)
    details = (check_undefined_grad, check_grad_dtypes, fast_mode)
    asked = Settings(eps, atol, rtol, nondet_tol, *details, *modes)
    second = _probe(name, probe.pulled, (*probe.values, *cotangents), probe.like)
    # what does not float has no first derivatives
    return not probe.outputs or _verdict(name, second, asked, raise_exception)


def _name(func: Callable[..., Any]) -> str:
    """Returns how errors call a function; `apply` with the class that it belongs to."""
    owner = getattr(func, "__self__", None)
    return f"{owner.__name__}.apply" if isinstance(owner, type) else name_of(func)


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _is_like(ct: Any, out: Any) -> bool:
    if isinstance(ct, (float, complex)):
        return out.shape == ()
    return is_floating(ct) and is_complex(ct) == is_complex(out) and ct.shape == out.shape


def _fitted(ct: Any, out: Any) -> Any:
    """Returns a cotangent in the precision of its output."""
    return ct if getattr(ct, "dtype", out.dtype) == out.dtype else np.asarray(ct, out.dtype)


def _check_arguments(name: str, eps: Any, *flags: tuple[bool, bool, str]) -> None:
    """Raises where there is no step, or something is asked for and what it needs is not set."""
    if eps is not None and not (isinstance(eps, (int, float, np.floating)) and 0 < eps < math.inf):
        raise GradcheckInputError(
            f"{name}: eps must be a number above zero, and finite.\n  eps: {eps!r}\n"
            f"  Leave it out for 1e-6, or write eps=1e-6."
        )
    for is_asked, needed, text in flags:
        if is_asked and not needed:
            raise GradcheckInputError(f"{name}: the flags leave nothing to check.\n  Set {text}.")


def _probe(name: str, func: Any, inputs: Any, make: Callable[..., Probe] | None = None) -> Probe:
    """Returns the probe; raises where it has no floating array, or one that overlaps itself."""
    args = _as_tuple(inputs)
    if is_function(func):
        raise GradcheckInputError(
            f"{name}: it takes a function, and was given a `Function` class.\n"
            f"  Pass {func.__name__}.apply; check_rules takes the class."
        )
    made = getattr(func, "__ftrans_probe__", Probe) if make is None else make
    probe: Probe = made(steady(name, func), args)
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


def _verdict(name: str, probe: Probe, asked: Settings, raise_exception: bool) -> bool:
    """Runs the checks in PyTorch's order, up to the first that fails."""
    checks: tuple[tuple[bool, Callable[[Comparison], None]], ...] = (
        (asked.backward, _same_twice),
        (asked.backward, lambda compared: compared.compare(forward=False)),
        (asked.forward, lambda compared: compared.compare(forward=True)),
        (asked.batched_forward, lambda compared: _batched(compared, forward=True)),
        (asked.backward and asked.batched, lambda compared: _batched(compared, forward=False)),
        (asked.backward, _multiplied_by_cotangent),
        (asked.backward and asked.undefined, _undefined),
    )
    try:
        compared = Comparison(name, probe, asked)
        if not probe.outputs:
            compared.compare_nothing()
            return True
        for is_asked, check in checks:
            if is_asked:
                check(compared)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


# ------------------------------------------------- what derivatives must be besides right


def _same_twice(compared: Comparison) -> None:
    """Checks that two runs of a pullback give the same numbers, and one that is traced anew.

    What was random while the first was traced is another there. In the second trace each `backward`
    that asks for None is called with None for all cotangents.
    """
    runs: list[list[np.ndarray]] = []
    cotangents = compared.probe.cotangents("0")
    _repeat(compared, compared.pullback, cotangents, runs)
    if compared.settings.undefined:
        again, compared.heard = compared.probe.heard()
    else:
        again = compared.probe.pullback()
    _repeat(compared, again, cotangents, runs)


def _repeat(compared: Comparison, pullback: Any, cotangents: list[Any], runs: list[Any]) -> None:
    """Runs a pullback until it gives what an earlier run gave; adds to these.

    The road may change between two runs, from interpreting to compiling, which moves last digits.
    """
    gap, tolerance = 0.0, compared.settings.nondet_tol
    for _ in range(4):
        run = hosts(pullback(list(cotangents)))
        if any(all(close(a, b, tolerance) for a, b in zip(one, run, strict=True)) for one in runs):
            return
        runs.append(run)
        if runs[1:]:
            pairs = list(zip(runs[-2], run, strict=True))
            gap = max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs)
            if not all(close(a, b, 100 * precision_of(a) * largest(a)) for a, b in pairs):
                break
    raise compared.error(
        f"Backward is not reentrant, i.e., running backward with same input and "
        f"grad_output multiple times gives different values.\n"
        f"  the gradients differ by {gap:.3g}; nondet_tol: {tolerance}\n"
        f"  Take what is random, or kept between calls, out of the rule, or pass nondet_tol."
    )


def _multiplied_by_cotangent(compared: Comparison) -> None:
    """Checks that zero cotangents give zeros, and gradients the dtypes of inputs."""
    probe = compared.probe
    grads = compared.pullback(list(map(np.zeros_like, probe.outs)))
    for grad, value, label in zip(grads, probe.values, probe.labels, strict=True):
        if np.any(np.asarray(grad) != 0):
            raise compared.error(
                f"backward not multiplied by grad_output.\n"
                f"  for cotangents of zeros, the gradient of {label} is {np.asarray(grad)}\n"
                f"  A pullback is linear: multiply each term by the cotangent."
            )
        if compared.settings.dtypes and grad.dtype != value.dtype:
            raise compared.error(
                f"Gradient has dtype mismatch.\n"
                f"  {label}: {value.dtype}\n  its gradient: {grad.dtype}"
            )


# ------------------------------------------------------------------------- cotangents that are None


def _undefined(compared: Comparison) -> None:
    """Checks that outputs that are not used count as such whose cotangents are zero.

    One after the other is left out; all are for each `backward` that asks for None, see
    `_same_twice`.
    """
    probe = compared.probe
    cotangents = probe.cotangents("1")
    for left_out in range(len(cotangents)) if cotangents[1:] else ():
        where = f"output {left_out} is not used"
        rest = [i for k, i in enumerate(probe.outputs) if k != left_out]
        given = [ct for k, ct in enumerate(cotangents) if k != left_out]
        zero = [ct * 0 if k == left_out else ct for k, ct in enumerate(cotangents)]
        expected = hosts(compared.pullback(zero))
        try:
            found = probe.pull(given, outputs=rest)
        except Exception as error:
            raise _unhandled(compared, where, error) from error
        for one, other, label in zip(found, expected, probe.labels, strict=True):
            if not compared.right(one, other).all():
                text = f"{where}; gradient of {label}: {one}\n  with a cotangent of zeros: {other}"
                raise _not_zero(compared, text)
    for label, error, gradients in compared.heard:
        where = f"{label} got None for each of them"
        if error is not None:
            raise _unhandled(compared, where, error) from error
        for number, gradient in enumerate(gradients):
            if gradient is not None and np.any(gradient != 0):
                text = f"{where}; gradient {number}: {gradient}\n{_TREAT_AS_ZEROS}"
                raise _not_zero(compared, text)


_TREAT_AS_ZEROS = "  Treat a cotangent of None as zeros, or leave set_materialize_grads on."


def _unhandled(compared: Comparison, where: str, error: Exception) -> GradcheckError:
    return compared.error(
        f"Expected backward function to handle undefined output grads.\n"
        f"  {where}: {type(error).__name__}: {error}\n{_TREAT_AS_ZEROS}"
    )


def _not_zero(compared: Comparison, found: str) -> GradcheckError:
    return compared.error(
        f"Expected all input grads to be undefined or zero when all output grads "
        f"are undefined or zero.\n  {found}"
    )


def _batched(compared: Comparison, forward: bool) -> None:
    """Holds `vmap` of the pullback, or of `jvp`, against single calls."""
    what, probe = "forward gradient" if forward else "gradient", compared.probe
    function = probe.pushforward() if forward else compared.pullback
    vectors = list(map(probe.tangents if forward else probe.cotangents, ("2", "3")))
    single = [hosts(function(some)) for some in vectors]
    stacked = list(map(np.stack, zip(*vectors, strict=True)))
    try:
        found = hosts(probe.batch(function, stacked))
    except Exception as error:
        raise compared.error(
            f"while testing batched {what} computation: {type(error).__name__}: {error}"
        ) from error
    for number, many in enumerate(found):
        expected = np.stack([one[number] for one in single])
        scale = max(precision_of(expected) * 100, 1e-5)
        if not np.allclose(many, expected, rtol=scale, atol=1e-8):
            raise compared.error(
                f"batched {what} {number} differs from single ones.\n"
                f"Got:\n{many}\n\nExpected:\n{expected}"
            )
