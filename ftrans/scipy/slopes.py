"""Special functions of JAX's whose derivatives it has not, or not at every order or point.

The distribution functions are differentiated by their parameters under the integral sign, which is
then a sum: a double exponential rule over the smaller tail, whose terms are differentiated as any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as _jsp
import numpy as np

from ftrans.interop import from_jax
from ftrans.ir import Tracer
from ftrans.numpy.special import xlog1py, xlogy

__all__ = [
    "betainc", "exp1", "expn", "gammainc", "gammaincc", "log_ndtr", "ndtri", "xlog1py", "xlogy",
]  # fmt: skip

Function = Callable[..., Any]

_STEP = 1 / 16
_S = np.arange(-8.0, 3.5, _STEP)
# of t from 0 to 1: t = 1 / (1 + exp(-pi sinh s)), its logarithm, that of 1 - t, and of the weights
_LOG_T, _LOG_LEFT = (-np.logaddexp(0.0, -sign * np.pi * np.sinh(_S)) for sign in (1, -1))
_LOG_WEIGHTS = _LOG_T + _LOG_LEFT + np.log(np.pi * np.cosh(_S) * _STEP)
# of t from 0 to infinity: t = exp(s - exp(-s))
_R = np.arange(-3.75, 4.5, _STEP)
_LOG_TAIL = _R - np.exp(-_R)
_LOG_TAIL_WEIGHTS = _LOG_TAIL + np.log1p(np.exp(-_R)) + math.log(_STEP)


def _promoted(*xs: Any) -> Any:
    dtype = jnp.result_type(*xs, jnp.float32)
    return jnp.broadcast_arrays(*[jnp.asarray(x, dtype) for x in xs])


def _ruled(value: Function, slopes: Function) -> Function:
    """Returns a function with a rule: `slopes` takes the result and the operands."""
    function = jax.custom_jvp(value)

    @function.defjvp
    def push(primals: Any, tangents: Any) -> Any:
        out = function(*primals)
        return out, sum(s * t for s, t in zip(slopes(out, *primals), tangents, strict=True))

    return function


def _of_parameters(name: str, slopes: Function, parameters: int) -> Function:
    """Returns a function of ours whose first operands are differentiated by sums, if traced."""
    plain: Function = getattr(_jsp, name)
    short, full = from_jax(plain), _ruled(plain, slopes)
    full = from_jax(lambda *xs, full=full: full(*_promoted(*xs)))

    def called(*args: Any) -> Any:
        moves = any(isinstance(x, Tracer) for x in args[:parameters])
        return (full if moves else short)(*args)

    called.__name__ = called.__qualname__ = name
    called.__doc__ = (
        f"Is `jax.scipy.special.{name}`, differentiable in all arguments at every order."
    )
    return called


def _log_beta(a: Any, b: Any) -> Any:
    return _jsp.gammaln(a) + _jsp.gammaln(b) - _jsp.gammaln(a + b)  # JAX's `betaln` is off by 1e-8


def _beta_slopes(out: Any, a: Any, b: Any, x: Any) -> Any:
    turned = x > a / (a + b)  # the smaller tail is that of I(b, a, 1 - x) then
    p, q = jnp.where(turned, b, a), jnp.where(turned, a, b)
    z, left = jnp.where(turned, 1 - x, x), jnp.where(turned, x, 1 - x)
    inside = z > 0
    z = jnp.where(inside, z, 0.5)
    log_z = jnp.log(z)[..., None]
    nodes, ends, weights = (jnp.asarray(c, z.dtype) for c in (_LOG_T, _LOG_LEFT, _LOG_WEIGHTS))
    log_t = log_z + nodes
    log_left = jnp.log(left[..., None] + z[..., None] * jnp.exp(ends))
    column = lambda x: x[..., None]  # noqa: E731
    exponent = column(p - 1) * log_t + column(q - 1) * log_left - column(_log_beta(p, q))
    mass = jnp.exp(exponent + log_z + weights)
    both = _jsp.digamma(p + q)
    by_p = jnp.where(inside, (mass * (log_t - column(_jsp.digamma(p) - both))).sum(-1), 0)
    by_q = jnp.where(inside, (mass * (log_left - column(_jsp.digamma(q) - both))).sum(-1), 0)
    density = jnp.exp(_jsp.xlogy(a - 1, x) + _jsp.xlog1py(b - 1, -x) - _log_beta(a, b))
    return jnp.where(turned, -by_q, by_p), jnp.where(turned, -by_p, by_q), density


def _gamma_slopes(out: Any, a: Any, x: Any) -> Any:
    inside, above = x > 0, x > a
    z = jnp.where(inside, x, 1.0)[..., None]
    a_ = a[..., None]

    constants = (_LOG_T, _LOG_WEIGHTS, _LOG_TAIL, _LOG_TAIL_WEIGHTS)
    nodes, weights, tails, tail_weights = (jnp.asarray(c, x.dtype) for c in constants)

    def integral(log_t: Any, log_weights: Any) -> Any:
        exponent = (a_ - 1) * log_t - jnp.exp(log_t) - _jsp.gammaln(a_)
        return (jnp.exp(exponent + log_weights) * (log_t - _jsp.digamma(a_))).sum(-1)

    below = integral(jnp.log(z) + nodes, jnp.log(z) + weights)
    wide = 1 + jnp.sqrt(a_)
    tail = integral(jnp.log(z + wide * jnp.exp(tails)), jnp.log(wide) + tail_weights)
    density = jnp.exp(_jsp.xlogy(a - 1, x) - x - _jsp.gammaln(a))
    return jnp.where(inside, jnp.where(above, -tail, below), 0), density


betainc = _of_parameters("betainc", _beta_slopes, 2)
gammainc = _of_parameters("gammainc", _gamma_slopes, 1)
gammaincc = _of_parameters("gammaincc", lambda out, a, x: [-s for s in _gamma_slopes(out, a, x)], 1)


def _named(name: str, function: Function) -> Function:
    def called(*args: Any) -> Any:
        return function(*_promoted(*args))

    called.__name__ = called.__qualname__ = name
    called.__doc__ = f"Is `jax.scipy.special.{name}` with another rule for derivatives."
    return from_jax(called)


def _inverse_mills(x: Any) -> Any:
    """Returns the density of the normal distribution by its distribution function."""
    low, high = jnp.minimum(x, 0), jnp.maximum(x, 0)
    left = math.sqrt(2 / math.pi) / _jsp.erfcx(-low / math.sqrt(2))
    right = jnp.exp(-high * high / 2) / (math.sqrt(2 * math.pi) * _jsp.ndtr(high))
    return jnp.where(x < 0, left, right)


log_ndtr = _named(
    "log_ndtr", _ruled(lambda x: _jsp.log_ndtr(x), lambda out, x: [_inverse_mills(x)])
)
ndtri = _named(
    "ndtri",
    _ruled(_jsp.ndtri, lambda out, p: [math.sqrt(2 * math.pi) * jnp.exp(out * out / 2)]),
)
_expn = _ruled(_jsp.expn, lambda out, n, x: [0, -_below(n, x)])


def _below(n: Any, x: Any) -> Any:
    """Returns `expn` of the order below."""
    return jnp.where(n == 0, jnp.exp(-x) * (1 / x + 1 / x**2), _expn(jnp.maximum(n - 1, 0), x))


expn = _named("expn", _expn)
exp1 = _named("exp1", lambda x: _expn(jnp.ones_like(x), x))
