"""Right rules of traced code at values, sizes and dtypes that tempt a false alarm."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, right


def _complex(*shape: int, seed: int = 0) -> np.ndarray:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100)


# ---------------------------------------------------------------------------- ranges of values


@right((np.array([1e-8, 3e-8, 5e-7]),), (np.array([1e8, 2e10]),))
class Log(Function):
    # a step of 1e-6 leaves the domain
    @staticmethod
    def forward(x):
        return np.log(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return ct / ctx.saved_tensors[0]


@right((np.array([1e8, -3e8]),), (np.array([1e-8, -2e-8]),), (np.array([1e8, 1e-8, 1.0]),))
class Square(Function):
    # a step of 1e-6 is rounded away; derivatives span 16 orders of magnitude
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]


@right((np.array([0.0, 0.1, -0.1]),))
class SharpSine(Function):
    # curvature of 1e4: a long step sees another function
    @staticmethod
    def forward(x):
        return np.sin(100 * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return 100 * ct * np.cos(100 * ctx.saved_tensors[0])


@right((np.zeros(3),), (np.array([0.0, 1.0, -1.0]),))
class Quartic(Function):
    # a stationary point: the relative error of nothing
    @staticmethod
    def forward(x):
        return (x * x - 1) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 4 * ct * x * (x * x - 1)


def _log_sum_exp(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top)))


log_sum_exp = custom_vjp(_log_sum_exp)
log_sum_exp.defvjp(
    lambda x: (y := _log_sum_exp(x), (x, y)), lambda res, ct: (ct * np.exp(res[0] - res[1]),)
)
right((np.array([1000.0, 999.0, -1000.0]),), (np.array([1.0, 1.0, 1.0]),), name="log_sum_exp")(
    log_sum_exp
)


@right((np.array([-800.0, -1.0, 0.0, 2.0, 800.0]),))
class Sigmoid(Function):
    # saturated on both sides
    @staticmethod
    def forward(x):
        return 0.5 * (1 + np.tanh(0.5 * x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        return ct * y * (1 - y)

    @staticmethod
    def jvp(ctx, t):
        (y,) = ctx.saved_tensors
        return t * y * (1 - y)


@right((np.array([0.3, -1.0, 2.0, -0.5]),))
class LogOrZero(Function):
    # the branch that is not taken is NaN
    @staticmethod
    def forward(x):
        return np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return np.where(x > 0, ct / np.where(x > 0, x, 1.0), 0.0)


@right((np.array([0.3, 1.7, -0.4]),))
class Fraction(Function):
    # jumps, between the samples
    @staticmethod
    def forward(x):
        return x - np.floor(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return ct


@right((normal(6),))
class Gelu(Function):
    # by erf, in both directions
    @staticmethod
    def forward(x):
        return 0.5 * x * (1 + fnp.erf(x / float(np.sqrt(2.0))))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        density = np.exp(-0.5 * x * x) / float(np.sqrt(2 * np.pi))
        return ct * (0.5 * (1 + fnp.erf(x / float(np.sqrt(2.0)))) + x * density)


@right((np.array([0.5, -0.5, 2.0, -3.0]),), (np.array([0.01, -0.01]),))
class Relu(Function):
    # the kink is not in the samples, but near
    @staticmethod
    def forward(x):
        return np.maximum(x, 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return np.where(ctx.saved_tensors[0] > 0, ct, 0.0)


def _huber(x):
    return np.where(np.abs(x) <= 1.0, 0.5 * x * x, np.abs(x) - 0.5)


huber_closed = custom_vjp(_huber)
huber_closed.defvjp(lambda x: (_huber(x), x), lambda x, ct: (ct * np.clip(x, -1.0, 1.0),))
right((np.array([-2.0, 0.3, 0.7, -0.9]),), name="huber_closed")(huber_closed)


@right((np.array([[0.5, 2.0, 1.5], [3.0, 0.0, -1.0], [0.0, 0.0, 2.0]]),))
class Prod(Function):
    # leaves one out by cumulative products: nothing is divided by an element
    @staticmethod
    def forward(x):
        return np.prod(x, axis=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        ones = fnp.ones_like(x[:, :1])
        before = np.cumprod(np.concatenate([ones, x[:, :-1]], axis=1), axis=1)
        after = np.flip(np.cumprod(np.concatenate([ones, np.flip(x[:, 1:], 1)], axis=1), axis=1), 1)
        return ct[:, None] * before * after


@right((np.array([1e4, -1e4, 0.25, 3e3, -3e3, 0.125], np.float32),))
class SumSingle(Function):
    # float32, and most of the digits cancel
    @staticmethod
    def forward(x):
        return np.sum(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, ct):
        return np.broadcast_to(ct, ctx.shape)


# ------------------------------------------------------------------------------ sizes and ranks


@right((np.zeros((0, 3)),), (np.zeros((2, 0)),), (normal(2, 3),))
class TanhEmpty(Function):
    # nothing to differentiate
    @staticmethod
    def forward(x):
        return np.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * (1 - ctx.saved_tensors[0] ** 2)


@right((np.array(0.7),), (np.float64(-0.3),))
class SinhScalar(Function):
    # rank 0, and intermediates as plain attributes
    @staticmethod
    def forward(ctx, x):
        ctx.up, ctx.down = np.exp(x), np.exp(-x)
        return (ctx.up - ctx.down) / 2

    @staticmethod
    def backward(ctx, ct):
        return ct * (ctx.up + ctx.down) / 2


@right((normal(1, 3), normal(1, seed=1)), (normal(4, 3), normal(4, seed=1)))
class ScaleRows(Function):
    # one row: the sum runs over the other axis, whatever the sizes
    @staticmethod
    def forward(x, w):
        return x * w[:, None]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        return ct * w[:, None], np.sum(ct * x, axis=1)


@right((normal(3, 4), normal(4, seed=1)), (normal(3, 1), normal(4, seed=1)))
class AddBroadcast(Function):
    # gradients are reduced to the shapes of the operands by hand
    @staticmethod
    def forward(x, y):
        return x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shapes = [a.shape for a in inputs]

    @staticmethod
    def backward(ctx, ct):
        def reduced(shape):
            g = np.sum(ct, axis=tuple(range(ct.ndim - len(shape))))
            axes = tuple(i for i, n in enumerate(shape) if n == 1)
            return np.sum(g, axis=axes, keepdims=True)

        return tuple(reduced(shape) for shape in ctx.shapes)


# -------------------------------------------------------------------------------------- complex


@right((_complex(4),))
class ComplexSquare(Function):
    # holomorphic: the derivative is conjugated
    @staticmethod
    def forward(z):
        return z * z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return ct * 2 * np.conj(ctx.saved_tensors[0])


@right((_complex(4),))
class SquaredModulus(Function):
    # from complex to real, not holomorphic
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z * np.conj(z)).real

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct * ctx.saved_tensors[0]


@right((_complex(3), _complex(3, seed=1)))
class ConjugateProduct(Function):
    # only jvp, and antilinear in one argument
    @staticmethod
    def forward(z, w):
        return np.conj(z) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tz, tw):
        z, w = ctx.saved_tensors
        return np.conj(tz) * w + np.conj(z) * tw


def _phase(angle):
    return np.cos(angle) + 1j * np.sin(angle)


phase = custom_vjp(_phase)
# from real to complex: the gradient is real
phase.defvjp(
    lambda angle: (_phase(angle), angle),
    lambda angle, ct: (-ct.real * np.sin(angle) + ct.imag * np.cos(angle),),
)
right((normal(4),), name="phase")(phase)


@right((normal(3), _complex(3, seed=1)))
class RealTimesComplex(Function):
    # one input is real, so its gradient is
    @staticmethod
    def forward(r, z):
        return r * z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        r, z = ctx.saved_tensors
        return (ct * np.conj(z)).real, ct * r
