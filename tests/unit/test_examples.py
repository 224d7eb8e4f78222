"""The examples: interpreters against what can be counted, sampled or said by hand; the digits."""

import inspect
import itertools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import ArrayType, func
from ftrans.errors import MissingRuleError
from ftrans.primitives import registry
from tests.helpers import assert_close
from tests.oracle import jaxpr

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path += [str(EXAMPLES), str(EXAMPLES / "interpreters")]

import interval_rules  # noqa: E402, F401
from flops import Flops  # noqa: E402
from intervals import Interval, Intervals  # noqa: E402
from nan_finder import find_nans  # noqa: E402

INTERPRETERS = ["intervals.py", "interval_rules.py", "flops.py", "nan_finder.py"]


@pytest.mark.parametrize("name", INTERPRETERS)
def test_interpreters_are_short(name):
    assert len((EXAMPLES / "interpreters" / name).read_text().splitlines()) <= 40


# -------------------------------------------------------------------------------------- intervals


def scanned(x):
    last, all_ = ftrans.scan(lambda c, e: (0.5 * c + fnp.sin(e * c), c * e), x[0], x)
    return last + all_.sum()


def branched(x):
    return ftrans.cond(x.sum() > 0.5, lambda x: (x * x).sum(), lambda x: 1.0 - x[1], x)


def relu(x):
    weights = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
    return fnp.maximum(weights @ fnp.maximum(weights @ x, 0.0), 0.1 * x).sum()


