"""Bad input, and what it gets: the full text of every message, its class, and no state left.

The texts stand in `error_messages.txt`, by the names of the cases, with the source line of a place
in its place. `python -m tests.test_errors` writes them anew; read what changed.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import math
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special

import ftrans
import ftrans.numpy as fnp
import ftrans.scipy.linalg
import ftrans.torch as torch
from ftrans import autograd, errors, func
from ftrans.autograd import Function, gradcheck, gradgradcheck, graph, profiler
from ftrans.autograd import forward_ad as ad
from ftrans.errors import FtransError, ShapeError
from ftrans.ir import is_tracing
from ftrans.runtime import guard
from tests.helpers import assert_close

V = np.array([1.0, 2.0, 3.0])
M = np.ones((3, 4))
F32 = np.ones(3, np.float32)
KEYS = ftrans.random.split(ftrans.random.key(0), 3)
RNG = ftrans.random.default_rng(0)
LEAKED: list[Any] = []


@dataclass
class Pair:
    """Is known to JAX as no pytree."""

    w: Any
    b: Any


CASES: dict[str, Callable[[], Any]] = {}


def bad(function: Callable[[], Any]) -> None:
    """Puts a function that fails into the table; the line at fault is marked `# here`."""
    CASES[function.__name__.replace("_", " ")] = function


def square(x: Any) -> Any:
    return x**2


def total(x: Any) -> Any:
    return (x**2).sum()


# ------------------------------------------------------------------------------------- func.grad

CASES |= {
    "grad of a vector": lambda: func.grad(square)(V),
    "grad of a tuple": lambda: func.grad(lambda x: (x.sum(), x))(V),
    "grad of nothing": lambda: func.grad(lambda x: None)(V),
    "grad of a complex value": lambda: func.grad(lambda x: x * 1j)(2.0),
    "grad of an integer": lambda: func.grad(lambda x: x.argmax())(V),
    "has aux without aux": lambda: func.grad(total, has_aux=True)(V),
    "grad at an integer array": lambda: func.grad(square)(np.arange(3)),
    "grad at a python integer": lambda: func.grad(square)(3),
    "grad at an integer in a pytree": lambda: func.grad(
        lambda params, x: params["w"][0].sum(), argnums=0
    )({"w": [np.arange(3)]}, V),
    "grad at a string": lambda: func.grad(lambda *names: names[1], argnums=1)(V, "abc"),
    "grad at a dataclass": lambda: func.grad(lambda p: (p.w**2).sum())(Pair(V, 1.0)),
    "grad at a dataclass in a pytree": lambda: func.grad(lambda p: p["pair"].b)(
        {"pair": Pair(V, 1.0)}
    ),
    "vmap of a dataclass": lambda: func.vmap(lambda p, x: p.b * x)(Pair(V, 1.0), V),
    "vmap that returns a dataclass": lambda: func.vmap(lambda x: Pair(x, x))(V),
    "carry that is a dataclass": lambda: ftrans.scan(lambda c, x: (c, x), Pair(V, 1.0), V),
    "argnums out of range": lambda: func.grad(square, argnums=1)(V),
    "argnums of a name": lambda: func.grad(square, argnums="x")(V),
    "argnums twice": lambda: func.grad(square, argnums=(0, 0))(V),
    "hessian chunk size zero": lambda: func.hessian(total, chunk_size=0),
    "jacobian of complex numbers": lambda: func.jacrev(square)(V * 1j),
    "jacobian of an index": lambda: func.jacfwd(lambda x: {"value": x, "best": x.argmax()})(V),
    "hvp shape": lambda: func.hvp(total, V, np.ones(4)),
    "vhp structure": lambda: func.vhp(lambda p: p["w"].sum(), {"w": V}, {"v": V}),
}

# ------------------------------------------------------------------------------------------ places

MESH = jax.make_mesh((1,), ("data",))
ROWS = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("data"))
ALONE = jax.sharding.PartitionSpec("batch")


@bad
def spec_on_another_mesh():
    def loss(x):
        return (ftrans.with_sharding_constraint(x, ALONE) ** 2).sum()  # here

    with jax.set_mesh(MESH):
        return func.grad(loss)(V)


def indivisible(x: Any) -> Any:
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    return ftrans.with_sharding_constraint({"x": x}, rows)["x"].sum()


CASES |= {
    "spec without a mesh": lambda: ftrans.reshard(V, ALONE),
    "sharding of more axes": lambda: ftrans.device_put(V[0], ROWS),
    "sharding that does not divide": lambda: func.grad(indivisible)(V),
    "sharding that is a device": lambda: ftrans.with_sharding_constraint(V, jax.devices()[0]),
    "shardings of another structure": lambda: ftrans.device_put({"w": V}, {"b": ROWS}),
    "spmd axis twice": lambda: func.vmap(
        lambda x: ftrans.with_sharding_constraint(x, ROWS), spmd_axis_name="data"
    )(M),
}


def writes(y: Any) -> Any:
    y[0] = 3.0
    return y.sum()


POLICIES = func.checkpoint_policies
CASES |= {
    "policy that is none": lambda: func.checkpoint(square, policy="dots"),  # type: ignore
    "policy of JAX without a counterpart": lambda: func.checkpoint(
        square,
        policy=jax.checkpoint_policies.save_from_both_policies(*[lambda *_, **__: True] * 2),
    ),
    "policy that saves in another memory": lambda: POLICIES.offload_dot_with_no_batch_dims(
        "device", "unpinned_host"
    ),
    "policy that saves a name twice": lambda: POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=["x", "y"], names_which_can_be_offloaded=["x"]
    ),
    "static argnums that are none": lambda: func.checkpoint(square, static_argnums="x"),  # type: ignore
    "name that is none": lambda: func.checkpoint_name(V, 3),  # type: ignore
    "name of a policy that is none": lambda: POLICIES.save_only_these_names("x", 1),  # type: ignore
    "both policies of which one is none": lambda: POLICIES.save_from_both_policies(
        POLICIES.dots_saveable,
        "x",  # type: ignore
    ),
    "budget that is none": lambda: func.grad(square, memory="lots"),
    "budget below zero": lambda: func.value_and_grad(square, memory=-3),
    "budget that is a bool": lambda: func.grad_and_value(square, memory=True),
    "budget that is too small": lambda: func.grad(
        lambda x: (ftrans.numpy.sin(x @ x) @ x).sum(), memory=1
    )(np.ones((20, 20), np.float32)),
    "checkpoint that writes to an argument": lambda: func.grad(
        lambda x: func.checkpoint(writes)(x * 2)
    )(V),
    "checkpoint that writes to an argument by name": lambda: func.grad(
        lambda x: func.checkpoint(writes)(y=x * 2)
    )(V),
}

# ------------------------------------------------------------------------------------- func.vmap

CASES |= {
    "mapped sizes differ": lambda: func.vmap(lambda weights, batch: weights @ batch)(
        M, np.ones((5, 4))
    ),
    "mapped sizes differ in a pytree": lambda: func.vmap(lambda params, *rest: params["w"])(
        {"b": V, "w": [V, np.ones(4)]}, V
    ),
    "in dims of another length": lambda: func.vmap(lambda x, y: x, in_dims=(0,))(V, V),
    "in dims as a list": lambda: func.vmap(lambda x, y: x, in_dims=[0, None])(V, V),
    "in dims of another structure": lambda: func.vmap(lambda p, x: x, in_dims=({"w": 0}, 0))(
        {"v": V}, V
    ),
    "in dims that is no axis": lambda: func.vmap(lambda p, x: x, in_dims=({"w": 0.5}, 0))(
        {"w": V}, V
    ),
    "in dims out of range": lambda: func.vmap(square, in_dims=2)(M),
    "in dims of a scalar": lambda: func.vmap(lambda x, y: x * y)(V, np.float64(2.0)),
    "in dims of a python scalar": lambda: func.vmap(lambda x, y: x * y)(V, 2.0),
    "nothing mapped": lambda: func.vmap(lambda x, y: x, in_dims=(None, None))(V, M),
    "no positional argument": lambda: func.vmap(square)(x=V),
    "axis size that does not fit": lambda: func.vmap(square, axis_size=4)(V),
    "chunk size zero": lambda: func.vmap(square, chunk_size=0),
    "out dims out of range": lambda: func.vmap(lambda x: (x, x), out_dims=(0, 1))(V),
    "out dims of another structure": lambda: func.vmap(lambda x: {"a": x}, out_dims=(0, 0))(V),
    "out dims none for a mapped result": lambda: func.vmap(square, out_dims=None)(V),
}

# ------------------------------------------------------------------------ tangents and cotangents

CASES |= {
    "tangent structure": lambda: func.jvp(lambda p: p["w"].sum(), ({"w": V},), ({"v": V},)),
    "tangent shape": lambda: func.jvp(lambda p: p["w"].sum(), ({"w": V},), ({"w": np.ones(4)},)),
    "tangent dtype": lambda: func.jvp(lambda p: p["w"].sum(), ({"w": V},), ({"w": F32},)),
    "tangent that is no array": lambda: func.jvp(total, (V,), ("abc",)),
    "tangents without a tuple": lambda: func.jvp(total, (V,), V),
    "a tangent for integers": lambda: func.jvp(lambda x: x * 2, (np.arange(3),), (np.ones(3),)),
    "the bytes of an array in another order": lambda: func.grad(total)(np.ones(3, ">f8")),
    "more tangents than primals": lambda: func.linearize(total, V)[1](V, V),
    "strict without dependence": lambda: func.jvp(
        lambda x: (x, fnp.zeros(3)), (V,), (V,), strict=True
    ),
    "cotangent structure": lambda: func.vjp(lambda x: {"a": x, "b": x}, V)[1]({"a": V}),
    "cotangent shape": lambda: func.vjp(square, V)[1](np.ones(4)),
    "cotangent dtype": lambda: func.vjp(lambda x: {"a": x, "b": x}, V)[1]({"a": V, "b": F32}),
    "pullback without a cotangent": lambda: func.vjp(square, V)[1](),
    "vjp of a string": lambda: func.vjp(lambda x: {"value": x, "names": ["a"]}, V),
    "transposed shape": lambda: func.linear_transpose(lambda x: 2 * x, V)(np.ones(4)),
}

# -------------------------------------------------------------------- values that are not there

CASES |= {
    "bool of an argument": lambda: func.vmap(lambda x: 1.0 if x else 2.0)(V > 0),
    "bool under jit": lambda: ftrans.jit(lambda x: x if x > 0 else -x)(1.0),
    "bool of a type": lambda: ftrans.trace(lambda x: x if x > 0 else -x)(
        ftrans.ArrayType((), "float32")
    ),
    "float under vmap": lambda: func.vmap(lambda x: math.sin(x))(V),
    "range under vmap": lambda: func.vmap(lambda n: [0.0 for _ in range(n)])(np.arange(3)),
    "mask under vmap": lambda: func.vmap(lambda x: x[x > 0])(M),
    "bool of a vector": lambda: func.grad(lambda x: x.sum() if x > 0 else 0.0)(V),
    "asarray under vmap": lambda: func.vmap(lambda x: np.asarray(x))(V),
    "function that is not there": lambda: func.grad(lambda x: np.real_if_close(x).sum())(V),
    "function of ours that takes no traced values": lambda: fnp.nditer(V),
    "singular matrix": lambda: fnp.linalg.solve(np.ones((2, 2)), np.ones(2)),
    "matrix that is not positive definite": lambda: fnp.linalg.cholesky(
        np.stack([np.eye(2), np.diag([1.0, -1.0])])
    ),
    "matrix that is masked": lambda: fnp.cov(np.ma.masked_array(V, [False, True, False])),
    "eight bits": lambda: fnp.add(fnp.ones(3, fnp.float8_e5m2), V),
    "signature of vectorize": lambda: fnp.vectorize(np.dot, signature="n->n")(V),
    "sizes of vectorize": lambda: fnp.vectorize(np.dot, signature="(n),(n)->()")(V, V[:2]),
    "function that PyTorch spells so": lambda: fnp.cat([V, V]),
    "random numbers": lambda: fnp.randn(3),
    "numbers drawn by a traced scale": lambda: func.grad(
        lambda s: np.random.default_rng(0).normal(0.0, s, size=3).sum()
    )(1.0),
    "option of jit": lambda: ftrans.jit(lambda x, training: x if training else -x)(1.0, True),
    "gradients that are required": lambda: func.grad(lambda x: x.requires_grad_(True))(1.0),
    "function that nobody has": lambda: func.grad(lambda x: scipy.special.jv(0, x))(1.0),
    "method of a ufunc that nobody has": lambda: func.grad(lambda x: np.hypot.accumulate(x).sum())(
        V
    ),
    "hash": lambda: func.grad(lambda x: {x: 1}[x])(1.0),
    "array of a list": lambda: func.grad(lambda t: np.array([[t, 2 * t], [t, t]]).sum())(1.0),
    "array of a list under vmap": lambda: func.vmap(lambda t: np.array([t, 2 * t]))(V),
    "array of a name": lambda: func.grad(lambda t: np.array(t).sum())(1.0),
    "mean of a list": lambda: func.grad(lambda t: np.mean([t, 2 * t]))(1.0),
    "array full of a value": lambda: func.grad(lambda t: np.full(3, t).sum())(1.0),
    "values joined in brackets": lambda: func.grad(lambda t: np.r_[t, 2 * t].sum())(1.0),
    "table that is closed over": lambda: func.vmap(lambda t: M[:, t])(np.arange(2)),
    "table that is closed over in a loop": lambda: ftrans.scan(
        lambda c, t: (c + M[t, 0], None), 0.0, np.arange(2)
    ),
    "list indexed under jit": lambda: ftrans.jit(lambda t: [1.0, 2.0][t])(1),
    "slice from a traced start": lambda: func.vmap(lambda t: V[t : t + 1])(np.arange(2)),
    "zeros of a traced size": lambda: ftrans.jit(lambda n: fnp.zeros(n))(3),
    "range of a traced size": lambda: func.vmap(lambda n: np.arange(n))(np.arange(3)),
    "method that is not there": lambda: func.grad(lambda x: x.einsum("i->"))(V),
    "pickling": lambda: func.grad(lambda x: pickle.dumps(x))(V),
}


@bad
def bool_under_vmap() -> None:
    def f(x):
        return x if x > 0 else -x  # here

    func.vmap(f)(V)


@bad
def bool_under_grad_under_vmap() -> None:
    def f(x):
        y = x * 2
        return func.grad(lambda z: z if y > z else -z)(x)  # here

    func.vmap(f)(V)


@bad
def bool_in_a_loop() -> None:
    def body(carry, x):
        return (carry if carry > x else x), None  # here

    ftrans.scan(body, np.float64(0), V)


@bad
def asarray_under_grad() -> None:
    def f(x):
        y = x * 2
        return np.asarray(y).sum()  # here

    func.grad(f)(V)


# ----------------------------------------------------------------------------- leaked traced values


@bad
def leaked_from_vmap() -> None:
    func.vmap(lambda x: LEAKED.append(x * 2) or x)(V)
    float(LEAKED[0])  # here


@bad
def leaked_from_jit() -> None:
    ftrans.jit(lambda x: LEAKED.append(x * 2) or x)(V)
    np.asarray(LEAKED[0])  # here


@bad
def leaked_from_scan() -> None:
    ftrans.scan(lambda c, x: LEAKED.append(c * x) or (c, x), 0.0, V)
    LEAKED[0][...] = 0.0  # here


@bad
def leaked_and_returned() -> None:
    def f(x):
        func.vmap(lambda y: LEAKED.append(x * y) or y)(V)
        return LEAKED[0]

    func.grad(f)(2.0)  # here


@bad
def leaked_and_written() -> None:
    func.vmap(lambda x: LEAKED.append(x * 2) or total(x))(M)

    def f(x):
        LEAKED[0][0] = x  # here
        return x

    func.grad(f)(2.0)


@bad
def leaked_into_a_thread() -> None:
    caught = []

    def use(x):
        try:
            x + 1  # here
        except Exception as error:
            caught.append(error)

    def f(x):
        thread = threading.Thread(target=use, args=(x,))
        thread.start()
        thread.join()
        return x

    func.grad(f)(1.0)
    raise caught[0]


# ---------------------------------------------------------------------------------- control flow

CASES |= {
    "gradcheck of a wrong derivative": lambda: gradcheck(lambda x: x + ftrans.stop_gradient(x), V),
    "gradcheck at a kink": lambda: gradcheck(
        lambda x: fnp.where(x > 0, x, 0.0), np.array([1.0, 0.0])
    ),
    "gradcheck where types depend on values": lambda: gradcheck(
        lambda x: fnp.concat([x, x]) if x.sum() >= 6 else x, V
    ),
    "gradcheck where the number of outputs does": lambda: gradcheck(
        lambda x: (x, x) if x.sum() >= 6 else x, V
    ),
    "gradcheck of integers": lambda: gradcheck(square, np.arange(3)),
    "gradcheck of memory that overlaps": lambda: gradcheck(square, np.broadcast_to(1.0, (3,))),
    "gradcheck of nothing": lambda: gradcheck(square, V, check_backward_ad=False),
    "gradgradcheck of nothing": lambda: gradgradcheck(square, V, check_rev_over_rev=False),
    "gradcheck of a class": lambda: gradcheck(Function, V),
    "gradgradcheck with cotangents of something else": lambda: gradgradcheck(square, V, (V, V)),
    "check_rules without a sample": lambda: ftrans.check_rules(square),
    "check_rules that fails": lambda: ftrans.check_rules(
        lambda x: x + ftrans.stop_gradient(x), V
    ).raise_if_failed(),
}

CASES |= {
    "branches of different structure": lambda: ftrans.cond(
        True, lambda x: (x, x), lambda x: [x], V
    ),
    "branches of different shape": lambda: ftrans.cond(
        True, lambda x: {"a": x}, lambda x: {"a": x.sum()}, V
    ),
    "branches of different dtype": lambda: ftrans.switch(
        1, [lambda x: x, lambda x: 2 * x, lambda x: x.astype("int32")], V
    ),
    "branch that returns a string": lambda: ftrans.cond(True, lambda x: "a", lambda x: "b", V),
    "condition that is a vector": lambda: ftrans.cond(V > 0, square, square, V),
    "index that is a fraction": lambda: ftrans.switch(np.float64(1.5), [square, square], V),
    "carry changes its dtype": lambda: ftrans.scan(lambda c, x: (c + x, None), np.float32(0), V),
    "carry of more than came in": lambda: ftrans.scan(
        lambda c, x: ((*c, x), x), (0.0,), np.ones(3)
    ),
    "carry changes its structure": lambda: ftrans.while_loop(
        lambda c: c[0] < 3, lambda c: (*c, c[0]), (1.0,)
    ),
    "carry of a bounded loop": lambda: ftrans.fori_loop(
        0, np.array(3), lambda i, x: fnp.concatenate([x, x]), V
    ),
    "body without a pair": lambda: ftrans.scan(lambda c, x: c + x, 0.0, V),
    "lengths differ": lambda: ftrans.scan(lambda c, x: (c, x), 0.0, {"a": V, "b": np.ones(4)}),
    "length not known": lambda: ftrans.scan(lambda c, x: (c, x), 0.0),
    "loop condition that is a vector": lambda: ftrans.while_loop(
        lambda x: x < 3, lambda x: x + 1, V
    ),
    "bounds that are fractions": lambda: ftrans.fori_loop(0, 2.5, lambda i, x: x, V),
    "reverse mode of an unbounded loop": lambda: func.grad(
        lambda x: ftrans.while_loop(lambda y: y < 10, lambda y: y * x, x)
    )(1.5),
}


@bad
def carry_changes_its_shape() -> None:
    def body(carry, x):
        w, bias = carry["w"]
        return {"w": [fnp.concatenate([w, w[:1]]), bias]}, None

    ftrans.scan(body, {"w": [F32, F32]}, V)  # here


# ---------------------------------------------------------------------- jit, linear_transpose

CASES |= {
    "static argument that cannot be hashed": lambda: ftrans.jit(
        lambda x, sizes: x, static_argnums=1
    )(V, [1, 2]),
    "static keyword that cannot be hashed": lambda: func.grad(
        lambda x: ftrans.jit(lambda x, n: x, static_argnames="n")(x, n={"a": x})
    )(1.0),
    "jit at a set": lambda: ftrans.jit(lambda x, options: x)(V, {"names": {"abc"}}),
    "jit of a string": lambda: ftrans.jit(lambda x: (x, "abc"))(V),
    "transpose of a product": lambda: func.linear_transpose(lambda x: x * x, V)(V),
    "transpose of a sine": lambda: func.linear_transpose(lambda x: fnp.sin(x), V)(V),
    "transpose of an affine function": lambda: func.linear_transpose(lambda x: 2 * x + 1, V)(V),
    "transpose of a constant": lambda: func.linear_transpose(lambda x: fnp.ones(3), V)(F32),
    "transpose at integers": lambda: func.linear_transpose(lambda x: x, np.arange(3)),
}


def affine(term: Any) -> Any:
    @ftrans.custom_jvp
    def squared(x):
        return x * x

    @squared.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return x * x, 2 * x * t + term  # here

    return squared


@bad
def gradient_by_an_affine_jvp() -> None:
    func.grad(affine(1.0))(3.0)


@bad
def tangent_by_an_affine_jvp() -> None:
    func.jvp(affine(1.0), (V,), (V,))


@bad
def gradient_by_a_constant_jvp() -> None:
    square = ftrans.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (primals[0] ** 2, fnp.ones_like(primals[0])))
    func.grad(lambda x: square(x).sum())(V)


# ---------------------------------------------------------------------------- writing in place

CASES |= {
    "write by out": lambda: func.grad(lambda x: np.multiply(x, 2, out=np.zeros(3)).sum())(V),
    "write by out what does not fit": lambda: func.grad(lambda x: np.cumsum(x, out=x[1:]).sum())(V),
    "write at places by what has no such form": lambda: func.grad(
        lambda x: np.power.at(x, [0, 0], 2.0) or x.sum()
    )(V),
    "copy to a plain array": lambda: func.grad(lambda x: np.copyto(np.zeros(3), x) or x.sum())(V),
    "copy by a rule": lambda: func.grad(
        lambda x: np.copyto(x, np.ones(3, np.complex64), casting="safe") or x.sum()
    )(V),
    "put in an unknown mode": lambda: func.grad(lambda x: np.put(x, 0, 1.0, "drop") or x.sum())(V),
    "put by a mask of another size": lambda: func.grad(
        lambda x: np.putmask(x, [True], 1.0) or x.sum()
    )(V),
    "place nothing": lambda: func.grad(lambda x: np.place(x, x > 0, []) or x.sum())(V),
    "fill the diagonal of a vector": lambda: func.grad(
        lambda x: fnp.fill_diagonal(x, 0.0) or x.sum()
    )(V),
    "add at a number": lambda: func.grad(lambda x: np.add.at(1.0, 0, x) or x.sum())(V),
    "write as pytorch does": lambda: func.grad(lambda x: x.sum().add_(1))(V),
}


@bad
def write_to_what_was_broadcast() -> None:
    def f(x):
        y = np.broadcast_to(x, (2, 3))
        y[0] = 0.0  # here
        return total(x)

    func.grad(f)(V)


@bad
def write_outside_of_a_body() -> None:
    def f(x):
        seen = x * 0.0

        def step(carry, item):
            seen[0] += item  # here
            return carry + seen[0], None

        return ftrans.scan(step, x[0], x)[0]

    func.grad(f)(V)


@bad
def write_through_a_view_outside_of_a_body() -> None:
    def f(x):
        seen = x * 1.0

        def step(carry, item):
            part = seen[1:]
            part *= item  # here
            return carry + part.sum(), None

        return ftrans.scan(step, x[0], x)[0]

    func.grad(f)(V)


@bad
def write_a_mapped_value_outside() -> None:
    def f(x):
        seen = x * 0.0

        def example(v):
            np.add.at(seen, 0, v)  # here
            return v

        return func.vmap(example)(x).sum()

    func.grad(f)(V)


@bad
def write_to_what_is_not_followed() -> None:
    left = []

    def f(x):
        y = x * 2.0
        left.extend([y, y[1:]])
        return y.sum()

    func.grad(f)(V)
    left[1] += 1.0  # here


@bad
def write_what_grows() -> None:
    def f(x):
        x += np.ones((2, 3))  # here
        return x.sum()

    func.grad(f)(V)


@bad
def write_fractions_to_integers() -> None:
    def f(x):
        n = fnp.argsort(x)
        n /= 2  # here
        return (x * n).sum()

    func.grad(f)(V)


@bad
def write_an_imaginary_part_to_real() -> None:
    def f(x):
        x.imag = 1.0  # here
        return x.sum()

    func.grad(f)(V)


@bad
def write_into_a_plain_array() -> None:
    def f(x):
        out = np.zeros(3)
        out += x  # here
        return out.sum()

    func.grad(f)(V)


@bad
def write_rows_into_a_plain_array() -> None:
    def f(x):
        out = np.zeros((2, 3))
        out[0] = x  # here
        return out.sum()

    func.grad(f)(V)


@bad
def write_a_number_into_a_plain_array() -> None:
    def f(x):
        out = np.zeros(3)
        out[0] = x[0] * 2  # here
        return out.sum()

    func.grad(f)(V)


@bad
def write_a_number_into_a_plain_array_under_vmap() -> None:
    def f(x):
        out = np.zeros(3)
        out[0] = x[0] * 2  # here
        return out.sum()

    func.vmap(f)(M)


@bad
def write_at_a_traced_index() -> None:
    def f(t):
        np.zeros(3)[t] = 1.0  # here
        return t

    func.vmap(f)(np.arange(3))


@bad
def write_what_does_not_fit() -> None:
    def f(x):
        x[0] = np.ones(4)  # here
        return x.sum()

    func.grad(f)(V)


@bad
def write_complex_to_real() -> None:
    def f(x):
        x[0] = 1j  # here
        return x.sum()

    func.grad(f)(V)


# ------------------------------------------------------------------------------ shapes and axes

CASES |= {
    "axis out of range": lambda: fnp.sum(M, axis=2),
    "axis that is no int": lambda: fnp.argmax(M, axis=(0, 1)),
    "bits of floats": lambda: fnp.bitwise_and(M, M),
    "axis named twice": lambda: func.grad(lambda x: x.sum(axis=(0, 0)))(V),
    "shapes that do not broadcast": lambda: func.grad(lambda x: (x + np.ones(4)).sum())(V),
    "broadcast to another shape": lambda: fnp.broadcast_to(V, (4,)),
    "matmul of sizes that differ": lambda: func.grad(lambda x: (x @ np.ones((4, 3))).sum())(V),
    "reshape to another size": lambda: fnp.reshape(V, (2, 2)),
    "index out of bounds": lambda: func.grad(lambda x: x[5])(V),
    "too many indices": lambda: func.grad(lambda x: x[0, 0])(V),
}


# ----------------------------------------------------------------------------------- the tests


def same(x: Any) -> Any:
    return x


CASES |= {
    "external that returns another shape": lambda: ftrans.external(
        lambda x: x[:2], same, name="half"
    )(V),
    "external that returns another dtype": lambda: ftrans.jit(
        ftrans.external(lambda x: x.astype("float32"), same, name="narrow")
    )(V),
    "external that returns no array": lambda: ftrans.external(lambda x: "text", same)(V),
    "external that returns another structure": lambda: ftrans.external(
        lambda x: (x, x), lambda x: {"a": x}, name="pair"
    )(V),
    "external with a scalar that does not fit": lambda: ftrans.external(
        lambda: 300, ftrans.ArrayType((), "uint8"), name="count"
    )(),
    "external of a string": lambda: ftrans.external(np.sort, same)("text"),
    "external without a type": lambda: ftrans.external(np.sort, "float32")(V),
    "external with an unknown vmap method": lambda: ftrans.external(
        np.sort, same, vmap_method="loop"
    ),
    "external without a rule": lambda: func.grad(lambda x: ftrans.external(np.sort, same)(x).sum())(
        V
    ),
    "external with too many rules": lambda: ftrans.external(
        np.sort, same, vjp=same, transpose=same
    ),
    "external with a wrong transpose": lambda: func.grad(
        lambda x: ftrans.external(np.negative, same, transpose=lambda ct: ct[:2])(x).sum()
    )(V),
    "external with a wrong batch": lambda: func.vmap(
        ftrans.external(np.sort, same, vmap_method=lambda size, batched, x: (x[0], True))
    )(M),
    "backward of a vector": lambda: leaf().backward(),
    "backward without a graph": lambda: ftrans.tensor([1.0]).backward(),
    "backward a second time": lambda: twice(leaf()),
    "backward inside of a transform": lambda: func.grad(
        lambda x: (leaf().sum().backward(), x.sum())[1]  # here
    )(V),
    "a gradient of another shape": lambda: leaf().backward(ftrans.tensor([1.0])),
    "the gradient of what was not used": lambda: autograd.grad(leaf().sum(), leaf()),
    "a leaf that is written to": lambda: leaf().add_(1),
    "one of several views that is written to": lambda: (leaf() * 1)[:].unbind()[0].add_(1),
    "a tensor written to inside of a transform": lambda: func.grad(
        lambda x: ((ftrans.tensor(0.0)).add_(1), x.sum())[1]  # here
    )(V),
    "a result of another shape written to a tensor": lambda: (leaf() * 1).add_(np.ones((2, 3))),
    "a result of another dtype written to a tensor": lambda: ftrans.tensor([1]).add_(0.5),
    "NumPy's array of a tensor": lambda: leaf().numpy(),
    "bool of several elements": lambda: bool(leaf() > 0),
    "requires_grad of integers": lambda: ftrans.tensor([1, 2]).requires_grad_(),
    "requires_grad of a result": lambda: (leaf() * 1).requires_grad_(False),
    "a hook on a constant": lambda: ftrans.tensor([1.0]).register_hook(print),
    "a hook that returns a number": lambda: hooked(leaf()),
    "a gradient that is no tensor": lambda: setattr(leaf(), "grad", V),
    "an attribute that a tensor has not": lambda: leaf().sinus(),
    "a tensor in an object": lambda: fnp.sum({leaf()}),
    "saved values after they were freed": lambda: saved_after(leaf()),
    "a saved value made by hand": lambda: graph.SavedTensor(),
    "a saved value with hooks already": lambda: [
        saved.register_hooks(same, same) for saved in 2 * [leaf().exp().grad_fn._raw_saved_result]
    ],
    "what an operation has not saved": lambda: leaf().exp().grad_fn._saved_self,
    "an unpack hook that returns a number": lambda: packed(leaf(), same, lambda x: 1),
    "an unpack hook of another type": lambda: packed(leaf(), same, lambda x: x.double()),
    "a pack hook that writes": lambda: packed(leaf(), lambda x: x.add_(1), same),
    "a node called with too few gradients": lambda: leaf().exp().grad_fn(),
    "a hook of a node with too few gradients": lambda: at_node(leaf().exp()),
    "an edge of a constant": lambda: graph.get_gradient_edge(ftrans.tensor([1.0])),
    "a hook of several tensors in no mode": lambda: graph.register_multi_grad_hook(
        (leaf(),), print, mode="first"
    ),
    "NaN in a gradient": lambda: with_anomaly(lambda: (leaf() - 2).sqrt().sum().backward()),
    "NaN in a value": lambda: with_anomaly(lambda: (leaf() - 2).log().tolist()),
    "NaN that comes in": lambda: with_anomaly(
        lambda: (leaf() * np.array(np.nan, "float32")).tolist()
    ),
    "a dual tensor outside of levels": lambda: ad.make_dual(leaf(), leaf()),
    "a level that was not entered": lambda: ad.exit_dual_level(),
    "a level that is not the last one": lambda: at_a_level(lambda x: ad.exit_dual_level(level=3)),
    "the tangent along another level": lambda: at_a_level(lambda x: ad.unpack_dual(x, level=3)),
    "a dual tensor of a number": lambda: at_a_level(lambda x: ad.make_dual(x, 1.0)),
    "a tangent of integers": lambda: at_a_level(
        lambda x: ad.make_dual(leaf(), ftrans.tensor([1, 2, 3]))
    ),
    "a tangent of another shape": lambda: at_a_level(lambda x: ad.make_dual(leaf(), leaf()[:2])),
    "a tangent of another dtype": lambda: at_a_level(
        lambda x: ad.make_dual(leaf(), leaf().to("float64"))
    ),
    "a dual tensor made of a dual tensor": lambda: at_a_level(lambda x: ad.make_dual(x, leaf())),
    "a tangent that has a tangent": lambda: at_a_level(lambda x: ad.make_dual(leaf(), x)),
    "a dual tensor inside of a transform": lambda: at_a_level(
        lambda d: func.grad(lambda x: ad.unpack_dual(d).primal.sum() * x)(1.0)  # here
    ),
    "a level inside of a transform": lambda: func.grad(
        lambda x: (ad.enter_dual_level(), x.sum())[1]  # here
    )(V),
    "a node that is looked at in a level": lambda: at_a_level(
        lambda x: (x * 2).grad_fn.register_hook(print)
    ),
    "a packed value in a level": lambda: at_a_level(lambda x: packed(x, same, same)),
    "strides": lambda: leaf().as_strided((1,), (1,)),
    "parts that leave something out": lambda: leaf().split([1]),
    "an edge that there is not": lambda: autograd.backward(
        graph.GradientEdge(leaf().exp().grad_fn, 3), V
    ),
    "a hook of a node that returns a number": lambda: number_at_node(leaf().exp()),
    "a mode of an asynchronous generator": lambda: autograd.no_grad()(batches),
    "streams that there are not": lambda: graph.set_override_stale_capture_stream(True),
    "no models": lambda: func.stack_module_state([]),
    "a name that an object has no array of": lambda: func.functional_call(np.sum, {"zz": V}, V),
    "a pattern without an arrow": lambda: func.rearrange(M, "a b"),
    "a profile in a profile": lambda: profiled(lambda _: profiler.profile().__enter__()),
    "a profile that is entered again": lambda: profiled(lambda _: None).__enter__(),
    "events of a profile that is not over": lambda: profiled(lambda prof: prof.table()),
    "an argument that a profile does not take": lambda: profiler.profile(record_shape=True),
    "collecting of a profile that is over": lambda: profiled(
        lambda _: None
    ).toggle_collection_dynamic(True),
    "a table sorted by what events do not have": lambda: profiled(lambda _: None).table(
        "elapsed_us"
    ),
    "stacks by another metric": lambda: profiled(lambda _: None).export_stacks(
        "f", "self_cuda_time"
    ),
    "stacks that were not recorded": lambda: profiled(lambda _: fnp.sin(V)).export_stacks("f"),
    "ranges for a profiler that is not there": lambda: without(
        "nvtx", profiler.emit_nvtx().__enter__
    ),
    "a part of PyTorch's profiler": lambda: profiler.EnforceUnique(),
    "a trace of nvprof": lambda: profiler.load_nvprof("trace.sqlite"),
    "a volatile variable that requires grad": lambda: autograd.Variable(
        V, requires_grad=True, volatile=True
    ),
    "a reward for a random number": lambda: leaf().reinforce(1.0),
    "one argument of backward by two names": lambda: leaf().backward(
        V, retain_graph=True, retain_variables=True
    ),
    "a tensor with a history to another device": lambda: leaf().to(jax.devices()[0]),
    "torch: random numbers in a loop": lambda: ftrans.fori_loop(0, 3, noisy, F32),
    "torch: random numbers of examples": lambda: func.vmap(noisy)(M[:, :3]),
    "torch: random numbers of columns": lambda: func.jacfwd(noisy)(F32),
    "random: a seed for a key": lambda: ftrans.random.normal(0, (3,)),
    "random: another array for a key": lambda: ftrans.random.normal(V, (3,)),
    "random: three words for a key": lambda: ftrans.random.normal(np.zeros(3, np.uint32)),
    "random: many keys for one": lambda: ftrans.random.uniform(KEYS, (3,)),
    "random: a key for a seed": lambda: ftrans.random.key(KEYS),
    "random: a fraction for a seed": lambda: ftrans.random.key(0.5),
    "random: a seed of many bits": lambda: ftrans.random.key(2**70),
    "random: a key folded with a fraction": lambda: ftrans.random.fold_in(KEYS[0], 0.5),
    "random: a negative shape": lambda: ftrans.random.normal(KEYS[0], (3, -1)),
    "random: an argument too many": lambda: ftrans.random.normal(KEYS[0], (3,), size=3),
    "random: integers for normal": lambda: ftrans.random.normal(KEYS[0], (3,), "int32"),
    "random: no dtype": lambda: ftrans.random.normal(KEYS[0], (3,), "floaty"),
    "random: a gradient through choices": lambda: func.grad(
        lambda p: ftrans.random.bernoulli(KEYS[0], p, (3,)).sum() * 1.0
    )(0.5),
    "random: a word for a parameter": lambda: ftrans.random.gamma(KEYS[0], "two"),
    "random: a negative seed": lambda: ftrans.random.default_rng(-1),
    "random: a traced key kept": lambda: ftrans.jit(lambda k: ftrans.random.Generator(k).key())(
        KEYS[0]
    ),
    "random: a generator under jit": lambda: ftrans.jit(lambda x: x + RNG.normal())(V),
    "random: a generator under vmap": lambda: func.vmap(lambda x: x * RNG.random())(V),
    "random: a generator for each example": lambda: func.vmap(
        lambda x: RNG.spawn(2), randomness="different"
    )(V),
    "numpy: a transform of no points": lambda: fnp.fft.fft(V, n=0),
    "numpy: values that do not belong to places": lambda: func.grad(
        lambda x: fnp.interp(x, np.ones(2), np.ones(3))
    )(1.0),
    "linalg: no matrix norm": lambda: fnp.linalg.cond(np.eye(2), "x"),
    "scipy: a singular system": lambda: ftrans.scipy.linalg.solve_triangular(
        np.zeros((2, 2)), np.ones(2)
    ),
    "scipy: what JAX does not have": lambda: ftrans.scipy.linalg.eigh(np.eye(2), np.eye(2)),
    "linalg: a power that is no integer": lambda: fnp.linalg.matrix_power(np.eye(2), 1.5),
    "numpy: slices of NaN": lambda: fnp.nanargmax(np.array([np.nan])),
    "numpy: a place beyond the shape": lambda: fnp.unravel_index([6], (2, 3)),
    "nn: a length beyond the sequence": lambda: ftrans.nn.ctc_loss(
        np.zeros((6, 1, 3)), np.array([[1, 2]]), [7], [2]
    ),
    "scipy: vectors of another length": lambda: ftrans.scipy.linalg.solve_triangular(
        np.eye(3), np.ones(4)
    ),
    "linalg: a name of SciPy's": lambda: fnp.linalg.lu,
    "random: shuffled in place": lambda: RNG.shuffle(V),
    "random: no integer to draw": lambda: RNG.integers(3, 3),
    "random: a size that parameters do not fit": lambda: RNG.normal(V, 1.0, size=2),
    "random: complex columns drawn apart": lambda: func.jacfwd(
        lambda x: x, randomness="different", holomorphic=True
    )(V),
    "torch: an index out of bounds": lambda: torch.tensor(V)[torch.tensor([0, 5])],
    "torch: a probability above one": lambda: torch.nn.functional.dropout(leaf(), 1.5),
    "torch: another reduction": lambda: torch.nn.functional.mse_loss(V, V, reduction="max"),
    "torch: half of the tolerances": lambda: torch.testing.assert_close(V, V, rtol=1e-3),
    "torch: a module": lambda: torch.nn.Linear(2, 3),
    "torch: a module that is one of Python's": lambda: torch.optim.SGD([leaf()]),
    "torch: a function under NumPy's name": lambda: torch.nanmax(leaf()),
    "torch: a misspelt function": lambda: torch.logsumexpp(leaf(), 0),
    "torch: a name that nothing is close to": lambda: torch.qwertz,
    "torch: a device that is not there": lambda: torch.ones(2, device="tpu:7"),
    "torch: integers that require grad": lambda: torch.arange(3, requires_grad=True),
}


def saved_after(x: Any) -> None:
    y = x.exp()
    y.sum().backward()
    y.grad_fn._saved_result  # noqa: B018


def packed(x: Any, pack: Any, unpack: Any) -> None:
    with graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).sum()
    y.backward()


def at_node(y: Any) -> None:
    y.grad_fn.register_hook(lambda *_: ())
    y.sum().backward()


async def batches() -> Any:
    yield V


def number_at_node(y: Any) -> None:
    y.grad_fn.register_hook(lambda *_: 3)
    y.sum().backward()


def with_anomaly(function: Any) -> None:
    with autograd.set_detect_anomaly(True):
        function()


def profiled(block: Callable[[Any], Any]) -> Any:
    with profiler.profile() as prof:
        block(prof)
    return prof


def without(package: str, function: Callable[[], Any]) -> None:
    before = sys.modules.get(package, "none")
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        function()
    finally:
        del sys.modules[package]
        if before != "none":
            sys.modules[package] = before  # type: ignore[assignment]


def leaf() -> Any:
    return ftrans.tensor([1.0, 2.0, 3.0], requires_grad=True)


def at_a_level(function: Callable[[Any], Any]) -> Any:
    """Calls a function with a dual tensor."""
    with ad.dual_level():
        return function(ad.make_dual(leaf(), leaf()))


def noisy(*args: Any) -> Any:
    return args[-1] * torch.randn(3)


def twice(x: Any) -> None:
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def hooked(x: Any) -> None:
    x.register_hook(lambda g: 1.0)
    x.sum().backward()


BY_NUMPY = {
    "mean of a list",
    "array full of a value",
    "values joined in brackets",
    "numbers drawn by a traced scale",
}
"""Cases in which a function of NumPy's that the user calls asks for what is refused."""
MESSAGES = Path(__file__).with_name("error_messages.txt")
PLACE = re.compile(re.escape(__file__) + r":(\d+)(?: \([^)\n]*\))?")


