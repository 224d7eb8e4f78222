"""Rules that are right, in every way that rules are written: `check_rules` must be silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special

import ftrans.numpy as fnp
from ftrans import custom_jvp, custom_vjp, custom_vmap, external
from ftrans.autograd import Function, once_differentiable

X = np.linspace(0.3, 2.2, 5)
DRAW = np.random.default_rng(7)
A, B, V = DRAW.normal(size=(3, 4)), DRAW.normal(size=(4, 2)), DRAW.normal(size=4)
Z = X + 1j * X[::-1]

RIGHT: dict[str, tuple[Any, tuple[Any, ...]]] = {}


def right(*args: Any, name: str = "") -> Callable[[Any], Any]:
    """Puts a rule and a sample into the table."""

    def add(rule: Any) -> Any:
        label = name or getattr(rule, "__name__", str(len(RIGHT)))
        RIGHT[label if label not in RIGHT else f"{label} {len(RIGHT)}"] = rule, args
        return rule

    return add


def with_vjp(function: Any, fwd: Any, bwd: Any, name: str) -> Any:
    made = custom_vjp(function)
    made.defvjp(fwd, bwd)
    made.__name__ = name
    return made


# ------------------------------------------------------------------------------ plain functions

for label, (func, args) in {
    "sin": (fnp.sin, (X,)),
    "matmul": (lambda a, b: a @ b, (A, B)),
    "relu at a kink": (lambda x: fnp.where(x > 0, x, 0.0), (np.array([-1.0, 0.0, 2.0]),)),
    "abs at a kink": (fnp.abs, (np.array([-1.0, 0.0, 2.0]),)),
    "max with ties": (lambda x: fnp.max(x, axis=-1), (np.array([[1.0, 1.0, 0.5]]),)),
    "sort with near ties": (fnp.sort, (np.array([1.0, 0.9999, 1.0001, 3.0]),)),
    "sqrt at zero": (fnp.sqrt, (np.array([0.0, 1.0]),)),
    "floor at a jump": (fnp.floor, (np.array([1.0, 1.5]),)),
    "clip near its bounds": (lambda x: fnp.clip(x, 0.5, 2.0), (np.array([0.51, 1.0, 1.99]),)),
    "squares of many scales": (lambda x: x**2, (np.array([1e-12, 1.0, 1e12]),)),
    "log of many scales": (fnp.log, (np.array([1e-300, 1.0, 1e300]),)),
    "logsumexp of many scales": (fnp.logsumexp, (np.array([1e-3, 1.0, 1e3]),)),
    "norm of many scales": (lambda x: fnp.sqrt((x**2).sum()), (np.array([1e-9, 1.0, 1e6]),)),
    "softmax": (lambda x: fnp.softmax(x, axis=-1), (A,)),
    "layer norm": (
        lambda x: (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
        (A,),
    ),
    "cosh that overflows": (fnp.cosh, (np.array([700.0]),)),
    "arcsin near its end": (fnp.arcsin, (np.array([0.999, -0.5]),)),
    "abs of complex": (fnp.abs, (Z,)),
    "real and imag": (lambda z: (z.real * z.imag, fnp.conj(z)), (Z,)),
    "exp of complex64": (fnp.exp, (Z.astype(np.complex64),)),
    "real to complex": (lambda x: x + 1j * x**2, (X,)),
    "float32": (fnp.tanh, (X.astype(np.float32),)),
    "float16": (lambda x: fnp.tanh(x) * x, (X.astype(np.float16),)),
    "bfloat16": (lambda x: x * x, (X.astype(jnp.bfloat16),)),
    "mixed precision": (lambda x, y: x * y, (X, X.astype(np.float32))),
    "single precision inside": (
        lambda x: fnp.exp(x.astype("float32")).astype(x.dtype),
        (X,),
    ),
    "scalar": (lambda x: x * fnp.sin(x), (np.float64(0.7),)),
    "python floats": (lambda x, y: x * y, (0.5, 2.0)),
    "empty": (fnp.sin, (np.zeros((0, 3)),)),
    "large": (lambda x: fnp.sum(x**3), (np.linspace(1.0, 2.0, 3000),)),
    "jax arrays": (lambda x, y: fnp.sin(x) * y, (jnp.linspace(0.1, 1.0, 4), jnp.ones(4))),
    "integers in": (lambda x, i: x[i] * 2.0, (X, np.array([3, 0, 3]))),
    "integers out": (lambda x: (fnp.argmax(x), fnp.argsort(x), x * 2.0), (X,)),
    "booleans": (lambda x, m: fnp.where(m, x, -x), (X, X > 1.0)),
    "pytrees": (
        lambda p, x: {"y": (p["w"] @ x + p["b"][0],), "n": p["b"][0].sum()},
        ({"w": A, "b": [np.ones(3)]}, V),
    ),
    "static arguments": (
        lambda x, axis, how: getattr(fnp, how)(x, axis=axis),
        (A, (0, 1), "sum"),
    ),
    "a static float": (lambda x, eps: x / fnp.sqrt((x**2).sum() + eps), (X, 1e-6)),
    "branches on values": (lambda x: x * x if float(x.sum()) > 0 else -x, (X,)),
    "one argument of many has no effect": (lambda x, y: x * 2.0, (X, A)),
    "constant": (lambda x: (x * 0.0, fnp.ones(3)), (X,)),
    "views": (lambda x: (x, x.T, x[0], x[:, 1]), (A,)),
    "convolution": (
        lambda x, w: fnp.stack([(x[i : i + 3] * w).sum() for i in range(len(x) - 2)]),
        (np.linspace(0.0, 1.0, 8) ** 2, np.array([1.0, -2.0, 1.5])),
    ),
}.items():
    RIGHT[label] = func, args


# -------------------------------------------------------------------------------- Function


@right(X)
class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * ct


@right(A, V)
class BroadcastMul(Function):
    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, y = ctx.saved_tensors
        gx = ct * y if ctx.needs_input_grad[0] else None
        gy = (ct * x).sum(0) if ctx.needs_input_grad[1] else None
        return gx, gy


@right(X)
class OpaqueOnce(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = np.asarray(x)
        ctx.save_for_backward(np.cos(x))
        return np.sin(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ct: Any) -> Any:
        (slope,) = ctx.saved_tensors
        return np.asarray(slope) * np.asarray(ct)


@right(A)
@right(A, 0, name="Sort along axis 0")
class Sort(Function):
    @staticmethod
    def forward(x: Any, axis: int = -1) -> Any:
        x = np.asarray(x)
        order = np.argsort(x, axis=axis)
        return np.take_along_axis(x, order, axis), order

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.order, ctx.axis = output[1], inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, ct: Any, _: Any) -> Any:
        ct, order = np.asarray(ct), np.asarray(ctx.order)
        back = np.zeros_like(ct)
        np.put_along_axis(back, order, ct, ctx.axis)
        return back, None


@right(X, np.array([4, 1, 1]))
class Take(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, index: Any) -> Any:
        ctx.size, ctx.index = x.shape[0], index
        return np.asarray(x)[np.asarray(index)]

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        ct = np.asarray(ct)
        back = np.zeros(ctx.size, ct.dtype)
        np.add.at(back, np.asarray(ctx.index), ct)
        return back, None


@right(X)
class FloatMask(Function):
    """Its second output is a number that depends on x, and is declared to have no derivative."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x * 3.0, x / 2.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, ct: Any, _: Any) -> Any:
        return ct * 3.0


