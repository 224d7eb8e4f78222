"""Wrong rules of `external`, `custom_linear_solve`, `custom_root` and of the decorators' parts."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import (
    custom_linear_solve,
    custom_root,
    custom_vjp,
    external,
    func,
    stop_gradient,
)
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# ------------------------------------------------------------------------------------ external


def _sort_vjp(primals, out, ct):
    # the permutation, where its inverse belongs
    return (np.take_along_axis(ct, np.argsort(primals[0]), axis=0),)


wrong("takes the cotangent by the permutation instead of its inverse", (normal(5),), name="sort")(
    external(np.sort, lambda x: x, vmap_method="broadcast_all", vjp=_sort_vjp)
)

# axis=0 is the batch as soon as there is one
wrong("says that it takes a batch, and sums over it", (normal(4),), name="cumsum_batch")(
    external(
        lambda x: np.cumsum(x, axis=0),
        lambda x: x,
        vmap_method="broadcast_all",
        transpose=lambda ct: (np.flip(np.cumsum(np.flip(ct, 0), axis=0), 0),),
    )
)

# shift for shift: the transpose of a permutation is its inverse
wrong("the transpose of a roll is the roll itself", (normal(4),), name="roll_transpose")(
    external(
        lambda x: np.roll(x, 1, axis=-1),
        lambda x: x,
        vmap_method="broadcast_all",
        transpose=lambda ct: (np.roll(ct, 1),),
    )
)


def _arctan_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    # the derivative of artanh
    return arctan(x), t / (1 - x * x)


arctan = external(np.arctan, lambda x: x, vmap_method="broadcast_all", jvp=_arctan_jvp)
wrong("a sign in the denominator of jvp", (normal(4),), name="arctan")(arctan)

# an out_type that was right before the kernel was ported to single precision
wrong("returns another dtype than it declares", (normal(4),), name="sqrt_type")(
    external(
        lambda x: np.sqrt(1 + x * x).astype(np.float32),
        lambda x: x,
        vmap_method="broadcast_all",
        vjp=lambda primals, out, ct: (ct * primals[0] / out,),
    )
)

# -------------------------------------------------------------------------------------- solves


def _solve2(a, b):
    """Solves a system of two equations by Cramer's rule."""
    det = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return fnp.stack([a[1, 1] * b[0] - a[0, 1] * b[1], a[0, 0] * b[1] - a[1, 0] * b[0]]) / det


_SYSTEM = np.array([[3.0, 1.0], [-2.0, 4.0]])


@wrong("says that a matrix is symmetric which is not", (_SYSTEM, normal(2)))
def solve_symmetric(a, b):
    # it was, in the first application
    return custom_linear_solve(lambda x: a @ x, b, lambda matvec, b: _solve2(a, b), symmetric=True)


@wrong("the transposed system is solved with the matrix itself", (_SYSTEM, normal(2)))
def solve_transposed(a, b):
    # transpose_solve gets the transposed operator, but looks at a
    def direct(matvec, b):
        return _solve2(a, b)

    return custom_linear_solve(lambda x: a @ x, b, direct, transpose_solve=direct)


@wrong("the solver stops before it has solved", (_SYSTEM, normal(2)))
def solve_unfinished(a, b):
    # four sweeps of Jacobi's method "are enough"
    def jacobi(matvec, b):
        x = b / 4.0
        for _ in range(4):
            x = x + (b - matvec(x)) / 4.0
        return x

    return custom_linear_solve(
        lambda x: a @ x, b, jacobi, transpose_solve=lambda vecmat, b: _solve2(a.T, b)
    )


def _newton(f, x):
    for _ in range(8):
        jacobian = func.jacfwd(f)(x)
        x = x - _solve2(jacobian, f(x))
    return x


def _residual(x, p):
    return fnp.stack([x[0] + 0.3 * np.sin(x[1]) - p[0], x[1] - 0.4 * x[0] ** 2 - p[1]])


