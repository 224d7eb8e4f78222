"""Bad input to Functions and decorators: a named error that leads to the user's own rule.

The text names the class and the method, and a line of the rule or of its call; it says what to
write; and afterwards nothing is left open.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import ftrans
import ftrans.numpy as fnp
from ftrans import func
from ftrans.autograd import Function
from ftrans.errors import FtransError, MissingRuleError, RuleError
from tests.unit.clean import assert_nothing_open, collect

X = np.array([1.0, 2.0])
F32 = X.astype(np.float32)


@dataclass(frozen=True)
class Bad:
    """Is one mistake.

    Attributes:
        make: returns the Function with the mistake, or the decorated function.
        call: what brings the mistake to light.
        error: the class of the error.
        words: patterns that the text has to match, beside the name.
    """

    make: Callable[[], Any]
    call: Callable[[Any], Any]
    error: type[BaseException]
    words: tuple[str, ...]


def apply(f: Any) -> Any:
    return f(X)


def gradient(f: Any) -> Any:
    return func.grad(lambda x: jax.tree.leaves(f(x))[0].sum())(X)


def gradient_f32(f: Any) -> Any:
    return func.grad(lambda x: f(x).sum())(F32)


def forward_mode(f: Any) -> Any:
    return func.jvp(f, (X,), (X,))


def forward_mode_f32(f: Any) -> Any:
    return func.jvp(f, (F32,), (F32,))


def mapped(f: Any) -> Any:
    return func.vmap(f)(np.ones((3, 2)))


def curvature(f: Any) -> Any:
    return func.hessian(lambda x: (f(x) ** 2).sum())(X)


def function(**methods: Any) -> Callable[[], type[Function]]:
    """Returns what makes a Function named `Culprit` of the given methods."""

    def make() -> type[Function]:
        body = {
            name: value if isinstance(value, bool) else staticmethod(value)
            for name, value in methods.items()
        }
        return type("Culprit", (Function,), {"__module__": __name__, **body})

    return make


def double(ctx: Any, x: Any) -> Any:
    return 2 * x


def double_split(x: Any) -> Any:
    return 2 * x


def nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def opaque(ctx: Any, x: Any) -> Any:
    return 2 * np.asarray(x)


def two_inputs(ctx: Any, x: Any, y: Any) -> Any:
    return x * y


def affine(ctx: Any, t: Any) -> Any:
    return 2 * t + 1.0


def extended(ctx: Any, t: Any) -> Any:
    return fnp.concatenate([2 * t[:1], fnp.ones_like(t[:1])])


def pair(ctx: Any, x: Any) -> Any:
    return 2 * x, 3 * x


def right(ctx: Any, ct: Any) -> Any:
    return 2 * ct


def backward(answer: Callable[[Any], Any], forward: Any = double) -> Callable[[], type[Function]]:
    def backward(ctx: Any, ct: Any) -> Any:
        return answer(ct)

    return function(forward=forward, backward=backward)


def tangents(answer: Callable[[Any], Any], forward: Any = double) -> Callable[[], type[Function]]:
    def jvp(ctx: Any, t: Any) -> Any:
        return answer(t)

    return function(forward=forward, jvp=jvp)


def batching(answer: Callable[[Any], Any], forward: Any = double) -> Callable[[], type[Function]]:
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return answer(x)

    return function(forward=forward, backward=lambda ctx, *cts: 2 * cts[0], vmap=vmap)


def mutating_opaquely(ctx: Any, ct: Any) -> Any:
    array = np.asarray(ct)
    array *= 2
    return array


def opaque_backward(ctx: Any, ct: Any) -> Any:
    return 2 * np.asarray(ct)


CASES: dict[str, Bad] = {
    # ------------------------------------------------------------------------- what is not there
    "no forward": Bad(function(backward=right), apply, MissingRuleError, ("forward",)),
    "no forward under grad": Bad(
        function(backward=right), gradient, MissingRuleError, ("forward",)
    ),
    "no rule for an opaque forward": Bad(
        function(forward=opaque), gradient, MissingRuleError, (r"backward\(ctx, ",)
    ),
    "no rule to go forward": Bad(
        function(forward=opaque), forward_mode, MissingRuleError, (r"jvp\(ctx, |backward\(ctx, ",)
    ),
    "no setup_context": Bad(
        function(forward=double_split, backward=lambda ctx, ct: ctx.saved_tensors[0] * ct),
        gradient,
        FtransError,
        ("setup_context",),
    ),
    "forward of a wrong style": Bad(
        function(forward=double, setup_context=nothing, backward=right),
        apply,
        (FtransError, TypeError),
        ("forward",),
    ),
    "backward and vjp": Bad(
        function(forward=double, backward=right, vjp=lambda ctx, ct: 2 * ct),
        gradient,
        RuleError,
        ("backward", "vjp"),
    ),
    "vmap and generate_vmap_rule": Bad(
        function(
            forward=double,
            backward=right,
            vmap=lambda info, in_dims, x: (2 * x, 0),
            generate_vmap_rule=True,
        ),
        mapped,
        RuleError,
        ("generate_vmap_rule", "vmap"),
    ),
    "opaque backward twice": Bad(
        function(forward=double, backward=opaque_backward),
        curvature,
        MissingRuleError,
        ("backward",),
    ),
    # ------------------------------------------------------------------------- gradients
    "too few gradients": Bad(
        function(forward=two_inputs, backward=right),
        lambda f: func.grad(lambda x: f(x, x).sum())(X),
        RuleError,
        ("backward", "2", "1"),
    ),
    "too many gradients": Bad(
        backward(lambda ct: (ct, ct)), gradient, RuleError, ("backward", "1", "2")
    ),
    "gradient of a wrong shape": Bad(
        backward(lambda ct: fnp.ones(3)), gradient, RuleError, ("backward", r"\[3\]", r"\[2\]")
    ),
    "gradient of a smaller shape": Bad(
        backward(lambda ct: ct.sum()), gradient, RuleError, ("backward", r"\[\]", r"\[2\]")
    ),
    "complex gradient": Bad(
        backward(lambda ct: 1j * ct), gradient, RuleError, ("backward", "c128", "f64")
    ),
    "gradient that is no array": Bad(
        backward(lambda ct: "twice"), gradient, RuleError, ("backward", "str")
    ),
    "gradient in a dict": Bad(
        backward(lambda ct: {"x": ct}), gradient, RuleError, ("backward", "'x'")
    ),
    "opaque gradient of a wrong shape": Bad(
        backward(lambda ct: np.asarray(ct)[:1].repeat(3)),
        gradient,
        RuleError,
        ("backward", r"\[3\]", r"\[2\]"),
    ),
    "gradient of a wrong shape under vmap": Bad(
        backward(lambda ct: fnp.ones(3)),
        lambda f: func.vmap(func.grad(lambda x: f(x).sum()))(np.ones((4, 2))),
        RuleError,
        ("backward", r"\[3\]", r"\[2\]"),
    ),
    "gradient of a wrong shape under jit": Bad(
        backward(lambda ct: fnp.ones(3)),
        lambda f: ftrans.jit(func.grad(lambda x: f(x).sum()))(X),
        RuleError,
        ("backward", r"\[3\]", r"\[2\]"),
    ),
    "gradient of a wrong structure": Bad(
        function(
            forward=lambda ctx, p: p["a"] * p["b"], backward=lambda ctx, ct: {"a": ct, "c": ct}
        ),
        lambda f: func.grad(lambda p: f(p).sum())({"a": X, "b": X}),
        RuleError,
        ("backward",),
    ),
    # ------------------------------------------------------------------------- tangents
    "too few tangents": Bad(
        tangents(lambda t: 2 * t, pair), forward_mode, RuleError, ("jvp", "2", "1")
    ),
    "too many tangents": Bad(
        tangents(lambda t: (2 * t, 2 * t)), forward_mode, RuleError, ("jvp", "1", "2")
    ),
    "tangent of a wrong shape": Bad(
        tangents(lambda t: fnp.ones(3)), forward_mode, RuleError, ("jvp", r"\[3\]", r"\[2\]")
    ),
    "tangent of a wrong dtype": Bad(
        tangents(lambda t: t * np.ones(2)), forward_mode_f32, RuleError, ("jvp", "f32", "f64")
    ),
    "tangent that is no array": Bad(
        tangents(lambda t: "twice"), forward_mode, RuleError, ("jvp", "str")
    ),
    "tangent of a wrong shape in reverse": Bad(
        tangents(lambda t: fnp.ones(3)), gradient, RuleError, ("jvp", r"\[3\]", r"\[2\]")
    ),
    "jvp that is affine": Bad(
        function(forward=double, jvp=affine), forward_mode, RuleError, ("jvp: .*not linear",)
    ),
    "jvp that is affine in reverse": Bad(
        function(forward=double, jvp=affine), gradient, RuleError, ("jvp: .*not linear",)
    ),
    "jvp that adds a constant element": Bad(
        function(forward=double, jvp=extended), curvature, RuleError, ("jvp: .*not linear",)
    ),
    # ------------------------------------------------------------------------- batching
    "vmap returns an array": Bad(
        batching(lambda x: 2 * x), mapped, RuleError, ("vmap", "out_dims")
    ),
    "vmap returns out_dims for two": Bad(
        batching(lambda x: (2 * x, (0, 0))), mapped, RuleError, ("vmap", "out_dims")
    ),
    "vmap returns out_dims for one": Bad(
        batching(lambda x: ((2 * x, 3 * x), (0,)), pair), mapped, RuleError, ("vmap", "out_dims")
    ),
    "vmap returns another structure": Bad(
        batching(lambda x: ((2 * x, 3 * x), (0, 0))), mapped, RuleError, ("vmap",)
    ),
    "vmap returns out_dims out of range": Bad(
        batching(lambda x: (2 * x, 2)), mapped, RuleError, ("vmap", "2")
    ),
    "vmap returns out_dims of another kind": Bad(
        batching(lambda x: (2 * x, "front")), mapped, RuleError, ("vmap", "front")
    ),
    "vmap returns another size": Bad(
        batching(lambda x: (2 * x[:2], 0)), mapped, RuleError, ("vmap", "2", "3")
    ),
    "vmap returns another shape": Bad(
        batching(lambda x: (fnp.ones((3, 5)), 0)), mapped, RuleError, ("vmap", "5", "2")
    ),
    "vmap returns another dtype": Bad(
        batching(lambda x: ((2 * x).astype("float32"), 0)), mapped, RuleError, ("vmap", "f32")
    ),
    "vmap says that nothing is mapped": Bad(
        batching(lambda x: (2 * x, None)), mapped, RuleError, ("vmap", "None")
    ),
    # ------------------------------------------------------------------------- writing
    "opaque backward writes to its cotangent": Bad(
        function(forward=double, backward=mutating_opaquely), gradient, ValueError, ("backward",)
    ),
}


def varying(ctx: Any, x: Any) -> Any:
    x = np.asarray(x)
    return x[x > 0]


CASES |= {
    # ------------------------------------------------------------------------- opaque forward
    "an opaque forward whose shape depends on values": Bad(
        function(forward=varying, backward=right),
        lambda f: func.vmap(f)(np.array([[1.0, 2.0], [1.0, -2.0]])),
        RuleError,
        ("forward", r"\[1\]", r"\[2\]"),
    ),
    "an opaque forward whose shape depends on values, under jit": Bad(
        function(forward=varying, backward=right),
        lambda f: [ftrans.jit(f)(np.array(x)) for x in ([1.0, 2.0], [1.0, -2.0], [-1.0, -2.0])],
        RuleError,
        ("forward",),
    ),
}


def lines_of(function: Any) -> set[int]:
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return set(range(first, first + len(lines)))


def lines_of_methods(culprit: type[Function]) -> set[int]:
    names = ("forward", "backward", "vjp", "jvp", "vmap", "setup_context")
    written = [
        getattr(culprit, n) for n in names if getattr(culprit, n) is not getattr(Function, n)
    ]
    return set().union(*map(lines_of, written))


PLACE = re.compile(re.escape(__file__) + r":(\d+)")


def text_of(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_bad_function(name: str) -> None:
    bad = CASES[name]
    culprit: list[Any] = []

    def run() -> None:
        culprit.append(bad.make())  # a class may be refused when it is made
        bad.call(culprit[0].apply)

    with pytest.raises(bad.error) as caught:
        run()
    text = text_of(caught.value)
    assert "Culprit" in text
    for word in bad.words:
        assert re.search(word, text), f"no {word} in\n{text}"
    if culprit:
        methods, calls = lines_of_methods(culprit[0]), lines_of(bad.call)
        in_text = {int(line) for line in PLACE.findall(text)}
        frames = traceback.walk_tb(caught.value.__traceback__)
        in_traceback = {line for frame, line in frames if frame.f_code.co_filename == __file__}
        if "no forward" in name:
            assert in_traceback & calls
        else:
            found = in_text & (methods | calls) or in_traceback & methods
            assert found, f"no line of the user's in\n{text}"
    if isinstance(caught.value, FtransError):
        assert len(text.splitlines()) >= 2, f"nothing to write instead in\n{text}"
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        frames = traceback.walk_tb(caught.value.__traceback__)
        assert {frame.f_code.co_filename for frame, _ in frames} == {__file__}
    assert_nothing_open()
    assert X.flags.writeable


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_bad_function_in_the_middle(name: str) -> None:
    """An enclosing trace goes on after the failure, and is right."""
    bad = CASES[name]

    def outer(x: Any) -> Any:
        with contextlib.suppress(bad.error):  # what is raised when it is run is not raised here
            bad.call(bad.make().apply)
        return (x**3).sum()

    np.testing.assert_allclose(func.grad(outer)(X), 3 * X**2)
    np.testing.assert_allclose(func.vmap(func.grad(lambda x: outer(x)))(X), 3 * X**2)
    assert_nothing_open()


LINEAR_JVPS: dict[str, Callable[[Any, Any], Any]] = {
    "a zero is added": lambda x, t: 2 * x * t + 0.0,
    "zeros are added": lambda x, t: 2 * x * t + fnp.zeros(2) - fnp.zeros_like(x),
    "factors of the primal": lambda x, t: (x + 1.0) * t + (x - 1.0) * t,
    "a factor with a constant": lambda x, t: (2.0 - 3.0) * -2 * x * t + t * (1.0 - 1.0),
    "selected": lambda x, t: fnp.where(x > 0, 2 * x * t, 0.0) + fnp.where(x > 0, 0.0, 2 * x * t),
    "put together": lambda x, t: fnp.concatenate([2 * x * t, fnp.zeros(1)])[:2],
    "something that is zero": lambda x, t: 2 * x * t + (x - x),
    "the code itself": lambda x, t: func.jvp(lambda x: x * x + 1.0, (x,), (t,))[1],
}


@pytest.mark.parametrize("name", LINEAR_JVPS)
def test_a_linear_jvp_is_taken(name: str) -> None:
    """Whatever it adds that is zero: only what is known to be affine is refused."""
    rule = LINEAR_JVPS[name]

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def jvp(ctx, t):
            return rule(*ctx.saved_tensors, t)

    square = ftrans.custom_jvp(lambda x: x * x)
    square.defjvp(lambda ps, ts: (ps[0] * ps[0] + 0.0, rule(ps[0], ts[0])))
    for f in (Square.apply, square):
        np.testing.assert_allclose(func.jvp(f, (X,), (X,))[1], 2 * X * X)
        np.testing.assert_allclose(func.grad(lambda x, f=f: f(x).sum())(X), 2 * X)
        np.testing.assert_allclose(func.hessian(lambda x, f=f: f(x).sum())(X), 2 * np.eye(2))


# ------------------------------------------------------------------------------ apply, miscalled


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda f: f.apply(), "x"),
        (lambda f: f.apply(X, X), "Culprit|forward"),
        (lambda f: f.apply(X, scale=2.0), "scale"),
    ],
)
def test_arguments_that_forward_does_not_take(call: Any, word: str) -> None:
    culprit = function(forward=double, backward=right)()
    with pytest.raises(TypeError, match=word):
        call(culprit)
    assert_nothing_open()


# ------------------------------------------------------------------------------------ decorators


def culprit(x: Any) -> Any:
    return fnp.sin(x)


def vjp_of(fwd: Any, bwd: Any) -> Callable[[], Any]:
    def make() -> Any:
        f = ftrans.custom_vjp(culprit)
        f.defvjp(fwd, bwd)
        return f

    return make


def jvp_of(rule: Any) -> Callable[[], Any]:
    def make() -> Any:
        f = ftrans.custom_jvp(culprit)
        f.defjvp(rule)
        return f

    return make


def vmap_of(rule: Any) -> Callable[[], Any]:
    def make() -> Any:
        f = ftrans.custom_vmap(culprit)
        f.def_vmap(rule)
        return f

    return make


def saving(x: Any) -> Any:
    return fnp.sin(x), x


DECORATED: dict[str, Bad] = {
    "custom_vjp without rules": Bad(
        lambda: ftrans.custom_vjp(culprit), gradient, MissingRuleError, ("defvjp",)
    ),
    "custom_jvp without a rule": Bad(
        lambda: ftrans.custom_jvp(culprit), forward_mode, MissingRuleError, ("defjvp",)
    ),
    "custom_vmap without a rule": Bad(
        lambda: ftrans.custom_vmap(culprit), mapped, MissingRuleError, ("def_vmap",)
    ),
    "fwd without residuals": Bad(
        vjp_of(lambda x: fnp.sin(x), lambda r, ct: (ct,)), gradient, RuleError, ("fwd|pair",)
    ),
    "fwd of another structure": Bad(
        vjp_of(lambda x: ((fnp.sin(x), x), x), lambda r, ct: (ct,)), gradient, RuleError, ("fwd",)
    ),
    "fwd of another type": Bad(
        vjp_of(lambda x: (fnp.sin(x)[:1], x), lambda r, ct: (ct,)), gradient, RuleError, ("fwd",)
    ),
    "bwd of too many": Bad(
        vjp_of(saving, lambda r, ct: (ct, ct)), gradient, RuleError, ("bwd", "1", "2")
    ),
    "bwd of none": Bad(vjp_of(saving, lambda r, ct: ()), gradient, RuleError, ("bwd",)),
    "bwd of another shape": Bad(
        vjp_of(saving, lambda r, ct: (ct[:1],)), gradient, RuleError, ("bwd", r"\[1\]", r"\[2\]")
    ),
    "bwd of another dtype": Bad(
        vjp_of(saving, lambda r, ct: (ct * np.ones(2),)),
        gradient_f32,
        RuleError,
        ("bwd", "f32", "f64"),
    ),
    "jvp without a pair": Bad(
        jvp_of(lambda ps, ts: fnp.cos(ps[0]) * ts[0]), forward_mode, RuleError, ("culprit",)
    ),
    "jvp of another shape": Bad(
        jvp_of(lambda ps, ts: (fnp.sin(ps[0]), ts[0][:1])),
        forward_mode,
        RuleError,
        (r"\[1\]", r"\[2\]"),
    ),
    "jvp of another value": Bad(
        jvp_of(lambda ps, ts: ((fnp.sin(ps[0]), ps[0]), ts[0])),
        forward_mode,
        RuleError,
        ("culprit",),
    ),
    "vmap without a pair": Bad(
        vmap_of(lambda size, in_batched, x: fnp.sin(x)), mapped, RuleError, ("culprit",)
    ),
    "vmap of another structure": Bad(
        vmap_of(lambda size, in_batched, x: (fnp.sin(x), [True])), mapped, RuleError, ("culprit",)
    ),
    "vmap of another size": Bad(
        vmap_of(lambda size, in_batched, x: (fnp.sin(x)[1:], True)),
        mapped,
        RuleError,
        ("2", "3"),
    ),
}


@pytest.mark.parametrize("name", DECORATED)
def test_bad_decorated_function(name: str) -> None:
    bad = DECORATED[name]
    with pytest.raises(bad.error) as caught:
        bad.call(bad.make())
    text = text_of(caught.value)
    for word in ("culprit", *bad.words):
        assert re.search(word, text), f"no {word} in\n{text}"
    if "without" not in name:  # else the call is what is wrong, where the traceback ends
        assert PLACE.search(text), f"no line of the user's in\n{text}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert_nothing_open()


# ------------------------------------------------------------------- writing to what is traced


def test_a_traced_cotangent_may_be_written_to() -> None:
    """Which binds the name anew: nobody else sees it."""

    class Cuts(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, ct):
            ct[0] = 0.0
            return 2 * ct

    np.testing.assert_allclose(
        func.grad(lambda x: ((Cuts.apply(x) + x) ** 2).sum())(X), 2 * 3 * X * [1.0, 3.0]
    )


def slope(fail: Callable[[], None]) -> Callable[[Any], Any]:
    """Returns the gradient of a function with a backward that fails."""

    class Fails(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            fail()

    return func.grad(lambda x: Fails.apply(x).sum())


def test_an_error_that_is_raised_again_is_as_short_as_at_first() -> None:
    def fail() -> None:
        error = RuntimeError("a rule fails")
        error.add_note("and says so")
        raise error

    gradient = ftrans.jit(slope(fail))
    lengths, found = [], []
    for _ in range(4):
        with pytest.raises(RuntimeError, match="a rule fails") as caught:
            gradient(np.ones(3))
        lengths.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
        found.append(caught.value)
        assert found[-1].__notes__[0] == "and says so"
    assert lengths[1:] == lengths[1:2] * 3
    assert len({len(error.__notes__) for error in found[1:]}) == 1


def test_a_gradient_of_an_argument_that_is_none_is_named() -> None:
    class Fills(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, bias: Any = None) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return 2 * ct, ct

    with pytest.raises(RuleError, match="a gradient, number 1: it does not have the structure"):
        func.grad(lambda x: Fills.apply(x).sum())(np.ones(3))


def test_what_is_raised_is_the_error_itself() -> None:
    class Coded(Exception):
        def __init__(self, code: int):
            super().__init__(f"error {code}")
            self.code = code

    def fail() -> None:
        raise error

    error = Coded(5)
    for _ in range(2):
        with pytest.raises(Coded, match=r"^error 5$") as caught:
            slope(fail)(np.ones(3))
        assert caught.value is error


def test_a_rule_that_fails_takes_nothing_of_what_happens_to_be_pending() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sum()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ct

    leaf = ftrans.tensor(X, requires_grad=True)
    pending = leaf * 2
    assert not Wrong.apply(ftrans.tensor(X)).requires_grad
    loss = Wrong.apply(pending)
    assert loss.requires_grad
    with pytest.raises(RuleError, match="the gradient of x has the wrong shape"):
        loss.backward()


def test_what_was_running_when_a_rule_failed_is_let_go() -> None:
    def fail() -> None:
        raise RuntimeError("a rule fails")

    refs = []

    def user() -> None:
        held = np.zeros(1000)
        refs.append(weakref.ref(held))
        with contextlib.suppress(RuntimeError):
            slope(fail)(np.arange(3.0))

    jitted = ftrans.jit(slope(fail))
    with pytest.raises(RuntimeError, match="a rule fails"):
        jitted(np.ones(3))
    for _ in range(40):
        user()
    collect()
    assert sum(ref() is not None for ref in refs) < 20
    with pytest.raises(RuntimeError, match="a rule fails"):
        jitted(np.ones(3))


def test_what_comes_of_raising_an_error_is_not_kept() -> None:
    def fail() -> None:
        raise RuntimeError("a rule fails") from KeyError("cause")

    jitted = ftrans.jit(slope(fail))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="a rule fails") as caught:
            jitted(np.ones(3))
        error = caught.value
        assert isinstance(error.__cause__, KeyError)
        assert "mine" not in getattr(error, "__notes__", ())
        error.add_note("mine")
        error.__cause__ = None


def test_whether_an_argument_requires_grad_is_asked_of_the_context() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * (2 if x.requires_grad else 1)

    with pytest.raises(AttributeError, match=r"Write .* ctx\.needs_input_grad"):
        Doubled.apply(ftrans.tensor(1.0, requires_grad=True))
