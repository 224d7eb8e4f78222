"""`func.checkpoint`: the same numbers as without it, of less memory, on both roads."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name as name_of_jax

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import ArgumentError
from ftrans.func import checkpoint, checkpoint_name, checkpoint_policies
from ftrans.primitives import late_p
from tests.helpers import assert_close, on_road

RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(4, 4)), RNG.normal(size=(5, 4))
PAIR = np.stack([X, 2 * X])

Wrap = Callable[[Any], Any]


def plain(f: Any) -> Any:
    return f


def layer(w: Any, x: Any) -> Any:
    return fnp.tanh(fnp.sin(x @ w) @ w)


def chain(wrap: Wrap) -> Any:
    block = wrap(layer)
    return lambda w, x: (block(w, block(w, x)) ** 2).sum()


def closure(wrap: Wrap) -> Any:
    return lambda w, x: (wrap(lambda x: wrap(lambda x: layer(w, x) * 2)(x) ** 2)(x)).sum()


def in_scan(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        step = wrap(lambda s, _: (layer(w, s), s.sum()))
        last, sums = ftrans.scan(step, x, None, length=4)
        return last.sum() + sums.sum()

    return loss


def around_scan(wrap: Wrap) -> Any:
    return lambda w, x: wrap(in_scan(wrap))(w, x)


def in_cond(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        yes, no = wrap(lambda w: layer(w, x).sum()), wrap(lambda w: (w**2).sum())
        return ftrans.cond(x.sum() > 0, yes, no, w)

    return loss


def in_while(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        step = wrap(lambda s: (s[0] + 1, layer(w, s[1])))
        return ftrans.while_loop(lambda s: s[0] < 3, step, (0, x), max_steps=4)[1].sum()

    return loss


def with_key(wrap: Wrap) -> Any:
    key = ftrans.random.key(0)

    def dropped(w: Any, x: Any) -> Any:
        return layer(w, x) * ftrans.random.bernoulli(key, 0.5, x.shape)

    return lambda w, x: (wrap(dropped)(w, x) ** 2).sum()


def with_generator(wrap: Wrap) -> Any:
    def loss(w: Any, x: Any) -> Any:
        drawn = ftrans.random.default_rng(3)
        return (wrap(lambda w, x: layer(w, x) * drawn.normal(size=x.shape))(w, x) ** 2).sum()

    return loss


class Sine(Function):
    """Has a derivative that is no sine's, so that one sees that it counts."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return fnp.sin(x)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ct * fnp.cos(x)


def with_rule(wrap: Wrap) -> Any:
    return lambda w, x: (wrap(lambda w, x: Sine.apply(x @ w) ** 2)(w, x)).sum()


def with_tree(wrap: Wrap) -> Any:
    def step(state: Any, mode: str, n: int = 2) -> Any:
        x = state["x"]
        for _ in range(n):
            x = fnp.sin(x) if mode == "sin" else x
        return {"x": x @ state["w"], "mode": mode, "n": n, "none": None}

    def loss(w: Any, x: Any) -> Any:
        out = wrap(step)({"x": x, "w": w}, "sin", n=3)
        assert (out["mode"], out["n"], out["none"]) == ("sin", 3, None)
        return (out["x"] ** 2).sum()

    return loss


MODELS = [
    chain,
    closure,
    in_scan,
    around_scan,
    in_cond,
    in_while,
    with_key,
    with_generator,
    with_rule,
    with_tree,
]

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: func.grad(f, (0, 1))(W, X),
    "value_and_grad": lambda f: func.value_and_grad(f)(W, X),
    "vjp": lambda f: func.vjp(f, W, X)[1](1.0),
    "jvp": lambda f: func.jvp(f, (W, X), (W, X)),
    "linearize": lambda f: func.linearize(f, W, X)[1](W, X),
    "jacrev": lambda f: func.jacrev(f)(W, X),
    "hessian": lambda f: func.hessian(f)(W, X),
    "grad of grad": lambda f: func.grad(lambda w: (func.grad(f)(w, X) ** 2).sum())(W),
    "vmap of grad": lambda f: func.vmap(func.grad(f), (None, 0), randomness="same")(W, PAIR),
    "grad of vmap": lambda f: func.grad(
        lambda w: func.vmap(f, (None, 0), randomness="same")(w, PAIR).sum()
    )(W),
    "checkpoint of grad": lambda f: func.grad(
        lambda w: checkpoint(lambda w: (func.grad(f)(w, X) ** 2).sum())(w)
    )(W),
    "none": lambda f: f(W, X),
}


