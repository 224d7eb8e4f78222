"""Right rules of operations in NumPy, which are not traced."""

from __future__ import annotations

import functools

import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd import Function
from ftrans.autograd.function import once_differentiable
from tests.unit.planted.subject import normal, right

# ---------------------------------------------------------------------- pairs that call each other


class NumpyTake(Function):
    """Takes along an axis, by a permutation whose inverse is given."""

    @staticmethod
    def forward(x, index, inverse, axis):
        return np.take_along_axis(np.asarray(x), np.asarray(index), axis)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, index, inverse, ctx.axis = inputs
        ctx.save_for_backward(index, inverse)

    @staticmethod
    def backward(ctx, ct):
        index, inverse = ctx.saved_tensors
        return NumpyTake.apply(ct, inverse, index, ctx.axis), None, None, None

    @staticmethod
    def vmap(info, in_dims, x, index, inverse, axis):
        rank = x.ndim - (in_dims[0] is not None)
        axis = axis if axis >= 0 else axis + rank

        def in_front(a, dim):
            if dim is None:
                return fnp.broadcast_to(a, (info.batch_size, *a.shape))
            return fnp.moveaxis(a, dim, 0)

        arrays = [in_front(a, d) for a, d in zip((x, index, inverse), in_dims[:3], strict=True)]
        return NumpyTake.apply(*arrays, axis + 1), 0


@right((normal(2, 5), -1), (normal(4, 3), 0))
class NumpySort(Function):
    # the document's, with its two faults mended: a permutation and its inverse as integer outputs
    @staticmethod
    def forward(x, axis):
        x = np.asarray(x)
        index = np.argsort(x, axis=axis)
        inverse = np.argsort(index, axis=axis)
        return np.take_along_axis(x, index, axis=axis), index, inverse

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, index, inverse = output
        ctx.mark_non_differentiable(index, inverse)
        ctx.save_for_backward(index, inverse)
        ctx.axis = inputs[1]

    @staticmethod
    def backward(ctx, ct, _0, _1):
        index, inverse = ctx.saved_tensors
        return NumpyTake.apply(ct, inverse, index, ctx.axis), None

    @staticmethod
    def vmap(info, in_dims, x, axis):
        x = fnp.moveaxis(x, in_dims[0], 0)
        axis = axis if axis >= 0 else axis + x.ndim - 1
        return NumpySort.apply(x, axis + 1), (0, 0, 0)


class Cosine(Function):
    """Is the other half of `Sine`."""

    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return -ct * Sine.apply(ctx.saved_tensors[0])


@right((normal(4),), (np.array(0.3),))
class Sine(Function):
    # opaque both, each the other's derivative: all orders
    @staticmethod
    def forward(x):
        return np.sin(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return ct * Cosine.apply(ctx.saved_tensors[0])


_HILBERT = 1 / (np.arange(4)[:, None] + np.arange(4)[None, :] + 1.0)


@right((normal(3, 3) + 4 * np.eye(3), normal(3, seed=1)), (_HILBERT, normal(4, seed=1)))
class Solve(Function):
    # backward solves by the same Function; vmap by NumPy's own batching
    @staticmethod
    def forward(a, b):
        return np.linalg.solve(np.asarray(a), np.asarray(b)[..., None])[..., 0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, ct):
        a, x = ctx.saved_tensors
        g = Solve.apply(fnp.swapaxes(a, -1, -2), ct)
        return -g[..., :, None] * x[..., None, :], g

    @staticmethod
    def vmap(info, in_dims, a, b):
        if in_dims[0] is None:
            a = fnp.broadcast_to(a, (info.batch_size, *a.shape))
        else:
            a = fnp.moveaxis(a, in_dims[0], 0)
        if in_dims[1] is None:
            b = fnp.broadcast_to(b, (info.batch_size, *b.shape))
        else:
            b = fnp.moveaxis(b, in_dims[1], 0)
        return Solve.apply(a, b), 0


@right((normal(3, 3) + 4 * np.eye(3),))
class Inverse(Function):
    # both rules, opaque forward, traced rules from the saved output
    @staticmethod
    def forward(a):
        return np.linalg.inv(np.asarray(a))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        return -(y.T @ ct @ y.T)

    @staticmethod
    def jvp(ctx, t):
        (y,) = ctx.saved_tensors
        return -(y @ t @ y)


@right((normal(5) + 1j * normal(5, seed=1),))
class Fourier(Function):
    # complex and opaque, without a vmap rule; the adjoint is n times the inverse
    @staticmethod
    def forward(z):
        return np.fft.fft(np.asarray(z))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, ct):
        return InverseFourier.apply(ct) * ctx.size


