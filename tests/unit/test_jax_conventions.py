"""What programs of JAX's rely on; what is expected is what JAX returns."""

from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.stats
import numpy as np
import pytest
from scipy import stats

import ftrans
import ftrans.numpy as fnp
from ftrans import errors, func, scipy
from tests.helpers import assert_close

FLOAT0 = jax.dtypes.float0


@pytest.mark.parametrize(
    "call",
    [
        lambda: func.vjp(lambda x: x * 2, 1.0)[1](1j),
        lambda: func.jvp(lambda x: x * 2, (1.0,), (1j,)),
        lambda: func.linearize(lambda x: x * 2, 1.0)[1](1j),
        lambda: func.linear_transpose(lambda x: x, 1.0)(1j),
    ],
)
def test_complex_numbers_are_no_tangents_of_real_ones(call: Callable[[], Any]) -> None:
    with pytest.raises(errors.DTypeError, match=r"c128\[\]"):
        call()


def test_nothing_is_the_cotangent_of_an_integer() -> None:
    _, pullback = func.vjp(lambda n, x: (n + 1, x * 2), np.array(2), 1.0)
    of_integer, of_float = pullback((np.zeros((), FLOAT0), 1.0))
    assert of_integer is None
    assert of_float == 2.0


def test_a_value_that_was_kept_is_named_by_jit() -> None:
    kept: list[Any] = []
    ftrans.jit(lambda x: (kept.append(x), x)[1])(0.0)
    with pytest.raises(errors.LeakedTracerError, match="after the function had returned"):
        ftrans.jit(lambda x: x)(kept[0])


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
def test_the_operator_of_a_solve_alone_is_mapped(wrap: Callable[..., Any]) -> None:
    def solved(a: Any, b: Any) -> Any:
        divide = lambda f, y: y / a  # noqa: E731
        return ftrans.custom_linear_solve(lambda y: a * y, b, divide, divide)

    a, b = np.array([4.0, 5.0]), np.float64(2.0)
    for transform, expected in (
        (func.grad(solved), -b / a**2),
        (func.grad(solved, 1), 1 / a),
        (func.hessian(solved), 2 * b / a**3),
    ):
        assert_close(wrap(func.vmap(transform, in_dims=(0, None)))(a, b), expected)
    matrices = np.array([[[3.0, 1.0], [0.0, 2.0]], [[2.0, 0.5], [1.0, 4.0]]])

    def total(m: Any, b: Any) -> Any:
        by = lambda f, y: fnp.linalg.solve(m, y)  # noqa: E731
        back = lambda f, y: fnp.linalg.solve(m.T, y)  # noqa: E731
        return ftrans.custom_linear_solve(lambda y: m @ y, b, by, back).sum()

    ones = np.ones(2)
    found = wrap(func.vmap(func.grad(total, 1), in_dims=(0, None)))(matrices, ones)
    assert_close(found, np.stack([np.linalg.inv(m).T @ ones for m in matrices]))


def test_a_root_whose_solver_returns_something_else_is_named() -> None:
    def root(x: Any) -> Any:
        return ftrans.custom_root(lambda y: x - y, 0.0, lambda f, x: x, lambda f, x: (x, x))

    with pytest.raises(errors.RuleError, match="does not have the structure of the unknown"):
        func.jvp(root, (0.0,), (0.0,))


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit, func.vmap])
def test_the_number_of_a_step_takes_the_dtype_that_it_meets(wrap: Callable[..., Any]) -> None:
    def hashed(x: Any) -> Any:
        return ftrans.fori_loop(0, 3, lambda i, c: c * 31 + i, x)

    for dtype, expected in (("uint32", 208570), ("uint8", 208570 % 256), ("float32", 208570.0)):
        found = np.ravel(wrap(hashed)(np.full((1,) * (wrap is func.vmap), 7, dtype)))[0]
        assert (found.dtype, found) == (np.dtype(dtype), expected)


def test_a_branch_takes_its_operand_by_name() -> None:
    assert ftrans.cond(True, lambda x: x + 1, lambda x: x - 1, operand=3.0) == 4.0


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit])
def test_what_a_fill_value_says(wrap: Callable[..., Any]) -> None:
    take = wrap(lambda x, i: fnp.take(x, i, fill_value=-1.0))
    assert_close(take(np.arange(5.0), np.array([0, 9])), [0.0, -1.0])


def test_transforms_take_axes_of_any_kind() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert_close(fnp.fft.fftn(x, axes=[0, 1]), np.fft.fftn(x))
    assert_close(fnp.fft.fft(x, axis=np.int64(0)), np.fft.fft(x, axis=0))
    assert_close(fnp.fft.fftn(x, s=[2, 2]), np.fft.fftn(x, s=[2, 2], axes=(0, 1)))
    assert_close(ftrans.jit(lambda x: fnp.fft.fft(x, np.int64(4)))(x), np.fft.fft(x, 4))


