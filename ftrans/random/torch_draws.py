"""PyTorch's names of what draws: generators, tensors of random numbers, methods that write such.

Numbers are those of the generators of this package. A function that takes a generator draws by the
default one where none is given; no gradient goes to the parameters of what is drawn.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.config import config
from ftrans.errors import ArgumentError, DTypeError
from ftrans.ir import type_of
from ftrans.ir.dtype import is_complex, is_float, is_inexact, real_of
from ftrans.numpy import finfo, iinfo
from ftrans.numpy.bounds import require
from ftrans.numpy.methods import sizes_of
from ftrans.numpy.torch_formulas import Likely
from ftrans.numpy.torch_functions import int64
from ftrans.random.distributions import functions
from ftrans.random.generator import default_generator as _default_rng
from ftrans.random.generator import default_rng
from ftrans.random.source import words_of_seed


def sized(make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of a shape take that as `2, 3`, as `(2, 3)`, or as `size=(2, 3)`."""

    @functools.wraps(make)
    def called(*shape: Any, size: Any = None, **options: Any) -> Any:
        return make(tuple(sizes_of(shape) if size is None else size), **options)

    called.__doc__ = str(make.__doc__).partition("\n")[0]  # the rest is of arrays
    return called


class Generator:
    """Draws random numbers, as a generator of `ftrans.random` does; threads may share it.

    Example:
        >>> import ftrans.torch as torch
        >>> first = torch.rand(2, generator=torch.Generator().manual_seed(1))
        >>> torch.equal(first, torch.rand(2, generator=torch.Generator().manual_seed(1)))
        True
    """

    def __init__(self, device: Any = None) -> None:
        self.rng = default_rng()
        self._seed = 0

    def manual_seed(self, seed: int) -> Generator:
        """Begins anew: the same seed gives the same numbers, which are not those of PyTorch."""
        self._seed = int(seed) % 2**64
        self.rng.manual_seed(seed)
        return self

    def seed(self) -> int:
        """Begins anew by a seed that the system gives; returns it."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        """Returns the seed by which it began; where it had none, a number that tells it apart."""
        high, low = words = self.rng.state["words"]
        return self._seed if words == words_of_seed(self._seed).tolist() else high << 32 | low

    def get_state(self) -> Any:
        """Returns all that the next draws depend on, u8[16]."""
        words, position = self.rng.state.values()
        return np.concatenate(
            [np.array(words, "<u4").view("u1"), np.array([position], "<u8").view("u1")]
        )

    def set_state(self, new_state: Any) -> Generator:
        """Goes on where a generator was that had this state."""
        state = np.asarray(new_state)
        if state.shape != (16,) or state.dtype != np.uint8:
            raise ArgumentError(
                f"set_state: a state is what get_state() returned, u8[16].\n"
                f"  new_state: {type_of(state)}"
            )
        words, (position,) = state[:8].view("<u4").tolist(), state[8:].view("<u8").tolist()
        self.rng.state = {"words": words, "position": position}
        return self


default_generator = Generator()
default_generator.rng = _default_rng
manual_seed = default_generator.manual_seed


def rng_of(generator: Generator | None) -> Any:
    """Returns the generator of this package that one of PyTorch's names draws by."""
    return (generator or default_generator).rng


def float_of(dtype: Any, *ends: Any) -> Any:
    """Returns a dtype, or else the default one of floats; a complex one where an end is complex."""
    kinds = [np.complex64 for x in ends if np.iscomplexobj(x)]
    return np.result_type(config.default_dtype, *kinds) if dtype is None else dtype


@sized
def rand(shape: Any, dtype: Any = None, generator: Generator | None = None) -> Any:
    """Returns random numbers from 0 up to but without 1; of complex ones, both parts are such."""
    kind = np.dtype(float_of(dtype))
    if is_complex(kind):
        real, imag = [rand(shape, dtype=real_of(kind), generator=generator) for _ in range(2)]
        return real + 1j * imag
    return rng_of(generator).random(shape, kind)


@sized
def randn(shape: Any, dtype: Any = None, generator: Generator | None = None) -> Any:
    """Returns random numbers of the normal distribution."""
    return rng_of(generator).standard_normal(shape, float_of(dtype))


def randint(
    *bounds: Any,
    size: Any = None,
    low: int = 0,
    high: int | None = None,
    dtype: Any = np.int64,
    generator: Generator | None = None,
) -> Any:
    """Returns random integers: `randint(low, high, size)`, or from 0 on `randint(high, size)`."""
    *ends, shape = bounds if size is None else (*bounds, size)
    first, last = [x for x in (low, *ends, high) if x is not None][-2:]
    whole = dtype if np.dtype(dtype).kind in "iu" else np.int64
    drawn = rng_of(generator).integers(first, last, tuple(shape), whole)
    return fnp.astype(drawn, dtype)


def randint_like(input: Any, *bounds: Any, dtype: Any = None, **options: Any) -> Any:
    """Returns random integers, of the shape and type of a tensor."""
    return randint(*bounds, size=input.shape, dtype=dtype or input.dtype, **options)


def randperm(n: int, dtype: Any = np.int64, generator: Generator | None = None) -> Any:
    """Returns the integers below n in random order."""
    return fnp.astype(rng_of(generator).permutation(n), dtype)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    """Returns random numbers of normal distributions; no gradient goes to mean and deviation."""
    shape = np.broadcast_shapes(np.shape(mean), np.shape(std)) if size is None else size
    dtype = next((x.dtype for x in (mean, std) if hasattr(x, "dtype")), None)
    noise = randn(shape, **{"dtype": dtype, **options})
    return fnp.stop_gradient(mean + std * noise)


