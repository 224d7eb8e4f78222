"""Right rules of traced code with every kind of argument, result and rule."""

from __future__ import annotations

import functools

import numpy as np

import ftrans.numpy as fnp
from ftrans import custom_jvp, custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, right


def _complex(*shape: int, seed: int = 0) -> np.ndarray:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100)


# ------------------------------------------------------------------- arguments and structures


@right(({"w": normal(3, 2), "b": normal(2, seed=1)}, normal(4, 3, seed=2)))
class Affine(Function):
    # a dictionary in, a dictionary out
    @staticmethod
    def forward(params, x):
        y = x @ params["w"] + params["b"]
        return {"y": y, "square": y * y}

    @staticmethod
    def setup_context(ctx, inputs, output):
        params, x = inputs
        ctx.save_for_backward(params["w"], x, output["y"])

    @staticmethod
    def backward(ctx, cts):
        w, x, y = ctx.saved_tensors
        ct = cts["y"] + 2 * y * cts["square"]
        return {"w": x.T @ ct, "b": np.sum(ct, axis=0)}, ct @ w.T


def _weighted(params, x):
    return {"sum": params[0] * x + params[1], "product": params[0] * params[1]}


weighted = custom_vjp(_weighted)


def _weighted_fwd(params, x):
    return _weighted(params, x), {"params": params, "x": x}


def _weighted_bwd(residuals, ct):
    a, b = residuals["params"]
    x = residuals["x"]
    grad_a = ct["sum"] * x + ct["product"] * b
    grad_b = ct["sum"] + ct["product"] * a
    return (grad_a, grad_b), ct["sum"] * a


weighted.defvjp(_weighted_fwd, _weighted_bwd)
right(((normal(3), normal(3, seed=1)), normal(3, seed=2)), name="weighted")(weighted)


@right((positive(3), 3), (positive(3), 0))
class Power(Function):
    # the exponent is static, and has a branch of its own
    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return (ct * 0 * x if ctx.n == 0 else ct * ctx.n * x ** (ctx.n - 1)), None