def test_weights_of_samples_in_rows() -> None:
    x = np.arange(6.0).reshape(3, 2) ** 2
    options = {"rowvar": False, "fweights": np.array([1, 2, 3])}
    assert_close(fnp.cov(x, **options), np.cov(x, **options))


def test_results_that_a_signature_does_not_have_are_named() -> None:
    function = fnp.vectorize(lambda *xs: xs, signature="(),()->(),(),()")
    with pytest.raises(errors.StructureError, match="has 3 results"):
        function(1.0, 2.0)


def test_masks_are_booleans_and_beginnings_one_number() -> None:
    x = np.arange(6.0).reshape(2, 3)
    with pytest.raises(errors.DTypeError, match="takes booleans"):
        fnp.sum(x, where=np.array([0.5, 0.0, 2.0]))
    with pytest.raises(errors.ShapeError, match="one number"):
        fnp.sum(x, axis=-1, initial=np.zeros((4, 1)))
    assert_close(fnp.max(x, axis=1, initial=np.float64(4), where=[True, False, True]), [4.0, 5.0])


@pytest.mark.parametrize("wrap", [lambda f: f, ftrans.jit, func.vmap])
def test_zeros_made_on_the_way_are_no_constants(wrap: Callable[..., Any]) -> None:
    def back(ct: Any) -> Any:
        def padded(x: Any) -> Any:
            return fnp.concatenate([fnp.zeros_like(x[:1]), x]) + fnp.zeros(3)

        return func.linear_transpose(padded, np.zeros(2))(ct)[0]

    ct = np.array([1.0, 2.0, 3.0])
    assert_close(np.ravel(wrap(back)(ct[None] if wrap is func.vmap else ct)), [2.0, 3.0])
    with pytest.raises(errors.TransposeError, match="affine"):
        ftrans.jit(lambda ct: func.linear_transpose(lambda x: x + fnp.ones(3), ct)(ct))(ct)


def test_elements_are_changed_by_a_function() -> None:
    def changed(x: Any) -> Any:
        x = x.at[1].apply(fnp.sin).at[2].power(3)
        return x.at[0].set(5.0, indices_are_sorted=True, unique_indices=True)

    x = np.arange(4.0)
    assert_close(ftrans.jit(changed)(x), [5.0, np.sin(1.0), 8.0, 3.0])
    slopes = func.grad(lambda x: changed(x).sum())(x)
    assert_close(slopes, [0.0, np.cos(1.0), 12.0, 1.0])


@pytest.mark.parametrize(
    "shaped",
    [
        lambda x: fnp.broadcast_to(x, (3,)),
        lambda x: x.reshape(1),
        lambda x: x[None],
        lambda x: fnp.expand_dims(x, 0),
        lambda x: fnp.squeeze(x[None], 0),
        lambda x: 2 * x[None, None].T[0],
    ],
)
def test_a_number_of_another_shape_widens_nothing(shaped: Callable[[Any], Any]) -> None:
    ones = np.ones(3, "float32")
    scaled = lambda rate: ones * shaped(rate)  # noqa: E731
    assert ftrans.jit(scaled)(0.5).dtype == np.float32
    assert func.jacfwd(scaled)(0.5).dtype == np.float32
    assert ftrans.jit(scaled)(np.float64(0.5)).dtype == np.float64  # which is no number of Python's


def test_a_key_is_no_array_of_numbers() -> None:
    for function in (fnp.sum, fnp.exp):
        with pytest.raises(errors.DTypeError, match="key_data"):
            function(jax.random.key(0))


def test_shapes_are_known_without_a_run() -> None:
    ran: list[int] = []

    def f(params: Any, x: Any, *, scale: float) -> Any:
        ran.append(1)
        return {"out": fnp.tanh(x @ params["w"]) * scale, "loss": x.sum()}

    given = {"w": jax.ShapeDtypeStruct((3, 2), "float32")}
    found = ftrans.eval_shape(f, given, np.ones((4, 3), "float32"), scale=2.0)
    assert found == {
        "out": jax.ShapeDtypeStruct((4, 2), np.dtype("float32")),
        "loss": jax.ShapeDtypeStruct((), np.dtype("float32")),
    }
    assert ran == [1]


def test_classes_of_scipys_names_say_where_they_compute() -> None:
    with pytest.raises(AttributeError, match="from_jax"):
        _ = scipy.stats.gaussian_kde
    points = np.linspace(-1.0, 1.0, 7)
    density = ftrans.from_jax(lambda d, x: jax.scipy.stats.gaussian_kde(d).logpdf(x)[0])
    expected = stats.gaussian_kde(points).logpdf(np.array([0.1]))
    assert_close(density(points, np.array([0.1])), expected[0], 1e-10)
    slope = func.grad(density, 1)(points, np.array([0.1]))
    step = np.array([1e-5])
    near = [stats.gaussian_kde(points).logpdf(0.1 + d)[0] for d in (step, -step)]
    assert_close(slope[0], (near[0] - near[1]) / 2e-5, 1e-6)
