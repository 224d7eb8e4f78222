from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

from ftrans.errors import DTypeError, ShapeError
from ftrans.interpreters import batch
from ftrans.ir import ArrayType, Params
from ftrans.primitives import conv_p, dot_p
from ftrans.primitives.evaluate import evaluate
from tests.helpers import sampled
from tests.oracle import jaxpr
from tests.unit.transforming import (
    assert_close,
    check_batches,
    check_derivatives,
    program_of,
    run,
    stacked,
)


def draw(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    random = np.random.default_rng(seed)
    out = random.normal(size=shape)
    if dtype.startswith("complex"):
        out = out + 1j * random.normal(size=shape)
    return np.asarray(out * (3 if dtype[0] in "iu" else 1)).astype(dtype)


# ---------------------------------------------------------------------------------------- dot

DOTS = {
    "matrices": ((2, 3), (3, 4), ((1,), (0,)), ((), ())),
    "vectors": ((3,), (3,), ((0,), (0,)), ((), ())),
    "outer": ((2,), (3,), ((), ()), ((), ())),
    "transposed": ((3, 2), (4, 3), ((0,), (1,)), ((), ())),
    "batched": ((2, 3, 4), (4, 2, 5), ((2,), (0,)), ((0,), (1,))),
    "two axes, exchanged": ((2, 3, 4, 5), (4, 6, 5, 2), ((3, 0), (2, 3)), ((2,), (0,))),
    "two axes, exchanged in y": ((2, 3, 4, 5), (4, 6, 5, 2), ((0, 3), (3, 2)), ((2,), (0,))),
    "two batch axes": ((2, 3, 4), (5, 4, 2), ((), ()), ((0, 2), (2, 1))),
    "empty contraction": ((2, 0), (0, 3), ((1,), (0,)), ((), ())),
    "empty result": ((0, 2), (2, 3), ((1,), (0,)), ((), ())),
    "scalars": ((), (), ((), ()), ((), ())),
}


@pytest.mark.parametrize("name", DOTS)
def test_dot(name: str) -> None:
    x_shape, y_shape, contract, along = DOTS[name]
    x, y = draw(*x_shape), draw(*y_shape, seed=1)

    def dot(x, y):
        return dot_p(x, y, contract=contract, batch=along)

    check_derivatives(dot, lambda x, y: lax.dot_general(x, y, (contract, along)), x, y)
    check_batches(dot, x, y)


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [
        ("float16", 1e-2),
        ("bfloat16", 3e-2),
        ("float32", 1e-5),
        ("complex64", 1e-5),
        ("complex128", 1e-12),
        ("int8", 0),
        ("uint32", 0),
        ("bool", 0),
    ],
)
def test_dot_in_every_dtype(dtype: str, rtol: float) -> None:
    dtype = jnp.dtype(dtype)
    x, y = (
        draw(3, 4, seed=s, dtype="complex128" if dtype.kind == "c" else "float64") for s in (0, 1)
    )
    x, y = (
        abs(v * 3).astype(dtype) if dtype.kind == "u" else (v * 2).astype(dtype) for v in (x, y.T)
    )
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    found = dot_p.lower(np, x, y, **params)
    with jax.enable_x64(True):
        expected = np.asarray(dot_p.lower(jnp, x, y, **params))
    assert found.dtype == expected.dtype == dtype
    wide = "complex128" if dtype.kind == "c" else "float64"
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=rtol, atol=rtol)


def test_dot_of_complex_is_not_conjugated() -> None:
    x, y = draw(2, 3, dtype="complex128"), draw(3, 2, seed=1, dtype="complex128")
    check_derivatives(
        lambda x, y: dot_p(x, y, contract=((1,), (0,)), batch=((), ())), lambda x, y: x @ y, x, y
    )


def test_dot_counts_two_operations_per_product() -> None:
    types = ArrayType((2, 3), "float32"), ArrayType((3, 4), "float32")
    params = Params(contract=((1,), (0,)), batch=((), ()))
    cost = dot_p.cost(types, dot_p.infer_types(types, params), params)
    assert cost == (2 * 2 * 3 * 4, 4 * (6 + 12 + 8))


def test_dot_names_what_does_not_fit() -> None:
    x, y = ArrayType((2, 3), "float32"), ArrayType((4, 2), "float32")
    with pytest.raises(ShapeError) as error:
        dot_p.infer(x, y, contract=((1,), (0,)), batch=((), ()))
    assert str(error.value) == (
        "dot: the contracted axes do not fit each other.\n"
        "  x: f32[2,3], axes (1,)\n  y: f32[4,2], axes (0,)"
    )
    with pytest.raises(DTypeError, match=r"y: i32\[3,2\]"):
        dot_p.infer(x, ArrayType((3, 2), "int32"), contract=((1,), (0,)), batch=((), ()))
    with pytest.raises(ShapeError, match="named twice"):
        dot_p.infer(x, x, contract=((1,), (1,)), batch=((1,), (1,)))


# --------------------------------------------------------------------------------------- conv

