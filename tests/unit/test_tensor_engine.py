"""`backward` and `grad` of tensors: every argument, what is accumulated, what is refused."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor, autograd, func, tensor
from ftrans.autograd import backward, grad, no_grad
from ftrans.errors import ArgumentError, DTypeError, GraphError, ShapeError
from ftrans.ir.dtype import bfloat16
from tests.helpers import assert_close

REAL = ["float16", "float32", "float64", bfloat16]
COMPLEX = ["complex64", "complex128"]


def leaf(value: Any, dtype: Any = "float64") -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, dtype), requires_grad=True)


def plain(value: Any) -> Tensor:
    """Returns a tensor that does not require grad."""
    return tensor(np.array(value, "float64"))


# ------------------------------------------------------------------------------ backward


def test_backward_of_several_tensors_adds_up() -> None:
    x, y, a, b, q = leaf([1, 2]), leaf([3, 4]), leaf([5, 6]), leaf([7, 8]), leaf([9, 10])
    z, c = x + y, a * b + 2 * q
    gz, gc_ = plain([1, -1]), plain([2, 3])
    backward([z, c], [gz, gc_])
    assert_close(x.grad, [1.0, -1.0])
    assert_close(y.grad, [1.0, -1.0])
    assert_close(a.grad, [14.0, 24.0])
    assert_close(b.grad, [10.0, 18.0])
    assert_close(q.grad, [4.0, 6.0])


def test_backward_of_values_that_use_each_other() -> None:
    x, y, q = leaf([1, 2]), leaf([3, 4]), leaf([5, 6])
    z = x + y
    c = z * z + 2 * q
    gz, gc_ = np.array([1.0, -1.0]), np.array([2.0, 3.0])
    backward([z, c], [plain(gz), plain(gc_)])
    assert_close(x.grad, gz + gc_ * 2 * (np.array([4.0, 6.0])))
    assert_close(q.grad, 2 * gc_)


def test_a_root_twice_counts_twice() -> None:
    x = leaf(3)
    y = x * x
    backward([y, y])
    assert_close(x.grad, 12.0)


def test_inputs_alone_are_accumulated_into() -> None:
    x, y = leaf(2), leaf(3)
    backward(x * y, inputs=[x])
    assert_close(x.grad, 3.0)
    assert y.grad is None


def test_inputs_may_be_one_tensor() -> None:
    x = leaf(2)
    backward(3 * x, inputs=x)
    assert_close(x.grad, 3.0)


@pytest.mark.parametrize("mapping", [dict, OrderedDict])
def test_inputs_may_be_a_mapping(mapping: Any) -> None:
    x, y = leaf(2), leaf(5)
    backward(3 * x * y, inputs=mapping({"a": x}))
    assert_close(x.grad, 15.0)
    assert y.grad is None


def test_inputs_that_are_not_used_are_skipped() -> None:
    x, other = leaf(2), leaf(1)
    backward(x * x, inputs=[x, other])
    assert_close(x.grad, 4.0)
    assert other.grad is None


def test_inputs_that_are_not_used_alone_are_skipped() -> None:
    x, other = leaf(2), leaf(1)
    backward(x * x, inputs=[other])
    assert x.grad is None
    assert other.grad is None


def test_an_input_twice_is_accumulated_once() -> None:
    x = leaf(2)
    backward(x * x, inputs=[x, x])
    assert_close(x.grad, 4.0)


def test_inputs_may_not_be_empty() -> None:
    x = leaf(2)
    with pytest.raises(GraphError, match="cannot be empty"):
        backward(3 * x, inputs=[])


def test_inputs_may_be_results() -> None:
    x = leaf(2)
    h = x * x
    backward(h * 3, inputs=[h])
    assert x.grad is None
    assert_close(h.grad, 3.0)


def test_inputs_may_be_results_and_what_lies_behind() -> None:
    x = leaf(2)
    h = x * x
    backward(h * 3, inputs=[h, x])
    assert_close(x.grad, 12.0)


def test_what_is_no_scalar_needs_a_gradient() -> None:
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
        (x * x).backward()
    assert x.grad is None


def test_the_error_names_the_type() -> None:
    x = leaf([1, 2])
    with pytest.raises(GraphError, match=r"output 0: f64\[2\]"):
        (x * x).backward()


def test_one_element_of_any_rank_needs_no_gradient() -> None:
    x = leaf([[3.0]])
    (x * x).backward()
    assert_close(x.grad, [[6.0]])


def test_nothing_is_no_scalar() -> None:
    x = leaf(np.zeros((0,)))
    with pytest.raises(GraphError, match="scalar outputs"):
        (x * x).backward()


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_complex_scalar_needs_a_gradient(dtype: str) -> None:
    x = leaf([1 + 2j], dtype)
    with pytest.raises(RuntimeError, match=f"real scalar outputs but got {dtype}"):
        (x * x).backward()


def test_gradients_accumulate() -> None:
    a = leaf(2)
    b = a * a
    b.backward(retain_graph=True)
    b.backward()
    assert_close(a.grad, 8.0)


def test_gradients_of_separate_graphs_accumulate() -> None:
    a = leaf(2)
    for _ in range(3):
        (a * a).backward()
    assert_close(a.grad, 12.0)


def test_a_graph_is_used_once() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        y.backward()
    assert_close(x.grad, [2.0, 4.0])


def test_the_error_names_the_line_that_freed_the_graph() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    y.backward()
    with pytest.raises(GraphError, match=r"freed by backward\(\) at .*test_tensor_engine"):
        y.backward()


def test_a_graph_that_was_looked_at_is_used_once() -> None:
    x = leaf([1, 2])
    y = (x * x).sum()
    y.item()
    y.backward()
    with pytest.raises(GraphError, match="second time"):
        y.backward()


def test_retain_graph_as_often_as_asked() -> None:
    x = leaf(3)
    y = x * x
    for _ in range(4):
        y.backward(retain_graph=True)
    y.backward()
    assert_close(x.grad, 30.0)
    with pytest.raises(GraphError, match="second time"):
        y.backward()


def test_retain_graph_false_with_create_graph() -> None:
    x = leaf(3)
    y = x**3
    y.backward(create_graph=True, retain_graph=False)
    assert_close(x.grad.detach(), 27.0)
    with pytest.raises(GraphError, match="second time"):
        y.backward()


def test_a_trunk_that_was_freed_says_so() -> None:
    x = leaf([1, 2])
    h = x * x
    h.sum().backward()
    with pytest.raises(GraphError, match="second time"):
        (h * 3).sum().backward()


def test_a_trunk_that_was_freed_says_so_in_grad() -> None:
    x = leaf([1, 2])
    h = x * x
    h.sum().backward()
    with pytest.raises(GraphError, match="second time"):
        grad((h * 3).sum(), x)


def test_a_trunk_that_was_freed_is_not_zero() -> None:
    x = leaf([1, 2])
    h = x * x
    h.sum().backward()
    with pytest.raises(GraphError, match="second time"):
        grad((h * 3).sum(), x, materialize_grads=True)


def test_a_trunk_that_was_freed_says_so_with_inputs() -> None:
    x = leaf([1, 2])
    h = x * x
    h.sum().backward()
    with pytest.raises(GraphError, match="second time"):
        backward((h * 3).sum(), inputs=[x])


@pytest.mark.parametrize("look", [False, True])
def test_two_losses_share_a_trunk(look: bool) -> None:
    x = leaf([1, 2])
    h = x * x
    first, second = (h * h).sum(), (h * 5).sum()
    if look:
        first.item()
    first.backward(retain_graph=True)
    second.backward()
    assert_close(x.grad, 4 * np.array([1.0, 8.0]) + 10 * np.array([1.0, 2.0]))


@pytest.mark.parametrize("look", [False, True])
def test_two_losses_that_share_nothing_but_a_leaf(look: bool) -> None:
    x = leaf([1, 2])
    first, second = (x * x).sum(), (x**3).sum()
    if look:
        second.item()
    first.backward()
    second.backward()
    assert_close(x.grad, np.array([2.0, 4.0]) + 3 * np.array([1.0, 4.0]))


def test_create_graph_gives_the_product_with_the_hessian() -> None:
    x, y = leaf([1, 2]), leaf([3, 4])
    z = x**2 + x * y + y**2
    z.backward(plain([1, 1]), create_graph=True)
    assert_close(x.grad.detach(), [5.0, 8.0])
    assert_close(y.grad.detach(), [7.0, 10.0])
    (2 * x.grad + y.grad).backward(plain([1, 1]))
    # twice the second derivatives, and the mixed one, are added
    assert_close(x.grad.detach(), [5.0 + 5.0, 8.0 + 5.0])
    assert_close(y.grad.detach(), [7.0 + 4.0, 10.0 + 4.0])


def test_gradients_are_accumulated_in_place() -> None:
    p = leaf([1, 2])
    (3 * p).sum().backward()
    first = p.grad
    (3 * p).sum().backward()
    assert p.grad is first
    assert_close(first, [6.0, 6.0])


def test_create_graph_replaces_gradients() -> None:
    p = leaf([1, 2])
    (6 * p).sum().backward()
    first = p.grad
    (p**2).sum().backward(create_graph=True)
    assert p.grad is not first
    assert_close(p.grad.detach(), [8.0, 10.0])
    assert_close(first, [6.0, 6.0])


def test_a_gradient_that_was_assigned_is_added_to() -> None:
    p = leaf([1, 2])
    given = plain([10, 20])
    p.grad = given
    (3 * p).sum().backward()
    assert p.grad is given
    assert_close(given, [13.0, 23.0])


@pytest.mark.parametrize("view", [lambda g: g.detach(), lambda g: g[:], lambda g: g.view(2)])
def test_views_of_a_gradient_follow_it(view: Any) -> None:
    p = leaf([1, 2])
    (3 * p).sum().backward()
    seen = view(p.grad)
    (3 * p).sum().backward()
    assert_close(seen, [6.0, 6.0])


def test_gradients_accumulate_in_a_flat_buffer() -> None:
    p, q = leaf([1, 2]), leaf([3, 4])
    flat = plain(np.zeros(4))
    p.grad, q.grad = flat[:2], flat[2:]
    (3 * p + p * q).sum().backward()
    assert_close(flat, [6.0, 7.0, 1.0, 2.0])


def test_a_gradient_is_not_the_one_that_was_given() -> None:
    x, given = leaf([1, 2]), plain([1, 1])
    x.backward(given)
    x.grad.zero_()
    assert_close(given, [1.0, 1.0])


def test_a_gradient_is_not_the_one_that_was_given_to_create_graph() -> None:
    x, given = leaf([1, 2]), plain([1, 1])
    x.backward(given, create_graph=True)
    x.grad.zero_()
    assert_close(given, [1.0, 1.0])


@pytest.mark.parametrize("create", [False, True])
def test_two_leaves_do_not_share_a_gradient(create: bool) -> None:
    x, y = leaf([1, 2]), leaf([3, 4])
    (x + y).sum().backward(create_graph=create)
    with no_grad():
        x.grad.zero_()
    assert_close(y.grad.detach(), [1.0, 1.0])


def test_a_leaf_is_a_root() -> None:
    x = leaf(3)
    x.backward()
    assert_close(x.grad, 1.0)
    x.backward()
    assert_close(x.grad, 2.0)


def test_backward_as_a_method_takes_all_arguments() -> None:
    x, y = leaf([1, 2]), leaf([3, 4])
    (x**2 * y).backward(gradient_of(x), True, False, inputs=x)
    assert_close(x.grad, [6.0, 16.0])
    assert y.grad is None


def gradient_of(x: Tensor) -> Tensor:
    """Returns ones of the shape of a tensor."""
    return plain(np.ones(x.shape))


def test_the_argument_of_the_method_is_called_gradient() -> None:
    x = leaf([1, 2])
    (x**2).backward(gradient=plain([1, 10]))
    assert_close(x.grad, [2.0, 40.0])


def test_the_fourth_argument_of_the_method_is_inputs() -> None:
    x, y = leaf(2), leaf(3)
    (x * y).backward(None, None, False, [x])
    assert_close(x.grad, 3.0)
    assert y.grad is None


def test_grad_variables_is_the_old_name() -> None:
    x = leaf([1, 2])
    with pytest.warns(FutureWarning, match="Use `grad_tensors` instead"):
        backward(x * x, grad_variables=plain([1, 1]))
    assert_close(x.grad, [2.0, 4.0])
    with pytest.raises(ArgumentError, match="grad_variables"):
        backward(x * x, plain([1, 1]), grad_variables=plain([1, 1]))


def test_there_is_one_gradient_for_each_root() -> None:
    x = leaf([1, 2])
    with pytest.raises(ArgumentError, match="one gradient for each output"):
        backward([x * x, x], [plain([1, 1])])


def test_none_stands_for_one() -> None:
    x = leaf(2)
    backward([x * x, x * 3], [None, plain(10)])
    assert_close(x.grad, 34.0)


# ------------------------------------------------------------------------------ grad


def test_grad_of_several_outputs_is_of_their_sum() -> None:
    p = leaf([1, 2])
    (found,) = grad([p.sum(), (p**2).sum()], p)
    assert_close(found, [3.0, 5.0])
    assert p.grad is None


def test_grad_with_a_dict_returns_a_dict() -> None:
    x = leaf(3)
    found = grad(x * x, {"a": x})
    assert set(found) == {"a"}
    assert_close(found["a"], 6.0)


def test_grad_with_a_sequence_returns_a_tuple() -> None:
    x, y = leaf(3), leaf(5)
    for inputs in ([x, y], (x, y)):
        found = grad(x * y, inputs)
        assert type(found) is tuple
        assert_close(found[0], 5.0)
        assert_close(found[1], 3.0)


def test_grad_of_outputs_in_a_dict() -> None:
    x = leaf(3)
    (found,) = grad({"a": x * x, "b": 2 * x}, x, {"a": plain(1), "b": plain(10)})
    assert_close(found, 26.0)


def test_inputs_in_another_order_give_gradients_in_that() -> None:
    x, y, z = leaf(2), leaf(3), leaf(5)
    found = grad(x * y * z, [z, x, y])
    assert [g.item() for g in found] == [6.0, 15.0, 10.0]


def test_an_input_twice_gives_its_gradient_twice() -> None:
    x = leaf(3)
    found = grad(x * x, [x, x])
    assert [g.item() for g in found] == [6.0, 6.0]


def test_an_unused_input_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="at index 0, appears to not have been used"):
        grad(2 * leaf(1), leaf(1))


def test_the_error_names_the_index() -> None:
    x = leaf(1)
    with pytest.raises(GraphError, match=r"(?s)index 1.*Set allow_unused=True.*input 1: f64\[2\]"):
        grad(2 * x, [x, leaf([1, 2])])


def test_allow_unused_gives_none() -> None:
    assert grad(2 * leaf(1), leaf(1), allow_unused=True) == (None,)


def test_an_unused_input_after_the_error_can_be_asked_again() -> None:
    x, y = leaf(1), leaf(1)
    z = x * 2
    with pytest.raises(GraphError, match="allow_unused"):
        grad(z, y, retain_graph=True)
    assert_close(grad(z, x)[0], 2.0)


def test_materialize_grads_gives_zeros() -> None:
    x, a = leaf(2), leaf(3)
    y = x * a
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True, materialize_grads=True)
    assert_close(second.detach(), 0.0)


def test_zeros_that_were_made_with_create_graph_can_be_differentiated() -> None:
    x, a = leaf(2), leaf(3)
    (first,) = grad(x * a, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True, materialize_grads=True)
    (third,) = grad(second, x, create_graph=True, materialize_grads=True)
    assert_close(third.detach(), 0.0)


def test_zeros_have_the_type_of_the_input() -> None:
    x, unused = leaf(2), leaf([[1, 2, 3]], "float32")
    found = grad(x * x, [x, unused], materialize_grads=True)
    assert found[1].dtype == np.float32
    assert_close(found[1], np.zeros((1, 3), "float32"))
    assert not found[1].requires_grad


def test_materialize_grads_contradicts_allow_unused_false() -> None:
    x = leaf(1)
    with pytest.raises(ValueError, match="Expected allow_unused to be True"):
        grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_batched_gradients() -> None:
    a = leaf([1, 2])
    (found,) = grad(a**2, a, plain(np.eye(2)), is_grads_batched=True)
    assert_close(found, [[2.0, 0.0], [0.0, 4.0]])


def test_batched_gradients_through_what_was_looked_at() -> None:
    a = leaf([1, 2])
    h = a**2
    h.tolist()
    y = h.sum() * h
    (found,) = grad(y, a, plain(np.eye(2)), is_grads_batched=True)
    expected = func.jacrev(lambda a: (a**2).sum() * a**2)(np.array([1.0, 2.0]))
    assert_close(found, expected)


def test_batched_gradients_are_differentiated() -> None:
    a = leaf([1, 2])
    (jacobian,) = grad(a**3, a, plain(np.eye(2)), is_grads_batched=True, create_graph=True)
    (found,) = grad(jacobian.sum(), a)
    assert_close(found, 6 * np.array([1.0, 2.0]))


def test_batched_gradients_need_an_axis() -> None:
    a = leaf(2)
    with pytest.raises(ShapeError, match="axis in front"):
        grad(a**2, a, plain(1), is_grads_batched=True)


def test_batched_gradients_of_several_outputs() -> None:
    a = leaf([1, 2])
    seeds = [plain(np.eye(2)), plain([10, 20])]
    (found,) = grad([a**2, a.sum()], a, seeds, is_grads_batched=True)
    assert_close(found, [[12.0, 10.0], [20.0, 24.0]])


def test_a_batch_of_no_gradients() -> None:
    a = leaf([1, 2])
    (found,) = grad(a**2, a, plain(np.zeros((0, 2))), is_grads_batched=True)
    assert found.shape == (0, 2)


def test_only_inputs_false_warns_once() -> None:
    x, y = leaf(3), leaf(4)
    with pytest.warns(FutureWarning, match="only_inputs") as caught:
        (found,) = grad(x * y, x, only_inputs=False)
    assert len(caught) == 1
    assert_close(found, 4.0)
    assert y.grad is None


def test_the_shape_of_a_gradient_is_that_of_the_output() -> None:
    x = leaf([1, 2])
    with pytest.raises(ShapeError, match=r"Mismatch in shape: grad_output\[0\]"):
        grad(2 * x, x, plain(np.ones(3)))


def test_a_gradient_is_not_broadcast() -> None:
    x = leaf([1, 2])
    with pytest.raises(ShapeError, match=r"Mismatch in shape"):
        (x * x).backward(plain(1))


def test_after_a_wrong_shape_the_graph_can_be_used() -> None:
    x = leaf([1, 2])
    y = x * x
    with pytest.raises(ShapeError):
        y.backward(plain(np.ones(3)))
    y.backward(plain(np.ones(2)))
    assert_close(x.grad, [2.0, 4.0])


def test_a_complex_gradient_of_a_real_output_is_refused() -> None:
    x = leaf([1, 2])
    with pytest.raises(DTypeError, match="For complex Tensors"):
        grad(2 * x, x, tensor(np.ones(2, complex)))


def test_a_real_gradient_of_a_complex_output_is_refused() -> None:
    x = leaf([1, 2], "complex128")
    with pytest.raises(DTypeError, match="For complex Tensors"):
        grad(2 * x, x, plain(np.ones(2)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: plain([1.0]),
        lambda: leaf([1.0]).detach(),
        lambda: tensor(np.array([1])),
        lambda: leaf([1.0]) > 0,
        lambda: leaf([1.0]).long(),
    ],
)
def test_what_does_not_require_grad_is_no_root(make: Any) -> None:
    message = "element 0 of tensors does not require grad and does not have a grad_fn"
    with pytest.raises(RuntimeError, match=message):
        make().backward()


def test_what_was_made_under_no_grad_is_no_root() -> None:
    x = leaf(1)
    with no_grad():
        y = x * x
    with pytest.raises(GraphError, match="element 1 of tensors does not require grad"):
        backward([x * 2, y])


def test_an_input_must_require_grad() -> None:
    x, y = leaf(1), plain(1)
    with pytest.raises(RuntimeError, match="One of the differentiated Tensors does not require"):
        grad(x * y, y)


@pytest.mark.parametrize("call", [backward, lambda x: grad(x, x)])
def test_what_is_no_tensor_is_refused(call: Any) -> None:
    with pytest.raises(FtransErrors):
        call(np.ones(1))


FtransErrors = (ArgumentError, GraphError)


def test_inside_a_transform_there_is_no_graph() -> None:
    x = leaf(1)

    def f(y: Any) -> Any:
        (x * x).backward()
        return y

    with pytest.raises(GraphError, match="inside a transform"):
        func.grad(f)(np.ones(()))
    assert x.grad is None
    (x * x).backward()
    assert_close(x.grad, 2.0)


# ------------------------------------------------------------------------------ dtypes, shapes


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_gradients_have_the_dtype_of_their_leaf(dtype: Any) -> None:
    x = leaf([1, 2], dtype)
    (x * x).backward(tensor(np.ones(2, dtype)))
    assert x.grad.dtype == np.dtype(dtype)
    assert_close(x.grad, np.array([2, 4], dtype))


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_gradients_through_a_conversion(dtype: Any) -> None:
    x = leaf([1, 2], dtype)
    y = x.to("complex128")
    (y * y).real.sum().backward()
    assert x.grad.dtype == np.dtype(dtype)
    assert_close(x.grad, np.array([2, 4], dtype))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool"])
def test_integers_may_not_require_grad(dtype: str) -> None:
    with pytest.raises(RuntimeError, match="floating point and complex dtype can require grad"):
        tensor(np.array([1], dtype), requires_grad=True)
    with pytest.raises(RuntimeError, match="floating point and complex"):
        tensor(np.array([1], dtype)).requires_grad_()


def test_a_complex_gradient_is_that_of_descent() -> None:
    z = leaf([1 + 2j, 3 - 1j], "complex128")
    (z * z.conj()).real.sum().backward()
    assert_close(z.grad, 2 * np.array([1 + 2j, 3 - 1j]))


def test_a_gradient_of_less_precision_is_taken() -> None:
    x = leaf([1, 2])
    (found,) = grad(2 * x, x, tensor(np.ones(2, "float32")))
    assert found.dtype == np.float64


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (3, 0, 2)])
def test_empty_tensors_have_empty_gradients(shape: tuple[int, ...]) -> None:
    x, s = leaf(np.zeros(shape)), leaf(2)
    (x * s).sum().backward()
    assert_close(x.grad, np.zeros(shape))
    assert_close(s.grad, 0.0)


def test_nan_stays_where_it_is() -> None:
    x = leaf([1, np.nan, 3])
    (x * x).sum().backward()
    assert_close(x.grad, [2.0, np.nan, 6.0])


def test_a_gradient_of_zero_is_a_gradient() -> None:
    x = leaf([1.5, 2.5])
    x.floor().sum().backward()
    assert_close(x.grad, [0.0, 0.0])


def test_broadcasting_is_summed_over() -> None:
    x, y, s = leaf(np.ones((2, 1))), leaf(np.arange(3)), leaf(2)
    (x * y * s).sum().backward()
    assert_close(x.grad, [[6.0], [6.0]])
    assert_close(y.grad, [4.0, 4.0, 4.0])
    assert_close(s.grad, 6.0)


# ------------------------------------------------------------------------------ dynamic graphs


def test_the_graph_is_of_what_ran() -> None:
    def f(x: Tensor) -> Tensor:
        return x**2 if x > 0 else -x

    for value, expected in ((3, 6.0), (-3, -1.0), (3, 6.0)):
        x = leaf(value)
        f(x).backward()
        assert_close(x.grad, expected)


def test_a_loop_as_long_as_its_values_say() -> None:
    for start, doublings in ((1.0, 7), (10.0, 4), (200.0, 0), (1.0, 7)):
        x = leaf(start)
        y = x
        while y.item() < 100:
            y = y * 2
        y.backward()
        assert_close(x.grad, 2.0**doublings)


def test_a_name_that_is_rebound() -> None:
    x = leaf(3)
    y = x
    for _ in range(3):
        y = y * x
    y.backward()
    assert_close(x.grad, 4 * 27.0)


@pytest.mark.parametrize("look", [0, 1, 7])
def test_a_deep_chain(look: int) -> None:
    x = leaf(1.0)
    y = x
    for i in range(1000):
        y = y * 1.001
        if look and i % look == 0:
            y.item()
    y.backward()
    assert_close(x.grad, 1.001**1000, 1e-10)


def test_grad_of_a_deep_chain_that_was_looked_at() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(2000):
        y = y * 1.001
        y.item()
    assert_close(grad(y, x)[0], 1.001**2000, 1e-9)


def test_the_search_for_inputs_is_linear() -> None:
    def steps(count: int) -> int:
        x, other = leaf(1.0), leaf(1.0)
        a = b = x
        for _ in range(count):
            a, b = (a + b) * 0.5, (a - b) * 0.5
            a.item()
        found = grad(a + other, other)
        assert_close(found[0], 1.0)
        return calls(lambda: grad(a + other, other))

    assert steps(12) < 4 * steps(6)


def calls(function: Any) -> int:
    """Returns how many Python functions a call calls."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_many_branches_of_one_value() -> None:
    x = leaf(1.0)
    (sum(x * k for k in range(300)) * x).backward()
    assert_close(x.grad, 2.0 * sum(range(300)))


