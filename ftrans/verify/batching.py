"""`vmap` against a Python loop: every choice of axes, nested, of derivatives, differentiated.

The examples of a batch differ in value and in order, so that a rule which mixes them, or takes one
for all, gives something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.func.jvp import jvp
from ftrans.func.vjp import vjp
from ftrans.func.vmap import vmap
from ftrans.ir import Tracer
from ftrans.numpy.promotion import is_array
from ftrans.verify.call import host, is_floating, like
from ftrans.verify.samples import is_structured
from ftrans.verify.trial import Trial, last_digits

__all__ = ["check_batches"]

VMAP = "vmap against a loop"
NESTED = "vmap(vmap) against a loop"
OF_RULES = "vmap of derivatives"
THROUGH = "derivatives of vmap"

_MOST = 64
"""How many choices of mapped axes are tried; with two arguments they are 15."""

_LARGEST = 4
"""The largest axis that a batch is made as large as."""
_FEW = 12
"""How many of them are tried with a batch of the size of an axis."""

Dims = tuple[int | None, ...]


def check_batches(trial: Trial) -> None:
    """Holds batches of a trial against loops over their examples."""
    if not any(map(is_array, trial.call.leaves)):
        return
    with trial.guarded(VMAP, "vmap"):
        batches = _Batches(trial)
        if not batches.settle():
            trial.note(VMAP, "not checked: the function takes no other values than the sample")
            return
        _compare(trial, batches)


def _compare(trial: Trial, batches: _Batches) -> None:
    for dims in batches.choices():
        if not batches.compare(VMAP, dims, batches.size):
            return
    for dims in (batches.uniform(0), batches.uniform(-1)):
        if not batches.compare(VMAP, dims, 1):
            return
    # a rule may take for mapped what merely has the size of the batch
    for size in batches.confusing:
        for dims in [dims for dims in batches.choices() if None in dims][:_FEW]:
            if not batches.compare(VMAP, dims, size):
                return
    with trial.guarded(NESTED, "vmap(vmap)"):
        batches.nested()
    if trial.outputs and trial.values:
        with trial.guarded(OF_RULES, "vmap of backward", "no reverse mode"):
            batches.of_backward()
        with trial.guarded(OF_RULES, "vmap of jvp", "no forward mode"):
            batches.of_jvp()
        with trial.guarded(THROUGH, "backward of vmap", "no reverse mode"):
            batches.through()


class _Batches:
    """Makes batches of the arrays among the arguments of a trial.

    Args:
        trial: the trial.

    Attributes:
        leaves: the arrays, integers included.
        size: how many examples: no array has an axis of this size.
        confusing: other numbers of examples, which are the sizes of axes.
        count: how many examples are made.
    """

    def __init__(self, trial: Trial):
        self.trial = trial
        self.call = trial.call
        self.places = [i for i, leaf in enumerate(self.call.leaves) if is_array(leaf)]
        self.leaves = [self.call.leaves[i] for i in self.places]
        self.floats = [k for k, leaf in enumerate(self.leaves) if is_floating(leaf)]
        sizes = {n for leaf in (*self.leaves, *trial.leaves) for n in np.shape(leaf)}
        self.size = next(n for n in itertools.count(2) if n not in sizes)
        self.confusing = [n for n in sorted(sizes) if 1 < n <= _LARGEST] if self.leaves[1:] else []
        self.count = max(self.size, *self.confusing, 0)
        self.examples: list[list[np.ndarray]] = []
        plain = self.function(*(like(host(leaf).copy(), leaf) for leaf in self.leaves))
        self.kept = [i for i, out in enumerate(plain) if is_array(out)]
        self._results: dict[Any, list[np.ndarray]] = {}

    def function(self, *arrays: Any) -> list[Any]:
        """Returns the array leaves of the result for these array leaves of the arguments."""
        if self.call.needs_tracing and not any(type(array) is Tracer for array in arrays):
            return vjp(self.function, *arrays)[0]
        leaves = list(self.call.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        return tree.tree_leaves(self.call.func(*self.call.structure.unflatten(leaves)))

    def smooth(self, *arrays: Any) -> list[Any]:
        """Returns the outputs that have derivatives."""
        outs = self.function(*arrays)
        return [outs[i] for i in self.trial.outputs]

    # ------------------------------------------------------------------------------ examples

    def settle(self) -> bool:
        """Chooses examples that the function takes; tells whether there are any."""
        for make in (self._moved, self._scaled, self._repeated):
            examples = [[make(host(leaf), b) for leaf in self.leaves] for b in range(self.count)]
            try:
                with np.errstate(all="ignore"):
                    results = [self._at(example) for example in examples]
            except Exception:
                # outside of where the function is defined: the next kind is nearer to the sample
                continue
            if all(_usable(array) for arrays in results for array in arrays):
                self.examples = examples
                return True
        return False

    def _moved(self, array: np.ndarray, b: int) -> np.ndarray:
        """Returns the same elements in another order, and a little larger."""
        return self._scaled(array if is_structured(array) else np.roll(array, b), b)

    def _scaled(self, array: np.ndarray, b: int) -> np.ndarray:
        if array.dtype.kind in "biu":
            return array
        return (array * np.asarray(1 + 0.0625 * b, array.dtype)).astype(array.dtype)

    def _repeated(self, array: np.ndarray, b: int) -> np.ndarray:
        return array

    def _at(self, example: Sequence[Any]) -> list[np.ndarray]:
        pairs = zip(example, self.leaves, strict=True)
        values = [like(np.array(x), leaf) for x, leaf in pairs]
        outs = self.function(*values)
        return [host(outs[i]) for i in self.kept]

    def stacked(self, dims: Dims, size: int) -> list[Any]:
        """Returns the arrays with the examples along their mapped axes; the first where not."""
        found = []
        for k, dim in enumerate(dims):
            if dim is None:
                array = self.examples[0][k]
            else:
                array = np.stack([self.examples[b][k] for b in range(size)], axis=dim)
            found.append(like(array, self.leaves[k]))
        return found

    def expected(self, dims: Dims, size: int) -> list[np.ndarray]:
        """Returns what a loop gives, stacked."""
        mapped = tuple(dim is not None for dim in dims)
        if (mapped, size) not in self._results:
            each = [self._at(self.example(mapped, b)) for b in range(size)]
            self._results[mapped, size] = [np.stack(outs) for outs in zip(*each, strict=True)]
        return self._results[mapped, size]

    def example(self, mapped: Sequence[bool], b: int) -> list[np.ndarray]:
        """Returns one example, where these arguments are mapped."""
        return [self.examples[b if m else 0][k] for k, m in enumerate(mapped)]

    # -------------------------------------------------------------------------------- in_dims

    def uniform(self, dim: int) -> Dims:
        """Returns the same axis for all, or the last one where there are not so many."""
        return tuple(dim if dim < 0 else min(dim, np.ndim(leaf)) for leaf in self.leaves)

    def choices(self) -> list[Dims]:
        """Returns the choices of mapped axes among the first, the second, the last, and none."""
        options: list[list[int | None]] = []
        for leaf in self.leaves:
            axes: list[int | None] = [0]
            axes += [1] if np.ndim(leaf) >= 1 else []
            axes += [-1] if np.ndim(leaf) >= 2 else []
            options.append([*axes, None])
        every = itertools.product(*options)
        if np.prod([float(len(o)) for o in options]) <= _MOST + 1:
            return [dims for dims in every if any(d is not None for d in dims)]
        count = len(options)
        found = [self.uniform(0), self.uniform(1), self.uniform(-1)]
        for k in range(count):
            for dim in options[k]:
                single: list[int | None] = [None] * count
                others: list[int | None] = [0] * count
                single[k], others[k] = dim, dim
                found += [tuple(single), tuple(others)]
        unique = dict.fromkeys(d for d in found if any(x is not None for x in d))
        return list(unique)[:_MOST]

    def compare(self, check: str, dims: Dims, size: int) -> bool:
        """Holds one choice against the loop."""
        arrays = self.stacked(dims, size)
        got = [host(out) for out in vmap(self._arrays, dims)(*arrays)]
        expected = self.expected(dims, size)
        what = f"vmap with in_dims={_shown(dims)} and {size} examples is not what a loop gives"

        def again(seed: int) -> list[np.ndarray]:
            mapped = [dim is not None for dim in dims]
            each = [
                self._at([_moved(x, seed) for x in self.example(mapped, b)]) for b in range(size)
            ]
            return [np.stack(outs) for outs in zip(*each, strict=True)]

        if not self._same(check, what, got, expected, again):
            return False
        for i, out in zip(self.kept, got, strict=True):
            dtype = self.trial.leaves[i].dtype
            if out.dtype != dtype:
                self.trial.fail(check, f"vmap changes the dtype of output {i}", out.dtype, dtype)
                return False
        return True

    def _arrays(self, *arrays: Any) -> list[Any]:
        """Returns the outputs that are arrays when nothing is traced."""
        outs = self.function(*arrays)
        return [outs[i] for i in self.kept]

    def _same(
        self,
        check: str,
        what: str,
        got: Sequence[Any],
        expected: Sequence[Any],
        again: Callable[[int], Sequence[Any]] | None = None,
    ) -> bool:
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            cause = _batch_cause(one, other)
            if not cause:
                continue
            alone = None if again is None else lambda seed, i=i: [again(seed)[i]]
            if not self.trial.same(check, what, [one], [other], slack=4, again=alone):
                self.trial.report.failures[-1] = self.trial.report.failures[-1].because(cause)
                return False
        return self.trial.same(check, what, got, expected, slack=4, again=again)

    # --------------------------------------------------------------------------------- nested

    def nested(self) -> None:
        """Maps twice: both levels over all arguments, and each level over some of them."""
        count, size = len(self.leaves), self.size
        half = tuple(0 if k % 2 == 0 else None for k in range(count))
        rest = tuple(None if k % 2 == 0 else 0 for k in range(count))
        pairs = [(self.uniform(0), self.uniform(0)), (self.uniform(-1), self.uniform(0))]
        if count > 1:
            pairs += [(half, rest), (rest, half)]
        for inner, outer in pairs:
            arrays = []
            for k in range(count):
                along = [self.examples[b][k] for b in range(size)]
                if inner[k] is None and outer[k] is None:
                    array = along[0]
                elif inner[k] is None or outer[k] is None:
                    array = np.stack(along, _first(inner[k], outer[k]))
                else:
                    # the outer level takes the examples in reverse order, so that levels differ
                    axis = _first(inner[k])
                    rows = [np.stack(along, axis), np.stack(along[::-1], axis)]
                    array = np.stack(rows, _first(outer[k]))
                arrays.append(like(array, self.leaves[k]))
            number = size
            if any(i is not None and o is not None for i, o in zip(inner, outer, strict=True)):
                number = 2
            found = vmap(vmap(self._arrays, inner), outer)(*arrays)
            expected = [
                [self._at(self._pick(inner, outer, i, o)) for i in range(size)]
                for o in range(number)
            ]
            stacked = [
                np.stack(
                    [np.stack([expected[o][i][k] for i in range(size)]) for o in range(number)]
                )
                for k in range(len(expected[0][0]))
            ]
            what = f"vmap(vmap) with in_dims={_shown(inner)} inside {_shown(outer)} is not a loop"
            if not self._same(NESTED, what, [host(x) for x in found], stacked):
                return

    def _pick(self, inner: Dims, outer: Dims, i: int, o: int) -> list[np.ndarray]:
        found = []
        for k, (a, b) in enumerate(zip(inner, outer, strict=True)):
            if a is not None and b is not None:
                found.append(self.examples[i if o == 0 else self.size - 1 - i][k])
            else:
                found.append(self.examples[i if a is not None else o if b is not None else 0][k])
        return found

    # ----------------------------------------------------------------------------- derivatives

    def _cotangents(self, size: int) -> list[list[np.ndarray]]:
        return [[host(ct) for ct in self.trial.cotangents(f"example {b}")] for b in range(size)]

    def _gradients(self, *operands: Any) -> list[Any]:
        """Returns the gradients of all floating arguments, for arguments and cotangents."""
        count = len(self.leaves)
        arrays, cotangents = operands[:count], operands[count:]

        def function(*floats: Any) -> list[Any]:
            return self.smooth(*self._filled(arrays, floats))

        pullback = vjp(function, *(arrays[k] for k in self.floats))[1]
        return list(pullback(list(cotangents)))

    def _filled(self, arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
        filled = list(arrays)
        for k, value in zip(self.floats, floats, strict=True):
            filled[k] = value
        return filled

    def _of(self, what: str, function: Callable[..., Any], vectors: list[list[Any]]) -> None:
        """Holds `vmap` of a function of arguments and vectors against a loop."""
        dims = (0,) * len(self.leaves)
        stacked = [np.stack([row[i] for row in vectors]) for i in range(len(vectors[0]))]
        operands = [*self.stacked(dims, self.size), *self._contained(stacked)]
        got = [host(x) for x in vmap(function)(*operands)]
        each = []
        for b in range(self.size):
            example = [like(x, leaf) for x, leaf in zip(self.examples[b], self.leaves, strict=True)]
            each.append([host(x) for x in function(*example, *self._contained(vectors[b]))])
        expected = [np.stack(rows) for rows in zip(*each, strict=True)]
        if all(_usable(x) for x in expected):
            self._same(OF_RULES, f"vmap of {what} is not what a loop gives", got, expected)

    def _contained(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Returns arrays in the container of the arguments."""
        return [like(array, self.leaves[0]) for array in arrays]

    def of_backward(self) -> None:
        """Maps backward over arguments and cotangents."""
        self._of("backward", self._gradients, self._cotangents(self.size))

    def of_jvp(self) -> None:
        """Maps jvp over arguments and tangents."""
        count = len(self.leaves)

        def push(*operands: Any) -> list[Any]:
            arrays, tangents = operands[:count], operands[count:]

            def function(*floats: Any) -> list[Any]:
                return self.smooth(*self._filled(arrays, floats))

            primals = tuple(arrays[k] for k in self.floats)
            return list(jvp(function, primals, tuple(tangents))[1])

        tangents = [
            self.trial.draw(self.trial.values, f"tangent {b}", scaled=True)
            for b in range(self.size)
        ]
        self._of("jvp", push, tangents)

    def through(self) -> None:
        """Differentiates `vmap`, with all arguments mapped, and with each of them not mapped."""
        count = len(self.leaves)
        cotangents = self._cotangents(self.size)
        stacked = [np.stack([row[i] for row in cotangents]) for i in range(len(cotangents[0]))]
        choices: list[Dims] = [(0,) * count]
        if count > 1:
            choices += [tuple(None if k == j else 0 for k in range(count)) for j in range(count)]
        for dims in choices[:5]:
            arrays = self.stacked(dims, self.size)

            def function(*floats: Any, dims: Dims = dims, arrays: Any = arrays) -> list[Any]:
                return vmap(self.smooth, dims)(*self._filled(arrays, floats))

            pullback = vjp(function, *(arrays[k] for k in self.floats))[1]
            got = [host(x) for x in pullback(self._contained(stacked))]
            mapped = [dim is not None for dim in dims]
            rows = []
            for b in range(self.size):
                example = [
                    like(x, leaf)
                    for x, leaf in zip(self.example(mapped, b), self.leaves, strict=True)
                ]
                grads = self._gradients(*example, *self._contained(cotangents[b]))
                rows.append([host(x) for x in grads])
            expected = [
                np.stack(many) if mapped[k] else np.sum(many, axis=0).astype(many[0].dtype)
                for k, many in zip(self.floats, zip(*rows, strict=True), strict=True)
            ]
            if not all(_usable(x) for x in expected):
                return
            what = f"backward of vmap with in_dims={_shown(dims)} is not what a loop gives"
            if not self._same(THROUGH, what, got, expected):
                return


