"""`custom_root` and `custom_linear_solve` against derivatives of what they solve, unrolled."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import MissingRuleError, RuleError
from tests.helpers import assert_close, sampled_rows
from tests.oracle import jaxpr
from tests.unit.function_database import Case
from tests.unit.function_transforms import FURTHER, ONCE, check

ALL = [*ONCE, *FURTHER]


class NumpySolve(Function):
    """Solves by NumPy, and has no derivative: nobody is to ask for it."""

    @staticmethod
    def forward(a, b):
        a, b = np.asarray(a), np.asarray(b)
        return np.linalg.solve(a, b[..., None])[..., 0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, a, b):
        a, b = (
            fnp.broadcast_to(array, (info.batch_size, *array.shape))
            if dim is None
            else fnp.moveaxis(array, dim, 0)
            for array, dim in zip((a, b), in_dims, strict=True)
        )
        return NumpySolve.apply(a, b), 0


class NumpyCholeskySolve(NumpySolve):
    @staticmethod
    def forward(a, b):
        lower = np.linalg.cholesky(np.asarray(a))
        half = np.linalg.solve(lower, np.asarray(b)[..., None])
        return np.linalg.solve(np.swapaxes(lower, -1, -2), half)[..., 0]

    @staticmethod
    def vmap(info, in_dims, a, b):
        a, b = (
            fnp.broadcast_to(array, (info.batch_size, *array.shape))
            if dim is None
            else fnp.moveaxis(array, dim, 0)
            for array, dim in zip((a, b), in_dims, strict=True)
        )
        return NumpyCholeskySolve.apply(a, b), 0


def dense_solve(f: Any, b: Any) -> Any:
    """Solves f(x) = b for a linear f, by its matrix."""
    return NumpySolve.apply(func.jacfwd(f)(b), b)


# -------------------------------------------------------------------------------------- fixed point


def newton(f: Any, x: Any) -> Any:
    """Solves f(x) = 0 for a scalar, in as many steps as it takes: no derivative goes through it."""

    def step(state: Any) -> Any:
        i, x = state
        value, slope = func.jvp(f, (x,), (fnp.ones_like(x),))
        return i + 1, x - value / slope

    return ftrans.while_loop(lambda s: s[0] < 40, step, (0, x))[1]


def kepler(mean: Any, eccentricity: Any) -> Any:
    """Returns E with E - e sin E = M."""
    return ftrans.custom_root(
        lambda anomaly: anomaly - eccentricity * fnp.sin(anomaly) - mean,
        mean,
        newton,
        lambda g, y: y / g(fnp.ones_like(y)),
    )


def kepler_unrolled(mean: Any, eccentricity: Any) -> Any:
    """Finds the fixed point by iterating a contraction, with JAX, far beyond convergence."""
    step = lambda anomaly, _: (mean + eccentricity * jnp.sin(anomaly), None)  # noqa: E731
    return jax.lax.scan(step, mean, length=40)[0]


@pytest.mark.slow
@pytest.mark.parametrize("transform", [*ONCE, *FURTHER])
def test_root_of_keplers_equation(transform: str) -> None:
    arrays = (np.float64(0.9), np.float64(0.2))
    if transform.startswith(("vmap", "jit(vmap", "grad(vmap", "jvp(vmap", "vjp(vmap")):
        # batches are drawn between 0.8 and 2, where the iteration does not contract
        check(Case(lambda m, e: kepler(m, e / 8), lambda m, e: kepler_unrolled(m, e / 8), arrays),
              transform)  # fmt: skip
    else:
        check(Case(kepler, kepler_unrolled, arrays), transform)


def vector_root(a: Any, b: Any) -> Any:
    """Returns x with x + tanh(a x) / 2 = b, by Newton's method with a dense Jacobian."""

    def f(x: Any) -> Any:
        return x + fnp.tanh(a @ x) / 2 - b

    def solve(f: Any, x: Any) -> Any:
        step = lambda _, x: x - NumpySolve.apply(func.jacfwd(f)(x), f(x))  # noqa: E731
        return ftrans.fori_loop(0, 12, step, x)

    return ftrans.custom_root(f, fnp.zeros_like(b), solve, dense_solve)