# ------------------------------------------------------------------------------ results inside


def test_grad_with_respect_to_results() -> None:
    x = leaf([1, 2])
    h = x * 2
    k = h * h
    found = grad(k.sum(), [x, h, k], retain_graph=True)
    assert_close(found[0], [8.0, 16.0])
    assert_close(found[1], [4.0, 8.0])
    assert_close(found[2], [1.0, 1.0])


def test_grad_with_respect_to_results_of_equal_operations() -> None:
    x = leaf([1, 2])
    a, b = x * 2, x * 2
    found = grad((a * 3 + b * 5).sum(), [a, b])
    assert_close(found[0], [3.0, 3.0])
    assert_close(found[1], [5.0, 5.0])


SAME = [
    lambda h: h.view(2),
    lambda h: h.reshape(2),
    lambda h: h.clone(),
    lambda h: h[...],
    lambda h: h.expand(2),
    lambda h: h.squeeze(),
]


@pytest.mark.parametrize("same", SAME)
def test_grad_with_respect_to_another_tensor_of_the_same_value(same: Any) -> None:
    x = leaf([1, 2])
    h = x * 2
    v = same(h)
    found = grad((h * h + v).sum(), [v, h])
    assert_close(found[0], [1.0, 1.0])
    assert_close(found[1], [5.0, 9.0])


