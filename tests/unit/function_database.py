"""The Functions of PyTorch's own database of custom functions, written anew for arrays.

Those named after NumPy are opaque: they compute with `np.asarray` of what they are given. Beside
each stands what it does in `jax.numpy`, whose derivatives are those that the Function declares.
What is wrong in PyTorch's is right here: the second derivatives of `CubeGenVmap`, the wrapped axis
in the batching of `NumpyTake`, and the cotangent that `NumpyCubeNotComposable` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

import ftrans.numpy as fnp
from ftrans.autograd import Function, once_differentiable

# ------------------------------------------------------------------------------------- by NumPy


class NumpyCube(Function):
    @staticmethod
    def forward(x):
        x = np.asarray(x)
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, ct, ct_slope):
        x, slope = ctx.saved_tensors
        return NumpyMul.apply(ct, slope) + 6 * NumpyMul.apply(ct_slope, x)

    @staticmethod
    def jvp(ctx, t):
        x, slope = ctx.saved_tensors
        return NumpyMul.apply(t, slope), 6 * NumpyMul.apply(t, x)

    @staticmethod
    def vmap(info, in_dims, x):
        return NumpyCube.apply(x), (in_dims[0], in_dims[0])


class NumpyMul(Function):
    @staticmethod
    def forward(x, y):
        return np.asarray(x) * np.asarray(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        x, y = ctx.saved_tensors
        x_wanted, y_wanted = ctx.needs_input_grad
        return (
            NumpyMul.apply(ct, y) if x_wanted else None,
            NumpyMul.apply(ct, x) if y_wanted else None,
        )

    @staticmethod
    def jvp(ctx, x_dot, y_dot):
        x, y = ctx.saved_tensors
        return x_dot * y + y_dot * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        x, y = (
            fnp.expand_dims(array, -1) if dim is None else fnp.moveaxis(array, dim, -1)
            for array, dim in zip((x, y), in_dims, strict=True)
        )
        return fnp.moveaxis(NumpyMul.apply(x, y), -1, 0), 0


class NumpyExpMarkDirty(Function):
    """Works in place, and says so."""

    @staticmethod
    def forward(x):
        array = np.asarray(x)
        np.exp(array, out=array)
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, ct):
        (out,) = ctx.saved_tensors
        return NumpyMul.apply(ct, out)

    @staticmethod
    def jvp(ctx, t):
        (out,) = ctx.saved_tensors
        return NumpyMul.apply(t, out)

    @staticmethod
    def vmap(info, in_dims, x):
        return NumpyExpMarkDirty.apply(x), in_dims[0]


class NumpySort(Function):
    @staticmethod
    def forward(x, dim):
        x = np.asarray(x)
        order = np.argsort(x, axis=dim, stable=True)
        return np.take_along_axis(x, order, dim), order, np.argsort(order, axis=dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, inverse = output
        ctx.mark_non_differentiable(order, inverse)
        ctx.save_for_backward(order, inverse)
        ctx.save_for_forward(order, inverse)
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, ct, ct_order, ct_inverse):
        order, inverse = ctx.saved_tensors
        return NumpyTake.apply(ct, inverse, order, ctx.dim), None

    @staticmethod
    def jvp(ctx, t, dim_dot):
        order, inverse = ctx.saved_tensors
        return NumpyTake.apply(t, order, inverse, ctx.dim), None, None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        x = fnp.moveaxis(x, in_dims[0], 0)
        return NumpySort.apply(x, dim % (x.ndim - 1) + 1), (0, 0, 0)


class NumpyTake(Function):
    @staticmethod
    def forward(x, order, inverse, dim):
        return np.take_along_axis(np.asarray(x), np.asarray(order), dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, inverse, ctx.dim = inputs
        ctx.save_for_backward(order, inverse)
        ctx.save_for_forward(order, inverse)

    @staticmethod
    def backward(ctx, ct):
        order, inverse = ctx.saved_tensors
        return NumpyTake.apply(ct, inverse, order, ctx.dim), None, None, None

    @staticmethod
    def jvp(ctx, t, order_dot, inverse_dot, dim_dot):
        order, inverse = ctx.saved_tensors
        assert (order_dot, inverse_dot, dim_dot) == (None, None, None)
        return NumpyTake.apply(t, order, inverse, ctx.dim)

    @staticmethod
    def vmap(info, in_dims, x, order, inverse, dim):
        rank = x.ndim if in_dims[0] is None else x.ndim - 1
        arrays = [
            fnp.broadcast_to(array, (info.batch_size, *array.shape))
            if at is None
            else fnp.moveaxis(array, at, 0)
            for array, at in zip((x, order, inverse), in_dims[:3], strict=True)
        ]
        return NumpyTake.apply(*arrays, dim % rank + 1), 0


class OpaqueBackward(Function):
    """Does not say that it is differentiable once only; its backward shows it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, ct):
        (x,) = ctx.saved_tensors
        return 3 * np.asarray(x) ** 2 * np.asarray(ct)


