"""The distributions of `jax.random`, as programs: the same numbers by the same key.

What is drawn follows its parameters where JAX says how: by a formula, or implicitly, as `gamma`,
`beta` and `dirichlet` do. Where it does not, as with integers, to differentiate is an error.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ftrans.errors import ArgumentError, DTypeError, FtransError
from ftrans.interop import from_jax
from ftrans.ir import Tracer
from ftrans.numpy.creation import asarray
from ftrans.numpy.promotion import default_dtype, is_array, is_scalar, result_type
from ftrans.primitives import sampled_p
from ftrans.pytree import describe
from ftrans.random.keys import consumed, shape_of, wrapped
from ftrans.traceback import OnTape, boundary


class Draw(NamedTuple):
    """Says of a distribution what its signature does not.

    Attributes:
        dtype: which one is drawn where none is asked for: "float", "int", that of the parameters
            ("like"), or the one that JAX has ("").
        follows: the parameters that are arrays, and that the draws follow smoothly.
        samples: those that they do not follow, so that to differentiate them is an error.
        within: between which bounds a parameter lies, where it does not take all numbers.
    """

    dtype: str = "float"
    follows: str = ""
    samples: str = ""
    within: Mapping[str, tuple[float, float]] = {}


_P = {"p": (0.0, 1.0)}


def _positive(*labels: str) -> dict[str, tuple[float, float]]:
    return dict.fromkeys(labels, (0.0, math.inf))


TABLE = {
    "ball": Draw(follows="p"),
    "bernoulli": Draw("", samples="p", within=_P),
    "beta": Draw(follows="a b", within=_positive("a", "b")),
    "binomial": Draw(samples="n p", within=_P | _positive("n")),
    "bits": Draw(""),
    "categorical": Draw("", samples="logits"),
    "cauchy": Draw(),
    "chisquare": Draw(follows="df", within=_positive("df")),
    "choice": Draw("", samples="p", within=_P),
    "dirichlet": Draw(follows="alpha", within=_positive("alpha")),
    "double_sided_maxwell": Draw(follows="loc scale"),
    "exponential": Draw(),
    "f": Draw(follows="dfnum dfden", within=_positive("dfnum", "dfden")),
    "gamma": Draw(follows="a", within=_positive("a")),
    "generalized_normal": Draw(follows="p"),
    "geometric": Draw("int", samples="p", within={"p": (5e-324, 1.0)}),
    "gumbel": Draw(),
    "laplace": Draw(),
    "loggamma": Draw(follows="a", within=_positive("a")),
    "logistic": Draw(),
    "lognormal": Draw(follows="sigma", within=_positive("sigma")),
    "maxwell": Draw(),
    "multinomial": Draw(samples="n p", within=_P | _positive("n")),
    "multivariate_normal": Draw(follows="mean cov"),
    "normal": Draw(),
    "orthogonal": Draw(),
    "pareto": Draw(follows="b", within=_positive("b")),
    "permutation": Draw(""),
    "poisson": Draw("int", samples="lam", within=_positive("lam")),
    "rademacher": Draw("int"),
    "randint": Draw("int", samples="minval maxval"),
    "rayleigh": Draw(follows="scale", within=_positive("scale")),
    "t": Draw(follows="df", within=_positive("df")),
    "triangular": Draw(follows="left mode right"),
    "truncated_normal": Draw(follows="lower upper"),
    "uniform": Draw(follows="minval maxval"),
    "wald": Draw(follows="mean"),
    "weibull_min": Draw(follows="scale concentration"),
}
"""The distributions, by the names that they have in `jax.random`."""


class Distribution:
    """Draws of one distribution of `jax.random`, by words; its signature is that of JAX's."""

    def __init__(self, name: str, draw: Draw):
        theirs = getattr(jax.random, name)
        self.name, self.draw = name, draw
        parameters = inspect.signature(theirs).parameters.values()
        kept = [p.replace(annotation=p.empty) for p in parameters if p.name != "out_sharding"]
        self.signature = inspect.Signature(kept)
        self.arrays = {*draw.follows.split(), *draw.samples.split()}
        self.samples = set(draw.samples.split())

        def from_words(words: Any, /, **given: Any) -> Any:
            return theirs(wrapped(words), **given)

        from_words.__name__ = from_words.__qualname__ = name
        self.theirs = theirs
        self.imported = from_jax(from_words)

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments but the key, by name, as JAX takes them."""
        bound = self.signature.bind(None, *args, **kwargs).arguments
        del bound["key"]
        shape = bound.get("shape")
        if shape is not None:
            bound["shape"] = shape_of(self.name, "shape", shape)
        floats = []
        for label in self.arrays.intersection(bound):
            value = bound[label]
            if value is None:
                continue
            value = parameter(self.name, label, value, whole=self.name == "randint")
            if label in self.draw.within:
                check_within(self.name, label, value, *self.draw.within[label])
            if label in self.samples and type(value) is Tracer and value.type.is_inexact:
                value = sampled_p(value, message=_no_score(self.name, label))
            bound[label] = value
            if is_array(value) and not is_weak(value):
                floats.append(value)
        if "dtype" in self.signature.parameters:
            dtype = bound.get("dtype")
            if dtype is not None:
                bound["dtype"] = dtype_of(self.name, dtype)
            elif self.draw.dtype == "float":
                floats = [x for x in floats if np.dtype(x.dtype).kind != "i"]
                bound["dtype"] = result_type(*floats) if floats else default_dtype(float)
            elif self.draw.dtype == "int":
                wide = any(x.dtype == np.int64 for x in floats)  # bounds that int32 cannot hold
                bound["dtype"] = np.dtype("int64") if wide else default_dtype(int)
        return bound

    def __call__(self, words: Any, given: Mapping[str, Any]) -> Any:
        """Returns what is drawn by the words of a key; `given` is as that method returns it."""
        try:
            return self.imported(words, **given)
        except FtransError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            lines = "".join(f"  {label}: {describe(x)}\n" for label, x in given.items())
            raise ArgumentError(
                f"{self.name}: {str(error).splitlines()[0]}\n{lines}"
                f"  The arguments are those of jax.random.{self.name}."
            ) from None

    @functools.cache  # noqa: B019 - as many as there are shapes, and distributions live for ever
    def rows(self, shape: tuple[int, ...], dtype: Any, **numbers: int) -> Callable[[Any], Any]:
        """Returns what draws once, by these parameters, for each of many keys, uint32[n, 2]."""
        options = {"shape": shape, "dtype": dtype, **numbers}
        each = jax.vmap(lambda words: self.theirs(wrapped(words), **options))
        # the dtype is passed besides since what is wide is told by the arguments
        return functools.partial(from_jax(lambda words, dtype: each(words)), dtype=dtype)


def parameter(name: str, label: str, x: Any, whole: bool = False) -> Any:
    """Returns a parameter as an array or a number, of floating point unless it may be `whole`.

    Raises:
        DTypeError: where it is neither, nor a list of numbers.
    """
    if type(x) in OnTape.types:
        raise OnTape
    if isinstance(x, (bool, int)):
        if not whole:
            return float(x)
        return np.asarray(x, default_dtype(int) if abs(x) < 2**31 else None)
    if not (is_array(x) or is_scalar(x)):
        try:
            x = asarray(x)
        except (TypeError, ValueError):
            raise DTypeError(
                f"{name}: {label} must be a number or an array.\n"
                f"  {label}: {describe(x)}\n  Write ftrans.numpy.asarray(...) for it."
            ) from None
    if not whole and is_array(x) and np.dtype(x.dtype).kind in "iub":
        x = x.astype(default_dtype(float))
    return x


def check_within(name: str, label: str, x: Any, low: float, high: float = math.inf) -> None:
    """Raises `ArgumentError` where a parameter that is at hand lies outside its bounds."""
    if is_scalar(x):
        if low <= x <= high:  # in a tenth of the time
            return
    elif type(x) is not np.ndarray:
        return
    values = np.asarray(x)
    outside = values[(values < low) | (values > high)]
    if outside.size:
        least = "0 or more" if low == 0.0 else "more than 0"
        most = f", and at most {high:g}" if high < math.inf else ""
        raise ArgumentError(f"{name}: {label} must be {least}{most}.\n  {label}: {outside[0]}")


def is_weak(x: Any) -> bool:
    """Tells whether a number promotes as a Python scalar does."""
    return is_scalar(x) or (type(x) is Tracer and x.weak)


def dtype_of(name: str, dtype: Any) -> np.dtype:
    """Returns a dtype that somebody passed; raises `DTypeError` where it is none."""
    try:
        return np.dtype(dtype)
    except TypeError:
        raise DTypeError(
            f"{name}: this is no dtype.\n  dtype: {dtype!r}\n  Write dtype='float32'."
        ) from None


def _no_score(name: str, label: str) -> str:
    return (
        f"{name}: a draw does not follow {label} smoothly, so it has no derivative.\n"
        f"  Use the score function: differentiate log_prob(draw) * reward, with the draw made of\n"
        f"  {label}.detach(), or ftrans.stop_gradient({label})."
    )


DISTRIBUTIONS = {name: Distribution(name, draw) for name, draw in TABLE.items()}


def _public(distribution: Distribution) -> Callable[..., Any]:
    """Returns a distribution as a function of a key."""
    name = distribution.name

    def drawn(key: Any, *args: Any, **kwargs: Any) -> Any:
        if not OnTape.types.isdisjoint(map(type, (key, *args, *kwargs.values()))):
            raise OnTape
        try:
            given = distribution.given(args, kwargs)
        except FtransError:
            raise
        except TypeError as error:
            raise ArgumentError(
                f"{name}: {error}.\n  Write ftrans.random.{name}{distribution.signature}."
            ) from None
        return distribution(consumed(name, key), given)

    drawn.__name__ = drawn.__qualname__ = name
    drawn.__module__ = "ftrans.random"
    labels = " or ".join(distribution.draw.samples.split())
    about = (
        f"\n\nTo differentiate with respect to {labels} is an error: a draw is no smooth function."
    )
    drawn.__doc__ = f"Draws by a key what `jax.random.{name}` draws by it.{about if labels else ''}"
    drawn.__signature__ = distribution.signature  # type: ignore[attr-defined]
    return boundary(drawn)


functions = {name: _public(distribution) for name, distribution in DISTRIBUTIONS.items()}
"""The distributions as functions of a key."""

functions["integers"] = functions["randint"]
functions["student_t"] = functions["t"]
