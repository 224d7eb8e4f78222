"""Wrong rules of operations with several outputs, and rules that are wrong at the second order."""

from __future__ import annotations

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_jvp, custom_vjp, stop_gradient
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# ----------------------------------------------------------------------------- several outputs


@wrong("ignores the cotangent of the second output", (positive(4), positive(4, seed=1)))
class Polar(Function):
    # the loss used the radius alone
    @staticmethod
    def forward(x, y):
        return np.hypot(x, y), np.arctan2(y, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, ct_radius, ct_angle):
        x, y, radius = ctx.saved_tensors
        return ct_radius * x / radius, ct_radius * y / radius


@wrong("the cotangents of the two outputs are swapped", (normal(4),))
class SinCos(Function):
    # cos, sin in forward; ct_sin, ct_cos in backward
    @staticmethod
    def forward(x):
        return np.cos(x), np.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, ct_sin, ct_cos):
        cos, sin = ctx.saved_tensors
        return ct_sin * cos - ct_cos * sin


@wrong("an undefined cotangent is not looked at before it is used", (normal(5),))
class Moments(Function):
    # set_materialize_grads(False) was to save a multiplication by zeros
    @staticmethod
    def forward(x):
        mean = np.mean(x)
        return mean, np.mean((x - mean) ** 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], output[0])

    @staticmethod
    def backward(ctx, ct_mean, ct_variance):
        x, mean = ctx.saved_tensors
        return (ct_mean + ct_variance * 2 * (x - mean)) / x.size


@wrong("where one cotangent is undefined, the other is dropped too", (normal(5),))
class MomentsDropped(Function):
    # "nothing to do" was meant for the case in which both are undefined
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        mean = np.mean(x)
        ctx.save_for_backward(x, mean)
        return mean, np.mean((x - mean) ** 2)

    @staticmethod
    def backward(ctx, ct_mean, ct_variance):
        if ct_mean is None or ct_variance is None:
            return None
        x, mean = ctx.saved_tensors
        return (ct_mean + ct_variance * 2 * (x - mean)) / x.size


def _split_fwd(x):
    return (x[:2], x[2:]), None


split = custom_vjp(lambda x: (x[:2], x[2:]))
# the halves have one size, so the order of the parts goes unnoticed
split.defvjp(_split_fwd, lambda _, cts: (np.concatenate([cts[1], cts[0]]),))
wrong("the parts are put together in the wrong order", (normal(4),), name="split")(split)


sin_cos_jvp = custom_jvp(lambda x: (np.sin(x), np.cos(x)))


@sin_cos_jvp.defjvp
def _sin_cos_rule(primals, tangents):
    # the second tangent was copied from the first line, and not all of it edited
    (x,), (t,) = primals, tangents
    return (np.sin(x), np.cos(x)), (t * np.cos(x), t * np.sin(x))


wrong("the sign of the second output's tangent", (normal(4),), name="sin_cos_jvp")(sin_cos_jvp)


@wrong("one tangent for two outputs", (normal(4),))
class ExpPair(Function):
    # the second output was added after jvp had been written
    @staticmethod
    def forward(x):
        return np.exp(x), np.exp(-x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx, ct_up, ct_down):
        up, down = ctx.saved_tensors
        return ct_up * up - ct_down * down

    @staticmethod
    def jvp(ctx, t):
        return t * ctx.saved_tensors[0]


@wrong("one gradient for two inputs", (normal(4), normal(4, seed=1)))
class DifferenceSquared(Function):
    # y was thought of as the target, which nobody differentiates
    @staticmethod
    def forward(x, y):
        return (x - y) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        return 2 * ct * (x - y)


# --------------------------------------------------------------------------- the second order


@wrong("the residual's dependence on x is hidden: the second derivative is wrong", (normal(4),))
class SwishDetached(Function):
    # detach() was copied from a training loop
    @staticmethod
    def forward(x):
        return x * fnp.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        s = stop_gradient(fnp.sigmoid(x))
        return ct * (s + x * s * (1 - s))


class CubeBackward(Function):
    """Is the backward pass of `Cube`; right as a forward, wrong in its own backward."""

    @staticmethod
    def forward(x, ct):
        x, ct = np.asarray(x), np.asarray(ct)
        return 3 * x * x * ct

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, inner = ctx.saved_tensors
        # 3 x instead of 6 x
        return ct * 3 * x * inner, ct * 3 * x * x


@wrong("the second derivative, written by hand, has a wrong factor", (normal(4),))
class Cube(Function):
    # nobody took a Hessian
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return CubeBackward.apply(x, ct)


class SineBackward(Function):
    """Is the backward pass of `Sine`, which has no gradient for its cotangent."""

    @staticmethod
    def forward(x, ct):
        return np.cos(np.asarray(x)) * np.asarray(ct)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, inner = ctx.saved_tensors
        # ct of the outer function is taken for a constant
        return -ct * np.sin(x) * inner, None


@wrong("the second backward gives None for the first one's cotangent", (normal(4),))
class Sine(Function):
    # grad(grad(sum)) works without it, jvp of grad too
    @staticmethod
    def forward(x):
        return np.sin(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return SineBackward.apply(x, ct)


@wrong("the derivative that is returned beside the value has none of its own", (normal(4),))
class CubeAndSlope(Function):
    # the document's MyCube, without the term that it explains
    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, ct, ct_slope):
        (slope,) = ctx.saved_tensors
        return ct * slope


softplus_jvp = custom_jvp(lambda x: np.log1p(np.exp(x)))


@softplus_jvp.defjvp
def _softplus_rule(primals, tangents):
    (x,), (t,) = primals, tangents
    # a stop_gradient that kept a NaN away, once
    return np.log1p(np.exp(x)), t * stop_gradient(fnp.sigmoid(x))


wrong("a jvp rule whose slope is held fixed", (normal(4),), name="softplus_jvp")(softplus_jvp)


@wrong("jvp hides the slope's dependence on x: wrong at the second order, forward", (normal(4),))
class SigmoidForward(Function):
    # backward was written with care, jvp copied from an inference engine
    @staticmethod
    def forward(x):
        return 1 / (1 + np.exp(-x))

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
        y = stop_gradient(ctx.saved_tensors[0])
        return t * y * (1 - y)


@wrong("the norm is held fixed in backward: wrong at the second order only", (normal(4),))
class Normalise(Function):
    # y is saved, and the norm recomputed without gradient to save memory
    @staticmethod
    def forward(x):
        return x / np.sqrt(np.sum(x * x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        norm = stop_gradient(np.sqrt(np.sum(x * x)))
        y = x / norm
        return (ct - y * np.sum(y * ct)) / norm


def _square_fwd(x):
    # the slope is computed in forward, as a constant
    return x * x, stop_gradient(2 * x)


square_constant_slope = custom_vjp(lambda x: x * x)
square_constant_slope.defvjp(_square_fwd, lambda slope, ct: (ct * slope,))
wrong("the residual is detached in forward", (normal(4),), name="square_constant_slope")(
    square_constant_slope
)
