"""Products and norms: NumPy's values, JAX's gradients, PyTorch's at kinks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ShapeError
from ftrans.numpy import linalg
from tests.unit.front_end import (
    assert_same,
    check_case,
    check_gradients,
    check_gradients_of_case,
    check_values,
    program_of,
)

random = np.random.default_rng(0)

ARRAYS = [
    random.normal(size=(2, 3, 4)),
    random.normal(size=5),
    np.zeros((0, 3)),
    np.asarray(2.0),
    random.integers(0, 5, (3, 4)),
    random.normal(size=(2, 3)) + 1j,
    random.normal(size=(3, 3)),
]
SHAPE = (2, 3, 4)
V = random.normal(size=5)
M = random.normal(size=(3, 3))
B = random.normal(size=(2, 4, 3))
L = random.normal(size=(5, 1, 2, 3))
OTHERS = {"V": V, "M": M, "B": B, "L": L}
CASES = [
    "xp.matmul(x,x)",
    "xp.matmul(x,x.T)",
    "xp.matmul(x,x[...,0])",
    "xp.matmul(x.T,x)",
    "xp.matmul(B,x)",
    "xp.matmul(x,M)",
    "xp.matmul(x,B)",
    "xp.matmul(L,x)",
    "xp.dot(x,x)",
    "xp.dot(x,x.T)",
    "xp.dot(x,3)",
    "xp.vdot(x,x)",
    "xp.inner(x,x)",
    "xp.inner(x,2)",
    "xp.outer(x,x)",
    "xp.tensordot(x,x,x.ndim)",
    "xp.tensordot(x,x,0)",
    "xp.tensordot(x,x,([0,-1],[0,-1]))",
    "xp.tensordot(x,x,(0,0))",
    "xp.kron(x,x)",
    "xp.kron(x,V)",
    "xp.kron(M,x)",
    "xp.vecdot(x,x)",
    "xp.vecdot(x,x,axis=0)",
    "xp.vecdot(x,x[:1])",
    "xp.matvec(x,x[...,0,:])",
    "xp.vecmat(x[...,0],x)",
    "xp.cross(x[...,:3],x[...,:3])",
    "xp.cross(M,V[:3])",
    "xp.cross(M,M,axis=0)",
    "xp.convolve(x,V)",
    'xp.convolve(x,[1.,2],"same")',
    'xp.convolve(x,[1.,2,3],"same")',
    'xp.convolve(x,V,"valid")',
    'xp.correlate(V,x,"full")',
    'xp.correlate(x,[1.,2,3],"same")',
    'xp.einsum("...->...",x)',
    'xp.einsum("i...->...",x)',
    'xp.einsum("ii",M*x[0,0])',
    'xp.einsum("ii->i",M*x[0,0])',
    'xp.einsum("...ij,...kj->...ik",x,x)',
    'xp.einsum("ijk,ijl,ijm->klm",x,x,x)',
    'xp.einsum("ij,jk,kl->il",x,M,M)',
    "xp.einsum(x,[0,1,2],x,[0,1,3],[2,3])",
    "xp.einsum(x,[0,1],M,[1,2])",
    'xp.einsum("ij,ij->ij",x,x[:1])',
    'xp.einsum("ij,ij->",x,x[:1])',
    'xp.einsum("ij,jk->",M,M)',
    'xp.einsum("ij,kl->",M,M)',
    'xp.einsum("i,i,i->",V,V,V)',
    'xp.einsum("i,j->ji",x,V)',
    'xp.einsum("iij->j",x[:,:2])',
    'xp.einsum(",i->i",2.,V)',
    'xp.einsum("ij,ij",x,x)',
    'xp.einsum("ji",M)',
    'xp.einsum("...i,...i",x,x,optimize=False)',
    'xp.einsum("ij->",x)',
    "xp.linalg.matrix_power(x,3)",
    "xp.linalg.matrix_power(x,0)",
    "xp.linalg.matrix_power(x,5)",
]
NORMS = [
    "norm(x)",
    "norm(x,axis=0)",
    "norm(x,1,axis=-1)",
    "norm(x,np.inf,axis=-1,keepdims=True)",
    "norm(x,-np.inf,axis=-1)",
    "norm(x,3,axis=-1)",
    "norm(x,0,axis=-1)",
    'norm(x,"fro",axis=(0,1))',
    "norm(x,1,axis=(0,-1))",
    "norm(x,np.inf,axis=(-1,0))",
    "norm(x,-1,axis=(0,1))",
    "vector_norm(x)",
    "vector_norm(x,axis=(0,1),ord=1)",
    "matrix_norm(x)",
    "matrix_norm(x,ord=1,keepdims=True)",
    "norm(x,-2,axis=-1)",
    "norm(x,.5,axis=-1)",
]
SMOOTH = [
    "xp.matmul(x,B)",
    "xp.matmul(x,V[:4])",
    "xp.dot(x,x[0].T)",
    "xp.inner(x,x)",
    "xp.outer(x,x[0])",
    "xp.tensordot(x,x,((0,1),(0,1)))",
    "xp.kron(x[0],x[1])",
    "xp.vecdot(x,x[:1])",
    "xp.cross(x[:,:,:3],M)",
    "xp.convolve(x[0,0],x[0,1])",
    'xp.convolve(x[0,0],x[0,1,:2],"same")',
    'xp.einsum("ijk,ilk->jl",x,x)',
    'xp.einsum("ijk,ij,k->i",x,x[...,0],x[0,0])',
    'xp.einsum("iji->j",x[:,:,:2])',
    'xp.einsum("ij,ij->i",x[0],x[1,:1])',
    "xp.linalg.matrix_power(x[0,:,:3],3)",
]


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_numpy(case: str) -> None:
    check_case(case, ARRAYS, **OTHERS)


@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_are_those_of_jax(case: str) -> None:
    check_gradients_of_case(case, random.normal(size=SHAPE), **OTHERS)


@pytest.mark.parametrize("case", NORMS)
def test_norms_agree_with_numpy(case: str) -> None:
    def by(xp: Any, x: Any) -> Any:
        return eval(f"linalg.{case}", {"linalg": xp, "x": x, "np": np})

    complexes = random.normal(size=(2, 3)) + 1j
    for x in (random.normal(size=(2, 3, 4)), complexes, np.ones((2, 2), "f4")):
        try:
            expected = by(np.linalg, x)
        except (ValueError, IndexError):
            continue
        check_values(lambda x: by(linalg, x), expected, x, what=case)
    if "norm(x," in case and "0" not in case.split("axis")[0]:
        x = random.normal(size=(2, 3, 4))
        oracle = jax.numpy.linalg
        check_gradients(lambda x: by(linalg, x), lambda x: by(oracle, x), x, what=case)


def test_gradient_of_norms_at_kinks_has_least_norm() -> None:
    zeros = np.zeros(2)
    for order in (2, 1, 3, 1.5, np.inf):
        found = func.grad(lambda x, order=order: linalg.vector_norm(x, ord=order))(zeros)
        assert_same(found, zeros, f"order {order}")
    assert_same(func.grad(linalg.norm)(zeros), zeros)
    assert_same(func.grad(lambda x: linalg.norm(x, np.inf))(np.array([2.0, -2.0])), [0.5, -0.5])
    assert_same(func.grad(lambda x: linalg.norm(x, 1))(np.array([0.0, 1.0])), [0.0, 1.0])
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    found = func.grad(lambda x: linalg.norm(x, axis=1).sum())(rows)
    assert_same(found, np.array([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize("dtype", ["float16", "int8", "bool", "complex64"])
def test_products_keep_the_dtype(dtype: str) -> None:
    x = np.array([[1, 0], [1, 1]]).astype(dtype)
    for found in (fnp.matmul(x, x), fnp.einsum("ij,jk", x, x), fnp.tensordot(x, x, 1)):
        assert found.dtype == dtype
        assert_same(found, x @ x)
    assert fnp.matmul(x, np.ones((2, 2), "float32")).dtype == (
        "complex64" if dtype == "complex64" else "float32"
    )


def test_matmul_broadcasts_without_copies() -> None:
    x, y = np.zeros((5, 1, 2, 3)), np.zeros((4, 3, 6))
    program, _ = program_of(fnp.matmul, x, y)
    assert [e.primitive.name for e in program.equations] == ["reshape", "dot", "transpose"]


ORDERS = {
    # subscripts, and what comes after the product
    "ij,kj->ki": [],
    "ij,kj->ik": [],
    "abi,abj->abji": [],
    "j,ij->i": [],
    "xi,yj->yjxi": [],
    # no order of the operands is right: as much of the result as possible stays where it is
    "kij,nkj->nki": [(1, 0, 2)],
    "nkj,kij->nki": [(1, 0, 2)],
    "nhqk,nkhd->nqhd": [(0, 2, 1, 3)],
    "ai,bj->aibj": [],
    "ai,bj->abij": [(0, 2, 1, 3)],
}


@pytest.mark.parametrize("subscripts", ORDERS)
def test_einsum_takes_operands_in_the_order_of_the_result(subscripts: str) -> None:
    sizes = dict(zip("abhijkdnqxy", (2, 3, 4, 5, 2, 3, 4, 3, 2, 3, 2), strict=True))
    draw = np.random.default_rng(0).normal
    inputs = subscripts.split("->")[0].split(",")
    x, y = (draw(size=[sizes[label] for label in labels]) for labels in inputs)
    product = lambda x, y: fnp.einsum(subscripts, x, y)  # noqa: E731
    program, _ = program_of(product, x, y)
    moved = [e.params["permutation"] for e in program.equations if e.primitive.name == "transpose"]
    assert moved == ORDERS[subscripts]
    check_values(product, np.einsum(subscripts, x, y), x, y)
    check_gradients(product, lambda x, y: jax.numpy.einsum(subscripts, x, y), x, y)


def test_einsum_sums_before_it_multiplies() -> None:
    x = np.zeros((4, 5))
    program, _ = program_of(lambda x, y: fnp.einsum("ij,kl->ik", x, y), x, x)
    assert [e.primitive.name for e in program.equations] == ["sum", "sum", "dot"]


def test_einsum_contracts_the_cheapest_pair_first() -> None:
    a, b, v = np.zeros((9, 9)), np.zeros((9, 9)), np.zeros(9)
    program, _ = program_of(lambda a, b, v: fnp.einsum("ij,jk,k->i", a, b, v), a, b, v)
    assert [e.types[0].shape for e in program.equations] == [(9,), (9,)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: fnp.matmul(x, x),
            "matmul: the contracted axes have different sizes.\n  x: f64[2,3]\n  y: f64[2,3]",
        ),
        (
            lambda x: fnp.matmul(x, 2.0),
            "matmul: takes vectors and matrices, not scalars.\n  x: f64[2,3]\n  y: f64[]\n"
            "  Write x * y.",
        ),
        (
            lambda x: fnp.einsum("ij,ij", x, x.T),
            "einsum: axes that belong together have sizes 2 and 3.\n"
            "  operand 0: f64[2,3]\n  operand 1: f64[3,2]",
        ),
        (
            lambda x: fnp.einsum("ijk", x),
            "einsum: the subscripts do not fit an operand.\n"
            "  operand 0: shape (2, 3)\n  subscripts: 'ijk'",
        ),
        (
            lambda x: fnp.tensordot(x, x, 1),
            "tensordot: the axes (1,) and (0,) do not fit each other.\n"
            "  x: f64[2,3]\n  y: f64[2,3]",
        ),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        call(np.zeros((2, 3)))
    assert str(caught.value) == text
