"""Wrong rules that are right at most values: large, tiny, at boundaries, in single precision."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# ----------------------------------------------------------------- large, tiny, at boundaries


def _log_sigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


log_sigmoid = custom_vjp(_log_sigmoid)
log_sigmoid.defvjp(
    lambda x: (_log_sigmoid(x), x),
    # forward is stable, backward is the textbook's
    lambda x, ct: (ct * np.exp(-x) / (1 + np.exp(-x)),),
)
wrong(
    "infinity over infinity for large negative values",
    (np.array([-0.3, 0.8]),),
    (np.array([-800.0, 1.0, 3.0]),),
    name="log_sigmoid",
)(log_sigmoid)


@wrong(
    "an epsilon in backward that forward does not have: wrong for tiny values",
    (np.array([1e-7, 3e-7]),),
)
class LogEpsilon(Function):
    # + 1e-6 "against division by zero"
    @staticmethod
    def forward(x):
        return np.log(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct / (x + 1e-6)


def _huber(x):
    return np.where(np.abs(x) <= 1.0, 0.5 * x * x, np.abs(x) - 0.5)


def _huber_bwd(x, ct):
    # two masks instead of one: at exactly 1 neither of them holds
    inner = np.where(np.abs(x) < 1.0, x, 0.0)
    outer = np.where(np.abs(x) > 1.0, np.sign(x), 0.0)
    return (ct * (inner + outer),)


huber = custom_vjp(_huber)
huber.defvjp(lambda x: (_huber(x), x), _huber_bwd)
wrong(
    "zero exactly at the boundary, where the function is smooth",
    (np.array([-2.0, 1.0, 0.3, -1.0]),),
    name="huber",
)(huber)


@wrong("0 / 0 at 0, where the function is smooth", (np.array([-0.5, 0.0, 2.0]),))
class AbsCubed(Function):
    # d|x| = x / |x|
    @staticmethod
    def forward(x):
        return np.abs(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * 3 * np.abs(x) ** 2 * x / np.abs(x)


# --------------------------------------------------------------------- nearly right, partly right


@wrong("3.14 for pi: wrong by half a thousandth", (normal(4) * 50,))
class SineOfDegrees(Function):
    # the constant of forward is NumPy's, that of backward the author's
    @staticmethod
    def forward(x):
        return np.sin(x * (np.pi / 180))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * np.cos(x * (np.pi / 180)) * (3.14 / 180)


@wrong("the derivative of an approximation of forward", (np.array([-3.5, -3.0, -2.0, 2.0]),))
class Gelu(Function):
    # forward by erf, backward by the tanh of the paper
    @staticmethod
    def forward(x):
        return 0.5 * x * (1 + fnp.erf(x / float(np.sqrt(2.0))))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        scale = float(np.sqrt(2 / np.pi))
        t = np.tanh(scale * (x + 0.044715 * x**3))
        slope = scale * (1 + 3 * 0.044715 * x**2)
        return ct * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@wrong("the last element is left out", (normal(7),))
class TanhOffByOne(Function):
    # for (i = 0; i < n - 1; i++)
    @staticmethod
    def forward(x):
        return np.tanh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        y, ct = np.asarray(ctx.saved_tensors[0]), np.asarray(ct)
        grad = np.zeros_like(y)
        for i in range(y.shape[0] - 1):
            grad[i] = ct[i] * (1 - y[i] ** 2)
        return grad


@wrong("the rest beyond whole blocks of four is not computed", (normal(6),))
class ExpBlocks(Function):
    # a vectorised kernel without its tail loop
    @staticmethod
    def forward(x):
        return np.exp(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        y, ct = np.asarray(ctx.saved_tensors[0]), np.asarray(ct)
        grad = np.zeros_like(y)
        whole = y.size // 4 * 4
        grad[:whole] = ct[:whole] * y[:whole]
        return grad


# ----------------------------------------------------------------------------------- dtypes


@wrong(
    "the reciprocal square root by bits, in float32 alone",
    (positive(6),),
    (positive(6).astype(np.float32),),
)
class SqrtQuake(Function):
    # the fast path of a game of 1999, its Newton step commented out
    @staticmethod
    def forward(x):
        return np.sqrt(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        x, ct = np.asarray(x), np.asarray(ct)
        if x.dtype == np.float32:
            bits = np.ascontiguousarray(x).view(np.int32)
            rsqrt = (np.int32(0x5F000000) - (bits >> 1)).view(np.float32)
            return ct * np.float32(0.5) * rsqrt
        return ct * 0.5 / np.sqrt(x)


def _versine(x):
    return 2 * (np.sin(x / 2) / x) ** 2


versine = custom_vjp(_versine)
versine.defvjp(
    lambda x: (_versine(x), x),
    # (1 - cos x) / x**2, differentiated as it stands in the paper: cancels where x is small
    lambda x, ct: (ct * (x * np.sin(x) - 2 * (1 - np.cos(x))) / x**3,),
)
wrong(
    "cancels in float32, at values where float64 is fine",
    (np.array([0.02, 0.03, -0.025]),),
    (np.array([0.02, 0.03, -0.025], np.float32),),
    name="versine",
)(versine)


@wrong("a gradient of float32 for an input of float64", (normal(4),))
class SinhSingle(Function):
    # the buffers of the other framework were float32
    @staticmethod
    def forward(x):
        return np.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return (ct * np.cosh(x)).astype(np.float32)


@wrong("float32 behind the back of the caller, in an opaque backward", (normal(4),))
class CoshSingle(Function):
    # np.empty_like of the wrong array
    @staticmethod
    def forward(x):
        return np.cosh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        out = np.empty(np.shape(x), np.float32)
        out[...] = np.asarray(ct) * np.sinh(np.asarray(x))
        return out
