"""Jacobians by the rules against Jacobians by differences, as `gradcheck` does: whole or projected.

A program that is proven to be elementwise has diagonal ones, which take one evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ftrans.errors import FtransError, GradcheckError, GradcheckOutputError
from ftrans.func.jvp import jvp
from ftrans.func.trace import trace
from ftrans.interpreters import runnable
from ftrans.ir import Program, Tracer
from ftrans.numpy.promotion import is_array
from ftrans.pytree import describe
from ftrans.verify.coordinates import (
    from_coordinates,
    host,
    index_of,
    is_complex,
    like,
    to_coordinates,
)
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.differences import central, columns, diagonals, find_kink, jacobian
from ftrans.verify.probe import Probe


class Settings(NamedTuple):
    """What the caller of `gradcheck` asked for; None where the dtypes are to decide."""

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


Heard = tuple[str, Exception | None, list[np.ndarray | None]]
"""A `backward` called with None for all cotangents: its name, what it raised, its gradients.

They are None for zero, and for what has no value yet.
"""

# By the bits of the mantissa of the coarsest dtype: eps, atol and rtol where differences are taken
# in double precision, and in its own precision, whose steps are long and noisy.
_TOLERANCES = {
    52: ((1e-6, 1e-5, 1e-3), (1e-6, 1e-5, 1e-3)),
    23: ((1e-6, 1e-4, 2e-3), (1e-2, 2e-3, 1e-2)),
    10: ((1e-6, 1e-2, 2e-2), (6e-2, 3e-2, 6e-2)),
    7: ((1e-6, 6e-2, 1e-1), (2.5e-1, 1.5e-1, 1.5e-1)),
}


class Comparison:
    """Compares the derivatives of a probe: within `|a - n| <= atol + rtol * |n|`.

    Args:
        name: begins errors.
        probe: the probe.
        settings: what was asked for.

    Attributes:
        wide: the probe in double precision, where the function takes that.
        eps: the step of differences.
        atol: the absolute tolerance.
        rtol: the relative tolerance.
        heard: what each `backward` did that was called with None for all cotangents.
    """

    def __init__(self, name: str, probe: Probe, settings: Settings):
        self.name = name
        self.probe = probe
        self.settings = settings
        self.wide = probe.wide or probe
        dtypes = [array.dtype for array in (*probe.arrays, *probe.outs)]
        bits = min(int(jnp.finfo(dtype).nmant) for dtype in dtypes)
        defaults = _TOLERANCES.get(bits, _TOLERANCES[7])[0 if probe.wide else 1]
        given = (settings.eps, settings.atol, settings.rtol)
        self.eps, self.atol, self.rtol = (
            d if g is None else g for g, d in zip(given, defaults, strict=True)
        )
        self._seen: list[Any] | None = None
        self._rows: dict[int, list[np.ndarray]] = {}
        self.heard: list[Heard] = []

    def evaluated(self, *values: Any) -> list[Any]:
        """Returns the leaves of the result, in double precision where that is taken.

        Raises:
            GradcheckOutputError: where the floating ones, or all if there are none, have other
                types than at the point itself.
        """
        outs = self.wide(*values)
        # the types of traced values are held against those of others where they are batched
        if not any(type(value) is Tracer for value in values):
            numbers = self.probe.outputs or range(len(self.probe.leaves))
            # dtypes are held against those of plain arrays, which may not be promoted as others
            before = self.probe.leaves if self._seen is None else self._seen
            check_outputs(self.name, before, outs, numbers, self._seen is not None)
            self._seen = outs
        return outs

    def selected(self, *values: Any) -> list[Any]:
        """Returns the floating outputs, see `evaluated`."""
        outs = self.evaluated(*values)
        return [outs[i] for i in self.probe.outputs]

    def close(self, a: np.ndarray, n: np.ndarray, atol: float | None = None) -> bool:
        """Tells whether two arrays are the same within the tolerances, relative to the second."""
        if a.shape != n.shape:
            return False
        atol = self.atol if atol is None else atol
        with np.errstate(all="ignore"):
            return bool(((a == n) | (np.abs(a - n) <= atol + self.rtol * np.abs(n))).all())

    # ------------------------------------------------------------------- derivatives by the rules

    @functools.cached_property
    def pullback(self) -> Any:
        """The pullback of the floating outputs."""
        return self.probe.pullback()

    def pull(self, number: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a cotangent of one output to those of all values."""

        def pulled(cotangent: Any) -> list[Any]:
            cotangents: list[Any] = [None] * len(self.probe.outputs)
            cotangents[number] = cotangent
            return list(self.pullback(cotangents))

        return pulled

    def push(self, position: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a tangent of one value to those of all outputs."""

        def pushed(tangent: Any) -> list[Any]:
            tangents: list[Any] = [None] * len(self.probe.values)
            tangents[position] = tangent
            return list(jvp(self.probe.select, tuple(self.probe.values), tuple(tangents))[1])

        return pushed

    # --------------------------------------------------------------------------------- compared

    def compare(self, forward: bool) -> None:
        """Compares all Jacobians, element by element; their projections in fast mode."""
        if self.settings.fast_mode:
            self._compare_fast(forward)
        else:
            self._compare_whole(forward)

    def _compare_whole(self, forward: bool) -> None:
        probe = self.probe
        for j, value in enumerate(probe.values):
            if not forward and self._is_aligned(j):
                self._compare_diagonal(j)
                continue
            numerical = jacobian(self.selected, self.wide.values, j, self.eps)
            analytic = columns(self.push(j), value, probe.outs) if forward else []
            for i, n in enumerate(numerical):
                self._hold(analytic[i].T if forward else self._row(i)[j], n, i, j, forward)

    def _row(self, i: int) -> list[np.ndarray]:
        """Returns the Jacobians of one output by reverse mode."""
        if i not in self._rows:
            out = self.probe.leaves[self.probe.outputs[i]]
            self._rows[i] = columns(self.pull(i), out, self.probe.values)
        return self._rows[i]

    def _is_aligned(self, j: int) -> bool:
        """Tells whether it is proven that the Jacobians have nothing beside their diagonals."""
        value, outs = self.wide.values[j], self.probe.outs
        if len(outs) != 1 or len(self.wide.values) != 1:
            return False
        out = outs[0]
        if is_complex(value) or is_complex(out) or value.shape != out.shape or value.size < 64:
            return False
        try:
            forwards = trace(lambda x: self.selected(x)[0])(value)
            back = self.pullback
            proven = is_aligned(forwards, 0) and is_aligned(back.program, len(back.residuals))
        except FtransError:
            # it branches on values, or hands them to NumPy: there is no proof
            return False
        # where it is affine in the cotangent, what is beside the diagonal is not zero
        return proven and not np.any(host(self._pulled_fill(0.0)))

    def _pulled_fill(self, number: float) -> Any:
        out = self.probe.leaves[self.probe.outputs[0]]
        return self.pull(0)(like(np.full(out.shape, number, out.dtype), out))[0]

    def _compare_diagonal(self, j: int) -> None:
        a = to_coordinates(self._pulled_fill(1.0))
        (n,) = diagonals(self.selected, self.wide.values, j, self.eps)
        if not self.close(a, n):
            self._hold(np.diag(a), np.diag(n), 0, j, False)

    def _hold(self, a: np.ndarray, n: np.ndarray, i: int, j: int, forward: bool) -> None:
        """Holds a Jacobian, in real coordinates, against differences, part by part."""
        value, out = self.probe.values[j], self.probe.leaves[self.probe.outputs[i]]
        split = value if forward else out
        for part in range(2 if is_complex(split) else 1):
            a_part, n_part = (_part(m, part, value, out, forward) for m in (a, n))
            if self.close(a_part, n_part):
                continue
            prefix = ""
            if is_complex(split):
                which = ("real", "imaginary")[part]
                which += f" part of complex {'inputs' if forward else 'outputs'} only, "
                prefix = f"While considering the {which}"
            raise GradcheckError(
                f"{self.name}: {prefix}Jacobian {_mode(forward)}mismatch for output {i} with "
                f"respect to input {j},\nnumerical:{n_part}\nanalytical:{a_part}\n"
                + self._explained(a_part, n_part, i, j)
            )

    def _explained(self, a: np.ndarray, n: np.ndarray, i: int, j: int) -> str:
        """Returns lines that say where a mismatch is, and what its likely cause is."""
        probe = self.probe
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(a - n) <= self.atol + self.rtol * np.abs(n))
        rows = np.flatnonzero(wrong.any(axis=1)).tolist()
        kink = find_kink(self.selected, self.wide.values, j, rows, self.eps, i)
        if kink:
            return (
                f"  {kink}.\n  The numerical value is the mean of both sides; a rule may choose "
                f"any value between them.\n  Move the input off this point to check the rule."
            )
        label, array = probe.labels[j], probe.arrays[j]
        known = {label: array.reshape(-1, 1), "the result": probe.outs[i].reshape(1, -1)}
        cause = diagnose(a, n, known)
        place = f"  first wrong for element {index_of(rows[0], array)} of {label}"
        return f"{place}\n  likely cause: {cause}" if cause else place

    def _compare_fast(self, forward: bool) -> None:
        """Compares random projections."""
        draw = np.random.default_rng(42)
        for j, value in enumerate(self.wide.values):
            for i, out in enumerate(self.probe.outs):
                us, vs = (_parts(_direction(draw, x), x) for x in (value, out))
                # as in slow mode, parts of inputs are one complex number but in forward mode
                for directions in [[part] for part in us] if forward else [us]:
                    for v in vs:
                        self._hold_fast(directions, v, i, j, forward)

    def _hold_fast(
        self, us: Sequence[np.ndarray], v: np.ndarray, i: int, j: int, forward: bool
    ) -> None:
        """Holds the projections on a vector of the slopes along one direction, or along two.

        Those along two, of the real and of the imaginary part, make one complex number. An element
        may be off by atol, so a projection by atol times the sum of all products.
        """
        value, out = self.probe.values[j], self.probe.leaves[self.probe.outputs[i]]
        slopes = [central(self.selected, self.wide.values, j, u, self.eps)[i] for u in us]
        n = _joined([float(v @ slope) for slope in slopes])
        if forward:
            tangents = [like(from_coordinates(u, value), value) for u in us]
            a = _joined([float(v @ to_coordinates(self.push(j)(t)[i])) for t in tangents])
        else:
            gradient = to_coordinates(self.pull(i)(like(from_coordinates(v, out), out))[j])
            a = _joined([float(u @ gradient) for u in us])
        atol = self.atol * float(sum(map(np.sum, us))) * float(np.sum(v))
        if self.close(np.asarray(a), np.asarray(n), atol):
            return
        text = (
            f"{self.name}: Jacobian {_mode(forward)}mismatch for output {i} with respect to input "
            f"{j},\nnumerical:{n}\nanalytical:{a}\n"
            f"  These are projections of the Jacobians, computed in fast mode.\n"
        )
        try:
            self._compare_whole(forward)
        except GradcheckError as error:
            raise GradcheckError(f"{text}  In slow mode: {error}") from None
        raise GradcheckError(
            f"{text}  In slow mode all elements are within the tolerances: fast_mode=False passes."
        )


def check_outputs(
    name: str,
    before: Sequence[Any],
    after: Sequence[Any],
    numbers: Sequence[int],
    with_dtypes: bool = True,
) -> None:
    """Checks that the outputs of a function are what they were before its inputs were perturbed.

    Args:
        name: begins the error.
        before: the outputs at the point itself, as leaves.
        after: those beside it.
        numbers: the outputs whose types are compared.
        with_dtypes: whether dtypes are, and not shapes alone.

    Raises:
        GradcheckOutputError: where there are more or fewer, or where a type differs.
    """

    def differ(what: str, found: str) -> GradcheckOutputError:
        return GradcheckOutputError(
            f"{name}: Expected `func` to return {what} when inputs are perturbed.\n  {found} where "
            f"inputs are perturbed\n"
            f"  Move the inputs to where the values do not decide which types the function returns."
        )

    if len(before) != len(after):
        raise differ("the same number of outputs", f"outputs: {len(before)}, and {len(after)}")
    for i in numbers:
        one, other = before[i], after[i]
        # Python numbers have no dtype of their own
        dtypes = {x.dtype for x in (one, other) if is_array(x)} if with_dtypes else ()
        what = "shape" if np.shape(one) != np.shape(other) else "dtype" if len(dtypes) > 1 else ""
        if what:
            found = f"output {i}: {describe(one)}, and {describe(other)}"
            raise differ(f"outputs with the same {what}", found)


def is_aligned(program: Program, position: int) -> bool:
    """Tells whether all results are proven to be elementwise in one input, of its shape.

    Args:
        program: any program; of custom rules it is what is run that counts.
        position: which input.

    Raises:
        MissingRuleError: where a derivative in it has no rule.
    """
    program = runnable(program)
    shape = program.inputs[position].shape
    if not shape:
        return False
    depends = [i == position for i in range(len(program.inputs))]
    for equation, results, _ in program.numbered():
        moved = any(type(atom) is int and depends[atom] for atom in equation.operands)
        if moved:
            if not equation.primitive.tags & {"elementwise"}:
                return False
            if any(program.types[number].shape != shape for number in results):
                return False
        depends += [moved] * len(results)
    return all(program.type_of(output).shape == shape for output in program.outputs)


def _mode(forward: bool) -> str:
    return "computed with forward mode " if forward else ""


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
