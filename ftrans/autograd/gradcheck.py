"""`gradcheck` and `gradgradcheck`: derivatives held against differences, as PyTorch does it.

Verdicts, arguments and messages are PyTorch's. Every floating array among the inputs is checked:
there is no `requires_grad` here. Differences are taken of the function in double precision where
it takes that, so that inputs of lower precision get a verdict too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftrans.custom.verify.alignment import is_aligned
from ftrans.custom.verify.analytic import Derivative
from ftrans.custom.verify.call import Call, host, is_floating, like
from ftrans.custom.verify.coordinates import (
    count,
    from_coordinates,
    is_complex,
    to_coordinates,
)
from ftrans.custom.verify.diagnosis import diagnose
from ftrans.custom.verify.differences import aligned_difference, jacobian
from ftrans.custom.verify.kinks import find_kink
from ftrans.custom.verify.reference import in_double
from ftrans.custom.verify.tolerances import precision_of, tolerance_for
from ftrans.errors import FtransError, GradcheckError, GradcheckInputError
from ftrans.func.jvp import jvp
from ftrans.func.staging import describe, name_of
from ftrans.func.trace import trace
from ftrans.func.vjp import vjp
from ftrans.func.vmap import vmap
from ftrans.traceback import boundary

__all__ = ["gradcheck", "gradgradcheck"]


class _Settings(NamedTuple):
    """Is what the caller asked for; None where the dtypes are to decide."""

    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool


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
        nondet_tol: how far two runs of the same pullback may differ.
        check_undefined_grad: whether outputs that are not used must be treated as zeros.
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
        GradcheckInputError: where nothing can be checked: no floating input, overlapping memory.

    Example:
        >>> import numpy as np
        >>> import ftrans.numpy as fnp
        >>> gradcheck(fnp.sin, np.array([0.3, 0.5]))
        True
        >>> gradcheck(lambda x: fnp.where(x > 0, x, 0.0), np.array([0.0]), raise_exception=False)
        False
    """
    name = f"gradcheck({name_of(func)})"
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
    settings = _Settings(
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
        _Check(name, func, _as_tuple(inputs), settings).run()
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
    name = f"gradgradcheck({name_of(func)})"
    for asked, needed, flags in (
        (True, check_fwd_over_rev or check_rev_over_rev, "check_fwd_over_rev or rev_over_rev"),
        (check_undefined_grad, check_rev_over_rev, "check_rev_over_rev for check_undefined_grad"),
        (check_batched_grad, check_rev_over_rev, "check_rev_over_rev for check_batched_grad"),
    ):
        if asked and not needed:
            raise GradcheckInputError(f"{name}: the flags leave nothing to check.\n  Set {flags}.")
    args = _as_tuple(inputs)
    call = _checked_call(name, func, args)
    outs = vjp(call, *call.values)[0]
    numbers = [i for i, out in enumerate(outs) if is_floating(out)]
    if grad_outputs is None:
        draw = np.random.default_rng(0)
        cotangents = tuple(
            like(_random(draw, outs[i], gen_non_contig_grad_outputs), outs[i]) for i in numbers
        )
    else:
        cotangents = _as_tuple(grad_outputs)
    size = len(call.values)

    def pulled(*operands: Any) -> list[Any]:
        def select(*values: Any) -> list[Any]:
            found = call(*values)
            return [found[i] for i in numbers]

        _, pullback = vjp(select, *operands[:size])
        return list(pullback(list(operands[size:])))

    settings = _Settings(
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
        _Check(name, pulled, (*call.values, *cotangents), settings).run()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _random(draw: np.random.Generator, out: Any, strided: bool) -> np.ndarray:
    """Returns numbers between -1 and 1 like an output, with gaps in memory where asked for."""
    vector = draw.uniform(-1, 1, count(out))
    array = from_coordinates(vector, out)
    if not strided or not array.ndim:
        return array
    wide = np.repeat(array, 2, axis=-1)
    return wide[..., ::2]


def _checked_call(name: str, func: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    """Returns the call; raises where it has no floating array, or one that overlaps itself."""
    call = Call(func, args)
    if not call.values:
        lines = "".join(f"  inputs[{i}]: {describe(arg)}\n" for i, arg in enumerate(args))
        raise GradcheckInputError(
            f"{name}: at least one input must be an array of floating point.\n{lines}"
            f"  Pass np.asarray(x, float): every floating array is checked, and nothing else is."
        )
    for label, value in zip(call.labels, call.values, strict=True):
        pairs = zip(getattr(value, "strides", ()), value.shape, strict=False)
        if value.size and any(stride == 0 and size > 1 for stride, size in pairs):
            raise GradcheckInputError(
                f"{name}: an input has a dimension with stride 0, so its elements share memory and "
                f"cannot be perturbed one by one.\n"
                f"  {label}: {describe(value)} with strides {value.strides}\n"
                f"  Pass {label}.copy()."
            )
    return call


class _Check:
    """Runs the checks of one function at one point, in PyTorch's order."""

    def __init__(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], settings: _Settings
    ):
        self.name = name
        self.call = _checked_call(name, func, args)
        self.settings = settings
        # traced, since promotion of plain arrays is not always that of traced values
        leaves = vjp(self.call, *self.call.values)[0]
        self.outputs = [i for i, out in enumerate(leaves) if is_floating(out)]
        self.leaves = leaves
        wide = in_double(self.call, leaves)
        self.wide = self.call if wide is None else wide
        dtypes = [v.dtype for v in (*self.call.values, *(leaves[i] for i in self.outputs))]
        defaults = tolerance_for(dtypes, wide is not None)
        given = (settings.eps, settings.atol, settings.rtol)
        self.eps, self.atol, self.rtol = (
            d if g is None else g for g, d in zip(given, defaults, strict=True)
        )

    def run(self) -> None:
        """Raises `GradcheckError` at the first thing that is wrong."""
        settings = self.settings
        if not self.outputs:
            self._nothing_moves()
            return
        self.derivative = (
            Derivative(self.call, self.outputs) if settings.check_backward_ad else None
        )
        compare = self._compare_fast if settings.fast_mode else self._compare
        if settings.check_backward_ad:
            self._same_twice()
            compare(forward=False)
        if settings.check_forward_ad:
            compare(forward=True)
        if settings.check_batched_forward_grad:
            self._batched_forward()
        if not settings.check_backward_ad:
            return
        if settings.check_batched_grad:
            self._batched_backward()
        self._multiplied_by_cotangent()
        if settings.check_undefined_grad:
            self._undefined()

    def _selected(self, *values: Any) -> list[Any]:
        outs = self.wide(*values)
        return [outs[i] for i in self.outputs]

    def _nothing_moves(self) -> None:
        """Checks that a function without floating outputs does not depend on its inputs."""
        for j in range(len(self.wide.values)):
            for i, matrix in enumerate(jacobian(self.wide, self.wide.values, j, self.eps)):
                if not np.allclose(matrix, 0.0):
                    raise GradcheckError(
                        f"{self.name}: Numerical gradient for function expected to be zero.\n"
                        f"  output {i} with respect to input {j}: {matrix.T}\n"
                        f"  The function has no floating output, so its gradient is zero."
                    )

    # ---------------------------------------------------------------------------- Jacobians

    def _compare(self, forward: bool) -> None:
        values = self.wide.values
        for j in range(len(values)):
            if self._compare_aligned(j, forward):
                continue
            numerical = jacobian(self._selected, values, j, self.eps)
            analytic = None
            if forward:
                analytic = Derivative(self.call, self.outputs).forward(j)
            for i, n in enumerate(numerical):
                a = self._reverse(i)[j] if analytic is None else analytic[i]
                self._hold(a, n, i, j, forward)

    def _reverse(self, number: int) -> list[np.ndarray]:
        if not hasattr(self, "_rows"):
            self._rows: dict[int, list[np.ndarray]] = {}
        if number not in self._rows:
            assert self.derivative is not None
            self._rows[number] = self.derivative.reverse(number)
        return self._rows[number]

    def _compare_aligned(self, j: int, forward: bool) -> bool:
        """Compares diagonals where it is proven that there is nothing beside them."""
        value = self.wide.values[j]
        if forward or len(self.outputs) != 1 or len(self.wide.values) != 1:
            return False
        out = self.leaves[self.outputs[0]]
        if is_complex(value) or is_complex(out) or value.shape != out.shape or value.size < 64:
            return False
        assert self.derivative is not None
        pullback = self.derivative.pullback
        try:
            forwards = trace(lambda x: self._selected(x)[0])(value)
            if not is_aligned(forwards, 0):
                return False
            if not is_aligned(pullback.program, len(pullback.residuals)):
                return False
        except FtransError:
            # it branches on values, or hands them to NumPy: there is no proof
            return False
        one, zero = np.ones(out.shape, out.dtype), np.zeros(out.shape, out.dtype)
        pull = self.derivative.pull(0)
        if np.any(host(pull(like(zero, out))[0])):
            # affine in the cotangent: what is beside the diagonal is not zero
            return False
        a = to_coordinates(host(pull(like(one, out))[0]))
        (n,) = aligned_difference(self._selected, self.wide.values, j, self.eps)
        if not _close(a, n, self.atol, self.rtol):
            self._hold(np.diag(a), np.diag(n), 0, j, forward)
        return True

    def _hold(self, a: np.ndarray, n: np.ndarray, i: int, j: int, forward: bool) -> None:
        """Holds a Jacobian, in real coordinates, against differences, part by part."""
        value, out = self.call.values[j], self.leaves[self.outputs[i]]
        split = value if forward else out
        for part in range(2 if is_complex(split) else 1):
            a_part, n_part = (_part(m, part, value, out, forward) for m in (a, n))
            if _close(a_part, n_part, self.atol, self.rtol):
                continue
            prefix = ""
            if is_complex(split):
                which = ("real", "imaginary")[part]
                which += f" part of complex {'inputs' if forward else 'outputs'} only, "
                prefix = f"While considering the {which}"
            mode = "computed with forward mode " if forward else ""
            raise GradcheckError(
                f"{self.name}: {prefix}Jacobian {mode}mismatch for output {i} with respect to "
                f"input {j},\nnumerical:{n_part}\nanalytical:{a_part}\n"
                + self._explained(a_part, n_part, i, j)
            )

    def _explained(self, a: np.ndarray, n: np.ndarray, i: int, j: int) -> str:
        """Returns lines that say where a mismatch is, and what its likely cause is."""
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(a - n) <= self.atol + self.rtol * np.abs(n))
        rows = np.flatnonzero(wrong.any(axis=1))
        lines = ""
        kink = find_kink(self._selected, self.wide.values, j, rows.tolist(), self.eps, i)
        if kink is not None:
            return (
                f"  {kink}.\n  The numerical value is the mean of both sides; a rule may choose "
                f"any value between them. Move the input off this point to check the rule.\n"
            )
        cause = diagnose(a, n)
        if cause:
            lines = f"  likely cause: {cause}\n"
        index = np.unravel_index(
            int(rows[0]) % max(1, host(self.call.values[j]).size), self.call.values[j].shape
        )
        place = tuple(int(k) for k in index)
        return f"  first wrong for element {place} of {self.call.labels[j]}\n{lines}"

    # ---------------------------------------------------------------------------- fast mode

    def _compare_fast(self, forward: bool) -> None:
        draw = np.random.default_rng(42)
        values = self.wide.values
        for j, value in enumerate(values):
            for i, number in enumerate(self.outputs):
                out = self.leaves[number]
                u, v = (_direction(draw, x) for x in (value, out))
                for u_part, v_part in _parts(u, v, value, out):
                    self._hold_fast(u_part, v_part, i, j, forward)

    def _hold_fast(self, u: np.ndarray, v: np.ndarray, i: int, j: int, forward: bool) -> None:
        value, out = self.call.values[j], self.leaves[self.outputs[i]]
        n = float(v @ self._slope(u, i, j))
        if forward:
            tangent = like(from_coordinates(u, value), value)
            derivative = self.derivative or Derivative(self.call, self.outputs)
            a = float(v @ to_coordinates(host(derivative.push(j)(tangent)[i])))
        else:
            assert self.derivative is not None
            cotangent = like(from_coordinates(v, out), out)
            a = float(u @ to_coordinates(host(self.derivative.pull(i)(cotangent)[j])))
        atol = self.atol * float(np.sum(u)) * float(np.sum(v))
        if _close(np.asarray(a), np.asarray(n), atol, self.rtol):
            return
        mode = "computed with forward mode " if forward else ""
        text = (
            f"{self.name}: Jacobian {mode}mismatch for output {i} with respect to input {j},\n"
            f"numerical:{n}\nanalytical:{a}\n"
            f"  These are projections of the Jacobians, computed in fast mode.\n"
        )
        try:
            self._compare(forward)
        except GradcheckError as error:
            raise GradcheckError(f"{text}  In slow mode: {error}") from None
        raise GradcheckError(
            f"{text}  In slow mode all elements are within the tolerances: fast_mode=False passes."
        )

    def _slope(self, u: np.ndarray, i: int, j: int) -> np.ndarray:
        """Returns the slope of an output along a direction, by central differences."""
        value = host(self.wide.values[j])
        base = to_coordinates(value)
        ends = []
        for sign in (1.0, -1.0):
            values = list(self.wide.values)
            values[j] = like(from_coordinates(base + sign * self.eps * u, value), values[j])
            ends.append(to_coordinates(host(self._selected(*values)[i])))
        with np.errstate(all="ignore"):
            return (ends[0] - ends[1]) / (2 * self.eps)

    # ------------------------------------------------------------------------ other properties

    def _cotangents(self, seed: int = 0) -> list[Any]:
        draw = np.random.default_rng(seed)
        outs = [self.leaves[i] for i in self.outputs]
        return [like(_random(draw, out, False), out) for out in outs]

    def _same_twice(self) -> None:
        """Checks that two runs of the same pullback give the same numbers."""
        assert self.derivative is not None
        cotangents = self._cotangents()
        runs: list[list[np.ndarray]] = []
        # the road may change between two runs, from interpreting to compiling, but not twice
        for _ in range(4):
            runs.append([host(x) for x in self.derivative.pullback(cotangents)])
            if len(runs) > 1 and all(
                _within(a, b, self.settings.nondet_tol) for a, b in zip(*runs[-2:], strict=True)
            ):
                return
            if len(runs) > 1 and not all(map(_nearly, *runs[-2:])):
                break
        gap = max(
            float(np.max(np.abs(a - b), initial=0.0)) for a, b in zip(*runs[-2:], strict=True)
        )
        raise GradcheckError(
            f"{self.name}: Backward is not reentrant, i.e., running backward with same input and "
            f"grad_output multiple times gives different values.\n"
            f"  the gradients differ by {gap:.3g}; nondet_tol: {self.settings.nondet_tol}\n"
            f"  Take what is random, or kept between calls, out of the rule, or pass nondet_tol."
        )

    def _multiplied_by_cotangent(self) -> None:
        """Checks that zero cotangents give zeros, and gradients the shapes and dtypes of inputs."""
        assert self.derivative is not None
        outs = [self.leaves[i] for i in self.outputs]
        zeros = [like(np.zeros(out.shape, out.dtype), out) for out in outs]
        found = self.derivative.pullback(zeros)
        for j, (grad, value) in enumerate(zip(found, self.call.values, strict=True)):
            if np.any(host(grad) != 0):
                raise GradcheckError(
                    f"{self.name}: backward not multiplied by grad_output.\n"
                    f"  for cotangents of zeros, the gradient of {self.call.labels[j]} is "
                    f"{host(grad)}\n  A pullback is linear: multiply each term by the cotangent."
                )
            if self.settings.check_grad_dtypes and grad.dtype != value.dtype:
                raise GradcheckError(
                    f"{self.name}: Gradient has dtype mismatch.\n"
                    f"  {self.call.labels[j]}: {value.dtype}\n  its gradient: {grad.dtype}"
                )
            if grad.shape != value.shape:
                raise GradcheckError(
                    f"{self.name}: Analytical gradient has incorrect size.\n"
                    f"  {self.call.labels[j]}: {value.shape}\n  its gradient: {grad.shape}"
                )

    def _undefined(self) -> None:
        """Checks that an output that is not used counts as one whose cotangent is zero."""
        if len(self.outputs) < 2:
            return
        assert self.derivative is not None
        cotangents = self._cotangents(1)
        for left_out in range(len(self.outputs)):
            rest = [i for k, i in enumerate(self.outputs) if k != left_out]
            given = [ct for k, ct in enumerate(cotangents) if k != left_out]
            zero = [ct * 0 if k == left_out else ct for k, ct in enumerate(cotangents)]
            expected = [host(x) for x in self.derivative.pullback(zero)]
            try:
                found = [host(x) for x in Derivative(self.call, rest).pullback(given)]
            except Exception as error:
                raise GradcheckError(
                    f"{self.name}: Expected backward function to handle undefined output grads.\n"
                    f"  output {left_out} is not used: {type(error).__name__}: {error}\n"
                    f"  Treat a cotangent of None as zeros, or leave set_materialize_grads on."
                ) from error
            for j, (one, other) in enumerate(zip(found, expected, strict=True)):
                if not _close(one, other, self.atol, self.rtol):
                    raise GradcheckError(
                        f"{self.name}: Expected all input grads to be undefined or zero when all "
                        f"output grads are undefined or zero.\n"
                        f"  output {left_out} is not used; gradient of {self.call.labels[j]}: "
                        f"{one}\n  with a cotangent of zeros: {other}"
                    )

    def _batched_backward(self) -> None:
        assert self.derivative is not None
        cotangents = [self._cotangents(seed) for seed in (2, 3)]
        single = [[host(x) for x in self.derivative.pullback(cts)] for cts in cotangents]
        self._batched("gradient", self.derivative.pullback, cotangents, single)

    def _batched_forward(self) -> None:
        derivative = self.derivative or Derivative(self.call, self.outputs)
        values = self.call.values
        tangents = [
            [like(_random(np.random.default_rng(seed), v, False), v) for v in values]
            for seed in (2, 3)
        ]

        def push(ts: Sequence[Any]) -> Any:
            return jvp(derivative.select, tuple(values), tuple(ts))[1]

        single = [[host(x) for x in push(ts)] for ts in tangents]
        self._batched("forward gradient", push, tangents, single)

    def _batched(self, what: str, function: Any, vectors: list[Any], single: list[Any]) -> None:
        stacked = [like(np.stack([host(a), host(b)]), a) for a, b in zip(*vectors, strict=True)]
        try:
            found = [host(x) for x in vmap(lambda *vs: list(function(list(vs))))(*stacked)]
        except Exception as error:
            raise GradcheckError(
                f"{self.name}: while testing batched {what} computation: "
                f"{type(error).__name__}: {error}"
            ) from error
        for number, many in enumerate(found):
            expected = np.stack([one[number] for one in single])
            scale = max(precision_of(expected) * 100, 1e-5)
            if not np.allclose(many, expected, rtol=scale, atol=1e-8):
                raise GradcheckError(
                    f"{self.name}: batched {what} {number} differs from single ones.\n"
                    f"Got:\n{many}\n\nExpected:\n{expected}"
                )


def _close(a: np.ndarray, n: np.ndarray, atol: float, rtol: float) -> bool:
    if a.shape != n.shape:
        return False
    with np.errstate(all="ignore"):
        same = (a == n) | (np.abs(a - n) <= atol + rtol * np.abs(n))
    return bool(same.all())


def _within(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance)
    return bool(same.all())


def _nearly(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether two arrays agree up to rounding."""
    scale = float(np.max(np.abs(a), initial=0.0))
    return _within(a, b, 100 * precision_of(a) * scale)


def _part(matrix: np.ndarray, part: int, value: Any, out: Any, forward: bool) -> np.ndarray:
    """Returns the real or imaginary part of outputs (forward: inputs) of a Jacobian, as PyTorch's.

    What is left of complex numbers on the other side makes complex entries.
    """
    n, m = value.size, out.size
    if forward:
        rows = matrix[part * n : (part + 1) * n]
        return rows[:, :m] + 1j * rows[:, m:] if is_complex(out) else rows
    columns = matrix[:, part * m : (part + 1) * m]
    return columns[:n] + 1j * columns[n:] if is_complex(value) else columns


def _direction(draw: np.random.Generator, array: Any) -> np.ndarray:
    """Returns a random vector without negative entries, each part of length 1."""
    parts = [draw.uniform(0, 1, array.size) for _ in range(2 if is_complex(array) else 1)]
    return np.concatenate([p / max(float(np.linalg.norm(p)), 1e-300) for p in parts])


def _parts(u: np.ndarray, v: np.ndarray, value: Any, out: Any) -> list[tuple[Any, Any]]:
    """Returns the directions with one part of complex numbers alone, in all combinations."""
    n, m = value.size, out.size
    found = []
    for p in range(2 if is_complex(value) else 1):
        for q in range(2 if is_complex(out) else 1):
            u_mask, v_mask = np.zeros_like(u), np.zeros_like(v)
            u_mask[p * n : (p + 1) * n] = v_mask[q * m : (q + 1) * m] = 1.0
            found.append((u * u_mask, v * v_mask))
    return found
