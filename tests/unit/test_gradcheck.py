"""`gradcheck` and `gradgradcheck`: PyTorch's verdicts, written down, and what it gets wrong."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import external
from ftrans.autograd import Function, gradcheck, gradgradcheck, once_differentiable
from ftrans.errors import (
    FtransError,
    GradcheckError,
    GradcheckInputError,
    GradcheckOutputError,
    MissingRuleError,
)
from ftrans.verify.checks.jacobian import is_aligned
from ftrans.verify.differences import Beside, jacobian

X = np.linspace(0.1, 2.0, 6)
Z = X + 1j * X[::-1]
DRAW = np.random.default_rng(0)
A, B = DRAW.normal(size=(3, 4)), DRAW.normal(size=(4, 2))


def planted(forward: Any, rule: Any) -> Any:
    """Returns a function with the values of one and the derivatives of another."""
    fixed = ftrans.stop_gradient
    return lambda *xs: fixed(forward(*xs)) + rule(*xs) - fixed(rule(*xs))


def relu(x: Any) -> Any:
    return fnp.where(x > 0, x, 0.0)


# What PyTorch 2.13 says of the same functions at the same points, in slow mode, in fast mode, and
# in forward mode.
VERDICTS = [
    (fnp.sin, X, True),
    (planted(fnp.sin, lambda x: 1.01 * fnp.sin(x)), X, False),
    (planted(fnp.sin, lambda x: 1.0001 * fnp.sin(x)), X, True),
    (relu, np.array([0.0, 1.0]), False),
    (relu, np.array([1e-3, 1.0]), True),
    (fnp.abs, np.array([0.0, 1.0]), True),
    (lambda x: x.sum(), X, True),
    (lambda x: fnp.cumsum(x) ** 2, X, True),
    (lambda x: x @ B, A, True),
    (planted(lambda x: x @ B, lambda x: (x @ B)[::-1]), A, False),
    (lambda z: z * z, Z, True),
    (fnp.abs, Z, True),
    (lambda z: z.real, Z, True),
    (planted(lambda z: z * z, lambda z: fnp.conj(z) ** 2), Z, False),
    (lambda x: 0 * x, X, True),
    (fnp.floor, X + 0.03, True),
    (fnp.sin, np.float64(0.3), True),
]


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("number", range(len(VERDICTS)))
def test_verdict(number: int, fast_mode: bool) -> None:
    func, x, verdict = VERDICTS[number]
    found = gradcheck(func, x, raise_exception=False, fast_mode=fast_mode)
    assert found is verdict


@pytest.mark.parametrize("number", range(len(VERDICTS)))
def test_forward_mode_gives_the_same_verdict(number: int) -> None:
    func, x, verdict = VERDICTS[number]
    flags = {"check_forward_ad": True, "check_backward_ad": False}
    assert gradcheck(func, x, raise_exception=False, **flags) is verdict


def test_an_empty_array_has_nothing_that_is_wrong() -> None:
    """PyTorch takes its strides for overlapping memory."""
    assert gradcheck(fnp.sin, np.zeros((0, 3)), check_forward_ad=True)
    assert gradgradcheck(fnp.sin, np.zeros((0, 3)))


def test_message_of_a_mismatch() -> None:
    wrong = planted(fnp.sin, lambda x: 2.0 * fnp.sin(x))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, np.array([0.5, 0.25]))
    assert str(caught.value) == (
        "gradcheck(lambda): Jacobian mismatch for output 0 with respect to input 0,\n"
        "numerical:[[0.87758256 0.        ]\n [0.         0.96891242]]\n"
        "analytical:[[1.75516512 0.        ]\n [0.         1.93782484]]\n"
        "  first wrong for element (0,) of xs[0]\n"
        "  likely cause: a wrong factor: it is 2 times what it should be, throughout"
    )


def test_the_second_of_two_inputs_and_outputs_is_named() -> None:
    def func(x: Any, y: Any) -> Any:
        wrong = ftrans.stop_gradient(x @ y) * 1.0
        return x.sum() + y.sum(), fnp.sin(x), wrong

    with pytest.raises(GradcheckError, match="mismatch for output 2 with respect to input 0"):
        gradcheck(func, (A, B))


def test_kink_is_named() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradcheck(relu, np.array([1.0, 0.0]))
    text = (
        "the function has a kink at element (1,): its slopes are 0 on the left and 1 on the right"
    )
    assert text in str(caught.value)


def test_jump_is_named() -> None:
    with pytest.raises(GradcheckError, match=r"the function jumps at element \(1,\)"):
        gradcheck(fnp.floor, np.array([1.5, 2.0]))


def test_what_is_wrong_away_from_kinks_is_no_kink() -> None:
    wrong = planted(lambda x: fnp.exp(30 * x), lambda x: fnp.exp(31 * x))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong, np.array([0.1]))
    assert "kink" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_every_dtype_gets_a_right_verdict(dtype: str, make: Any) -> None:
    wrong = planted(fnp.sin, lambda x: 1.5 * fnp.sin(x))
    with jax.enable_x64(True):  # else `x.sum()` of a `jax.Array` in double precision warns
        x = make(np.linspace(0.2, 1.2, 5).astype(jnp.dtype(dtype)))
        assert gradcheck(fnp.sin, x, check_forward_ad=True)
        assert gradcheck(lambda x: fnp.tanh(x).sum() * x, x)
        assert not gradcheck(wrong, x, raise_exception=False)


def test_a_function_of_single_precision_alone() -> None:
    def func(x: Any) -> Any:
        return fnp.exp(x.astype("float32"))

    x = np.linspace(0.2, 1.2, 5).astype(np.float32)
    assert gradcheck(func, x)
    assert not gradcheck(planted(func, lambda x: 1.1 * func(x)), x, raise_exception=False)


def test_mixed_dtypes() -> None:
    assert gradcheck(lambda x, z: x * z, (X, Z.astype(np.complex64)), check_forward_ad=True)
    assert gradcheck(lambda x, n: x * n, (X, np.arange(6)))


def test_tolerances_that_are_given_are_taken() -> None:
    wrong = planted(fnp.sin, lambda x: 1.01 * fnp.sin(x))
    assert gradcheck(wrong, X, rtol=0.1)
    assert gradcheck(wrong, X, atol=0.1)
    assert not gradcheck(
        planted(fnp.sin, lambda x: 1.0005 * fnp.sin(x)), X, rtol=1e-5, raise_exception=False
    )
    assert not gradcheck(fnp.sin, X, eps=1.0, raise_exception=False)


def test_an_infinite_difference_is_close_to_nothing() -> None:
    jump = planted(lambda x: fnp.where(x > 0.5, 1e308, -1e308), lambda x: x)
    assert not gradcheck(jump, np.array([0.5]), raise_exception=False)


def test_numbers_that_no_step_moves() -> None:
    assert gradcheck(lambda x: 0.0 * x, np.array([1e12]))
    assert not gradcheck(lambda x: 2.0 * x, np.array([1e30]), raise_exception=False)


@pytest.mark.parametrize(
    "grad_outputs", [(X, X), X[:2], np.ones(6, int), X.astype(complex), None, 1.0]
)
def test_cotangents_must_be_like_the_outputs(grad_outputs: Any) -> None:
    given = (X, grad_outputs) if grad_outputs is None else grad_outputs
    with pytest.raises(GradcheckInputError, match="are not like the outputs of floating point"):
        gradgradcheck(fnp.sin, X, given)
    assert gradgradcheck(fnp.sin, X, X)
    assert gradgradcheck(fnp.sum, X, 1.0)


def test_errors_of_the_function_propagate() -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        gradcheck(broken, X, raise_exception=False)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="at least one input must be an array of floating point"):
        gradcheck(fnp.sin, np.arange(3), raise_exception=False)
    with pytest.raises(RuntimeError, match="dimension with stride 0"):
        gradcheck(fnp.sin, np.broadcast_to(1.0, (3,)), raise_exception=False)
    for flags in (
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ):
        with pytest.raises(AssertionError, match="the flags leave nothing to check"):
            gradcheck(fnp.sin, X, **flags)
    with pytest.raises(AssertionError):
        gradgradcheck(fnp.sin, X, check_rev_over_rev=False)
    assert issubclass(GradcheckInputError, FtransError)
    assert not issubclass(GradcheckInputError, GradcheckError)
    assert issubclass(GradcheckError, RuntimeError)


@pytest.mark.parametrize("eps", [0, 0.0, -1e-6, np.nan, np.inf, "1e-6"])
def test_a_step_that_is_none(eps: Any) -> None:
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(GradcheckInputError) as caught:
            check(fnp.sin, X, eps=eps, raise_exception=False)
        assert str(caught.value) == (
            f"{check.__name__}(sin): eps must be a number above zero, and finite.\n"
            f"  eps: {eps!r}\n"
            f"  Leave it out for 1e-6, or write eps=1e-6."
        )


def test_a_size_one_axis_of_stride_zero_is_no_overlap() -> None:
    assert gradcheck(fnp.sin, np.broadcast_to(np.array([0.5]), (1, 1)))


def test_parameters_are_those_of_pytorch() -> None:
    assert " ".join(inspect.signature(gradcheck).parameters) == (
        "func inputs eps atol rtol raise_exception nondet_tol check_undefined_grad "
        "check_grad_dtypes check_batched_grad check_batched_forward_grad check_forward_ad "
        "check_backward_ad fast_mode masked"
    )
    assert " ".join(inspect.signature(gradgradcheck).parameters) == (
        "func inputs grad_outputs eps atol rtol gen_non_contig_grad_outputs raise_exception "
        "nondet_tol check_undefined_grad check_grad_dtypes check_batched_grad "
        "check_fwd_over_rev check_rev_over_rev fast_mode masked"
    )


def test_all_flags_at_once() -> None:
    assert gradcheck(
        lambda x, y: {"product": x @ y, "sum": x.sum()},
        (A, B),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        check_grad_dtypes=True,
    )


def test_fast_mode_takes_both_parts_of_complex_inputs_for_one_number() -> None:
    def func(z: Any) -> Any:
        return 1000.0 * z.imag

    def off(by: float) -> Any:
        return planted(func, lambda z: 1000.0 * z.imag + by * z.real)

    for flags in ({}, {"fast_mode": True}):
        # within rtol of 1000j, however small the real part is
        assert gradcheck(off(0.3), Z, **flags)
        assert not gradcheck(off(3.0), Z, raise_exception=False, **flags)
    # and the tolerance is atol times the sums over both parts
    assert gradcheck(off(0.015), Z[:1], fast_mode=True, atol=0.01, rtol=0.0)
    assert not gradcheck(
        off(0.025), Z[:1], fast_mode=True, atol=0.01, rtol=0.0, raise_exception=False
    )
    with pytest.raises(GradcheckError, match=r"numerical:\(.*j\)\nanalytical:\(.*j\)"):
        gradcheck(off(3.0), Z, fast_mode=True)


def test_functions_that_branch_on_values() -> None:
    """They cannot be batched: their points are evaluated one by one."""
    assert gradcheck(lambda x: x * x if x.sum() > 0 else -x, X)


def test_pytrees_and_static_arguments() -> None:
    def func(params: Any, power: int, name: str) -> Any:
        return (params["w"] ** power).sum() * params["b"]

    assert gradcheck(func, ({"w": X, "b": np.float64(2.0)}, 3, "name"))


def larger(x: Any) -> Any:
    return fnp.concat([x, x]) if (x >= 1).all() else x


def narrower(x: Any) -> Any:
    return x.astype(np.float32) if (x >= 1).all() else x


def more(x: Any) -> Any:
    return (x, x) if (x >= 1).all() else x


def fewer(x: Any) -> Any:
    return x if (x >= 1).all() else (x, x)


def no_numbers(x: Any) -> Any:
    return larger(x).astype(np.int64)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("func", "what"),
    [
        (larger, "outputs with the same shape"),
        (narrower, "outputs with the same dtype"),
        (more, "the same number of outputs"),
        (fewer, "the same number of outputs"),
        (no_numbers, "outputs with the same shape"),
    ],
)
def test_types_that_depend_on_values(func: Any, what: str, size: int, fast_mode: bool) -> None:
    x = np.ones(size)
    checks = [gradcheck] if func is no_numbers else [gradcheck, gradgradcheck]
    for check in checks:
        with pytest.raises(AssertionError, match=f"to return {what} when inputs are perturbed"):
            check(func, x, fast_mode=fast_mode)
        assert check(func, x, fast_mode=fast_mode, raise_exception=False) is False
    with pytest.raises(GradcheckError, match="when inputs are perturbed"):
        gradcheck(lambda z: func(z.real), x + 0j, fast_mode=fast_mode)
    assert gradcheck(func, x + 0.5, fast_mode=fast_mode)
    assert issubclass(GradcheckOutputError, GradcheckError)


def test_types_of_what_has_no_derivative_may_depend_on_values() -> None:
    def found(x: Any) -> Any:
        return x * x, np.zeros(3 if (x >= 1).all() else 2, int)

    for flags in ({}, {"fast_mode": True}, {"check_forward_ad": True}):
        assert gradcheck(found, np.ones(2), **flags)
    assert gradgradcheck(found, np.ones(2))
    for size in (1, 2, 100):
        assert gradgradcheck(no_numbers, np.ones(size))


# -------------------------------------------------------------------------------- second order


def test_gradgradcheck() -> None:
    assert gradgradcheck(fnp.sin, X, check_fwd_over_rev=True)
    assert gradgradcheck(lambda x, y: (x @ y, fnp.exp(x)), (A, B), check_fwd_over_rev=True)
    assert gradgradcheck(lambda z: fnp.exp(z) * z, Z, check_fwd_over_rev=True)
    assert gradgradcheck(fnp.sin, X, np.ones(6), fast_mode=True)
    assert gradgradcheck(fnp.sin, X, gen_non_contig_grad_outputs=True, check_batched_grad=True)


def test_gradgradcheck_finds_a_first_derivative_that_is_a_constant() -> None:
    def func(x: Any) -> Any:
        return (
            ftrans.stop_gradient(fnp.sin(x) - fnp.cos(x) * x) + ftrans.stop_gradient(fnp.cos(x)) * x
        )

    assert gradcheck(func, X)
    for flags in ({}, {"check_fwd_over_rev": True}, {"fast_mode": True}):
        assert not gradgradcheck(func, X, raise_exception=False, **flags)
    with pytest.raises(GradcheckError, match=r"gradgradcheck.*mismatch for output 0"):
        gradgradcheck(func, X)


# ----------------------------------------------------------------------------------- machinery


def test_differences_against_jax() -> None:
    def func(x: Any) -> Any:
        return [fnp.tanh(x @ B), fnp.exp(x).sum()]

    with jax.enable_x64(True):
        expected = jax.jacobian(lambda x: (jnp.tanh(x @ B), jnp.exp(x).sum()))(A)
    for batched in (True, False):
        beside = Beside(func, [A])
        beside.batched = batched
        found = jacobian(beside, 0, 1e-6)
        for matrix, truth in zip(found, expected, strict=True):
            wanted = np.asarray(truth).reshape(-1, A.size).T
            np.testing.assert_allclose(matrix, wanted, rtol=1e-6, atol=1e-8)


def test_what_is_proven_elementwise() -> None:
    x = np.ones((2, 3))

    def proven(func: Any) -> bool:
        return is_aligned(ftrans.trace(func)(x), 0)

    assert proven(fnp.sin)
    assert proven(lambda x: fnp.tanh(x) * x + A[:2, :3])
    assert proven(lambda x: fnp.where(x > 0, x, x**2))
    assert not proven(lambda x: x.sum())
    assert not proven(lambda x: x - x.mean())
    assert not proven(lambda x: x[::-1])
    assert not proven(lambda x: x[0] + x)
    assert not proven(lambda x: x.reshape(3, 2).T)
    assert not proven(lambda x: fnp.cumsum(x))


@pytest.mark.parametrize("size", [63, 64, 100])
def test_a_wrong_elementwise_rule_is_found_at_every_size(size: int) -> None:
    x = np.linspace(0.1, 1.0, size)
    assert gradcheck(fnp.sin, x)
    wrong = planted(fnp.sin, lambda x: fnp.where(x == x[size // 2], 2.0, 1.0) * fnp.sin(x))
    assert not gradcheck(wrong, x, raise_exception=False)


# ------------------------------------------------------------------------- what is PyTorch's O6, O7


class Noisy(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x
        return np.sin(np.asarray(x))

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        noise = 1e-6 * np.random.default_rng().uniform(size=np.shape(ct))
        return (np.cos(np.asarray(ctx.x)) + noise) * np.asarray(ct)


class Undefined(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2.0, x * 3.0

    @staticmethod
    def backward(ctx: Any, one: Any, other: Any) -> Any:
        return one * 2.0 + other * 3.0


class Opaque(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x
        return np.sin(np.asarray(x))

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return np.cos(np.asarray(ctx.x)) * np.asarray(ct)


class Affine(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return 2.0 * ct + 1e-6


class BatchedWrong(Function):
    """Is right but for the batches of what its backward calls."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return fnp.cumsum(x)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return fnp.flip(Cumsum.apply(fnp.flip(ct)))