def source(number: Any) -> str:
    return linecache.getline(__file__, int(number)).split("# here")[0].strip()


def shown(text: str) -> str:
    """Returns a message with the source lines of this file in the place of their numbers."""
    return PLACE.sub(lambda match: f"<{source(match[1])}>", text)


def assert_clean() -> None:
    """Raises where a failed call left something behind."""
    assert not is_tracing()
    assert guard._held == {}
    assert guard._waiting == {}
    assert V.flags.writeable
    assert_close(func.grad(lambda x: (x * V).sum())(np.ones(3)), V)
    assert_close(func.vmap(lambda x: x * x)(V), V * V)


def expected() -> dict[str, str]:
    """Returns the texts by the names of the cases."""
    parts = re.split(r"(?m)^=== (.*)\n", MESSAGES.read_text())
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def fail(name: str) -> FtransError:
    """Returns the error that a case raises."""
    LEAKED.clear()
    with pytest.raises(FtransError) as caught:
        CASES[name]()
    return caught.value


def lines_at_fault(function: Callable[[], Any]) -> set[int]:
    """Returns the lines that are marked, or else all lines of the function."""
    lines, first = inspect.getsourcelines(function)
    marked = {first + i for i, line in enumerate(lines) if "# here" in line}
    return marked or {line for _, _, line in function.__code__.co_lines() if line}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    error = fail(name)
    assert f"{type(error).__name__}\n{shown(str(error))}" == expected()[name]
    assert error.__cause__ is None or isinstance(error, errors.AnomalyError)  # its line
    assert error.__context__ is None or error.__suppress_context__
    assert not getattr(error, "__notes__", None)
    frames = list(traceback.walk_tb(error.__traceback__))
    files = {frame.f_code.co_filename for frame, _ in frames}
    if name in BY_NUMPY:
        theirs = (os.path.dirname(np.__file__), "numpy/")
        files = {file for file in files if not file.startswith(theirs)}
    assert files == {__file__}
    named = {line for _, line in frames} | {int(line) for line in PLACE.findall(str(error))}
    assert named & lines_at_fault(CASES[name]), "neither text nor traceback leads to the line"
    assert_clean()