def test_grad_with_respect_to_a_view() -> None:
    x = leaf([[1, 2], [3, 4]])
    h = x * 2
    v = h.t()
    found = grad((h * h).sum() + (v * 3).sum(), [v, h])
    assert_close(found[0], np.full((2, 2), 3.0))
    assert_close(found[1], 4 * np.array([[1.0, 2.0], [3.0, 4.0]]) + 3)


def test_an_output_is_an_input() -> None:
    x = leaf([1, 2])
    h = x * 2
    (found,) = grad(h, h, plain([3, 4]))
    assert_close(found, [3.0, 4.0])
    (found,) = grad(x, x, plain([3, 4]))
    assert_close(found, [3.0, 4.0])


def test_what_comes_later_than_the_root_is_not_used() -> None:
    x = leaf(2)
    h = x * x
    k = h * 3
    assert grad(h, k, allow_unused=True, retain_graph=True) == (None,)
    assert_close(grad(k, h)[0], 3.0)


def test_what_lies_beside_the_way_is_not_used() -> None:
    x = leaf(2)
    a, b = x * 2, x * 3
    assert grad(a, b, allow_unused=True) == (None,)


# ------------------------------------------------------------------------------ higher orders


def test_three_orders() -> None:
    x = leaf(2)
    y = x**4
    for expected in (32.0, 48.0, 48.0):
        (y,) = grad(y, x, create_graph=True)
        assert_close(y.detach(), expected)


