"""A kernel of Pallas, `x * sigmoid(x)`, with another one for its derivative.

    swish(x)
    func.vmap(func.grad(swish))(xs)

On a CPU Pallas interprets it; on a GPU or TPU take `interpret=False`.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import ftrans
import ftrans.numpy as fnp


def elementwise(body):
    """Returns a function of JAX that applies a kernel to arrays of one shape."""

    def kernel(*refs):
        *inputs, out = refs
        out[...] = body(*[ref[...] for ref in inputs])

    def call(*arrays):
        shape = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
        return pl.pallas_call(kernel, out_shape=shape, interpret=True)(*arrays)

    return call


def _slope(x, ct):
    s = 1 / (1 + jnp.exp(-x))
    return ct * s * (1 + x * (1 - s))


def _slope_vjp(primals, out, g):
    # the second derivative is left to ftrans: this rule is traced, and linear in g
    x, ct = primals
    s = fnp.sigmoid(x)
    return g * ct * s * (1 - s) * (2 + x * (1 - 2 * s)), slope(x, g)


slope = ftrans.external.jax(elementwise(_slope), vjp=_slope_vjp, name="swish_slope")
swish = ftrans.external.jax(
    elementwise(lambda x: x / (1 + jnp.exp(-x))),
    vjp=lambda primals, out, ct: slope(primals[0], ct),
    name="swish",
)
