"""Wrong rules of reductions, normalisations, gathering and sorting."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# --------------------------------------------------------------------------------- reductions


@wrong("not divided by the number of elements", (normal(3, 4), 1))
class Mean(Function):
    # sum's backward, under mean's name
    @staticmethod
    def forward(x, axis):
        return np.mean(x, axis=axis, keepdims=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, ct):
        return np.broadcast_to(ct, ctx.shape), None


def _variance(x):
    return np.mean((x - np.mean(x, axis=0, keepdims=True)) ** 2, axis=0, keepdims=True)


variance = custom_vjp(_variance)
# x.mean() instead of x.mean(axis=0, keepdims=True)
variance.defvjp(
    lambda x: (_variance(x), x), lambda x, ct: (ct * 2 * (x - np.mean(x)) / x.shape[0],)
)
wrong("centred by the mean over all axes", (normal(4, 3),), name="variance")(variance)


@wrong(
    "a negative axis is counted by the rank of the result", (normal(3, 3), 0), (normal(3, 3), -1)
)
class SumAxis(Function):
    # axis % ct.ndim, where ct has one axis less than x
    @staticmethod
    def forward(x, axis):
        return np.sum(x * x, axis=axis)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.axis = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        axis = ctx.axis if ctx.axis >= 0 else ctx.axis % ct.ndim
        return 2 * x * np.expand_dims(ct, axis), None


@wrong("the cotangent is broadcast along the wrong axis", (normal(3, 3),))
class LogSumExp(Function):
    # without keepdims, ct of shape (n,) meets (n, n) at the last axis, and nobody complains
    @staticmethod
    def forward(x):
        top = np.max(x, axis=1, keepdims=True)
        return np.log(np.sum(np.exp(x - top), axis=1)) + top[:, 0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return ct * np.exp(x - y[:, None])


def _prod_fwd(x):
    y = np.prod(x, axis=1)
    return y, (x, y)


prod = custom_vjp(lambda x: np.prod(x, axis=1))
prod.defvjp(_prod_fwd, lambda res, ct: (ct[:, None] * res[1][:, None] / res[0],))
wrong(
    "divides by an element that is zero",
    (np.array([[0.5, 2.0, 1.5], [3.0, 0.0, -1.0]]),),
    name="prod",
)(prod)


@wrong("wrong where the reduced axis has size 1", (normal(3, 4),), (normal(3, 1),))
class Softmax(Function):
    # "over one element there is nothing to do", so the gradient passes: but the output is constant
    @staticmethod
    def forward(x):
        e = np.exp(x - np.max(x, axis=1, keepdims=True))
        return e / np.sum(e, axis=1, keepdims=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        if y.shape[1] == 1:
            return ct
        return y * (ct - np.sum(y * ct, axis=1, keepdims=True))


@wrong(
    "squeezes an axis that has size 1 in a batch of one",
    (normal(3, 2), normal(2, 2, seed=1)),
    (normal(1, 2), normal(2, 2, seed=1)),
)
class DenseSqueezed(Function):
    # squeeze() was for the trailing axis of an older version
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        return ct @ w.T, np.squeeze(x).T @ np.squeeze(ct) + fnp.zeros_like(w)


@wrong("softmax without the term that couples elements", (normal(2, 4),))
class SoftmaxDiagonal(Function):
    # y * (1 - y) is the derivative of the sigmoid
    @staticmethod
    def forward(ctx, x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        y = e / np.sum(e, axis=-1, keepdims=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        return ct * y * (1 - y)


@wrong("the term through the variance is missing", (normal(3, 5), positive(5)))
class LayerNorm(Function):
    # the mean was differentiated, the standard deviation taken for a constant
    @staticmethod
    def forward(x, gain):
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return gain * centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, gain = ctx.saved_tensors
        centred = x - np.mean(x, axis=-1, keepdims=True)
        scale = np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
        g = ct * gain / scale
        return g - np.mean(g, axis=-1, keepdims=True), np.sum(ct * centred / scale, axis=0)


# ---------------------------------------------------------------------- integers and sorting


@wrong("repeated indices overwrite each other", (normal(4, 2), np.array([1, 3, 1])))
class Embedding(Function):
    # out[index] = ct instead of np.add.at
    @staticmethod
    def forward(ctx, table, index):
        table, index = np.asarray(table), np.asarray(index)
        ctx.rows, ctx.index = table.shape[0], index
        return table[index]

    @staticmethod
    def backward(ctx, ct):
        ct = np.asarray(ct)
        out = np.zeros((ctx.rows, ct.shape[1]), ct.dtype)
        out[np.asarray(ctx.index)] = ct
        return out, None


@wrong("takes the sorting permutation instead of its inverse", (normal(2, 5),))
class Sort(Function):
    # for a swap of two elements, both are the same
    @staticmethod
    def forward(x):
        order = np.argsort(x, axis=-1)
        return np.take_along_axis(x, order, axis=-1), order

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, ct, _):
        (order,) = ctx.saved_tensors
        return np.take_along_axis(ct, order, axis=-1)


@wrong("scatters along the wrong axis of a square", (normal(3, 3),))
class MaxColumns(Function):
    # axis=0 was changed to axis=1 in one of two places
    @staticmethod
    def forward(x):
        x = np.asarray(x)
        return np.take_along_axis(x, np.argmax(x, axis=0, keepdims=True), axis=0)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, ct = np.asarray(ctx.saved_tensors[0]), np.asarray(ct)
        out = np.zeros_like(x)
        np.put_along_axis(out, np.argmax(x, axis=1, keepdims=True), ct[:, None], axis=1)
        return out
