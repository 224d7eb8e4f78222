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

from ftrans.interop.importer import Importer, Rule, alone, core

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
_STIRLING = [-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]


def _ruled(value: Function, slopes: Function) -> Function:
    """Returns a function with a rule: `slopes` takes the result and the operands."""
    function = jax.custom_jvp(value)

    @function.defjvp
    def push(primals: Any, tangents: Any) -> Any:
        out = function(*primals)
        return out, sum(s * t for s, t in zip(slopes(out, *primals), tangents, strict=True))

    return function


def _ruled_primitive(slopes: Function) -> Rule:
    """Returns the rule of a primitive of JAX's that lacks derivatives by its first operands."""

    def rule(importer: Importer, equation: Any, *operands: Any) -> Any:
        plain = core.jaxpr_as_fun(alone(equation))
        specs = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in equation.invars]
        closed = jax.make_jaxpr(_ruled(lambda *xs: plain(*xs)[0], slopes))(*specs)
        rules = {**importer.rules}
        rules.pop(equation.primitive.name)  # the value is JAX's own
        inner = Importer(importer.frame, rules, importer.around)
        return inner.run(closed.jaxpr, closed.consts, operands)

    return rule


def _by_forward_mode(function: Function) -> Function:
    """Gives a function of single elements derivatives of all orders that need its `jvp` alone."""

    def slope(i: int) -> Function:
        def along(*xs: Any) -> Any:
            direction = tuple([jnp.full_like(x, i == j) for j, x in enumerate(xs)])
            return jax.jvp(function, xs, direction)[1]

        return _by_forward_mode(along)

    return _ruled(function, lambda out, *xs: [slope(i)(*xs) for i in range(len(xs))])


def of_gamma(draw: Function, log_space: bool) -> Function:
    """Returns what draws from the gamma distribution, or its logarithm, with derivatives by `a`.

    They are implicit, as JAX's are, whose loops do not let reverse mode be taken twice.
    """
    slope = _by_forward_mode(jax.lax.random_gamma_grad)

    def by_a(out: Any, a: Any, drawn: Any) -> list[Any]:
        if not log_space:
            return [slope(a, out), jnp.zeros_like(out)]
        x = jnp.maximum(jnp.exp(out), jnp.finfo(out.dtype).tiny)
        return [slope(a, x) / x, jnp.zeros_like(out)]

    follows = _ruled(lambda a, drawn: drawn, by_a)
    return lambda key, a: [follows(a, draw(key, jax.lax.stop_gradient(a))[0])]


def _log_beta(a: Any, b: Any) -> Any:
    """Is `betaln`, of which JAX's is off by 1e-6 from 8 on: by Stirling's series there."""
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    near = ~((low > 0) & (high >= 8) & (high < jnp.inf))
    x, y = jnp.where(near, 1, low), jnp.where(near, 8, high)
    rest = [jnp.polyval(jnp.asarray(_STIRLING, z.dtype), z**-2) / z for z in (y, x + y)]
    far = rest[0] - rest[1] - (y + x - 0.5) * jnp.log1p(x / y) - x * (jnp.log(y) - 1)
    return _jsp.gammaln(low) + jnp.where(near, _jsp.gammaln(high) - _jsp.gammaln(low + high), far)


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


RULES: dict[str, Rule] = {
    "regularized_incomplete_beta": _ruled_primitive(_beta_slopes),
    "igamma": _ruled_primitive(_gamma_slopes),
    "igammac": _ruled_primitive(lambda out, a, x: [-s for s in _gamma_slopes(out, a, x)]),
}


def _named(name: str, function: Function) -> Function:
    """Makes a function of arrays of one dtype one of numbers, in single precision where it is less.

    For floats of 16 bits JAX's are refused, or wrong.
    """

    def called(*args: Any) -> Any:
        dtype = jnp.result_type(*args)  # to which float32 would add what Python's numbers lack
        is_inexact = jnp.issubdtype(dtype, jnp.inexact)
        wide = dtype if is_inexact and dtype.itemsize > 2 else jnp.float32
        out = function(*jnp.broadcast_arrays(*[jnp.asarray(x, wide) for x in args]))
        return out.astype(dtype) if is_inexact else out

    called.__name__ = called.__qualname__ = name
    called.__doc__ = f"Is `jax.scipy.special.{name}` with another rule for derivatives."
    return called


def _inverse_mills(x: Any) -> Any:
    """Returns the density of the normal distribution by its distribution function."""
    low, high = jnp.minimum(x, 0), jnp.maximum(x, 0)
    left = math.sqrt(2 / math.pi) / _jsp.erfcx(-low / math.sqrt(2))
    right = jnp.exp(-high * high / 2) / (math.sqrt(2 * math.pi) * _jsp.ndtr(high))
    return jnp.where(x < 0, left, right)


def _log_slopes(x: Any, y: Any, log: Function, plus: int) -> list[Any]:
    """Returns the slopes of x log(y + plus): as in `ftrans.numpy`, 0 for 0 times infinity."""
    masked = (x == 0) & (y == -plus)
    inside = jnp.where(masked, 1, y)
    return [jnp.where(masked, 0, log(inside)), jnp.where(masked, 0, x / (inside + plus))]


@jax.custom_jvp
def _expn(n: Any, x: Any) -> Any:
    value = _jsp.expn(n, jnp.where(x == 0, 1, x))
    limit = jnp.where(n > 1, 1 / (n - 1), jnp.inf)  # JAX has 1 / n
    return jnp.where(x == 0, limit, jnp.where(x == jnp.inf, 0, value))


