"""The public base: rules, descent into control flow, fixpoints, results that are traced again."""

import inspect
import itertools

import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import ArrayType, Interpreter, func
from ftrans.errors import FtransError, MissingRuleError
from ftrans.primitives import registry, sin_p
from tests.helpers import assert_close

X = np.linspace(0.2, 1.4, 3)


class Evaluate(Interpreter):
    """The identity among interpreters: it computes what the program computes."""

    def known(self, value):
        return value

    def default(self, operation, *values):
        return operation.evaluate(*values)


class Depends(Interpreter):
    """Which of the arguments, by their place, a result may depend on."""

    def lift(self, value):
        return frozenset()

    def join(self, x, y):
        return x | y

    def same(self, x, y):
        return x == y

    def default(self, operation, *values):
        return frozenset().union(*values)


class Named(frozenset):
    """A value of `Depends` that can be an argument."""

    shape, dtype = (3,), np.dtype("float64")


class Index(Named):
    shape, dtype = (), np.dtype("int32")


A, B = Named("a"), Named("b")


def newton(x):
    return ftrans.while_loop(lambda r: abs(r * r - x) > 1e-12, lambda r: (r + x / r) / 2, x)


def looped(x):
    def step(carry, element):
        total, count = carry
        total = ftrans.cond(element > 0.5, lambda t: t * element, lambda t: t + 1.0, total)
        return (total, count + 1), (total, fnp.sin(element))

    return ftrans.scan(step, (1.0, 0), x, reverse=True)