FUNCTIONS = {
    "waves": lambda x: (fnp.sin(3 * x) * fnp.cos(x - 1)).sum(),
    "powers": lambda x: (x**3 - 2 * x**2 + abs(x) - x**-2).sum(),
    "quotient": lambda x: (fnp.exp(x) / (1 + x * x)).sum(),
    "matrices": lambda x: fnp.tanh(fnp.outer(x, x) @ x).sum(),
    "softmax": lambda x: fnp.log_softmax(2 * x)[1],
    "where": lambda x: fnp.where(x > x.sum(), x, fnp.sqrt(x * x + 1)).sum(),
    "relu": relu,
    "scan": scanned,
    "cond": branched,
    "while": lambda x: ftrans.while_loop(lambda v: v > 0.3, fnp.sin, x.sum(), max_steps=5),
    "grad of scan": lambda x: func.grad(scanned)(x).sum(),
    "grad of cond": lambda x: func.grad(branched)(x).sum(),
    "grad of relu": lambda x: func.grad(relu)(x),
    "hessian": lambda x: func.hessian(FUNCTIONS["quotient"])(x),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_sampled_values_lie_within_the_bounds(function):
    rng = np.random.default_rng(0)
    for radius in (0.0, 0.01, 0.3, 2.0):
        middle = rng.normal(size=3)
        found = Intervals()(function)(Interval(middle - radius, middle + radius))
        points = rng.uniform(middle - radius, middle + radius, size=(100, 3))
        values = func.vmap(function)(points)
        assert np.all(values >= found.lower - 1e-9), (radius, found)
        assert np.all(values <= found.upper + 1e-9), (radius, found)


RULED = [n for n, p in registry.items() if not p.is_higher_order and Intervals()._find(p)]


@pytest.mark.parametrize("name", RULED)
def test_rules_of_intervals_are_sound(name):
    """On boxes about the samples of each primitive, corners and inner points are tried."""
    primitive = registry[name]
    rng = np.random.default_rng(0)
    for operands, params, _ in primitive.samples():
        if any(np.iscomplexobj(x) for x in operands) or params.get("dtype") == np.complex128:
            continue
        if "f" not in primitive.kinds:
            operands = [x > 0 for x in operands]
        boxes = [_box(x, rng) for x in operands]
        types = [ArrayType(np.shape(x), np.asarray(x).dtype) for x in operands]
        run = lambda *xs, params=params: primitive(*xs, **params)  # noqa: E731
        found = Intervals()(run)(*boxes) if boxes else Intervals()(run)()
        for _ in range(50):
            point = [_inside(box, rng, t) for box, t in zip(boxes, types, strict=True)]
            with np.errstate(all="ignore"):
                value = np.asarray(run(*point), dtype=float)
            valid = ~np.isnan(value)
            slack = 1e-6 * (1 + np.abs(np.where(np.isfinite(value), value, 0)))
            assert np.all((value >= found.lower - slack)[valid]), (name, params, boxes, point)
            assert np.all((value <= found.upper + slack)[valid]), (name, params, boxes, point)


def _box(x, rng):
    x = np.asarray(x)
    if x.dtype == bool:
        return Interval(
            x & rng.choice([False, True], x.shape), x | rng.choice([False, True], x.shape)
        )
    if x.dtype.kind in "iu":  # perhaps a place, which must be known
        return Interval(x, x)
    radius = rng.choice([0.0, 0.1, 2.0], x.shape).astype(x.dtype)
    return Interval(np.asarray(x - radius), np.asarray(x + radius))


def _inside(box, rng, t):
    if t.dtype.kind in "biu":
        return np.where(rng.random(t.shape) < 0.5, box.lower, box.upper).astype(t.dtype)
    fraction = rng.choice([0.0, 1.0, rng.random()], t.shape)
    with np.errstate(all="ignore"):
        inner = box.lower + fraction * (box.upper - box.lower)
    inner = np.where(fraction == 0, box.lower, np.where(fraction == 1, box.upper, inner))
    return inner.astype(t.dtype)


TIGHT = {
    "monotone": (lambda x: fnp.exp(-x), (0.0, 1.0), (np.exp(-1.0), 1.0)),
    "over a peak": (fnp.sin, (1.0, 2.0), (np.sin(1.0), 1.0)),
    "over a trough": (fnp.cos, (2.0, 4.0), (-1.0, np.cos(2.0))),
    "between turns": (fnp.sin, (-1.0, 1.0), (np.sin(-1.0), np.sin(1.0))),
    "a whole period": (fnp.sin, (-100.0, 100.0), (-1.0, 1.0)),
    "even power": (lambda x: x**2, (-1.0, 2.0), (0.0, 4.0)),
    "odd power": (lambda x: x**3, (-1.0, 2.0), (-1.0, 8.0)),
    "pole": (lambda x: 1 / x, (-1.0, 2.0), (-np.inf, np.inf)),
    "reciprocal": (lambda x: 1 / x, (1.0, 2.0), (0.5, 1.0)),
    "product": (lambda x: x * (x - 3.0), (1.0, 2.0), (-4.0, -1.0)),
    "outside the domain": (lambda x: fnp.log(x), (-1.0, 1.0), (-np.inf, np.inf)),
    "decided": (lambda x: fnp.where(x > 0, 1.0, 2.0), (1.0, 2.0), (1.0, 1.0)),
    "undecided": (lambda x: fnp.where(x > 0, 1.0, 2.0), (-1.0, 2.0), (1.0, 2.0)),
    "perhaps equal": (lambda x: fnp.equal(x, 2.0) * 1.0, (1.0, 2.0), (0.0, 1.0)),
    "equal to some": (lambda x: fnp.equal(np.float64(2.0), x) * 1.0, (1.0, 2.0), (0.0, 1.0)),
    "equal": (lambda x: fnp.equal(np.float64(2.0), x) * 1.0, (2.0, 2.0), (1.0, 1.0)),
    "not equal": (lambda x: fnp.equal(x, 2.5) * 1.0, (1.0, 2.0), (0.0, 0.0)),
    "loop": (
        lambda x: ftrans.while_loop(lambda v: v > 0.1, fnp.sin, x),
        (-0.5, 8.0),
        (-1.0, 8.0),
    ),
}


@pytest.mark.parametrize(("function", "given", "expected"), TIGHT.values(), ids=TIGHT)
def test_bounds_known_by_hand(function, given, expected):
    found = Intervals()(function)(Interval(*map(np.float64, given)))
    assert_close(np.array(found), np.array(expected))


def test_a_known_condition_runs_one_branch():
    bounds = Interval(np.full(3, 0.5), np.full(3, 1.0))
    assert_close(np.array(Intervals()(branched)(bounds)), np.array([0.75, 3.0]))


def test_products_with_constant_matrices_are_tight():
    weights = np.random.default_rng(0).normal(size=(4, 3))
    lower, upper = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 3.0])
    corners = [weights @ np.array(c) for c in itertools.product(*zip(lower, upper, strict=True))]
    found = Intervals()(lambda x: weights @ x)(Interval(lower, upper))
    assert_close(found.lower, np.min(corners, 0))
    assert_close(found.upper, np.max(corners, 0))


