"""Programs for PyTorch before 0.4: what has a meaning works, the rest says what to write."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans.autograd import Function, Variable, backward, grad
from ftrans.errors import ArgumentError, MissingAttributeError
from tests.helpers import assert_close


def leaf(*values: float) -> ftrans.Tensor:
    return ftrans.tensor(values, "float32", requires_grad=True)


# ---------------------------------------------------------------------------------------- Variable


def test_every_tensor_is_a_variable() -> None:
    assert isinstance(ftrans.tensor(1.0), Variable)
    assert isinstance(leaf(1) * 2, Variable)
    assert not isinstance(np.ones(1), Variable)
    assert type(Variable(ftrans.tensor(1.0))) is ftrans.Tensor


def test_a_variable_is_another_tensor_in_the_same_memory() -> None:
    x = leaf(1, 2)
    v = Variable(x * 1, requires_grad=True)
    assert v.is_leaf
    assert v.requires_grad
    (v * v).sum().backward()
    assert_close(v.grad, [2, 4])
    assert x.grad is None
    data = ftrans.tensor([1.0, 2.0])
    w = Variable(data)
    assert w is not data
    assert not w.requires_grad
    w.mul_(3)
    assert_close(data, [3, 6])


def test_what_a_variable_is_made_of() -> None:
    assert_close(Variable([1.0, 2.0]), [1, 2])
    assert_close(Variable(np.ones(2)), [1, 1])
    assert Variable().shape == (0,)
    with pytest.raises(TypeError, match="floating point"):
        Variable([1, 2], requires_grad=True)


def test_a_hook_on_a_variable() -> None:
    v = Variable([0.0, 0.0, 0.0], requires_grad=True)
    v.register_hook(lambda g: g * 2)
    v.backward(ftrans.tensor([1.0, 1.0, 1.0]))
    assert_close(v.grad, [2, 2, 2])


def test_volatile_means_nothing_and_says_so() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        v = Variable([1.0], volatile=True)
    assert not v.requires_grad
    with pytest.warns(UserWarning, match=r"x.volatile is always False"):
        assert v.volatile is False
    with pytest.warns(UserWarning, match="no_grad"):
        v.volatile = True
    with pytest.raises(ValueError, match="can't be volatile and require_grad at the same time!"):
        Variable([1.0], requires_grad=True, volatile=True)


def test_reinforce_says_what_to_write() -> None:
    x = leaf(0.5)
    with pytest.raises(RuntimeError, match=r"'reinforce'[^$]*It was removed") as caught:
        x.reinforce(1.0)
    assert isinstance(caught.value, MissingAttributeError)
    assert "(-log_prob * reward).sum().backward()" in str(caught.value)


# ----------------------------------------------------------------------------------------- backward


def test_old_names_of_the_arguments_of_backward() -> None:
    x = leaf(1, 2)
    y = x * x
    with pytest.warns(FutureWarning, match="`grad_variables` is deprecated. Use `grad_tensors`"):
        backward(y, grad_variables=ftrans.tensor([1.0, 1.0]), retain_graph=True)
    with pytest.warns(FutureWarning, match="`retain_variables` is deprecated. Use `retain_graph`"):
        backward(y, [ftrans.tensor([1.0, 1.0])], retain_variables=True)
    with pytest.warns(FutureWarning, match="retain_variables"):
        y.backward(ftrans.tensor([1.0, 1.0]), retain_variables=False)
    assert_close(x.grad, [6, 12])
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward(ftrans.tensor([1.0, 1.0]))


def test_one_argument_by_both_names() -> None:
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="grad_tensors and grad_variables"):
        backward(x, ftrans.tensor([1.0, 1.0]), grad_variables=ftrans.tensor([1.0, 1.0]))
    with pytest.raises(ArgumentError, match="retain_graph and retain_variables"):
        x.sum().backward(retain_graph=False, retain_variables=True)
    assert x.grad is None


def test_the_order_of_arguments_is_the_old_one() -> None:
    x = leaf(1, 2)
    backward([x * x], [ftrans.tensor([1.0, 1.0])], True, None)
    assert_close(x.grad, [2, 4])


def test_gradients_are_differentiable_by_create_graph_alone() -> None:
    p = leaf(1, 2)
    (g,) = grad(p**2, p, ftrans.tensor([1.0, 1.0], requires_grad=True))
    assert not g.requires_grad


SCRIPT = """
import ftrans
x = ftrans.tensor([1.0], requires_grad=True)
for _ in range(3):
    x.sum().backward(retain_variables=True)
x.sum().backward(retain_variables=True)
"""


def test_a_line_is_warned_of_once() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    lines = [line.split(": ")[0] for line in found.stderr.splitlines() if "Warning" in line]
    assert lines == ["<string>:5", "<string>:6"]


# ----------------------------------------------------------------------------------------- Function


def test_what_a_context_has() -> None:
    seen: list[Any] = []

    class Scale(Function):
        # as it was written before methods were static: `self` is the context
        def forward(self, x: Any) -> Any:
            self.save_for_backward(x)
            self.num_inputs = 7
            return x * 3

        def backward(self, ct: Any) -> Any:
            with pytest.warns(DeprecationWarning, match="saved_tensors"):
                seen.append(len(self.saved_variables))
            seen.extend([self.requires_grad, self.num_inputs, hasattr(self, "num_outputs")])
            return ct * 3

    assert_close(func.grad(lambda x: Scale.apply(x).sum())(np.ones(2)), [3, 3])
    assert seen[:4] == [1, True, 7, False]
    with pytest.raises(RuntimeError, match=r"Write Scale\.apply\(\.\.\.\)"), pytest.warns():
        Scale()(np.ones(2))