@pytest.mark.parametrize("model", MODELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("road", ["interpret", pytest.param("compile", marks=pytest.mark.slow)])
def test_it_changes_no_number(model: Any, road: str) -> None:
    with on_road(road):
        for name, transform in TRANSFORMS.items():
            if model is in_while and name in ("hessian", "checkpoint of grad", "grad of grad"):
                continue
            expected, got = transform(model(plain)), transform(model(checkpoint))
            for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
                assert_close(y, x, what=name)


def test_inside_of_jax() -> None:
    w, x = W.astype("f4"), X.astype("f4")
    expected = jax.grad(lambda w: (jnp.tanh(jnp.sin(x @ w) @ w) ** 2).sum())(w)
    loss = lambda w: (checkpoint(layer)(w, x) ** 2).sum()  # noqa: E731
    for found in (jax.grad(loss)(w), jax.jit(jax.grad(loss))(w), jax.jit(func.grad(loss))(w)):
        assert_close(found, expected)
    text = str(jax.make_jaxpr(jax.grad(ftrans.to_jax(loss)))(w))
    assert "checkpoint" in text or "remat" in text


def test_functions_of_jax_with_checkpoints_are_imported_with_them() -> None:
    def of_jax(w: Any, x: Any) -> Any:
        named = name_of_jax(jnp.sin(x @ w), "sine")
        return jnp.tanh(named @ w)

    for policy, count in (
        (None, 0),
        (jax.checkpoint_policies.dots_saveable, 2),
        (jax.checkpoint_policies.save_only_these_names("sine"), 1),
        (jax.checkpoint_policies.save_any_names_but_these("sine"), 0),
    ):
        f = ftrans.from_jax(jax.checkpoint(of_jax, policy=policy))
        value, pullback = func.vjp(f, W, X)
        assert len(pullback.residuals) == 2 + count
        assert_close(value, layer(W, X))
        for x, y in zip(pullback(value), func.vjp(layer, W, X)[1](value), strict=True):
            assert_close(x, y)


def test_tensors() -> None:
    def gradient(wrap: Wrap) -> Any:
        w = ftrans.tensor(W, requires_grad=True)
        chain(wrap)(w, ftrans.tensor(X)).backward()
        return w.grad.numpy()

    assert_close(gradient(checkpoint), gradient(plain))


# ------------------------------------------------------------------------------------- memory


def deep(wrap: Wrap) -> Any:
    def step(w: Any, x: Any) -> Any:
        return x + fnp.tanh(fnp.sin(fnp.tanh(x @ w)))

    def loss(ws: Any, x: Any) -> Any:
        block = wrap(step)
        for w in ws:
            x = block(w, x)
        return (x**2).mean()

    return loss


WEIGHTS = [(RNG.normal(size=(32, 32)) / 6).astype("f4") for _ in range(8)]
BATCH = RNG.normal(size=(512, 32)).astype("f4")


def temporary(f: Any, *args: Any) -> int:
    """Returns the bytes that XLA says that it allocates besides arguments and results."""
    compiled = ftrans.jit(f).lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_compiled_code_keeps_less() -> None:
    sizes = [temporary(func.value_and_grad(deep(w)), WEIGHTS, BATCH) for w in (plain, checkpoint)]
    # 8 times four residuals, against 8 and those of one layer
    assert sizes[1] < 0.62 * sizes[0], sizes
    in_one = checkpoint(deep(plain), prevent_cse=False)
    assert temporary(func.value_and_grad(in_one), WEIGHTS, BATCH) > 0.9 * sizes[0]


def test_what_says_where_values_lie_is_computed_again() -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def loss(wrap: Wrap) -> Any:
        block = wrap(lambda w, x: fnp.tanh(fnp.sin(ftrans.with_sharding_constraint(x, whole) @ w)))

        def f(ws: Any, x: Any) -> Any:
            for w in ws:
                x = block(w, x)
            return (x**2).mean()

        return f

    sizes = [temporary(func.grad(loss(w)), WEIGHTS, BATCH) for w in (plain, checkpoint)]
    assert sizes[1] < 0.8 * sizes[0], sizes


def test_branches_whose_cotangents_are_constants_are_computed_again() -> None:
    def loss(wrap: Wrap) -> Any:
        def branch(w: Any, x: Any) -> Any:
            for _ in range(4):
                x = fnp.tanh(fnp.sin(x @ w))
            return x.sum()

        return lambda ws, x: sum(wrap(branch)(w, x) for w in ws)

    sizes = [temporary(func.value_and_grad(loss(w)), WEIGHTS, BATCH) for w in (plain, checkpoint)]
    assert sizes[1] < 0.5 * sizes[0], sizes


@pytest.mark.parametrize("road", ["interpret", "compile"])
def test_gradients_are_equal_to_the_bit(road: str) -> None:
    with on_road(road):
        found = [func.value_and_grad(deep(wrap))(WEIGHTS, BATCH) for wrap in (plain, checkpoint)]
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(x, y)


def test_interpreted_programs_keep_less() -> None:
    def peak(wrap: Wrap) -> int:
        gradient = func.value_and_grad(deep(wrap))
        with on_road("interpret"):
            gradient(WEIGHTS, BATCH)
            tracemalloc.start()
            gradient(WEIGHTS, BATCH)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    assert peak(checkpoint) < 0.75 * peak(plain)


def test_a_pullback_holds_the_arguments() -> None:
    block = checkpoint(lambda w, x: layer(w, layer(w, x)))
    _, pullback = func.vjp(block, W, X)
    assert [x.shape for x in pullback.residuals] == [(4, 4), (5, 4)]
    _, pullback = func.vjp(checkpoint(lambda x: 3 * x), X)
    assert pullback.residuals == []


def test_a_batch_of_cotangents_computes_again_once() -> None:
    program = ftrans.trace(func.jacrev(lambda x: checkpoint(lambda x: fnp.sin(fnp.exp(x)))(x)))(
        X[0]
    )
    exps = re.findall(r"(f64\[[\d,]*\])\s*= exp\(", str(program))
    assert exps
    assert set(exps) == {"f64[4]"}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "f2", "bfloat16", "f4", "f8", "c8"])
