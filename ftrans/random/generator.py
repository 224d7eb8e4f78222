"""Generators, in NumPy's spelling: `default_rng(seed)` draws anew at each call.

Their state is on the host. Un-jitted code runs its Python at each call, so that a function that
draws has one program, which takes the key. Code that is traced once must be given a key instead.
"""

from __future__ import annotations

from typing import Any

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.ir import Tracer, type_of
from ftrans.ir.stack import state
from ftrans.numpy.promotion import as_array, default_dtype, is_scalar
from ftrans.pytree import describe
from ftrans.random.distributions import DISTRIBUTIONS, dtype_of
from ftrans.random.keys import shape_of, split, words_of
from ftrans.random.parameters import as_own, dtype_for, exponential_of, listed, real, size_for
from ftrans.random.source import Source, key_for, lanes, words_of_seed
from ftrans.traceback import OnTape, boundary

__all__ = ["Generator", "default_generator", "default_rng", "manual_seed"]


class Generator:
    """Draws random numbers; each draw is by the next of its keys. Threads may share it.

    The methods, and the order of their arguments, are NumPy's. Numbers are what the function of
    `ftrans.random` draws by `rng.key()`; floats have the default dtype unless the parameters are
    arrays of another one. The numbers do not depend on how the code around is run.

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
        if type(scale) is float and type(loc) is float:
            drawn = self._standard(name, size, None)
            if scale != 1.0:
                drawn = drawn * scale
            return as_own(drawn + loc if loc else drawn)
        scale, loc = real(name, "scale", scale), real(name, "loc", loc)
        shape = size_for(name, size, scale, loc)
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

    @boundary
    def random(self, size: Any = None, dtype: Any = None) -> Any:
        """Draws uniformly from 0 up to but without 1."""
        return self._standard("uniform", size, dtype)

    @boundary
    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Draws uniformly from `low` up to but without `high`."""
        if type(low) is float and type(high) is float and (low, high) == (0.0, 1.0):
            return self._standard("uniform", size, None)
        low, high = real("uniform", "low", low), real("uniform", "high", high)
        shape = size_for("uniform", size, low, high)
        return self._drawn("uniform", shape, minval=low, maxval=high)

    @boundary
    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the normal distribution with mean `loc` and standard deviation `scale`."""
        return self._scaled("normal", size, scale, loc)

    @boundary
    def standard_normal(self, size: Any = None, dtype: Any = None) -> Any:
        """Draws of the normal distribution with mean 0 and standard deviation 1."""
        return self._standard("normal", size, dtype)

    @boundary
    def truncated_normal(self, lower: Any, upper: Any, size: Any = None) -> Any:
        """Draws of the standard normal distribution between two bounds."""
        lower, upper = (
            real("truncated_normal", "lower", lower),
            real("truncated_normal", "upper", upper),
        )
        shape = size_for("truncated_normal", size, lower, upper)
        return self._drawn("truncated_normal", shape, lower=lower, upper=upper)

    @boundary
    def multivariate_normal(self, mean: Any, cov: Any, size: Any = None) -> Any:
        """Draws vectors of the normal distribution: mean f32[..., n], cov f32[..., n, n]."""
        return self._drawn("multivariate_normal", size, mean=mean, cov=cov)

    @boundary
    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Any:
        """Draws numbers whose logarithms are normal with this mean and standard deviation."""
        drawn = self._drawn(
            "lognormal", size_for("lognormal", size, *map(listed, (mean, sigma))), sigma=sigma
        )
        return drawn if type(mean) is float and not mean else as_own(drawn * exponential_of(mean))

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
        shape = size_for("integers", size, *map(listed, (low, high)))
        return self._drawn("randint", shape, minval=low, maxval=high, dtype=dtype)

    @boundary
    def bernoulli(self, p: Any = 0.5, size: Any = None) -> Any:
        """Draws booleans that are true with probability p."""
        return self._drawn("bernoulli", size, p=p)

    @boundary
    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draws how many of n trials succeed, each with probability p: integers."""
        drawn = self._drawn("binomial", size, n=n, p=p)
        return drawn.astype(default_dtype(int))

    @boundary
    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        """Draws how many trials fail before n succeed, each with probability p: integers."""
        n, p = real("negative_binomial", "n", n), real("negative_binomial", "p", p)
        shape = size_for("negative_binomial", size, n, p)
        return self.poisson(self.gamma(n, (1.0 - p) / p, shape))

    @boundary
    def geometric(self, p: Any, size: Any = None) -> Any:
        """Draws after how many trials one succeeds, each with probability p: integers from 1 on."""
        return self._drawn("geometric", size, p=p)

    @boundary
    def poisson(self, lam: Any = 1.0, size: Any = None) -> Any:
        """Draws of the Poisson distribution with this mean: integers."""
        return self._drawn("poisson", size, lam=lam)

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
        """
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
    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Is not there, since it would write to its argument.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"shuffle: it would write to its argument.\n  x: {describe(x)}\n"
            f"  Write x = rng.permutation(x)."
        )

    @boundary
    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the exponential distribution with mean `scale`."""
        return self._scaled("exponential", size, scale)

    @boundary
    def standard_exponential(self, size: Any = None, dtype: Any = None) -> Any:
        """Draws of the exponential distribution with mean 1."""
        return self._standard("exponential", size, dtype)

    @boundary
    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the gamma distribution; derivatives go to both parameters."""
        shape, scale = real("gamma", "shape", shape), real("gamma", "scale", scale)
        drawn = self._drawn("gamma", size_for("gamma", size, shape, scale), a=shape)
        return drawn if type(scale) is float and scale == 1.0 else as_own(drawn * scale)

    @boundary
    def standard_gamma(self, shape: Any, size: Any = None) -> Any:
        """Draws of the gamma distribution with scale 1."""
        return self.gamma(shape, 1.0, size)

    @boundary
    def beta(self, a: Any, b: Any, size: Any = None) -> Any:
        """Draws of the beta distribution; derivatives go to both parameters."""
        return self._drawn("beta", size, a=a, b=b)

    @boundary
    def dirichlet(self, alpha: Any, size: Any = None) -> Any:
        """Draws of the Dirichlet distribution, each of n parts, for alpha f32[n]."""
        return self._drawn("dirichlet", size, alpha=alpha)

    @boundary
    def chisquare(self, df: Any, size: Any = None) -> Any:
        """Draws of the chi-square distribution."""
        return self._drawn("chisquare", size, df=df)

    @boundary
    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> Any:
        """Draws of the F distribution."""
        return self._drawn("f", size, dfnum=dfnum, dfden=dfden)

    @boundary
    def standard_t(self, df: Any, size: Any = None) -> Any:
        """Draws of Student's t distribution."""
        return self._drawn("t", size, df=df)

    @boundary
    def standard_cauchy(self, size: Any = None) -> Any:
        """Draws of the Cauchy distribution with mode 0."""
        return self._standard("cauchy", size, None)

    @boundary
    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the Laplace distribution."""
        return self._scaled("laplace", size, scale, loc)

    @boundary
    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the logistic distribution."""
        return self._scaled("logistic", size, scale, loc)

    @boundary
    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the Gumbel distribution."""
        return self._scaled("gumbel", size, scale, loc)

    @boundary
    def pareto(self, a: Any, size: Any = None) -> Any:
        """Draws of the Pareto distribution that begins at 0, as NumPy's does."""
        return as_own(self._drawn("pareto", size, b=a) - 1.0)

    @boundary
    def rayleigh(self, scale: Any = 1.0, size: Any = None) -> Any:
        """Draws of the Rayleigh distribution."""
        return self._drawn("rayleigh", size, scale=scale)

    @boundary
    def triangular(self, left: Any, mode: Any, right: Any, size: Any = None) -> Any:
        """Draws of the triangular distribution."""
        return self._drawn("triangular", size, left=left, mode=mode, right=right)

    @boundary
    def wald(self, mean: Any, scale: Any, size: Any = None) -> Any:
        """Draws of the inverse Gaussian distribution."""
        mean, scale = real("wald", "mean", mean), real("wald", "scale", scale)
        return as_own(
            scale * self._drawn("wald", size_for("wald", size, mean, scale), mean=mean / scale)
        )

    @boundary
    def weibull(self, a: Any, size: Any = None) -> Any:
        """Draws of the Weibull distribution with scale 1."""
        a = real("weibull", "a", a)
        return self._drawn("weibull_min", size_for("weibull", size, a), scale=1.0, concentration=a)

    @boundary
    def rademacher(self, size: Any = None, dtype: Any = None) -> Any:
        """Draws of 1 and -1, one as likely as the other."""
        return self._drawn("rademacher", () if size is None else size, dtype=dtype)

    @boundary
    def orthogonal(self, n: int, size: Any = None) -> Any:
        """Draws orthogonal matrices of n rows, all as likely."""
        return self._drawn("orthogonal", () if size is None else size, n=n)


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
