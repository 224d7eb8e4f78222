"""The transforms of `torch.func`, row by row of what PyTorch's documents name: T1 to T16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.torch as torch
from ftrans.errors import ConcretizationError, MissingAttributeError, MutationError
from tests.torch_suite.common import constant, same

grad, vmap = torch.func.grad, torch.func.vmap
ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
CAPTURED = torch.zeros(2, dtype=torch.float64)


def tangent(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]


def times(transform: Callable[[Any], Any], count: int, function: Any) -> Any:
    return functools.reduce(lambda f, _: transform(f), range(count), function)


def test_t1_grad() -> None:
    """Works."""
    x, y = constant(2.0), constant(3.0)
    same(grad(lambda x, y: x * y, argnums=(0, 1))(x, y), (3.0, 2.0))
    same(grad(grad(torch.sin))(constant(1.0)), -np.sin(1.0))
    same(times(grad, 4, lambda x: x**5)(constant(1.0)), 120.0)
    found = grad(lambda p: p["w"] ** p["n"])({"w": y, "n": 2, "unused": constant([1.0, 2.0])})
    same(found["w"], 6.0)
    same(found["unused"], [0.0, 0.0])
    assert found["n"] is None
    assert grad(lambda x: x * x)(3.0) == 6.0
    with pytest.raises(RuntimeError, match="must return a scalar"):
        grad(lambda x: x * 2)(constant([1.0, 2.0]))
    with pytest.raises(RuntimeError, match=r"Write 3\.0"):
        grad(lambda x: x * x)(3)


def test_t2_grad_and_value() -> None:
    """Works."""
    x = constant(3.0)
    same(torch.func.grad_and_value(lambda x: x**2)(x), (6.0, 9.0))
    slope, (value, aux) = torch.func.grad_and_value(lambda x: (x**2, x + 1), has_aux=True)(x)
    same((slope, value, aux), (6.0, 9.0, 4.0))


@pytest.mark.parametrize(
    ("cotangent", "match"),
    [
        pytest.param(constant(1.0), "does not have the structure of the output", id="structure"),
        pytest.param((1.0, torch.tensor(1.0)), "does not have the dtype of", id="dtype"),
        pytest.param(
            (1.0, torch.tensor(1.0)),
            r"Convert it: cotangent\[1\]\.astype\('float64'\)",
            id="what to write",
        ),
    ],
)
def test_t3_vjp(cotangent: Any, match: str) -> None:
    """Differs: a cotangent of another dtype is an error; keywords and non-tensors are taken."""
    out, pull = torch.func.vjp(lambda x: (2 * x, 3 * x), constant(2.0))
    same(out, (4.0, 6.0))
    for _ in range(2):
        same(pull((constant(1.0), constant(1.0))), [5.0])
    power = torch.func.vjp(lambda x, n, *, by: by * x**n, constant(2.0), 3, by=10)
    same(power[0], 80.0)
    found = power[1](constant(1.0))
    same(found[0], 120.0)
    assert found[1] is None
    with pytest.raises(RuntimeError, match=match):
        pull(cotangent)


@pytest.mark.parametrize("made", [lambda: torch.zeros(()), lambda: CAPTURED.sum()])
def test_t4_jvp(made: Callable[[], Any]) -> None:
    """Works."""
    primals, tangents = (constant(2.0), constant(3.0)), (constant(1.0), constant(0.0))
    same(torch.func.jvp(lambda x, y: x * y, primals, tangents), (6.0, 3.0))
    nested = torch.func.jvp(tangent(lambda y: y**3), (constant(2.0),), (constant(1.0),))
    same(nested, (12.0, 12.0))
    with pytest.raises(RuntimeError, match="every output must depend on the inputs"):
        torch.func.jvp(lambda x: made(), primals[:1], tangents[:1], strict=True)

    def bump(x: Any) -> Any:
        return torch.exp(torch.sin(x))

    same(times(tangent, 8, bump)(constant(1.0)), times(grad, 8, bump)(constant(1.0)))
    assert len(ftrans.trace(times(tangent, 8, bump))(1.0)) < 200


def test_t5_linearize() -> None:
    """Differs: branches on values are taken; so is what is no tensor, with None as tangent."""
    out, push = torch.func.linearize(torch.sin, constant(0.0))
    same((out, push(constant(1.0)), push(constant(2.0))), (0.0, 1.0, 2.0))
    branching = torch.func.linearize(lambda x: 2 * x if x > 0 else -x, constant(-1.0))
    same((branching[0], branching[1](constant(1.0))), (1.0, -1.0))
    same(torch.func.linearize(lambda x, n: x**n, constant(2.0), 3)[1](constant(1.0), None), 12.0)
    with pytest.raises(RuntimeError, match="Pass None for a tangent that is zero"):
        torch.func.linearize(lambda x, n: x**n, constant(2.0), 3)[1](constant(1.0))


def test_t6_jacrev() -> None:
    """Works."""
    x = constant([1.0, 2.0])
    for size in (None, 1, 5):
        same(torch.func.jacrev(lambda x: x**3, chunk_size=size)(x), np.diag([3.0, 12.0]))
    found = torch.func.jacrev(lambda p: {"a": p["x"] * p["y"]})({"x": x, "y": constant(2.0)})
    same(found["a"]["x"], np.diag([2.0, 2.0]))
    same(found["a"]["y"], [1.0, 2.0])
    with pytest.raises(ValueError, match="chunk_size must be None or an int of at least 1"):
        torch.func.jacrev(lambda x: x**3, chunk_size=0)(x)


@pytest.mark.parametrize(
    "randomness",
    [
        "same",
        "different",
        "bad",
    ],
)
def test_t7_jacfwd(randomness: str) -> None:
    """Works."""
    x = constant([1.0, 2.0])
    for size in (None, 1):
        same(torch.func.jacfwd(lambda x: x**3, chunk_size=size)(x), np.diag([3.0, 12.0]))
    drawn = []

    def noisy(x: Any) -> Any:
        noise = torch.rand(2)
        drawn.append(noise.tolist())
        return x * noise

    same(torch.func.jacrev(noisy)(x), np.diag(drawn.pop()))
    with pytest.raises(RuntimeError, match="called random operation"):
        torch.func.jacfwd(noisy)(x)
    if randomness == "bad":
        with pytest.raises(RuntimeError, match="randomness='bad'"):
            torch.func.jacfwd(noisy, randomness="bad")(x)
    elif randomness == "same":
        same(torch.func.jacfwd(noisy, randomness=randomness)(x), np.diag(drawn[-1]))
    else:
        found = torch.func.jacfwd(lambda x: x + x * torch.rand(1), randomness="different")(x)
        assert found[0, 0] != found[1, 1]


def test_t8_hessian() -> None:
    """Works."""
    x = constant([1.0, 2.0])
    same(torch.func.hessian(lambda x: (x**3).sum())(x), np.diag([6.0, 12.0]))
    found = torch.func.hessian(lambda x, y: x**2 * y, argnums=(0, 1))(constant(1.0), constant(2.0))
    same(found, ((4.0, 2.0), (2.0, 0.0)))
    options = {"has_aux": True, "chunk_size": 1}
    found, aux = torch.func.hessian(lambda x: ((x**3).sum(), "aux"), **options)(x)
    same(found, np.diag([6.0, 12.0]))
    assert aux == "aux"


def test_t9_vmap() -> None:
    """Works."""
    same(vmap(lambda row: row.sum())(constant(ROWS)), [3.0, 7.0, 11.0])
    same(vmap(torch.sum, in_dims=1)(constant(ROWS)), [9.0, 12.0])


def test_t10_in_dims() -> None:
    """Works."""
    rows = constant(ROWS)
    same(vmap(torch.sum, in_dims=-1)(rows), [9.0, 12.0])
    nested = vmap(lambda p, y: p["a"] * y + p["c"], in_dims=({"a": 0, "c": None}, 0))
    same(nested({"a": constant([1.0, 2.0]), "c": constant(1.0)}, constant([3.0, 4.0])), [4.0, 9.0])
    assert vmap(lambda x, *, k: x * k)(rows, k=rows).shape == (3, 3, 2)
    with pytest.raises(ValueError, match=r"Write in_dims=\(0, 0\)"):
        vmap(torch.add, in_dims=[0, 0])(rows, rows)
    with pytest.raises(ValueError, match="in_dims must be an int, or a tuple"):
        vmap(torch.sum, in_dims=None)(rows)
    with pytest.raises(ValueError, match=r"has size 2\n.*has size 3"):
        vmap(lambda x, y: x + y)(constant([1.0, 2.0]), constant([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("made", [lambda: torch.zeros(()), lambda: CAPTURED.sum()])
def test_t11_out_dims(made: Callable[[], Any]) -> None:
    """Differs: what is no array needs no None: a number is repeated, a string stays as it is."""
    rows = constant(ROWS)
    same(vmap(lambda x: x, out_dims=1)(rows), np.transpose(ROWS))
    found = vmap(lambda x: (x, made()), out_dims=(0, None))(rows)
    same(found[0], ROWS)
    same(found[1], 0.0)
    with pytest.raises(ValueError, match="out_dims is None for a result that depends on"):
        vmap(lambda x: x, out_dims=None)(rows)
    _, number, text = vmap(lambda x: (x, 3, "text"))(rows)
    assert number.tolist() == [3, 3, 3]
    assert text == "text"


@pytest.mark.parametrize(
    "hint",
    [
        "randomness='bad' is none of error, different, same",
        r"\A(?!(.|\n)*keys)",
    ],
)
def test_t12_randomness(hint: str) -> None:
    """Works."""
    rows = constant(ROWS)
    drawn = vmap(lambda x: torch.rand(()), randomness="same")(rows)
    assert drawn.shape == (3,)
    assert len(set(drawn.tolist())) == 1
    drawn = vmap(lambda x: torch.rand(()), randomness="different")(rows)
    assert len(set(drawn.tolist())) == 3
    with pytest.raises(RuntimeError, match="called random operation while in randomness error"):
        vmap(lambda x: torch.rand(()))(rows)
    assert len(set(vmap(lambda x, drawn: drawn)(rows, torch.rand(3)).tolist())) == 3
    with pytest.raises(RuntimeError, match=hint):
        vmap(lambda x: x, randomness="bad")(rows)


def test_t13_chunk_size() -> None:
    """Works."""
    same(vmap(torch.sum, chunk_size=2)(constant(ROWS)), [3.0, 7.0, 11.0])
    with pytest.raises(ValueError, match="chunk_size must be None or an int of at least 1"):
        vmap(torch.sum, chunk_size=0)(constant(ROWS))


def test_t14_batch_of_size_zero() -> None:
    """Works."""
    for function in (torch.sin, torch.sort, lambda x: torch.cumsum(x, 0), lambda x: x.flip(0)):
        found = vmap(function)(torch.zeros(0, 3))
        assert (found if function is not torch.sort else found[0]).shape == (0, 3)
    assert vmap(torch.linalg.inv)(torch.zeros(0, 2, 2)).shape == (0, 2, 2)


CHOSEN = [[-1.0, -2.0], [3.0, 4.0], [5.0, 6.0]]


def written(x: Any) -> Any:
    y = torch.zeros((), dtype=torch.float64)
    y += x.sum()
    return y


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x.sum().item(), ConcretizationError, id="item"),
        pytest.param(lambda x: x if x.sum() > 4 else -x, ConcretizationError, id="bool"),
        pytest.param(torch.nonzero, ConcretizationError, id="nonzero"),
        pytest.param(lambda x: x[x > 0], ConcretizationError, id="mask"),
        pytest.param(lambda x: torch.masked_select(x, x > 0), ConcretizationError, id="select"),
        pytest.param(lambda x: ftrans.numpy.unique(x), ConcretizationError, id="fnp.unique"),
        pytest.param(lambda x: torch.unique(x), ConcretizationError, id="unique"),
        pytest.param(lambda x: torch.sin(x, out=CAPTURED), MutationError, id="out"),
        pytest.param(lambda x: CAPTURED.add_(x), MutationError, id="captured"),
        pytest.param(written, [3.0, 7.0, 11.0], id="unbatched"),
        pytest.param(lambda x: torch.zeros(2, dtype=torch.float64).add_(x), ROWS, id="method"),
        pytest.param(lambda x: torch.where(x.sum() > 4, x, -x), CHOSEN, id="where"),
        pytest.param(
            lambda x: ftrans.cond(x.sum() > 4, lambda x: x, lambda x: -x, x), CHOSEN, id="cond"
        ),
        pytest.param(
            lambda x: torch.cond(x.sum() > 4, lambda x: x, lambda x: -x, (x,)),
            MissingAttributeError,
            id="torch.cond",
        ),
    ],
)
def test_t15_restrictions(function: Callable[[Any], Any], expected: Any) -> None:
    """Differs: what is created inside can be written to by `+=`; the others say what to write."""
    if isinstance(expected, list):
        same(vmap(function)(constant(ROWS)), expected)
    else:
        hints = {
            ConcretizationError: "depends on the mapped axis",
            MutationError: "cannot be written to inside a transform",
            MissingAttributeError: r"Write ftrans\.cond\(pred, true_fun",
        }
        with pytest.raises(expected, match=hints[expected]):
            vmap(function)(constant(ROWS))
    same(CAPTURED, [0.0, 0.0])


def test_t16_nesting() -> None:
    """Differs: the repr has the type of one example and the function's name."""
    kept = []

    def look(x: Any) -> Any:
        kept.append(x)
        return repr(x), x

    assert vmap(look)(constant(ROWS))[0] == "Traced(f64[2] in vmap(look))"
    assert vmap(vmap(look))(constant(ROWS))[0] == "Traced(f64[] in vmap(look))"
    with pytest.raises(RuntimeError, match=r"used after the function had returned(.|\n)*Return it"):
        kept[0].sin()