def test_every_text_belongs_to_a_case() -> None:
    assert list(expected()) == list(CASES)


BASES = {
    "AnomalyError": RuntimeError,
    "ArgumentError": ValueError,
    "AxisError": (IndexError, ValueError),
    "CheckError": AssertionError,
    "ConcretizationError": TypeError,
    "DTypeError": TypeError,
    "FtransError": RuntimeError,
    "GradcheckError": RuntimeError,
    "GradcheckInputError": (ValueError, AssertionError, RuntimeError),
    "GradcheckOutputError": (RuntimeError, AssertionError),
    "GraphError": RuntimeError,
    "IndexingError": IndexError,
    "LeakedTracerError": RuntimeError,
    "LinAlgError": ValueError,
    "MissingAttributeError": AttributeError,
    "MissingRuleError": NotImplementedError,
    "MutationError": TypeError,
    "RuleError": (RuntimeError, TypeError),
    "ShapeError": ValueError,
    "StaticArgumentError": ValueError,
    "StructureError": (ValueError, TypeError),
    "TracedArrayError": TypeError,
    "TransposeError": ValueError,
    "UnsupportedError": TypeError,
}


def test_every_class_derives_from_the_builtin_that_fits() -> None:
    assert sorted([*BASES, "GradientCutWarning", "KeyReuseWarning"]) == errors.__all__
    for name, bases in BASES.items():
        error = getattr(errors, name)
        assert getattr(ftrans, name) is error
        assert issubclass(error, FtransError)
        for base in bases if isinstance(bases, tuple) else (bases,):
            assert issubclass(error, base)
    raised = {text.partition("\n")[0] for text in expected().values()}
    assert set(BASES) - raised == {"CheckError", "FtransError"}


