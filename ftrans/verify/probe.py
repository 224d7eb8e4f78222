"""A function at a point: its values, its outputs, what its rules pull back and push forward.

The function is seen as one of the floating arrays among its arguments, all else staying as it is,
and its result as a list of leaves. So the checks need know nothing of pytrees and of integers.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import jax.tree_util as tree
import numpy as np

from ftrans.custom.left import known_values
from ftrans.custom.rule import listening
from ftrans.errors import RuleError
from ftrans.func.derivative import jvp, vjp
from ftrans.func.staging import name_of, named
from ftrans.func.vmap import vmap
from ftrans.ir import Tracer
from ftrans.pytree import argument_name
from ftrans.verify.coordinates import (
    close,
    count,
    from_coordinates,
    hosts,
    is_floating,
    largest,
    last_digits,
    like,
    precision_of,
    scale_of,
    spread,
    to_coordinates,
    widened,
)


class Probe:
    """A function at a point.

    Args:
        func: the function.
        args: its positional arguments, pytrees.
        rigid: the outputs, by number, that are declared to have no derivative.
        may_widen: whether it may be called in double precision where it is given single.

    Attributes:
        given: the leaves of the arguments.
        places: the numbers of those that are floating.
        values: these, as NumPy arrays or traced; the function gets them as they came.
        positions: of which argument each is a leaf.
        traced: whether the function can be traced, and so be given many points at once.
    """

    traced = True

    def __init__(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        rigid: Sequence[int] = (),
        may_widen: bool = True,
    ):
        self.func = func
        # errors are to name the function, not what it is wrapped in
        self.__ftrans_name__ = name_of(func)
        self.rigid = tuple(rigid)
        self.may_widen = may_widen
        paths, self._structure = tree.tree_flatten_with_path(tuple(args))
        self.given = [leaf for _, leaf in paths]
        self.places = [i for i, leaf in enumerate(self.given) if is_floating(leaf)]
        leaves = (self.given[i] for i in self.places)
        self.values: list[Any] = [x if type(x) is Tracer else np.asarray(x) for x in leaves]
        self._paths = [paths[i][0] for i in self.places]
        self.positions = [path[0].idx for path in self._paths]

    @functools.cached_property
    def labels(self) -> list[str]:
        """What the values are called, by the signature of the function."""
        return [argument_name(self.func, path) for path in self._paths]

    # ---------------------------------------------------------------------------- the function

    def arguments(
        self, values: Sequence[Any] | None = None, places: Sequence[int] | None = None
    ) -> tuple[Any, ...]:
        """Returns the arguments, with values in the place of some leaves, else of the floating."""
        leaves = list(self.given)
        if values is not None:
            for i, value in zip(self.places if places is None else places, values, strict=True):
                leaves[i] = like(value, leaves[i])
        return self._structure.unflatten(leaves)

    def at(self, values: Sequence[Any], places: Sequence[int] | None = None) -> Probe:
        """Returns the same function at another point."""
        return self.like(self.func, self.arguments(values, places))

    def like(self, func: Callable[..., Any], args: Sequence[Any]) -> Probe:
        """Returns the probe of another function, which is differentiated in the same way."""
        return Probe(func, args, self.rigid, self.may_widen)

    def __call__(self, *values: Any) -> list[Any]:
        """Returns the leaves of the result for values of the floating arguments.

        The function is given copies of arrays of NumPy: it may write to them, and say so.
        """
        args = tree.tree_map(
            lambda leaf: leaf.copy() if type(leaf) is np.ndarray else leaf, self.arguments(values)
        )
        try:
            return tree.tree_leaves(self.func(*args))
        except AttributeError:
            if any(type(leaf) is Tracer for leaf in (*self.given, *values)):
                raise
            # traced values have methods that plain arrays lack
            return vjp(self, *values)[0]

    def select(self, *values: Any, outputs: Sequence[int] | None = None) -> list[Any]:
        """Returns some outputs, else all that have derivatives, for values of the arguments."""
        outs = self(*values)
        return [outs[i] for i in (self.outputs if outputs is None else outputs)]

    @property
    def named(self) -> dict[str, np.ndarray]:
        """The values, by what they are called."""
        return dict(zip(self.labels, self.values, strict=True))

    @functools.cached_property
    def leaves(self) -> list[Any]:
        """The leaves of the result, as traced code computes them, without a derivative.

        Promotion of plain arrays is not always that of traced values.
        """
        return jvp(self, tuple(self.values), (None,) * len(self.values))[0]

    @functools.cached_property
    def outputs(self) -> list[int]:
        """The numbers of those leaves that have derivatives."""
        numbered = enumerate(self.leaves)
        return [i for i, out in numbered if is_floating(out) and i not in self.rigid]

    @functools.cached_property
    def outs(self) -> list[np.ndarray]:
        """These, as NumPy arrays."""
        return [np.asarray(self.leaves[i]) for i in self.outputs]

    @property
    def is_differentiable(self) -> bool:
        """Whether there is something to differentiate, and with respect to something."""
        return bool(self.outputs and self.values)

    def settled(self) -> Probe:
        """Evaluates the function, traced and not, so that what it raises is raised here."""
        _ = self.outs
        self(*self.values)
        return self

    # ------------------------------------------------------------------------- its derivatives

    def pullback(
        self,
        values: Sequence[Any] | None = None,
        outputs: Sequence[int] | None = None,
        only: Sequence[int] | None = None,
    ) -> Any:
        """Returns a pullback; each is traced anew.

        Args:
            values: another point.
            outputs: those that it takes cotangents of, where not of all that have derivatives.
            only: the numbers of the values that it is taken with respect to, where not of all.
        """
        values = self.values if values is None else values
        moving = range(len(values)) if only is None else only

        def select(*some: Any) -> list[Any]:
            filled = dict(zip(moving, some, strict=True))
            return self.select(*(filled.get(i, v) for i, v in enumerate(values)), outputs=outputs)

        named(select, self.__ftrans_name__)
        return vjp(select, *(values[number] for number in moving))[1]

    def heard(self) -> tuple[Any, list[Any]]:
        """Returns a pullback, and what is heard of each `backward` that has asked for None.

        It was called with None for all cotangents: its name, what it raised, and its gradients,
        which are None for zero and for what has no value yet.
        """
        found: list[Any] = []
        with listening(lambda *call: found.append(_called_undefined(*call))):
            return self.pullback(), found

    def pushforward(self, values: Sequence[Any] | None = None) -> Callable[..., list[Any]]:
        """Returns the map from tangents of the values, or at another point, to the outputs'."""
        point = tuple(self.values if values is None else values)
        return lambda tangents: list(jvp(self.select, point, tuple(tangents))[1])

    def pull(self, cotangents: Sequence[Any], **chosen: Any) -> list[np.ndarray]:
        """Returns the gradients for some cotangents; `chosen` as in `pullback`."""
        return hosts(self.pullback(**chosen)(list(cotangents)))

    def push(self, tangents: Sequence[Any]) -> list[np.ndarray]:
        """Returns the tangents of the outputs for those of the values."""
        return hosts(self.pushforward()(tangents))

    def pulled(self, *operands: Any) -> list[Any]:
        """Returns the gradients for values and cotangents: the pullback as a function of both."""
        size = len(self.values)
        return list(self.pullback(operands[:size])(list(operands[size:])))

    def pushed(self, *operands: Any) -> list[Any]:
        """Returns the tangents of the outputs for values and their tangents."""
        size = len(self.values)
        return self.pushforward(operands[:size])(operands[size:])

    def batch(self, function: Callable[..., Any], stacked: Sequence[Any]) -> Sequence[Any]:
        """Returns what a pullback, or a pushforward, gives for many vectors at once."""
        return vmap(lambda *vectors: list(function(list(vectors))))(*stacked)

    def pulls_back(self) -> bool:
        """Tells whether reverse mode takes the arguments at all, or is not there."""
        try:
            self.pull(self.cotangents("1"))
        except Exception as error:
            # whatever else it is, the checks will meet it
            return not isinstance(error, RuleError)
        return True

    # -------------------------------------------------------------------------- random vectors

    def draw(self, arrays: Sequence[Any], key: str, scaled: bool = False) -> list[np.ndarray]:
        """Returns random arrays like others, element by element if scaled; the same for one key."""
        draw = np.random.default_rng(zlib.crc32(key.encode()))
        found = []
        for array in arrays:
            size = draw.uniform(0.3, 1.0, count(array)) * draw.choice([-1.0, 1.0], count(array))
            found.append(from_coordinates(size * scale_of(array) if scaled else size, array))
        return found

    def cotangents(self, key: str) -> list[np.ndarray]:
        """Returns random cotangents of the outputs."""
        return self.draw(self.outs, f"cotangent {key}")

    def tangents(self, key: str) -> list[np.ndarray]:
        """Returns random tangents of the values, each element as large as what it moves."""
        return self.draw(self.values, f"tangent {key}", scaled=True)

    def shaken(self, seed: int, precision: float | None = None) -> list[np.ndarray]:
        """Returns the values, moved by a few last digits."""
        return [last_digits(array, seed, precision) for array in self.values]

    # ---------------------------------------------------------------------------- its precision

    @functools.cached_property
    def precision(self) -> float:
        """How exact the function is: the distance from 1 to the next number."""
        found = max(map(precision_of, (*self.values, *self.outs)), default=0.0)
        if 0.0 < found < 1e-10 and self.outputs and self._is_single_inside():
            return float(np.finfo(np.float32).eps)
        return found

    @functools.cached_property
    def least(self) -> float:
        """The least number that is not flushed to zero."""
        involved = (*self.values, *self.outs)
        return max((float(jnp.finfo(a.dtype).tiny) for a in involved), default=0.0)

    def _is_single_inside(self) -> bool:
        """Tells whether the numbers are of double precision by their dtype alone.

        What a function of single precision returns has zeros at the end of its mantissa, also at
        a point that has none.
        """

        def is_single(array: np.ndarray) -> bool:
            vector = to_coordinates(array)
            # zeros and small integers, which any rule returns, do not count
            vector = vector[np.isfinite(vector) & (vector != np.round(vector, 2))]
            return bool(vector.size) and bool((vector.astype(np.float32) == vector).all())

        pairs = zip(self.values, self.draw(self.values, "precision"), strict=True)
        moved = [(a * (1 + 1e-3 * d)).astype(a.dtype) for a, d in pairs]
        try:
            outs = hosts(self.select(*moved))
            grads = self.pull(self.cotangents("1"), values=moved)
        except Exception:
            # whatever it is, the checks will meet it
            return False
        return any(map(is_single, outs)) or all(map(is_single, grads))

    def may_overflow(self, sizes: np.ndarray) -> bool:
        """Tells whether products of numbers of these sizes, or of the arguments, may overflow."""
        involved = (*self.values, *self.outs)
        limit = min(float(jnp.finfo(array.dtype).max) for array in involved) ** 0.5
        numbers = np.abs(np.concatenate([*map(to_coordinates, involved), np.ravel(sizes)]))
        fits = (numbers == 0) | np.isnan(numbers) | ((1 / limit < numbers) & (numbers < limit))
        return not fits.all()

    @functools.cached_property
    def wide(self) -> Probe | None:
        """The same in double precision, of which differences are taken; None where that is another.

        The derivative of a function of `float32` is compared with differences of the same function
        in `float64`, which are exact to many digits; differences in `float32` are not.
        """
        if all(precision_of(array) < 1e-10 for array in (*self.values, *self.outs)):
            return self
        if not self.may_widen:
            return None
        wide = self.at(list(map(widened, self.values)))
        try:
            found = wide(*wide.values)
            if len(found) != len(self.leaves):
                return None
            if all(map(_is_widened, self.leaves, found)):
                return wide
            # what is ill-conditioned differs by more, but not by more than its last digits make it
            moved = [wide(*wide.shaken(seed, self.precision)) for seed in range(3)]
            blurs = [spread(out, many) for out, *many in zip(found, *moved, strict=True)]
        except Exception:
            # a kernel for one precision alone: any error of it means the same
            return None
        return wide if all(map(_is_widened, self.leaves, found, blurs)) else None


def _called_undefined(label: str, backward: Any) -> tuple[str, Exception | None, list[Any]]:
    """Returns what a `backward` does with None for all cotangents."""
    try:
        return label, None, list(map(_known, backward()))
    except Exception as error:
        return label, error, []


def _known(gradient: Any) -> np.ndarray | None:
    """Returns the array behind a gradient; None for zero, and where there is none yet."""
    found = None if gradient is None else known_values([gradient])
    return None if found is None else np.asarray(found[0])


def _is_widened(given: Any, wide: Any, blur: Any = 0.0) -> bool:
    """Tells whether a leaf of a result is what another one is in double precision."""
    given, wide = np.asarray(given), np.asarray(wide)
    if not is_floating(given):
        return not is_floating(wide) and close(given, wide)
    rough = widened(given)
    if given.shape != wide.shape or wide.dtype != rough.dtype:
        return False
    # what overflows in single precision need not do so in double
    rough = np.where(np.isfinite(rough), rough, wide)
    return close(rough, wide, 1e3 * precision_of(given) * largest(wide) + blur)
