"""Jacobians by the rules against Jacobians by differences, as `gradcheck` does: whole or projected.

A program that is proven to be elementwise has diagonal ones, which take one evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

from ftrans.errors import FtransError, GradcheckError, GradcheckOutputError
from ftrans.func.staging import name_of, named
from ftrans.func.trace import trace
from ftrans.interpreters import runnable
from ftrans.ir import Program, Tracer
from ftrans.numpy.named import Plain
from ftrans.numpy.promotion import is_array
from ftrans.pytree import describe
from ftrans.verify.coordinates import (
    agreeing,
    from_coordinates,
    index_of,
    is_complex,
    is_floating,
    to_coordinates,
)
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.differences import Beside, central, find_kink, jacobian, rows_of
from ftrans.verify.probe import Probe


class Settings(NamedTuple):
    """What the caller of `gradcheck` asked for; None where the dtypes are to decide."""

    eps: float | None
    atol: float | None
    rtol: float | None
    nondet_tol: float
    undefined: bool
    dtypes: bool
    fast: bool
    backward: bool
    forward: bool
    batched: bool
    batched_forward: bool


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

    Attributes:
        wide: the probe in double precision, where the function takes that.
        beside: its floating outputs beside the point.
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
        dtypes = [array.dtype for array in (*probe.values, *probe.outs)]
        bits = min(int(jnp.finfo(dtype).nmant) for dtype in dtypes)
        defaults = _TOLERANCES.get(bits, _TOLERANCES[7])[0 if probe.wide else 1]
        given = (settings.eps, settings.atol, settings.rtol)
        self.eps, self.atol, self.rtol = (
            d if g is None else g for g, d in zip(given, defaults, strict=True)
        )
        # where nothing floats, nothing may move
        outputs = probe.outputs or range(len(probe.leaves))
        select = functools.partial(self.wide.select, outputs=outputs)
        self.beside = Beside(select, self.wide.values, probe.traced)
        self.heard: list[Any] = []

    def error(self, text: str) -> GradcheckError:
        """Returns an error that begins with the name of the check."""
        return GradcheckError(f"{self.name}: {text}")

    def right(self, a: np.ndarray, n: np.ndarray, atol: Any = None) -> np.ndarray:
        """Tells of each number whether it is within the tolerances, relative to the second."""
        allowed = (self.atol if atol is None else atol) + self.rtol * np.abs(n)
        return agreeing(a, n, allowed) & ~np.isnan(a)

    # ------------------------------------------------------------------- derivatives by the rules

    @functools.cached_property
    def pullback(self) -> Any:
        """The pullback of the floating outputs."""
        return self.probe.pullback()

    def pull(self, number: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a cotangent of one output to those of all values."""
        count = len(self.probe.outputs)
        return lambda ct: list(self.pullback([ct if i == number else None for i in range(count)]))

    def push(self, position: int) -> Callable[[Any], list[Any]]:
        """Returns the map from a tangent of one value to those of all outputs."""
        count, pushforward = len(self.probe.values), self.probe.pushforward()
        return lambda t: pushforward([t if j == position else None for j in range(count)])

    # --------------------------------------------------------------------------------- compared

    def compare(self, forward: bool) -> None:
        """Compares all Jacobians, element by element; their projections in fast mode."""
        (self._compare_fast if self.settings.fast else self._compare_whole)(forward)

    def compare_nothing(self) -> None:
        """Checks that a function without floating outputs does not depend on its inputs."""
        for j in range(len(self.probe.values)):
            for i, matrix in enumerate(jacobian(self.beside, j, self.eps)):
                if not np.allclose(matrix, 0.0):
                    raise self.error(
                        f"Numerical gradient for function expected to be zero.\n"
                        f"  output {i} with respect to input {j}: {matrix.T}\n"
                        f"  The function has no floating output, so its gradient is zero."
                    )

    def _compare_whole(self, forward: bool) -> None:
        if not forward and self._is_right_diagonal():
            return
        outs, traced = self.probe.outs, self.probe.traced
        for j, value in enumerate(self.probe.values):
            rows = rows_of(self.push(j), value, outs, traced) if forward else []
            for i, n in enumerate(jacobian(self.beside, j, self.eps)):
                self._hold(rows[i] if forward else self._columns[i][j].T, n, i, j, forward)

    @functools.cached_property
    def _columns(self) -> list[list[np.ndarray]]:
        """The Jacobians of each output by reverse mode, transposed."""
        probe = self.probe
        pairs = enumerate(probe.outs)
        return [rows_of(self.pull(i), out, probe.values, probe.traced) for i, out in pairs]

    def _is_right_diagonal(self) -> bool:
        """Tells whether there is one Jacobian, proven to be diagonal, and that is right."""
        values, outs = self.wide.values, self.probe.outs
        if len(values) != 1 or len(outs) != 1 or not self.probe.traced:
            return False
        value, out = values[0], outs[0]
        if is_complex(value) or is_complex(out) or value.shape != out.shape or value.size < 64:
            return False
        try:
            forwards = trace(lambda x: self.wide.select(x)[0])(value)
            back = self.pullback
            if not (is_aligned(forwards, 0) and is_aligned(back.program, len(back.residuals))):
                return False
        except FtransError:
            # it branches on values, or hands them to NumPy: there is no proof
            return False
        cotangents = [np.full(out.shape, x, out.dtype) for x in (0.0, 1.0)]
        nothing, a = (to_coordinates(self.pull(0)(ct)[0]) for ct in cotangents)
        (n,) = central(self.beside, 0, np.ones((1, a.size)), self.eps)
        # where it is affine in the cotangent, what is beside the diagonal is not zero
        return not np.any(nothing) and bool(self.right(a, n[0]).all())

    def _hold(
        self, a: np.ndarray, n: np.ndarray, i: int, j: int, forward: bool, over: Any = None
    ) -> None:
        """Holds a Jacobian, in real coordinates, against differences, part by part.

        Of one that is projected, `over` says how much each number adds up, and atol is for one.
        """
        value, out = self.probe.values[j], self.probe.outs[i]
        split, of = (value, "inputs") if forward else (out, "outputs")
        for part, which in enumerate(("real", "imaginary")[: 1 + is_complex(split)]):
            one, other = (_part(m, part, value, out, forward) for m in (a, n))
            sums = 1.0 if over is None else _part(over, part, value, out, forward)
            right = self.right(one, other, self.atol * (np.real(sums) + np.imag(sums)))
            if right.all():
                continue
            mode = "computed with forward mode " if forward else ""
            prefix = f"While considering the {which} part of complex {of} only, "
            shown = (other, one) if over is None else (other.item(), one.item())
            text = (
                f"{prefix if is_complex(split) else ''}Jacobian {mode}mismatch for output {i} with "
                f"respect to input {j},\nnumerical:{shown[0]}\nanalytical:{shown[1]}\n"
            )
            if over is None:
                raise self.error(text + self._explained(one, other, i, j, right))
            text += "  These are projections of the Jacobians, computed in fast mode.\n"
            try:
                self._compare_whole(forward)
            except GradcheckError as error:
                raise self.error(f"{text}  In slow mode: {error}") from None
            passes = "all elements are within the tolerances: fast_mode=False passes."
            raise self.error(f"{text}  In slow mode {passes}")

    def _explained(self, a: np.ndarray, n: np.ndarray, i: int, j: int, right: np.ndarray) -> str:
        """Returns lines that say where a mismatch is, and what its likely cause is."""
        probe = self.probe
        rows = np.flatnonzero(~right.all(axis=1)).tolist()
        kink = find_kink(self.beside, j, rows, self.eps, i)
        if kink:
            return (
                f"  {kink}.\n  The numerical value is the mean of both sides; a rule may choose "
                f"any value between them.\n  Move the input off this point to check the rule."
            )
        label, array = probe.labels[j], probe.values[j]
        known = {label: array.reshape(-1, 1), "the result": probe.outs[i].reshape(1, -1)}
        cause = diagnose(a, n, known)
        place = f"  first wrong for element {index_of(rows[0], array)} of {label}"
        return f"{place}\n  likely cause: {cause}" if cause else place

    def _compare_fast(self, forward: bool) -> None:
        """Compares random projections; real and imaginary parts apart, as in slow mode."""
        draw = np.random.default_rng(42)
        for j, value in enumerate(self.wide.values):
            for i, out in enumerate(self.probe.outs):
                us, vs = _directions(draw, value), _directions(draw, out)
                if forward:
                    tangents = from_coordinates(us, self.probe.values[j])
                    a = np.stack([to_coordinates(self.push(j)(t)[i]) for t in tangents]) @ vs.T
                else:
                    cts = from_coordinates(vs, out)
                    a = us @ np.stack([to_coordinates(self.pull(i)(ct)[j]) for ct in cts]).T
                n = central(self.beside, j, us, self.eps)[i] @ vs.T
                self._hold(a, n, i, j, forward, np.outer(us.sum(1), vs.sum(1)))