def test_places_must_be_known():
    x = Interval(np.zeros(3), np.ones(3))
    found = Intervals()(lambda x, i: x[i])(x, np.array([2, 0]))
    assert found.shape == (2,)
    with pytest.raises(MissingRuleError, match="no rule for gather"):
        Intervals()(lambda x, i: x[i])(x, Interval(np.array([0]), np.array([2])))


def test_bounds_are_differentiated_and_batched():
    def width(radius, x):
        found = Intervals()(lambda x: fnp.exp(x) * x)(Interval(x - radius, x + radius))
        return found.upper - found.lower

    def expected(radius, x):
        return jnp.exp(x + radius) * (x + radius) - jnp.exp(x - radius) * (x - radius)

    x = np.array([0.5, 1.0, 2.0], "f4")
    found = func.vmap(func.grad(width), in_dims=(None, 0))(np.float32(0.1), x)
    assert_close(found, jax.vmap(jax.grad(expected), (None, 0))(0.1, x), 1e-5)


# -------------------------------------------------------------------------------------- the costs


def f32(*shape):
    return ArrayType(shape, "float32")


def total(function, *args):
    costs = Flops()
    costs(function)(*args)
    return costs.flops.total()


def test_operations_known_by_hand():
    assert total(lambda a, b: a @ b, f32(3, 4), f32(4, 5)) == 2 * 3 * 4 * 5
    assert total(lambda x: fnp.sin(x) * x, f32(7, 3)) == 2 * 21
    assert total(lambda x: x.reshape(3, 7).T, f32(7, 3)) == 0


def test_operations_of_a_gradient():
    # forward, and one product of the same size for each operand
    loss = lambda a, b: fnp.sin(a @ b).sum()  # noqa: E731
    gradient = total(func.grad(loss, (0, 1)), f32(30, 40), f32(40, 50))
    products = 3 * 2 * 30 * 40 * 50
    assert products <= gradient < 1.05 * products


def test_operations_of_loops_and_branches():
    body = lambda c, e: (fnp.sin(c) * e, None)  # noqa: E731
    assert total(lambda x: ftrans.scan(body, x[0], x)[0], f32(9, 5)) == 9 * 2 * 5
    turn = lambda x: lambda c, _: (ftrans.scan(body, c, x)[0], None)  # noqa: E731
    nested = lambda x: ftrans.scan(turn(x), x[0], None, 4)[0]  # noqa: E731
    assert total(nested, f32(9, 5)) == 4 * 9 * 2 * 5
    dear, cheap = lambda x: fnp.sin(fnp.sin(x)), fnp.sin
    assert total(lambda p, x: ftrans.cond(p, dear, cheap, x), ArrayType((), "bool"), f32(5)) == 11
    assert total(
        lambda x: ftrans.while_loop(lambda x: x < 9.0, lambda x: x * 2.0, x, max_steps=6), f32()
    ) == 6 * (1 + 1)


def test_operations_of_the_gradient_of_a_loop():
    loss = lambda x: ftrans.scan(lambda c, e: (fnp.sin(c) * e, None), x[0], x)[0].sum()  # noqa: E731
    one, two = (total(func.grad(loss), f32(n, 100)) for n in (10, 20))
    assert one > 2 * 10 * 100
    assert 1.9 * one < two < 2.1 * one


def test_costs_are_given_by_line():
    first = inspect.currentframe().f_lineno + 2
    costs = Flops()
    costs(lambda a: fnp.exp(a).sum() * 1.0
          + (a @ a).sum())(f32(10, 10))  # fmt: skip
    lines = {line.split(" ")[0]: n for line, n in costs.flops.items()}
    assert lines[f"{__file__}:{first + 1}"] >= 2000
    assert costs.nbytes.total() > 4 * 100 * 3


# --------------------------------------------------------------------------------------- the NaNs