# ------------------------------------------------------------------- errors that are not ours alone


class Unusual(Exception):
    pass


@pytest.mark.parametrize("error", [KeyError, ValueError, ZeroDivisionError, Unusual])
def test_an_exception_of_the_users_own_passes_unchanged(error: type[Exception]) -> None:
    mine = error("mine")

    def fail(*args: Any) -> Any:
        raise mine

    calls = [
        lambda: func.grad(fail)(1.0),
        lambda: func.jvp(fail, (1.0,), (1.0,)),
        lambda: func.vmap(func.grad(fail))(V),
        lambda: func.hessian(fail)(V),
        lambda: ftrans.jit(fail)(V),
        lambda: func.grad(lambda x: ftrans.jit(fail)(x))(1.0),
        lambda: ftrans.scan(fail, 0.0, V),
        lambda: ftrans.cond(True, fail, fail, V),
        lambda: func.vmap(lambda x: ftrans.while_loop(fail, fail, x))(V),
        lambda: ftrans.trace(fail)(V),
        lambda: jax.tree.map(func.grad(fail), {"a": 1.0}),
    ]
    for call in calls:
        mine.__traceback__ = mine.__context__ = None
        with pytest.raises(error) as caught:
            call()
        assert caught.value is mine
        assert mine.args == ("mine",)
        assert mine.__context__ is None
        assert not getattr(mine, "__notes__", None)
        frames = [frame for frame, _ in traceback.walk_tb(mine.__traceback__)]
        assert frames[-1].f_code is fail.__code__
        assert not [f for f in frames if f.f_globals["__name__"].startswith("ftrans")]
        assert_clean()


