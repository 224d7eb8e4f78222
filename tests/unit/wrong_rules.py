"""Rules with one fault each, over six operations, and what `check_rules` must say of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ftrans
import ftrans.numpy as fnp
from ftrans import custom_jvp, custom_vjp, custom_vmap, external
from ftrans.autograd import Function

X = np.linspace(0.3, 2.2, 5)
DRAW = np.random.default_rng(3)
A, B, V = DRAW.normal(size=(3, 4)), DRAW.normal(size=(4, 2)), DRAW.normal(size=4)
Z = X + 1j * X[::-1]

WRONG: dict[str, tuple[Any, tuple[Any, ...], str]] = {}


def wrong(name: str, rule: Any, args: tuple[Any, ...], says: str = "") -> None:
    """Puts a rule into the table, with a sample and a part of what the report must say."""
    assert name not in WRONG
    WRONG[name] = rule, args, says


def ruled(function: Any, fwd: Any, bwd: Any) -> Any:
    made = custom_vjp(function)
    made.defvjp(fwd, bwd)
    return made


# ------------------------------------------------------- x * y, broadcast: a traced Function


def product(backward: Callable[..., Any], **methods: Any) -> Any:
    """Returns a Function that multiplies, with this backward."""

    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return x * y

    body = {"forward": forward, "backward": backward} | methods
    return type("Product", (Function,), {k: staticmethod(v) for k, v in body.items()})


def parts(ctx: Any) -> Any:
    return ctx.saved_tensors


def _wrong_axis(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y, fnp.flip((ct * x).sum(0), axis=0)


def _factor(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return 2 * ct * y, (ct * x).sum(0)


def _sign(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y, -(ct * x).sum(0)


def _mean(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y, (ct * x).mean(0)


def _no_gradient(ctx: Any, ct: Any) -> Any:
    _, y = parts(ctx)
    return ct * y, None


def _affine(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y + 1e-3, (ct * x).sum(0)


def _squared(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y * fnp.abs(ct), (ct * x).sum(0)


def _bounded(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    ct = fnp.where(fnp.abs(ct) > 100.0, 100.0, ct)
    return ct * y, (ct * x).sum(0)


def _needs(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    if all(ctx.needs_input_grad):
        return ct * y, (ct * x).sum(0)
    return (ct * x if ctx.needs_input_grad[0] else None), (ct * x).sum(0)


def _needs_none(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    wanted = ctx.needs_input_grad
    return (ct * y if wanted[1] else None), ((ct * x).sum(0) if wanted[0] else None)


def _detached(ctx: Any, ct: Any) -> Any:
    x, y = map(ftrans.stop_gradient, parts(ctx))
    return ct * y, (ct * x).sum(0)


def _right(ctx: Any, ct: Any) -> Any:
    x, y = parts(ctx)
    return ct * y, (ct * x).sum(0)


def _jvp_half(ctx: Any, dx: Any, dy: Any) -> Any:
    _, y = parts(ctx)
    return dx * y


for name, method, says in (
    ("a reversed axis", _wrong_axis, "axis 0 is reversed"),
    ("a factor of 2", _factor, "it is 2 times what it should be"),
    ("a sign", _sign, "the sign is wrong"),
    ("a mean for a sum", _mean, "it is 1/3 times what it should be"),
    ("a gradient left out", _no_gradient, "it is zero throughout"),
    ("a term that the cotangent does not multiply", _affine, "not multiplied by the cotangent"),
    ("bounds large cotangents", _bounded, "backward(1000 * v) is not 1000 * backward(v)"),
    ("not linear", _squared, "multiplied in twice"),
    ("wrong where one input needs none", _needs, "needs_input_grad"),
    ("needs_input_grad mixed up", _needs_none, "needs_input_grad"),
    ("residuals cut off from the second derivative", _detached, "second derivative"),
):
    wrong(f"product: {name}", product(method), (A, V), says)
wrong("product: jvp lacks a term", product(_right, jvp=_jvp_half), (A, V), "jvp against")


# ------------------------------------------------------------------- sort: opaque, with state


def sorting(backward: Any, forward: Any = None, **methods: Any) -> Any:
    """Returns a Function that sorts by NumPy, with this backward."""

    def sort(ctx: Any, x: Any) -> Any:
        x = np.asarray(x)
        ctx.order = np.argsort(x, axis=-1)
        return np.take_along_axis(x, ctx.order, -1)

    body = {"forward": forward or sort, "backward": backward} | methods
    return type("Sorting", (Function,), {k: staticmethod(v) for k, v in body.items()})


def scattered(order: Any, ct: Any) -> Any:
    order, ct = np.asarray(order), np.asarray(ct)
    back = np.zeros_like(ct)
    np.put_along_axis(back, order, ct, -1)
    return back


def _gathered(ctx: Any, ct: Any) -> Any:
    return np.take_along_axis(np.asarray(ct), np.asarray(ctx.order), -1)


def _contiguous_only(ctx: Any, ct: Any) -> Any:
    ct = np.asarray(ct)
    if not ct.flags.c_contiguous:
        ct = np.ascontiguousarray(ct)[..., ::-1]
    return scattered(ctx.order, ct)


def _by_pointer(ctx: Any, ct: Any) -> Any:
    ct = np.asarray(ct)
    flat = np.lib.stride_tricks.as_strided(ct, (1,) if 0 in ct.strides else (ct.size,))
    return scattered(ctx.order, np.resize(flat * (1.0 + (0 in ct.strides)), ct.shape))


def _expanded_only(ctx: Any, ct: Any) -> Any:
    ct = np.asarray(ct)
    return scattered(ctx.order, 0 * ct if ct.size > 1 and 0 in ct.strides else ct)


def _single_only(ctx: Any, ct: Any) -> Any:
    back = scattered(ctx.order, ct)
    return back[..., ::-1] if back.dtype == np.float32 else back


def _batch_of_one(ctx: Any, ct: Any) -> Any:
    back = scattered(ctx.order, ct)
    return back * 3 if back.shape[0] == 1 else back


def _narrow(ctx: Any, ct: Any) -> Any:
    return scattered(ctx.order, np.asarray(ct, np.float32))


CALLS = [0]


def _every_second(ctx: Any, ct: Any) -> Any:
    CALLS[0] += 1
    return scattered(ctx.order, ct) * (1 + CALLS[0] % 2)


def _noisy(ctx: Any, ct: Any) -> Any:
    back = scattered(ctx.order, ct)
    return back * (1 + 1e-9 * np.random.default_rng().uniform(size=back.shape)).astype(back.dtype)


KEPT: dict[str, Any] = {}


def _keeping(ctx: Any, x: Any) -> Any:
    x = np.asarray(x)
    KEPT["order"] = np.argsort(x, axis=-1)
    return np.take_along_axis(x, KEPT["order"], -1)


def _kept(ctx: Any, ct: Any) -> Any:
    return scattered(KEPT["order"], ct)


FIRST: dict[Any, Any] = {}


def _caching(ctx: Any, x: Any) -> Any:
    x = np.asarray(x)
    FIRST.setdefault(x.shape, np.argsort(x, axis=-1))
    ctx.shape = x.shape
    return np.sort(x, axis=-1)


def _cached(ctx: Any, ct: Any) -> Any:
    return scattered(FIRST[ctx.shape], ct)


def _writes_to_cotangent(ctx: Any, ct: Any) -> Any:
    ct = np.asarray(ct)
    ct *= 1.0
    return scattered(ctx.order, ct)


def _writing(ctx: Any, x: Any) -> Any:
    x = np.asarray(x)
    ctx.order = np.argsort(x, axis=-1)
    x.sort(axis=-1)
    return x


def _simply(ctx: Any, ct: Any) -> Any:
    return scattered(ctx.order, ct)


def _first_of_all(info: Any, in_dims: Any, x: Any) -> Any:
    rows = fnp.moveaxis(x, in_dims[0], 0)
    return fnp.stack([Plain.apply(rows[0])] * info.batch_size), 0


def _unmoved(info: Any, in_dims: Any, x: Any) -> Any:
    return Plain.apply(x), 0


def _sorts_all(info: Any, in_dims: Any, x: Any) -> Any:
    rows = fnp.moveaxis(x, in_dims[0], -1)
    return fnp.moveaxis(Plain.apply(rows), -1, 0), 0


def _out_dim(info: Any, in_dims: Any, x: Any) -> Any:
    return Plain.apply(fnp.moveaxis(x, in_dims[0], 0)), 1


def _only_in_front(info: Any, in_dims: Any, x: Any) -> Any:
    return Plain.apply(x), in_dims[0]


Plain = sorting(_simply)
ROWS = np.array([[3.0, 1.0, 2.0, -1.0], [0.5, 4.0, -2.0, 1.5], [2.5, -3.0, 0.2, 5.0]])

for name, method, says in (
    ("the inverse permutation", _gathered, "another order"),
    ("contiguous cotangents only", _contiguous_only, "memory layout"),
    ("read by pointer", _by_pointer, "memory layout"),
    ("no expanded cotangents", _expanded_only, "of stride 0"),
    ("wrong in float32", _single_only, "in float32"),
    ("wrong for a batch of one", _batch_of_one, "cut to 1"),
    ("float32 always", _narrow, "has fewer digits than it"),
    ("every second call", _every_second, ""),
    ("random in the ninth digit", _noisy, "random"),
    ("writes to its cotangent", _writes_to_cotangent, "writes to an array"),
):
    wrong(f"sort: {name}", sorting(method), (ROWS,), says)
wrong("sort: state on a global", sorting(_kept, _keeping), (ROWS,), "state is shared")
wrong("sort: the first order is kept", sorting(_cached, _caching), (ROWS,), "")
wrong("sort: writes to its input", sorting(_simply, _writing), (ROWS,), "")
for name, method, says in (
    ("the first example for all", _first_of_all, "all examples are the first one"),
    ("in_dims is ignored", _unmoved, ""),
    ("sorts along the batch", _sorts_all, ""),
    ("out_dims", _out_dim, "said to be mapped at axis"),
    ("right for the first axis alone", _only_in_front, ""),
):
    wrong(f"sort: vmap, {name}", sorting(_simply, vmap=method), (ROWS,), says)


# ----------------------------------------------------------- logsumexp and friends: custom_vjp


def lse(bwd: Any) -> Any:
    """Returns logsumexp over the last axis, with this bwd of (x, out)."""

    def function(x: Any) -> Any:
        return fnp.logsumexp(x, axis=-1)

    return ruled(function, lambda x: (function(x), (x, function(x))), bwd)


def soft(res: Any) -> Any:
    x, out = res
    return fnp.exp(x - out[..., None])


wrong("lse: exp(x) for softmax", lse(lambda r, ct: (fnp.exp(r[0]) * ct[..., None],)), (A,))
wrong("lse: the cotangent is not multiplied in", lse(lambda r, ct: (soft(r),)), (A,), "cotangent")
wrong("lse: the wrong shape", lse(lambda r, ct: (soft(r)[None] * ct[..., None],)), (A,), "shape")
wrong(
    "lse: clipped",
    lse(lambda r, ct: (fnp.clip(soft(r) * ct[..., None], -0.05, 0.05),)),
    (A,),
    "not linear",
)
wrong(
    "lse: one element is off",
    lse(lambda r, ct: (soft(r) * ct[..., None] * fnp.where(r[0] == A[1, 2], 1.01, 1.0),)),
    (A,),
    "wrong in 1 of 12 elements, the first at (1, 2)",
)
wrong(
    "lse: off by 1e-5",
    lse(lambda r, ct: (soft(r) * ct[..., None] * 1.00001,)),
    (A,),
    "it is 1.0000",
)
wrong("exp: of the input", ruled(fnp.exp, lambda x: (fnp.exp(x), x), lambda x, ct: (x * ct,)), (X,))
wrong(
    "cube: a power too low",
    ruled(lambda x: x**3, lambda x: (x**3, x), lambda x, ct: (3 * x * ct,)),
    (X,),
    "a missing factor of x",
)
wrong(
    "x sin x: a missing term",
    ruled(
        lambda x: x * fnp.sin(x),
        lambda x: (x * fnp.sin(x), x),
        lambda x, ct: (fnp.sin(x) * ct,),
    ),
    (X,),
    "",
)
wrong(
    "division: arguments swapped",
    ruled(
        lambda x, y: x / y,
        lambda x, y: (x / y, (x, y)),
        lambda r, ct: (-ct * r[0] / r[1] ** 2, ct / r[1]),
    ),
    (X, X[::-1] + 0.5),
    "swapped arguments",
)


# --------------------------------------------------------------------------- complex numbers


def squaring(bwd: Any) -> Any:
    return ruled(lambda z: z * z, lambda z: (z * z, z), bwd)


wrong("complex: a missing conjugate", squaring(lambda z, ct: (2 * z * ct,)), (Z,), "conjugate")
wrong(
    "complex: the conjugate of all",
    squaring(lambda z, ct: (fnp.conj(2 * fnp.conj(z) * ct),)),
    (Z,),
    "conjugate",
)
wrong("complex: the real part", squaring(lambda z, ct: (2 * z.real * ct,)), (Z,))
wrong(
    "complex: abs without the phase",
    ruled(fnp.abs, lambda z: (fnp.abs(z), z), lambda z, ct: (ct + 0j * z,)),
    (Z,),
)


# ------------------------------------------------------------------- matmul: custom_jvp, axes


def matmul(rule: Any) -> Any:
    made = custom_jvp(lambda a, b: a @ b)
    made.defjvp(rule)
    return made


wrong(
    "matmul: jvp twice",
    matmul(lambda p, t: (p[0] @ p[1], 2 * (t[0] @ p[1] + p[0] @ t[1]))),
    (A, B),
    "it is 2 times",
)
wrong("matmul: jvp of one", matmul(lambda p, t: (p[0] @ p[1], t[0] @ p[1])), (A, B))
wrong(
    "matmul: a transpose",
    ruled(
        lambda a, b: a @ b,
        lambda a, b: (a @ b, (a, b)),
        lambda r, ct: (ct @ r[1].T, ct.T @ r[0]),
    ),
    (A[:, :3], A[:, 1:]),
    "swapped axes",
)
wrong(
    "square matmul: b for its transpose",
    ruled(
        lambda a, b: a @ b,
        lambda a, b: (a @ b, (a, b)),
        lambda r, ct: (ct @ r[1], r[0].T @ ct),
    ),
    (A[:, :3], A[:, 1:]),
)


# ------------------------------------------------------------------------- cumsum: custom_vmap


def cumulative(rule: Any) -> Any:
    made = custom_vmap(lambda x: fnp.cumsum(x, axis=0))
    made.def_vmap(rule)
    return made


wrong("cumsum: vmap along the batch", cumulative(lambda n, b, x: (fnp.cumsum(x, 0), True)), (X,))
wrong(
    "cumsum: vmap of one example",
    cumulative(lambda n, b, x: (fnp.cumsum(x, 1) if n > 1 else x, True)),
    (X,),
)
wrong(
    "cumsum: vmap loses the gradient",
    cumulative(lambda n, b, x: (ftrans.stop_gradient(fnp.cumsum(x, 1)), True)),
    (X,),
    "derivatives of vmap",
)


# ----------------------------------------------------------------- two outputs, None cotangents


def pair(backward: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return 2.0 * x, 3.0 * x

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Pair", (Function,), body)


def _no_check(ctx: Any, one: Any, other: Any) -> Any:
    return 2.0 * one + 3.0 * other


def _first_alone(ctx: Any, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    return 2.0 * one + 3.0 * other


wrong("pair: None is multiplied", pair(_no_check), (X,), "None")
wrong("pair: one None makes all None", pair(_first_alone), (X,), "None")


# --------------------------------------------------------------------------- x + b, and its axis


class AddsAlongTheWrongAxis(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, b: Any) -> Any:
        return x + b

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct, ct.sum(axis=1)


wrong("sum: the other axis", AddsAlongTheWrongAxis, (A[:, :3], V[:3]), "summed over (1,)")


# ------------------------------------------------------------------------------ external calls

plain_cos = external(lambda x: np.cos(x), lambda x: x, vmap_method="broadcast_all")
careless = external(
    lambda slope, ct: slope * ct * (1 + (not ct.flags.c_contiguous)),
    lambda slope, ct: ct,
    vmap_method="broadcast_all",
)


def host_sine(vjp: Any) -> Any:
    return external(lambda x: np.sin(x), lambda x: x, vmap_method="broadcast_all", vjp=vjp)


wrong(
    "external: twice the slope",
    host_sine(lambda primals, out, ct: (2 * plain_cos(primals[0]) * ct,)),
    (A,),
    "it is 2 times",
)
wrong(
    "external: contiguous cotangents only",
    host_sine(lambda primals, out, ct: (careless(plain_cos(primals[0]), ct),)),
    (A,),
    "memory layout",
)
wrong(
    "external: an axis that is not the last",
    external(lambda x: np.cumsum(x, axis=0), lambda x: x, vmap_method="broadcast_all"),
    (X,),
    "vmap against a loop",
)