def steady(name: str, func: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that raises where its outputs are not of the types of earlier calls.

    There must be as many, and those that float, else all, must have the same shapes. Dtypes are
    held against calls for the same dtypes, traced or not: others may promote in another way.
    """
    seen: dict[Any, list[Any]] = {}

    def differ(what: str, found: str) -> GradcheckOutputError:
        return GradcheckOutputError(
            f"{name}: Expected `func` to return {what} when inputs are perturbed.\n  {found} where "
            f"inputs are perturbed\n"
            f"  Move the inputs to where the values do not decide which types the function returns."
        )

    @functools.wraps(func)
    def called(*args: Any) -> Any:
        result = func(*args)
        after, given = (list(map(Plain(), tree.tree_leaves(xs))) for xs in (result, args))
        given = filter(is_floating, given)
        kind = tuple((type(x) is Tracer, x.dtype) for x in given)
        before = seen.get(kind, next(iter(seen.values()), after))
        if len(before) != len(after):
            raise differ("the same number of outputs", f"outputs: {len(before)}, and {len(after)}")
        floats = [i for i, leaf in enumerate(before) if is_floating(leaf)]
        for i in floats or range(len(before)):
            one, other = before[i], after[i]
            # Python numbers have no dtype of their own
            dtypes = {x.dtype for x in (one, other) if is_array(x)} if kind in seen else ()
            is_reshaped = np.shape(one) != np.shape(other)
            if is_reshaped or len(dtypes) > 1:
                found = f"output {i}: {describe(one)}, and {describe(other)}"
                raise differ(f"outputs with the same {'shape' if is_reshaped else 'dtype'}", found)
        seen.setdefault(kind, after)
        return result

    return named(called, name_of(func))


def is_aligned(program: Program, position: int) -> bool:
    """Tells whether all results are proven to be elementwise in one input, of its shape."""
    program = runnable(program)
    shape = program.inputs[position].shape
    if not shape:
        return False
    depends = [i == position for i in range(len(program.inputs))]
    for equation, results, _ in program.numbered():
        moved = any(type(atom) is int and depends[atom] for atom in equation.operands)
        fits = all(program.types[number].shape == shape for number in results)
        if moved and not (fits and "elementwise" in equation.primitive.tags):
            return False
        depends += [moved] * len(results)
    return all(program.type_of(output).shape == shape for output in program.outputs)


def _part(matrix: np.ndarray, part: int, value: Any, out: Any, forward: bool) -> np.ndarray:
    """Returns the real or imaginary part of outputs (forward: inputs) of a Jacobian, as PyTorch's.

    What is left of complex numbers on the other side makes complex entries.
    """
    if forward:
        matrix = matrix.T
        value, out = out, value
    half = np.split(matrix, 2, axis=1)[part] if is_complex(out) else matrix
    if is_complex(value):
        real, imaginary = np.split(half, 2)
        half = real + 1j * imaginary
    return half.T if forward else half


def _directions(draw: np.random.Generator, array: Any) -> np.ndarray:
    """Returns random vectors of length 1 without negative entries, for each part of an array."""
    parts = 1 + is_complex(array)
    vectors = np.zeros((parts, parts, array.size))
    for k in range(parts):
        vector = draw.uniform(0, 1, array.size)
        vectors[k, k] = vector / max(float(np.linalg.norm(vector)), 1e-300)
    return vectors.reshape(parts, parts * array.size)