_JAX_NOTE = (
    "ftrans: a function of JAX was given a traced value, which JAX does not know.\n"
    "Write np.sin(x) or ftrans.numpy.sin(x) in the place of jax.numpy.sin(x); what is not there,\n"
    "or is written for JAX as a whole, take by ftrans.from_jax(f)(x)."
)
_INDEX_NOTE = (
    "ftrans: an array of JAX was indexed by a traced value, which JAX does not know.\n"
    "Write ftrans.numpy.asarray(array)[index], or pass the array as an argument."
)
_SIZE_NOTE = (
    "ftrans: the size of an array must be known while it is traced.\n"
    "Pass it unmapped under vmap (None in in_dims), static under jit (static_argnums)."
)
_TORCH_NOTE = (
    "ftrans: a function of PyTorch was given a traced value, which PyTorch does not know.\n"
    "Write np.sin(x) or ftrans.numpy.sin(x) in the place of torch.sin(x)."
)
_EINOPS_NOTE = (
    "ftrans: einops takes traced values by the array API.\n"
    "Write from einops.array_api import rearrange in the place of from einops import rearrange."
)
_TABLE = jax.numpy.arange(3.0)


def as_torch(x: Any) -> Any:
    """Raises as PyTorch's functions do, which is not needed to run the tests."""
    kind = type(x).__name__
    raise TypeError(f"sin(): argument 'input' (position 1) must be Tensor, not {kind}")


