"""Sorting, searching, taking: NumPy's values, JAX's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ConcretizationError, DTypeError
from tests.unit.front_end import (
    assert_same,
    check_case,
    check_gradients_of_case,
    check_values,
    evaluate,
    traced,
)

random = np.random.default_rng(0)

ARRAYS = [
    random.normal(size=(2, 3, 4)),
    random.normal(size=5).astype("float32"),
    np.zeros((0, 3)),
    random.integers(0, 5, (3, 4)),
    random.normal(size=(2, 3)) + 1j,
    random.normal(size=(3, 3)),
]
SHAPE = (2, 3, 4)
LINE = np.sort(random.normal(size=5))
INTS = random.integers(0, 5, (3, 4))
OTHERS = {"LINE": LINE, "INTS": INTS}
CASES = [
    "xp.sort(x)",
    "xp.sort(x,0)",
    "xp.sort(x,None)",
    'xp.argsort(x,axis=x.ndim-1,kind="stable")',
    'xp.argsort(x,axis=0,kind="stable")',
    "xp.nonzero(x)",
    "xp.flatnonzero(x)",
    "xp.argwhere(x)",
    "xp.unique(x)",
    "xp.unique(x,True,True,True)",
    "xp.unique(x,axis=0)",
    "xp.take(x,[0,-1])",
    "xp.take(x,[[0,0]],axis=x.ndim-1)",
    'xp.take(x,[9,-9,1],axis=x.ndim-1,mode="wrap")',
    'xp.take(x,[9,-9,1],axis=x.ndim-1,mode="clip")',
    "xp.take_along_axis(x,np.argsort(np.zeros(x.shape),-1),-1)",
    "xp.take_along_axis(x,np.arange(3),None)",
    "xp.searchsorted(LINE,x)",
    'xp.searchsorted(LINE,x,"right")',
    "xp.searchsorted(-LINE[::-1],np.float64(0))",
    "xp.digitize(x,LINE)",
    "xp.digitize(x,LINE[::-1],True)",
    "xp.digitize(LINE,LINE[::-1])",
    "xp.digitize(LINE,LINE[::-1],True)",
    "xp.digitize(LINE,LINE,True)",
    "xp.bincount(INTS.ravel())",
    "xp.bincount(INTS.ravel(),minlength=9)",
    "xp.bincount(INTS.ravel(),weights=INTS.ravel()*.5)",
    "xp.isin(x,[1,2])",
    "xp.isin(x,np.arange(40))",
    "xp.isin(x,LINE,invert=True)",
    "xp.choose(INTS%2,[INTS,INTS*2.])",
    'xp.choose(INTS,[1,2,INTS],mode="wrap")',
    'xp.choose(INTS,[1,2,INTS],mode="clip")',
    "xp.select([x>1,x<0],[x,x*2],-1)",
    "xp.extract(x>0,x)",
    "xp.compress([True,False,True],x,0)",
    "xp.partition(LINE,0)",
]
QUANTILES = [
    "xp.quantile(x,.3)",
    "xp.quantile(x,[.1,.5,.9],axis=1,method='nearest')",
    "xp.quantile(x,.5,method='nearest',keepdims=True)",
    "xp.quantile(x,[.1,.9],axis=0)",
    "xp.quantile(x,[[0,1.]],axis=(0,-1),keepdims=True)",
    "xp.percentile(x,30,axis=-1)",
    'xp.percentile(x,[30,70],axis=-1,method="lower")',
    'xp.percentile(x,[30,70],axis=-1,method="higher")',
    'xp.percentile(x,[30,71],axis=-1,method="midpoint")',
    'xp.percentile(x,[30,71],axis=-1,method="nearest")',
]
SMOOTH = [
    "xp.sort(x)",
    "xp.sort(x,axis=0)",
    "xp.sort(x,axis=None)",
    "xp.take(x,np.array([0,2,0]),axis=1)",
    'xp.take(x,np.array([[9,-9]]),axis=1,mode="clip")',
    "xp.take_along_axis(x,np.argsort(np.sin(np.arange(24.)).reshape(2,3,4),1),1)",
    "xp.quantile(x,.3,axis=1)",
    "xp.quantile(x,np.array([.25,.5]),axis=(0,2))",
    "xp.percentile(x,40.)",
    "xp.select([x>1,x<0],[x*x,x*3.],0.)",
    "xp.bincount(np.array([0,2]),weights=x[:,0,0],length=4)",
]


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_numpy(case: str) -> None:
    check_case(case, ARRAYS, **OTHERS)


@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_are_those_of_jax(case: str) -> None:
    check_gradients_of_case(case, random.normal(size=SHAPE), **OTHERS)


@pytest.mark.parametrize("case", QUANTILES)
def test_quantiles_agree_with_numpy(case: str) -> None:
    with_nan = random.normal(size=(2, 3, 4))
    with_nan[0, 1, 2] = np.nan
    infinite = np.array([[1.0, np.inf], [-np.inf, np.inf]])
    for x in (random.normal(size=(2, 3, 4)), random.normal(size=(3, 5)), with_nan, infinite):
        with np.errstate(invalid="ignore"):
            expected = evaluate(case, np, x)
        if x is infinite:
            # NumPy loses infinite elements to NaN where it interpolates
            expected = np.where(np.isnan(expected), evaluate(case, fnp, x), expected)
        check_values(lambda x: evaluate(case, fnp, x), expected, x, what=case)


def test_quantile_between_infinite_elements_is_infinite() -> None:
    assert_same(fnp.quantile(np.array([1.0, np.inf, np.inf]), 0.75), np.inf)


def test_sorting_in_descending_order_is_stable() -> None:
    x = np.array([1.0, 3.0, 1.0, np.nan, 3.0])
    assert_same(fnp.sort(x, descending=True), [np.nan, 3.0, 3.0, 1.0, 1.0])
    assert_same(fnp.argsort(x, descending=True), np.array([3, 1, 4, 0, 2]))
    values, places = traced(lambda x: fnp.top_k(x, 2), np.array([1.0, 3.0, 2.0, 3.0]))
    assert_same([values, places], (np.array([3.0, 3.0]), np.array([1, 3])))


def test_lexsort() -> None:
    keys = np.array([[1, 0, 1, 0], [2, 2, 1, 1]])
    assert_same(fnp.lexsort(keys), np.lexsort(keys))
    assert_same(fnp.lexsort((keys[0], keys[1] * 0.5)), np.lexsort((keys[0], keys[1] * 0.5)))


def test_searchsorted_puts_nan_last() -> None:
    line = np.array([1.0, 2.0, np.nan, np.nan])
    x = np.array([np.nan, 2.0, np.inf, -1.0])
    for side in ("left", "right"):
        assert_same(fnp.searchsorted(line, x, side), np.searchsorted(line, x, side))


@pytest.mark.parametrize("size", range(10))
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_on_every_size(size: int, side: str) -> None:
    line = np.arange(size) * 2
    x = np.arange(-1, 2 * size + 2)
    assert_same(fnp.searchsorted(line, x, side), np.searchsorted(line, x, side))
    mapped = func.vmap(lambda x: fnp.searchsorted(line, x, side))(x)
    assert_same(mapped, np.searchsorted(line, x, side))


def test_put_along_axis_returns_a_new_array() -> None:
    x = random.normal(size=(2, 3))
    places = np.array([[2], [0]])
    expected = x.copy()
    np.put_along_axis(expected, places, 7.0, 1)
    check_values(lambda x: fnp.put_along_axis(x, places, 7.0, 1), expected, x)


def test_take_fills_what_is_out_of_bounds() -> None:
    x, places = np.arange(6.0).reshape(2, 3), np.array([[0, 3], [-1, -4]])
    expected = np.array([[[0.0, 9.0], [2.0, 9.0]], [[3.0, 9.0], [5.0, 9.0]]])
    check_values(lambda x: fnp.take(x, places, 1, mode="fill", fill_value=9.0), expected, x)
    with pytest.raises(IndexError, match="index 3 is out of bounds"):
        fnp.take(x, [3], 1)


def test_gradient_of_unique_goes_to_the_first() -> None:
    x = np.array([2.0, 1.0, 2.0])
    assert_same(func.grad(lambda x: (fnp.unique(x) ** 2).sum())(x), [4.0, 2.0, 0.0])
    values, counts = fnp.unique_counts(np.array([3, 1, 3]))
    assert_same([values, counts], (np.array([1, 3]), np.array([1, 2])))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: fnp.nonzero(x)[0], "nonzero"),
        (fnp.unique, "unique"),
        (fnp.argwhere, "argwhere"),
        (lambda x: fnp.bincount(x.astype("int32")), "bincount"),
    ],
)
def test_shapes_that_depend_on_values_need_them(call: Any, name: str) -> None:
    with pytest.raises(ConcretizationError, match=name):
        func.vmap(call)(np.ones((2, 3)))


def test_errors() -> None:
    with pytest.raises(DTypeError) as caught:
        fnp.take(np.zeros(3), np.array([0.5]))
    assert str(caught.value) == (
        "take: indices must be integers.\n  indices: f64[1]\n"
        "  Convert them first: indices.astype('int32')."
    )
    with pytest.raises(ValueError, match="fractions must lie between 0 and 1"):
        fnp.quantile(np.zeros(3), 2.0)