def bernoulli(input: Any, p: Any = None, *, generator: Generator | None = None) -> Any:
    """Returns ones with the probabilities of the elements, or with p, and else zeros."""
    drawn = rand(np.shape(input), generator=generator)
    return fnp.astype(fnp.less(drawn, fnp.stop_gradient(input if p is None else p)), input.dtype)


def poisson(input: Any, generator: Generator | None = None) -> Any:
    """Returns random integers of Poisson distributions; no gradient goes to their rates."""
    drawn = functions["poisson"](rng_of(generator).key(), fnp.stop_gradient(input))
    return fnp.astype(drawn, input.dtype)


def multinomial(
    input: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Any:
    """Returns random places in each row, as likely as its numbers say, which need not add to 1."""
    shape, likely = np.shape(input), Likely(1 if replacement else num_samples)
    likely(np.ones(shape[-1:]))  # whatever they are
    require(input, likely)
    several = (*shape[:-1], num_samples, shape[-1]) if replacement else shape
    noise = functions["gumbel"](rng_of(generator).key(), several, np.float64)
    chances = fnp.log(fnp.stop_gradient(input))
    if replacement:
        return int64(fnp.argmax(chances[..., None, :] + noise, axis=-1))
    return int64(fnp.argsort(-(chances + noise), axis=-1)[..., :num_samples])


# ------------------------------------------------------------------------------ methods that write


def _check(name: str, x: Any, holds: bool, what: str, whole: bool = False) -> None:
    """Raises where a parameter is out of range, or numbers with a point do not fit in."""
    if not holds:
        raise ArgumentError(f"{name}: {what}.")
    if not (whole or is_float(x.dtype)):
        raise DTypeError(
            f"{name}: draws numbers with a point.\n  x: {x.dtype}\n  Write x.float().{name}(...)."
        )


def random_(
    self: Any, low: int | None = None, high: int | None = None, *, generator: Any = None, **to: Any
) -> Any:
    """Writes random integers: `random_(from, to)`, `random_(to)` from 0 on, or all that fit."""
    given = [n for n in (to.get("from", low), to.get("to", high)) if n is not None]
    if not given:
        kind = self.dtype
        most = 2 ** (finfo(kind).nmant + 1) if is_float(kind) else 1
        given = [min(iinfo(kind).max if kind.kind in "iu" else most, 2**63 - 2) + 1]
    first, last = given if len(given) > 1 else (0, *given)
    _check("random_", self, first < last, f"there is no integer from {first} up to {last}", True)
    return self.copy_(rng_of(generator).integers(first, last, tuple(self.shape), np.int64))


def exponential_(self: Any, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Writes random numbers of the exponential distribution, whose mean is 1 / lambd."""
    _check("exponential_", self, lambd > 0, f"lambd is a positive number, not {lambd}")
    return self.copy_(-fnp.log1p(-rand(self.shape, dtype=self.dtype, generator=generator)) / lambd)


def geometric_(self: Any, p: float, *, generator: Generator | None = None) -> Any:
    """Writes after how many trials one succeeds, from 1 on, each with a probability."""
    _check("geometric_", self, 0 < p < 1, f"p lies between 0 and 1, and is not {p}", True)
    trials = fnp.log1p(-rand(self.shape, dtype=np.float64, generator=generator)) / math.log1p(-p)
    return self.copy_(fnp.maximum(fnp.ceil(trials), 1.0))


def cauchy_(
    self: Any, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Any:
    """Writes random numbers of the Cauchy distribution, half of them within median ± sigma."""
    _check("cauchy_", self, sigma > 0, f"sigma is a positive number, not {sigma}")
    turns = rand(self.shape, dtype=self.dtype, generator=generator) - 0.5
    return self.copy_(median + sigma * fnp.tan(math.pi * turns))


def log_normal_(
    self: Any, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Any:
    """Writes random numbers whose logarithms are normal."""
    _check("log_normal_", self, std > 0, f"std is a positive number, not {std}")
    return self.copy_(
        fnp.exp(mean + std * randn(self.shape, dtype=self.dtype, generator=generator))
    )


def normal_(
    self: Any, mean: Any = 0.0, std: Any = 1.0, *, generator: Generator | None = None
) -> Any:
    """Writes random numbers of the normal distribution."""
    return self.copy_(normal(mean, std, self.shape, dtype=self.dtype, generator=generator))


def uniform_(
    self: Any, low: Any = 0.0, high: Any = 1.0, *, generator: Generator | None = None, **to: Any
) -> Any:
    """Writes random numbers from one up to another: `uniform_(from, to)`."""
    low, high = to.get("from", low), to.get("to", high)
    kind = self.dtype if is_inexact(self.dtype) else None
    least = low * (1 + 1j) if is_complex(self.dtype) else low
    return self.copy_(least + (high - low) * rand(self.shape, dtype=kind, generator=generator))


def bernoulli_(self: Any, p: Any = 0.5, *, generator: Generator | None = None) -> Any:
    """Writes ones with a probability, and else zeros."""
    return self.copy_(rand(self.shape, generator=generator) < p)


WRITING: tuple[Callable[..., Any], ...] = (
    bernoulli_, cauchy_, exponential_, geometric_, log_normal_, normal_, random_, uniform_,
)  # fmt: skip
"""Methods of tensors that draw, which are given to them where PyTorch's names are imported."""