def as_einops(x: Any) -> Any:
    """Raises as einops does."""
    raise RuntimeError(f"Tensor type unknown to einops {type(x)}")


@pytest.mark.parametrize(
    ("call", "error", "note"),
    [
        (lambda: func.grad(lambda x: jax.numpy.sin(x))(1.0), TypeError, _JAX_NOTE),
        (lambda: func.vmap(lambda x: jax.nn.relu(x))(V), TypeError, _JAX_NOTE),
        (lambda: ftrans.jit(lambda x: jax.numpy.stack([x, x]))(V), TypeError, _JAX_NOTE),
        (lambda: func.vmap(lambda t: _TABLE[t])(np.arange(2)), IndexError, _INDEX_NOTE),
        (lambda: func.grad(lambda x: x * _TABLE[fnp.argmax(x), None])(V), IndexError, _INDEX_NOTE),
        (lambda: func.vmap(lambda n: np.zeros(n))(np.arange(3)), TypeError, _SIZE_NOTE),
        (lambda: func.grad(as_torch)(1.0), TypeError, _TORCH_NOTE),
        (lambda: func.grad(as_einops)(1.0), RuntimeError, _EINOPS_NOTE),
    ],
)
def test_errors_of_others_about_traced_values_carry_a_note(
    call: Callable[[], Any], error: type[Exception], note: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.__notes__ == [note]
    assert_clean()


def test_errors_of_others_about_anything_else_carry_no_note() -> None:
    for call, error in (
        (lambda: func.vmap(lambda t: _TABLE["a"] * t)(V), TypeError),
        (lambda: func.vmap(lambda t: _TABLE[1.5] * t)(V), TypeError),
        (lambda: func.vmap(lambda t: np.zeros("a") * t)(V), TypeError),
        (lambda: func.vmap(lambda t: jax.numpy.sin("a") * t)(V), TypeError),
        (lambda: func.grad(lambda x: as_torch(V))(1.0), TypeError),
        (lambda: func.grad(lambda x: as_einops("a"))(1.0), RuntimeError),
    ):
        with pytest.raises((error, IndexError)) as caught:
            call()
        assert not getattr(caught.value, "__notes__", None)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (
            "import jax.numpy as jnp\ndef loss(x):\n    return jnp.asarray(x).sum()\n",
            "  library.loss is written for JAX: call it by ftrans.from_jax(library.loss)(...).",
        ),
        (
            "import numpy as np\ndef loss(x):\n    return np.asarray(x).sum()\n",
            "  library.loss needs plain arrays: call it by ftrans.external, with a rule for its\n"
            "  derivative; for a constant, give it np.asarray(x.detach()).",
        ),
        (
            "import numpy as np\ndef logsumexp(x):\n    return np.asarray(x)\nloss = logsumexp\n",
            "  library.loss needs plain arrays: call it by ftrans.external, with a rule for its\n"
            "  derivative; for a constant, give it np.asarray(x.detach()).",
        ),
    ],
)
def test_a_function_of_another_library_is_named(
    source: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "library", raising=False)
    library = importlib.import_module("library")
    with pytest.raises(errors.TracedArrayError) as caught:
        func.grad(lambda x: library.loss(x))(V)
    first, *_, last = str(caught.value).split("\n", 3)
    assert first == (
        "library.loss() of a traced value: it would become a plain array, which cuts its gradient."
    )
    assert last == advice


