"""What operations save: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import numpy as np
import pytest

from ftrans import Tensor
from tests.torch_suite.common import leaf, same, twice, unchanged

# ------------------------------------------------------------------------ hooks of one saved value


def test_saved_variable_packing_unpacking_saved_original_with_hooks() -> None:
    a = leaf([1.0, 2.0])
    y = a.pow(2)
    y.grad_fn._raw_saved_self.register_hooks(twice, twice)
    same(y.grad_fn._saved_self, [4.0, 8.0])
    y.sum().backward()
    same(a.grad, [8.0, 16.0])


def test_saved_variable_packing_unpacking_did_not_save_original_with_hooks() -> None:
    a = leaf([1.0, 2.0])
    y = a.exp()
    y.grad_fn._raw_saved_result.register_hooks(twice, twice)
    y.sum().backward()
    same(a.grad, 4 * np.exp([1.0, 2.0]))


def test_saved_variable_saved_original_inplace_detach() -> None:
    """PyTorch raises: Trying to use a saved tensor that has been detached in-place."""
    root = leaf(1.0)
    a = root.clone()
    y = a.sin()
    a.detach_()
    assert y.grad_fn._saved_self.item() == 1.0
    y.backward()
    same(root.grad, np.cos(1.0))


def test_saved_variable_version_counter() -> None:
    a = leaf([1.0, 2.0])
    b = a.exp()
    saved = b.grad_fn._saved_result
    assert b._version == saved._version == 0


def test_saved_original_is_the_tensor_itself() -> None:
    a = leaf([1.0, 2.0])
    y = a * 1
    z = y**2
    assert z.grad_fn._saved_self is y
    y.add_(1)
    saved = z.grad_fn._saved_self
    assert saved is not y
    same(saved, [1.0, 2.0])
    assert saved.grad_fn.name() == "MulBackward0"


def test_saved_result_has_the_node_that_saved_it() -> None:
    y = leaf([1.0, 2.0]).exp()
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn


def test_freed_saved_values_raise() -> None:
    y = leaf([1.0, 2.0]).pow(2)
    raw = y.grad_fn._raw_saved_self
    y.sum().backward()
    for read in (
        lambda: y.grad_fn._saved_self,
        raw.unpack,
        lambda: raw.register_hooks(unchanged, unchanged),
    ):
        with pytest.raises(RuntimeError, match="freed"):
            read()


def test_register_hooks_that_raise_leave_the_value() -> None:
    a = leaf([1.0, 2.0])
    y = a.exp()

    def wrong(value: Tensor) -> None:
        raise KeyError("pack")

    with pytest.raises(KeyError):
        y.grad_fn._raw_saved_result.register_hooks(wrong, unchanged)
    y.sum().backward()
    same(a.grad, np.exp([1.0, 2.0]))


def test_register_hooks_takes_functions() -> None:
    y = leaf([1.0, 2.0]).exp()
    with pytest.raises(TypeError):
        y.grad_fn._raw_saved_result.register_hooks(3, 4)


def test_hooks_of_a_result_at_two_backwards() -> None:
    a = leaf([1.0, 2.0])
    y = a.exp()
    y.grad_fn._raw_saved_result.register_hooks(twice, unchanged)
    y.sum().backward(retain_graph=True)
    same(a.grad, 2 * np.exp([1.0, 2.0]))
    y.sum().backward()
    same(a.grad, 4 * np.exp([1.0, 2.0]))