@pytest.mark.parametrize("look", [False, True])
def test_second_order_agrees_with_func(look: bool) -> None:
    def f(x: Any) -> Any:
        h = np.sin(x) * x
        return (np.exp(h) * h).sum()

    value = np.array([0.3, -0.7, 1.1])
    x = leaf(value)
    y = f(x)
    if look:
        y.item()
    (first,) = grad(y, x, create_graph=True)
    if look:
        first.tolist()
    (second,) = grad((first * plain([1, 2, 3])).sum(), x)
    assert_close(first.detach(), func.grad(f)(value))
    assert_close(second, func.hessian(f)(value) @ np.array([1.0, 2.0, 3.0]), 1e-10)


@pytest.mark.parametrize("look", [False, True])
def test_second_order_with_respect_to_the_gradient_given(look: bool) -> None:
    x, v = leaf([1, 2]), leaf([3, 4])
    y = x**2
    if look:
        y.tolist()
    (first,) = grad(y, x, v, create_graph=True)
    found = grad(first.sum(), [x, v])
    assert_close(found[0], [6.0, 8.0])
    assert_close(found[1], [2.0, 4.0])


def test_jvp_by_two_vjps() -> None:
    x, v = leaf([1, 2, 3]), leaf([0, 0, 0])
    (pulled,) = grad(np.sin(x) * x.sum(), x, v, create_graph=True)
    (found,) = grad(pulled, v, plain([1, -1, 2]))
    value = np.array([1.0, 2.0, 3.0])
    expected = func.jvp(lambda x: np.sin(x) * x.sum(), (value,), (np.array([1.0, -1.0, 2.0]),))[1]
    assert_close(found, expected)


