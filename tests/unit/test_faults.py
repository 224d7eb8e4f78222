"""Faults planted on purpose, one at a time: the laws must notice every one of them.

`killers` runs the laws of `tests/laws/test_programs.py` and the comparison of `tests/laws/fuzz.py`
on random programs until the law that is meant has failed, or the programs run out.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans.interpreters import batch as _batch  # noqa: F401 (the module is patched below)
from ftrans.interpreters.builder import Builder
from ftrans.ir import Frame, Program, Tracer, bind
from ftrans.primitives import (
    add_p,
    broadcast_p,
    cos_p,
    mul_p,
    neg_p,
    registry,
    scalar,
    scan_p,
    sin_p,
    stop_gradient_p,
    sub_p,
    sum_p,
    transpose_p,
)
from ftrans.primitives.record import Recursive
from tests.laws import fuzz, test_programs

PROGRAMS = 100

pytestmark = pytest.mark.slow


def module(name: str) -> Any:
    import importlib

    return importlib.import_module(f"ftrans.{name}")


def forget() -> None:
    """Drops all that interpreters remember, so that no result outlives the rule it came from."""
    ftrans.cache_clear()
    gc.collect()
    for program in list(Program._programs.values()):
        program.memo.clear()
        program.structure.memo.clear()


@contextmanager
def planted(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Sets attributes, of frozen records too, and puts them back."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    forget()
    try:
        for owner, name, value in changes:
            _set(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            _set(owner, name, value)
        forget()


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)


def compared(seed: int) -> None:
    fuzz.compare(fuzz.generate(random.Random(seed), depth=2), "interpret", seed)


def killers(sought: str | None = None) -> dict[str, str]:
    """Returns the laws that fail, each with what it says; stops as soon as `sought` is there."""
    found: dict[str, str] = {}
    laws = {law.__name__: law for law in test_programs.LAWS}
    for seed in range(PROGRAMS):
        for name in [*laws, "compared"]:
            if name in found or sought in found:
                continue
            try:
                with np.errstate(all="ignore"):
                    if name == "compared":
                        compared(seed)
                    else:
                        laws[name](*test_programs.traced(seed), seed)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {str(error)[:200]}"
    return found


# ------------------------------------------------------------------------------------------ faults


def wrong_sign() -> Any:
    """The derivative of sin is -cos."""
    return [(sin_p, "jvp", [lambda t, out, x: neg_p(mul_p(t, cos_p(x)))])]


def swapped_operand() -> Any:
    """A product is differentiated with the operand itself, not with the other one."""
    rules = [lambda t, out, x, y: mul_p(t, x), lambda t, out, x, y: mul_p(x, t)]
    return [(mul_p, "jvp", rules)]


def swapped_operand_in_transpose() -> Any:
    """The transpose of a difference gives the second operand the cotangent as it is."""
    return [(sub_p, "transpose", [lambda ct, x, y: ct, lambda ct, x, y: ct])]


def swapped_rules_of_a_product() -> Any:
    """The transposes of a product by its first and by its second operand change places."""
    return [(mul_p, "transpose", list(mul_p.transpose)[::-1])]


def unshifted_axis() -> Any:
    """A batched sum goes over the axes of the single example."""

    def rule(size: int, operands: Any, dims: Any, *, axes: tuple[int, ...]) -> Any:
        moved = transpose_p(
            operands[0], axes=(dims[0], *(i for i in range(operands[0].type.ndim) if i != dims[0]))
        )
        out = sum_p(moved, axes=axes)
        return out, None if 0 in axes else 0

    return [(sum_p, "batch", rule)]


def forgotten_axis() -> Any:
    """A vmap leaves the mapped axis where the last rule put it."""
    return [(module("interpreters.batch"), "moveaxis", lambda x, source, target: x)]


def overwritten_cotangents() -> Any:
    """The last cotangent of a value takes the place of those before."""
    return [(module("interpreters.transpose"), "accumulate", lambda x, y: x if y is None else y)]


def overwritten_tangents() -> Any:
    """Of the tangents of several operands only the last counts."""
    return [(module("interpreters.jvp"), "accumulate", lambda x, y: x if y is None else y)]


def residual_of_another_value() -> Any:
    """A frame takes the first value of the same type that it captured for the one that is asked."""
    capture = Frame.capture

    def wrong(self: Frame, value: Any) -> Tracer:
        for tracer in self.captured.values():
            if type(value) is Tracer and tracer.type is value.type:
                return tracer
        return capture(self, value)

    return [(Frame, "capture", wrong)]


def stale_order_of_residuals() -> Any:
    """What a frame captured is handed over in the reverse order."""
    close = Builder.close

    def wrong(self: Builder, *args: Any) -> Any:
        program, captured = close(self, *args)
        return program, captured[::-1]

    return [(Builder, "close", wrong)]


def zero_treated_as_one() -> Any:
    """Where a loop or branch needs a zero tangent, it gets ones."""

    def ones(t: Any) -> Any:
        return broadcast_p(scalar(1, t.dtype), shape=t.shape, axes=())

    return [(module("primitives.control.common"), "zeros", ones)]


def scan_transposed_forwards() -> Any:
    """The transposed scan runs in the direction of the scan."""
    rule = scan_p.transpose.rule

    def wrong(transforms: Any, cts: Any, *operands: Any, reverse: bool, **params: Any) -> Any:
        return rule(transforms, cts, *operands, reverse=not reverse, **params)

    return [(scan_p, "transpose", Recursive(wrong))]


def merged_unequal_equations() -> Any:
    """`x - y` and `y - x` are taken for one."""
    return [(sub_p, "tags", sub_p.tags | {"commutative"})]


def unmasked_lanes() -> Any:
    """Examples of a batched loop or branch take the results of the others."""
    wrong = lambda mask, x, y: x  # noqa: E731
    switch, while_ = module("primitives.control.switch"), module("primitives.control.while_")
    return [(switch, "select_lanes", wrong), (while_, "select_lanes", wrong)]


def leaking_stop() -> Any:
    """stop_gradient lets tangents through."""
    return [(stop_gradient_p, "jvp", [lambda t, out, x: t])]


def loop_invariant_that_varies() -> Any:
    """Residuals of a scan that change from step to step are taken to be the same at each."""
    scan = module("primitives.control.scan")
    varying = scan.varying
    return [(scan, "varying", lambda program, moving: (False,) * len(varying(program, moving)))]


def dropped_live_equation() -> Any:
    """An identity that does not hold: x + y with y a product is x."""
    rewrite = add_p.rewrite

    def wrong(scope: Any, operands: Any, types: Any, params: Any) -> Any:
        inner = scope.definition(operands[1])
        if inner and inner.primitive is mul_p and scope.type(operands[0]) is types[0]:
            return operands[0]
        return rewrite(scope, operands, types, params)

    return [(add_p, "rewrite", wrong)]


FAULTS: dict[Callable[[], Any], str] = {
    wrong_sign: "law_jvp",
    swapped_operand: "law_jvp",
    swapped_operand_in_transpose: "law_transpose",
    swapped_rules_of_a_product: "law_transpose",
    unshifted_axis: "law_batch",
    forgotten_axis: "law_batch",
    overwritten_cotangents: "law_transpose",
    overwritten_tangents: "law_jvp",
    residual_of_another_value: "law_linearize",
    stale_order_of_residuals: "law_linearize",
    zero_treated_as_one: "law_jvp",
    scan_transposed_forwards: "law_transpose",
    merged_unequal_equations: "law_simplify",
    unmasked_lanes: "law_batch",
    leaking_stop: "compared",
    loop_invariant_that_varies: "law_linearize",
    dropped_live_equation: "law_simplify",
}
"""Each fault with the law that is there to notice it."""


def test_without_a_fault_all_laws_hold() -> None:
    with planted():
        assert killers() == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_noticed(fault: Callable[[], Any]) -> None:
    with planted(*fault()):
        found = killers(FAULTS[fault])
    assert FAULTS[fault] in found, f"{fault.__doc__}\nnoticed by: {found}"


def test_the_record_is_whole_again() -> None:
    """After all faults, the primitives and interpreters are as they were."""
    x = np.array([0.5, -0.3])
    np.testing.assert_allclose(ftrans.grad(lambda x: (x * x - x).sum())(x), 2 * x - 1)
    assert registry["sin"] is sin_p
    (out,) = bind(sin_p, (x,), module("ir").Params())
    np.testing.assert_allclose(out, np.sin(x))
