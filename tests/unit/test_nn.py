"""`ftrans.nn` under transforms, at its edges, and what it says of bad input."""

from __future__ import annotations

import re
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import ftrans
from ftrans import func, nn, random
from ftrans import numpy as fnp
from ftrans.autograd import gradcheck
from ftrans.errors import KeyReuseWarning
from ftrans.runtime import cache_clear
from tests.helpers import assert_close
from tests.oracle.pytorch_nn import CASES, Case, cotangent, function_of, normal

SMOOTH = [
    key
    for key, case in {case.name: (key, case) for key, case in CASES.items()}.values()
    if case.smooth and not re.search("kinks|ends|far|least|equal|inf|nan|everywhere", key)
]
"""One case of each function whose operands are no special values."""


def first_result(case: Case) -> Any:
    call = function_of(nn, case)
    return lambda *xs: call(*xs)[0]


@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", SMOOTH)
def test_forward_mode_agrees_with_reverse_mode(key: str) -> None:
    case = CASES[key]
    f, xs = first_result(case), [case.operands[i] for i in case.smooth]
    dots = [normal(*x.shape, seed=11) for x in xs]
    out, dot = func.jvp(f, tuple(xs), tuple(dots))
    ct = cotangent(np.shape(out))
    cts = func.vjp(f, *xs)[1](ct)
    pulled = sum(float(np.sum(a * b)) for a, b in zip(cts, dots, strict=True))
    np.testing.assert_allclose(np.sum(ct * dot), pulled, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", SMOOTH)
def test_batches_are_loops(key: str) -> None:
    case = CASES[key]
    f, first = first_result(case), case.smooth[0]
    x = case.operands[first]
    rest = [case.operands[i] for i in case.smooth[1:]]
    xs = np.stack([x, x * 0.75], axis=-1)
    found = func.vmap(lambda x: f(x, *rest), in_dims=-1)(xs)
    expected = np.stack([f(xs[..., i], *rest) for i in range(2)])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


TWICE = {"batch_norm", "conv2d", "max_pool2d", "cross_entropy", "layer_norm", "ctc"}


@pytest.mark.parametrize("key", [key for key in SMOOTH if CASES[key].name in TWICE])
def test_second_derivatives_by_differences(key: str) -> None:
    case = CASES[key]
    f, x = first_result(case), case.operands[case.smooth[0]]
    rest = [case.operands[i] for i in case.smooth[1:]]
    t = normal(*x.shape, seed=12)
    slope = func.grad(lambda x: fnp.sum(fnp.square(f(x, *rest))))
    found = func.jvp(slope, (x,), (t,))[1]
    step = 1e-6
    expected = (slope(x + step * t) - slope(x - step * t)) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------- attention

Q, K, V = normal(2, 4, 5, 3), normal(2, 4, 7, 3), normal(2, 4, 7, 2)
SEEN = np.random.default_rng(3).random((2, 1, 5, 7)) < 0.6
SEEN[0, 0, 2] = False
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "booleans": {"attn_mask": SEEN},
    "one row": {"attn_mask": SEEN[:, :, :1]},
    "one column": {"attn_mask": SEEN[..., :1]},
    "numbers": {"attn_mask": normal(4, 5, 7)},
    "scaled": {"scale": 2.0},
}


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
@pytest.mark.parametrize("setting", SETTINGS)
def test_attention_in_chunks(setting: str, chunk: int) -> None:
    options = SETTINGS[setting]

    def pulled(chunk: int | None) -> Any:
        f = lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, chunk=chunk, **options)  # noqa: E731
        out, pull = func.vjp(f, Q, K, V)
        return out, *pull(cotangent(out.shape))

    for found, expected in zip(pulled(chunk), pulled(None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_attention_in_chunks_with_shared_heads_and_a_mask_that_is_learnt(shared: int) -> None:
    k, v, bias = K[:, ::shared], V[:, ::shared], normal(2, 4, 5, 7)

    def f(chunk: int | None) -> Any:
        return lambda q, k, v, bias: fnp.sum(
            fnp.sin(nn.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True, chunk=chunk))
        )

    found, expected = (
        func.grad(f(chunk), argnums=(0, 1, 2, 3))(Q, k, v, bias) for chunk in (3, None)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_attention_in_chunks_under_all_transforms() -> None:
    def f(chunk: int | None) -> Any:
        return lambda q: fnp.sum(
            fnp.square(nn.scaled_dot_product_attention(q, K[0, 0], V[0, 0], chunk=chunk))
        )

    q, t = Q[0, 0], normal(5, 3, seed=4)
    for transformed in (
        lambda f: func.jvp(f, (q,), (t,)),
        lambda f: func.jvp(func.grad(f), (q,), (t,))[1],
        lambda f: func.grad(lambda q: fnp.sum(func.grad(f)(q) * t))(q),
        lambda f: func.vmap(func.grad(f))(Q[0]),
        lambda f: func.grad(lambda q: fnp.sum(func.vmap(f)(q)))(Q[0]),
        lambda f: ftrans.jit(func.grad(f))(q),
    ):
        for a, b in zip(
            jax.tree.leaves(transformed(f(3))), jax.tree.leaves(transformed(f(None))), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_memory_of_attention_in_chunks_grows_with_the_length() -> None:
    def temporaries(length: int, chunk: int | None) -> int:
        def loss(q: Any) -> Any:
            out = nn.scaled_dot_product_attention(q, q, q, chunk=chunk)
            return fnp.sum(fnp.square(out))

        jitted = jax.jit(func.grad(loss))
        compiled = jitted.lower(jax.ShapeDtypeStruct((length, 8), "float32")).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(2048, 64) < 2.5 * temporaries(1024, 64)
    assert temporaries(2048, 64) < 0.25 * temporaries(2048, None)


def test_attention_with_dropout_in_chunks() -> None:
    ones = np.ones((40, 50, 2))
    f = lambda v: nn.scaled_dot_product_attention(  # noqa: E731
        ones, ones, v, dropout_p=0.5, dropout_key=jax.random.key(1), chunk=16
    )
    out = f(ones)
    assert 0.9 < out.mean() < 1.1
    assert out.std() > 0.05
    # linear in the values: the derivative draws what the function has drawn
    np.testing.assert_allclose(func.jvp(f, (ones,), (ones,))[1], out)
    np.testing.assert_allclose(np.sum(func.grad(lambda v: fnp.sum(f(v)))(ones)), out.sum())
    q = normal(4, 2)
    loss = lambda q: fnp.sum(fnp.square(nn.scaled_dot_product_attention(  # noqa: E731
        q, normal(6, 2), normal(6, 2, seed=1), dropout_p=0.3, dropout_key=jax.random.key(1), chunk=4
    )))  # fmt: skip
    assert gradcheck(loss, (ftrans.tensor(q, requires_grad=True),))


def test_a_query_that_sees_nothing_gets_zeros_and_no_gradient() -> None:
    seen = np.zeros((5, 7), bool)
    for chunk in (None, 2):
        f = lambda q, chunk=chunk: nn.scaled_dot_product_attention(  # noqa: E731
            q, K[0, 0], V[0, 0], seen, chunk=chunk
        )
        assert not f(Q[0, 0]).any()
        assert not func.grad(lambda q, f=f: fnp.sum(f(q)))(Q[0, 0]).any()


# ------------------------------------------------------------------------------------ at random


def test_dropout_keeps_the_mean_and_its_gradient_is_the_mask() -> None:
    key, x = jax.random.key(0), np.ones(10_000)
    out = nn.dropout(x, 0.2, key=random.clone(key))
    assert set(np.unique(out)) == {0.0, 1.25}
    assert abs(out.mean() - 1.0) < 0.02
    np.testing.assert_array_equal(
        func.grad(lambda x: fnp.sum(nn.dropout(x, 0.2, key=random.clone(key))))(x), out
    )
    np.testing.assert_array_equal(nn.dropout(x, 0.2, key=random.clone(key)), out)
    assert (nn.dropout(x, 0.2) != nn.dropout(x, 0.2)).any()
    assert nn.dropout(x, 0.2, training=False) is x
    assert not nn.dropout(x, 1.0, key=random.clone(key)).any()


def test_dropout_of_channels_drops_them_whole() -> None:
    for dropout, shape in ((nn.dropout1d, (9, 8, 3)), (nn.dropout2d, (9, 8, 3, 2)),
                           (nn.dropout3d, (9, 8, 3, 2, 2))):  # fmt: skip
        out = dropout(np.ones(shape), key=jax.random.key(0)).reshape(72, -1)
        assert (out == out[:, :1]).all()
        assert 10 < (out[:, 0] == 0).sum() < 62


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    out = nn.alpha_dropout(normal(20_000), 0.3, True, key=jax.random.key(0))
    assert abs(out.mean()) < 0.05
    assert abs(out.std() - 1.0) < 0.05


def test_gumbel_softmax() -> None:
    logits, key = np.log(np.array([0.2, 0.8])) * np.ones((4000, 1)), jax.random.key(0)
    hard = nn.gumbel_softmax(logits, hard=True, key=random.clone(key))
    assert set(np.unique(hard)) == {0.0, 1.0}
    np.testing.assert_allclose(hard.mean(0), [0.2, 0.8], atol=0.03)
    soft = func.grad(lambda x: fnp.sum(nn.gumbel_softmax(x, key=random.clone(key))[:, 0]))(logits)
    straight = func.grad(
        lambda x: fnp.sum(nn.gumbel_softmax(x, hard=True, key=random.clone(key))[:, 0])
    )(logits)
    np.testing.assert_allclose(soft, straight)


@pytest.mark.parametrize("make", [jax.random.key, random.key])
def test_one_key_for_two_layers_is_told_of(make: Any) -> None:
    cache_clear()  # it is told once for a place
    key = make(0)
    nn.dropout(np.ones(3), key=key)
    with pytest.warns(KeyReuseWarning, match="dropout|uniform"):
        nn.dropout(np.ones(3), key=key)


class Keys:
    """A generator of keys."""

    count = 0

    def key(self) -> Any:
        self.count += 1
        return jax.random.key(self.count)


def test_a_generator_is_asked_for_a_key_once() -> None:
    rng, x = Keys(), np.ones(100)
    out = nn.dropout(x, rng=rng)
    np.testing.assert_array_equal(out, nn.dropout(x, key=jax.random.key(1)))
    func.grad(lambda x: fnp.sum(nn.dropout(x, rng=rng)))(x)
    leaf = ftrans.tensor(x, requires_grad=True)
    nn.dropout(leaf, rng=rng).sum().backward()
    assert rng.count == 3
    np.testing.assert_array_equal(leaf.grad.numpy(), nn.dropout(x, key=jax.random.key(3)))
    with pytest.raises(ValueError, match="by a key, or by a generator"):
        nn.dropout(x, key=jax.random.key(0), rng=rng)


def test_steps_with_dropout_compile_one_program() -> None:
    w, x = normal(6, 5).astype("float32"), normal(20, 5).astype("float32")

    def loss(w: Any, key: Any) -> Any:
        return fnp.mean(fnp.square(nn.dropout(nn.relu(nn.linear(x, w)), key=key)))

    before = ftrans.config.execution
    ftrans.config.execution = "compile"
    try:
        ftrans.cache_clear()
        for step in range(5):
            w = w - 0.1 * func.grad(loss)(w, jax.random.key(step))
        assert ftrans.cache_info().compiled == 1
    finally:
        ftrans.config.execution = before


INITIALISERS = {
    "xavier_uniform": (2 / 1200) ** 0.5,
    "xavier_normal": (2 / 1200) ** 0.5,
    "kaiming_uniform": (2 / 800) ** 0.5,
    "kaiming_normal": (2 / 800) ** 0.5,
    "uniform": 12**-0.5,
    "normal": 1.0,
    "trunc_normal": 0.8796,
    "orthogonal": 800**-0.5,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers_have_the_deviation_that_they_promise(name: str) -> None:
    make = getattr(nn.init, name)
    drawn = make((400, 800), key=jax.random.key(0))
    assert drawn.dtype == ftrans.get_default_dtype()
    assert abs(drawn.std() / INITIALISERS[name] - 1) < 0.02
    np.testing.assert_array_equal(drawn, make((400, 800), key=jax.random.key(0)))
    assert make((3, 2), dtype="float64").dtype == np.float64


def test_initialisers_of_structure() -> None:
    w = nn.init.orthogonal((3, 5), dtype="float64")
    np.testing.assert_allclose(w @ w.T, np.eye(3), atol=1e-12)
    with pytest.raises(ValueError, match="no gain for 'swish'"):
        nn.init.calculate_gain("swish")
    with pytest.raises(ValueError, match="a weight is"):
        nn.init.xavier_normal(3)


# -------------------------------------------------------------------------------------- dtypes

HALVES = {
    "softmax": lambda x: nn.softmax(x, -1),
    "layer_norm": lambda x: nn.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: nn.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: nn.group_norm(x, 2),
    "batch_norm": lambda x: nn.batch_norm(x, None, None, training=True)[0],
    "cross_entropy": lambda x: nn.cross_entropy(x, np.zeros(len(x), int)),
    "avg_pool1d": lambda x: nn.avg_pool1d(x, 4),
    "max_pool1d": lambda x: nn.max_pool1d(x, 4),
    "gelu": lambda x: nn.gelu(x, "tanh"),
    "attention": lambda x: nn.scaled_dot_product_attention(x, x, x),
    "attention in chunks": lambda x: nn.scaled_dot_product_attention(x, x, x, chunk=3),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_that_of_single_precision_rounded(name: str, dtype: Any) -> None:
    f = HALVES[name]
    x = normal(8, 64).astype(dtype)
    out = f(x)
    assert out.dtype == dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    scale = 3.0 if name == "gelu" else 1.0
    expected = f(x.astype("float32"))
    np.testing.assert_allclose(out.astype("float32"), expected, rtol=scale * eps, atol=scale * eps)
    assert func.grad(lambda x: fnp.sum(f(x)))(x).dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_follow_their_arguments(dtype: str) -> None:
    x = np.ones((2, 2, 4, 4), dtype)
    assert nn.conv2d(x, np.ones((1, 2, 2, 2), dtype)).dtype == dtype
    if dtype == "float32":
        out = nn.max_pool2d(jax.numpy.asarray(x), 2)
        assert isinstance(out, jax.Array)
        assert nn.mse_loss(jax.numpy.asarray(x), x * 2) == 1.0


# --------------------------------------------------------------------------------------- edges


def test_empty_batches() -> None:
    x = np.zeros((0, 4, 6, 6))
    assert nn.conv2d(x, np.zeros((3, 4, 3, 3))).shape == (0, 3, 4, 4)
    assert nn.conv_transpose2d(x, np.zeros((4, 3, 3, 3))).shape == (0, 3, 8, 8)
    for pool in (nn.max_pool2d, nn.avg_pool2d, nn.adaptive_max_pool2d, nn.adaptive_avg_pool2d):
        assert pool(x, 2).shape[:2] == (0, 4)
        assert func.grad(lambda x, pool=pool: fnp.sum(pool(x, 2)))(x).shape == x.shape
    assert nn.layer_norm(x, (6, 6)).shape == x.shape
    assert nn.group_norm(x, 2).shape == x.shape
    out, mean, _ = nn.batch_norm(x, np.ones(4), np.ones(4), training=True)
    assert out.shape == x.shape
    assert (mean == 1).all()
    assert nn.linear(np.zeros((0, 3)), np.zeros((2, 3))).shape == (0, 2)
    assert nn.softmax(np.zeros((0, 3)), -1).shape == (0, 3)
    assert nn.cross_entropy(np.zeros((0, 3)), np.zeros(0, int), reduction="sum") == 0
    assert np.isnan(nn.cross_entropy(np.zeros((0, 3)), np.zeros(0, int)))
    assert nn.embedding(np.zeros((0, 2), int), np.zeros((3, 4))).shape == (0, 2, 4)
    assert nn.dropout(np.zeros((0, 2))).shape == (0, 2)
    for shapes in (((0, 2, 3), (0, 4, 3)), ((2, 0, 3), (2, 4, 3)), ((2, 3, 3), (2, 0, 3))):
        q, k = map(np.zeros, shapes)
        for chunk in (None, 2):
            found = nn.scaled_dot_product_attention(q, k, k, chunk=chunk)
            assert found.shape == q.shape
            assert not found.any()


def test_a_largest_element_that_is_equal_counts_once() -> None:
    x = np.zeros((1, 1, 4))
    slope = func.grad(lambda x: fnp.sum(nn.max_pool1d(x, 2)))(x)
    np.testing.assert_array_equal(slope, [[[1.0, 0.0, 1.0, 0.0]]])


def test_max_pool_of_integers() -> None:
    x = np.arange(12).reshape(1, 3, 4) * -1
    np.testing.assert_array_equal(nn.max_pool2d(x, 2, 1, 1)[0, 0], [0, 0, -1, -2, -3])


@pytest.mark.slow
def test_where_jax_itself_traces() -> None:
    labels = np.array([1, 0])

    def loss(x: Any) -> Any:
        out = nn.scaled_dot_product_attention(nn.layer_norm(x, 3), x, x, chunk=1)
        return nn.cross_entropy(nn.softplus(nn.relu(out)), labels)

    x = normal(2, 3).astype("float32")
    expected = func.grad(loss)(x)
    for slope in (jax.grad(loss)(jax.numpy.asarray(x)), jax.jit(jax.grad(loss))(x)):
        np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)


def test_embedding_adds_up_gradients_but_for_padding() -> None:
    at = np.array([1, 1, 0, 2])
    f = lambda w: fnp.sum(nn.embedding(at, w, padding_idx=-1))  # noqa: E731
    np.testing.assert_array_equal(func.grad(f)(np.ones((3, 1))), [[1.0], [2.0], [0.0]])


def test_statistics_are_constants() -> None:
    def moved(x: Any) -> Any:
        return fnp.sum(nn.batch_norm(x, np.zeros(3), np.ones(3), training=True)[1])

    assert not func.grad(moved)(normal(4, 3)).any()


def test_implicit_axes_warn_as_pytorch_does() -> None:
    with pytest.warns(UserWarning, match="no axis was given, and 1 is taken"):
        out = nn.softmax(normal(2, 3))
    np.testing.assert_allclose(out.sum(1), 1.0)


def test_ctc_of_what_no_alignment_gives() -> None:
    logits, labels = normal(3, 1, 4), np.array([[1, 1, 1]])

    def loss(x: Any, **options: Any) -> Any:
        return nn.ctc_loss(nn.log_softmax(x, -1), labels, (3,), (3,), reduction="sum", **options)

    assert loss(logits) == np.inf
    value, slope = loss(logits, zero_infinity=True), func.grad(loss)(logits, zero_infinity=True)
    assert value == 0
    assert not slope.any()


def test_nan_goes_through() -> None:
    x = np.array([[np.nan, 1.0, 2.0, 3.0]])
    assert np.isnan(nn.softmax(x, -1)).all()
    assert np.isnan(nn.layer_norm(x, 4)).all()
    assert np.isnan(nn.relu(x)[0, 0])
    np.testing.assert_array_equal(np.isnan(nn.max_pool1d(x, 2)), [[True, False]])
    out = nn.scaled_dot_product_attention(x.T, np.ones((2, 1)), np.ones((2, 1)), chunk=1)
    np.testing.assert_array_equal(np.isnan(out[:, 0]), [True, False, False, False])


# -------------------------------------------------------------------------------------- errors

Z = np.zeros
WRONG = {
    "reduction": (lambda: nn.mse_loss(Z(2), Z(2), reduction="avg"), "no reduction 'avg'.*'none'"),
    "batchmean": (lambda: nn.l1_loss(Z(2), Z(2), reduction="batchmean"), "Write 'none', 'mean' or"),
    "padding": (lambda: nn.conv1d(Z((1, 1, 3)), Z((1, 1, 1)), padding="full"), "no padding 'full'"),
    "same with stride": (
        lambda: nn.conv1d(Z((1, 1, 5)), Z((1, 1, 3)), stride=2, padding="same"),
        r"Write padding=\(1,\)",
    ),
    "channels": (lambda: nn.conv2d(Z((1, 3, 5, 5)), Z((4, 2, 3, 3))), "input has 3 channels"),
    "rank": (lambda: nn.conv2d(Z((3, 5)), Z((4, 2, 3, 3))), r"input is f32\[n, c, h, w\]"),
    "dtype": (lambda: nn.conv1d(Z((1, 1, 3), "f"), Z((1, 1, 1))), r"weight.astype\('float32'\)"),
    "kernel": (lambda: nn.conv1d(Z((1, 1, 3)), Z((1, 1, 5))), "kernel is larger"),
    "bias": (lambda: nn.conv1d(Z((1, 1, 3)), Z((2, 1, 1)), Z(3)), r"Pass f32\[2\]"),
    "stride": (lambda: nn.max_pool2d(Z((1, 4, 4)), 2, stride=(1, 1, 1)), "stride is a number"),
    "stride of 0": (lambda: nn.max_pool2d(Z((1, 4, 4)), 2, 0), "stride is a number of at least 1"),
    "half a kernel": (lambda: nn.max_pool1d(Z((1, 4)), 2, padding=2), "at most half"),
    "window": (lambda: nn.avg_pool1d(Z((1, 2)), 3), "window is larger"),
    "output_padding": (
        lambda: nn.conv_transpose1d(Z((1, 1, 3)), Z((1, 1, 3)), output_padding=1),
        "output_padding is smaller",
    ),
    "linear": (lambda: nn.linear(Z((2, 3)), Z((3, 4))), r"perhaps write weight\.T"),
    "normalized_shape": (lambda: nn.layer_norm(Z((2, 3)), 2), r"Write normalized_shape=\(3,\)"),
    "groups": (lambda: nn.group_norm(Z((2, 3)), 2), "do not make 2 groups"),
    "one value": (
        lambda: nn.batch_norm(Z((1, 3)), None, None, training=True),
        "one value in each channel",
    ),
    "no statistics": (lambda: nn.batch_norm(Z((2, 3)), None, None), "no statistics to use"),
    "classes": (lambda: nn.cross_entropy(Z((2, 3)), np.array([0, 3])), "there is no class 3"),
    "targets": (lambda: nn.cross_entropy(Z((2, 3)), Z(3, int)), r"here i64\[2\]"),
    "float classes": (lambda: nn.nll_loss(Z((2, 3)), Z(2)), r"target.astype\('int64'\)"),
    "weights": (lambda: nn.cross_entropy(Z((2, 3)), Z(2, int), Z(2)), r"Pass f32\[3\]"),
    "smoothing": (lambda: nn.cross_entropy(Z((2, 3)), Z(2, int), label_smoothing=2), "from 0 to 1"),
    "shapes": (lambda: nn.binary_cross_entropy(Z((2, 1)), Z(2)), "different shapes"),
    "embedding": (lambda: nn.embedding(Z((2, 3)), Z((2, 3))), "Pass integers first"),
    "negative": (lambda: nn.embedding(Z(2, int) - 1, Z((2, 3))), "index -1 is out"),
    "swish": (lambda: nn.swish, "Write ftrans.nn.silu"),
    "squareplus": (lambda: nn.squareplus, r"from_jax\(jax.nn.squareplus\)"),
    "no row": (lambda: nn.embedding(Z(2, int), Z((2, 3)), padding_idx=5), "there is no row 5"),
    "one_hot": (lambda: nn.one_hot(np.array([4]), 3), "out of range"),
    "p": (lambda: nn.dropout(Z(2), 1.5), "a number from 0 to 1"),
    "heads": (
        lambda: nn.scaled_dot_product_attention(Z((4, 2, 3)), Z((2, 5, 3)), Z((2, 5, 3))),
        "pass enable_gqa=True",
    ),
    "mask": (
        lambda: nn.scaled_dot_product_attention(Z((2, 3)), Z((5, 3)), Z((5, 3)), Z((2, 4))),
        "attn_mask does not broadcast",
    ),
    "two masks": (
        lambda: nn.scaled_dot_product_attention(*[Z((2, 3))] * 3, Z((2, 2)), is_causal=True),
        "takes a mask, or is causal",
    ),
    "integer mask": (
        lambda: nn.scaled_dot_product_attention(Z((2, 3)), Z((2, 3)), Z((2, 3)), Z((2, 2), int)),
        "Write attn_mask != 0",
    ),
    "chunk": (
        lambda: nn.scaled_dot_product_attention(Z((2, 3)), Z((2, 3)), Z((2, 3)), chunk=0),
        "Write chunk=512",
    ),
    "glu": (lambda: nn.glu(Z((2, 3))), "to be even"),
    "pad": (lambda: nn.pad(Z(3), (3, 0), "reflect"), "no more than an axis has"),
    "mode": (lambda: nn.pad(Z(3), (3, 0), "mirror"), "no mode 'mirror'"),
    "approximation": (lambda: nn.gelu(Z(3), "erf"), "no approximation 'erf'"),
    "ctc": (lambda: nn.ctc_loss(Z((3, 2, 4)), Z((2, 2), int), (3,), (2, 2)), "one length for each"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_errors_say_what_to_write(what: str) -> None:
    call, text = WRONG[what]
    with pytest.raises(ftrans.errors.FtransError, match=f"(?s){text}"):
        call()
    with pytest.raises(ftrans.errors.FtransError):
        func.grad(lambda x: fnp.sum(x) + 0 * fnp.sum(call()))(np.ones(2))


def test_a_class_that_is_traced_and_out_of_range_makes_nan() -> None:
    assert np.isnan(ftrans.jit(nn.cross_entropy)(np.zeros((1, 3)), np.array([7])))


def test_modules_are_advised_against() -> None:
    for name in ("Linear", "LSTM"):
        with pytest.raises(AttributeError, match=rf"(?s)no attribute '{name}'.*There are no mod"):
            getattr(nn, name)


def test_initialisers_that_are_left_out_say_what_to_write() -> None:
    for name in ("dirac", "sparse_", "zeros_", "eye"):
        with pytest.raises(AttributeError, match=r"(?s)ftrans.nn.init has no attribute.*Write "):
            getattr(nn.init, name)


@pytest.mark.parametrize("loss", [nn.huber_loss, nn.smooth_l1_loss])
def test_parabolas_are_parabolas_where_nothing_differs(loss: Any) -> None:
    assert_close(func.hessian(lambda x: loss(x, np.zeros(())))(0.0), 1.0)


def test_what_is_left_goes_around_where_a_circle_is_padded() -> None:
    x = np.arange(7.0)
    np.testing.assert_array_equal(nn.pad(x, (-1, 2), "circular"), [1, 2, 3, 4, 5, 6, 1, 2])
    np.testing.assert_array_equal(nn.pad(x, (2, -1), "circular"), [4, 5, 0, 1, 2, 3, 4, 5])
