"""Right rules of `external`, of solvers, and of Functions with unusual arguments and results."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_linear_solve, custom_root, external, func
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, right

# ------------------------------------------------------------------------------------ external


def _sort_vjp(primals, out, ct):
    inverse = np.argsort(np.argsort(primals[0], axis=-1), axis=-1)
    return (np.take_along_axis(ct, inverse, axis=-1),)


right((normal(5),), (normal(2, 3),), name="sort")(
    external(np.sort, lambda x: x, vmap_method="broadcast_all", vjp=_sort_vjp)
)
right((normal(4),), name="roll")(
    external(
        lambda x: np.roll(x, 1, axis=-1),
        lambda x: x,
        vmap_method="broadcast_all",
        transpose=lambda ct: (np.roll(ct, -1),),
    )
)
right((normal(3), normal(3, seed=1)), name="hypot_sequential")(
    external(
        np.hypot,
        lambda x, y: x,
        vmap_method="sequential",
        vjp=lambda primals, out, ct: (ct * primals[0] / out, ct * primals[1] / out),
    )
)
right((normal(2, 3), normal(3, seed=1)), name="expand_dims")(
    external(
        lambda x, y: np.einsum("...ij,...j->...ij", x, y),
        lambda x, y: x,
        vmap_method="expand_dims",
        vjp=lambda primals, out, ct: (ct * primals[1], np.sum(ct * primals[0], axis=0)),
    )
)

# -------------------------------------------------------------------------------------- solvers


def _solve2(a, b):
    """Solves a system of two equations by Cramer's rule."""
    det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return fnp.stack([a[1, 1] * b[0] - a[0, 1] * b[1], a[0, 0] * b[1] - a[1, 0] * b[0]]) / det


@right((np.array([[3.0, 1.0], [-2.0, 4.0]]), normal(2)))
def linear_solve(a, b):
    # the operator is transposed by who calls transpose_solve
    return custom_linear_solve(
        lambda x: a @ x,
        b,
        lambda matvec, b: _solve2(a, b),
        transpose_solve=lambda vecmat, b: _solve2(a.T, b),
    )


def _newton(f, x):
    for _ in range(8):
        x = x - _solve2(func.jacfwd(f)(x), f(x))
    return x


@right((normal(2) * 0.3,))
def root(p):
    # two unknowns, a Jacobian that is not symmetric
    return custom_root(
        lambda x: fnp.stack([x[0] + 0.3 * np.sin(x[1]) - p[0], x[1] - 0.4 * x[0] ** 2 - p[1]]),
        p * 0,
        _newton,
        lambda g, y: _solve2(func.jacfwd(g)(fnp.zeros_like(y)), y),
    )


# ------------------------------------------------------------- unusual arguments and results


class Pair(NamedTuple):
    """Is what `SplitSigns` returns."""

    plus: Any
    minus: Any


@right((np.array([0.5, -1.5, 2.0]),))
class SplitSigns(Function):
    # a named tuple out
    @staticmethod
    def forward(x):
        return Pair(np.maximum(x, 0), np.maximum(-x, 0))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, ct_plus, ct_minus):
        (x,) = ctx.saved_tensors
        return np.where(x > 0, ct_plus, -ct_minus)


@right(([normal(3), None, normal(3, seed=1)], "sum"), ([normal(2), normal(2, seed=1)], "product"))
class Reduce(Function):
    # a list with None in it, and a word
    @staticmethod
    def forward(arrays, how):
        given = [x for x in arrays if x is not None]
        if how == "sum":
            return sum(given[1:], given[0])
        return given[0] * given[1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        arrays, ctx.how = inputs
        ctx.arrays = arrays

    @staticmethod
    def backward(ctx, ct):
        if ctx.how == "sum":
            return [None if x is None else ct for x in ctx.arrays], None
        x, y = ctx.arrays
        return [ct * y, ct * x], None


@right((normal(4),))
class IdentityOpaque(Function):
    # returns the very array that it got, in both directions
    @staticmethod
    def forward(x):
        return np.asarray(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.asarray(ct)


@right((normal(4),))
class SinhBothOpaque(Function):
    # three opaque methods
    @staticmethod
    def forward(x):
        return np.sinh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return np.asarray(ct) * np.cosh(np.asarray(ctx.saved_tensors[0]))

    @staticmethod
    def jvp(ctx, t):
        return np.asarray(t) * np.cosh(np.asarray(ctx.saved_tensors[0]))


class _Tanh(Function):
    @staticmethod
    def forward(x):
        return np.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * (1 - ctx.saved_tensors[0] ** 2)


# arrays that lie in memory in unusual ways, or elsewhere, or are no arrays
right(
    (np.asfortranarray(normal(3, 4)),),
    (normal(6, 4)[::2, ::-1],),
    (np.broadcast_to(normal(4), (3, 4)),),
    name="tanh_of_views",
)(_Tanh)
right((jnp.asarray([0.3, -0.7], jnp.float32),), name="tanh_of_jax")(_Tanh)
right((0.5,), (np.array([0.5]),), name="tanh_of_float")(_Tanh)
right((np.array([0.25, -0.5, 1.5], np.float16),), name="tanh_of_half")(_Tanh)


@right(({"w": normal(3, 3), "b": normal(3)}, normal(3, seed=1)))
class AffineBatch(Function):
    # a vmap rule for a dictionary of which any part is mapped
    @staticmethod
    def forward(params, x):
        return np.sum(params["w"] * x, axis=-1) + params["b"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0]["w"], inputs[1])

    @staticmethod
    def backward(ctx, ct):
        w, x = ctx.saved_tensors
        return {"w": ct[:, None] * x, "b": ct}, np.sum(ct[:, None] * w, axis=0)

    @staticmethod
    def vmap(info, in_dims, params, x):
        dims, x_dim = in_dims

        def in_front(a, dim):
            return fnp.expand_dims(a, 0) if dim is None else fnp.moveaxis(a, dim, 0)

        w, b = in_front(params["w"], dims["w"]), in_front(params["b"], dims["b"])
        y = np.sum(w * in_front(x, x_dim)[:, None, :], axis=-1) + b
        return y, 0


@right((positive(3), np.array([1, 2, 3])))
class PowerJvp(Function):
    # an integer has no tangent, which both rules know
    @staticmethod
    def forward(x, n):
        return x ** n.astype(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, n = inputs
        ctx.save_for_backward(x, n.astype(x.dtype))
        ctx.save_for_forward(x, n.astype(x.dtype), output)

    @staticmethod
    def backward(ctx, ct):
        x, n = ctx.saved_tensors
        return ct * n * x ** (n - 1), None

    @staticmethod
    def jvp(ctx, tx, tn):
        x, n, y = ctx.saved_tensors
        return tx * n * y / x
