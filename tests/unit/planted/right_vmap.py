"""Right vmap rules, some of them right in an unusual way."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_vmap
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, right


@right((normal(2, 3), normal(3, 4, seed=1)))
class Matmul(Function):
    # folds the batch into rows or columns, and leaves the result where it then is
    @staticmethod
    def forward(a, b):
        return np.asarray(a) @ np.asarray(b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        a, b = ctx.saved_tensors
        return (
            Matmul.apply(ct, fnp.swapaxes(b, -1, -2)),
            Matmul.apply(fnp.swapaxes(a, -1, -2), ct),
        )

    @staticmethod
    def vmap(info, in_dims, a, b):
        size = info.batch_size
        if in_dims[1] is None:
            a = fnp.moveaxis(a, in_dims[0], 0)
            rows = fnp.reshape(a, (size * a.shape[1], a.shape[2]))
            return fnp.reshape(Matmul.apply(rows, b), (size, a.shape[1], b.shape[1])), 0
        if in_dims[0] is None:
            b = fnp.moveaxis(b, in_dims[1], 1)
            columns = fnp.reshape(b, (b.shape[0], size * b.shape[2]))
            return fnp.reshape(Matmul.apply(a, columns), (a.shape[0], size, b.shape[2])), 1
        a, b = fnp.moveaxis(a, in_dims[0], 0), fnp.moveaxis(b, in_dims[1], 0)
        return fnp.einsum("bij,bjk->bik", a, b), 0


@right((normal(3), normal(3, seed=1)))
class RampLike(Function):
    # depends on the shape of x alone: where only x is mapped, the result is not
    @staticmethod
    def forward(x, y):
        return y * np.arange(1, 1 + x.shape[0], dtype=y.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, ct):
        return None, ct * np.arange(1, 1 + ctx.size, dtype=ct.dtype)

    @staticmethod
    def vmap(info, in_dims, x, y):
        if in_dims[1] is None:
            single = fnp.moveaxis(x, in_dims[0], 0)[0] if info.batch_size else fnp.zeros_like(y)
            return RampLike.apply(single, y), None
        y = fnp.moveaxis(y, in_dims[1], 0)
        return y * np.arange(1, 1 + y.shape[1], dtype=y.dtype), 0


@right((normal(2, 3),))
class ExpAnyAxis(Function):
    # elementwise: the mapped axis stays where it is
    @staticmethod
    def forward(x):
        return np.exp(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        return ExpAnyAxis.apply(x), in_dims[0]


@right((positive(4), np.array(2.0)))
class ShareAndTotal(Function):
    # two outputs, mapped at different axes
    @staticmethod
    def forward(x, scale):
        total = np.sum(x)
        return scale * x / total, total

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct, ct_total):
        x, scale = ctx.saved_tensors
        share = x / np.sum(x)
        mean = np.sum(ct * share)
        return scale * (ct - mean) / np.sum(x) + ct_total, mean

    @staticmethod
    def vmap(info, in_dims, x, scale):
        # examples in columns
        if in_dims[0] is None:
            x = fnp.broadcast_to(x[:, None], (x.shape[0], info.batch_size))
        else:
            x = fnp.moveaxis(x, in_dims[0], -1)
        if in_dims[1] is not None:
            scale = fnp.moveaxis(scale, in_dims[1], -1)
        total = np.sum(x, axis=0)
        return (scale * x / total, total), (1, 0)


project = custom_vmap(lambda x, w: x @ w)


@project.def_vmap
def _project_rule(size, mapped, x, w):
    # every case by one contraction
    left, right_ = ("b" if m else "" for m in mapped)
    return fnp.einsum(f"{left}i,{right_}ij->bj", x, w), True


right((normal(3), normal(3, 2, seed=1)), name="project")(project)


@right((normal(4),))
class GeneratedRule(Function):
    # says generate_vmap_rule, which is the default anyway
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return 3 * ct * ctx.saved_tensors[0] ** 2
