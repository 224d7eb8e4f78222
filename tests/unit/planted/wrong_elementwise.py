"""Wrong rules of elementwise operations: factors, signs, terms, broadcasting, cotangents."""

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