def test_gradient_penalty() -> None:
    w, x = leaf([[1, 2], [3, 4]]), leaf([1, -1])
    (inner,) = grad(np.tanh(w @ x).sum(), x, create_graph=True)
    (inner**2).sum().backward()

    def penalty(w: Any) -> Any:
        return (func.grad(lambda x: np.tanh(w @ x).sum())(np.array([1.0, -1.0])) ** 2).sum()

    assert_close(w.grad, func.grad(penalty)(np.array([[1.0, 2.0], [3.0, 4.0]])), 1e-10)


def test_second_order_of_a_part_with_respect_to_what_was_looked_at() -> None:
    x = leaf(2)
    h = x * x
    h.item()
    (first,) = grad(h**3, x, create_graph=True)
    assert_close(grad(first, h)[0], 96.0)


def test_second_order_with_respect_to_a_result() -> None:
    x = leaf(2)
    h = x * x
    (first,) = grad(h**3, x, create_graph=True)
    assert_close(grad(first, h)[0], 96.0)


def test_create_graph_goes_on_into_more_operations() -> None:
    x = leaf(2)
    y = x**3
    y.backward(create_graph=True)
    g = x.grad
    x.grad = None
    (g * y).backward()
    assert_close(x.grad, 6 * 2 * 8.0 + 12 * 12.0)