class NumpyCubeNotComposable(Function):
    """Keeps an array of NumPy on `ctx`, and goes back in NumPy: once, and in reverse."""

    @staticmethod
    def forward(x):
        x = np.asarray(x)
        return x**3, x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.x = output[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, ct, ct_x):
        return np.asarray(ct) * 3 * np.asarray(ctx.x) ** 2


# ------------------------------------------------------------------------------------- traceable


class CubeGenVmap(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, ct, ct_slope):
        x, slope = ctx.saved_tensors
        return ct * slope + ct_slope * 6 * x

    @staticmethod
    def jvp(ctx, t):
        x, slope = ctx.saved_tensors
        return MulGenVmap.apply(t, slope), 6 * NumpyMul.apply(t, x)


class MulGenVmap(Function):
    generate_vmap_rule = True

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
        x_wanted, y_wanted = ctx.needs_input_grad
        return (
            MulGenVmap.apply(ct, y) if x_wanted else None,
            MulGenVmap.apply(ct, x) if y_wanted else None,
        )

    @staticmethod
    def jvp(ctx, x_dot, y_dot):
        x, y = ctx.saved_tensors
        return x_dot * y + y_dot * x


class SortGenVmap(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, dim):
        order = fnp.argsort(x, axis=dim)
        return fnp.take_along_axis(x, order, dim), order, fnp.argsort(order, axis=dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, inverse = output
        ctx.mark_non_differentiable(order, inverse)
        ctx.save_for_backward(order, inverse)
        ctx.save_for_forward(order, inverse)
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, ct, ct_order, ct_inverse):
        order, inverse = ctx.saved_tensors
        return TakeGenVmap.apply(ct, inverse, order, ctx.dim), None

    @staticmethod
    def jvp(ctx, t, dim_dot):
        order, inverse = ctx.saved_tensors
        return TakeGenVmap.apply(t, order, inverse, ctx.dim), None, None


class TakeGenVmap(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, order, inverse, dim):
        return fnp.take_along_axis(x, order, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, inverse, ctx.dim = inputs
        ctx.save_for_backward(order, inverse)
        ctx.save_for_forward(order, inverse)

    @staticmethod
    def backward(ctx, ct):
        order, inverse = ctx.saved_tensors
        return TakeGenVmap.apply(ct, inverse, order, ctx.dim), None, None, None

    @staticmethod
    def jvp(ctx, t, order_dot, inverse_dot, dim_dot):
        order, inverse = ctx.saved_tensors
        return TakeGenVmap.apply(t, order, inverse, ctx.dim)


class Select(Function):
    @staticmethod
    def forward(x, index):
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.index = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, ct):
        out = fnp.zeros(ctx.shape, ct.dtype)
        out[ctx.index] = ct
        return out, None

    @staticmethod
    def jvp(ctx, t, index_dot):
        return Select.apply(t, ctx.index)

    @staticmethod
    def vmap(info, in_dims, x, index):
        return Select.apply(fnp.moveaxis(x, in_dims[0], 1), index), 0


class SelectGenVmap(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, index):
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.index = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, ct):
        return fnp.at(fnp.zeros(ctx.shape, ct.dtype))[ctx.index].set(ct), None

    @staticmethod
    def jvp(ctx, t, index_dot):
        return SelectGenVmap.apply(t, ctx.index)


class ScaleGradGenVmap(Function):
    generate_vmap_rule = True
    scale = 3.14

    @staticmethod
    def forward(x):
        return x.copy()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, ct):
        return ct * ScaleGradGenVmap.scale

    @staticmethod
    def jvp(ctx, t):
        return t * ScaleGradGenVmap.scale


