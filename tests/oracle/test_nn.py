"""`ftrans.nn` against PyTorch's frozen answers, see `pytorch_nn.py`."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func, nn
from tests.oracle.pytorch_nn import CASES, Case, cotangent, function_of, read

ANSWERS, SIGNATURES = read()


def names_of(key: str, kind: str) -> list[str]:
    found = [f"{key}/{kind}{i}" for i in range(4)]
    return [name for name in found if name in ANSWERS]


def compare(found: Any, name: str) -> None:
    expected = ANSWERS[name]
    assert np.shape(found) == expected.shape, name
    np.testing.assert_allclose(
        np.asarray(found), expected.astype("float64"), rtol=2e-6, atol=2e-6, err_msg=name
    )


def check(key: str, case: Case, through: Any) -> None:
    """Compares results, and cotangents as a road to them gives these."""
    call = function_of(nn, case)
    xs = [case.operands[i] for i in case.smooth]
    if not xs:
        for found, name in zip(call(), names_of(key, "out"), strict=True):
            compare(found, name)
        return
    outs, cts = through(call, xs)
    for found, name in zip(outs, names_of(key, "out"), strict=True):
        compare(found, name)
    for found, name in zip(cts, names_of(key, "ct"), strict=True):
        compare(found, name)


def by_vjp(call: Any, xs: Any) -> Any:
    def first(*xs: Any) -> Any:
        outs = call(*xs)
        return outs[0], outs

    _, pull, outs = func.vjp(first, *xs, has_aux=True)
    return outs, pull(cotangent(np.shape(outs[0])))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", CASES)
def test_as_pytorch(key: str) -> None:
    check(key, CASES[key], by_vjp)


def by_tensors(call: Any, xs: Any) -> Any:
    leaves = [ftrans.tensor(x, requires_grad=True) for x in xs]
    outs = call(*leaves)
    outs[0].backward(ftrans.tensor(cotangent(outs[0].shape)))
    cts = [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in leaves]
    return [x.detach().numpy() for x in outs], cts


def by_jit(call: Any, xs: Any) -> Any:
    return ftrans.jit(lambda *xs: by_vjp(call, xs))(*xs)


def first_of_each(names: str = "") -> list[str]:
    """Returns one case of each function that is differentiated: the last one, with most options."""
    found = {case.name: key for key, case in CASES.items() if case.smooth}
    return [key for name, key in found.items() if not names or name in names.split()]


@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", first_of_each())
def test_on_tensors(key: str) -> None:
    check(key, CASES[key], by_tensors)


COMPILED = """
    hardsigmoid conv2d max_pool2d avg_pool2d batch_norm cross_entropy ctc
    scaled_dot_product_attention
"""


@pytest.mark.parametrize("key", first_of_each(COMPILED))
def test_compiled(key: str) -> None:
    check(key, CASES[key], by_jit)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is broadcast against")
@pytest.mark.parametrize("key", list(CASES)[::3])
def test_cases_compiled(key: str) -> None:
    check(key, CASES[key], by_jit)


LEFT_OUT = {
    "inplace", "size_average", "reduce", "_stacklevel", "max_norm", "norm_type",
    "scale_grad_by_freq", "sparse", "out",
}  # fmt: skip
"""Arguments that are not there, see the reference."""


def plain(default: str | None) -> Any:
    """Returns a default as a value, where it is written as one."""
    try:
        return default if default is None else ast.literal_eval(default)
    except ValueError:
        return default


@pytest.mark.parametrize("name", sorted({*nn.__all__} - {"init"}))
def test_arguments_and_defaults_are_those_of_pytorch(name: str) -> None:
    more = {"rng", "chunk", "dropout_key"} | (set() if name.startswith("scaled") else {"key"})
    more |= {"divisor_override"} if name == "avg_pool1d" else set()
    ours = [
        (q.name, None if q.default is q.empty else q.default)
        for q in inspect.signature(getattr(nn, name)).parameters.values()
        if q.name not in more
    ]
    left_out = LEFT_OUT | ({"eps"} if name == "gumbel_softmax" else set())
    left_out = left_out - {"norm_type"} if name.startswith("lp_pool") else left_out
    theirs = [
        ("axis" if argument == "dim" else argument, plain(default))
        for argument, default in SIGNATURES[name]
        if argument not in left_out
    ]
    assert ours == theirs


@pytest.mark.parametrize("name", sorted(set(SIGNATURES) - set(nn.__all__)))
def test_what_is_left_out_says_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=r"(?s)ftrans.nn has no attribute.*\n  (Write|Draw) "):
        getattr(nn, name)
