"""Wrong vmap rules of operations whose derivatives are right."""

from __future__ import annotations

import numpy as np

from ftrans import custom_vmap, stop_gradient
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong


class _Cumsum(Function):
    """Sums along an axis; each subject below adds a vmap rule to it."""

    @staticmethod
    def forward(x, axis):
        return np.cumsum(np.asarray(x), axis=axis)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.axis = inputs[1]

    @staticmethod
    def backward(ctx, ct):
        return np.flip(np.cumsum(np.flip(ct, ctx.axis), axis=ctx.axis), ctx.axis), None


@wrong("the axis is not moved on by the batch axis in front", (normal(3, 3), 0))
class CumsumAxis(_Cumsum):
    # dim instead of dim + 1
    @staticmethod
    def vmap(info, in_dims, x, axis):
        x = np.moveaxis(x, in_dims[0], 0)
        return CumsumAxis.apply(x, axis), 0


@wrong("a negative axis is counted from the wrong end", (normal(3, 3), -2))
class CumsumNegative(_Cumsum):
    # the line of the documents: x_bdim - 1 where the rank belongs
    @staticmethod
    def vmap(info, in_dims, x, axis):
        axis = axis if axis >= 0 else axis + in_dims[0] - 1
        x = np.moveaxis(x, in_dims[0], 0)
        return CumsumNegative.apply(x, axis + 1), 0


@wrong("the result is not put back where out_dims says", (normal(2, 3), 1))
class CumsumOutDims(_Cumsum):
    # out_dims is that of the input, the result was moved
    @staticmethod
    def vmap(info, in_dims, x, axis):
        x = np.moveaxis(x, in_dims[0], 0)
        return CumsumOutDims.apply(x, axis + 1), in_dims[0]


@wrong("a batch of one loses its axis", (normal(4),))
class SinSqueezed(Function):
    # squeeze() instead of squeeze(axis)
    @staticmethod
    def forward(x):
        return np.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return ct * np.cos(ctx.saved_tensors[0])

    @staticmethod
    def vmap(info, in_dims, x):
        x = np.moveaxis(x, in_dims[0], 0)
        return np.squeeze(SinSqueezed.apply(x[:, None])), 0