class Cumsum(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return fnp.cumsum(x)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return fnp.cumsum(x, axis=0), in_dims[0]


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ct: Any) -> Any:
        return 2.0 * ctx.x * ct


def test_two_runs_of_backward_must_agree() -> None:
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(Noisy.apply, X)
    assert gradcheck(Noisy.apply, X, nondet_tol=1e-3)
    assert not gradcheck(Noisy.apply, X, fast_mode=True, raise_exception=False)


class TracedNoise(Function):
    """Is random where backward is traced: in one trace, the noise is a constant."""

    @staticmethod
    def forward(ctx: Any, x: Any, size: float) -> Any:
        ctx.size = size
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * (1.0 + ctx.size * DRAW.uniform(size=ct.shape)), None


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("size", [1e-4, 1e-12])
def test_two_runs_of_a_traced_backward_must_agree(size: float, fast_mode: bool) -> None:
    def func(x: Any) -> Any:
        return TracedNoise.apply(x, size)

    for check in (gradcheck, gradgradcheck):
        with pytest.raises(GradcheckError, match="Backward is not reentrant"):
            check(func, X, fast_mode=fast_mode)
        assert not check(func, X, fast_mode=fast_mode, raise_exception=False)
    assert gradcheck(func, X, fast_mode=fast_mode, nondet_tol=2 * size)


