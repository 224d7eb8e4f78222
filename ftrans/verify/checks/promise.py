"""What `gradcheck` asks of derivatives besides their values: linear, repeatable, batched alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.custom.rule import listening
from ftrans.errors import ConcretizationError, GradcheckError
from ftrans.func.jvp import jvp
from ftrans.func.vmap import vmap
from ftrans.ir import Tracer
from ftrans.ir.source import evaluated
from ftrans.runtime.jaxlink import foreign
from ftrans.verify.checks.jacobian import Comparison, Heard
from ftrans.verify.coordinates import (
    alike,
    count,
    from_coordinates,
    host,
    hosts,
    like,
    precision_of,
    with_gaps,
)
from ftrans.verify.differences import jacobian
from ftrans.verify.probe import Probe


def random_like(seed: int, originals: Sequence[Any], strided: bool = False) -> list[Any]:
    """Returns numbers between -1 and 1 like some arrays, with gaps in memory where asked for."""
    draw = np.random.default_rng(seed)
    arrays = [from_coordinates(draw.uniform(-1, 1, count(x)), x) for x in originals]
    if strided:
        arrays = list(map(with_gaps, arrays))
    return alike(arrays, originals)


def _cotangents(probe: Probe, seed: int = 0) -> list[Any]:
    return random_like(seed, [probe.leaves[i] for i in probe.outputs])


def nothing_moves(compared: Comparison) -> None:
    """Checks that a function without floating outputs does not depend on its inputs."""
    values = compared.wide.values
    for j in range(len(values)):
        for i, matrix in enumerate(jacobian(compared.evaluated, values, j, compared.eps)):
            if not np.allclose(matrix, 0.0):
                raise GradcheckError(
                    f"{compared.name}: Numerical gradient for function expected to be zero.\n"
                    f"  output {i} with respect to input {j}: {matrix.T}\n"
                    f"  The function has no floating output, so its gradient is zero."
                )


# ------------------------------------------------------------------------------- runs of a pullback


def same_twice(compared: Comparison) -> None:
    """Checks that two runs of a pullback give the same numbers, and one that is traced anew.

    What was random while the first was traced is another there. In the second trace each `backward`
    that asks for None is called with None for all cotangents, see `nothing_defined`.
    """
    runs: list[list[np.ndarray]] = []
    cotangents = _cotangents(compared.probe)
    _repeat(compared, compared.pullback, cotangents, runs)
    if compared.settings.check_undefined_grad:
        with listening(lambda *call: compared.heard.append(_undefined(*call))):
            again = compared.probe.pullback()
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
        earlier = list(runs)
        runs.append(run)
        if any(_agree(one, run, tolerance) for one in earlier):
            return
        if earlier:
            pairs = list(zip(earlier[-1], run, strict=True))
            gap = max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs)
            if not all(_nearly(a, b) for a, b in pairs):
                break
    raise GradcheckError(
        f"{compared.name}: Backward is not reentrant, i.e., running backward with same input and "
        f"grad_output multiple times gives different values.\n"
        f"  the gradients differ by {gap:.3g}; nondet_tol: {tolerance}\n"
        f"  Take what is random, or kept between calls, out of the rule, or pass nondet_tol."
    )


def _agree(one: list[np.ndarray], other: list[np.ndarray], tolerance: float) -> bool:
    return all(_within(a, b, tolerance) for a, b in zip(one, other, strict=True))


def _within(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance)
    return bool(same.all())


def _nearly(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether two arrays agree up to rounding."""
    return _within(a, b, 100 * precision_of(a) * float(np.max(np.abs(a), initial=0.0)))


def multiplied_by_cotangent(compared: Comparison) -> None:
    """Checks that zero cotangents give zeros, and gradients the shapes and dtypes of inputs."""
    probe, name = compared.probe, compared.name
    outs = [probe.leaves[i] for i in probe.outputs]
    zeros = [like(np.zeros(out.shape, out.dtype), out) for out in outs]
    for grad, value, label in zip(
        compared.pullback(zeros), probe.values, probe.labels, strict=True
    ):
        if np.any(host(grad) != 0):
            raise GradcheckError(
                f"{name}: backward not multiplied by grad_output.\n"
                f"  for cotangents of zeros, the gradient of {label} is {host(grad)}\n"
                f"  A pullback is linear: multiply each term by the cotangent."
            )
        if compared.settings.check_grad_dtypes and grad.dtype != value.dtype:
            raise GradcheckError(
                f"{name}: Gradient has dtype mismatch.\n"
                f"  {label}: {value.dtype}\n  its gradient: {grad.dtype}"
            )
        if grad.shape != value.shape:
            raise GradcheckError(
                f"{name}: Analytical gradient has incorrect size.\n"
                f"  {label}: {value.shape}\n  its gradient: {grad.shape}"
            )


