"""Shapes, joining, splitting, rearranging: NumPy's values, JAX's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, AxisError, ShapeError
from tests.helpers import assert_close
from tests.unit.front_end import check_case, check_gradients_of_case, check_values

random = np.random.default_rng(0)

ARRAYS = [
    random.normal(size=(2, 3, 4)),
    random.normal(size=5).astype("float32"),
    np.zeros((0, 3)),
    np.asarray(2.0),
    random.integers(0, 5, (3, 4)),
    random.normal(size=(2, 3)) + 1j,
    random.normal(size=(3, 3)),
]
SHAPE = (2, 3, 4)
CASES = [
    "xp.reshape(x,-1)",
    "xp.reshape(x,(x.size,1))",
    "xp.ravel(x)",
    "xp.transpose(x)",
    "xp.permute_dims(x,tuple(range(x.ndim))[::-1])",
    "xp.matrix_transpose(x)",
    "xp.swapaxes(x,0,-1)",
    "xp.moveaxis(x,0,-1)",
    "xp.moveaxis(x,[0,1],[-1,0])",
    "xp.squeeze(x[None])",
    "xp.squeeze(x[None],0)",
    "xp.expand_dims(x,0)",
    "xp.expand_dims(x,(0,-1))",
    "xp.broadcast_to(x,(2,*x.shape))",
    "xp.broadcast_arrays(x,x[...,:1])",
    "xp.concatenate([x,x])",
    "xp.concatenate([x,x],axis=-1)",
    "xp.concatenate([x,1*x],axis=None)",
    "xp.concat([x,x],axis=0)",
    "xp.concatenate(x)",
    "xp.stack([x,x],axis=-1)",
    "xp.stack(x)",
    "xp.vstack([x,x])",
    "xp.hstack([x,x])",
    "xp.dstack([x,x])",
    "xp.column_stack([x,x])",
    "xp.split(x,1)",
    "xp.array_split(x,2)",
    "xp.array_split(x,[1,7,-1],-1)",
    "xp.hsplit(x,1)",
    "xp.vsplit(x,1)",
    "xp.dsplit(x,2)",
    "xp.unstack(x)",
    "xp.unstack(x,axis=-1)",
    "xp.tile(x,2)",
    "xp.tile(x,(2,1,3,1))",
    "xp.tile(x,())",
    "xp.repeat(x,3)",
    "xp.repeat(x,2,axis=max(x.ndim-1,1))",
    "xp.repeat(x,np.arange(x.shape[0]),0)",
    "xp.repeat(x,0)",
    "xp.flip(x)",
    "xp.flip(x,0)",
    "xp.flip(x,(0,-1))",
    "xp.fliplr(x)",
    "xp.flipud(x)",
    "xp.roll(x,2)",
    "xp.roll(x,-1,0)",
    "xp.roll(x,(1,2),(0,-1))",
    "xp.rot90(x)",
    "xp.rot90(x,2)",
    "xp.rot90(x,3,(1,0))",
    "xp.pad(x,1)",
    "xp.pad(x,(1,2),constant_values=3)",
    "xp.pad(x,((1,2),)*x.ndim,constant_values=(3,4))",
    'xp.pad(x,2,mode="edge")',
    'xp.pad(x,3,mode="reflect")',
    'xp.pad(x,3,mode="symmetric")',
    'xp.pad(x,5,mode="wrap")',
    "xp.pad(x,0)",
    "xp.atleast_1d(x)",
    "xp.atleast_2d(x)",
    "xp.atleast_3d(x)",
    "xp.append(x,x)",
    "xp.append(x,x,0)",
    "xp.insert(x,1,9)",
    "xp.insert(x,1,9,axis=0)",
    "xp.insert(x,[0,1],9,axis=-1)",
    "xp.insert(x,[1],9,axis=-1)",
    "xp.insert(x,-1,x[0],axis=0)",
    "xp.delete(x,0)",
    "xp.delete(x,[0,-1],-1)",
    "xp.delete(x,slice(0,2),0)",
    "xp.insert(x,slice(0,2),7,0)",
    "xp.diff(x,n=1,axis=0,prepend=x[:1]*2,append=x)",
    "xp.diff(x==x)",
    "xp.ediff1d(x,to_begin=1,to_end=[2,3])",
    "xp.trace(x)",
    "xp.trace(x,1,1,0)",
    "xp.diagonal(x)",
    "xp.diagonal(x,-1)",
    "xp.diagonal(x,1,-1,0)",
]
SMOOTH = [
    "xp.reshape(x,(6,-1))",
    "xp.transpose(x,(2,0,1))",
    "xp.moveaxis(x,0,1)",
    "xp.concatenate([x,2*x],axis=1)",
    "xp.stack([x,x*x],axis=1)",
    "xp.hstack([x,x])",
    "xp.array_split(x,2,axis=1)[1]",
    "xp.tile(x,(2,1,2))",
    "xp.repeat(x,2,axis=1)",
    "xp.repeat(x,np.array([0,2,1]),axis=1)",
    "xp.flip(x,1)",
    "xp.roll(x,(1,-1),(0,2))",
    "xp.rot90(x)",
    'xp.pad(x,1,mode="edge")',
    "xp.pad(x,((1,0),(0,2),(1,1)))",
    'xp.pad(x,1,mode="reflect")',
    'xp.pad(x,1,mode="wrap")',
    "xp.insert(x,1,x[0],axis=0)",
    "xp.delete(x,1,axis=1)",
    "xp.diff(x,2)",
    "xp.trace(x,1)",
    "xp.diagonal(x,-1,0,2)",
    "xp.broadcast_to(x,(2,2,3,4))",
]


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_numpy(case: str) -> None:
    check_case(case, ARRAYS)


@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_are_those_of_jax(case: str) -> None:
    check_gradients_of_case(case, random.normal(size=SHAPE))


def test_padding_with_a_traced_value() -> None:
    x, v = random.normal(size=(2, 3)), np.asarray(2.0)
    check_values(
        lambda x, v: fnp.pad(x, 1, constant_values=v), np.pad(x, 1, constant_values=2.0), x, v
    )


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: fnp.reshape(x, (4, -1)),
            ShapeError,
            "reshape: the number of elements does not fit.\n  x: f64[2,3] has 6\n  shape: (4, -1)",
        ),
        (
            lambda x: fnp.squeeze(x, 0),
            ShapeError,
            "squeeze: only axes of size 1 can be dropped.\n  x: f64[2,3], axis=0",
        ),
        (
            lambda x: fnp.concatenate([x, x[:, :2]]),
            ShapeError,
            "concatenate: the arrays do not fit along axis 0.\n"
            "  operand 0: f64[2,3]\n  operand 1: f64[2,2]",
        ),
        (
            lambda x: fnp.stack([x, x[0]]),
            ShapeError,
            "stack: the arrays have different shapes.\n  operand 0: f64[2,3]\n  operand 1: f64[3]",
        ),
        (
            lambda x: fnp.split(x, 2, axis=1),
            ShapeError,
            "split: axis 1 cannot be cut into 2 equal parts.\n  x: f64[2,3]\n"
            "  Write array_split(x, 2, axis=1) for parts of different sizes.",
        ),
        (
            lambda x: fnp.flip(x, 2),
            AxisError,
            "flip: axis 2 is out of range for an array of rank 2.\n  Its axes are -2 ... 1.",
        ),
        (
            lambda x: fnp.pad(x, 1, mode="mean", end_values=1),
            ValueError,
            "pad: none of these is mode='mean' with end_values.\n"
            "  mode='constant' constant_values\n"
            "  mode='edge' \n  mode='wrap' \n  mode='empty' \n  mode='reflect' reflect_type\n"
            "  mode='symmetric' reflect_type\n  mode='linear_ramp' end_values\n"
            "  mode='maximum' stat_length\n  mode='mean' stat_length\n  mode='median' stat_length\n"
            "  mode='minimum' stat_length",
        ),
        (
            lambda x: fnp.repeat(x, [1, 2, 3], axis=0),
            ShapeError,
            "repeat: the repeats do not fit axis 0.\n  x: f64[2,3]\n  repeats: shape (3,)",
        ),
    ],
)
def test_errors(call: Any, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        call(np.zeros((2, 3)))
    assert str(caught.value) == text


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_orders_of_elements(order: Any) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    check_values(lambda x: x.copy(order=order), x, x)
    if order == "K":
        with pytest.raises(ArgumentError, match=r"order must be 'C', 'A' or 'F'\.\n  order: 'K'"):
            fnp.reshape(x, -1, order)
    if order in "AK":  # of memory, which traced values have none
        assert_close(fnp.ravel(x.T, order), x.T.ravel(order))
        return
    check_values(lambda x: fnp.ravel(x, order), x.ravel(order), x)
    check_values(lambda x: x.flatten(order), x.flatten(order), x)
    for shape in (-1, (4, 6), (2, -1, 6), (24, 1), (2, 3, 4)):
        theirs = np.reshape(x, shape, order=order)
        check_values(lambda x, s=shape: fnp.reshape(x, s, order=order), theirs, x)
        check_values(lambda x, s=shape: np.reshape(x, s, order=order), theirs, x)
        check_values(lambda x, s=shape: x.reshape(s, order=order), theirs, x)
        theirs = x.ravel().reshape(shape, order=order)
        check_values(lambda x, s=shape: fnp.reshape(x.ravel(), s, order=order), theirs, x)
