"""Special functions under SciPy's names whose derivatives JAX has not, against mpmath's numbers."""

from __future__ import annotations

import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest
import scipy.special

import ftrans.scipy.special as special
from ftrans import from_jax, func
from ftrans.scipy import stats
from tests.helpers import assert_close

CASES = [
    (
        "gammainc",
        (2.5, 1.3),
        [(-0.22962689834, 0.15826392631), (0.30387572097, 0.046750110918)],
    ),
    (
        "gammainc",
        (30.0, 33.0),
        [
            (-0.060477394494, -0.0057745625318),
            (0.057365070736, -0.0069533419074),
        ],
    ),
    (
        "gammaincc",
        (0.3, 0.2),
        [(1.0233803072, -0.95899114329), (-0.84434723247, 3.7995625461)],
    ),
    (
        "betainc",
        (2.5, 1.3, 0.4),
        [
            (-0.1200449376, 0.096999334877),
            (0.1477368954, 0.033954513415),
            (0.85396109987, 2.7753735746),
        ],
    ),
    (
        "betainc",
        (20.0, 30.0, 0.4),
        [
            (-0.069775119225, 0.0014252973152),
            (0.046387678845, -0.00094085703022),
            (5.7279276415, -4.7732730346),
        ],
    ),
    (
        "betainc",
        (0.5, 0.5, 0.9),
        [
            (-0.27681552436, 0.29957708212),
            (0.59262002214, -1.8537435127),
            (1.0610329539, 4.7157020175),
        ],
    ),
    (
        "log_ndtr",
        (-20.0,),
        [
            (20.049753069, -0.99753673838),
        ],
    ),
    (
        "ndtri",
        (1e-06,),
        [
            (202088.27038913718, -194128275526.1267),
        ],
    ),
    (
        "exp1",
        (0.7,),
        [
            (-0.70940757684, 1.7228469723),
        ],
    ),
]
"""A function, where it is asked, and by each argument its first and second derivative.

They were computed with mpmath 1.3, to thirty digits.
"""

