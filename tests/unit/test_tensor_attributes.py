"""Attributes of tensors: `grad`, `requires_grad`, `is_leaf`, `data`, `detach`, versions, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from jax import numpy as jnp

import ftrans
from ftrans import Tensor, tensor
from ftrans.autograd import no_grad
from ftrans.errors import DTypeError, GraphError, MissingAttributeError, ShapeError
from ftrans.ir.dtype import bfloat16
from tests.helpers import assert_close


def leaf(value: Any, dtype: Any = "float64") -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, dtype), requires_grad=True)


def plain(value: Any) -> Tensor:
    """Returns a tensor that does not require grad."""
    return tensor(np.array(value, "float64"))


# ------------------------------------------------------------------------------ grad


def test_grad_is_none_before_the_first_backward() -> None:
    assert leaf([1, 2]).grad is None
    assert plain([1, 2]).grad is None


def test_grad_of_a_result_warns() -> None:
    y = leaf(1) * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert y.grad is None


def test_grad_of_a_result_that_retains_it_does_not_warn() -> None:
    y = leaf(1) * 2
    y.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y.grad is None


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((1, 2)), np.ones(2, "float32")])
def test_an_assigned_grad_has_the_type_of_its_tensor(wrong: Any) -> None:
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="a gradient has the type of its tensor"):
        x.grad = tensor(wrong)
    assert x.grad is None


@pytest.mark.parametrize("wrong", [1.0, np.ones(2), [1.0, 2.0]])
def test_an_assigned_grad_is_a_tensor(wrong: Any) -> None:
    x = leaf([1, 2])
    with pytest.raises(TypeError, match="a gradient is a tensor, or None"):
        x.grad = wrong


def test_grad_can_be_set_to_none() -> None:
    x = leaf([1, 2])
    x.sum().backward()
    x.grad = None
    (x * 3).sum().backward()
    assert_close(x.grad, [3.0, 3.0])


def test_grad_can_be_written_to() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward()
    x.grad.zero_()
    (x * 3).sum().backward()
    assert_close(x.grad, [3.0, 3.0])


def test_grad_can_be_clipped_in_place() -> None:
    x = leaf([1, 20])
    (x * x).sum().backward()
    x.grad.clamp_(-3, 3)
    assert_close(x.grad, [2.0, 3.0])


def test_grad_does_not_require_grad() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward()
    assert not x.grad.requires_grad
    assert x.grad.is_leaf


def test_grad_that_was_created_with_a_graph_requires_grad() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    assert not x.grad.is_leaf


def test_the_grad_of_a_grad() -> None:
    x = leaf(3)
    (x**3).backward(create_graph=True)
    x.grad.retain_grad()
    first = x.grad
    (first * first).backward(inputs=[first])
    assert_close(first.grad, 54.0)


# ------------------------------------------------------------------------------ requires_grad


def test_requires_grad_is_false_by_default() -> None:
    assert not plain(1).requires_grad
    assert not tensor([1.0]).requires_grad


def test_requires_grad_goes_to_results() -> None:
    x, y = leaf(1), plain(1)
    assert (x * y).requires_grad
    assert not (y * y).requires_grad
    assert not (x > y).requires_grad
    assert not x.long().requires_grad


def test_requires_grad_returns_the_tensor() -> None:
    x = plain([1, 2])
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert x.requires_grad_(False) is x
    assert not x.requires_grad


def test_requires_grad_can_be_assigned() -> None:
    x = plain([1, 2])
    x.requires_grad = True
    (x * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])
    x.requires_grad = False
    assert not (x * x).requires_grad


def test_requires_grad_of_a_result_cannot_be_taken_away() -> None:
    y = leaf(1) * 2
    with pytest.raises(RuntimeError, match="only leaves"):
        y.requires_grad_(False)
    assert y.requires_grad
    y.requires_grad_(True)
    assert not y.is_leaf


def test_requires_grad_after_use_counts_from_there_on() -> None:
    x = plain([1, 2])
    before = x * 5
    x.requires_grad_()
    (before * x).sum().backward()
    assert_close(x.grad, [5.0, 10.0])


@pytest.mark.parametrize("look", [True, False])
def test_requires_grad_of_what_was_computed(look: bool) -> None:
    x = plain([1, 2])
    y = x * 2
    if look:
        y.tolist()
    y.requires_grad_()
    assert y.is_leaf
    (y * y).sum().backward()
    assert_close(y.grad, [4.0, 8.0])


def test_requires_grad_of_what_was_computed_goes_to_results() -> None:
    y = plain([1, 2]) * 2
    y.requires_grad_()
    assert (y * y).requires_grad


@pytest.mark.parametrize(
    "write", [lambda x: x.mul_(2), lambda x: x.__setitem__(0, 2.0), lambda x: x.fill_(2.0)]
)
def test_requires_grad_of_what_was_written_to(write: Any) -> None:
    x = plain([1, 2])
    write(x)
    x.requires_grad_()
    w = leaf([3, 4])
    (x * w).sum().backward()
    assert_close(x.grad, [3.0, 4.0])


def test_requires_grad_of_a_pending_result_of_no_grad() -> None:
    x = leaf([1, 2])
    with no_grad():
        y = x * 2
    y.requires_grad_()
    (y * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])
    assert_close(y.grad, [1.0, 2.0])


def test_detach_and_requires_grad_make_a_leaf() -> None:
    x = leaf([1, 2])
    h = x * x
    d = h.detach().requires_grad_()
    (d * d).sum().backward()
    assert_close(d.grad, [2.0, 8.0])
    h.backward(d.grad)
    assert_close(x.grad, [4.0, 32.0])


def test_a_leaf_that_was_frozen_after_use_gets_no_gradient() -> None:
    x, w = leaf([1, 2]), leaf([3, 4])
    y = (x * w).sum()
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None
    assert_close(w.grad, [1.0, 2.0])


def test_freezing_keeps_others() -> None:
    x, w = leaf([1, 2]), leaf([3, 4])
    for _ in range(3):
        x.requires_grad_(False)
        (x * w).sum().backward()
        assert x.grad is None
        x.requires_grad_(True)
        (x * x).sum().backward()
        assert_close(x.grad, [2.0, 4.0])
        x.grad = None
    assert_close(w.grad, [3.0, 6.0])


def test_factories_in_no_grad_make_leaves() -> None:
    with no_grad():
        x = tensor([1.0, 2.0], requires_grad=True)
        assert x.requires_grad
    (x * x).sum().backward()
    assert_close(x.grad, np.array([2, 4], "float32"))


def test_requires_grad_of_a_view_of_a_constant() -> None:
    v = plain([1, 2])[0]
    v.requires_grad_()
    (v * v).backward()
    assert_close(v.grad, 2.0)


def test_views_that_were_made_before_do_not_require_grad() -> None:
    x = plain([1, 2])
    v = x[0]
    x.requires_grad_()
    assert not v.requires_grad
    assert not (v * 2).requires_grad


def test_a_detached_leaf_of_its_own_follows_its_base() -> None:
    x = leaf([1, 2])
    d = x.detach()
    d.tolist()
    d.requires_grad_()
    (d * d).sum().backward()
    with no_grad():
        x.mul_(10)
    (d * d).sum().backward()
    assert_close(d.grad, [22.0, 44.0])
    assert x.grad is None


def test_requires_grad_taken_away_while_it_is_pending() -> None:
    x = leaf([1, 2])
    with no_grad():
        x.mul_(2)
        x.requires_grad_(False)
    assert not (x * 3).requires_grad
    assert_close(x * 3, [6.0, 12.0])


def test_a_grad_that_is_pending_is_added_to() -> None:
    x = leaf([1, 2])
    x.grad = plain([1, 1]) * 2
    (x * 3).sum().backward()
    assert_close(x.grad, [5.0, 5.0])


# ------------------------------------------------------------------------------ is_leaf


def test_leaves() -> None:
    x = leaf(1)
    assert plain(1).is_leaf
    assert x.is_leaf
    assert not (x * 2).is_leaf
    assert x.detach().is_leaf
    assert (plain(1) * 2).is_leaf


def test_leaves_after_they_were_looked_at() -> None:
    x = leaf(1)
    y, z = x * 2, plain(1) * 2
    y.item()
    z.item()
    assert not y.is_leaf
    assert z.is_leaf


def test_views_of_leaves_are_no_leaves() -> None:
    x = leaf([1, 2])
    assert not x[0].is_leaf
    assert not x.view(2).is_leaf
    assert not x.reshape(2).is_leaf
    assert not x.T.is_leaf


def test_what_was_written_to_is_no_leaf() -> None:
    x, b = leaf(2), plain([0, 0])
    assert b.is_leaf
    b[0] = x
    assert not b.is_leaf
    assert b.requires_grad


# ------------------------------------------------------------------------------ detach


def test_detach_shares_memory() -> None:
    t = leaf([1, 1]) * 1
    d = t.detach()
    d.add_(5)
    assert_close(t.detach(), [6.0, 6.0])
    assert not d.requires_grad
    t.mul_(2)
    assert_close(d, [12.0, 12.0])


def test_detach_of_a_leaf_may_be_written_to() -> None:
    x = leaf([1, 2])
    x.detach().mul_(3)
    assert x.is_leaf
    (x * x).sum().backward()
    assert_close(x.grad, [6.0, 12.0])


def test_gradients_do_not_go_through_detach() -> None:
    x = leaf([1, 2])
    h = x * x
    (h * h.detach()).sum().backward()
    assert_close(x.grad, 2 * np.array([1.0, 8.0]))


def test_detach_of_detach() -> None:
    x = leaf([1, 2]) * 1
    d = x.detach().detach()
    d.zero_()
    assert_close(x.detach(), [0.0, 0.0])


def test_detach_in_place_makes_a_leaf() -> None:
    x = leaf([1, 2])
    y = x * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    (y * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])


def test_detach_in_place_leaves_what_was_computed_before() -> None:
    x = leaf([1, 2])
    y = x * 2
    z = y * 3
    y.detach_()
    (y * z).sum().backward()
    assert_close(x.grad, [12.0, 24.0])


def test_detach_in_place_of_a_leaf() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    x.detach_()
    assert not x.requires_grad
    assert y.requires_grad


def test_views_cannot_be_detached_in_place() -> None:
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (x * 1)[0].detach_()


def test_truncated_backpropagation() -> None:
    w, h = leaf(2), plain(1)
    for _ in range(3):
        h = (h * w).detach_() if h.requires_grad else h * w
    (h * w).backward()
    # h = w, then w * w without history, then that times w
    assert_close(w.grad, 2 * 4.0 * 2)


# ------------------------------------------------------------------------------ data


@pytest.mark.parametrize("value", [[1.0, 2.0], [0.0, -3.0]])
def test_writing_to_data_does_not_falsify_gradients(value: list[float]) -> None:
    a = leaf(value)
    s = a * 1
    z = s * s
    s.data.add_(1)
    z.sum().backward()
    assert_close(a.grad, 2 * np.array(value))
    assert_close(s.detach(), np.array(value) + 1)


def test_writing_to_data_of_a_leaf() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    x.data.mul_(10)
    y.backward()
    assert_close(x.grad, [2.0, 4.0])
    x.grad = None
    (x * x).sum().backward()
    assert_close(x.grad, [20.0, 40.0])


def test_data_can_be_assigned() -> None:
    x = leaf([1, 2])
    x.data = plain([5, 6])
    assert x.is_leaf
    assert x.requires_grad
    (x * x).sum().backward()
    assert_close(x.grad, [10.0, 12.0])


def test_data_that_is_assigned_may_be_of_another_shape_where_a_leaf_is() -> None:
    x = leaf([1, 2])
    y = x * 2
    x.data = plain([5, 6, 7])
    (x * x).sum().backward()
    assert_close(x.grad, [10.0, 12.0, 14.0])
    with pytest.raises(ShapeError, match=r"f64\[3\]"):
        y.data = plain([5, 6, 7])


def test_data_that_is_assigned_leaves_other_names_what_they_are() -> None:
    x, y = leaf([1, 2]), leaf([3, 4])
    backup, part = x.data, x[:1]
    x.data = y.data
    assert_close(backup, [1.0, 2.0])
    assert_close(part.detach(), [1.0])
    x.data = backup
    assert_close(x.detach(), [1.0, 2.0])
    x.data, y.data = y.data, x.data
    assert_close(x.detach(), [3.0, 4.0])
    assert_close(y.detach(), [1.0, 2.0])
    (x * y).sum().backward()
    assert_close(x.grad, [1.0, 2.0])


def test_data_of_a_view_that_is_not_to_be_written_to_can_be_assigned() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    row = x.unbind()[0]
    row.data = tensor([5.0, 6.0], dtype="float64")
    assert row.tolist() == [5.0, 6.0]
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_data_of_integers_have_no_gradients() -> None:
    x = leaf([1.0])
    with pytest.raises(DTypeError, match=r"only floating point(.|\n)*value: i32\[1\]"):
        x.data = tensor([1], dtype="int32")
    assert x.tolist() == [1.0]


def test_a_tensor_has_attributes_of_the_users() -> None:
    x = leaf([1.0])
    x.rate = 0.1
    assert x.rate == 0.1
    with pytest.raises(AttributeError, match="no attribute 'momentum'"):
        _ = x.momentum
    assert not hasattr(x * 2, "rate")
    x.names = ["a"]
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (y.rate, y.names) == (0.1, ["a"])
        assert y.names is not x.names


def test_an_array_is_given_where_no_gradients_are_recorded() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(GraphError, match=r"Can't call numpy\(\)"):
        x.numpy()
    with no_grad():
        assert x.numpy().tolist() == np.asarray(x).tolist() == [1.0, 2.0]


def test_data_that_is_no_tensor_is_refused() -> None:
    x = leaf([1, 2])
    with pytest.raises(ftrans.FtransError, match="tensor"):
        x.data = np.ones(2)


def test_an_update_through_data() -> None:
    x = leaf([1, 2])
    for _ in range(20):
        (x * x).sum().backward()
        x.data -= 0.1 * x.grad.data
        x.grad.data.zero_()
    assert_close(x.detach(), 0.8**20 * np.array([1.0, 2.0]))


# ------------------------------------------------------------------------------ versions


def test_versions_count_writes() -> None:
    b = leaf([1, 2]) * 1
    assert b._version == 0
    b.add_(1)
    assert b._version == 1
    b[0] = 3.0
    assert b._version == 2


def test_versions_are_shared_by_views() -> None:
    w = plain([[1, 2], [3, 4]])
    v = w[0]
    w.mul_(3)
    assert (w._version, v._version) == (1, 1)
    v.add_(1)
    assert (w._version, v._version) == (2, 2)
    assert w.detach()._version == 2


def test_versions_of_copies_are_their_own() -> None:
    w = plain([1, 2])
    c = w.clone()
    c.add_(1)
    assert (w._version, c._version) == (0, 1)


def test_a_write_that_failed_is_not_counted() -> None:
    x = leaf([1, 2])
    with pytest.raises(GraphError):
        x.add_(1)
    assert x._version == 0
    y = x * 1
    with pytest.raises(ShapeError):
        y.add_(np.ones((3, 2)))
    assert y._version == 0


# ------------------------------------------------------------------------------ retain_grad


@pytest.mark.parametrize("look", [False, True])
def test_retain_grad_keeps_and_accumulates(look: bool) -> None:
    inp = leaf([1, 2])
    h1 = 3 * inp
    if look:
        h1.tolist()
    h1.retain_grad()
    h1.retain_grad()
    assert h1.retains_grad
    out = (h1 * h1).sum()
    out.backward(retain_graph=True)
    assert_close(h1.grad, [6.0, 12.0])
    out.backward()
    assert_close(h1.grad, [12.0, 24.0])
    assert_close(inp.grad, 36 * np.array([1.0, 2.0]))


def test_retain_grad_of_a_leaf_does_nothing() -> None:
    x = leaf([1, 2])
    x.retain_grad()
    assert not x.retains_grad
    x.sum().backward()
    assert_close(x.grad, [1.0, 1.0])


def test_retain_grad_needs_requires_grad() -> None:
    with pytest.raises(RuntimeError, match="can't retain_grad on Tensor"):
        plain(1).retain_grad()


def test_retain_grad_after_it_was_used() -> None:
    x = leaf([1, 2])
    h = x * x
    y = (h * h).sum()
    y.item()
    h.retain_grad()
    y.backward()
    assert_close(h.grad, [2.0, 8.0])


def test_retain_grad_of_a_tensor_and_its_view() -> None:
    x = leaf([1, 2])
    h = x * 2
    v = h.view(2)
    h.retain_grad()
    v.retain_grad()
    (h * h + v).sum().backward()
    assert_close(h.grad, [5.0, 9.0])
    assert_close(v.grad, [1.0, 1.0])


def test_retain_grad_of_what_is_dropped_is_no_error() -> None:
    x = leaf([1, 2])
    h = x * x
    h.retain_grad()
    y = h.sum()
    del h
    y.backward()
    assert_close(x.grad, [2.0, 4.0])


# ------------------------------------------------------------------------------ copies, values


def test_numpy_of_what_requires_grad_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        leaf(1).numpy()
    with pytest.raises(GraphError, match=r"x\.detach\(\)\.numpy\(\)"):
        np.asarray(leaf(1) * 2)


def test_numpy_does_not_change_with_the_tensor() -> None:
    x = plain([1, 2])
    array = x.numpy()
    x.add_(1)
    assert_close(array, [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5


def test_arrays_are_copied() -> None:
    array = np.ones(2)
    x = tensor(array, requires_grad=True)
    y = x * array
    array[:] = 7
    assert_close(x.detach(), [1.0, 1.0])
    y.sum().backward()
    assert_close(x.grad, [1.0, 1.0])


def test_deepcopy_of_a_leaf() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.requires_grad
    assert y.is_leaf
    assert_close(y.grad, [2.0, 4.0])
    with no_grad():
        y.zero_()
    assert_close(x.detach(), [1.0, 2.0])


def test_deepcopy_copies_the_gradient() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    (y * 3).sum().backward()
    assert_close(x.grad, [2.0, 4.0])


def test_deepcopy_keeps_what_is_shared() -> None:
    x = leaf([1, 2])
    a, b = copy.deepcopy([x, x])
    assert a is b


def test_deepcopy_of_a_result_is_refused() -> None:
    with pytest.raises(GraphError, match="Only leaves can be"):
        copy.deepcopy(leaf(1) * 2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool", "complex64", bfloat16])
def test_pickle_keeps_values_and_types(dtype: Any) -> None:
    x = tensor(np.array([0, 1], dtype))
    y = pickle.loads(pickle.dumps(x))
    assert y.dtype == x.dtype
    assert_close(y, np.array([0, 1], dtype))


def test_an_array_of_jax_stays_one() -> None:
    x = tensor(jnp.array([1.0, 2.0]), requires_grad=True)
    (x * x).sum().backward()
    assert_close(x.grad, np.array([2, 4], "float32"))


def test_identity_is_what_tensors_are_hashed_by() -> None:
    x, y = leaf([1, 2]), leaf([1, 2])
    assert len({x, y, x}) == 2
    x.sum().backward()
    assert x in {x: 1}


def test_a_text_says_that_grad_is_required() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x.detach()) == "tensor([1., 2.])"


def test_tensor_of_tensors_and_numbers_has_the_dtype_of_the_tensors() -> None:
    """PyTorch: torch.tensor([torch.tensor(1.0), 2.0]).dtype is torch.float32."""
    half = tensor(1.0, dtype="float16", requires_grad=True)
    made = tensor([tensor(1.0), 2.0])
    assert made.dtype == np.float32
    assert made.tolist() == [1.0, 2.0]
    assert tensor([tensor(1.0, dtype="float64"), 2.0]).dtype == np.float64
    assert tensor([[half, 2.0], [3.0, half]]).is_leaf


def test_divmod_is_that_of_numpy_with_its_derivative() -> None:
    x = tensor([5.0, -7.0], requires_grad=True)
    quotient, rest = divmod(x, 3.0)
    want = np.divmod(np.array([5.0, -7.0]), 3.0)
    assert quotient.tolist() == want[0].tolist()
    assert rest.tolist() == want[1].tolist()
    (quotient + rest).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_tensors_are_exported_by_dlpack() -> None:
    x = tensor([1.0, 2.0])
    array = np.from_dlpack(x)
    assert array.tolist() == [1.0, 2.0]
    array[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    assert jnp.from_dlpack(x).tolist() == [1.0, 2.0]
    with pytest.raises(GraphError, match="requires grad"):
        np.from_dlpack(tensor([1.0], requires_grad=True))


def test_strides_are_declined() -> None:
    with pytest.raises(MissingAttributeError, match=r"no strides\. Write x\[\.\.\.\]"):
        tensor([1.0]).as_strided((1,), (1,))


def test_functions_by_the_names_of_old_bases() -> None:
    from ftrans.autograd.function import Function, InplaceFunction, NestedIOFunction

    class Twice(NestedIOFunction):
        @staticmethod
        def forward(ctx: Any, pair: Any) -> Any:
            return {"sum": pair[0] + pair[1]}

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            return ((ct["sum"], 2 * ct["sum"]),)

    assert issubclass(InplaceFunction, Function)
    x, y = tensor([1.0], requires_grad=True), tensor([2.0], requires_grad=True)
    Twice.apply((x, y))["sum"].sum().backward()
    assert (x.grad.item(), y.grad.item()) == (1.0, 2.0)