class InverseFourier(Function):
    """Is the other half of `Fourier`."""

    @staticmethod
    def forward(z):
        return np.fft.ifft(np.asarray(z))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, ct):
        return Fourier.apply(ct) / ctx.size


# --------------------------------------------------------------------- opaque backward passes


@right((normal(4),))
class ExpOnce(Function):
    # says that it can be differentiated once
    @staticmethod
    def forward(x):
        return np.exp(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx, ct):
        return np.asarray(ct) * np.asarray(ctx.saved_tensors[0])


@right((normal(4),))
class SquareOnce(Function):
    # traceable, and marked all the same
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]


@right((normal(3, 4),))
class TanhOpaque(Function):
    # opaque on both sides, unmarked: not differentiable twice, which is no fault
    @staticmethod
    def forward(x):
        return np.tanh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        y = np.asarray(ctx.saved_tensors[0])
        return np.asarray(ct) * (1 - y * y)


@right((normal(3, 3),))
class SymmetricExpTied(Function):
    # old style, opaque, intermediates of other shapes saved in forward; ties are looked at
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
        middle = (values[:, None] + values[None, :]) / 2
        half = np.where(gap == 0, 1.0, gap / 2)
        slope = np.exp(middle) * np.where(gap == 0, 1.0, np.sinh(half) / half)
        g = vectors @ (slope * (vectors.T @ np.asarray(ct) @ vectors)) @ vectors.T
        return (g + g.T) / 2


right((np.diag([2.0, 2.0, 1.0]),), (np.zeros((2, 2)),), name="SymmetricExpAtTies")(SymmetricExpTied)


@right((normal(4, 2), np.array([1, 3, 1])), (normal(4, 2), np.array([], np.int64)))
class Embedding(Function):
    # repeated and absent indices
    @staticmethod
    def forward(table, index):
        return np.asarray(table)[np.asarray(index)]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, ct):
        ct = np.asarray(ct)
        grad = np.zeros(ctx.shape, ct.dtype)
        np.add.at(grad, np.asarray(ctx.saved_tensors[0]), ct)
        return grad, None


@right((normal(3, 4),))
class CumsumStrided(Function):
    # returns views with negative strides, and reads whatever it gets
    @staticmethod
    def forward(x):
        return np.cumsum(np.asarray(x), axis=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.cumsum(np.asarray(ct)[:, ::-1], axis=1)[:, ::-1]


@right((normal(6).astype(np.float32),))
class SinSingle(Function):
    # a kernel for float32 and nothing else, which says so
    @staticmethod
    def forward(x):
        x = np.asarray(x)
        if x.dtype != np.float32:
            raise TypeError(f"the kernel takes float32, not {x.dtype}")
        return np.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return np.asarray(ct) * np.cos(np.asarray(ctx.saved_tensors[0]))


class ExpMarkDirty(Function):
    """Writes its result over its input, and says so."""

    @staticmethod
    def forward(x):
        y = np.asarray(x)
        np.exp(y, out=y)
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, t):
        return t * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info, in_dims, x):
        return ExpMarkDirty.apply(x), in_dims[0]


# on a copy, as anybody would who needs x afterwards
right((normal(5),), name="exp_in_place")(lambda x: ExpMarkDirty.apply(fnp.copy(x)))


@functools.cache
def _window(size, dtype):
    return np.hanning(size + 2)[1:-1].astype(dtype)


@right((normal(4),), (normal(5),))
class Windowed(Function):
    # a cache that is keyed by all that its values depend on
    @staticmethod
    def forward(x):
        return np.asarray(x) * _window(x.shape[0], x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return ct * _window(ct.shape[0], ct.dtype)


@right((normal(6), 3))
class SeededDropout(Function):
    # random, but a function of its seed
    @staticmethod
    def forward(x, seed):
        x = np.asarray(x)
        return x * (np.random.default_rng(seed).random(x.shape) < 0.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.seed = inputs[1]

    @staticmethod
    def backward(ctx, ct):
        return SeededDropout.apply(ct, ctx.seed), None


@right((np.array([3, 1, 2, 1]), normal(4)))
class SortByKey(Function):
    # sorts by integer keys with ties, stably; keys come out as well
    @staticmethod
    def forward(keys, values):
        order = np.argsort(np.asarray(keys), kind="stable")
        return np.asarray(keys)[order], np.asarray(values)[order]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[0])
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, _, ct):
        order = np.argsort(np.asarray(ctx.saved_tensors[0]), kind="stable")
        grad = np.empty_like(np.asarray(ct))
        grad[order] = np.asarray(ct)
        return None, grad
