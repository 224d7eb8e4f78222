"""`vmap` against a Python loop: every choice of axes, nested, of derivatives, differentiated.

The examples of a batch differ in value and in order, so that a rule which mixes them, or takes one
for all, gives something else.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ftrans.func.vmap import vmap
from ftrans.numpy.promotion import is_array
from ftrans.verify.coordinates import Arrays, are_finite, hosts, last_digits, moved, scaled
from ftrans.verify.probe import Probe
from ftrans.verify.report import Case, Findings

VMAP = "vmap against a loop"

_MOST = 64
"""How many choices of mapped axes are tried; with two arguments they are 15."""

_LARGEST = 4
"""The largest axis that a batch is made as large as."""

_FEW = 12
"""How many choices are tried with a batch of the size of an axis."""

Dims = tuple[int | None, ...]


def check_batches(findings: Findings) -> None:
    """Holds batches against loops over their examples."""
    batches = _Batches(findings)
    if not batches.arrays:
        return
    if not findings.compare(VMAP, "vmap", batches.single()) or not batches.examples:
        return
    findings.compare("vmap(vmap) against a loop", "vmap(vmap)", batches.nested())
    if findings.probe.is_differentiable:
        for what, which, draw in (
            ("vmap of backward", "pulled", findings.probe.cotangents),
            ("vmap of jvp", "pushed", findings.probe.tangents),
        ):
            findings.compare("vmap of derivatives", what, batches.mapped(what, which, draw))
        findings.compare("derivatives of vmap", "backward of vmap", batches.through())


class _Batches:
    """Makes batches of the arrays among the arguments of a probe.

    Attributes:
        places: where the arrays are among the leaves of the arguments, integers included.
        arrays: these arrays.
        size: how many examples: no array has an axis of this size.
        confusing: other numbers of examples, which are the sizes of axes.
        examples: the arrays of each example.
        kept: the numbers of the leaves of the result that are arrays when nothing is traced.
    """

    def __init__(self, findings: Findings):
        self.findings = findings
        self.probe = probe = findings.probe
        self.places = [i for i, leaf in enumerate(probe.given) if is_array(leaf)]
        self.arrays = hosts([probe.given[i] for i in self.places])
        sizes = {n for leaf in (*self.arrays, *probe.leaves) for n in np.shape(leaf)}
        self.size = next(n for n in itertools.count(2) if n not in sizes)
        self.confusing = [n for n in sorted(sizes) if 1 < n <= _LARGEST] if self.arrays[1:] else []
        self.examples: list[list[np.ndarray]] = []

    def called(self, which: str, *operands: Any, **chosen: Any) -> list[Any]:
        """Returns what a method of the probe gives for the arrays of an example, and vectors."""
        count = len(self.arrays)
        point = self.probe.at(operands[:count], self.places)
        point.outputs = self.probe.outputs
        return getattr(point, which)(*point.values, *operands[count:], **chosen)

    def kept_of(self, *arrays: Any) -> list[Any]:
        """Returns the outputs that are arrays when nothing is traced."""
        return self.called("select", *arrays, outputs=self.kept)

    def _mapped(
        self, what: str, function: Any, rows: Sequence[Arrays], dims: Dims, blurred: bool = False
    ) -> Iterator[Case]:
        """Compares a batch with a loop over the operands of each example.

        Where it is `blurred`, as much is let through as the last digits of operands change.
        """

        def looped(seed: int | None = None) -> list[np.ndarray]:
            given = rows if seed is None else [[last_digits(x, seed) for x in r] for r in rows]
            return _stack([hosts(function(*row)) for row in given])

        got, expected = hosts(vmap(function, dims)(*_stack(rows, dims))), looped()
        if are_finite(expected):
            again = looped if blurred else None
            yield Case(what, got, expected, _batch_cause, slack=4, again=again)

    # ------------------------------------------------------------------------------ examples

    def settle(self) -> bool:
        """Chooses examples that the function takes; tells whether there are any."""
        given, number = self.arrays, max(self.size, *self.confusing, 0)
        self.kept = [i for i, x in enumerate(self.called("__call__", *given)) if is_array(x)]
        for make in (moved, scaled, lambda array, b: array):
            examples = [[make(array, b) for array in given] for b in range(number)]
            try:
                results = [hosts(self.kept_of(*example)) for example in examples]
            except Exception:
                # outside of where the function is defined: the next kind is nearer to the sample
                continue
            if all(map(are_finite, results)):
                self.examples = examples
                return True
        return False

    def looped(self, dims: Dims, size: int) -> list[list[np.ndarray]]:
        """Returns the arrays of each example, those of the first one where they are not mapped."""
        rows = range(size)
        return [[self.examples[b * (d is not None)][k] for k, d in enumerate(dims)] for b in rows]

    # -------------------------------------------------------------------------------- in_dims

    def uniform(self, dim: int) -> Dims:
        """Returns the same axis for all, or the last one where there are not so many."""
        return tuple(dim if dim < 0 else min(dim, np.ndim(array)) for array in self.arrays)

    def choices(self) -> list[Dims]:
        """Returns the choices of mapped axes among the first, the second, the last, and none."""
        options: list[list[int | None]] = [
            [0, *[1] * (np.ndim(array) >= 1), *[-1] * (np.ndim(array) >= 2), None]
            for array in self.arrays
        ]
        if np.prod([float(len(o)) for o in options]) <= _MOST + 1:
            found = list(itertools.product(*options))
        else:
            found = [self.uniform(0), self.uniform(1), self.uniform(-1)]
            for k, dim in [(k, dim) for k, some in enumerate(options) for dim in some]:
                for rest in (None, 0):
                    found.append(tuple(dim if i == k else rest for i in range(len(options))))
        some = dict.fromkeys(d for d in found if any(x is not None for x in d))
        return list(some)[:_MOST]

    def single(self) -> Iterator[Case]:
        """Maps once: every choice, and some with other numbers of examples."""
        if not self.settle():
            text = "not checked: the function takes no other values than the sample"
            self.findings.note(VMAP, text)
            return
        every = self.choices()
        tried = [(dims, self.size) for dims in every]
        tried += [(self.uniform(0), 1), (self.uniform(-1), 1)]
        # a rule may take for mapped what merely has the size of the batch
        some = [dims for dims in every if None in dims][:_FEW]
        tried += [(dims, size) for size in self.confusing for dims in some]
        for dims, size in tried:
            what = f"vmap with in_dims={_shown(dims)} and {size} examples is not what a loop gives"
            rows = self.looped(dims, size)
            for case in self._mapped(what, self.kept_of, rows, dims, blurred=True):
                yield case
                for i, out in zip(self.kept, case.got, strict=True):
                    dtype = self.probe.leaves[i].dtype
                    if out.dtype != dtype:
                        what = f"vmap changes the dtype of output {i}"
                        self.findings.fail(VMAP, what, out.dtype, dtype)
                        return

    def nested(self) -> Iterator[Case]:
        """Maps twice: both levels over all arguments, and each level over some of them."""
        count, size = len(self.arrays), self.size
        half: Dims = tuple(0 if k % 2 == 0 else None for k in range(count))
        rest: Dims = tuple(None if k % 2 == 0 else 0 for k in range(count))
        pairs = [(self.uniform(0), self.uniform(0)), (self.uniform(-1), self.uniform(0))]
        for inner, outer in [*pairs, (half, rest), (rest, half)] if count > 1 else pairs:
            both = [i is not None and o is not None for i, o in zip(inner, outer, strict=True)]

            def pick(k: int, i: int, o: int, inner: Dims = inner, both: Any = both) -> np.ndarray:
                """Returns one array of an example; the outer level takes them in reverse."""
                mixed = i if o == 0 else size - 1 - i
                return self.examples[mixed if both[k] else o if inner[k] is None else i][k]

            rows = [
                [[pick(k, i, o) for k in range(count)] for i in range(size)]
                for o in range(2 if any(both) else size)
            ]
            what = f"vmap(vmap) with in_dims={_shown(inner)} inside {_shown(outer)} is not a loop"
            stacked = [_stack(row, inner) for row in rows]
            yield from self._mapped(what, vmap(self.kept_of, inner), stacked, outer)

    # ----------------------------------------------------------------------------- derivatives

    def _drawn(self, dims: Dims, draw: Callable[[str], Arrays]) -> list[list[np.ndarray]]:
        """Returns arrays and vectors of each example."""
        rows = self.looped(dims, self.size)
        return [[*row, *draw(f"example {b}")] for b, row in enumerate(rows)]

    def mapped(self, what: str, which: str, draw: Callable[[str], Arrays]) -> Iterator[Case]:
        """Maps the gradients or the tangents, `pulled` or `pushed`."""
        rows, function = self._drawn(self.uniform(0), draw), functools.partial(self.called, which)
        what = f"{what} is not what a loop gives"
        yield from self._mapped(what, function, rows, (0,) * len(rows[0]))

    def through(self) -> Iterator[Case]:
        """Differentiates `vmap`, with all arguments mapped, and with each of them not mapped."""
        count = len(self.arrays)
        choices: list[Dims] = [(0,) * count]
        if count > 1:
            choices += [tuple(None if k == j else 0 for k in range(count)) for j in range(count)]
        for dims in choices[:5]:
            drawn = self._drawn(dims, self.probe.cotangents)
            function = vmap(functools.partial(self.called, "select"), dims)
            batch = Probe(function, _stack([row[:count] for row in drawn], dims))
            cotangents = _stack([row[count:] for row in drawn])
            got = batch.pull(cotangents, outputs=range(len(cotangents)))
            rows = [hosts(self.called("pulled", *row)) for row in drawn]
            expected = [
                np.sum(many, axis=0).astype(many[0].dtype) if dims[k] is None else np.stack(many)
                for k, many in zip(batch.places, zip(*rows, strict=True), strict=True)
            ]
            if not are_finite(expected):
                return
            what = f"backward of vmap with in_dims={_shown(dims)} is not what a loop gives"
            yield Case(what, got, expected, _batch_cause, slack=4)


def _stack(rows: Sequence[Arrays], dims: Dims | None = None) -> list[np.ndarray]:
    """Returns of several lists of arrays each array stacked; the first one where dims says None."""
    each = list(zip(*rows, strict=True))
    return [
        many[0] if dim is None else np.stack(many, axis=dim)
        for many, dim in zip(each, (0,) * len(each) if dims is None else dims, strict=True)
    ]


def _shown(dims: Dims) -> str:
    return f"({dims[0]},)" if len(dims) == 1 else str(dims)


def _batch_cause(got: np.ndarray, expected: np.ndarray) -> str:
    """Returns why a batch is not the stacked examples, where that is seen from the numbers."""
    if got.shape != expected.shape:
        return "the shape is wrong: out_dims, or an axis that the rule reduces, is off by one"
    one, other = got.astype(np.complex128), expected.astype(np.complex128)
    if np.allclose(one, other, rtol=1e-9):
        return ""
    if len(one) > 1 and np.allclose(one, other[:1]):
        return "all examples are the first one"
    if len(one) > 1 and np.allclose(one, other[::-1]):
        return "the examples are in reverse order"
    return "examples are mixed: out_dims, or an axis that the rule works along, is off by one"