# ------------------------------------------------------------------------- cotangents that are None


def _undefined(label: str, backward: Any) -> Heard:
    """Returns what a `backward` does with None for all cotangents."""
    try:
        return label, None, [None if ct is None else _value(ct) for ct in backward()]
    except Exception as error:
        return label, error, []


def _value(x: Any) -> np.ndarray | None:
    """Returns what a traced value is; None where it has no value yet."""
    if type(x) is not Tracer:
        return np.asarray(x)
    try:
        with evaluated(lambda value: not foreign([value]), examples=False):
            return np.asarray(x.value())
    except ConcretizationError:
        return None


def undefined(compared: Comparison) -> None:
    """Checks that an output that is not used counts as one whose cotangent is zero."""
    probe = compared.probe
    if len(probe.outputs) < 2:
        return
    cotangents = _cotangents(probe, 1)
    for left_out in range(len(cotangents)):
        rest = [i for k, i in enumerate(probe.outputs) if k != left_out]
        given = [ct for k, ct in enumerate(cotangents) if k != left_out]
        zero = [ct * 0 if k == left_out else ct for k, ct in enumerate(cotangents)]
        expected = hosts(compared.pullback(zero))
        try:
            found = probe.pull(given, outputs=rest)
        except Exception as error:
            where = f"output {left_out} is not used"
            raise _unhandled(compared, where, error) from error
        for one, other, label in zip(found, expected, probe.labels, strict=True):
            if not compared.close(one, other):
                raise _not_zero(
                    compared,
                    f"output {left_out} is not used; gradient of {label}: {one}\n"
                    f"  with a cotangent of zeros: {other}",
                )


def nothing_defined(compared: Comparison) -> None:
    """Checks that a `backward` which asks for None takes it for all of its cotangents."""
    for label, error, gradients in compared.heard:
        where = f"{label} got None for each of them"
        if error is not None:
            raise _unhandled(compared, where, error) from error
        for number, gradient in enumerate(gradients):
            if gradient is not None and np.any(gradient != 0):
                raise _not_zero(
                    compared, f"{where}; gradient {number}: {gradient}\n{_TREAT_AS_ZEROS}"
                )


_TREAT_AS_ZEROS = "  Treat a cotangent of None as zeros, or leave set_materialize_grads on."


def _unhandled(compared: Comparison, where: str, error: Exception) -> GradcheckError:
    return GradcheckError(
        f"{compared.name}: Expected backward function to handle undefined output grads.\n"
        f"  {where}: {type(error).__name__}: {error}\n{_TREAT_AS_ZEROS}"
    )


def _not_zero(compared: Comparison, found: str) -> GradcheckError:
    return GradcheckError(
        f"{compared.name}: Expected all input grads to be undefined or zero when all output grads "
        f"are undefined or zero.\n  {found}"
    )


# ------------------------------------------------------------------------------------------ batches


def batched_backward(compared: Comparison) -> None:
    """Holds `vmap` of the pullback against single calls."""
    cotangents = [_cotangents(compared.probe, seed) for seed in (2, 3)]
    _batched(compared, "gradient", compared.pullback, cotangents)


def batched_forward(compared: Comparison) -> None:
    """Holds `vmap` of `jvp` against single calls."""
    probe = compared.probe

    def push(tangents: Sequence[Any]) -> Any:
        return jvp(probe.select, tuple(probe.values), tuple(tangents))[1]

    tangents = [random_like(seed, probe.values) for seed in (2, 3)]
    _batched(compared, "forward gradient", push, tangents)


def _batched(compared: Comparison, what: str, function: Any, vectors: list[list[Any]]) -> None:
    single = [hosts(function(some)) for some in vectors]
    stacked = [like(np.stack(hosts(both)), both[0]) for both in zip(*vectors, strict=True)]
    try:
        found = hosts(vmap(lambda *vs: list(function(list(vs))))(*stacked))
    except Exception as error:
        raise GradcheckError(
            f"{compared.name}: while testing batched {what} computation: "
            f"{type(error).__name__}: {error}"
        ) from error
    for number, many in enumerate(found):
        expected = np.stack([one[number] for one in single])
        scale = max(precision_of(expected) * 100, 1e-5)
        if not np.allclose(many, expected, rtol=scale, atol=1e-8):
            raise GradcheckError(
                f"{compared.name}: batched {what} {number} differs from single ones.\n"
                f"Got:\n{many}\n\nExpected:\n{expected}"
            )
