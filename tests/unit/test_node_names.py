"""Names of nodes, and of what they have saved, for functions by name; PyTorch 2.13 gives these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch

_rng = np.random.default_rng(4)
_at = torch.tensor([[0], [1]])
_half = torch.tensor([0.5, 0.25])


def _leaf(*shape: int) -> Any:
    return torch.tensor(_rng.uniform(0.1, 0.9, shape), requires_grad=True)


COMPOSED = """
    SqueezeBackward4: x.quantile(.3); x.quantile(.3, 1); x.nanquantile(_half)
    SqueezeBackward0: s.cov()
    ClampBackward1: s.corrcoef()
    WhereBackward0: s.logdet()
    SubBackward0: x.diff(); F.tanhshrink(x)
    FlipBackward0: x.fliplr(); x.flipud(); x.flip(0)
    MmBackward0: s.matrix_power(2); s @ s; torch.linalg.matrix_power(s, 3)
    UnsafeViewBackward0: x.kron(y)
    ViewBackward0: torch.inner(x, y); torch.tensordot(x, y.T, 1); x.reshape(3, 2)
    LinalgMatrixExpBackward0: torch.matrix_exp(s)
    LinalgEighBackward0: torch.linalg.eigvalsh(s)
    LinalgSvdBackward0: torch.linalg.svdvals(s)
    LinalgVectorNormBackward0: torch.linalg.vector_norm(x); torch.linalg.matrix_norm(x)
    SumBackward1: torch.linalg.vecdot(x, y); x.sum_to_size(1, 3); F.cosine_similarity(x, y)
    DivBackward0: x.nanmean(); F.softsign(x); F.normalize(x)
    MulBackward0: F.rms_norm(x, (3,)); x[0].outer(x[1])
    Deg2RadBackward0: x.deg2rad()
    Rad2DegBackward0: x.rad2deg()
    PermuteBackward0: x.moveaxis(0, 1); x.movedim(0, 1); x.T
    ExpandBackward0: torch.meshgrid(x[0], x[1])[0]; torch.broadcast_tensors(x, x[None, None])[0]; \
x.broadcast_to(2, 2, 3)
    CatBackward0: torch.column_stack([x, y]); torch.hstack([x, y])
    TransposeBackward0: x.mT; x.mH; x.H; x.adjoint(); x.swapaxes(0, 1)
    HardtanhBackward0: F.relu6(x)
    SoftmaxBackward0: F.softmin(x, 1); x.softmax(1)
    NativeGroupNormBackward0: F.group_norm(x[None], 2)
    NormBackward1: F.pairwise_distance(x, y)
    MeanBackward0: F.l1_loss(x, y); F.gaussian_nll_loss(x, y, y); F.hinge_embedding_loss(x, y); \
F.margin_ranking_loss(x, y, y); F.poisson_nll_loss(x, y); F.triplet_margin_loss(x, y, y); \
F.cosine_embedding_loss(x, y, _at[:, 0] * 2 - 1)
"""
"""What PyTorch composes of several operations has the name of the last one."""

OVERLOADS = """
    MedianBackward0: x.median()
    MedianBackward1: x.median(1).values
    NanmedianBackward0: x.nanmedian()
    NanmedianBackward1: x.nanmedian(1).values
    LerpBackward0: x.lerp(y, .3)
    LerpBackward1: x.lerp(y, y * 1)
    RemainderBackward0: torch.remainder(x, 2)
    RemainderBackward1: torch.remainder(x, y)
    ScatterBackward0: x.scatter(1, _at, y)
    ScatterBackward1: x.scatter(1, _at, 1.0)
    GatherBackward0: x.gather(1, _at); x.take_along_dim(_at, 1)
    IndexSelectBackward0: x.index_select(0, _at[0])
"""


def _cases(table: str) -> list[tuple[str, str]]:
    lines = [line.strip().partition(": ") for line in table.strip().splitlines()]
    return [(call.strip(), name) for name, _, calls in lines for call in calls.split(";")]


@pytest.mark.parametrize(("call", "name"), _cases(COMPOSED) + _cases(OVERLOADS))
def test_nodes_are_named_as_in_pytorch(call: str, name: str) -> None:
    names = {"x": _leaf(2, 3), "y": _leaf(2, 3), "s": torch.tensor([[2.0, 0.3], [0.3, 1.0]])}
    names["s"].requires_grad_()
    node = eval(call, {"torch": torch, "F": torch.nn.functional, "_at": _at, "_half": _half}, names)
    assert node.grad_fn.name() == type(node.grad_fn).__name__ == name


_OF_SELF = "log sin cos abs log1p atan asin acos sinh cosh erf square"
_OF_RESULTS = "exp sqrt sigmoid tanh rsqrt reciprocal expm1 tan"


@pytest.mark.parametrize("name", (_OF_SELF + " " + _OF_RESULTS).split())
def test_what_is_saved_is_named_as_in_pytorch(name: str) -> None:
    x = _leaf(2, 3)
    y = eval(f"x.{name}()")
    saved = "self" if name in _OF_SELF.split() else "result"
    found = getattr(y.grad_fn, f"_saved_{saved}")
    np.testing.assert_array_equal(found.detach(), (x if saved == "self" else y).detach())


def test_sizes_and_factors_are_saved_too() -> None:
    x, y = _leaf(2, 3), _leaf(2, 3)
    assert x.sum().grad_fn._saved_self_sym_sizes == (2, 3)
    assert x.sum(1).grad_fn._saved_dim == (1,)
    assert torch.stack([x, x], 1).grad_fn._saved_dim == 1
    exchanged = torch.stack([x, x]).transpose(0, 2).grad_fn
    assert (exchanged._saved_dim0, exchanged._saved_dim1) == (0, 2)
    assert x.reshape(3, 2).grad_fn._saved_self_sym_sizes == (2, 3)
    node = (x * y).grad_fn
    np.testing.assert_array_equal(node._saved_self.detach(), x.detach())
    np.testing.assert_array_equal(node._saved_other.detach(), y.detach())


def test_an_operand_that_is_taken_twice_has_two_edges() -> None:
    x = _leaf(2, 2)
    for y in (x * x, x + x, x - x, x / x, x**x, x @ x, torch.cat([x, x]), torch.atan2(x, x)):
        edges = y.grad_fn.next_functions
        assert len(edges) == 2
        assert edges[0] == edges[1]
        assert edges[0][0].variable is x