def test_late_values_are_the_same_to_the_bit(dtype: str) -> None:
    kind = jnp.dtype(dtype) if dtype == "bfloat16" else np.dtype(dtype)
    given = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 1e-40, 2.0])
    with np.errstate(all="ignore"):
        x = (np.nan_to_num(given) if kind.kind in "biu" else given).astype(kind)
    for signal in (np.array([-1.5]), np.zeros((0, 2)), np.array(-0.0)):
        with jax.enable_x64(True):
            out = jax.jit(lambda *xs: late_p.lower(jnp, *xs))(x, signal)
        assert np.asarray(out).tobytes() == x.tobytes()


# ------------------------------------------------------------------------------------ policies


def of_policies(w: Any, x: Any) -> Any:
    h = fnp.exp(fnp.sin(checkpoint_name(x @ w, "product")))
    return fnp.tanh(checkpoint_name(h, "exp") @ w)


POLICIES = {
    "default": (None, 0),
    "nothing": (checkpoint_policies.nothing_saveable, 0),
    "dots": (checkpoint_policies.dots_saveable, 2),
    "no batch": (checkpoint_policies.checkpoint_dots_with_no_batch_dims, 2),
    "only": (checkpoint_policies.save_only_these_names("exp", "absent"), 1),
    "but": (checkpoint_policies.save_any_names_but_these("exp"), 1),
    "JAX's": (jax.checkpoint_policies.dots_saveable, 2),
    "both": (
        checkpoint_policies.save_from_both_policies(
            checkpoint_policies.dots_saveable, checkpoint_policies.save_only_these_names("exp")
        ),
        3,
    ),
    "own": (lambda primitive, *types, **params: primitive.name == "sin", 1),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str) -> None:
    policy, count = POLICIES[name]
    block = checkpoint(of_policies, policy=policy)
    value, pullback = func.vjp(block, W, X)
    assert len(pullback.residuals) == 2 + count
    for x, y in zip(pullback(value), func.vjp(of_policies, W, X)[1](value), strict=True):
        np.testing.assert_array_equal(x, y)
    mapped = func.vmap(func.grad(lambda w, x: block(w, x).sum()), (None, 0))(W, PAIR)
    assert_close(mapped[1], func.grad(lambda w: of_policies(w, PAIR[1]).sum())(W))
    loss = lambda f: lambda w: f(w, X).sum()  # noqa: E731
    assert_close(func.hessian(loss(block))(W), func.hessian(loss(of_policies))(W))