def line_of(text):
    """Returns `file:line` of the one line of this file that ends in the comment `text`."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"{__file__}:{number} "


def norm(x):
    squares = x * x  # the squares
    return fnp.sqrt(squares.sum())  # the root


def roots(x):
    def step(carry, element):
        carry = carry * element
        root = fnp.sqrt(carry)  # in the loop
        return carry, root

    return ftrans.scan(step, 1.0, x)[1].sum()


def safe(x):
    return fnp.where(x > 0, fnp.sqrt(x), 0.0).sum()  # not so safe


def branching(x):
    return ftrans.cond(
        x > 0,
        lambda x: x,
        lambda x: fnp.sqrt(x),  # in the branch
        x,
    )


def test_nothing_is_found_where_there_is_nothing():
    assert find_nans(norm)(np.zeros(3)) == ""
    assert find_nans(func.grad(norm))(np.ones(3)) == ""
    assert find_nans(roots)(np.ones(3)) == ""
    assert find_nans(branching)(1.0) == ""
    assert find_nans(lambda x: 1 / x)(0.0) == ""
    assert find_nans(lambda x: x * 2)(np.array([np.nan])) == ""


def test_the_lines_of_a_derivative():
    assert np.isnan(func.grad(norm)(np.zeros(3))).all()
    infinity, nan = find_nans(func.grad(norm))(np.zeros(3)).splitlines()
    assert infinity.startswith(line_of("the root"))
    assert "makes infinity in `return fnp.sqrt(squares.sum())" in infinity
    # infinity times zero, a factor that comes from each of the two lines
    assert nan.startswith((line_of("the root"), line_of("the squares")))
    assert "(norm): mul makes NaN" in nan


def test_the_line_in_a_loop():
    x = np.array([2.0, -1.0, 3.0])
    for function in (roots, func.grad(roots), func.hessian(roots)):
        first = find_nans(function)(x).splitlines()[0]
        assert first.startswith(line_of("in the loop")), first
        assert "sqrt makes NaN in `root = fnp.sqrt(carry)" in first


def test_the_line_in_a_branch():
    for function in (branching, func.grad(branching)):
        assert find_nans(function)(-1.0).startswith(line_of("in the branch"))


def test_the_line_of_what_where_leaves_out():
    x = np.array([1.0, -1.0])
    assert not np.isnan(safe(x))
    assert find_nans(func.grad(safe))(x).startswith(line_of("not so safe"))


def test_nans_are_found_while_something_traces():
    def loss(x):
        found.append(find_nans(lambda x: fnp.sqrt(x).sum())(-x))
        return norm(x)

    found = []
    assert_close(func.grad(loss)(np.array([3.0, 4.0])), np.array([0.6, 0.8]))
    assert "sqrt makes NaN" in found[0]


# ------------------------------------------------------------------------------------- the digits


@pytest.fixture(scope="module")
def digits():
    for needed in ("matplotlib", "optax", "sklearn", "tqdm"):
        pytest.importorskip(needed)
    import digits

    return digits


def jax_loss(params, images, labels):
    (a, b) = params
    hidden = jnp.tanh(images @ a["weights"] + a["biases"])
    logits = jax.nn.log_softmax(hidden @ b["weights"] + b["biases"])
    return -jnp.take_along_axis(logits, labels[..., None], -1).mean()


def test_the_derivatives_of_the_digits(digits):
    (images, labels), _ = digits.load(0)
    images, labels = images[:60], labels[:60]
    params = digits.initialise(np.random.default_rng(0), (64, 4, 10))
    gradient, value = func.grad_and_value(digits.loss)(params, images, labels)
    expected = jaxpr.evaluate(jax.value_and_grad(jax_loss))(params, images, labels)
    assert_close(value, expected[0], 1e-5)
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), gradient, expected[1])
    assert all(isinstance(g, jax.Array) for g in jax.tree.leaves(gradient))

    norms = func.vmap(digits.gradient_norm, in_dims=(None, 0, 0))(params, images, labels)
    each = jaxpr.evaluate(jax.vmap(jax.grad(jax_loss), (None, 0, 0)))(params, images, labels)
    flat = np.concatenate([np.reshape(g, (60, -1)) for g in jax.tree.leaves(each)], 1)
    assert_close(norms, np.linalg.norm(flat, axis=1), 1e-4)

    vector, unravel = jax.flatten_util.ravel_pytree(params)
    hessian = jaxpr.evaluate(jax.hessian(lambda v: jax_loss(unravel(v), images, labels)))(vector)
    found = digits.curvatures(params, (images, labels), 3, np.random.default_rng(0))
    assert_close(found, np.linalg.eigvalsh(hessian)[:-4:-1], 1e-3)


@pytest.mark.slow
def test_the_digits_say_when_they_have_not_learnt(digits, monkeypatch, tmp_path, capsys):
    figure = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["digits.py", "--epochs", "1", "--out", str(figure)])
    with pytest.raises(SystemExit) as caught:
        digits.main()
    assert caught.value.code == "The accuracy is below 95%."
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "450 images held out" in capsys.readouterr().out
