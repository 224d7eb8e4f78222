"""What `gradcheck` asks of derivatives besides their values: linear, repeatable, batched alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import GradcheckError
from ftrans.func.jvp import jvp
from ftrans.func.vmap import vmap
from ftrans.verify.analytic import Derivative
from ftrans.verify.call import host, like
from ftrans.verify.differences import jacobian
from ftrans.verify.subject import Subject, close, random_like
from ftrans.verify.tolerances import precision_of

__all__ = [
    "batched_backward",
    "batched_forward",
    "multiplied_by_cotangent",
    "nothing_defined",
    "nothing_moves",
    "same_twice",
    "undefined",
]


def nothing_moves(subject: Subject) -> None:
    """Checks that a function without floating outputs does not depend on its inputs."""
    for j in range(len(subject.wide.values)):
        for i, matrix in enumerate(
            jacobian(subject.evaluated, subject.wide.values, j, subject.eps)
        ):
            if not np.allclose(matrix, 0.0):
                raise GradcheckError(
                    f"{subject.name}: Numerical gradient for function expected to be zero.\n"
                    f"  output {i} with respect to input {j}: {matrix.T}\n"
                    f"  The function has no floating output, so its gradient is zero."
                )


def _cotangents(subject: Subject, seed: int = 0) -> list[Any]:
    draw = np.random.default_rng(seed)
    outs = [subject.leaves[i] for i in subject.outputs]
    return [like(random_like(draw, out, False), out) for out in outs]


def same_twice(subject: Subject) -> None:
    """Checks that two runs of a pullback give the same numbers, and one that is traced anew."""
    cotangents = _cotangents(subject)
    runs: list[list[np.ndarray]] = []
    _repeats(subject, subject.derivative, cotangents, runs)
    _repeats(subject, subject.again, cotangents, runs)


def _repeats(
    subject: Subject, derivative: Derivative, cotangents: list[Any], runs: list[list[np.ndarray]]
) -> None:
    """Runs a pullback until it gives what an earlier run gave; adds to these.

    The road may change between two runs, from interpreting to compiling, which moves last digits.
    """
    gap = 0.0
    for _ in range(4):
        run = [host(x) for x in derivative.pullback(cotangents)]
        earlier = list(runs)
        runs.append(run)
        if any(_agree(one, run, subject.settings.nondet_tol) for one in earlier):
            return
        for one in earlier[-1:]:
            gap = max(
                float(np.max(np.abs(a - b), initial=0.0)) for a, b in zip(one, run, strict=True)
            )
            if not all(map(_nearly, one, run)):
                raise _not_reentrant(subject, gap)
    raise _not_reentrant(subject, gap)


def _not_reentrant(subject: Subject, gap: float) -> GradcheckError:
    return GradcheckError(
        f"{subject.name}: Backward is not reentrant, i.e., running backward with same input and "
        f"grad_output multiple times gives different values.\n"
        f"  the gradients differ by {gap:.3g}; nondet_tol: {subject.settings.nondet_tol}\n"
        f"  Take what is random, or kept between calls, out of the rule, or pass nondet_tol."
    )


def multiplied_by_cotangent(subject: Subject) -> None:
    """Checks that zero cotangents give zeros, and gradients the shapes and dtypes of inputs."""
    outs = [subject.leaves[i] for i in subject.outputs]
    zeros = [like(np.zeros(out.shape, out.dtype), out) for out in outs]
    found = subject.derivative.pullback(zeros)
    for j, (grad, value) in enumerate(zip(found, subject.call.values, strict=True)):
        if np.any(host(grad) != 0):
            raise GradcheckError(
                f"{subject.name}: backward not multiplied by grad_output.\n"
                f"  for cotangents of zeros, the gradient of {subject.call.labels[j]} is "
                f"{host(grad)}\n  A pullback is linear: multiply each term by the cotangent."
            )
        if subject.settings.check_grad_dtypes and grad.dtype != value.dtype:
            raise GradcheckError(
                f"{subject.name}: Gradient has dtype mismatch.\n"
                f"  {subject.call.labels[j]}: {value.dtype}\n  its gradient: {grad.dtype}"
            )
        if grad.shape != value.shape:
            raise GradcheckError(
                f"{subject.name}: Analytical gradient has incorrect size.\n"
                f"  {subject.call.labels[j]}: {value.shape}\n  its gradient: {grad.shape}"
            )


def undefined(subject: Subject) -> None:
    """Checks that an output that is not used counts as one whose cotangent is zero."""
    if len(subject.outputs) < 2:
        return
    cotangents = _cotangents(subject, 1)
    for left_out in range(len(subject.outputs)):
        rest = [i for k, i in enumerate(subject.outputs) if k != left_out]
        given = [ct for k, ct in enumerate(cotangents) if k != left_out]
        zero = [ct * 0 if k == left_out else ct for k, ct in enumerate(cotangents)]
        expected = [host(x) for x in subject.derivative.pullback(zero)]
        try:
            found = [host(x) for x in Derivative(subject.call, rest).pullback(given)]
        except Exception as error:
            raise GradcheckError(
                f"{subject.name}: Expected backward function to handle undefined output grads.\n"
                f"  output {left_out} is not used: {type(error).__name__}: {error}\n"
                f"  Treat a cotangent of None as zeros, or leave set_materialize_grads on."
            ) from error
        for j, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not close(one, other, subject.atol, subject.rtol):
                raise GradcheckError(
                    f"{subject.name}: Expected all input grads to be undefined or zero when all "
                    f"output grads are undefined or zero.\n"
                    f"  output {left_out} is not used; gradient of {subject.call.labels[j]}: "
                    f"{one}\n  with a cotangent of zeros: {other}"
                )


def nothing_defined(subject: Subject) -> None:
    """Checks that a `backward` which asks for None takes it for all of its cotangents."""
    for found in subject.undefined:
        if found.error is not None:
            raise GradcheckError(
                f"{subject.name}: Expected backward function to handle undefined output grads.\n"
                f"  {found.label} got None for each of them: {type(found.error).__name__}: "
                f"{found.error}\n"
                f"  Treat a cotangent of None as zeros, or leave set_materialize_grads on."
            ) from found.error
        for number, gradient in enumerate(found.gradients):
            if gradient is not None and np.any(gradient != 0):
                raise GradcheckError(
                    f"{subject.name}: Expected all input grads to be undefined or zero when all "
                    f"output grads are undefined or zero.\n"
                    f"  {found.label} got None for each of them; gradient {number}: {gradient}\n"
                    f"  Treat a cotangent of None as zeros, or leave set_materialize_grads on."
                )


def batched_backward(subject: Subject) -> None:
    """Holds `vmap` of the pullback against single calls."""
    cotangents = [_cotangents(subject, seed) for seed in (2, 3)]
    single = [[host(x) for x in subject.derivative.pullback(cts)] for cts in cotangents]
    _batched(subject, "gradient", subject.derivative.pullback, cotangents, single)


def batched_forward(subject: Subject) -> None:
    """Holds `vmap` of `jvp` against single calls."""
    derivative = subject.derivative
    values = subject.call.values
    tangents = [
        [like(random_like(np.random.default_rng(seed), v, False), v) for v in values]
        for seed in (2, 3)
    ]

    def push(ts: Sequence[Any]) -> Any:
        return jvp(derivative.select, tuple(values), tuple(ts))[1]

    single = [[host(x) for x in push(ts)] for ts in tangents]
    _batched(subject, "forward gradient", push, tangents, single)


def _batched(
    subject: Subject, what: str, function: Any, vectors: list[Any], single: list[Any]
) -> None:
    stacked = [like(np.stack([host(a), host(b)]), a) for a, b in zip(*vectors, strict=True)]
    try:
        found = [host(x) for x in vmap(lambda *vs: list(function(list(vs))))(*stacked)]
    except Exception as error:
        raise GradcheckError(
            f"{subject.name}: while testing batched {what} computation: "
            f"{type(error).__name__}: {error}"
        ) from error
    for number, many in enumerate(found):
        expected = np.stack([one[number] for one in single])
        scale = max(precision_of(expected) * 100, 1e-5)
        if not np.allclose(many, expected, rtol=scale, atol=1e-8):
            raise GradcheckError(
                f"{subject.name}: batched {what} {number} differs from single ones.\n"
                f"Got:\n{many}\n\nExpected:\n{expected}"
            )


def _agree(one: list[np.ndarray], other: list[np.ndarray], tolerance: float) -> bool:
    return all(_within(a, b, tolerance) for a, b in zip(one, other, strict=True))


def _within(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance)
    return bool(same.all())


def _nearly(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether two arrays agree up to rounding."""
    scale = float(np.max(np.abs(a), initial=0.0))
    return _within(a, b, 100 * precision_of(a) * scale)