@wrong(
    "out_dims is that of the first input, which may not be mapped",
    (normal(3, 3), normal(3, seed=1)),
)
class MatVec(Function):
    # only the case in which the matrix is mapped was tried
    @staticmethod
    def forward(a, x):
        return np.sum(a * x, axis=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        a, x = ctx.saved_tensors
        return ct[:, None] * x, np.sum(ct[:, None] * a, axis=0)

    @staticmethod
    def vmap(info, in_dims, a, x):
        if in_dims[0] is not None:
            a = np.moveaxis(a, in_dims[0], 0)
        if in_dims[1] is not None:
            x = np.moveaxis(x, in_dims[1], 0)
        return np.sum(a * x[..., None, :], axis=-1), None if in_dims[0] is None else 0


@wrong("None in in_dims is taken for 0", (normal(3), normal(3, seed=1)))
class Dot(Function):
    # `in_dims[0] or 0`, and then a row for each example is looked for
    @staticmethod
    def forward(x, y):
        return np.sum(x * y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return ct * y, ct * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        rows = [np.moveaxis(a, d or 0, 0) for a, d in zip((x, y), in_dims, strict=True)]
        rows = [np.reshape(a, (a.shape[0], -1)) for a in rows]
        return np.sum(rows[0] * rows[1], axis=1) + np.zeros(info.batch_size), 0


@wrong("ranks are not aligned: a batch meets a row", (normal(3), normal(3, 3, seed=1)))
class RowScale(Function):
    # x of (batch, 3) times y of (3, 3), or of (batch, 3, 3)
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return np.sum(ct * y, axis=0), ct * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        if in_dims[0] is not None:
            x = np.moveaxis(x, in_dims[0], 0)
        if in_dims[1] is not None:
            y = np.moveaxis(y, in_dims[1], 0)
        return x * y, 0


@wrong("lanes are mixed: the sum runs over the batch as well", (positive(4),))
class Share(Function):
    # apply, again, on everything at once
    @staticmethod
    def forward(x):
        return x / np.sum(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        total = np.sum(x)
        return ct / total - np.sum(ct * x) / total**2

    @staticmethod
    def vmap(info, in_dims, x):
        return Share.apply(x), in_dims[0]


@wrong("the scale of the first lane is used for all", (normal(4), positive(1)))
class SharedScale(Function):
    # "the scale is the same for all of them"
    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, scale = ctx.saved_tensors
        return ct * scale, np.sum(ct * x, keepdims=True)

    @staticmethod
    def vmap(info, in_dims, x, scale):
        if in_dims[1] is not None:
            scale = np.moveaxis(scale, in_dims[1], 0)[0]
        return SharedScale.apply(x, scale), in_dims[0]


@wrong("the batched result has no gradient", (normal(4),))
class TanhFlat(Function):
    # the fast path was for inference
    @staticmethod
    def forward(x):
        return np.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * (1 - ctx.saved_tensors[0] ** 2)

    @staticmethod
    def vmap(info, in_dims, x):
        return stop_gradient(np.tanh(x)), in_dims[0]


@wrong("one of two outputs is said not to be mapped", (normal(4),))
class MeanAndCentred(Function):
    # the mean was a scalar, so "it has no batch axis"
    @staticmethod
    def forward(x):
        return np.mean(x), x - np.mean(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, ct_mean, ct):
        return np.broadcast_to(ct_mean / ctx.shape[0], ctx.shape) + ct - np.mean(ct)

    @staticmethod
    def vmap(info, in_dims, x):
        x = np.moveaxis(x, in_dims[0], 0)
        mean = np.mean(x, axis=1)
        return (mean, x - mean[:, None]), (None, 0)


@wrong("adds the first lane's maximum to all", (normal(4),))
class LogSumExpShift(Function):
    # max() lost its axis when the rule was written with one more
    @staticmethod
    def forward(x):
        top = np.max(x)
        return top + np.log(np.sum(np.exp(x - top)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return ct * np.exp(x - y)

    @staticmethod
    def vmap(info, in_dims, x):
        x = np.moveaxis(x, in_dims[0], 0)
        top = np.max(x, axis=1)
        return top[0] + np.log(np.sum(np.exp(x - top[:, None]), axis=1)), 0


@wrong("the order of a reversed batch is not restored", (normal(3),))
class SquareReversed(Function):
    # sorted by length for the kernel, as sequences are, and not sorted back
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        x = np.moveaxis(x, in_dims[0], 0)
        return SquareReversed.apply(x[::-1]), 0


@wrong("in_dims is ignored: the mapped axis is taken to be in front", (normal(3, 3),))
class RowNorms(Function):
    # vmap was tried with in_dims=0
    @staticmethod
    def forward(x):
        return np.sqrt(np.sum(np.asarray(x) ** 2, axis=-1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return (ct / y)[..., None] * x

    @staticmethod
    def vmap(info, in_dims, x):
        return RowNorms.apply(x), 0


@wrong("right batched once, wrong batched twice", (normal(4),))
class SoftmaxRanks(Function):
    # one branch for a vector, one for a batch of them, and no third
    @staticmethod
    def forward(x):
        axis = 1 if x.ndim == 2 else None
        e = np.exp(x - np.max(x))
        return e / np.sum(e, axis=axis, keepdims=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        axis = 1 if y.ndim == 2 else None
        return y * (ct - np.sum(y * ct, axis=axis, keepdims=True))

    @staticmethod
    def vmap(info, in_dims, x):
        return SoftmaxRanks.apply(np.moveaxis(x, in_dims[0], 0)), 0


@wrong("the batched forward is right, its backward mixes lanes", (positive(4),))
class ShareGradient(Function):
    # forward was given its axis=-1 when the vmap rule was written, backward was not
    @staticmethod
    def forward(x):
        return x / np.sum(x, axis=-1, keepdims=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        total = np.sum(x, axis=-1, keepdims=True)
        return ct / total - np.sum(ct * x) / total**2

    @staticmethod
    def vmap(info, in_dims, x):
        return ShareGradient.apply(np.moveaxis(x, in_dims[0], 0)), 0


@wrong("guesses what is mapped from sizes", (positive(1), positive(2), positive(3)))
class ThreeWay(Function):
    # shape[0] == batch_size instead of in_dims
    @staticmethod
    def forward(a, b, c):
        return np.sum(a) * np.sum(b * b) * np.sum(c)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        a, b, c = ctx.saved_tensors
        sums = np.sum(a), np.sum(b * b), np.sum(c)
        return (
            ct * sums[1] * sums[2] * np.ones_like(a),
            2 * ct * sums[0] * sums[2] * b,
            ct * sums[0] * sums[1] * np.ones_like(c),
        )

    @staticmethod
    def vmap(info, in_dims, a, b, c):
        arrays = [
            x if d is None else np.moveaxis(x, d, 0)
            for x, d in zip((a, b, c), in_dims, strict=True)
        ]
        a, b, c = (
            np.sum(x.reshape(info.batch_size, -1), axis=1)
            if x.shape[0] == info.batch_size
            else np.sum(x)
            for x in (arrays[0], arrays[1] * arrays[1], arrays[2])
        )
        return a * b * c, 0


project = custom_vmap(lambda x, w: x @ w)
# only x was thought of as mapped
project.def_vmap(lambda size, mapped, x, w: (x @ w, True))
wrong(
    "the rule takes the weights not to be mapped", (normal(3), normal(3, 3, seed=1)), name="project"
)(project)

centre = custom_vmap(lambda x: x - np.mean(x))
# the mean over the whole batch
centre.def_vmap(lambda size, mapped, x: (x - np.mean(x), mapped[0]))
wrong("centred by the mean over all lanes", (normal(4),), name="centre")(centre)

total = custom_vmap(lambda x: np.sum(x))
# "a sum has no axis left"
total.def_vmap(lambda size, mapped, x: (np.sum(x, axis=-1)[0], False))
wrong("a mapped result is said not to be mapped", (normal(4),), name="total")(total)
