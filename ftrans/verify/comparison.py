"""Jacobians by the rules against Jacobians by differences: whole, or projected.

A program that is proven to be elementwise has diagonal ones, which take one evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ftrans.errors import FtransError, GradcheckError
from ftrans.func.trace import trace
from ftrans.verify.alignment import is_aligned
from ftrans.verify.call import host, like
from ftrans.verify.coordinates import from_coordinates, is_complex, to_coordinates
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.differences import aligned_difference, jacobian
from ftrans.verify.kinks import find_kink
from ftrans.verify.subject import Subject, close

__all__ = ["Comparison"]


class Comparison:
    """Compares the Jacobians of a subject.

    Args:
        subject: the subject.
    """

    def __init__(self, subject: Subject):
        self.subject = subject
        self._rows: dict[int, list[np.ndarray]] = {}

    def compare(self, forward: bool) -> None:
        """Compares all Jacobians, element by element."""
        subject = self.subject
        values = subject.wide.values
        for j in range(len(values)):
            if self._compare_aligned(j, forward):
                continue
            numerical = jacobian(subject.selected, values, j, subject.eps)
            analytic = None
            if forward:
                analytic = subject.derivative.forward(j)
            for i, n in enumerate(numerical):
                a = self._reverse(i)[j] if analytic is None else analytic[i]
                self._hold(a, n, i, j, forward)

    def _reverse(self, number: int) -> list[np.ndarray]:
        subject = self.subject
        if number not in self._rows:
            self._rows[number] = subject.derivative.reverse(number)
        return self._rows[number]

    def _compare_aligned(self, j: int, forward: bool) -> bool:
        """Compares diagonals where it is proven that there is nothing beside them."""
        subject = self.subject
        value = subject.wide.values[j]
        if forward or len(subject.outputs) != 1 or len(subject.wide.values) != 1:
            return False
        out = subject.leaves[subject.outputs[0]]
        if is_complex(value) or is_complex(out) or value.shape != out.shape or value.size < 64:
            return False
        pullback = subject.derivative.pullback
        try:
            forwards = trace(lambda x: subject.selected(x)[0])(value)
            if not is_aligned(forwards, 0):
                return False
            if not is_aligned(pullback.program, len(pullback.residuals)):
                return False
        except FtransError:
            # it branches on values, or hands them to NumPy: there is no proof
            return False
        one, zero = np.ones(out.shape, out.dtype), np.zeros(out.shape, out.dtype)
        pull = subject.derivative.pull(0)
        if np.any(host(pull(like(zero, out))[0])):
            # affine in the cotangent: what is beside the diagonal is not zero
            return False
        a = to_coordinates(host(pull(like(one, out))[0]))
        (n,) = aligned_difference(subject.selected, subject.wide.values, j, subject.eps)
        if not close(a, n, subject.atol, subject.rtol):
            self._hold(np.diag(a), np.diag(n), 0, j, forward)
        return True

    def _hold(self, a: np.ndarray, n: np.ndarray, i: int, j: int, forward: bool) -> None:
        """Holds a Jacobian, in real coordinates, against differences, part by part."""
        subject = self.subject
        value, out = subject.call.values[j], subject.leaves[subject.outputs[i]]
        split = value if forward else out
        for part in range(2 if is_complex(split) else 1):
            a_part, n_part = (_part(m, part, value, out, forward) for m in (a, n))
            if close(a_part, n_part, subject.atol, subject.rtol):
                continue
            prefix = ""
            if is_complex(split):
                which = ("real", "imaginary")[part]
                which += f" part of complex {'inputs' if forward else 'outputs'} only, "
                prefix = f"While considering the {which}"
            mode = "computed with forward mode " if forward else ""
            raise GradcheckError(
                f"{subject.name}: {prefix}Jacobian {mode}mismatch for output {i} with respect to "
                f"input {j},\nnumerical:{n_part}\nanalytical:{a_part}\n"
                + self._explained(a_part, n_part, i, j)
            )

    def _explained(self, a: np.ndarray, n: np.ndarray, i: int, j: int) -> str:
        """Returns lines that say where a mismatch is, and what its likely cause is."""
        subject = self.subject
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(a - n) <= subject.atol + subject.rtol * np.abs(n))
        rows = np.flatnonzero(wrong.any(axis=1))
        lines = ""
        kink = find_kink(subject.selected, subject.wide.values, j, rows.tolist(), subject.eps, i)
        if kink is not None:
            return (
                f"  {kink}.\n  The numerical value is the mean of both sides; a rule may choose "
                f"any value between them.\n  Move the input off this point to check the rule."
            )
        value, out = host(subject.call.values[j]), host(subject.leaves[subject.outputs[i]])
        known = {subject.call.labels[j]: value.reshape(-1, 1), "the result": out.reshape(1, -1)}
        cause = diagnose(a, n, known)
        if cause:
            lines = f"\n  likely cause: {cause}"
        index = np.unravel_index(
            int(rows[0]) % max(1, host(subject.call.values[j]).size),
            subject.call.values[j].shape,
        )
        place = tuple(int(k) for k in index)
        return f"  first wrong for element {place} of {subject.call.labels[j]}{lines}"

    def compare_fast(self, forward: bool) -> None:
        """Compares random projections of them."""
        subject = self.subject
        draw = np.random.default_rng(42)
        values = subject.wide.values
        for j, value in enumerate(values):
            for i, number in enumerate(subject.outputs):
                out = subject.leaves[number]
                u, v = (_direction(draw, x) for x in (value, out))
                us, vs = _parts(u, value), _parts(v, out)
                # as in slow mode, parts of inputs are one complex number but in forward mode
                for directions in [[part] for part in us] if forward else [us]:
                    for v_part in vs:
                        self._hold_fast(directions, v_part, i, j, forward)

    def _hold_fast(
        self, us: Sequence[np.ndarray], v: np.ndarray, i: int, j: int, forward: bool
    ) -> None:
        """Holds the projections on a vector of the slopes along one direction, or along two.

        Those along two, of the real and of the imaginary part, make one complex number. An element
        may be off by atol, so a projection by atol times the sum of all products.
        """
        subject = self.subject
        value, out = subject.call.values[j], subject.leaves[subject.outputs[i]]
        n = _joined([float(v @ self._slope(u, i, j)) for u in us])
        if forward:
            tangents = [like(from_coordinates(u, value), value) for u in us]
            push = subject.derivative.push(j)
            a = _joined([float(v @ to_coordinates(host(push(t)[i]))) for t in tangents])
        else:
            cotangent = like(from_coordinates(v, out), out)
            gradient = to_coordinates(host(subject.derivative.pull(i)(cotangent)[j]))
            a = _joined([float(u @ gradient) for u in us])
        atol = subject.atol * float(sum(map(np.sum, us))) * float(np.sum(v))
        if close(np.asarray(a), np.asarray(n), atol, subject.rtol):
            return
        mode = "computed with forward mode " if forward else ""
        text = (
            f"{subject.name}: Jacobian {mode}mismatch for output {i} with respect to input {j},\n"
            f"numerical:{n}\nanalytical:{a}\n"
            f"  These are projections of the Jacobians, computed in fast mode.\n"
        )
        try:
            self.compare(forward)
        except GradcheckError as error:
            raise GradcheckError(f"{text}  In slow mode: {error}") from None
        raise GradcheckError(
            f"{text}  In slow mode all elements are within the tolerances: fast_mode=False passes."
        )

    def _slope(self, u: np.ndarray, i: int, j: int) -> np.ndarray:
        """Returns the slope of an output along a direction, by central differences."""
        subject = self.subject
        value = host(subject.wide.values[j])
        base = to_coordinates(value)
        ends = []
        for sign in (1.0, -1.0):
            values = list(subject.wide.values)
            values[j] = like(from_coordinates(base + sign * subject.eps * u, value), values[j])
            ends.append(to_coordinates(host(subject.selected(*values)[i])))
        with np.errstate(all="ignore"):
            return (ends[0] - ends[1]) / (2 * subject.eps)


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


def _parts(vector: np.ndarray, array: Any) -> list[np.ndarray]:
    """Returns a vector with the real part of complex numbers alone, and with the imaginary part."""
    if not is_complex(array):
        return [vector]
    is_real = np.arange(vector.size) < array.size
    return [np.where(is_real, vector, 0.0), np.where(is_real, 0.0, vector)]


def _joined(parts: Sequence[float]) -> complex:
    """Returns a number, or the complex number of these parts."""
    return parts[0] if len(parts) == 1 else complex(*parts)
