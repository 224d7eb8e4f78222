"""Wrong rules of operations on complex numbers, whose gradients follow PyTorch's convention."""

from __future__ import annotations

import numpy as np

from ftrans import custom_vjp
from ftrans.autograd import Function
from tests.unit.planted.subject import normal, wrong


def _complex(*shape: int, seed: int = 0) -> np.ndarray:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100)


@wrong("the conjugate of a holomorphic derivative is missing", (_complex(4),))
class ComplexCube(Function):
    # right for real numbers
    @staticmethod
    def forward(z):
        return z**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (z,) = ctx.saved_tensors
        return ct * 3 * z**2


def _squared_modulus(z):
    return (z * np.conj(z)).real


squared_modulus = custom_vjp(_squared_modulus)
# JAX's convention: the conjugate of PyTorch's
squared_modulus.defvjp(lambda z: (_squared_modulus(z), z), lambda z, ct: (ct * 2 * np.conj(z),))
wrong("a gradient in JAX's convention", (_complex(4),), name="squared_modulus")(squared_modulus)


@wrong("half of the gradient of a real function", (_complex(3),))
class Modulus(Function):
    # Wirtinger's derivative d|z|/dconj(z) = z / (2|z|), without the factor of the convention
    @staticmethod
    def forward(ctx, z):
        z = np.asarray(z)
        y = np.abs(z)
        ctx.save_for_backward(z, y)
        return y

    @staticmethod
    def backward(ctx, ct):
        z, y = (np.asarray(a) for a in ctx.saved_tensors)
        return np.asarray(ct) * z / (2 * y)


@wrong("the conjugate of one of two factors is missing", (_complex(3), _complex(3, seed=1)))
class ComplexProduct(Function):
    # the first line was corrected, the second overlooked
    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        a, b = ctx.saved_tensors
        return ct * np.conj(b), ct * a


@wrong("the factor n of the Fourier transform's transpose is missing", (_complex(5),))
class Fourier(Function):
    # its inverse is not its adjoint
    @staticmethod
    def forward(z):
        return np.fft.fft(np.asarray(z))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return np.fft.ifft(np.asarray(ct))


@wrong("only a jvp, which does not conjugate the tangent", (_complex(4), _complex(4, seed=1)))
class ConjugateProduct(Function):
    # conj(z) w: not holomorphic in z
    @staticmethod
    def forward(z, w):
        return np.conj(z) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tz, tw):
        z, w = ctx.saved_tensors
        return tz * w + np.conj(z) * tw


@wrong("the sign of the imaginary part's gradient", (_complex(4),))
class ImaginarySquared(Function):
    # -i, which is right where gradients are conjugated at the end
    @staticmethod
    def forward(z):
        return z.imag**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (z,) = ctx.saved_tensors
        return -2j * ct * z.imag


@wrong("jvp conjugates as backward does", (_complex(4),))
class ComplexExp(Function):
    # "complex derivatives are conjugated": gradients are, tangents are not
    @staticmethod
    def forward(z):
        return np.exp(z)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, ct):
        return ct * np.conj(ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, t):
        return t * np.conj(ctx.saved_tensors[0])


@wrong("the cotangent is conjugated instead of the derivative", (_complex(4),))
class ComplexReciprocal(Function):
    # one of two conjugates, and the modulus of the gradient is right
    @staticmethod
    def forward(z):
        return 1 / z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, ct):
        (y,) = ctx.saved_tensors
        return -np.conj(ct) * y * y


@wrong("the imaginary part of the cotangent is dropped", (normal(4),))
class Phase(Function):
    # the input is real, so only what is real counts
    @staticmethod
    def forward(angle):
        return np.cos(angle) + 1j * np.sin(angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        (angle,) = ctx.saved_tensors
        return -ct.real * np.sin(angle)