EXPN = {0: [-0.17067318856, 0.30825288304], 2: [-0.074654644401, 0.1074608965]}
"""By n the first and second derivative of `expn` at 1.7."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at", "expected"), CASES)
def test_derivatives_by_every_argument(name: str, at: tuple[float, ...], expected: list) -> None:
    function, given = getattr(special, name), [np.float64(x) for x in at]
    assert_close(function(*given), getattr(jax.scipy.special, name)(*at), 1e-4)
    for i, (first, second) in enumerate(expected):
        assert_close(func.grad(function, i)(*given), first, 1e-9 * max(1, abs(first)))
        slope = func.grad(func.grad(function, i), i)(*given)
        assert_close(slope, second, 1e-9 * max(1, abs(second)))


@pytest.mark.parametrize(("name", "at", "expected"), CASES)
def test_python_numbers_are_computed_in_double(name: str, at: tuple[float, ...], expected: list):
    function = getattr(special, name)
    assert function(*at).dtype == np.float64
    assert_close(func.grad(function)(*at), expected[0][0], 1e-9 * max(1, abs(expected[0][0])))


@pytest.mark.parametrize(("name", "at", "expected"), CASES)
def test_functions_of_scipy_itself(name: str, at: tuple[float, ...], expected: list) -> None:
    function, given = getattr(scipy.special, name), [np.float64(x) for x in at]
    for i, (first, second) in enumerate(expected):
        assert_close(func.grad(function, i)(*given), first, 1e-9 * max(1, abs(first)))
        slope = func.grad(func.grad(function, i), i)(*given)
        assert_close(slope, second, 1e-9 * max(1, abs(second)))


@pytest.mark.parametrize("x", [0.3, 0.95, 1.0, 1.2, 1.5, 2.0, 3.0])
def test_spence_where_jax_chooses_between_series(x: float) -> None:
    slope, at = func.grad(special.spence), np.float64(x)
    first, u = np.log(x) / (1 - x) if x != 1 else -1.0, x - 1
    assert_close(slope(at), first, 1e-12)
    assert_close(func.grad(slope)(at), -(1 / x + first) / u if u else 0.5, 1e-12)


def test_what_jax_makes_of_them() -> None:
    x, a, b = map(np.float64, (0.4, 2.5, 1.3))
    for function in (stats.beta.cdf, from_jax(jax.scipy.stats.beta.cdf)):
        found = func.grad(function, (1, 2, 0))(x, a, b)
        expected = func.grad(special.betainc, (0, 1, 2))(a, b, x)
        for slope, same in zip(found, expected, strict=True):
            assert_close(slope, same, 1e-12)
    pulled = func.grad(func.grad(stats.gamma.logsf, 1), 1)(b, a)
    mass, slope = special.gammaincc(a, b), func.grad(special.gammaincc)(a, b)
    bend = func.grad(func.grad(special.gammaincc))(a, b)
    assert_close(pulled, bend / mass - (slope / mass) ** 2, 1e-12)


@pytest.mark.parametrize("n", EXPN)
def test_derivatives_of_exponential_integrals(n: int) -> None:
    first = func.grad(lambda x: special.expn(n, x))
    assert_close(first(np.float64(1.7)), EXPN[n][0], 1e-10)
    assert_close(func.grad(first)(np.float64(1.7)), EXPN[n][1], 1e-10)


def test_derivatives_of_exponential_integrals_at_zero() -> None:
    first = func.grad(lambda x: special.expn(4, x))
    assert_close(first(0.0), -1 / 2, 1e-12)  # -E_3(0), and E_2(0)
    assert_close(func.grad(first)(0.0), 1.0, 1e-12)


def test_mixed_derivatives_agree() -> None:
    a, b, x = map(np.float64, (2.5, 1.3, 0.4))
    mixed = lambda i, j: func.grad(func.grad(special.betainc, i), j)(a, b, x)  # noqa: E731
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert_close(mixed(i, j), mixed(j, i), 1e-9)


def test_they_take_lanes_and_single_precision() -> None:
    a, x = np.array([0.5, 2.0, 9.0], np.float32), np.float32(1.5)
    slopes = func.vmap(func.grad(special.gammainc), (0, None))(a, x)
    assert slopes.dtype == np.float32
    loop = [func.grad(special.gammainc)(np.float64(each), np.float64(x)) for each in a]
    assert_close(slopes, np.array(loop), 1e-5)


def test_slopes_at_the_ends() -> None:
    zero, one = np.float64(0), np.float64(1)
    assert [float(func.grad(special.ndtri)(p)) for p in (zero, one)] == [np.inf, np.inf]
    # as those of `ftrans.numpy`: what is masked by a zero is masked in the slope
    assert [float(s) for s in func.grad(special.xlogy, (0, 1))(zero, zero)] == [0, 0]
    assert [float(s) for s in func.grad(special.xlog1py, (0, 1))(zero, -one)] == [0, 0]
    # but no other slope in x is, which is the logarithm everywhere
    for function, log in ((special.xlogy, np.log), (special.xlog1py, np.log1p)):
        assert_close(func.grad(function, (0, 1))(zero, 3 * one), (log(3.0), 0.0))
        at = np.array([0.0, 3.0])
        mixed = func.hessian(lambda v, f=function: f(v[0], v[1]))(at)[0, 1]
        assert_close(mixed, 1 / 3 if log is np.log else 1 / 4)
    assert func.grad(special.gammainc)(one, zero) == 0
    assert func.grad(special.betainc)(one, one, zero) == 0


def test_the_first_exponential_integral_at_once() -> None:
    """JAX's own does not end for some of these together."""
    x = np.array([1e-300, 1e-8, 1e-3, 0.5, 1.9, 2.0, 2.1, 5.0, 50.0, 700.0, 0.0, np.inf, -1.0])
    np.testing.assert_allclose(special.exp1(x), scipy.special.exp1(x), rtol=1e-14)
    np.testing.assert_allclose(special.expn(1, x), scipy.special.exp1(x), rtol=1e-14)
    assert_close(func.grad(func.grad(special.exp1))(1.5), np.exp(-1.5) * (1 / 1.5 + 1 / 2.25))


@pytest.mark.parametrize("name", ["boxcox", "boxcox1p"])
@pytest.mark.parametrize("power", [0.0, 1e-10, -0.3, 2.0])
def test_power_transforms_by_the_power(name: str, power: float) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    x = np.array([0.0, 1e-3, 1.0, 2.0, 30.0])
    np.testing.assert_allclose(ours(x, power), theirs(x, power), rtol=1e-12)
    slope = (theirs(2.0, power + 1e-5) - theirs(2.0, power - 1e-5)) / 2e-5
    assert_close(func.grad(lambda p: ours(2.0, p))(power), slope, 1e-9)
    curve = func.grad(func.grad(lambda p: ours(2.0, p)))(0.0)
    log = np.log(2.0 + (name == "boxcox1p"))
    assert_close(curve, log**3 / 3, 1e-12)
