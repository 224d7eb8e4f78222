"""One function at one point under verification: its values, derivatives, tolerances, findings.

Every check is a function of a `Trial`. It compares by `same`, which records what it found; it
raises nothing of its own. `guarded` says what an exception out of the user's code means.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from ftrans.errors import ConcretizationError, MissingRuleError, RuleError, TransposeError
from ftrans.func.jvp import jvp
from ftrans.func.vjp import vjp
from ftrans.verify.call import Call, host, is_floating, like
from ftrans.verify.coordinates import count, from_coordinates, to_coordinates
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.reference import in_double
from ftrans.verify.report import Failure, Report
from ftrans.verify.slopes import scale_of
from ftrans.verify.subject import values_of
from ftrans.verify.tolerances import precision_of

__all__ = ["Trial", "last_digits"]


class Trial:
    """Is a call under verification.

    Args:
        call: the call.
        report: where findings go.
        sample: how the sample is called in failures.
        rigid: the outputs, by number, that are declared to have no derivative.

    Attributes:
        leaves: the leaves of the result.
        outputs: the numbers of those that have derivatives.
        outs: these, as NumPy arrays.
        lenient: whether exceptions out of the user's code are but noted.
        derived: whether its arrays have lost elements, so that infinite derivatives are let pass.
    """

    def __init__(self, call: Call, report: Report, sample: str, rigid: Sequence[int] = ()):
        self.call = call
        self.report = report
        self.sample = sample
        self.rigid = tuple(rigid)
        self.leaves = values_of(call)
        try:
            call(*call.values)
        except AttributeError:
            # traced values have methods that plain arrays lack
            call.needs_tracing = True
        self.outputs = [
            i for i, out in enumerate(self.leaves) if is_floating(out) and i not in self.rigid
        ]
        self.outs = [host(self.leaves[i]) for i in self.outputs]
        self.values = [host(value) for value in call.values]
        involved = (*self.values, *self.outs)
        self.precision = max((precision_of(array) for array in involved), default=0.0)
        if 0.0 < self.precision < 1e-10 and self.outputs and self._is_single_inside():
            self.precision = float(np.finfo(np.float32).eps)
        # what is smaller than a normal number may be flushed to zero
        self.least = max((float(jnp.finfo(a.dtype).tiny) for a in involved), default=0.0)
        self._reference: Trial | None = None
        self.lenient = self.derived = False

    def may_overflow(self, sizes: np.ndarray) -> bool:
        """Tells whether products of numbers of these sizes, or of the arguments, may overflow.

        Args:
            sizes: of derivatives.
        """
        for array in (*self.values, *self.outs):
            limit = float(np.sqrt(float(jnp.finfo(array.dtype).max)))
            for numbers in (np.abs(to_coordinates(array)), np.abs(sizes)):
                numbers = numbers[numbers > 0]
                if numbers.size and not 1 / limit < numbers.min() <= numbers.max() < limit:
                    return True
        return False

    def select(self, *values: Any) -> list[Any]:
        """Returns the outputs that have derivatives, for these values of the floating arguments."""
        outs = self.call(*values)
        return [outs[i] for i in self.outputs]

    def reference(self) -> Trial | None:
        """Returns the trial in double precision; None where the function does not take that."""
        if all(precision_of(array) < 1e-10 for array in (*self.values, *self.outs)):
            return self
        if self._reference is None:
            wide = in_double(self.call, self.leaves)
            if wide is None:
                return None
            self._reference = Trial(wide, self.report, self.sample, self.rigid)
        return self._reference

    def _is_single_inside(self) -> bool:
        """Tells whether the numbers are of double precision by their dtype alone.

        What a function of single precision returns has zeros at the end of its mantissa, also at
        a point that has none.
        """
        moved = [
            like((v * (1 + 1e-3 * d)).astype(v.dtype), original)
            for v, d, original in zip(
                self.values, self.draw(self.values, "precision"), self.call.values, strict=True
            )
        ]
        try:
            with np.errstate(all="ignore"):
                found = [host(out) for out in self.select(*moved)]
                found += [host(g) for g in vjp(self.select, *moved)[1](self.cotangents("1"))]
        except Exception:
            # whatever it is, the checks will meet it
            return False
        return any(map(_is_single, found[: len(self.outs)])) or all(
            _is_single(grad) for grad in found[len(self.outs) :]
        )

    def pulls_back(self) -> bool:
        """Tells whether reverse mode takes the arguments at all, or is not there."""
        try:
            with np.errstate(all="ignore"):
                vjp(self.select, *self.values)[1](self.cotangents("1"))
        except RuleError:
            return False
        except Exception:
            # whatever it is, the checks will meet it
            return True
        return True

    # ------------------------------------------------------------------------------ vectors

    def draw(self, arrays: Sequence[Any], key: str, scaled: bool = False) -> list[np.ndarray]:
        """Returns random arrays like some others, the same for the same key.

        Args:
            arrays: what they are like.
            key: says what they are for.
            scaled: whether each element is of the size of the one that it is like.
        """
        draw = np.random.default_rng(zlib.crc32(key.encode()))
        found = []
        for array in arrays:
            size = draw.uniform(0.3, 1.0, count(array)) * draw.choice([-1.0, 1.0], count(array))
            found.append(from_coordinates(size * scale_of(array) if scaled else size, array))
        return found

    def cotangents(self, key: str) -> list[Any]:
        """Returns random cotangents of the outputs, in the outputs' containers."""
        arrays = self.draw(self.outs, f"cotangent {key}")
        return [like(a, self.leaves[i]) for a, i in zip(arrays, self.outputs, strict=True)]

    def tangents(self, key: str) -> list[Any]:
        """Returns random tangents of the arguments, each element as large as what it moves."""
        arrays = self.draw(self.values, f"tangent {key}", scaled=True)
        return [like(a, v) for a, v in zip(arrays, self.call.values, strict=True)]

    def pull(self, cotangents: Sequence[Any]) -> list[np.ndarray]:
        """Returns the gradients for some cotangents, by a pullback made anew."""
        pullback = vjp(self.select, *self.call.values)[1]
        return [host(grad) for grad in pullback(list(cotangents))]

    def push(self, tangents: Sequence[Any]) -> list[np.ndarray]:
        """Returns the tangents of the outputs for those of the arguments."""
        found = jvp(self.select, tuple(self.call.values), tuple(tangents))[1]
        return [host(dot) for dot in found]

    def shaken(self, seed: int) -> list[Any]:
        """Returns the floating arguments, moved by a few last digits."""
        return [
            like(last_digits(value, seed), original)
            for value, original in zip(self.values, self.call.values, strict=True)
        ]

    # ---------------------------------------------------------------------------- comparing

    def same(
        self,
        check: str,
        what: str,
        got: Sequence[Any],
        expected: Sequence[Any],
        labels: Sequence[str] = (),
        slack: float = 1.0,
        cause: str = "",
        again: Callable[[int], Sequence[Any]] | None = None,
        exact: bool = False,
    ) -> bool:
        """Records whether two lists of arrays are the same but for rounding.

        Args:
            check: the check.
            what: what is compared.
            got: what the rule gave.
            expected: what it should have given.
            labels: how the entries are called.
            slack: how much more than rounding is let through.
            cause: the likely cause, where the check knows it.
            again: returns what is expected where arguments are moved by their last digits, for
                some numbers; by how much that moves results is let through.
            exact: whether both were computed in the same way, so that a few last digits count.
        """
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            one, other = host(one), host(other)
            agree = _agree(one, other, self.precision, self.least, slack, exact)
            if not agree and again is not None:
                moved = [host(again(seed)[i]) for seed in range(3)]
                agree = _within(one, other, moved)
            if not agree:
                label = f" ({labels[i]})" if labels else ""
                why = cause or diagnose(one, other)
                self.fail(check, f"{what}{label}", one, other, why)
                return False
        self.report.hold(check)
        return True

    def fail(
        self, check: str, what: str, got: Any = None, expected: Any = None, cause: str = ""
    ) -> None:
        """Records that something is wrong."""
        self.report.fail(Failure(check, self.sample, what, got, expected, cause))

    def note(self, check: str, text: str) -> None:
        """Records what is no failure."""
        self.report.note(check, text)

    @contextmanager
    def guarded(self, check: str, what: str, missing: str = "") -> Iterator[None]:
        """Turns exceptions out of the user's code into findings.

        A rule that is missing, and values that are branched on, are noted; all else is a failure.

        Args:
            check: the check.
            what: what is being done, for the failure.
            missing: what to note where a rule is missing.
        """
        try:
            with np.errstate(all="ignore"):
                yield
        except (MissingRuleError, TransposeError) as error:
            # a rule that raised while it was traced is kept as a missing one
            if " raised " in _first(error):
                self.fail(check, f"{what}: {error}", cause=_why(error))
            else:
                self.note(check, missing or _first(error))
        except ConcretizationError:
            self.note(check, "not checked: the function branches on values")
        except Exception as error:
            if self.lenient and not isinstance(error, RuleError):
                self.note(check, f"{what} raised {type(error).__name__} for an empty array")
                return
            self.fail(check, f"{what} raised {type(error).__name__}: {error}", cause=_why(error))

    def coordinates(self, arrays: Sequence[Any]) -> np.ndarray:
        """Returns the real coordinates of several arrays, one after the other."""
        parts = [to_coordinates(host(array)) for array in arrays]
        return np.concatenate(parts) if parts else np.zeros(0)


