"""Evaluates what JAX traced with NumPy: JAX's derivatives and batching rules, without compiling.

`evaluate(f)(*args)` traces `f` to a jaxpr in double precision, drops what the result does not need
and runs the rest, equation by equation, in a fraction of the time that XLA takes to compile it. A
primitive without a rule here is run by JAX itself.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

Rule = Callable[..., Any]


def evaluate(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes `f` with NumPy, from what JAX traces."""

    def evaluated(*args: Any) -> Any:
        with jax.enable_x64(True), np.errstate(all="ignore"):
            closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
            leaves = [np.asarray(x) for x in jax.tree.leaves(args)]
            outs = _run(closed.jaxpr, closed.consts, leaves)
            return jax.tree.unflatten(jax.tree.structure(shape), outs)

    return evaluated


def _run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[np.ndarray]:
    needed = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        if any(v in needed for v in equation.outvars):
            kept.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, Literal))
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_as_numpy, consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        return np.asarray(v.val, v.aval.dtype) if isinstance(v, Literal) else env[v]

    for equation in reversed(kept):
        operands = [read(v) for v in equation.invars]
        env.update(zip(equation.outvars, _apply(equation, operands), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _apply(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, equation.params
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = params.get(key)
        if inner is not None and name in CALLS:
            return _call(inner, operands)
    rule = RULES.get(name)
    if rule is None:
        FALLBACKS[name] += 1
        found = equation.primitive.bind(*operands, **params)
        results = found if equation.primitive.multiple_results else [found]
        return [_as_numpy(x) for x in results]
    found = rule(*operands, **params)
    return found if isinstance(found, list) else [np.asarray(found, equation.outvars[0].aval.dtype)]


def _as_numpy(x: Any) -> Any:
    """Returns an array of NumPy; keys of random numbers stay JAX's."""
    is_key = jax.dtypes.issubdtype(getattr(x, "dtype", None), jax.dtypes.extended)
    return x if is_key else np.asarray(x)


def _call(inner: Any, operands: Sequence[Any]) -> list[np.ndarray]:
    """Runs a jaxpr, closed or not."""
    if hasattr(inner, "consts"):
        return _run(inner.jaxpr, inner.consts, operands)
    return _run(inner, (), operands)


FALLBACKS: collections.Counter[str] = collections.Counter()
"""How often JAX ran a primitive itself, by its name."""

CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "checkpoint",
    "remat2",
}


def _elementwise(function: Callable[..., Any]) -> Rule:
    return lambda *xs, **params: function(*xs)


def _reduction(function: Any) -> Rule:
    return lambda x, *, axes, **params: function(x, axis=tuple(axes))


def _cumulative(function: Any) -> Rule:
    def rule(x: Any, *, axis: int, reverse: bool) -> Any:
        if reverse:
            return np.flip(function(np.flip(x, axis), axis=axis), axis)
        return function(x, axis=axis)

    return rule


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _log_cumsum(x: Any, axis: int) -> Any:
    return np.logaddexp.accumulate(x, axis=axis)


def _broadcast_in_dim(
    x: Any, *dyn: Any, shape: Any, broadcast_dimensions: Any, sharding: Any
) -> Any:
    expanded = [1] * len(shape)
    for size, axis in zip(x.shape, broadcast_dimensions, strict=True):
        expanded[axis] = size
    return np.broadcast_to(x.reshape(expanded), shape)


def _dot_general(x: Any, y: Any, *, dimension_numbers: Any, **params: Any) -> Any:
    (cx, cy), (bx, by) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    lx = [next(letters) for _ in range(x.ndim)]
    ly = [next(letters) for _ in range(y.ndim)]
    for i, j in [*zip(cx, cy, strict=True), *zip(bx, by, strict=True)]:
        ly[j] = lx[i]
    batch = [lx[i] for i in bx]
    free = [c for i, c in enumerate(lx) if i not in cx and i not in bx]
    free += [c for j, c in enumerate(ly) if j not in cy and j not in by]
    return np.einsum(f"{''.join(lx)},{''.join(ly)}->{''.join(batch + free)}", x, y)


def _pad(x: Any, value: Any, *, padding_config: Any) -> Any:
    shape, target, source = [], [], []
    for size, (low, high, interior) in zip(x.shape, padding_config, strict=True):
        stop = low + size + max(0, size - 1) * interior + high
        shape.append(max(0, stop))
        places = [low + i * (interior + 1) for i in range(size)]
        kept = [i for i, place in enumerate(places) if 0 <= place < stop]
        source.append(kept)
        target.append([places[i] for i in kept])
    out = np.full(shape, value, x.dtype)
    out[np.ix_(*target)] = x[np.ix_(*source)] if x.ndim else x
    return out if x.ndim else x


def _reshape(x: Any, *, new_sizes: Any, dimensions: Any, sharding: Any) -> Any:
    return np.reshape(x if dimensions is None else np.transpose(x, dimensions), new_sizes)


def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    strides = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, strides))]


def _select(which: Any, *cases: Any) -> Any:
    if which.ndim == 0:
        return cases[int(which)]
    return np.choose(which.astype(int), cases)


def _iota(*, dtype: Any, shape: Any, dimension: int, **params: Any) -> Any:
    expanded = [1] * len(shape)
    expanded[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(expanded), shape)