def vector_unrolled(a: Any, b: Any) -> Any:
    step = lambda x, _: (b - jnp.tanh(a @ x) / 2, None)  # noqa: E731
    return jax.lax.scan(step, jnp.zeros_like(b), length=60)[0]


A = np.array([[0.6, -0.2], [0.3, 0.4]])
B = np.array([0.7, -0.4])


@pytest.mark.parametrize(
    "transform", ["value", "vjp", "jvp", "grad", "linearize", "jacfwd", "jacrev", "jit(grad)",
                  "grad(grad)", "jvp(grad)", "hessian", "grad(jvp)"]
)  # fmt: skip
def test_root_of_a_system(transform: str) -> None:
    check(Case(vector_root, vector_unrolled, (A, B)), transform)


def test_batched_roots() -> None:
    random = np.random.default_rng(0)
    a, b = A * random.uniform(0.5, 1.0, (3, 1, 1)), random.normal(size=(3, 2))
    gradient = lambda t, f: t.vmap(t.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))  # noqa: E731
    expected = jaxpr.evaluate(gradient(jax, vector_unrolled))(a, b)
    for got, want in zip(gradient(func, vector_root)(a, b), expected, strict=True):
        assert_close(got, want, 1e-10)


def test_has_aux_of_a_root() -> None:
    def root(m: Any) -> Any:
        def solve(f: Any, x: Any) -> Any:
            return newton(f, x), {"steps": 40}

        return ftrans.custom_root(
            lambda x: x**3 - m,
            fnp.ones_like(m),
            solve,
            lambda g, y: y / g(fnp.ones_like(y)),
            has_aux=True,
        )

    m = np.float64(8.0)
    value, aux = root(m)
    assert_close(value, 2.0)
    assert aux["steps"] == 40
    assert_close(func.grad(lambda m: root(m)[0])(m), 1 / 12)


# ------------------------------------------------------------------------------------ linear solves


def cholesky_solve(a: Any, b: Any) -> Any:
    a = a @ a.T + 2 * np.eye(2)

    solve = lambda matvec, b: NumpyCholeskySolve.apply(a, b)  # noqa: E731
    return ftrans.custom_linear_solve(lambda x: a @ x, b, solve, symmetric=True)


def by_hand(np: Any, a: Any, b: Any) -> Any:
    """Solves two equations by Cramer's rule."""
    first = a[1, 1] * b[0] - a[0, 1] * b[1]
    second = a[0, 0] * b[1] - a[1, 0] * b[0]
    return np.stack([first, second]) / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])


def spd_solve(a: Any, b: Any) -> Any:
    return by_hand(jnp, a @ a.T + 2 * jnp.eye(2), b)


def general_solve(a: Any, b: Any) -> Any:
    a = a + 3 * np.eye(2)
    return ftrans.custom_linear_solve(lambda x: a @ x, b, dense_solve, transpose_solve=dense_solve)


def unsymmetric_solve(a: Any, b: Any) -> Any:
    return by_hand(jnp, a + 3 * jnp.eye(2), b)


def conjugate_gradient(np: Any, matvec: Any, b: Any, steps: int) -> Any:
    x, r = b * 0, b
    p, rr = r, (r * r).sum()
    for _ in range(steps):
        q = matvec(p)
        alpha = rr / (p * q).sum()
        x, r = x + alpha * p, r - alpha * q
        rr, before = (r * r).sum(), rr
        p = r + rr / before * p
    return x


def cg_solve(a: Any, b: Any) -> Any:
    return ftrans.custom_linear_solve(
        lambda x: a @ (a.T @ x) + 2 * x,
        b,
        lambda matvec, b: conjugate_gradient(fnp, matvec, b, 2),
        symmetric=True,
    )


SOLVES = {
    "cholesky": (cholesky_solve, spd_solve),
    "general": (general_solve, unsymmetric_solve),
    "conjugate gradient": (cg_solve, spd_solve),
}