CONVS = {
    "plain": ((2, 3, 5, 4), (4, 3, 2, 3), {}),
    "strides": ((2, 3, 7, 6), (4, 3, 3, 2), {"strides": (2, 3)}),
    "asymmetric padding": ((2, 2, 4, 5), (3, 2, 3, 2), {"padding": ((2, 0), (1, 3))}),
    "negative padding": ((1, 2, 7), (2, 2, 3), {"padding": ((-1, -2),)}),
    "cropped and padded": ((1, 2, 7), (2, 2, 2), {"padding": ((-3, 4),), "strides": (2,)}),
    "kernel dilated": ((2, 2, 9), (3, 2, 3), {"rhs_dilation": (3,), "strides": (2,)}),
    "x dilated": ((2, 2, 4), (3, 2, 3), {"lhs_dilation": (3,), "padding": ((1, 2),)}),
    "all at once": (
        (2, 4, 6, 5),
        (6, 2, 2, 3),
        {
            "strides": (2, 1),
            "padding": ((1, 2), (-1, 3)),
            "lhs_dilation": (2, 3),
            "rhs_dilation": (3, 2),
            "feature_groups": 2,
        },
    ),
    "feature groups": ((2, 6, 5), (9, 2, 2), {"feature_groups": 3, "strides": (2,)}),
    "depthwise": ((2, 3, 5), (6, 1, 3), {"feature_groups": 3, "padding": ((1, 1),)}),
    "batch groups": (
        (6, 2, 5),
        (3, 2, 2),
        {"batch_groups": 3, "padding": ((1, 0),), "strides": (2,)},
    ),
    "batch groups of two": ((4, 3, 6), (6, 3, 2), {"batch_groups": 2, "rhs_dilation": (2,)}),
    "no spatial axes": ((2, 3), (4, 3), {}),
    "three spatial axes": ((1, 2, 3, 2, 3), (2, 2, 2, 1, 2), {"strides": (1, 2, 2)}),
    "kernel larger than x": ((1, 1, 2), (1, 1, 4), {}),
    "unused tail": ((1, 1, 8), (1, 1, 2), {"strides": (4,)}),
    "no examples": ((0, 2, 3), (1, 2, 2), {}),
}


def settings(spatial: int, changed: dict) -> dict:
    one = (1,) * spatial
    plain = {
        "strides": one,
        "padding": ((0, 0),) * spatial,
        "lhs_dilation": one,
        "rhs_dilation": one,
        "feature_groups": 1,
        "batch_groups": 1,
    }
    return plain | changed


def lax_conv(x, kernel, *, strides, padding, feature_groups, batch_groups, **dilations):
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        padding,
        feature_group_count=feature_groups,
        batch_group_count=batch_groups,
        **dilations,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(list(CONVS), 2))
def test_conv(name: str) -> None:
    x_shape, kernel_shape, changed = CONVS[name]
    params = settings(len(x_shape) - 2, changed)
    x, kernel = draw(*x_shape), draw(*kernel_shape, seed=1)
    check_derivatives(
        lambda x, k: conv_p(x, k, **params), lambda x, k: lax_conv(x, k, **params), x, kernel
    )


@pytest.mark.parametrize(
    "name", ["strides", "all at once", "feature groups", "batch groups", "batch groups of two"]
)
@pytest.mark.parametrize("dims", [(0, None), (None, 1), (0, 0), (2, 3), (3, None), (None, 3)])
def test_conv_is_batched(name: str, dims: tuple) -> None:
    x_shape, kernel_shape, changed = CONVS[name]
    params = settings(len(x_shape) - 2, changed)
    arrays = [draw(*x_shape), draw(*kernel_shape, seed=1)]
    program = program_of(lambda x, k: conv_p(x, k, **params), arrays)
    operands = [
        a if dim is None else stacked(a, 2, dim, 1, None)
        for a, dim in zip(arrays, dims, strict=True)
    ]
    mapped, _ = batch(program, 2, dims)
    expected = jaxpr.evaluate(jax.vmap(lambda x, k: lax_conv(x, k, **params), dims))(*operands)
    (found,) = run(mapped, operands)
    assert_close(found, expected)


def test_conv_over_no_examples_is_empty() -> None:
    params = settings(1, {})
    program = program_of(lambda x, k: conv_p(x, k, **params), [draw(2, 3, 5), draw(4, 3, 2)])
    mapped, _ = batch(program, 0, (0, 0))
    (found,) = run(mapped, [np.zeros((0, 2, 3, 5)), np.zeros((0, 4, 3, 2))])
    assert found.shape == (0, 2, 4, 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "int32"])
def test_conv_keeps_the_dtype(dtype: str) -> None:
    x, kernel = (draw(*s).astype(jnp.dtype(dtype)) for s in ((1, 2, 5), (3, 2, 2)))
    program = program_of(lambda x, k: conv_p(x, k, **settings(1, {})), [x, kernel])
    (out,) = evaluate(np, program, [x, kernel])
    assert isinstance(out, np.ndarray)
    assert out.dtype == jnp.dtype(dtype)


def test_conv_of_complex_is_not_conjugated() -> None:
    x, kernel = draw(1, 2, 4, dtype="complex128"), draw(2, 2, 2, seed=1, dtype="complex128")
    params = settings(1, {"padding": ((1, 1),)})
    check_derivatives(
        lambda x, k: conv_p(x, k, **params), lambda x, k: lax_conv(x, k, **params), x, kernel
    )


def test_conv_names_what_does_not_fit() -> None:
    x, kernel = ArrayType((2, 3, 5), "float32"), ArrayType((4, 2, 3), "float32")
    with pytest.raises(ShapeError) as error:
        conv_p.infer(x, kernel, **settings(1, {}))
    assert str(error.value) == (
        "conv: the features do not fit the kernel.\n"
        "  x: f32[2,3,5]\n  kernel: f32[4,2,3]\n"
        "  feature_groups: 1, batch_groups: 1\n"
        "  x has 3 features, the kernel takes 2 in each group and makes 4."
    )
    with pytest.raises(ShapeError, match="strides has 2 entries for 1 spatial axes"):
        conv_p.infer(x, kernel, **settings(1, {"strides": (1, 1)}))
    with pytest.raises(ShapeError, match="not both"):
        conv_p.infer(x, kernel, **settings(1, {"feature_groups": 2, "batch_groups": 2}))