def test_what_backward_changes_for_its_next_run_is_found() -> None:
    class Worn(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return np.asarray(x) * 1.0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            runs.append(1)
            return np.asarray(ct) * (1.0 + 1e-7 * len(runs))

    runs: list[int] = []
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(Worn.apply, X)


def test_what_is_not_random_is_reentrant_on_every_road() -> None:
    def steps(x: Any) -> Any:
        for _ in range(30):
            x = fnp.tanh(x @ A @ A.T / 7) + fnp.exp(-x)
        return x

    for _ in range(3):
        assert gradcheck(steps, np.linspace(0.1, 1.0, 12).reshape(4, 3))
        assert gradcheck(lambda x: Opaque.apply(steps(x)), A[:, :3].copy())


def test_outputs_that_are_not_used() -> None:
    with pytest.raises(GradcheckError, match="to handle undefined output grads"):
        gradcheck(Undefined.apply, X)
    assert gradcheck(Undefined.apply, X, check_undefined_grad=False)


def raised(x: Any, ct: Any) -> Any:
    if ct is None:
        raise RuntimeError("ct is undefined")
    return ct


def opaque_raised(x: Any, ct: Any) -> Any:
    return np.asarray(ct).reshape(x.shape)


def unasked(x: Any, ct: Any) -> Any:
    return x if ct is None else ct


def opaque_unasked(x: Any, ct: Any) -> Any:
    return np.asarray(x) if ct is None else np.asarray(ct)


def undefined_for_none(x: Any, ct: Any) -> Any:
    return None if ct is None else ct


def zero_for_none(x: Any, ct: Any) -> Any:
    return 0.0 * x if ct is None else ct


def opaque_zero_for_none(x: Any, ct: Any) -> Any:
    return np.zeros(x.shape) if ct is None else np.asarray(ct)


def identity(rule: Any, materialize: bool = False, opaque: bool = False) -> Any:
    """Returns the identity, as a rule of one output that asks for None."""

    class Identity(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(materialize)
            return np.array(np.asarray(x)) if opaque else x * 1.0

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return rule(x, ct)

    return Identity.apply


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (raised, "backward function to handle undefined output grads"),
        (opaque_raised, "backward function to handle undefined output grads"),
        (unasked, "all input grads to be undefined or zero"),
        (opaque_unasked, "all input grads to be undefined or zero"),
        (undefined_for_none, None),
        (zero_for_none, None),
        (opaque_zero_for_none, None),
    ],
)
def test_the_only_output_is_not_used(rule: Any, text: str | None, opaque: bool) -> None:
    func = identity(rule, opaque=opaque)
    for called in (func, lambda x: fnp.sin(func(2.0 * x)).sum()):
        for fast_mode in (False, True):
            for _ in range(2):  # what a call is known by must not hide it
                assert gradcheck(called, X, check_undefined_grad=False, fast_mode=fast_mode)
                if text is None:
                    assert gradcheck(called, X, fast_mode=fast_mode)
                    continue
                with pytest.raises(GradcheckError, match=f"Expected {text}"):
                    gradcheck(called, X, fast_mode=fast_mode)
                assert not gradcheck(called, X, fast_mode=fast_mode, raise_exception=False)
    assert gradcheck(identity(rule, True, opaque), X), "it gets zeros, not None"