@pytest.mark.parametrize(("name", "transform"), sampled_rows(itertools.product(SOLVES, ALL), 4))
def test_linear_solve(name: str, transform: str) -> None:
    ours, theirs = SOLVES[name]
    check(Case(ours, theirs, (A, B)), transform)


def test_conjugate_gradient_against_its_unrolled_derivative() -> None:
    """Two steps are exact for two unknowns, so that both are the derivative of the solution."""

    def unrolled(a: Any, b: Any) -> Any:
        return conjugate_gradient(jnp, lambda x: a @ (a.T @ x) + 2 * x, b, 2)

    for transform in ("vjp", "jvp"):
        check(Case(cg_solve, unrolled, (A, B)), transform)


def test_a_solve_of_a_pytree() -> None:
    def solved(scale: Any, b: Any) -> Any:
        matvec = lambda x: {"u": scale * x["u"] + x["v"], "v": 2 * scale * x["v"]}  # noqa: E731

        def solve(_: Any, b: Any) -> Any:
            v = b["v"] / (2 * scale)
            return {"u": (b["u"] - v) / scale, "v": v}

        def transpose_solve(_: Any, b: Any) -> Any:
            u = b["u"] / scale
            return {"u": u, "v": (b["v"] - u) / (2 * scale)}

        return ftrans.custom_linear_solve(matvec, b, solve, transpose_solve)

    b = {"u": np.array([1.0, 2.0]), "v": np.array([3.0, -1.0])}
    scale = np.float64(1.7)

    def plain(scale: Any, b: Any) -> Any:
        v = b["v"] / (2 * scale)
        return {"u": (b["u"] - v) / scale, "v": v}

    loss = lambda f: lambda scale, b: (f(scale, b)["u"] ** 2).sum() + f(scale, b)["v"].sum()  # noqa: E731
    expected = jaxpr.evaluate(jax.grad(loss(plain), (0, 1)))(scale, b)
    curvature = jaxpr.evaluate(jax.hessian(loss(plain)))(scale, b)
    got = func.grad(loss(solved), (0, 1))(scale, b)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_close(ours, theirs)
    assert_close(func.hessian(loss(solved))(scale, b), curvature, 1e-11)


def test_only_the_transposed_solve_is_asked_for() -> None:
    """The derivative does not go through the solver, which would not be differentiable."""
    calls: list[str] = []

    def solved(b: Any) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            calls.append("solve")
            return b / 4.0 * ftrans.stop_gradient(1.0 + 0 * b)

        return ftrans.custom_linear_solve(lambda x: 4 * x, b, solve, symmetric=True)

    assert_close(func.grad(lambda b: (solved(b) ** 2).sum())(B), 2 * B / 16)
    assert calls


@pytest.mark.parametrize("lib", [ftrans, jax.lax])
def test_a_tangent_solve_that_knows_the_inverse(lib: Any) -> None:
    """It solves with the linearized function without asking it: reverse mode transposes it."""

    def root(m: Any) -> Any:
        return lib.custom_root(
            lambda p: (p[0] - m, p[1] - p[0] ** 2),
            (0.0 * m, 0.0 * m),
            lambda f, p: (m, m * m),
            lambda g, y: (y[0], y[1] + 2 * m * y[0]),
        )[1]

    three, one = np.float64(3.0), np.float64(1.0)
    transforms = func if lib is ftrans else jax
    with jax.enable_x64(True):
        assert_close(transforms.jvp(root, (three,), (one,))[1], 6.0)
        assert_close(transforms.grad(root)(three), 6.0)
        assert_close(transforms.grad(transforms.grad(root))(three), 2.0)


# ---------------------------------------------------------------------------------- complex numbers

Z = np.array([[4 + 1j, 1 - 0.5j], [0.5j, 3 - 1j]])
Y = np.array([1 + 2j, -0.5 + 0.3j])


def complex_solve(a: Any, b: Any) -> Any:
    return ftrans.custom_linear_solve(
        lambda x: a @ x, b, lambda _, b: by_hand(fnp, a, b), lambda _, b: by_hand(fnp, a.T, b)
    )