def test_a_function_of_another_library_that_is_ours_too() -> None:
    with pytest.raises(errors.TracedArrayError) as caught:
        func.grad(lambda x: scipy.special.logsumexp(x))(V)
    first, *_, last = str(caught.value).split("\n")
    assert first == (
        "scipy.special.logsumexp() of a traced value: it would become a plain array, which cuts "
        "its gradient."
    )
    assert last == "  Write ftrans.numpy.logsumexp(...), with the same arguments."


def test_code_without_source_gets_the_general_advice() -> None:
    scope: dict[str, Any] = {"np": np}
    exec("def f(x): return np.mean([x, x])", scope)
    with pytest.raises(errors.TracedArrayError) as caught:
        func.grad(scope["f"])(1.0)
    assert str(caught.value).partition("\n")[0] == (
        "np.asarray() of a traced value: it would become a plain array, which cuts its gradient."
    )
    assert str(caught.value).endswith(
        "  Write np.asarray(x.detach()) for a constant, ftrans.numpy.stack(values) for a list of\n"
        "  values, and else ftrans.numpy in the place of what needs a plain array."
    )


def test_a_constant_may_be_stored_into_a_plain_array() -> None:
    def f(x: Any) -> Any:
        out = np.zeros(2)
        out[0] = fnp.stop_gradient(x[0])
        out[1] = float(x[1].detach())
        out[int(x[0].detach())] = fnp.argmax(x)
        return (x[:2] * out).sum()

    assert_close(func.grad(f)(V), [1.0, 2.0, 0.0])