# ------------------------------------------------------------------------------ memory


def test_a_result_that_is_dropped_is_freed() -> None:
    gc.disable()
    try:
        x = leaf([1, 2])
        y = x * 2
        z = y.sum()
        reference = weakref.ref(y)
        z.backward()
        del y, z
        assert reference() is None
    finally:
        gc.enable()


def test_a_loop_makes_no_garbage() -> None:
    x = leaf([1, 2])
    gc.collect()
    gc.disable()
    try:

        def step() -> None:
            y = (x * x).sum()
            y.item()
            y.backward()
            x.grad = None

        for _ in range(300):  # until what runs again and again is written out
            step()
        before = len(gc.get_objects())
        for _ in range(2000):
            step()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


def test_a_loop_finds_its_programs() -> None:
    x = leaf([1, 2])

    def step() -> None:
        (np.sin(x) * x).sum().backward()

    for _ in range(5):
        step()
    before = ftrans.cache_info()
    for _ in range(20):
        step()
    assert ftrans.cache_info().misses == before.misses


def _create_alone(x: Tensor) -> None:
    (x**3).sum().backward(create_graph=True)
    x.grad = None


def _create_and_update(x: Tensor) -> None:
    (first,) = grad((x**3).sum(), x, create_graph=True)
    with no_grad():
        x.sub_(first, alpha=1e-3)