def complex_root(a: Any, b: Any) -> Any:
    """Returns x with x + x^2 / 10 = a b."""

    def step(f: Any, x: Any) -> Any:
        return x - f(x) / (1 + x / 5)

    return ftrans.custom_root(
        lambda x: x + x * x / 10 - a @ b,
        0 * b,
        lambda f, x: ftrans.fori_loop(0, 30, lambda _, x: step(f, x), x),
        lambda g, y: y / g(fnp.ones_like(y)),
    )


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (complex_solve, lambda a, b: jnp.linalg.solve(a, b)),
        (complex_root, lambda a, b: 5 * (jnp.sqrt(1 + 0.4 * (a @ b)) - 1)),
    ],
)
def test_complex_numbers(ours: Any, theirs: Any, wrap: Any) -> None:
    """JAX's gradients are the conjugates of PyTorch's, which ours are."""
    ct = np.array([0.3 - 1j, 2 + 0.5j])
    pull = jaxpr.evaluate(lambda z, y, ct: jax.vjp(theirs, z, y)[1](ct))
    expected = [np.conj(g) for g in pull(Z, Y, np.conj(ct))]
    push = jaxpr.evaluate(lambda z, y, t, ct: jax.jvp(theirs, (z, y), (t, ct)))
    out, dot = push(Z, Y, Z.T, ct)
    assert_close(wrap(ours)(Z, Y), out, 1e-11)
    assert_close(wrap(lambda a, b: func.jvp(ours, (a, b), (a.T, ct))[1])(Z, Y), dot, 1e-11)
    got = wrap(lambda a, b: func.vjp(ours, a, b)[1](ct))(Z, Y)
    for mine, yours in zip(got, expected, strict=True):
        assert_close(mine, yours, 1e-11)


@pytest.mark.parametrize("start", [np.asarray(1), np.float32(1)])
def test_an_unknown_that_is_too_narrow(start: Any) -> None:
    def root(a: Any) -> Any:
        return ftrans.custom_root(
            lambda x: x * x - a, start, lambda f, x: fnp.sqrt(a), lambda g, y: y
        )

    with pytest.raises(RuleError, match=r"wider dtype than initial_guess(.|\n)*'float64'"):
        func.grad(root)(np.float64(2.0))


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
def test_a_start_that_is_a_python_number(wrap: Any, dtype: str, start: Any) -> None:
    """It promotes as it would in the function, and so does a right-hand side."""

    def root(a: Any) -> Any:
        solve = lambda f, x: ftrans.fori_loop(0, 30, lambda _, x: x - f(x) / (2 * x), x)  # noqa: E731
        return ftrans.custom_root(lambda x: x * x - a, start, solve, lambda g, y: y / g(y * 0 + 1))

    def solution(a: Any) -> Any:
        return ftrans.custom_linear_solve(
            lambda x: a * x, start, lambda _, b: b / a, symmetric=True
        )

    def pair(a: Any) -> Any:
        solve = lambda f, z: (fnp.sqrt(a), 1 / a)  # noqa: E731
        f = lambda z: (z[0] * z[0] - a, z[1] * a - 1)  # noqa: E731
        x, y = ftrans.custom_root(
            f, (np.ones((), dtype), start), solve, lambda g, z: (z[0] / g(z)[0] * z[0], z[1] / a)
        )
        return y + 0 * x

    a = np.asarray(2.0, dtype)
    for f, slope in ((root, 0.5 / np.sqrt(2)), (solution, -0.25), (pair, -0.25)):
        out, dot = wrap(lambda a, f=f: func.jvp(f, (a,), (fnp.ones_like(a),)))(a)
        assert out.dtype == dot.dtype == dtype
        assert_close(dot, np.asarray(slope, dtype), 1e-6)


def test_a_right_hand_side_that_is_too_narrow() -> None:
    def solution(a: Any) -> Any:
        b = np.array([1, 2])
        return ftrans.custom_linear_solve(
            lambda x: a * x, b, lambda _, b: b / a, symmetric=True
        ).sum()

    with pytest.raises(RuleError, match=r"wider dtype than b(.|\n)*'float64'"):
        func.grad(solution)(np.array([2.0, 4.0]))