@right(X)
class OpaqueFloatMask(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = np.asarray(x)
        scale = np.abs(x).max()
        ctx.mark_non_differentiable(rounded := np.asarray(scale))
        return 3.0 * x, rounded

    @staticmethod
    def backward(ctx: Any, ct: Any, _: Any) -> Any:
        return 3.0 * np.asarray(ct)


@right(X)
class Unmaterialized(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return 2.0 * x, 3.0 * x

    @staticmethod
    def backward(ctx: Any, one: Any, other: Any) -> Any:
        total = None
        for factor, ct in ((2.0, one), (3.0, other)):
            if ct is not None:
                total = factor * ct if total is None else total + factor * ct
        return total


@right(X)
class UnmaterializedOne(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return 2.0 * x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return None if ct is None else 2.0 * ct


@right(X)
class ExpDirty(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        x = np.asarray(x)
        np.exp(x, out=x)
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (out,) = ctx.saved_tensors
        return ct * out


@right(Z)
class ComplexSquare(Function):
    @staticmethod
    def forward(ctx: Any, z: Any) -> Any:
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (z,) = ctx.saved_tensors
        return 2 * fnp.conj(z) * ct


@right(Z)
class OpaqueComplexAbs(Function):
    @staticmethod
    def forward(ctx: Any, z: Any) -> Any:
        z = np.asarray(z)
        ctx.sign = z / np.abs(z)
        return np.abs(z)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return np.asarray(ctx.sign) * np.asarray(ct)


@right(X.astype(np.float32))
class SingleOnly(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype != np.float32:
            raise TypeError("the kernel takes float32")
        ctx.x = x
        return x * np.sin(x)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, ct = np.asarray(ctx.x), np.asarray(ct)
        return ct * (np.sin(x) + x * np.cos(x))


@right(X)
class SingleInside(Function):
    """Takes and returns double precision, and computes in single."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x
        return np.sin(np.asarray(x, np.float32)).astype(np.asarray(x).dtype)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        slope = np.cos(np.asarray(ctx.x, np.float32))
        return (slope * np.asarray(ct, np.float32)).astype(np.asarray(ct).dtype)


@right(X)
class DoubleOnly(Function):
    """Computes in double precision whatever it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x
        return np.exp(np.asarray(x, np.float64))

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return np.exp(np.asarray(ctx.x, np.float64)) * np.asarray(ct)


@right(V)
class JvpOnly(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        return fnp.tanh(x)

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (x,) = ctx.saved_tensors
        return tangent * (1 - fnp.tanh(x) ** 2)


@right(A, V)
class Both(Function):
    @staticmethod
    def forward(ctx: Any, a: Any, x: Any) -> Any:
        ctx.save_for_backward(a, x)
        ctx.save_for_forward(a, x)
        return a @ x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        a, x = ctx.saved_tensors
        return fnp.outer(ct, x), a.T @ ct

    @staticmethod
    def jvp(ctx: Any, da: Any, dx: Any) -> Any:
        a, x = ctx.saved_tensors
        total = 0.0
        if da is not None:
            total = total + da @ x
        if dx is not None:
            total = total + a @ dx
        return total


@right(A)
class CumsumWithVmap(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.cumsum(x, axis=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return fnp.flip(fnp.cumsum(fnp.flip(ct, axis=-1), axis=-1), axis=-1)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return CumsumWithVmap.apply(fnp.moveaxis(x, in_dims[0], 0)), 0


@right({"w": A, "n": 3}, V)
class Trees(Function):
    @staticmethod
    def forward(ctx: Any, params: Any, x: Any) -> Any:
        ctx.w, ctx.x, ctx.n = params["w"], x, params["n"]
        return {"y": params["n"] * (params["w"] @ x)}

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        ct = ct["y"] if isinstance(ct, dict) else ct
        return {"w": ctx.n * fnp.outer(ct, ctx.x), "n": None}, ctx.n * (ctx.w.T @ ct)


@right(A, "sum", 0)
class StaticArguments(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, how: str, axis: int) -> Any:
        ctx.shape, ctx.axis = x.shape, axis
        assert how == "sum"
        return x.sum(axis)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return fnp.broadcast_to(fnp.expand_dims(ct, ctx.axis), ctx.shape), None, None


@right(np.linspace(0.0, 1.0, 9) ** 2, np.array([1.0, -2.0, 1.5]))
class OpaqueConvolution(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.x, ctx.w = x, w
        return np.correlate(np.asarray(x), np.asarray(w), "valid")

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        x, w, ct = np.asarray(ctx.x), np.asarray(ctx.w), np.asarray(ct)
        return np.convolve(ct, w, "full"), np.correlate(x, ct, "valid")


@right(np.array([0.5, 1.5, 4.0]))
class OpaqueGamma(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return scipy.special.gammaln(np.asarray(x))

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return Digamma.apply(x) * ct


class Digamma(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return scipy.special.digamma(np.asarray(x))

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        x, ct = np.asarray(x), np.asarray(ct)
        return (scipy.special.polygamma(1, x) * ct).astype(ct.dtype)


@right(np.array([1e-30, 1e-5, 1.0, 1e5, 1e30]))
class IllScaled(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return 1.0 / x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return -ct / x / x


@right(A)
class InPlaceInside(Function):
    """Writes to arrays of its own, which is no side effect."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = np.array(x)
        out *= 2
        return out

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        back = np.array(ct)
        back *= 2
        return back


@right(X)
class NoGradient(Function):
    """An argument for which None is returned has no gradient, and the result is constant in it."""

    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.floor(x * 10)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return None


# ------------------------------------------------------------------------------- decorators

RIGHT["custom_vjp"] = (
    with_vjp(
        lambda x: fnp.log(1.0 + fnp.exp(x)),
        lambda x: (fnp.log(1.0 + fnp.exp(x)), x),
        lambda x, ct: (ct * fnp.sigmoid(x),),
        "log1pexp",
    ),
    (X,),
)
host_hypot = external(lambda x, y: np.hypot(x, y), lambda x, y: x, vmap_method="broadcast_all")
RIGHT["custom_vjp of an external call"] = (
    with_vjp(
        lambda x, y: host_hypot(x, y),
        lambda x, y: ((out := host_hypot(x, y)), (x, y, out)),
        lambda res, ct: (res[0] / res[2] * ct, res[1] / res[2] * ct),
        "hypot",
    ),
    (X, X[::-1] + 0.5),
)
RIGHT["custom_vjp with a None"] = (
    with_vjp(
        lambda x, n: x * n,
        lambda x, n: (x * n, n),
        lambda n, ct: (ct * n, None),
        "times",
    ),
    (X, np.arange(5)),
)
RIGHT["custom_vjp of a pair"] = (
    with_vjp(
        lambda x: (fnp.sin(x), fnp.argmax(x)),
        lambda x: ((fnp.sin(x), fnp.argmax(x)), x),
        lambda x, ct: (ct[0] * fnp.cos(x),),
        "pair",
    ),
    (X,),
)


@right(X, X[::-1] + 0.5)
@custom_jvp
def x_sin_y(x: Any, y: Any) -> Any:
    return x * fnp.sin(y)


x_sin_y.defjvps(lambda t, out, x, y: t * fnp.sin(y), lambda t, out, x, y: x * fnp.cos(y) * t)


@right(A)
@custom_vmap
def total(x: Any) -> Any:
    return fnp.cumsum(x, axis=0)


@total.def_vmap
def total_many(axis_size: int, in_batched: Any, x: Any) -> Any:
    return fnp.cumsum(x, axis=1), True


RIGHT["external"] = external(np.sort, lambda x: x, vmap_method="broadcast_all"), (X,)
RIGHT["external in a loop"] = (
    external(lambda x: np.sin(x), lambda x: x, vmap_method="sequential"),
    (A,),
)

host_cos = external(lambda x: np.cos(x), lambda x: x, vmap_method="broadcast_all")
RIGHT["external with a rule"] = (
    external(
        lambda x: np.sin(x),
        lambda x: x,
        vmap_method="broadcast_all",
        vjp=lambda primals, out, ct: (host_cos(primals[0]) * ct,),
    ),
    (A,),
)


@right(X)
class ScalesInPlace(Function):
    """Writes to its cotangent, which is traced, and so another name for another value."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        ct *= 2.0
        return ct