@_expn.defjvp
def _push_expn(primals: Any, tangents: Any) -> Any:
    n, x = primals
    of_zero, below = jnp.exp(-x) * (1 / x + 1 / x**2), _expn(jnp.maximum(n - 1, 0), x)
    return _expn(n, x), -jnp.where(n == 0, of_zero, below) * tangents[1]


def _exponential(n: Any, x: Any) -> Any:
    """Is `jax.scipy.special.expn`, with derivatives by x that are of the order below."""
    if type(n) is int and n == 1:
        return FUNCTIONS["exp1"](x)
    return _named("expn", lambda x: _expn(jnp.asarray(n, x.dtype), x))(x)


def _near_zero(x: Any) -> Any:
    """Returns what the first exponential integral and the logarithm make together, up to 2."""
    terms = [-((-1.0) ** k) / (k * math.factorial(k)) for k in range(28, 0, -1)]
    return jnp.polyval(jnp.asarray([*terms, -np.euler_gamma], x.dtype), x)


def _fraction(x: Any) -> Any:
    """Returns exp(x) times the first exponential integral, from 2 on: a continued fraction."""

    def step(i: Any, tail: Any) -> Any:
        k = _DEPTH - i
        return x + 2 * k + 1 - (k + 1) ** 2 / tail

    return 1 / jax.lax.fori_loop(0, _DEPTH + 1, step, x + 2 * _DEPTH + 3)


_DEPTH = 80


def _first_value(x: Any) -> Any:
    """JAX's own does not end where some elements are small and others are not."""
    small = x <= 2
    near, far = jnp.where(small, x, 1), jnp.where(small, 2, x)
    tail = jnp.exp(-far) * _fraction(jnp.where(jnp.isinf(far), 2, far))
    return jnp.where(small, _near_zero(near) - jnp.log(near), tail)


def _box_cox(log: Any, power: Any) -> Any:
    """Returns (exp(power log) - 1) / power, with derivatives by the power at 0."""
    product = power * jnp.where(jnp.isinf(log) & (power == 0), 0, log)
    near = jnp.abs(product) < 0.01
    terms = [1 / math.factorial(k + 1) for k in range(8, -1, -1)]
    series = jnp.polyval(jnp.asarray(terms, log.dtype), jnp.where(near, product, 0))
    far = jnp.where(near, 1, power)
    return jnp.where(near, log * series, jnp.expm1(far * jnp.where(near, 0, log)) / far)


def _spence_slope(out: Any, x: Any) -> Any:
    near = jnp.abs(x - 1) < 0.1
    series = jnp.asarray([(-1) ** k / (k + 1) for k in range(19, -1, -1)], x.dtype)
    far = jnp.log(jnp.where(near, 2, x)) / jnp.where(near, 1, x - 1)
    return [-jnp.where(near, jnp.polyval(series, jnp.where(near, x - 1, 0)), far)]


def _is_pole(x: Any) -> Any:
    return (x <= 0) & (x == jnp.floor(x)) & jnp.isfinite(x)


def _at_edges(function: Function, *edges: tuple[Function, float]) -> Function:
    """Gives a function the values that SciPy's has at some places."""

    def value(*xs: Any) -> Any:
        places, values = [is_there(*xs) for is_there, _ in edges], [y for _, y in edges]
        return jnp.select(places, values, function(*xs))

    return value


def _beta(a: Any, b: Any) -> Any:
    signs = _jsp.gammasgn(a) * _jsp.gammasgn(b) * _jsp.gammasgn(a + b)
    return signs * jnp.exp(_log_beta(a, b))


_OURS: dict[str, Function] = {
    "beta": _at_edges(_beta, (lambda a, b: _is_pole(a + b) & ~_is_pole(a) & ~_is_pole(b), 0.0)),
    "betaln": _log_beta,
    "boxcox": lambda x, power: _box_cox(jnp.log(x), power),
    "boxcox1p": lambda x, power: _box_cox(jnp.log1p(x), power),
    "exp1": _ruled(_first_value, lambda out, x: [-jnp.exp(-x) / x]),
    "expi": _at_edges(
        _jsp.expi, (lambda x: x == 0, -jnp.inf), (jnp.isposinf, jnp.inf), (jnp.isneginf, -0.0)
    ),
    "gammainc": _at_edges(_jsp.gammainc, (lambda a, x: (a == 0) & (x > 0), 1.0)),
    "gammaincc": _at_edges(
        _jsp.gammaincc, (lambda a, x: (a == jnp.inf) & (x >= 0) & (x < jnp.inf), 1.0)
    ),
    "log_ndtr": _ruled(lambda x: _jsp.log_ndtr(x), lambda out, x: [_inverse_mills(x)]),
    "loggamma": _at_edges(_jsp.loggamma, (lambda z: z == 0, jnp.inf)),
    "ndtr": _jsp.ndtr,
    "ndtri": _ruled(_jsp.ndtri, lambda out, p: [math.sqrt(2 * math.pi) * jnp.exp(out * out / 2)]),
    "poch": _at_edges(_jsp.poch, (lambda z, m: _is_pole(z) & ~_is_pole(z + m), 0.0)),
    "rel_entr": _at_edges(
        _jsp.rel_entr, (lambda x, y: (x == jnp.inf) & (y > 0) & (y < jnp.inf), jnp.inf)
    ),
    "spence": _ruled(_jsp.spence, _spence_slope),
    "xlog1py": _ruled(_jsp.xlog1py, lambda out, x, y: _log_slopes(x, y, jnp.log1p, 1)),
    "xlogy": _ruled(_jsp.xlogy, lambda out, x, y: _log_slopes(x, y, jnp.log, 0)),
}
FUNCTIONS: dict[str, Function] = {
    **{name: _named(name, own) for name, own in _OURS.items()},
    "expn": _exponential,
}
"""By SciPy's names: what stands in the place of a function of `jax.scipy.special`."""