# ------------------------------------------------------- solvers that do not ask for the function


def square_root(lib: Any, np: Any, way: str) -> Any:
    """Returns a function that finds a square root, or more, by some solver."""

    def root(a: Any, guess: Any = 1.0) -> Any:
        start = a * 0 + guess
        if way == "closed form":
            solve = lambda f, x: np.sqrt(a)  # noqa: E731
        elif way == "warm start":
            start, solve = np.sqrt(a), lambda f, x: x
        elif way == "its own start":  # which is what the function closes over
            start, solve = a, lambda f, x: x
            return lib.custom_root(lambda y: y**3 - a**3, start, solve, lambda g, y: y / g(1.0))
        elif way == "constant":
            solve = lambda f, x: 2.0 + 0 * x  # noqa: E731
        else:  # factors
            inverse = 0.5 / np.sqrt(a)
            return lib.custom_root(
                lambda y: y * y - a, start, lambda f, x: np.sqrt(a), lambda g, y: inverse * y
            )
        return lib.custom_root(lambda y: y * y - a, start, solve, lambda g, y: y / g(1.0))

    return root


def twice(t: Any, a: Any) -> Any:
    return (jnp if t is jax else np).stack([a, a])


WAYS = ["closed form", "warm start", "its own start", "constant", "factors"]
ORDERS = {
    "grad": lambda t, f: t.grad(f),
    "grad grad": lambda t, f: t.grad(t.grad(f)),
    "jacfwd grad": lambda t, f: t.jacfwd(t.grad(f)),
    "grad jacfwd": lambda t, f: t.grad(t.jacfwd(f)),
    "jacfwd jacfwd": lambda t, f: t.jacfwd(t.jacfwd(f)),
    "three": lambda t, f: t.grad(t.jacfwd(t.grad(f))),
    "four": lambda t, f: t.jacfwd(t.grad(t.grad(t.grad(f)))),
    "jit": lambda t, f: t.jit(t.grad(t.grad(t.jit(f)))),
    "vmap": lambda t, f: lambda a: t.vmap(t.grad(t.grad(f)))(twice(t, a)),
    "of vmap": lambda t, f: lambda a: t.hessian(lambda x: t.vmap(f)(x).sum())(twice(t, a)),
    "scan": lambda t, f: t.grad(
        t.grad(lambda a: (jax.lax if t is jax else ftrans).scan(
            lambda c, _: (c * f(a), None), 1.0 + 0 * a, None, length=2)[0])
    ),
}  # fmt: skip


@pytest.mark.parametrize(("way", "order"), sampled_rows(itertools.product(WAYS, ORDERS), 2))
def test_solvers_that_do_not_ask_for_the_function(way: str, order: str) -> None:
    """The root has its derivatives by the theorem, however it was found, at every order."""
    a = np.float64(4.0)
    transform = ORDERS[order]
    expected = jaxpr.evaluate(transform(jax, square_root(jax.lax, jnp, way)))(a)
    assert_close(transform(_Ours, square_root(ftrans, fnp, way))(a), expected, 1e-11)


class _Ours:
    """The transforms by the names that JAX has for them."""

    grad, jacfwd, hessian = func.grad, func.jacfwd, func.hessian
    jit, vmap = ftrans.jit, func.vmap


def test_unknowns_that_are_found_to_be_the_same() -> None:
    """Two unknowns have two derivatives, though the solver returns one value for both."""

    def roots(lib: Any, a: Any, b: Any) -> Any:
        x, y = lib.custom_root(
            lambda z: (z[0] ** 2 - a, z[1] ** 2 - 2 * b),
            (a, a),
            lambda f, z: (z[0] * 0 + 2.0,) * 2,
            lambda g, z: (z[0] / g((1.0, 0.0))[0], z[1] / g((0.0, 1.0))[1]),
        )
        return x**2 * y**3

    a, b = np.float64(4.0), np.float64(2.0)
    expected = jaxpr.evaluate(jax.hessian(lambda a, b: roots(jax.lax, a, b), (0, 1)))(a, b)
    got = func.hessian(lambda a, b: roots(ftrans, a, b), (0, 1))(a, b)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_close(ours, theirs)


