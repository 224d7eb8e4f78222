"""Each Function of the database under each transform, against JAX on the plain function."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
from ftrans import func
from ftrans.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from ftrans.errors import MissingRuleError
from tests.helpers import assert_close, sampled_rows
from tests.unit.function_database import (
    DATABASE,
    CubeGenVmap,
    ForwardHasDefaultArgs,
    MulGenVmap,
    NumpyCube,
    NumpyExpMarkDirty,
    NumpyMul,
    NumpySort,
    NumpyTake,
    ScaleGradGenVmap,
    Select,
    SelectGenVmap,
    SortGenVmap,
    ZeroGradientsGenVmap,
)
from tests.unit.function_transforms import FORWARD, FURTHER, ONCE, OURS, check

FEW = ("value", "grad", "jvp", "vmap", "vmap(vjp)", "grad(grad)", "jit(vmap(grad))")
PAIRS = [
    (name, transform)
    for name, case in DATABASE.items()
    if case.composable
    for transform in (FEW if case.variant else ONCE | FURTHER)
    if len(case.arrays) > 1 or not transform.startswith("vmap of the ")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "transform"), sampled_rows(PAIRS, 4))
def test_composable(name: str, transform: str) -> None:
    check(DATABASE[name], transform)


@pytest.mark.filterwarnings("ignore")  # for batching by a loop, of which another test hears
@pytest.mark.parametrize("transform", ONCE)
def test_not_composable(transform: str) -> None:
    check(DATABASE["NumpyCubeNotComposable"], transform)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", FURTHER)
def test_not_composable_says_so(transform: str) -> None:
    case = DATABASE["NumpyCubeNotComposable"]
    with pytest.raises(MissingRuleError, match="NumpyCubeNotComposable") as caught:
        FURTHER[transform](OURS, case.ours, case.arrays)
    if transform in FORWARD:
        assert "jvp" in str(caught.value)


@pytest.mark.parametrize("dims", [(0, 0, 0), (None, 0, 0), (0, None, None), (2, 1, 1)])
@pytest.mark.parametrize("axis", [1, -1, 0, -2])
def test_take_with_mapped_indices(axis: int, dims: Any) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 5))
    orders = np.argsort(np.random.default_rng(1).normal(size=(4, 3, 5)), axis % 2 + 1)
    inverses = np.argsort(orders, axis % 2 + 1)
    arrays = [
        array[0] if dim is None else np.moveaxis(array, 0, dim)
        for array, dim in zip((x, orders, inverses), dims, strict=True)
    ]
    got = func.vmap(lambda *xs: NumpyTake.apply(*xs, axis), dims)(*arrays)
    pairs = [
        (x[0 if dims[0] is None else i], orders[0 if dims[1] is None else i]) for i in range(4)
    ]
    assert_close(got, np.stack([np.take_along_axis(a, o, axis) for a, o in pairs]))


@pytest.mark.smoke
def test_sort_gives_the_gradients_of_the_documents() -> None:
    x, w = np.array([[3.0, 1, 2], [9, 7, 8]]), np.array([1.0, 10, 100])
    got = func.grad(lambda x: (NumpySort.apply(x, -1)[0] * w).sum())(x)
    assert_close(got, [[100.0, 1, 10], [100, 1, 10]])
    rows = func.jacrev(lambda x: NumpySort.apply(x, -1)[0])(x[0])
    assert_close(rows, [[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])


def test_sort_returns_its_order_as_integers() -> None:
    values, order, inverse = NumpySort.apply(np.array([3.0, 1.0, 2.0]), 0)
    assert_close(values, [1.0, 2.0, 3.0])
    assert_close(order, np.array([1, 2, 0]))
    assert_close(inverse, np.array([2, 0, 1]))


@pytest.mark.parametrize("name", ["NumpyCube", "NumpySort", "CubeGenVmap", "Select"])
def test_outside_of_transforms(name: str) -> None:
    """What goes in as an array of JAX comes out as one, and NumPy's as NumPy's."""
    case = DATABASE[name]
    for kind, arrays in ((np.ndarray, case.arrays), (jax.Array, [jnp.asarray(case.arrays[0])])):
        outs = case.ours(*arrays)
        for out in outs if isinstance(outs, tuple) else (outs,):
            assert isinstance(out, kind)


def test_only_the_wanted_gradient_is_computed() -> None:
    """The other one would be that of integers, which have none."""
    counts = np.array([1, 2, 3])
    got = func.grad(lambda x: NumpyMul.apply(x, counts).sum())(np.ones(3))
    assert_close(got, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("at", [0, 1])
def test_forward_mode_along_one_input(at: int) -> None:
    """The rule is handed zeros for the input that has no tangent."""
    x, y = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    f = [lambda a: NumpyMul.apply(a, y), lambda b: NumpyMul.apply(x, b)][at]
    primal, slope = [(x, y), (y, x)][at]
    assert_close(func.jvp(f, (primal,), (np.ones(2),))[1], slope)


# ------------------------------------------------------------------------------------- the checkers

TRUE = [name for name in DATABASE if not name.startswith(("ScaleGrad", "ZeroGradients"))]


@pytest.mark.parametrize("name", TRUE)
def test_gradcheck_finds_nothing_wrong(name: str) -> None:
    case = DATABASE[name]
    assert gradcheck(case.ours, case.arrays)
    if case.composable:
        assert gradgradcheck(case.ours, case.arrays)


@pytest.mark.parametrize("name", [name for name in DATABASE if name not in TRUE])
def test_gradcheck_finds_what_is_not_the_gradient(name: str) -> None:
    with pytest.raises(GradcheckError):
        gradcheck(DATABASE[name].ours, DATABASE[name].arrays)


SAMPLES = {
    NumpyCube: (np.array([0.8, 1.7]),),
    NumpyExpMarkDirty: (np.array([0.8, 1.7]),),
    NumpyMul: (np.array([1.5, 0.7]), np.array([[0.3, 2.0], [1.1, 0.4]])),
    NumpySort: (np.array([[3.0, 1.0, 2.0]]), 1),
    Select: (np.arange(6.0).reshape(3, 2), 1),
    CubeGenVmap: (np.array([0.8, 1.7]),),
    MulGenVmap: (np.array([1.5, 0.7]), np.array([[0.3, 2.0], [1.1, 0.4]])),
    SortGenVmap: (np.array([[3.0, 1.0, 2.0]]), 1),
    SelectGenVmap: (np.arange(6.0).reshape(3, 2), 1),
    ForwardHasDefaultArgs: (np.arange(6.0).reshape(3, 2),),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", SAMPLES)
def test_check_rules_finds_nothing_wrong(function: type[Function]) -> None:
    report = ftrans.check_rules(function, SAMPLES[function])
    assert report.ok, str(report)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [ScaleGradGenVmap, ZeroGradientsGenVmap])
def test_check_rules_finds_what_is_not_the_gradient(function: type[Function]) -> None:
    arrays = (np.array([0.8, 1.7]),) * (1 if function is ScaleGradGenVmap else 2)
    assert not ftrans.check_rules(function, arrays).ok