def _moved(array: np.ndarray, seed: int) -> np.ndarray:
    """Returns an array moved by its last digits, where it has any."""
    return array if array.dtype.kind in "biu" else last_digits(array, seed)


def _first(*dims: int | None) -> int:
    """Returns the first that is not None."""
    return next(dim for dim in dims if dim is not None)


def _shown(dims: Dims) -> str:
    return f"({dims[0]},)" if len(dims) == 1 else str(dims)


def _usable(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.complex128)).all())


def _batch_cause(got: np.ndarray, expected: np.ndarray) -> str:
    """Returns why a batch is not the stacked examples, where that is seen from the numbers."""
    if got.shape != expected.shape:
        if got.shape[1:] == expected.shape[1:]:
            return "the number of examples is another one: a wrong axis is mapped"
        for axis in range(1, got.ndim):
            moved = np.moveaxis(got, axis, 0)
            if moved.shape == expected.shape and np.allclose(moved, expected):
                return f"out_dims is wrong: the mapped axis is axis {axis}, not axis 0"
        return "the shape is wrong: out_dims, or an axis that the rule reduces, is off by one"
    wide = np.complex128
    one, other = got.astype(wide), expected.astype(wide)
    if np.allclose(one, other, rtol=1e-9):
        return ""
    if len(one) > 1 and np.allclose(one, other[:1]):
        return "all examples are the first one"
    if len(one) > 1 and np.allclose(one, other[::-1]):
        return "the examples are in reverse order"
    for axis in range(1, one.ndim):
        moved = np.swapaxes(one, 0, axis)
        if moved.shape == other.shape and np.allclose(moved, other):
            return f"out_dims is wrong: the mapped axis is axis {axis}, not axis 0"
    if np.allclose(np.sort(one, axis=None), np.sort(other, axis=None)):
        return "the same numbers in another order: an axis is off by one"
    return "examples are mixed: an axis that the rule works along is off by one"