def _second_order(x: Tensor) -> None:
    (first,) = grad((x**3).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    with no_grad():
        x.sub_(first / second.abs(), alpha=1e-3)


def _penalty(x: Tensor) -> None:
    (first,) = grad((x**3).sum(), x, create_graph=True)
    (first * first).sum().backward()
    x.grad = None


@pytest.mark.parametrize(
    "step",
    [
        _create_alone,
        _create_and_update,
        _second_order,
        _penalty,
    ],
)
def test_a_loop_with_create_graph_finds_its_programs(step: Any) -> None:
    x = leaf([1, 2])
    for _ in range(8):
        step(x)
    before = ftrans.cache_info().misses
    for _ in range(8):
        step(x)
    assert ftrans.cache_info().misses == before


def test_many_pending_operations() -> None:
    x = leaf([1, 2])
    total = plain(0)
    for _ in range(3000):
        total = total + (x * x).sum()
    total.backward()
    assert_close(x.grad, [6000.0, 12000.0])


def test_operations_that_raise_make_no_garbage() -> None:
    x = leaf([1, 2])

    def step() -> None:
        y = x * 2
        with pytest.raises(ShapeError):
            y @ np.ones((3, 3))
        (y * y).sum().backward()
        x.grad = None

    for _ in range(300):
        step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        step()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


# ------------------------------------------------------------------------------ looking


def _random_steps(seed: int) -> list[tuple[str, int, int, float]]:
    rng = np.random.default_rng(seed)
    names = ["multiply", "sine", "row", "transpose", "scale", "add", "constant", "shift", "hook"]
    names += ["update", "backward", "grad", "sum", "matrix", "log"]
    return [
        (str(rng.choice(names)), *map(int, rng.integers(100, size=2)), float(rng.normal()))
        for _ in range(14)
    ]


def _random_program(seed: int, looks: float) -> tuple[list[Any], list[Any]]:
    """Does steps in a row, looking at values now and then; returns gradients and what was seen."""
    rng, chance = np.random.default_rng(1), np.random.default_rng(seed)
    x, w = leaf(rng.normal(size=(3, 3))), leaf(rng.normal(size=3))
    values = [x * 1.0, x * w]
    seen: list[Any] = []
    for name, i, j, c in _random_steps(seed):
        a, b = values[i % len(values)], values[j % len(values)]
        if name == "multiply":
            values.append(a * b if a.shape == b.shape else a.mean() * b)
        elif name == "sine":
            values.append(np.sin(a) * c)
        elif name == "row" and a.ndim == 2:
            values.append(a[i % 3])
        elif name == "transpose" and a.ndim == 2:
            values.append(a.t())
        elif name == "scale":
            a.mul_(c)
        elif name == "add":
            a.add_(b if a.shape == b.shape else b.mean())
        elif name == "constant":
            values.append(a.detach() * c + b.mean())
        elif name == "shift":
            with no_grad():
                a.add_(c)
        elif name == "hook":
            a.register_hook(lambda g, c=c: g * c)
        elif name == "log":
            a.register_hook(lambda g, c=c, seen=seen: seen.append((c, g.tolist())))
        elif name == "update":
            with no_grad():
                (x if i % 2 else w).mul_(c)
        elif name == "backward":
            a.mean().backward(retain_graph=True)
        elif name == "grad":
            found = grad(a.mean(), [x, w], allow_unused=True, retain_graph=True)
            seen += [None if g is None else g.tolist() for g in found]
        elif name == "sum" and a.ndim:
            values.append(a.sum())
        elif name == "matrix" and a.shape == (3, 3):
            values.append(a @ w)
        if chance.random() < looks:
            values[int(chance.integers(len(values)))].tolist()
    sum((v * v).mean() for v in values).backward()
    gradients = [None if p.grad is None else p.grad.tolist() for p in (x, w)]
    return gradients, seen


@pytest.mark.parametrize("seed", range(60))
def test_to_look_at_values_changes_nothing(seed: int) -> None:
    expected = _random_program(seed, 0.0)
    for looks in (0.4, 1.0):
        found = _random_program(seed, looks)
        _assert_alike(found[0], expected[0])
        _assert_alike(found[1], expected[1])


def _assert_alike(found: Any, expected: Any) -> None:
    """Compares what was seen; hooks of values that do not depend on each other have no order."""
    ordered = [sorted(map(_rounded, side), key=str) for side in (found, expected)]
    assert ordered[0] == ordered[1]


def _rounded(x: Any) -> Any:
    """Returns numbers with six digits."""
    if isinstance(x, (list, tuple)):
        return [_rounded(item) for item in x]
    return x if x is None else f"{x + 0.0:.5e}"


def test_what_a_backward_needs_is_let_go_of_after_it() -> None:
    x, data = leaf(np.ones(8)), plain(np.ones(8))
    loss, other = (x * x).sum(), data * 2  # the second is of no interest to backward
    assert (loss.item(), other.sum().item()) == (8.0, 16.0)
    segment = loss._edge.segment
    assert segment.residuals
    loss.backward()
    assert not segment.residuals
    assert other.tolist() == [2.0] * 8


def test_a_detached_value_keeps_no_history_alive() -> None:
    w, h = leaf([0.5, 0.2]), plain([1, 1])

    def step(h: Tensor) -> Tensor:
        new = (w * h + 1).tanh()
        assert new.sum().item() < 2
        return new.detach()

    gc.collect()
    gc.disable()
    try:
        for i in range(400):
            h = step(h)
            if i == 200:
                before = len(gc.get_objects())
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "view",
    [lambda x: x.detach(), lambda x: x.detach().detach(), lambda x: x[:].detach()[:].detach()],
)
def test_a_write_through_what_is_detached_of_names_that_are_gone(view: Any) -> None:
    x = leaf([1, 2]) * 1
    d = view(x)
    d.add_(5)
    assert x.tolist() == [6.0, 7.0]
    x.mul_(2)
    assert d.tolist() == [12.0, 14.0]
    del x
    d.add_(1)
    assert d.tolist() == [13.0, 15.0]
    assert not d.requires_grad


# ------------------------------------------------------------------------------ run ahead


def _asked_before(back: Any, rounds: int = 4) -> list[Any]:
    """Returns the gradients of a loss that is asked for before one goes back, and how often.

    From the second time on its derivative is run with it.
    """
    found = []
    w, data = leaf([0.5, -1.5, 2.0]), plain([1.0, 2.0, 3.0])
    for _ in range(rounds):
        w.grad = None
        out = (w * data).tanh()
        loss = (out * out).sum() + w[0]
        value = loss.item()
        found.append((value, *back(w, out, loss)))
    return found


def _expected(c: float = 1.0) -> np.ndarray:
    x, w = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.5, 2.0])
    t = np.tanh(w * x)
    return c * (2 * t * (1 - t**2) * x + np.array([1.0, 0.0, 0.0]))


def _second() -> np.ndarray:
    x, w = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.5, 2.0])
    t = np.tanh(w * x)
    return (2 * (1 - t**2) - 4 * t**2) * (1 - t**2) * x**2


def _hooked(w: Any, out: Any, loss: Any) -> Any:
    seen: list[Any] = []
    out.register_hook(lambda ct: seen.append(ct.numpy()))
    loss.backward()
    t = np.tanh(np.array([1.0, 2.0, 3.0]) * np.array([0.5, -1.5, 2.0]))
    assert_close(seen[0], 2 * t)
    return (w.grad,)


def _retained(w: Any, out: Any, loss: Any) -> Any:
    loss.backward(retain_graph=True)
    first = w.grad.clone()
    w.grad = None
    out.retain_grad()
    loss.backward()
    assert_close(w.grad, first)
    return (out.grad * 0 + w.grad,)


def _twice(w: Any, out: Any, loss: Any) -> Any:
    loss.backward()
    with pytest.raises(GraphError, match="a second time"):
        loss.backward()
    with pytest.raises(GraphError, match="a second time"):
        out.sum().backward()
    return (w.grad,)


def _plain(w: Any, out: Any, loss: Any) -> Any:
    loss.backward()
    return (w.grad,)


def _other_root(w: Any, out: Any, loss: Any) -> Any:
    (loss * 1.0).backward()
    return (w.grad,)


def _by_grad(w: Any, out: Any, loss: Any) -> Any:
    return grad(loss, w)


def _inside(w: Any, out: Any, loss: Any) -> Any:
    backward([loss, out], [None, plain([0.0, 0.0, 0.0])])
    return (w.grad,)


def _in_another_thread(w: Any, out: Any, loss: Any) -> Any:
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    return (w.grad,)


BACKS = (*(_plain, _hooked, _retained, _twice, _other_root, _by_grad, _inside, _in_another_thread),)