class ZeroGradientsGenVmap(Function):
    """Returns zeros, and not None, for one input of a shape that is summed to that of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x.copy(), y.copy()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, x_ct, y_ct):
        return fnp.zeros((3, 4, *x_ct.shape), x_ct.dtype), fnp.zeros(y_ct.shape, y_ct.dtype)

    @staticmethod
    def jvp(ctx, x_dot, y_dot):
        return fnp.zeros(x_dot.shape, x_dot.dtype), fnp.zeros(y_dot.shape, y_dot.dtype)


class ForwardHasDefaultArgs(Function):
    @staticmethod
    def forward(x, index=(2,)):
        return x[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.index = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, ct):
        out = fnp.zeros(ctx.shape, ct.dtype)
        out[ctx.index] = ct
        return out, None

    @staticmethod
    def jvp(ctx, t, index_dot):
        return ForwardHasDefaultArgs.apply(t, ctx.index)

    @staticmethod
    def vmap(info, in_dims, x, index):
        x = fnp.moveaxis(x, in_dims[0], 1)
        return ForwardHasDefaultArgs.apply(x, index), 0


# ------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Case:
    """Is one Function with arrays to try it on.

    Attributes:
        ours: applies the Function; returns an array, or a tuple of the differentiable ones.
        theirs: does the same with `jax.numpy`.
        arrays: what to apply it to.
        composable: whether it has more than a first derivative, in reverse.
        variant: whether the same Function stands in the table with other arrays.
    """

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    composable: bool = True
    variant: bool = False


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng([7, *shape]).uniform(0.8, 2.0, size=shape)


def _cube(x: Any) -> Any:
    return x**3, 3 * x**2


def _scaled(x: Any) -> Any:
    return x + (ScaleGradGenVmap.scale - 1) * (x - jax.lax.stop_gradient(x))


_ORDER = np.argsort(_draw(3, 5), axis=1)
_INVERSE = np.argsort(_ORDER, axis=1)

DATABASE: dict[str, Case] = {
    "NumpyCube": Case(NumpyCube.apply, _cube, (_draw(1),)),
    "NumpyCube of a scalar": Case(NumpyCube.apply, _cube, (_draw(),), variant=True),
    "NumpyExpMarkDirty": Case(lambda x: NumpyExpMarkDirty.apply(x.copy()), jnp.exp, (_draw(2),)),
    "NumpyMul": Case(NumpyMul.apply, jnp.multiply, (_draw(4), _draw(3, 4))),
    "NumpySort": Case(lambda x: NumpySort.apply(x, 1)[0], jnp.sort, (_draw(3, 5),)),
    "NumpySort of columns": Case(
        lambda x: NumpySort.apply(x, -2)[0],
        lambda x: jnp.sort(x, axis=-2),
        (_draw(4, 2),),
        variant=True,
    ),
    "NumpyTake": Case(
        lambda x: NumpyTake.apply(x, _ORDER, _INVERSE, 1),
        lambda x: jnp.take_along_axis(x, _ORDER, 1),
        (_draw(3, 5),),
    ),
    "NumpyTake from the last axis": Case(
        lambda x: NumpyTake.apply(x, _ORDER, _INVERSE, -1),
        lambda x: jnp.take_along_axis(x, _ORDER, -1),
        (_draw(3, 5),),
        variant=True,
    ),
    "Select": Case(lambda x: Select.apply(x, 2), lambda x: x[2], (_draw(3, 5),)),
    "CubeGenVmap": Case(CubeGenVmap.apply, _cube, (_draw(3),)),
    "MulGenVmap": Case(MulGenVmap.apply, jnp.multiply, (_draw(4), _draw(3, 4))),
    "SortGenVmap": Case(lambda x: SortGenVmap.apply(x, 1)[0], jnp.sort, (_draw(3, 5),)),
    "SelectGenVmap": Case(lambda x: SelectGenVmap.apply(x, 2), lambda x: x[2], (_draw(3, 5),)),
    "ScaleGradGenVmap": Case(ScaleGradGenVmap.apply, _scaled, (_draw(3),)),
    "ZeroGradientsGenVmap": Case(
        ZeroGradientsGenVmap.apply,
        lambda x, y: (jax.lax.stop_gradient(x), jax.lax.stop_gradient(y)),
        (_draw(2), _draw(3)),
    ),
    "ForwardHasDefaultArgs": Case(ForwardHasDefaultArgs.apply, lambda x: x[2], (_draw(3, 5),)),
    "ForwardHasDefaultArgs given": Case(
        lambda x: ForwardHasDefaultArgs.apply(x, index=(0,)),
        lambda x: x[0],
        (_draw(3, 5),),
        variant=True,
    ),
    "NumpyCubeNotComposable": Case(
        lambda x: NumpyCubeNotComposable.apply(x)[0], lambda x: x**3, (_draw(3),), composable=False
    ),
}
