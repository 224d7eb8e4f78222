"""Wrong rules of products, solves and linear operators."""

from __future__ import annotations

import numpy as np

from ftrans import custom_jvp, custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, wrong

# ------------------------------------------------------------------------- products and solves


@wrong("an operand is not transposed", (normal(3, 3), normal(3, 3, seed=1)))
class Matmul(Function):
    # the shapes fitted
    @staticmethod
    def forward(a, b):
        return a @ b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        a, b = ctx.saved_tensors
        return ct @ b, a.T @ ct


@wrong("the product of the gradient is the other way round", (normal(3, 3), normal(3, 3, seed=1)))
class MatmulOpaque(Function):
    # NumPy on both sides, and ct.T @ a remembered from the column-major original
    @staticmethod
    def forward(ctx, a, b):
        a, b = np.asarray(a), np.asarray(b)
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, ct):
        a, b = (np.asarray(x) for x in ctx.saved_tensors)
        ct = np.asarray(ct)
        return ct @ b.T, ct.T @ a


@wrong(
    "the batch is averaged in the gradient of the weights", (normal(2, 3, 4), normal(4, 2, seed=1))
)
class Dense(Function):
    # the loss averages, so the layer does as well
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        return ct @ w.T, (x.swapaxes(-1, -2) @ ct).mean(axis=0)


_SYSTEM = normal(3, 3) + 4 * np.eye(3)


@wrong("solves with the matrix instead of its transpose", (_SYSTEM, normal(3, seed=1)))
class Solve(Function):
    # right for the symmetric matrices of the tests
    @staticmethod
    def forward(a, b):
        return np.linalg.solve(np.asarray(a), np.asarray(b))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, ct):
        a, x = ctx.saved_tensors
        g = Solve.apply(a, ct)
        return -g[:, None] * x[None, :], g


@wrong("the sign of the matrix's gradient", (_SYSTEM, normal(3, seed=1)))
class SolveSign(Function):
    # from 0 = dA x + A dx, one line further
    @staticmethod
    def forward(a, b):
        return np.linalg.solve(np.asarray(a), np.asarray(b))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, ct):
        a, x = ctx.saved_tensors
        g = SolveSign.apply(a.T, ct)
        return g[:, None] * x[None, :], g


def _quadratic(x, a):
    return x @ a @ x


quadratic_form = custom_vjp(_quadratic)
# 2 A x: the matrix is taken to be symmetric
quadratic_form.defvjp(
    lambda x, a: (_quadratic(x, a), (x, a)),
    lambda res, ct: (2 * ct * (res[1] @ res[0]), ct * res[0][:, None] * res[0][None, :]),
)
wrong("takes the matrix to be symmetric", (normal(3), normal(3, 3, seed=1)), name="quadratic_form")(
    quadratic_form
)


@wrong("only a jvp, in which matrices commute", (_SYSTEM,))
class Inverse(Function):
    # d(1/x) = -dx / x**2
    @staticmethod
    def forward(x):
        return np.linalg.inv(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(output)

    @staticmethod
    def jvp(ctx, t):
        (y,) = ctx.saved_tensors
        return -(y @ y) @ t


@wrong("the inverse is not transposed", (_SYSTEM,))
class LogDet(Function):
    # d log det A = tr(A^-1 dA), and the trace was read off without the transpose
    @staticmethod
    def forward(ctx, a):
        a = np.asarray(a)
        ctx.save_for_backward(np.linalg.inv(a))
        return np.linalg.slogdet(a)[1]

    @staticmethod
    def backward(ctx, ct):
        (inverse,) = ctx.saved_tensors
        return np.asarray(ct) * np.asarray(inverse)


@wrong("a gradient for entries that forward does not read", (normal(3, 3), normal(3, seed=1)))
class TriangularProduct(Function):
    # forward takes the lower triangle, backward forgets it
    @staticmethod
    def forward(factor, x):
        return np.tril(factor) @ x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        factor, x = ctx.saved_tensors
        return ct[:, None] * x[None, :], np.tril(factor).T @ ct


@wrong("the gradient of a transpose is not transposed", (normal(3, 3),))
class ScaledTranspose(Function):
    # an elementwise rule, copied
    @staticmethod
    def forward(ctx, x):
        return 3 * x.T

    @staticmethod
    def backward(ctx, ct):
        return 3 * ct


_TIED = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])