def factored_solve(lib: Any, np: Any, a: Any, b: Any) -> Any:
    """Solves by what was computed outside of the solver."""
    x = by_hand(np, a, b)
    return lib.custom_linear_solve(
        lambda x: a @ x, b, lambda matvec, b: x, lambda vecmat, b: by_hand(np, a.T, b)
    )


def factored_root(lib: Any, np: Any, a: Any, b: Any) -> Any:
    x = by_hand(np, a, b)
    return lib.custom_root(
        lambda x: a @ x - b,
        b,
        lambda f, start: x,
        lambda g, y: by_hand(np, a, y),
    )


@pytest.mark.parametrize("solved", [factored_solve, factored_root])
def test_second_derivatives_where_the_solution_is_closed_over(solved: Any) -> None:
    """A solution that a linear solver closes over is of that right-hand side alone: roots are."""
    a, b = A + 2 * np.eye(2), B
    loss = lambda t, lib, np: lambda a, b: (solved(lib, np, a, b) ** 3).sum()  # noqa: E731
    exact = lambda a, b: (by_hand(jnp, a, b) ** 3).sum()  # noqa: E731
    if solved is factored_solve:
        expected = jaxpr.evaluate(jax.grad(exact, (0, 1)))(a, b)
        got = func.grad(loss(func, ftrans, fnp), (0, 1))(a, b)
    else:
        expected = jaxpr.evaluate(jax.hessian(exact, (0, 1)))(a, b)
        got = func.hessian(loss(func, ftrans, fnp), (0, 1))(a, b)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_close(ours, theirs, 1e-11)


def two_steps(f: Any, x: Any) -> Any:
    for _ in range(2):
        x = x - f(x) / (2 * x)
    return x


@pytest.mark.parametrize("order", ["value", *(o for o in ORDERS if o != "scan")])
@pytest.mark.parametrize("solver", ["two steps", "identity", "loop"])
def test_a_guess_that_moves_alone(solver: str, order: str) -> None:
    """A root that nothing but its guess moves is constant, though the solver is not."""

    def root(lib: Any, loop: Any) -> Any:
        solve = {
            "two steps": two_steps,
            "identity": lambda f, x: x,
            "loop": lambda f, x: loop(lambda x: abs(f(x)) > 1e-9, lambda x: x - f(x) / (2 * x), x),
        }[solver]
        return lambda z: lib.custom_root(lambda y: y * y - 2.0, z, solve, lambda g, y: y / g(1.0))

    transform = ORDERS.get(order, lambda t, f: f)
    z = np.float64(1.3)
    expected = jaxpr.evaluate(transform(jax, root(jax.lax, jax.lax.while_loop)))(z)
    assert_close(transform(_Ours, root(ftrans, ftrans.while_loop))(z), expected)


def test_a_linear_solver_that_alone_moves() -> None:
    """Nothing that the system is made of moves: the solution is constant, and so is aux."""

    def solution(c: Any) -> Any:
        x, aux = ftrans.custom_linear_solve(
            lambda x: 2.0 * x, B, lambda _, b: (b / 2 + 0 * c, {"c": c}), has_aux=True
        )
        return x.sum() + aux["c"]

    c = np.float64(3.0)
    assert_close(solution(c), B.sum() / 2 + 3)
    assert_close(func.grad(solution)(c), 0.0)
    assert_close(func.jvp(solution, (c,), (c,))[1], 0.0)


# ------------------------------------------------------------------- what does not fit the unknown

_SAME = lambda f, x: x  # noqa: E731
UNFIT = {
    "matvec of other structure": lambda r, s, x: s(lambda x: [x], x, _SAME, _SAME),
    "matvec of other shape": lambda r, s, x: s(lambda x: x * np.ones(3), x, _SAME, _SAME),
    "solve of other structure": lambda r, s, x: s(lambda x: x, x, lambda f, x: [x], _SAME),
    "solve of other shape": lambda r, s, x: s(lambda x: x, x, lambda f, x: np.ones(3), _SAME),
    "f of other structure": lambda r, s, x: r(lambda x: (x, x), x, _SAME, _SAME),
    "f of other shape": lambda r, s, x: r(lambda x: x * np.ones(3), x, _SAME, _SAME),
    "root of other structure": lambda r, s, x: r(lambda x: x, x, lambda f, x: (x, x), _SAME),
    "root of other shape": lambda r, s, x: r(lambda x: x, x, lambda f, x: np.ones(3), _SAME),
}