def test_an_array_in_use_is_read_only() -> None:
    data = np.ones(3)

    def f(x: Any) -> Any:
        y = x * data
        data[0] = 2.0
        return y.sum()

    with pytest.raises(ValueError, match="read-only") as caught:
        func.grad(f)(V)
    assert caught.value.__notes__ == [
        "ftrans: arrays that a traced function uses are read-only until it returns, since they are "
        "read when its program runs.\nWrite into a copy instead: b = a.copy()."
    ]
    data[0] = 3.0
    assert_clean()


def test_leaked_values_can_be_printed() -> None:
    LEAKED.clear()
    func.vmap(lambda x: LEAKED.append(x * 2) or total(x))(M)
    assert str(LEAKED[0]) == repr(LEAKED[0])
    assert repr(LEAKED[0]) == "Traced(f64[4] of vmap(lambda), which has returned)"


# ------------------------------------------------------------------------------------- tracebacks

SCRIPT = """
import numpy as np
from ftrans import autograd, func

def loss(x):
    return x * np.ones(4)

func.vmap(func.grad(loss))(np.ones((2, 3)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["short", "full"])
def test_printed_traceback(mode: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "FTRANS_TRACEBACK": mode},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    files = re.findall(r'File "([^"]*)"', found.stderr)
    library = os.path.dirname(ftrans.__file__)
    if mode == "short":
        assert files == ["<string>", "<string>"]
        assert "During handling" not in found.stderr
        assert "ftrans.errors.ShapeError: multiply: shapes do not broadcast." in found.stderr
    else:
        assert any(file.startswith(library) for file in files)


def test_full_tracebacks_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftrans.config, "traceback", "full")
    with pytest.raises(ShapeError) as caught:
        func.grad(square)(V)
    names = [
        frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(caught.value.__traceback__)
    ]
    assert "ftrans.func.grad" in names


def test_a_fault_of_ftrans_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    # as a wrong name in ftrans would: no error that a user's input can bring about
    monkeypatch.delattr(sys.modules["ftrans.func.grad"], "differentiate")
    with pytest.raises(NameError) as caught:
        func.grad(total)(V)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert frames[-1].f_globals["__name__"] == "ftrans.func.grad"


if __name__ == "__main__":
    texts = {name: fail(name) for name in CASES}
    MESSAGES.write_text(
        "\n".join(f"=== {n}\n{type(e).__name__}\n{shown(str(e))}\n" for n, e in texts.items())
    )