@wrong("wrong where eigenvalues are equal", (_TIED,))
class SymmetricExp(Function):
    # divided differences, with zero for "what has no difference", as in the rule of eigh
    @staticmethod
    def forward(ctx, a):
        a = np.asarray(a)
        values, vectors = np.linalg.eigh((a + a.T) / 2)
        ctx.save_for_backward(values, vectors)
        return (vectors * np.exp(values)) @ vectors.T

    @staticmethod
    def backward(ctx, ct):
        values, vectors = (np.asarray(x) for x in ctx.saved_tensors)
        gap = values[:, None] - values[None, :]
        rise = np.exp(values)[:, None] - np.exp(values)[None, :]
        equal = np.abs(gap) < 1e-9
        slope = np.where(equal, 0.0, rise / np.where(equal, 1.0, gap))
        np.fill_diagonal(slope, np.exp(values))
        g = vectors @ (slope * (vectors.T @ np.asarray(ct) @ vectors)) @ vectors.T
        return (g + g.T) / 2


# -------------------------------------------------------------------------- linear operators


@wrong("sums from the front instead of from the back", (normal(2, 5),))
class Cumsum(Function):
    # the transpose of a lower triangle is an upper one
    @staticmethod
    def forward(x):
        return np.cumsum(x, axis=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.cumsum(ct, axis=1)


@wrong("backward ignores the axis that it was called with", (normal(3, 3), 0), (normal(3, 3), 1))
class CumsumFixedAxis(Function):
    # the argument came later, and found its way into forward
    @staticmethod
    def forward(x, axis):
        return np.cumsum(x, axis=axis)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.flip(np.cumsum(np.flip(ct, 0), axis=0), 0), None


class ScaledSine(Function):
    """Takes a keyword argument, and forgets it."""

    @staticmethod
    def forward(x, *, scale):
        return scale * np.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, ct):
        return ct * np.cos(ctx.saved_tensors[0])


wrong("a keyword argument is forgotten in backward", (normal(4),), name="ScaledSine")(
    lambda x: ScaledSine.apply(x, scale=3)
)


def _affine(params, x):
    return x @ params["w"] + params["b"]


def _affine_bwd(res, ct):
    params, x = res
    # the bias is broadcast over rows, and here summed over columns
    return {"w": x.T @ ct, "b": ct.sum(axis=1)}, ct @ params["w"].T


affine = custom_vjp(_affine)
affine.defvjp(lambda params, x: (_affine(params, x), (params, x)), _affine_bwd)
wrong(
    "the wrong axis, in one leaf of a dictionary",
    ({"w": normal(2, 3), "b": normal(3, seed=1)}, normal(3, 2, seed=2)),
    name="affine",
)(affine)


@wrong("rolls on instead of back", (normal(5), 2))
class Roll(Function):
    # with two elements it was right
    @staticmethod
    def forward(ctx, x, shift):
        ctx.shift = shift
        return np.roll(np.asarray(x), shift)

    @staticmethod
    def backward(ctx, ct):
        return np.roll(ct, ctx.shift), None


@wrong("the kernel is not flipped in the gradient of the signal", (normal(6), normal(3, seed=1)))
class Convolve(Function):
    # convolution and correlation are told apart by asymmetric kernels alone
    @staticmethod
    def forward(x, kernel):
        return np.convolve(np.asarray(x), np.asarray(kernel), mode="valid")

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, kernel = (np.asarray(a) for a in ctx.saved_tensors)
        ct = np.asarray(ct)
        return np.convolve(ct, kernel), np.convolve(x, ct[::-1], mode="valid")[::-1]


difference = custom_jvp(lambda x: x[1:] - x[:-1])
# the tangent at the other end: right in the middle of a constant tangent
difference.defjvp(lambda primals, tangents: (np.diff(primals[0]), np.diff(tangents[0])[::-1]))
wrong("the tangent is reversed", (normal(5),), name="difference")(difference)