def test_no_output_is_used() -> None:
    class Either(Function):
        """Treats each cotangent as zeros, but not both."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 1.0, x * 1.0

        @staticmethod
        def backward(ctx: Any, one: Any, other: Any) -> Any:
            if one is None or other is None:
                return (one if other is None else other) * 1.0
            return one + other

    with pytest.raises(GradcheckError, match=r"Either\.backward got None for each of them"):
        gradcheck(Either.apply, X)


def test_rules_inside_of_rules_are_their_own_affair() -> None:
    """PyTorch calls no backward of what the forward or the backward of another calls."""
    inner = identity(raised)

    class Outer(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return inner(x)

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return inner(ct)

    assert gradcheck(Outer.apply, X)
    assert gradgradcheck(inner, X)


def test_backward_is_multiplied_by_the_cotangent() -> None:
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(Affine.apply, X)


def test_batched_gradients() -> None:
    assert gradcheck(BatchedWrong.apply, X)
    with pytest.raises(GradcheckError, match="batched gradient 0 differs from single ones"):
        gradcheck(BatchedWrong.apply, X, check_batched_grad=True)


def test_what_cannot_be_differentiated_twice_says_so() -> None:
    assert gradcheck(Once.apply, X)
    with pytest.raises(MissingRuleError, match="once_differentiable"):
        gradgradcheck(Once.apply, X, raise_exception=False)


def test_forward_mode_alone_needs_no_reverse_mode() -> None:
    host_cos = external(lambda x: np.cos(x), lambda x: x)
    sine = external(
        lambda x: np.sin(x), lambda x: x, jvp=lambda p, t: (sine(*p), host_cos(p[0]) * t[0])
    )
    assert gradcheck(sine, X, check_forward_ad=True, check_backward_ad=False)
    assert gradcheck(sine, X, check_forward_ad=True, check_backward_ad=False, fast_mode=True)


def test_opaque_functions() -> None:
    assert gradcheck(Opaque.apply, X)
    assert gradcheck(Opaque.apply, np.linspace(0.1, 1.0, 100), fast_mode=True)
    with pytest.raises(MissingRuleError):
        gradgradcheck(Opaque.apply, X)