@pytest.mark.parametrize("around", ["nothing", "jit", "grad", "jvp", "vmap"])
@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_the_unknown(case: str, around: str) -> None:
    """It is an error on all roads, as in JAX; each time, and not at the first alone."""
    call = {
        "nothing": lambda f: f(np.float64(1.5)),
        "jit": lambda f: ftrans.jit(f)(np.float64(1.5)),
        "grad": lambda f: func.grad(f)(np.float64(1.5)),
        "jvp": lambda f: func.jvp(f, (np.float64(1.5),), (np.float64(1.0),)),
        "vmap": lambda f: func.vmap(f)(np.ones(2)),
    }[around]
    solve = lambda x: UNFIT[case](ftrans.custom_root, ftrans.custom_linear_solve, x)  # noqa: E731
    theirs = lambda x: UNFIT[case](jax.lax.custom_root, jax.lax.custom_linear_solve, x)  # noqa: E731
    what = r"what lambda \(.*test_implicit\.py:\d+\) returns"
    for _ in range(2):
        with pytest.raises(
            RuleError, match=rf"custom_\w+: {what} (does not have the structure|has)"
        ):
            call(solve)
    if "shape" not in case or "solve" in case:  # of roots, JAX does not check shapes
        with pytest.raises((TypeError, ValueError)):
            theirs(1.5)


@pytest.mark.parametrize("around", [lambda f: f, ftrans.jit])
@pytest.mark.parametrize("name", ["custom_root", "custom_linear_solve"])
def test_a_solver_that_returns_no_aux(name: str, around: Any) -> None:
    solve = getattr(ftrans, name)
    with pytest.raises(RuleError, match=rf"{name}: with has_aux=True lambda \(.*\) returns a pair"):
        around(lambda x: solve(lambda x: x, x, _SAME, _SAME, has_aux=True))(np.ones(2))


def test_a_function_that_asks_for_values_is_solved_outside_of_transforms() -> None:
    f = lambda x: np.asarray([float(x[0]) - 1.0])  # noqa: E731
    root = ftrans.custom_root(f, np.zeros(1), lambda f, x: x - f(x), lambda g, y: y)
    assert_close(root, [1.0])


def test_a_function_is_called_once_more_to_be_checked() -> None:
    """Where nothing is traced; what it raises then is for the solver to find out."""
    calls: list[Any] = []

    def matvec(x: Any) -> Any:
        calls.append(x)
        return 2.0 * x

    solve = lambda _, b: b / 2.0  # noqa: E731
    for b in (np.ones(2), np.ones(3)):
        assert_close(ftrans.custom_linear_solve(matvec, b, solve), b / 2)
    assert list(map(np.shape, calls)) == [(2,), (3,)]

    def f(x: Any) -> Any:
        if x <= 0:
            raise ValueError("it has a logarithm")
        return np.log(x)

    assert ftrans.custom_root(f, 0.0, lambda f, _: 1.0 + f(1.0), lambda g, y: y) == 1.0


# ------------------------------------------------------------------------ JAX's own transforms