PROGRAMS = {
    "elementwise": lambda x: fnp.where(x > 0.5, fnp.sin(x) * 2.0, 1.0 - x),
    "captures": lambda x: (x @ np.arange(6.0).reshape(3, 2)).sum() * X,
    "scan": looped,
    "empty scan": lambda x: ftrans.scan(lambda c, e: (c, e * 2.0), 0.0, x[:0]),
    "cond": lambda x: ftrans.cond(x.sum() > 2.0, fnp.sin, fnp.cos, x),
    "switch": lambda x: ftrans.switch(7, [fnp.sin, fnp.cos, fnp.tanh], x),
    "while": lambda x: newton(x[2]),
    "bounded while": lambda x: ftrans.while_loop(
        lambda r: r < 100.0, lambda r: r * 2.0, x[0], max_steps=3
    ),
    "sort": lambda x: fnp.argsort(-x),
    "constants": lambda x: (2.0, fnp.zeros(2), x * 0 + fnp.arange(3)),
    "Python": lambda x: x * 2 if x[0] > 0 else x * 3,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_evaluation_gives_what_the_function_gives(program):
    expected = program(X)
    actual = Evaluate()(program)(X)
    for a, e in zip(_leaves(actual), _leaves(expected), strict=True):
        assert_close(a, e)


def _leaves(value):
    return [leaf for x in value for leaf in _leaves(x)] if isinstance(value, tuple) else [value]


DIFFERENTIABLE = {
    "elementwise": lambda x: PROGRAMS["elementwise"](x).sum(),
    "scan": lambda x: looped(x)[0][0],
    "cond": lambda x: PROGRAMS["cond"](x).sum(),
    "bounded while": PROGRAMS["bounded while"],
}


@pytest.mark.parametrize("program", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_evaluation_of_nested_derivatives(program):
    assert_close(Evaluate()(func.grad(program))(X), func.grad(program)(X))
    assert_close(Evaluate()(func.hessian(program))(X), func.hessian(program)(X))


@pytest.mark.parametrize("program", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_results_are_traced_again(program):
    interpreted = Evaluate()(program)
    assert_close(func.grad(interpreted)(X), func.grad(program)(X))
    assert_close(
        func.grad(lambda x: func.grad(interpreted)(x).sum())(X), func.hessian(program)(X).sum(0)
    )


@pytest.mark.parametrize("name", ["elementwise", "captures", "sort"])
def test_results_are_batched(name):
    batch = np.stack([X, X[::-1], -X])
    expected = np.stack([PROGRAMS[name](x) for x in batch])
    assert_close(func.vmap(Evaluate()(PROGRAMS[name]))(batch), expected)


def test_closures_over_traced_values():
    def outer(x, y):
        return Evaluate()(lambda z: (x * z).sum())(y)

    assert_close(func.grad(outer)(X, 2 * X), 2 * X)


def test_a_condition_without_a_value_is_not_known():
    with pytest.raises(MissingRuleError, match="which branch runs is not known"):
        func.vmap(Evaluate()(PROGRAMS["cond"]))(np.stack([X, X]))


# -------------------------------------------------------------------------------------- arguments


def test_values_as_arguments():
    assert Depends()(lambda a, b, c: {"x": a * c, "y": [b + a]})(A, B, X) == {
        "x": {"a"},
        "y": [{"a", "b"}],
    }


def test_keyword_arguments_and_static_leaves():
    assert Depends()(lambda a, *, b, mode: (a * 2, b) if mode == "both" else a)(
        A, b=B, mode="both"
    ) == ({"a"}, {"b"})


def test_types_as_arguments():
    class Shapes(Interpreter):
        def default(self, operation, *values):
            return operation.outputs[0]

    t = ArrayType((3, 4), "float32")
    assert Shapes()(lambda x: (x @ x.T).sum(0))(t) is ArrayType((3,), "float32")


def test_python_cannot_branch_on_a_value():
    with pytest.raises(ftrans.ConcretizationError):
        Depends()(lambda a: a if a.sum() > 0 else -a)(A)


def test_constants_keep_their_dtype():
    seen = []

    class Record(Evaluate):
        def lift(self, value):
            seen.append(value.dtype.name)
            return value

    Record()(lambda x: x * 2.0 + 1)(X.astype("float16"))
    assert seen == ["float16"] * 3


def test_lifted_constants_may_be_traced():
    class Scaled(Evaluate):
        def __init__(self, scale):
            self.scale = scale

        def lift(self, value):
            return value * self.scale if value.shape == () else value

    assert_close(func.grad(lambda s: Scaled(s)(lambda x: x * 2.0)(X).sum())(1.0), 2 * X.sum())


# ------------------------------------------------------------------------------------------ rules


def sole(name, **rules):
    """Returns an interpreter that gives the name of the rule that it used."""

    class Sole(Interpreter):
        def default(self, operation, *values):
            return "default"

    for key, value in rules.items():
        Sole.rule(key)(lambda self, operation, *values, value=value: value)
    return Sole


def test_the_rule_of_a_primitive_comes_before_those_of_tags():
    chosen = sole("order", sin="primitive", elementwise="tag")
    assert chosen()(fnp.sin)(X) == "primitive"
    assert chosen()(fnp.cos)(X) == "tag"
    assert chosen()(lambda x: x.sum())(X) == "default"


def test_of_two_tags_the_last_one_counts():
    assert sole("a", elementwise=1, linear=2)()(lambda x: -x)(X) == 2
    assert sole("b", linear=2, elementwise=1)()(lambda x: -x)(X) == 1


def test_the_rules_of_a_subclass_come_first():
    class Base(Evaluate):
        @Interpreter.rule("sin", "cos")
        def wave(self, operation, x):
            return "base"

    class Sub(Base):
        @Interpreter.rule("elementwise")
        def every(self, operation, *xs):
            return "sub"

    assert Base()(fnp.sin)(X) == "base"
    assert Sub()(fnp.sin)(X) == "sub"
    assert Sub()(lambda x: x.sum())(X) == X.sum()


def test_rules_by_primitive_object_and_replacement():
    chosen = sole("again", sin=1)
    chosen.rule(sin_p)(lambda self, operation, x: 2)
    assert chosen()(fnp.sin)(X) == 2


def test_a_rule_for_control_flow_replaces_the_descent():
    class Steps(Depends):
        @Interpreter.rule("scan")
        def count(self, operation, *values):
            assert all(v == set() for v in self.descend(operation, *values))
            return operation.params["length"]

    assert Steps()(lambda x: ftrans.scan(lambda c, e: (c + e, c), 0.0, x))(X) == (3, 3)


def test_one_value_stands_for_several_results():
    assert Depends()(lambda a: fnp.argsort(a))(A) == {"a"}


def test_names_that_are_none():
    with pytest.raises(ValueError, match=r"Evaluate.rule: no primitive or tag is called 'sine'"):
        Evaluate.rule("sine")


def test_a_missing_rule_names_the_line():
    class Empty(Interpreter):
        pass

    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(MissingRuleError) as caught:
        Empty()(lambda x: fnp.sin(x))(X)
    assert str(caught.value).splitlines() == [
        "Empty: there is no rule for sin.",
        f"  at {__file__}:{line} (test_a_missing_rule_names_the_line.<locals>.<lambda>)",
        "  Register one, @Empty.rule('sin'), or override Empty.default.",
    ]


def test_tags_cover_the_registry():
    """Every primitive can be reached by a tag that says how it treats its elements."""
    families = {
        "elementwise", "structural", "reduction", "contraction", "cumulative", "control",
        "scatter", "sort", "linalg", "fourier", "random", "external", "collective",
    }  # fmt: skip
    lost = [name for name, p in registry.items() if not p.tags & families and name != "unstack"]
    assert not lost, lost


# --------------------------------------------------------------------- branches and loops, joined


def test_branches_are_joined():
    def choose(i, a, b):
        return ftrans.switch(i, [lambda a, b: (a, a), lambda a, b: (a, b)], a, b)

    assert Depends()(choose)(Index(), A, B) == ({"a"}, {"a", "b"})


def test_a_known_index_takes_one_branch():
    class Knows(Depends):
        def known(self, value):
            return 5  # is clamped, as the program would

    assert Knows()(lambda a, b: ftrans.cond(a[0] > 0, lambda a, b: a, lambda a, b: b, a, b))(
        A, B
    ) == {"a"}


def test_a_while_loop_reaches_its_fixpoint():
    def rotate(a, b):
        # one step carries a to y, the next one to z
        def body(state):
            x, y, _, n = state
            return x, x + 1.0, y, n + 1

        return ftrans.while_loop(lambda s: s[3] < 9, body, (a, b, b * 0 + 1.0, 0))

    assert Depends()(rotate)(A, B) == ({"a"}, {"a", "b"}, {"a", "b"}, set())


class Bounds(Evaluate):
    """The largest value that a scalar may have."""

    joins = widenings = 0

    def known(self, value):
        return None

    def join(self, x, y):
        self.joins += 1
        return np.maximum(x, y)


def test_a_loop_that_settles_by_itself():
    assert Bounds()(lambda x: ftrans.while_loop(lambda v: v > 1, lambda v: v / 2, x))(8.0) == 8.0


def test_a_loop_that_settles_by_widening():
    class Widened(Bounds):
        def widen(self, x, y):
            self.widenings += 1
            return np.where(y > x, np.inf, x)

    widened = Widened()
    assert widened(lambda x: ftrans.while_loop(lambda v: v < 9, lambda v: v + 1, x))(0.0) == np.inf
    assert widened.joins == Interpreter.patience
    assert widened.widenings == 2


def test_a_loop_that_never_settles():
    line = inspect.currentframe().f_lineno + 1
    grow = lambda x: ftrans.while_loop(lambda v: v < 9, lambda v: v + 1, x)  # noqa: E731
    with pytest.raises(FtransError, match="a loop's value does not settle") as caught:
        Bounds()(grow)(0.0)
    assert f"{__file__}:{line}" in str(caught.value)
    assert "widen" in str(caught.value)


def test_the_number_of_steps_may_bound_a_loop():
    grow = lambda x: ftrans.while_loop(lambda v: v < 9, lambda v: v + 1, x, max_steps=4)  # noqa: E731
    assert Bounds()(grow)(0.0) == 4.0


def test_a_loop_is_exact_for_as_long_as_its_condition_is_known():
    class Until(Bounds):
        """Knows the condition for five steps."""

        steps = 0

        def known(self, value):
            self.steps += 1
            return True if self.steps <= 5 else None

    # exact up to 32; from there on all of 32, 16, 8, ... are possible
    assert (
        Until()(lambda x: ftrans.while_loop(lambda v: v < 9, lambda v: v * 2, x, max_steps=6))(1.0)
        == 64.0
    )
    until = Until()
    assert until(lambda x: ftrans.while_loop(lambda v: v > 9, lambda v: v / 2, x))(64.0) == 2.0
    assert until.joins == 1


def test_what_a_loop_may_have_left_with_is_never_dropped():
    class Possible(Interpreter):
        """The set of the values that a scalar may have."""

        answers = iter([None, True, None])

        def lift(self, value):
            return frozenset([value.item()])

        def known(self, value):
            return next(self.answers)

        def join(self, x, y):
            return x | y

        def default(self, operation, *values):
            found = [operation.evaluate(*v) for v in itertools.product(*values)]
            return frozenset(v.item() for v in found)

    grow = lambda x: ftrans.while_loop(lambda v: v < 9, lambda v: v * 2, x, max_steps=3)  # noqa: E731
    assert Possible()(grow)(1.0) == {1.0, 2.0, 4.0, 8.0}


def test_what_is_not_known_and_cannot_be_joined():
    class Blind(Interpreter):
        def default(self, operation, *values):
            return operation.evaluate(*values)

    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(MissingRuleError) as caught:
        Blind()(lambda x: ftrans.cond(x > 0, fnp.sin, fnp.cos, x))(1.0)
    assert str(caught.value).splitlines() == [
        "Blind: which branch runs is not known, and there is no way to cover all that can be.",
        f"  at {__file__}:{line} (test_what_is_not_known_and_cannot_be_joined.<locals>.<lambda>)",
        "  Override Blind.known(value), or Blind.join(x, y).",
    ]
    with pytest.raises(MissingRuleError, match="how often a loop runs is not known"):
        Blind()(newton)(2.0)
