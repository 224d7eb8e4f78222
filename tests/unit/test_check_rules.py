"""`check_rules`: silent on rules that are right; it finds what was planted, and says why."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import check_rules
from ftrans.autograd import Function
from ftrans.errors import ArgumentError, ConcretizationError, GradcheckError
from ftrans.verify import Failure, Report
from ftrans.verify.checks.batch import check_batches
from ftrans.verify.checks.consistency import (
    gradients_of_some,
    jitted,
    linear,
    pulled_twice,
    repeated,
    unchanged,
    unused,
)
from ftrans.verify.checks.derivative import gradients_by_differences
from ftrans.verify.diagnosis import diagnose
from ftrans.verify.differences import Beside, slope_along
from ftrans.verify.probe import Probe
from ftrans.verify.report import Findings
from tests.helpers import sampled
from tests.unit.planted_rules import WRONG as PLANTED
from tests.unit.right_rules import RIGHT
from tests.unit.wrong_rules import ROWS, WRONG, A, V, X, scattered, sorting


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(list(RIGHT), 3))
def test_right_rules_raise_no_alarm(name: str) -> None:
    rule, args = RIGHT[name]
    report = check_rules(rule, args)
    assert report.ok, str(report)


def test_a_gradient_of_more_digits_is_none_too_few() -> None:
    def wide(ctx: Any, ct: Any) -> Any:
        return scattered(ctx.order, np.asarray(ct, np.float64))

    for rows in (ROWS, ROWS.astype(np.float32)):
        assert check_rules(sorting(wide), (rows,)).ok


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(list(WRONG), 3))
def test_wrong_rules_are_found(name: str) -> None:
    rule, args, says = WRONG[name]
    report = check_rules(rule, args)
    assert not report.ok
    assert says in str(report)


# --------------------------------------------------------------------------------- each check


def found(cases: Any, func: Any, *args: Any) -> str:
    """Returns what one check says of a function."""
    probe, report = Probe(func, args), Report("f")
    findings = Findings(report, "the sample", probe)
    assert findings.compare("the check", "it", cases(probe)) == report.ok
    return "\n".join(map(str, report.failures))


def test_linearity_alone() -> None:
    rule, args, _ = WRONG["product: bounds large cotangents"]
    assert "not linear" in found(linear, rule.apply, *args)
    assert not found(linear, RIGHT["BroadcastMul"][0].apply, *args)


def test_gradients_of_some_inputs_alone() -> None:
    rule, args, _ = WRONG["product: wrong where one input needs none"]
    assert "needs_input_grad" in found(gradients_of_some, rule.apply, *args)
    assert not found(gradients_of_some, RIGHT["BroadcastMul"][0].apply, *args)


def test_unused_outputs_alone() -> None:
    for name in ("pair: None is multiplied", "pair: one None makes all None"):
        rule, args, _ = WRONG[name]
        assert "None" in found(unused, rule.apply, *args)
    assert not found(unused, RIGHT["Unmaterialized"][0].apply, X)


def test_what_jit_makes_something_else_of_alone() -> None:
    def func(x: Any) -> Any:
        try:
            return x * float(fnp.sum(0.0 * x).detach() + 1.0)
        except ConcretizationError:
            return 2.0 * x

    assert "jit gives something else" in found(jitted, func, X)
    report = Report("f")
    check_batches(Findings(report, "the sample", Probe(func, (X,))))
    assert "vmap" in str(report.failures[0])


def test_a_batch_of_what_keeps_state_is_no_loop() -> None:
    (subject,) = [subject for subject in PLANTED if subject.name == "CosAccumulated"]
    report = check_rules(subject.function, *subject.samples)
    assert report.row("vmap of derivatives").failed


def test_side_effects_alone() -> None:
    draw = np.random.default_rng(0)
    counted = [0.0]

    def counting(x: Any) -> Any:
        counted[0] += 1.0
        return x * counted[0]

    def writing(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            x[0] = 5.0
        return x * 1.0

    assert "two calls differ" in found(repeated, lambda x: x * draw.uniform(), X)
    assert "two calls differ" in found(repeated, counting, X)
    assert "was written to" in found(unchanged, writing, X)
    for cases in (repeated, unchanged, pulled_twice):
        assert not found(cases, fnp.sin, X)


# ------------------------------------------------------------------------------------- report


def test_report_of_what_is_right() -> None:
    report = check_rules(fnp.sin, X)
    assert report.ok
    assert bool(report)
    assert report.failures == []
    report.raise_if_failed()
    assert str(report).startswith("check_rules(sin): all rules hold")
    assert "vmap against a loop" in str(report)


def test_report_of_what_is_wrong() -> None:
    rule, args, _ = WRONG["product: a factor of 2"]
    report = check_rules(rule, args)
    assert not report
    assert list(report) == report.failures
    failure = report.failures[0]
    assert isinstance(failure, Failure)
    assert failure.sample == "0: (f64[3,4], f64[4])"
    assert failure.cause == "a wrong factor: it is 2 times what it should be, throughout"
    np.testing.assert_allclose(failure.got, 2 * failure.expected, rtol=1e-6)
    with pytest.raises(GradcheckError) as caught:
        report.raise_if_failed()
    assert str(caught.value) == str(report)
    html = report._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 1
    assert "it is 2 times" in html


def test_reports_are_the_same_at_each_call() -> None:
    for name in ("product: a sign", "sort: state on a global", "complex: the real part"):
        rule, args, _ = WRONG[name]
        assert str(check_rules(rule, args)) == str(check_rules(rule, args))


def test_samples_are_told_apart() -> None:
    def func(x: Any) -> Any:
        fixed = ftrans.stop_gradient
        return x if x.ndim == 1 else fixed(x) + 3 * x - 3 * fixed(x)

    report = check_rules(func, X, (A,), X)
    assert {failure.sample[0] for failure in report} == {"1"}


def test_no_sample() -> None:
    with pytest.raises(ArgumentError, match="there is no sample"):
        check_rules(fnp.sin)


@pytest.mark.parametrize("order", ["2", 0, 2.0, True, None])
def test_no_such_order(order: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_rules(fnp.sin, X, order=order)
    assert str(caught.value) == (
        f"check_rules(sin): order must be a whole number, at least 1.\n  order: {order!r}\n"
        f"  Write order=2 for first and second derivatives."
    )


def test_a_function_that_raises() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("not today")

    report = check_rules(broken, X)
    assert "the function raised ZeroDivisionError: not today" in str(report)


def test_samples_are_left_as_they_are_where_that_is_asked_for() -> None:
    seen = set()

    class Double(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x = np.asarray(x)
            seen.add((x.dtype.name, x.shape))
            return 2 * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * np.asarray(ct)

    assert check_rules(Double, X, derived=False)
    assert seen == {("float64", (5,))}
    seen.clear()
    assert check_rules(Double, X.astype(np.float32), derived=False)
    assert seen == {("float32", (5,))}
    assert check_rules(Double, X)
    assert {("float32", (5,)), ("float64", (1,)), ("float64", (0,))} <= seen


def test_once_differentiable_is_noted() -> None:
    rule, args = RIGHT["OpaqueOnce"]
    report = check_rules(rule, args)
    assert report.row("second derivative").notes == ["not twice differentiable"]
    assert report.row("second derivative").result == "-"


def test_order_one_takes_no_second_derivative_and_order_three_a_third() -> None:
    names = [[row.check for row in check_rules(fnp.sin, X, order=n).rows] for n in (1, 3)]
    assert "second derivative" not in names[0]
    assert {"second derivative", "third derivative"} <= set(names[1])
    rule, args, _ = WRONG["product: residuals cut off from the second derivative"]
    assert check_rules(rule, args, order=1).ok


def test_nothing_is_warned_of() -> None:
    rule, args = RIGHT["Take"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_rules(rule, args).ok


def test_arguments_are_left_alone() -> None:
    for name in ("ExpDirty", "Sort", "custom_vjp"):
        rule, args = RIGHT[name]
        copies = [np.array(arg) for arg in args]
        check_rules(rule, args)
        for arg, copy in zip(args, copies, strict=True):
            np.testing.assert_array_equal(arg, copy)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 5e-324, 0.0, 1e300])
def test_odd_numbers_in_a_sample_raise_no_alarm(odd: float) -> None:
    for dtype in (np.float64, np.complex128):
        report = check_rules(lambda x: 2.0 * x, np.array([odd, 1.0], dtype))
        assert report.ok, str(report)
        assert report.row("backward against differences").held
    report = check_rules(lambda x: x + ftrans.stop_gradient(x), np.array([odd, 1.0]))
    assert not report.ok


def test_a_rule_for_traced_values_alone() -> None:
    class Detached(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2.0 + 0.0 * x.detach()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 3.0 * ct

    assert "it is 3/2 times" in str(check_rules(Detached, X))


# ---------------------------------------------------------------------------------- machinery


@pytest.mark.parametrize(
    ("func", "slope", "point"),
    [
        (np.sin, np.cos, np.array([0.1, 1.0, 3.0])),
        (np.exp, np.exp, np.array([-30.0, 1e-3, 100.0])),
        (np.log, lambda x: 1 / x, np.array([1e-200, 1.0, 1e200])),
        (lambda x: x**2, lambda x: 2 * x, np.array([1e-12, 1.0, 1e12])),
        (lambda x: np.clip(x, 0, 1), lambda x: 1.0 * (x < 1), np.array([0.9999, 1.2, 0.2])),
    ],
)
def test_slopes_at_every_scale(func: Any, slope: Any, point: np.ndarray) -> None:
    direction = 0.5 * point
    (given,) = slope_along(Beside(lambda x: [func(x)], [point]), [direction], 2e-16)
    expected = slope(point) * direction
    np.testing.assert_allclose(given.value, expected, rtol=1e-7, atol=1e-300)
    assert (np.abs(given.value - expected) <= 30 * given.error + 1e-9 * np.abs(expected)).all()
    assert not given.kinked.any()


def test_slopes_at_a_kink() -> None:
    point = np.array([0.0, 1.0])
    (given,) = slope_along(Beside(lambda x: [np.maximum(x, 0.0)], [point]), [np.ones(2)], 2e-16)
    assert given.kinked.tolist() == [True, False]
    np.testing.assert_allclose([given.low[0], given.high[0]], [0.0, 1.0], atol=1e-6)


def test_slopes_outside_of_the_domain() -> None:
    def func(x: np.ndarray) -> list[np.ndarray]:
        if (x > 1.0).any():
            raise ValueError("too large")
        return [np.arcsin(x)]

    (given,) = slope_along(Beside(func, [np.array([0.99])]), [np.array([0.99])], 2e-16)
    np.testing.assert_allclose(given.value, 0.99 / np.sqrt(1 - 0.99**2), rtol=1e-8)


def test_gradients_by_differences_against_a_closed_form() -> None:
    tried = Probe(lambda x, y: fnp.sum(fnp.sin(x) * y), (A, V))
    gx, gy = gradients_by_differences(tried, [np.float64(2.0)])
    np.testing.assert_allclose(gx, 2 * np.cos(A) * V, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gy, 2 * np.sin(A).sum(0), rtol=1e-6, atol=1e-9)


TRUE = np.random.default_rng(0).normal(size=(3, 3))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (2 * TRUE, "it is 2 times"),
        (TRUE / 3, "it is 1/3 times"),
        (-TRUE, "the sign is wrong"),
        (0 * TRUE, "it is zero throughout"),
        (TRUE.T, "swapped axes"),
        (TRUE[::-1], "axis 0 is reversed"),
        (np.roll(TRUE, 1, 1), "axis 1 is shifted by 1"),
        (np.random.default_rng(1).permutation(TRUE.ravel()).reshape(3, 3), "another order"),
        (TRUE + np.diag([0.0, 1.0, 0.0]), "wrong in 1 of 9 elements, the first at (1, 1)"),
        (np.broadcast_to(TRUE.sum(0), (3, 3)), "each element is the sum over it"),
        (np.where(TRUE > 1, np.nan, TRUE), "not finite"),
        (np.broadcast_to(TRUE, (2, 3, 3)), "a missing reduction: sum it over axes (0,)"),
        (TRUE[:, :2], "the shape is wrong"),
        (np.ones((2, 3, 4)), "the shape is wrong"),
        (TRUE + 1.5, "a constant of -1.5 is missing in each element"),
    ],
)
def test_diagnosis(given: np.ndarray, says: str) -> None:
    assert says in diagnose(given, TRUE)


def test_diagnosis_of_complex_numbers() -> None:
    true = TRUE + 1j * TRUE.T
    assert "a missing conjugate" in diagnose(true.conj(), true)
    assert "the imaginary part is missing" in diagnose(true.real, true)
    assert "a missing conjugate, and a factor" in diagnose(2j * true.conj(), true)


def test_diagnosis_by_what_is_known() -> None:
    x = np.random.default_rng(2).normal(size=(3, 3))
    assert diagnose(TRUE, TRUE * x, {"x": x}) == "a missing factor of x"
    assert diagnose(TRUE * x**2, TRUE, {"x": x}) == "a factor of x**2 too many"
    assert diagnose(TRUE, TRUE + 2 * x, {"x": x}) == "a missing term: 2 * x"
    assert diagnose(x, TRUE, {}, {"it is stale": x}) == "it is stale"