def _solutions(lib: Any, np: Any, loop: Any, stop: Any) -> dict[str, Any]:
    """Returns solutions whose solvers JAX could not differentiate."""

    def newton(f: Any, x: Any) -> Any:
        return loop(lambda x: abs(f(x)) > 1e-9, lambda x: x - f(x) / (2 * x), x)

    def root(a: Any) -> Any:
        return lib.custom_root(lambda y: y * y - a, a * 0 + 1.0, newton, lambda g, y: y / g(1.0))

    def closed(a: Any) -> Any:
        solve = lambda f, x: (stop(np.sqrt(a)), 7.0)  # noqa: E731
        tangent_solve = lambda g, y: y / g(1.0)  # noqa: E731
        return lib.custom_root(lambda y: y * y - a, a, solve, tangent_solve, has_aux=True)[0]

    def moved(a: Any) -> Any:  # by the guess alone
        return lib.custom_root(lambda y: y * y - 2, a, two_steps, lambda g, y: y / g(1.0))

    def pair(a: Any) -> Any:
        b = {"x": a, "y": np.stack([a * a, 1 + a])}
        solve = lambda _, b: {"x": stop(b["x"] / a), "y": stop(b["y"] / (2 * a))}  # noqa: E731
        matvec = lambda x: {"x": a * x["x"], "y": 2 * a * x["y"]}  # noqa: E731
        found = lib.custom_linear_solve(matvec, b, solve, symmetric=True)
        return found["x"] + (found["y"] ** 3).sum()

    return {"root": root, "closed": closed, "moved": moved, "pair": pair}


OURS = _solutions(ftrans, fnp, ftrans.while_loop, ftrans.stop_gradient)
THEIRS = _solutions(jax.lax, jnp, jax.lax.while_loop, jax.lax.stop_gradient)
UNDER_JAX = {
    "value": lambda f, wrap: wrap(f),
    "grad": lambda f, wrap: jax.grad(wrap(f)),
    "jit grad": lambda f, wrap: jax.jit(jax.grad(wrap(f))),
    "grad jit": lambda f, wrap: jax.grad(jax.jit(wrap(f))),
    "vmap grad": lambda f, wrap: lambda a: jax.vmap(jax.grad(wrap(f)))(jnp.stack([a, a])),
    "grad vmap": lambda f, wrap: (
        lambda a: jax.grad(lambda x: jax.vmap(wrap(f))(x).sum())(jnp.stack([a, a]))
    ),
}
FORWARD = {
    "jacfwd": lambda f, wrap: jax.jacfwd(wrap(f)),
    "jacfwd jacfwd": lambda f, wrap: jax.jacfwd(jax.jacfwd(wrap(f))),
}
WRAPS: dict[str, tuple[Any, Any]] = {
    "alone": (lambda f: f, lambda f: f),
    "jit": (ftrans.jit, jax.jit),
    "vmap": (
        lambda f: lambda a: func.vmap(lambda b: f(a) * b)(np.ones(2)).sum(),
        lambda f: lambda a: jax.vmap(lambda b: f(a) * b)(np.ones(2)).sum(),
    ),
    "grad": (func.grad, jax.grad),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "transform", "wrap"),
    sampled_rows(itertools.product(OURS, [*UNDER_JAX, *FORWARD], WRAPS), 7),
)
def test_solutions_under_transforms_of_jax(name: str, transform: str, wrap: str) -> None:
    if name == "pair" and transform in FORWARD:
        pytest.skip("what has a rule for reverse mode has no other under JAX")
    apply = UNDER_JAX.get(transform) or FORWARD[transform]
    ours, theirs = WRAPS[wrap]
    with jax.enable_x64(True):
        a = jnp.float64(4.0)
        found = apply(OURS[name], ours)(a)
    assert_close(found, jaxpr.evaluate(apply(THEIRS[name], theirs))(np.float64(4.0)), 1e-9)


@pytest.mark.slow
def test_a_second_gradient_by_jax() -> None:
    """It is right for linear systems; for roots it is an error, and never a wrong value."""
    with jax.enable_x64(True):
        a = jnp.float64(4.0)
        expected = jaxpr.evaluate(jax.grad(jax.grad(THEIRS["pair"])))(a)
        assert_close(jax.grad(jax.grad(OURS["pair"]))(a), expected, 1e-11)
        for twice in (lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f))):
            with pytest.raises(MissingRuleError, match="JAX differentiates a gradient"):
                twice(OURS["root"])(a)
        assert_close(jax.grad(func.grad(OURS["root"]))(a), -1 / 32, 1e-11)
        with pytest.raises(TypeError, match="custom_vjp"):
            jax.jacfwd(OURS["pair"])(a)