def _is_single(array: np.ndarray) -> bool:
    """Tells whether all numbers of an array in double precision are ones of single precision.

    Zeros and small integers, which any rule returns, do not count.
    """
    vector = to_coordinates(array)
    vector = vector[np.isfinite(vector) & (vector != np.round(vector, 2))]
    return bool(vector.size) and bool((vector.astype(np.float32) == vector).all())


def last_digits(array: np.ndarray, seed: int, precision: float | None = None) -> np.ndarray:
    """Returns a floating array moved by a few last digits, at random."""
    precision = precision_of(array) if precision is None else precision
    draw = np.random.default_rng(seed)
    signs = draw.choice([-2.0, -1.0, 1.0, 2.0], array.shape)
    return (array * (1 + precision * signs)).astype(array.dtype)


def _first(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _why(error: Exception) -> str:
    if "read-only" in str(error):
        return "the rule writes to an array that it was given"
    if "NoneType" in str(error):
        return "a cotangent or tangent of None is not treated as zero"
    return ""


def _within(one: np.ndarray, other: np.ndarray, moved: Sequence[np.ndarray]) -> bool:
    """Tells whether two arrays differ by no more than what the last digits of arguments do."""
    if one.shape != other.shape or any(m.shape != other.shape for m in moved):
        return False
    wide = np.complex128
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(m.astype(wide) - other.astype(wide)) for m in moved], axis=0)
        allowed = 30 * spread + 3 * np.max(spread, initial=0.0)
        return bool((np.abs(one.astype(wide) - other.astype(wide)) <= allowed).all())


def _agree(
    one: np.ndarray,
    other: np.ndarray,
    precision: float,
    least: float,
    slack: float,
    exact: bool = False,
) -> bool:
    """Tells whether two arrays are the same but for rounding, element by element and as a whole."""
    if one.shape != other.shape:
        return False
    if one.dtype.kind in "biu" and other.dtype.kind in "biu":
        return bool((one == other).all())
    wide = np.complex128 if "c" in (one.dtype.kind, other.dtype.kind) else np.float64
    one, other = one.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        finite = np.isfinite(one) & np.isfinite(other)
        size = np.max(np.abs(other), initial=0.0, where=finite)
        if exact:
            allowed = 100 * precision * (np.abs(other) + 0.1 * size)
        else:
            allowed = slack * (2 * precision**0.6 * np.abs(other) + 2 * precision**0.75 * size)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        same |= finite & (np.abs(one - other) <= allowed + 100 * least)
    return bool(same.all())


Checked = Callable[[Trial], None]
"""Is a check: it looks at one trial and records what it finds."""