def _split(x: Any, *, sizes: Any, axis: int) -> list[Any]:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Any:
    index = []
    for start, size, length in zip(starts, slice_sizes, x.shape, strict=True):
        start = min(max(int(start), 0), length - size)
        index.append(slice(start, start + size))
    return x[tuple(index)]


def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    out = np.array(x)
    index = []
    for start, size, length in zip(starts, update.shape, x.shape, strict=True):
        start = min(max(int(start), 0), length - size)
        index.append(slice(start, start + size))
    out[tuple(index)] = update
    return out


def _sort(*xs: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
    order = np.lexsort(xs[:num_keys][::-1], axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in xs]


def _div(x: Any, y: Any) -> Any:
    if x.dtype.kind in "fc":
        return np.true_divide(x, y)
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))  # toward zero


def _unstack(x: Any, *, axis: int) -> list[Any]:
    return [np.take(x, i, axis) for i in range(x.shape[axis])]


def _cond(index: Any, *operands: Any, branches: Any, **params: Any) -> list[Any]:
    return _call(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _scan(
    *operands: Any,
    jaxpr: Any,
    length: int,
    reverse: bool,
    num_consts: int = -1,
    num_carry: int = -1,
    **params: Any,
) -> list[Any]:
    if "ft_in" in params:  # newer versions of JAX say so by trees
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    consts, carry = operands[:num_consts], list(operands[num_consts : num_consts + num_carry])
    stacked = operands[num_consts + num_carry :]
    avals = jaxpr.out_avals[num_carry:]
    outs = [np.empty((length, *aval.shape), aval.dtype) for aval in avals]
    for i in reversed(range(length)) if reverse else range(length):
        found = _call(jaxpr, [*consts, *carry, *(x[i] for x in stacked)])
        carry = found[:num_carry]
        for out, value in zip(outs, found[num_carry:], strict=True):
            out[i] = value
    return [*carry, *outs]


def _while(
    *operands: Any,
    cond_jaxpr: Any,
    cond_nconsts: int,
    body_jaxpr: Any,
    body_nconsts: int,
    **params: Any,
) -> list[Any]:
    count = cond_nconsts + body_nconsts
    asked, consts = operands[:cond_nconsts], operands[cond_nconsts:count]
    carry = list(operands[count:])
    # the condition of a batch is one for each example, and those that are done stay as they are
    while (going := _call(cond_jaxpr, [*asked, *carry])[0]).any():
        moved = _call(body_jaxpr, [*consts, *carry])
        carry = [
            np.where(going.reshape(going.shape + (1,) * (x.ndim - going.ndim)), x, old)
            for x, old in zip(moved, carry, strict=True)
        ]
    return carry


def _integer_pow(x: Any, *, y: int) -> Any:
    return x**y if y >= 0 else 1.0 / x**-y


RULES: dict[str, Rule] = {
    **{
        name: _elementwise(function)
        for name, function in {
            "abs": np.abs,
            "acos": np.arccos,
            "acosh": np.arccosh,
            "add": np.add,
            "add_any": np.add,
            "and": np.bitwise_and,
            "asin": np.arcsin,
            "asinh": np.arcsinh,
            "atan": np.arctan,
            "atan2": np.arctan2,
            "atanh": np.arctanh,
            "cbrt": np.cbrt,
            "ceil": np.ceil,
            "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
            "copy": np.array,
            "copy_p": np.array,
            "cos": np.cos,
            "cosh": np.cosh,
            "div": _div,
            "eq": np.equal,
            "erf": _erf,
            "exp": np.exp,
            "exp2": np.exp2,
            "expm1": np.expm1,
            "floor": np.floor,
            "ge": np.greater_equal,
            "gt": np.greater,
            "is_finite": np.isfinite,
            "le": np.less_equal,
            "log": np.log,
            "log1p": np.log1p,
            "logistic": lambda x: 1.0 / (1.0 + np.exp(-x)),
            "lt": np.less,
            "max": np.maximum,
            "min": np.minimum,
            "mul": np.multiply,
            "ne": np.not_equal,
            "neg": np.negative,
            "not": np.invert,
            "or": np.bitwise_or,
            "pow": np.power,
            "rsqrt": lambda x: 1.0 / np.sqrt(x),
            "select_n": _select,
            "sign": np.sign,
            "sin": np.sin,
            "sinh": np.sinh,
            "sqrt": np.sqrt,
            "square": np.square,
            "stop_gradient": np.asarray,
            "sub": np.subtract,
            "tan": np.tan,
            "tanh": np.tanh,
            "xor": np.bitwise_xor,
        }.items()
    },
    "argmax": lambda x, *, axes, index_dtype: np.argmax(x, axes[0]),
    "argmin": lambda x, *, axes, index_dtype: np.argmin(x, axes[0]),
    "broadcast_in_dim": _broadcast_in_dim,
    "cond": _cond,
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "convert_element_type": lambda x, *, new_dtype, **params: x.astype(new_dtype),
    "cumlogsumexp": _cumulative(_log_cumsum),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "cumprod": _cumulative(np.cumprod),
    "cumsum": _cumulative(np.cumsum),
    "dot_general": _dot_general,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, dimensions),
    "integer_pow": _integer_pow,
    "iota": _iota,
    "pad": _pad,
    "reduce_and": _reduction(np.all),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_or": _reduction(np.any),
    "reduce_prod": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reshape": _reshape,
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "scan": _scan,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "unstack": _unstack,
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
    "while": _while,
}