class ScaledNorm(Function):
    """Takes a default and keyword arguments."""

    @staticmethod
    def forward(x, order="two", *, scale=1):
        return scale * (np.sum(np.abs(x)) if order == "one" else np.sqrt(np.sum(x * x)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.order = inputs[1]

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        if ctx.order == "one":
            return ct * np.sign(x) * y / np.sum(np.abs(x)), None
        return ct * x * y / np.sum(x * x), None


right((normal(4),), name="norm_by_keyword")(lambda x: ScaledNorm.apply(x, scale=3))
right((normal(4),), name="norm_one")(lambda x: ScaledNorm.apply(x, "one"))
right((normal(4),), (normal(4), "one"), name="ScaledNorm")(ScaledNorm)

_table = normal(4, seed=7)


@right((normal(4),))
class TimesTable(Function):
    # a constant array from outside
    @staticmethod
    def forward(x):
        return x * _table.astype(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return ct * _table.astype(ct.dtype)


@right((normal(3), np.array([1, 0, 2])), (normal(3), np.array([0, 0, 0])))
class PowerByIndex(Function):
    # integers among the inputs, which have no gradient
    @staticmethod
    def forward(x, n):
        n = n.astype(x.dtype)
        return x * n + n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[0].astype(ct.dtype), None


@right((normal(4), np.array([True, False, True, True]), normal(4, seed=1)))
class Choose(Function):
    # a boolean among the inputs
    @staticmethod
    def forward(x, mask, y):
        return np.where(mask, x, y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, ct):
        (mask,) = ctx.saved_tensors
        return np.where(mask, ct, 0.0), None, np.where(mask, 0.0, ct)


@right((np.array([1, 0, 3]),))
class OneHot(Function):
    # nothing but integers: no gradient at all
    @staticmethod
    def forward(index):
        return (index[:, None] == np.arange(4)).astype(np.float64)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return None


@right((np.array([0.3, 1.2, -2.4]),))
class Round(Function):
    # piecewise constant: None is the gradient
    @staticmethod
    def forward(x):
        return np.round(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return None


@right((normal(4), normal(4, seed=1)))
class TargetIgnored(Function):
    # forward does not depend on its second input, which gets None; and one None too many
    @staticmethod
    def forward(x, unused):
        return np.exp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[0], None, None


# ---------------------------------------------------------------------------- several outputs


@right((normal(5),))
class MaxAndPlace(Function):
    # an integer output, marked
    @staticmethod
    def forward(x):
        return np.max(x), np.argmax(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.size = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, ct, _):
        (place,) = ctx.saved_tensors
        return np.where(np.arange(ctx.size) == place, ct, 0.0)


@right((normal(4),))
class ExpAndMask(Function):
    # a float output that is marked: its derivative is not asked for
    @staticmethod
    def forward(x):
        return np.exp(x), np.abs(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx, ct, _):
        return ct * ctx.saved_tensors[0]


@right((normal(5),))
class Moments(Function):
    # undefined cotangents are looked at one by one
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
        if ct_mean is None and ct_variance is None:
            return None
        grad = fnp.zeros_like(x)
        if ct_mean is not None:
            grad = grad + ct_mean / x.size
        if ct_variance is not None:
            grad = grad + ct_variance * 2 * (x - mean) / x.size
        return grad


@right((normal(4),))
class CubeAndSlope(Function):
    # the document's MyCube
    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, ct, ct_slope):
        x, slope = ctx.saved_tensors
        return ct * slope + ct_slope * 6 * x


@right((normal(3),))
class Twice(Function):
    # one array, returned twice
    @staticmethod
    def forward(x):
        y = np.sin(x)
        return y, y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct, ct_again):
        return (ct + ct_again) * np.cos(ctx.saved_tensors[0])


@right((normal(3), normal(3, seed=1)))
class PassAndMultiply(Function):
    # an input is returned as it is
    @staticmethod
    def forward(x, y):
        return x, x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct, ct_product):
        x, y = ctx.saved_tensors
        return ct + ct_product * y, ct_product * x


# ---------------------------------------------------------------------- what is given and asked


@right((normal(4), normal(4, seed=1)))
class SquaredError(Function):
    # a loss, most often asked for the gradient of x alone
    @staticmethod
    def forward(x, y):
        return np.mean((x - y) ** 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        need_x, need_y = ctx.needs_input_grad
        g = ct * 2 * (x - y) / x.size
        return g if need_x else None, -g if need_y else None


@right((normal(3, 2), normal(2, 4, seed=1)))
class MatmulNeeded(Function):
    # skips, and does not even save, what is not asked for
    @staticmethod
    def forward(a, b):
        return a @ b

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(a if needs[1] else None, b if needs[0] else None)

    @staticmethod
    def backward(ctx, ct):
        a, b = ctx.saved_tensors
        grad_a = ct @ b.T if ctx.needs_input_grad[0] else None
        grad_b = a.T @ ct if ctx.needs_input_grad[1] else None
        return grad_a, grad_b


@right((positive(4),))
class ReciprocalJvp(Function):
    # only jvp, from the saved output
    @staticmethod
    def forward(x):
        return 1 / x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(output)

    @staticmethod
    def jvp(ctx, t):
        (y,) = ctx.saved_tensors
        return -t * y * y


@right((normal(4), normal(4, seed=1)))
class AtanBoth(Function):
    # both rules, each written in its own way
    @staticmethod
    def forward(y, x):
        return np.arctan2(y, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx, ct):
        y, x = ctx.saved_tensors
        g = ct / (x * x + y * y)
        return g * x, -g * y

    @staticmethod
    def jvp(ctx, ty, tx):
        y, x, angle = ctx.saved_tensors
        return (np.cos(angle) * ty - np.sin(angle) * tx) / np.hypot(x, y)


hypot_jvps = custom_jvp(lambda x, y, tag: np.hypot(x, y))
# None: no derivative with respect to integers
hypot_jvps.defjvps(
    lambda t, out, x, y, tag: t * x / out, lambda t, out, x, y, tag: t * y / out, None
)
right((positive(3), normal(3, seed=1), np.array([1, 2, 3])), name="hypot_jvps")(hypot_jvps)


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def apply_twice(f, x):
    return f(f(x))


def _twice_fwd(f, x):
    return f(f(x)), x


def _twice_bwd(f, x, ct):
    # f is the sine
    return (ct * np.cos(np.sin(x)) * np.cos(x),)


apply_twice.defvjp(_twice_fwd, _twice_bwd)
right((normal(4),), name="apply_twice")(lambda x: apply_twice(np.sin, x))


@right((normal(2, 3),))
class CumsumLinear(Function):
    # linear: the second derivative is zero, and the residual is a shape
    @staticmethod
    def forward(x):
        return np.cumsum(x, axis=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.flip(np.cumsum(np.flip(ct, 1), axis=1), 1)


@right((normal(3, 4), positive(4)))
class LayerNorm(Function):
    # a long formula, saved outputs and recomputed intermediates
    @staticmethod
    def forward(x, gain):
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return gain * centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, ct):
        x, gain, y = ctx.saved_tensors
        unit = y / gain
        scale = np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
        g = ct * gain
        mean = np.mean(g, axis=-1, keepdims=True)
        along = unit * np.mean(g * unit, axis=-1, keepdims=True)
        return (g - mean - along) / scale, np.sum(ct * unit, axis=0)