def test_everything_saved_is_as_without() -> None:
    kept = {}
    for key, policy in (
        ("all", checkpoint_policies.everything_saveable),
        ("but", checkpoint_policies.save_anything_except_these_names("exp")),
    ):
        pullback = func.vjp(checkpoint(of_policies, policy=policy), W, X)[1]
        kept[key] = sum(x.nbytes for x in pullback.residuals)
    assert kept["all"] == sum(x.nbytes for x in func.vjp(of_policies, W, X)[1].residuals)


def test_products_with_batch_axes_are_told_apart() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(fnp.matmul(x, x.transpose(0, 2, 1))).sum()

    x = RNG.normal(size=(2, 3, 3))
    for policy, count in (
        (checkpoint_policies.dots_saveable, 2),
        (checkpoint_policies.dots_with_no_batch_dims_saveable, 1),
    ):
        assert len(func.vjp(checkpoint(f, policy=policy), x)[1].residuals) == count


def test_equal_policies_make_equal_programs() -> None:
    def made() -> Any:
        policy = checkpoint_policies.save_only_these_names("b", "a")
        return ftrans.trace(lambda x: checkpoint(fnp.sin, policy=policy)(x))(X)

    assert made().structure is made().structure


def test_what_is_not_traced_is_called_once_unless_a_policy_says_otherwise() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(x.shape)
        return np.sin(x)

    sine = ftrans.external(
        counted,
        lambda x: x,
        vmap_method="broadcast_all",
        vjp=lambda primals, out, ct: (ct * fnp.sqrt(1 - out**2),),
    )
    x = np.linspace(0.1, 1.0, 3)
    for policy, count in ((None, 1), (checkpoint_policies.nothing_saveable, 2)):
        block = checkpoint(lambda x: sine(x * 0.5) ** 2, policy=policy)
        for wrap in (plain, ftrans.jit):
            calls.clear()
            _, slope = wrap(func.value_and_grad(lambda x, f=block: f(x).sum()))(x)
            assert_close(slope, np.sin(x * 0.5) * np.cos(x * 0.5))
            assert len(calls) == count


def test_options() -> None:
    @checkpoint(static_argnums=(1, -1))
    def f(x: Any, table: Any, mode: Any) -> Any:
        assert type(table) is np.ndarray
        return (x * table).sum() if mode else x

    np.testing.assert_array_equal(func.grad(lambda x: f(x, X, True))(X), X)
    assert func.remat is checkpoint
    assert ftrans.checkpoint is checkpoint
    assert checkpoint_name({"a": 1, "b": X}, "x")["b"] is X
    assert f(X, X, False) is X
    for number, args in ((5, (X, X)), (-3, (X, X)), (0, ()), (1, (X,))):
        with pytest.raises(ArgumentError) as caught:
            checkpoint(f, static_argnums=number)(*args)
        assert str(caught.value) == (
            "checkpoint(checkpoint(f)): static_argnums names an argument that is not passed by "
            f"position.\n  static_argnums: {number}\n  positional arguments: {len(args)}\n"
            "  Count them from 0, or from the last with -1; those with names are traced."
        )