@wrong("the linear solve of the tangents takes the Jacobian to be diagonal", (normal(2) * 0.3,))
def root_diagonal(p):
    # y / g(1): right for one unknown
    return custom_root(
        lambda x: _residual(x, p), p * 0, _newton, lambda g, y: y / g(fnp.ones_like(y))
    )


@wrong("the parameter is held fixed", (normal(2) * 0.3,))
def root_detached(p):
    # gradients through a solver were a nuisance, once
    fixed = stop_gradient(p)
    return custom_root(
        lambda x: _residual(x, fixed),
        p * 0,
        _newton,
        lambda g, y: _solve2(func.jacfwd(g)(fnp.zeros_like(y)), y),
    )


# ------------------------------------------------------- what the parts of a decorator disagree on


def _clipped(x):
    return np.clip(np.exp(x), 0.0, 2.0)


exp_clipped = custom_vjp(_clipped)
# fwd was written before the clip
exp_clipped.defvjp(
    lambda x: (np.exp(x), np.exp(x)), lambda y, ct: (np.where(y < 2.0, ct * y, 0.0),)
)
wrong("fwd's value is not that of the function", (np.array([-1.0, 0.3, 1.5]),), name="exp_clipped")(
    exp_clipped
)


@wrong("another result for plain arrays than for traced ones", (normal(4),))
class SquareOfPlain(Function):
    # a fast path that is taken where nothing is traced, in single precision
    @staticmethod
    def forward(x):
        if type(x) is np.ndarray:
            return (x.astype(np.float16) ** 2).astype(x.dtype)
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]


@wrong("jvp uses the tangent of an integer, which there is not", (positive(3), np.array([1, 2, 3])))
class PowerJvp(Function):
    # both arguments are arrays
    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx, ct):
        x, n = ctx.saved_tensors
        return ct * n * x ** (n - 1), None

    @staticmethod
    def jvp(ctx, tx, tn):
        x, n, y = ctx.saved_tensors
        return tx * n * y / x + tn * y * np.log(x)


@wrong("a leaf of the gradient is missing", ({"w": normal(3), "b": normal(3, seed=1)}, normal(3)))
class AffineLeaf(Function):
    # the bias was added to the dictionary later
    @staticmethod
    def forward(params, x):
        return params["w"] * x + params["b"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0]["w"], inputs[1])

    @staticmethod
    def backward(ctx, ct):
        w, x = ctx.saved_tensors
        return {"w": ct * x}, ct * w


@wrong("a vmap rule that moves one leaf of two", ({"w": normal(3, 3), "b": normal(3)}, normal(3)))
class AffineBatch(Function):
    # params["b"] is taken to be mapped where params["w"] is
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
        w, b = params["w"], params["b"]
        if dims["w"] is not None:
            w = fnp.moveaxis(w, dims["w"], 0)
            b = fnp.reshape(b, (info.batch_size, -1)) if dims["b"] is not None else b
        if x_dim is not None:
            x = fnp.moveaxis(x, x_dim, 0)[:, None, :]
        return np.sum(w * x, axis=-1) + b + np.zeros((info.batch_size, 1)), 0


class _Halves(Function):
    """Adds up pairs; its vmap rule is wrong, which its own users do not see."""

    @staticmethod
    def forward(ct):
        return np.asarray(ct)[..., 0::2] + np.asarray(ct)[..., 1::2]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.repeat(ct, 2)

    @staticmethod
    def vmap(info, in_dims, ct):
        ct = fnp.moveaxis(ct, in_dims[0], 0)
        # (-1, 2) and axis=2
        return fnp.reshape(ct, (info.batch_size, 2, -1)).sum(axis=1), 0


@wrong("backward calls a Function whose vmap rule is wrong", (normal(3),))
class RepeatTwice(Function):
    # right alone, right batched, right differentiated; not all of them at once
    @staticmethod
    def forward(x):
        return np.repeat(x, 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return _Halves.apply(ct)
