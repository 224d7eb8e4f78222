"""SciPy's `minimize` with derivatives of ours: every method, pytrees, constraints, callbacks."""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.errors import ArgumentError, DTypeError, UnsupportedError
from ftrans.scipy.optimize import minimize
from tests.helpers import assert_close

X0 = np.array([1.3, 0.7, 0.8])


def valley(x: Any, steep: float = 10.0) -> Any:
    return (steep * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def bowl(p: Any) -> Any:
    return ((p["a"] - 2) ** 2).sum() + fnp.cosh(p["b"][0] - 1)


TREE = {"a": np.ones((2, 2), "float32"), "b": [0.5]}

METHODS = [
    None, "BFGS", "L-BFGS-B", "CG", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact",
    "SLSQP", "TNC", "trust-constr", "Nelder-Mead", "Powell",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
def test_every_method_finds_the_minimum(method: str | None) -> None:
    found = minimize(valley, X0, (5.0,), method=method, tol=1e-9)
    assert found.success
    assert_close(found.x, np.ones(3), 1e-4)
    assert minimize(bowl, TREE, method=method).x["a"].dtype == np.float32
    theirs = scipy.optimize.minimize(valley, X0, (5.0,), method="Nelder-Mead", tol=1e-9)
    assert_close(found.fun, theirs.fun, 1e-7)


def test_the_derivatives_are_ours_and_exact() -> None:
    ours = minimize(valley, X0, method="BFGS")
    theirs = scipy.optimize.minimize(valley, X0, method="BFGS", jac=func.grad(valley))
    assert_close(ours.x, theirs.x)
    assert (ours.nit, ours.nfev, ours.njev) == (theirs.nit, theirs.nfev, theirs.njev)
    assert ours.nfev < scipy.optimize.minimize(valley, X0, method="BFGS").nfev
    steps = minimize(valley, X0, method="trust-exact").nit
    exact = scipy.optimize.minimize(
        valley, X0, method="trust-exact", jac=func.grad(valley), hess=func.hessian(valley)
    )
    assert steps == exact.nit


def test_a_list_of_numbers_is_an_array() -> None:
    assert_close(minimize(valley, [1.3, 0.7, 0.8]).x, minimize(valley, X0).x, 1e-12)


def test_pytrees_come_back() -> None:
    found = minimize(bowl, TREE, tol=1e-8)
    for tree in (found.x, found.jac):
        assert tree["a"].shape == (2, 2)
        assert tree["a"].dtype == np.float32
    assert_close(found.x["a"], np.full((2, 2), np.float32(2)), 1e-5)
    assert_close(found.x["b"][0], 1.0, 1e-5)
    assert_close(minimize(bowl, TREE, method="trust-exact").x["b"][0], 1.0, 1e-5)
    assert_close(minimize(lambda x: (x - 1) ** 2, 0.0).x, 1.0, 1e-7)
    assert_close(minimize(valley, jnp.asarray(X0)).x, np.ones(3, "f4"), 1e-2)


def test_derivatives_that_are_given() -> None:
    slope, bend = func.grad(valley), func.hessian(valley)
    for options in (
        {"jac": slope},
        {"jac": "2-point"},
        {"jac": slope, "hess": bend, "method": "trust-exact"},
        {"jac": slope, "hessp": lambda x, p: bend(x) @ p, "method": "Newton-CG"},
    ):
        assert_close(minimize(valley, X0, **options).x, np.ones(3), 1e-3)
    both = minimize(lambda x: (valley(x), slope(x)), X0, jac=True)
    assert_close(both.x, np.ones(3), 1e-4)
    both = minimize(lambda x: (valley(x), slope(x)), X0, jac=True, method="trust-exact")
    assert_close(both.x, np.ones(3), 1e-4)
    tree = minimize(bowl, TREE, method="trust-exact", hess=func.hessian(bowl))
    assert_close(tree.x["b"][0], 1.0, 1e-5)


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
def test_bounds_and_constraints() -> None:
    def size(p: Any) -> Any:
        return (p["x"] ** 2).sum()

    def total(p: Any) -> Any:
        return p["x"].sum()

    start = {"x": np.array([3.0, 0.5])}
    given: list[Any] = [
        {"type": "eq", "fun": lambda p: total(p) - 1},
        [{"type": "ineq", "fun": lambda p, least: total(p) - least, "args": (1.0,)}],
        scipy.optimize.NonlinearConstraint(total, 1, 1),
        scipy.optimize.LinearConstraint([[1, 1]], 1, 1),
    ]
    for constraints in given:
        method = None if isinstance(constraints, (dict, list)) else "trust-constr"
        found = minimize(size, start, constraints=constraints, method=method)
        assert_close(found.x["x"], [0.5, 0.5], 1e-4)
    found = minimize(size, start, bounds=[(1, 4), (-1, 0.3)])
    assert_close(found.x["x"], [1.0, 0.0], 1e-6)
    found = minimize(size, start, bounds=scipy.optimize.Bounds(0.2, 4))
    assert_close(found.x["x"], [0.2, 0.2], 1e-6)


def test_callbacks_see_pytrees_and_stop() -> None:
    seen: list[Any] = []
    found = minimize(bowl, TREE, callback=lambda xk: seen.append(xk["a"].shape))
    assert seen == [(2, 2)] * found.nit

    def stop(intermediate_result: Any) -> None:
        seen.append(intermediate_result.x["b"][0])
        raise StopIteration

    assert minimize(bowl, TREE, callback=stop).nit == 1
    assert seen[-1].shape == ()


def test_what_cannot_be_minimized() -> None:
    for wrong in (
        lambda s: minimize(lambda x: (x - 1) ** 2, s).x,
        lambda s: minimize(lambda x, s: (x - s) ** 2, 0.0, s).x,
        lambda s: minimize(lambda x: (x - s) ** 2, 0.0).x,
    ):
        with pytest.raises(UnsupportedError, match=r"minimize: .* traced(.|\n)*custom_root"):
            func.grad(wrong)(1.0)
    with pytest.raises(ArgumentError, match=r"must return a scalar.\n  returned: f64\[3\]"):
        minimize(lambda x: x, X0, method="Powell")
    with pytest.raises(ValueError, match="must return a scalar"):
        minimize(lambda x: x, X0)
    with pytest.raises(DTypeError, match=r"  x0: i\d+\[\]"):
        minimize(lambda x: x, 1)
    with pytest.raises(AttributeError, match=r"Write scipy.optimize.root, with jac="):
        ftrans.scipy.optimize.root  # noqa: B018
    # beside what is traced it takes constants
    best = func.grad(lambda s: s * minimize(lambda x: (x - 3) ** 2, 0.0).x)(2.0)
    assert_close(best, 3.0, 1e-7)


def test_arguments_and_defaults_are_scipys() -> None:
    ours, theirs = (inspect.signature(f).parameters for f in (minimize, scipy.optimize.minimize))
    assert {name: p.default for name, p in ours.items()} == {
        name: p.default for name, p in theirs.items()
    }
