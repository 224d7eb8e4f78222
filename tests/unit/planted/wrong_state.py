"""Wrong rules that keep what they should not, read memory as it lies, or write where they read.

Also those that misuse `needs_input_grad`, and functions that are not functions.
"""

from __future__ import annotations

import numpy as np

from ftrans import custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, positive, wrong

# ------------------------------------------------------------------- what outlives its call


@wrong(
    "the residual is kept on the class: a second call overwrites it",
    (normal(4),),
    (normal(4, seed=1),),
)
class SinStale(Function):
    # the class was at hand, ctx was not
    kept = None

    @staticmethod
    def forward(x):
        SinStale.kept = np.asarray(x)
        return np.sin(SinStale.kept)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.asarray(ct) * np.cos(SinStale.kept)


_computed = {}


@wrong("a residual is computed at the first call, and kept", (normal(4),), (normal(4, seed=1),))
class ExpStale(Function):
    # a table that is made "once": but it is made of x
    @staticmethod
    def forward(ctx, x):
        if "y" not in _computed:
            _computed["y"] = np.exp(x)
        return np.exp(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * _computed["y"]


_slopes = {}


@wrong("slopes are cached by shape, not by value", (normal(4),), (normal(4, seed=1),))
class TanhCached(Function):
    # "compute it once": the key lacks the values
    @staticmethod
    def forward(x):
        return np.tanh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, ct = np.asarray(ctx.saved_tensors[0]), np.asarray(ct)
        key = (x.shape, x.dtype)
        if key not in _slopes:
            _slopes[key] = 1 - np.tanh(x) ** 2
        return ct * _slopes[key]


_gradients: dict = {}


@wrong("gradients of all calls are added up in one buffer", (normal(4),))
class CosAccumulated(Function):
    # "accumulate into the buffer, as .grad does", and nobody zeroes it
    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x = np.asarray(ctx.saved_tensors[0])
        buffer = _gradients.setdefault((x.shape, x.dtype), np.zeros(x.shape, x.dtype))
        buffer -= np.asarray(ct) * np.sin(x)
        return buffer.copy()


@wrong("backward counts its calls, and damps", (normal(4),))
class SquareDamped(Function):
    # a warm-up schedule
    calls = 0

    @staticmethod
    def forward(x):
        return np.asarray(x) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        SquareDamped.calls += 1
        scale = min(1.0, SquareDamped.calls / 1e4)
        return 2 * scale * np.asarray(ct) * np.asarray(ctx.saved_tensors[0])


# -------------------------------------------------------------------------- written in place


@wrong("backward overwrites its residual: the second backward is wrong", (normal(4),))
class SquareOverwritten(Function):
    # the slope is not needed any more, is it
    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.slope = 2 * x
        return x * x

    @staticmethod
    def backward(ctx, ct):
        slope = np.asarray(ctx.slope)
        slope *= np.asarray(ct)
        return slope


@wrong("backward writes into its cotangent", (normal(4),))
class SinhInPlace(Function):
    # in-place, to save an allocation
    @staticmethod
    def forward(x):
        return np.sinh(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        ct = np.asarray(ct)
        ct *= np.cosh(np.asarray(ctx.saved_tensors[0]))
        return ct


@wrong("forward overwrites what it has saved", (normal(4),))
class SquareSavedFirst(Function):
    # x *= x, on the very array that backward is to find
    @staticmethod
    def forward(ctx, x):
        x = np.array(x)
        ctx.save_for_backward(x)
        x *= x
        return x

    @staticmethod
    def backward(ctx, ct):
        return 2 * np.asarray(ct) * np.asarray(ctx.saved_tensors[0])


@wrong("backward writes into its input", (normal(4),))
class CubeInPlace(Function):
    # x *= x, and x is the residual that the other backward shares
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x = np.asarray(ctx.saved_tensors[0])
        x *= x
        return 3 * x * np.asarray(ct)


# ------------------------------------------------------------------------ memory as it lies


@wrong(
    "reads the cotangent in the order of its memory: wrong where it is transposed", (normal(3, 4),)
)
class SquareByMemory(Function):
    # ravel("K") does not copy
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, ct = np.asarray(ctx.saved_tensors[0]), np.asarray(ct)
        return (2 * x.ravel() * ct.ravel(order="K")).reshape(x.shape)


@wrong("takes a cotangent with a stride of 0 for one number", (normal(3, 4),))
class CumsumExpanded(Function):
    # the fast path for sum().backward(): but one axis may be expanded, and another not
    @staticmethod
    def forward(x):
        return np.cumsum(np.asarray(x), axis=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        ct = np.asarray(ct)
        if 0 in ct.strides:
            count = np.arange(ct.shape[1], 0, -1.0)
            return np.broadcast_to(ct.flat[0] * count, ct.shape).copy()
        return np.cumsum(ct[:, ::-1], axis=1)[:, ::-1]


@wrong("walks through the cotangent with the strides of its residual", (normal(3, 4),))
class ExpByStrides(Function):
    # a kernel is handed one set of strides for two buffers, as if both were contiguous
    @staticmethod
    def forward(x):
        return np.exp(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        y, ct = np.ascontiguousarray(ctx.saved_tensors[0]), np.asarray(ct)
        if any(stride < 0 for stride in ct.strides):
            ct = np.ascontiguousarray(ct)
        # what the kernel sees: the bytes of ct from its first one on, as far as they reach
        low, high = np.lib.array_utils.byte_bounds(ct)
        size = (high - low) // ct.itemsize
        memory = np.lib.stride_tricks.as_strided(ct, (size,), (ct.itemsize,))
        return y * np.resize(memory, y.shape)


# ------------------------------------------------------------------------- needs_input_grad


@wrong(
    "returns the gradients that are needed, and no place for the others",
    (normal(4), normal(4, seed=1)),
)
class ProductCompacted(Function):
    # a list comprehension with an if
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        grads = (ct * y, ct * x)
        return tuple(g for g, need in zip(grads, ctx.needs_input_grad, strict=True) if need)


@wrong("asks whether the other input needs a gradient", (normal(3, 3), normal(3, 3, seed=1)))
class MatmulNeeds(Function):
    # right as long as both do, or none
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, ct):
        a, b = ctx.saved_tensors
        grad_a = ct @ b.T if ctx.needs_input_grad[1] else None
        grad_b = a.T @ ct if ctx.needs_input_grad[0] else None
        return grad_a, grad_b


@wrong("saves what belongs to the other input's gradient", (normal(4), normal(4, seed=1)))
class DivideNeeds(Function):
    # x is needed for the gradient of y
    @staticmethod
    def forward(x, y):
        return x / (2 + y * y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[0] else None, y)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        d = 2 + y * y
        grad_x = ct / d if ctx.needs_input_grad[0] else None
        grad_y = -2 * ct * x * y / (d * d) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y


# ------------------------------------------------------------------------------- no functions


@wrong("forward draws random numbers", (positive(6),))
class Dropout(Function):
    # the mask is right in backward, but another one each time
    @staticmethod
    def forward(ctx, x):
        x = np.asarray(x)
        ctx.mask = (np.random.default_rng().random(x.shape) < 0.5).astype(x.dtype) * 2
        return x * ctx.mask

    @staticmethod
    def backward(ctx, ct):
        return np.asarray(ct) * np.asarray(ctx.mask)


def _noisy(x):
    return x + 0.1 * np.random.default_rng().normal(size=x.shape).astype(x.dtype)


noisy = custom_vjp(_noisy)
noisy.defvjp(lambda x: (_noisy(x), None), lambda _, ct: (ct,))
wrong("noise is drawn while tracing", (normal(4),), name="noisy")(noisy)


@wrong("backward draws random numbers", (normal(5),))
class SquareRounded(Function):
    # stochastic rounding of gradients: right on average
    @staticmethod
    def forward(x):
        return np.asarray(x) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        g = 2 * np.asarray(ct) * np.asarray(ctx.saved_tensors[0]) * 64
        return np.floor(g + np.random.default_rng().random(g.shape).astype(g.dtype)) / 64
