"""Wrong rules of elementwise operations: factors, signs, terms, broadcasting, ranges of values."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_jvp, custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# ------------------------------------------------------------------ factors, signs, terms, order


@wrong("a factor beta too many", (normal(3, 4), 2))
class Softplus(Function):
    # the beta of the chain rule was written, the one of the division forgotten
    @staticmethod
    def forward(x, beta):
        return np.log1p(np.exp(beta * x)) / beta

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.beta = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * ctx.beta / (1 + np.exp(-ctx.beta * x)), None


@wrong("the sign of the divisor's gradient", (normal(3, 4), positive(4)))
class Divide(Function):
    # the minus of d(1/y) was lost when the formula was written in terms of the quotient
    @staticmethod
    def forward(ctx, x, y):
        q = x / y
        ctx.save_for_backward(y, q)
        return q

    @staticmethod
    def backward(ctx, ct):
        y, q = ctx.saved_tensors
        return ct / y, np.sum(ct * q / y, axis=0)


@wrong("a term of the product rule is missing", (normal(5),))
class Swish(Function):
    # only the factor that "depends on x in an interesting way" was differentiated
    @staticmethod
    def forward(x):
        return x * fnp.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        s = fnp.sigmoid(x)
        return ct * x * s * (1 - s)


@wrong(
    "the gradients come in the order (x, y), the arguments in the order (y, x)",
    (normal(4), normal(4, seed=1)),
)
class ArcTan2(Function):
    # everybody says x before y
    @staticmethod
    def forward(y, x):
        return np.arctan2(y, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        y, x = ctx.saved_tensors
        r2 = x * x + y * y
        return -ct * y / r2, ct * x / r2


@wrong("None for an input that has a gradient", (normal(3, 2), np.array(1.5)))
class Scale(Function):
    # the scale was a hyperparameter, until somebody learned it
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, ct):
        (scale,) = ctx.saved_tensors
        return ct * scale, None


def _power(x, p):
    return x**p


power_with_base_two = custom_vjp(_power)
power_with_base_two.defvjp(
    lambda x, p: (x**p, (x, p)),
    # log2 is what the author's notebook had for log
    lambda res, ct: (
        ct * res[1] * res[0] ** (res[1] - 1),
        ct * res[0] ** res[1] * np.log2(res[0]),
    ),
)
wrong(
    "the logarithm of base 2: a wrong factor in one of two gradients",
    (positive(4), positive(4, seed=1)),
    name="power_with_base_two",
)(power_with_base_two)


# ------------------------------------------------------------------------------ broadcasting


@wrong("the gradient of the scale is summed over the wrong axis", (normal(4, 4), normal(4, seed=1)))
class ScaleColumns(Function):
    # tried on square matrices alone
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, w = ctx.saved_tensors
        return ct * w, (ct * x).sum(axis=1)


@wrong("the sum over the broadcast axis is missing", (normal(3), normal(3, seed=1)))
class Outer(Function):
    # "the framework sums over what was broadcast", but x was broadcast by hand, to the other side
    @staticmethod
    def forward(x, y):
        return x[:, None] * y[None, :]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return ct * y[None, :], (ct * x[:, None]).sum(axis=0)


def _add_bias(x, b):
    return x + b


add_bias = custom_vjp(_add_bias)
# the loss is a mean over the batch, so the author takes a mean here too
add_bias.defvjp(lambda x, b: (x + b, None), lambda _, ct: (ct, ct.mean(axis=0)))
wrong(
    "a mean where the sum over the batch belongs",
    (normal(5, 3), normal(3, seed=1)),
    name="add_bias",
)(add_bias)


@wrong("only the first row of what was broadcast is counted", (normal(3, 4), normal(1, 4, seed=1)))
class ShiftRows(Function):
    # b has one row, so its gradient has one row: ct[:1] has the right shape
    @staticmethod
    def forward(ctx, x, b):
        return x + b

    @staticmethod
    def backward(ctx, ct):
        return ct, ct[:1]


# --------------------------------------------------------------- not linear in the cotangent


@wrong("clips its cotangent: not linear beyond 1", (normal(4),))
class SinClipped(Function):
    # gradients exploded once, and this was where the debugger stood
    @staticmethod
    def forward(x):
        return np.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return np.clip(ct, -10.0, 10.0) * np.cos(x)


@wrong("adds weight decay: affine in the cotangent", (normal(4),))
class SquareDecayed(Function):
    # it was a quick way to regularise
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return ct * 2 * x + 0.01 * x


@wrong("drops small cotangents: not linear near 0", (normal(4),))
class ExpSparse(Function):
    # small gradients are sent nowhere, to save bandwidth
    @staticmethod
    def forward(x):
        return np.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        return np.where(np.abs(ct) < 1e-2, 0.0, ct) * y


@wrong("opaque, and scales its cotangent to norm one", (normal(4),))
class TanhUnit(Function):
    # gradient normalisation, put where it is not seen
    @staticmethod
    def forward(x):
        return np.tanh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        g, y = np.asarray(ct), np.asarray(y)
        norm = np.sqrt(np.sum(g * g))
        return g / np.maximum(norm, 1.0) * (1 - y * y)


@wrong("takes the cotangent to be 1", (normal(4), normal(4, seed=1)))
class SquaredError(Function):
    # the loss is what backward() is called on
    @staticmethod
    def forward(x, y):
        return np.mean((x - y) ** 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        g = 2 * (x - y) / x.size
        return g, -g


@wrong("takes the cotangent to be the same for all elements", (normal(4),))
class SquareUniform(Function):
    # y.sum().backward() in every test
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, ct):
        return 2 * ct[0] * ctx.saved_tensors[0]


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


# -------------------------------------------------------------------------------------- jvp


@wrong(
    "a jvp that forgets the first argument's tangent; backward is right",
    (normal(4), normal(4, seed=1)),
)
class MultiplyJvp(Function):
    # jvp was added later, for the sake of one test in which x was constant
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return ct * y, ct * x

    @staticmethod
    def jvp(ctx, tx, ty):
        x, _ = ctx.saved_tensors
        return x * ty


@wrong("the sign of jvp; backward is right", (normal(4),))
class CosJvp(Function):
    # the minus went into backward alone
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return np.cos(x)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return -ct * np.sin(x)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * np.sin(x)


def _product(x, y):
    return x * y


product_jvps = custom_jvp(_product)
# each rule has its own argument instead of the other's
product_jvps.defjvps(lambda t, out, x, y: t * x, lambda t, out, x, y: t * y)
wrong(
    "the rules of the two arguments are those of squares",
    (normal(4), normal(4, seed=1)),
    name="product_jvps",
)(product_jvps)


@wrong("only a jvp, which is not linear in its tangent", (normal(5),))
class NormJvp(Function):
    # a length of a change is never negative, thought the author
    @staticmethod
    def forward(x):
        return np.sqrt(np.sum(x * x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def jvp(ctx, t):
        x, y = ctx.saved_tensors
        return np.abs(np.sum(x * t)) / y
