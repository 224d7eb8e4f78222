"""Generators, in NumPy's spelling: `default_rng(seed)` draws anew at each call.

Their state is on the host. Un-jitted code runs its Python at each call, so that a function that
draws has one program, which takes the key. Code that is traced once must be given a key instead.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.errors import ArgumentError, MissingAttributeError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.stack import state
from ftrans.numpy.elementwise import exp
from ftrans.numpy.promotion import as_array, default_dtype, is_scalar
from ftrans.random.distributions import DISTRIBUTIONS, check_within, dtype_of
from ftrans.random.keys import shape_of, split, words_of
from ftrans.random.parameters import as_own, dtype_for, fitted, listed
from ftrans.random.source import Source, key_for, lanes, words_of_seed
from ftrans.traceback import OnTape, boundary

__all__ = ["Generator", "default_generator", "default_rng", "manual_seed"]


def _of_standard(name: str, draws: str) -> Any:
    """Makes the method that draws of a distribution without parameters."""

    def method(self: Generator, size: Any = None, dtype: Any = None) -> Any:
        return self._standard(name, size, dtype)

    return _method(method, draws)


def _of_scaled(name: str, draws: str) -> Any:
    """Makes the method that draws of a distribution with a place and a scale."""

    def method(self: Generator, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._scaled(name, size, scale, loc)

    return _method(method, draws)


def _of_drawn(name: str, draws: str, fits: bool = True, **defaults: Any) -> Any:
    """Makes the method that draws of a distribution of the same parameters as JAX has.

    Where they are numbers they have to fit the size; those of vectors JAX looks at.
    """
    known = DISTRIBUTIONS[name]
    parameters = [p for p in known.signature.parameters.values() if p.name in known.arrays]
    own = [p.replace(default=defaults.get(p.name, p.default)) for p in parameters]
    size = inspect.Parameter("size", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature([size.replace(name="self", default=size.empty), *own, size])

    def method(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        self, size = given.pop("self"), given.pop("size")
        if not fits:
            return self._drawn(name, size, **given)
        shape, *values = fitted(name, size, **given)
        return self._drawn(name, shape, **dict(zip(given, values, strict=True)))

    method.__signature__ = signature  # type: ignore[attr-defined]
    return _method(method, draws)


def _method(function: Callable[..., Any], draws: str) -> Any:
    function.__doc__ = f"Draws {draws}."
    return boundary(function)


class Generator:
    """Draws random numbers; each draw is by the next of its keys. Threads may share it.

    The methods, and the order of their arguments, are NumPy's. Numbers are what the function of
    `ftrans.random` draws by `rng.key()`; floats have the default dtype unless the parameters are
    arrays of another one. The numbers do not depend on how the code around is run, but
    for the last bit of a float.

    Args:
        key: a key, uint32[2], from which all others come; `default_rng` makes one of a seed.

    Example:
        >>> rng = default_rng(0)
        >>> rng.normal(size=3).shape
        (3,)
        >>> bool((default_rng(1).normal(size=3) == default_rng(1).normal(size=3)).all())
        True
    """

    def __init__(self, key: Any):
        words = words_of("Generator", key)
        if type(words) is Tracer:
            raise UnsupportedError(
                f"Generator: it keeps its key on the host, and cannot keep one that is traced.\n"
                f"  key: {words.type}\n  Draw by the key: ftrans.random.normal(key, ...)."
            )
        self._source = Source(words)

    # -------------------------------------------------------------------------------- the state

    @property
    def state(self) -> dict[str, Any]:
        """All that the next draws depend on: the words, and the number of the next draw."""
        words, position = self._source.where()
        return {"words": words.tolist(), "position": position}

    @state.setter
    def state(self, new: dict[str, Any]) -> None:
        self._source.begin(new["words"], new["position"])

    def __getstate__(self) -> dict[str, Any]:
        return self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._source = Source(state["words"], state["position"])

    @boundary
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.random.Generator, name):
            raise AttributeError(f"'Generator' object has no attribute {name!r}")
        advice = f"Draw by NumPy's own, which has no derivative: numpy.random.default_rng().{name}."
        if name == "shuffle":  # which would write to its argument
            advice = "Write x = rng.permutation(x)."
        raise MissingAttributeError(f"Generator has no attribute {name!r}.\n  {advice}")

    def __repr__(self) -> str:
        return f"Generator({self.state['words']}, position={self.state['position']})"

    @boundary
    def manual_seed(self, seed: int) -> Generator:
        """Begins anew, as `default_rng(seed)` does; negative seeds count modulo 2**64."""
        self._source.begin(words_of_seed(int(seed) % 2**64), 0)
        return self

    @boundary
    def key(self) -> Any:
        """Returns the next key, for functions that take one: uint32[2]."""
        return key_for(self._source, "key")

    @boundary
    def keys(self, n: int) -> Any:
        """Returns new keys, uint32[n, 2], to map over or to loop over."""
        return split(self.key(), n)

    @boundary
    def spawn(self, n_children: int) -> list[Generator]:
        """Returns new generators, which are independent of each other and of this one."""
        if lanes("spawn"):
            raise UnsupportedError(
                "spawn: a generator is for one example or for all, not for each under vmap.\n"
                "  Draw by keys: rng.keys(n), and map over them."
            )
        return [Generator(self._source.key()) for _ in range(n_children)]

    # --------------------------------------------------------------------------------- drawing

    def _standard(self, name: str, size: Any, dtype: Any) -> Any:
        """Draws of a distribution without parameters."""
        if type(size) is int and size >= 0:
            shape: tuple[int, ...] = (size,)
        else:
            shape = () if size is None else shape_of(name, "size", size)
        dtype = default_dtype(float) if dtype is None else dtype_of(name, dtype)
        if not state.stack:
            found = self._source.small(name, shape, dtype)
            if found is not None:
                return found
        return DISTRIBUTIONS[name](key_for(self._source, name), {"shape": shape, "dtype": dtype})

    def _scaled(self, name: str, size: Any, scale: Any, loc: Any = 0.0) -> Any:
        """Draws of a standard distribution, times scale, plus loc."""
        check_within(name, "scale", scale, 0.0)
        if type(scale) is float and type(loc) is float:
            drawn = self._standard(name, size, None)
            if scale != 1.0:
                drawn = drawn * scale
            return as_own(drawn + loc if loc else drawn)
        shape, scale, loc = fitted(name, size, scale=scale, loc=loc)
        return as_own(self._standard(name, shape, dtype_for(scale, loc)) * scale + loc)

    def _drawn(self, name: str, size: Any, **given: Any) -> Any:
        """Draws of a distribution with these parameters; their shapes broadcast without a size."""
        if not OnTape.types.isdisjoint(map(type, given.values())):
            raise OnTape
        if size is not None:
            given["shape"] = shape_of(name, "size", size)
        distribution = DISTRIBUTIONS[name]
        complete = distribution.given((), given)
        return distribution(key_for(self._source, name), complete)

    random = _of_standard("uniform", "uniformly from 0 up to but without 1")
    standard_normal = _of_standard("normal", "of the standard normal distribution")
    standard_exponential = _of_standard("exponential", "of the standard exponential distribution")
    standard_cauchy = _of_standard("cauchy", "of the Cauchy distribution with mode 0")

    normal = _of_scaled("normal", "of the normal distribution; `scale` is the standard deviation")
    laplace = _of_scaled("laplace", "of the Laplace distribution")
    logistic = _of_scaled("logistic", "of the logistic distribution")
    gumbel = _of_scaled("gumbel", "of the Gumbel distribution")

    bernoulli = _of_drawn("bernoulli", "booleans that are true with probability p")
    beta = _of_drawn("beta", "of the beta distribution; derivatives go to both parameters")
    chisquare = _of_drawn("chisquare", "of the chi-square distribution")
    dirichlet = _of_drawn("dirichlet", "of this distribution: n parts, for alpha f32[n]", False)
    f = _of_drawn("f", "of the F distribution")
    geometric = _of_drawn("geometric", "after how many trials one succeeds: from 1 on")
    multivariate_normal = _of_drawn(
        "multivariate_normal", "vectors, by mean f32[..., n] and cov f32[..., n, n]", False
    )
    poisson = _of_drawn("poisson", "of the Poisson distribution with this mean: integers", lam=1.0)
    rayleigh = _of_drawn("rayleigh", "of the Rayleigh distribution", scale=1.0)
    standard_t = _of_drawn("t", "of Student's t distribution")
    triangular = _of_drawn("triangular", "of the triangular distribution")
    truncated_normal = _of_drawn("truncated_normal", "of the standard normal between two bounds")

    @boundary
    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draws uniformly from `low` up to but without `high`."""
        if type(low) is float and type(high) is float and (low, high) == (0.0, 1.0):
            return self._standard("uniform", size, None)
        shape, low, high = fitted("uniform", size, low=low, high=high)
        return self._drawn("uniform", shape, minval=low, maxval=high)

    @boundary
    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Any:
        """Draws numbers whose logarithms are normal with this mean and standard deviation."""
        shape, mean, sigma = fitted("lognormal", size, mean=mean, sigma=sigma)
        factor = math.exp(mean) if is_scalar(mean) else exp(mean)
        return as_own(self._drawn("lognormal", shape, sigma=sigma) * factor)

    @boundary
    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = None,
        endpoint: bool = False,
    ) -> Any:
        """Draws integers from `low` up to but without `high`; from 0 up to `low` without that.

        Args:
            low: the lowest one.
            high: one more than the highest, or that itself with `endpoint`.
            size: the shape; None for that of the bounds.
            dtype: the dtype; int32 unless the default dtype is double.
            endpoint: whether `high` is drawn as well.

        Raises:
            ArgumentError: where there is none to draw.
        """
        low, high = (0, low) if high is None else (low, high)
        high = high + 1 if endpoint else high
        if is_scalar(low) and is_scalar(high) and low >= high:
            raise ArgumentError(
                f"integers: low must be less than high.\n  low: {low}\n  high: {high}\n"
                f"  Write integers(low, high), or endpoint=True to draw high as well."
            )
        if size is not None and type(low) is type(high) is int:
            shape, bounds = shape_of("integers", "size", size), {"minval": low, "maxval": high}
            drawing = DISTRIBUTIONS["randint"]
            complete = drawing.given((), {"shape": shape, "dtype": dtype, **bounds})
            found, kind = None, complete["dtype"]
            if low >= -(2**31) and high < 2**31 and kind.itemsize >= 4 and not state.stack:
                found = self._source.small("randint", shape, kind, **bounds)
            return drawing(key_for(self._source, "randint"), complete) if found is None else found
        shape, low, high = fitted("integers", size, whole=True, low=low, high=high)
        return self._drawn("randint", shape, minval=low, maxval=high, dtype=dtype)

    @boundary
    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draws how many of n trials succeed, each with probability p: integers."""
        return self._drawn("binomial", size, n=n, p=p).astype(default_dtype(int))

    @boundary
    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draws how many trials fail before n succeed, each with probability p: integers."""
        shape, n, p = fitted("negative_binomial", size, n=n, p=p)
        return self.poisson(self.gamma(n, (1.0 - p) / p, shape))

    @boundary
    def categorical(self, logits: Any, axis: int = -1, size: Any = None) -> Any:
        """Draws indices along an axis of unnormalised log probabilities."""
        return self._drawn("categorical", size, logits=logits, axis=axis)

    @boundary
    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> Any:
        """Draws how often each outcome is met in n trials: integers, along one more axis."""
        if size is not None:
            size = (*shape_of("multinomial", "size", size), type_of(as_array(pvals)).shape[-1])
        return self._drawn("multinomial", size, n=n, p=pvals).astype(default_dtype(int))

    @boundary
    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        """Draws of the elements of `a` along an axis, or of the integers below it.

        Args:
            a: an array, or an int.
            size: the shape; None for one element.
            replace: whether one may be drawn several times.
            p: the probability of each; None for equal ones.
            axis: the axis of `a`.
            shuffle: is always the case.

        Raises:
            ArgumentError: where probabilities that are at hand do not sum to 1.
        """
        p = listed(p)
        if isinstance(p, np.ndarray) and abs(p.sum() - 1.0) > 1e-3:
            raise ArgumentError(
                f"choice: the probabilities must sum to 1.\n  sum: {p.sum()}\n  Pass p / p.sum()."
            )
        return self._drawn("choice", size, a=listed(a), replace=replace, p=p, axis=axis)

    @boundary
    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Returns x with its slices along an axis in random order; or the integers below x."""
        return self._drawn("permutation", None, x=listed(x), axis=axis)

    @boundary
    def permuted(self, x: Any, axis: int | None = None) -> Any:
        """Returns x with its elements in random order, along an axis each slice by itself."""
        x = as_array(listed(x))
        if axis is None:
            return self._drawn("permutation", None, x=x.reshape(-1)).reshape(x.shape)
        return self._drawn("permutation", None, x=x, axis=axis, independent=True)

    @boundary
    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the exponential distribution with mean `scale`."""
        return self._scaled("exponential", size, scale)

    @boundary
    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the gamma distribution; derivatives go to both parameters."""
        size, shape, scale = fitted("gamma", size, shape=shape, scale=scale)
        drawn = self._drawn("gamma", size, a=shape)
        return drawn if type(scale) is float and scale == 1.0 else as_own(drawn * scale)

    @boundary
    def standard_gamma(self, shape: Any, size: Any = None) -> Any:
        """Draws of the gamma distribution with scale 1."""
        return self.gamma(shape, 1.0, size)

    @boundary
    def pareto(self, a: Any, size: Any = None) -> Any:
        """Draws of the Pareto distribution that begins at 0, as NumPy's does."""
        return as_own(self._drawn("pareto", size, b=a) - 1.0)

    @boundary
    def wald(self, mean: Any, scale: Any, size: Any = None) -> Any:
        """Draws of the inverse Gaussian distribution."""
        shape, mean, scale = fitted("wald", size, mean=mean, scale=scale)
        return as_own(scale * self._drawn("wald", shape, mean=mean / scale))

    @boundary
    def weibull(self, a: Any, size: Any = None) -> Any:
        """Draws of the Weibull distribution with scale 1."""
        shape, a = fitted("weibull", size, a=a)
        return self._drawn("weibull_min", shape, scale=1.0, concentration=a)

    @boundary
    def rademacher(self, size: Any = None, dtype: Any = None) -> Any:
        """Draws of 1 and -1, one as likely as the other."""
        return self._drawn("rademacher", () if size is None else size, dtype=dtype)

    @boundary
    def orthogonal(self, n: int, size: Any = None) -> Any:
        """Draws orthogonal matrices of n rows, all as likely."""
        return self._drawn("orthogonal", () if size is None else size, n=n)


for _name, _made in vars(Generator).items():
    if getattr(_made, "__name__", "") == "method":
        _made.__name__, _made.__qualname__ = _name, f"Generator.{_name}"


@boundary
def default_rng(seed: Any = None) -> Generator:
    """Returns a generator.

    Args:
        seed: an int that is not negative, or a sequence of them; None for another generator each
            time; a generator is returned as it is.

    Raises:
        ArgumentError: where it is none of these.

    Example:
        >>> default_rng(0).integers(10, size=4).dtype
        dtype('int32')
    """
    return seed if isinstance(seed, Generator) else Generator(words_of_seed(seed))


default_generator = default_rng()
"""The generator of those who have none of their own."""


@boundary
def manual_seed(seed: int) -> Generator:
    """Lets the default generator begin anew, and returns it.

    Example:
        >>> first = manual_seed(1).random()
        >>> bool(first == manual_seed(1).random())
        True
    """
    return default_generator.manual_seed(seed)