@pytest.mark.parametrize("first", [_plain, _other_root])
@pytest.mark.parametrize("back", BACKS)
def test_what_was_asked_for_is_gone_back_from(first: Any, back: Any) -> None:
    turns = iter([first, back, first, first, back, back])
    found = _asked_before(lambda *given: next(turns)(*given), 6)
    for value, gradient in found:
        assert_close(value, found[0][0])
        assert_close(gradient, _expected())


def test_gradients_of_other_cotangents_and_of_gradients_after_it_was_run_ahead() -> None:
    turns = iter([0, 1, 0, 2, 0, 0])

    def back(w: Any, out: Any, loss: Any) -> Any:
        turn = next(turns)
        if turn == 1:
            loss.backward(plain(3.0))
            return (w.grad / 3,)
        if turn == 2:
            (slope,) = grad(loss, w, create_graph=True)
            assert_close(grad(slope.sum(), w)[0], _second())
            return (slope.detach(),)
        loss.backward()
        return (w.grad,)

    for _, gradient in _asked_before(back, 6):
        assert_close(gradient, _expected())


def test_a_loss_that_was_asked_for_is_run_once_with_its_derivative() -> None:
    w, counts = leaf([0.5, 2.0]), []
    for _ in range(4):
        before = ftrans.cache_info().interpreted
        w.grad = None
        loss = (w.sin() * w.cos() * 1.25).sum()
        loss.item()
        loss.backward()
        counts.append(ftrans.cache_info().interpreted - before)
        assert_close(w.grad, 1.25 * np.cos(2 * np.array([0.5, 2.0])))
    assert counts == [2, 1, 1, 1]


def test_what_is_called_on_the_way_is_called_once() -> None:
    calls = []

    class Noted(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            calls.append(np.asarray(x))
            return np.square(np.asarray(x))

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * ct

    w = leaf([1.0, 2.0])
    for count in range(1, 5):
        w.grad = None
        loss = Noted.apply(w).sum()
        loss.item()
        loss.backward()
        assert_close(w.grad, [2.0, 4.0])
        assert len(calls) == count


def test_anomaly_mode_around_backward_alone_sees_what_was_run_ahead() -> None:
    x = leaf([0.0, 1.0])
    for turn in range(4):
        loss = (x.sqrt() * 0.0).sum()
        loss.item()
        with pytest.raises(RuntimeError, match=r"(?i)nan"), autograd.set_detect_anomaly(True):
            loss.backward()
        x.grad = None
        if turn == 1:
            loss = (x.sqrt() * 0.0).sum()
            loss.item()
            loss.backward()
            x.grad = None


def test_a_hook_that_opens_what_was_run_ahead() -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0])
    for turn in range(4):
        first = (x * x).sum()
        first.item()
        h = y * y
        if turn > 1:
            node = first.grad_fn
            h.register_hook(lambda ct, node=node: (node.register_hook(lambda a, b: None), None)[1])
        second = (h * h).sum()
        second.item()
        x.grad = y.grad = None
        if turn > 1:
            backward([first, second])
            assert_close(y.grad, [4 * 27.0])
        else:
            first.backward()
        assert_close(x.grad, [2.0, 4.0])


def test_two_threads_go_back_from_what_was_run_ahead() -> None:
    x = leaf([1.0, 2.0])
    interval, found = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            loss = (x.sin() * x).sum()
            loss.item()

            def go(retain: bool, loss: Any = loss) -> None:
                try:
                    loss.backward(retain_graph=retain)
                except Exception as error:
                    found.append(error)

            threads = [threading.Thread(target=go, args=(retain,)) for retain in (True, False)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert {type(error) for error in found} <= {GraphError}
    assert_close(x.grad, (80 - len(found)) * (np.sin([1.0, 2.0]) + np.cos([1.0, 2.0]) * [1.0, 2.0]))


def test_what_finalizers_record_while_it_is_run_is_not_lost() -> None:
    w, left = leaf([1.0, 2.0]), []

    class Recording:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            left.append((w * 3).sum())

    thresholds = gc.get_threshold()
    gc.set_threshold(7)
    try:
        for _ in range(200):
            Recording()
            loss = (w * w).sum()
            loss.item()
            loss.backward()
            while left:
                assert left.pop().item() == 9.0
    finally:
        gc.set_threshold(*thresholds)


def test_tapes_that_were_left_are_freed_without_a_collector() -> None:
    def same(x: Any) -> Any:
        return x

    def tensors() -> int:
        return sum(type(x) is Tensor for x in gc.get_objects())

    data = np.zeros(10)
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        for _ in range(50):
            x = plain(data)
            y = x * 2
            with autograd.graph.saved_tensors_hooks(same, same):
                pass
        assert tensors() - before < 10
        assert_close(y.detach(), data)
    finally:
        gc.enable()


def test_a_tape_that_was_run_in_a_block_apart_is_not_taken_up_again() -> None:
    """What came afterwards had the values of what came before."""
    x, sizes = leaf([[1.0, 2.0], [3.0, 4.0]]), tensor([0, 2])
    assert x.new_ones(sizes).shape == (0, 2)  # iterates over a tensor, and asks for values
    for shape in [(1, 1), (0, 1), (2, 3)]:
        made = x.new_ones(*shape)
        assert made.numpy().shape == shape
        assert_close(made, np.ones(shape))
        assert_close((x * 2.0).detach(), [[2.0, 4.0], [6.0, 8.0]])
    (x * x).sum().backward()
    assert_close(x.grad, [[2.0, 4.0], [6.0, 8.0]])


def test_a_function_that_a_tape_calls_asks_for_what_is_pending_there() -> None:
    x = leaf([1.0, 2.0])
    y = x * 3.0

    def scaled(a: Any) -> Any:
        return a * y.detach().numpy()

    z = ftrans.external(scaled, lambda a: a)(x.detach())
    w = y + 1.0
    assert_close(z, [3.0, 12.0])
    assert_close((w * 2.0).detach(), [8.0, 14.0])
    (y * 1.0).sum().backward()
    assert_close(x.grad, [3.0, 3.0])
