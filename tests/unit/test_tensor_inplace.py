"""Writing to tensors and their views: what gradients see of it, and where it is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

from ftrans import Tensor, config, func, tensor
from ftrans.autograd import Function, enable_grad, grad, inference_mode, no_grad
from ftrans.autograd.forward_ad import dual_level, make_dual, unpack_dual
from ftrans.errors import DTypeError, FtransError, GraphError, MutationError, ShapeError
from tests.helpers import assert_close


def leaf(value: Any, dtype: Any = "float64") -> Tensor:
    """Returns a leaf that requires grad."""
    return tensor(np.array(value, dtype), requires_grad=True)


def plain(value: Any, dtype: Any = "float64") -> Tensor:
    """Returns a tensor that does not require grad."""
    return tensor(np.array(value, dtype))


LOOK = pytest.mark.parametrize("look", [False, True])


# ------------------------------------------------------------------------------ what was saved


@LOOK
def test_writing_to_what_was_saved(look: bool) -> None:
    a = leaf([1, 2])
    b = a * 1
    c = b * b
    if look:
        c.tolist()
    b.add_(1)
    c.sum().backward()
    assert_close(a.grad, [2.0, 4.0])
    assert_close(b.detach(), [2.0, 3.0])


def test_writing_to_what_was_not_saved() -> None:
    a = leaf([1, 2])
    b = a * 1
    e = b + 1
    b.add_(1)
    e.sum().backward()
    assert_close(a.grad, [1.0, 1.0])


@LOOK
def test_both_values_are_used(look: bool) -> None:
    a = leaf([1, 2])
    b = a * a
    c = b * b
    if look:
        b.tolist()
    b.mul_(3)
    (c + b * b).sum().backward()
    # a^4 + 9 a^4
    assert_close(a.grad, 40 * np.array([1.0, 8.0]))


def test_writing_to_a_constant_that_was_saved() -> None:
    x, c = leaf([1, 2]), plain([3, 4])
    y = x * c
    c.zero_()
    y.sum().backward()
    assert_close(x.grad, [3.0, 4.0])


def test_writing_to_a_result_that_was_saved() -> None:
    x = leaf([1, 2])
    y = x.exp()
    z = y * 1
    y.zero_()
    z.sum().backward()
    assert_close(x.grad, np.exp([1.0, 2.0]))


def test_writing_to_the_gradient_that_is_given() -> None:
    x, g = leaf([1, 2]), plain([1, 1])
    y = x * x
    y.backward(g, retain_graph=True)
    g.mul_(10)
    y.backward(g)
    assert_close(x.grad, 11 * np.array([2.0, 4.0]))


# ------------------------------------------------------------------------------ every method


METHODS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("add_", lambda y: y.add_(2.0), lambda y: y + 2.0),
    ("add_ with alpha", lambda y: y.add_(y, alpha=0.5), lambda y: y + 0.5 * y),
    ("sub_", lambda y: y.sub_(0.5), lambda y: y - 0.5),
    ("mul_", lambda y: y.mul_(y), lambda y: y * y),
    ("div_", lambda y: y.div_(y + 1), lambda y: y / (y + 1)),
    ("pow_", lambda y: y.pow_(3), lambda y: y**3),
    ("neg_", lambda y: y.neg_(), lambda y: -y),
    ("exp_", lambda y: y.exp_(), np.exp),
    ("log_", lambda y: y.log_(), np.log),
    ("sqrt_", lambda y: y.sqrt_(), np.sqrt),
    ("sin_", lambda y: y.sin_(), np.sin),
    ("tanh_", lambda y: y.tanh_(), np.tanh),
    ("sigmoid_", lambda y: y.sigmoid_(), lambda y: 1 / (1 + np.exp(-y))),
    ("relu_", lambda y: y.relu_(), lambda y: np.maximum(y, 0)),
    ("abs_", lambda y: y.abs_(), np.abs),
    ("clamp_", lambda y: y.clamp_(0.6, 1.4), lambda y: np.clip(y, 0.6, 1.4)),
    ("reciprocal_", lambda y: y.reciprocal_(), lambda y: 1 / y),
    ("square_", lambda y: y.square_(), lambda y: y**2),
    ("cumsum_", lambda y: y.cumsum_(0), lambda y: np.cumsum(y, 0)),
    ("lerp_", lambda y: y.lerp_(y * y, 0.25), lambda y: y + 0.25 * (y * y - y)),
    ("addcmul_", lambda y: y.addcmul_(y, y, value=2), lambda y: y + 2 * y * y),
    ("addcdiv_", lambda y: y.addcdiv_(y, y + 1, value=2), lambda y: y + 2 * y / (y + 1)),
    ("fill_", lambda y: y.fill_(3.0), lambda y: y * 0 + 3.0),
    ("zero_", lambda y: y.zero_(), lambda y: y * 0),
    ("copy_", lambda y: y.copy_(y * 2), lambda y: y * 2),
    ("masked_fill_", lambda y: y.masked_fill_(y > 1, 5.0), lambda y: np.where(y > 1, 5.0, y)),
    ("maximum_", lambda y: y.maximum_(1.1), lambda y: np.maximum(y, 1.1)),
    ("floor_", lambda y: y.floor_(), np.floor),
]


@pytest.mark.parametrize(
    ("write", "value"), [case[1:] for case in METHODS], ids=[c[0] for c in METHODS]
)
@pytest.mark.parametrize("on", ["whole", "view"])
def test_methods_that_write(write: Any, value: Any, on: str) -> None:
    given = np.array([0.3, 0.8, 1.7])
    x = leaf(given)
    y = x * 1.5
    before = y * 2
    part = y if on == "whole" else y[1:]
    assert write(part) is part
    (y * y + before).sum().backward()

    def f(x: Any) -> Any:
        h = x * 1.5
        new = value(h) if on == "whole" else np.concatenate([h[:1], value(h[1:])])
        return (new * new + h * 2).sum()

    assert_close(x.grad, func.grad(f)(given), 1e-10)


OPERATORS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("+=", lambda y, z: y.__iadd__(z)),
    ("-=", lambda y, z: y.__isub__(z)),
    ("*=", lambda y, z: y.__imul__(z)),
    ("/=", lambda y, z: y.__itruediv__(z)),
    ("**=", lambda y, z: y.__ipow__(z)),
]


@pytest.mark.parametrize("name", [name for name, _ in OPERATORS])
def test_operators_that_write(name: str) -> None:
    x, z = leaf([1.5, 2.5]), leaf([2.0, 3.0])
    y = x * 1
    same = y
    y = dict(OPERATORS)[name](y, z)
    assert y is same
    (y * y).sum().backward()
    plainly: Any = {
        "+=": lambda y, z: y + z,
        "-=": lambda y, z: y - z,
        "*=": lambda y, z: y * z,
        "/=": lambda y, z: y / z,
        "**=": lambda y, z: y**z,
    }[name]
    expected = func.grad(lambda x, z: (plainly(x, z) ** 2).sum(), argnums=(0, 1))
    found = expected(np.array([1.5, 2.5]), np.array([2.0, 3.0]))
    assert_close(x.grad, found[0], 1e-10)
    assert_close(z.grad, found[1], 1e-10)


def test_a_tensor_times_itself_in_place() -> None:
    x = leaf([1, 2])
    y = x * 1
    y.add_(y)
    y.mul_(y)
    y *= y
    y.sum().backward()
    assert_close(x.grad, 16 * 4 * np.array([1.0, 8.0]))


def test_integers_do_not_take_fractions() -> None:
    x = tensor(np.array([1, 2]))
    with pytest.raises(DTypeError, match=r"add_: the result does not fit.*"):
        x.add_(0.5)
    assert x.tolist() == [1, 2]


def test_less_precision_takes_more() -> None:
    x = plain([1, 2], "float32")
    x += plain([1, 1])
    assert x.dtype == np.float32
    assert_close(x, np.array([2, 3], "float32"))


def test_real_numbers_do_not_take_complex_ones() -> None:
    x = plain([1, 2])
    with pytest.raises(DTypeError, match="does not fit"):
        x.mul_(plain([1j, 2], "complex128"))


def test_a_result_of_another_shape_is_refused() -> None:
    x = plain([1, 2])
    with pytest.raises(ShapeError, match=r"add_: the result has another shape"):
        x.add_(np.ones((3, 2)))
    assert_close(x + 1, [2.0, 3.0])


def test_what_is_written_is_broadcast() -> None:
    x, b = plain(np.ones((3, 2))), leaf([1, 2])
    x.add_(b)
    (x * x).sum().backward()
    assert_close(b.grad, [12.0, 18.0])


# ------------------------------------------------------------------------------ leaves


WRITES: list[Callable[[Any], Any]] = [
    lambda x: x.add_(1),
    lambda x: x.zero_(),
    lambda x: x.copy_(plain([1, 2])),
    lambda x: x.__iadd__(1),
    lambda x: x.__setitem__(0, 3.0),
    lambda x: x[0].add_(1),
    lambda x: x[:].mul_(2),
    lambda x: x.view(2)[1:].zero_(),
    lambda x: x.t().add_(1),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_leaf_that_requires_grad_is_not_written_to(write: Any) -> None:
    x = leaf([1, 2])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in"):
        write(x)
    assert_close(x.detach(), [1.0, 2.0])
    assert x._version == 0
    (x * x).sum().backward()
    assert_close(x.grad, [2.0, 4.0])


@pytest.mark.parametrize("write", WRITES)
def test_a_leaf_is_written_to_under_no_grad(write: Any) -> None:
    x, expected = leaf([1, 2]), plain([1, 2])
    before = (x * x).sum()
    with no_grad():
        write(x)
    write(expected)
    assert x.is_leaf
    assert x.requires_grad
    assert_close(x.detach(), expected)
    before.backward()
    assert_close(x.grad, [2.0, 4.0])
    x.grad = None
    (x * x).sum().backward()
    assert_close(x.grad, 2 * expected)


def test_a_leaf_that_does_not_require_grad_becomes_a_result() -> None:
    b, x = plain(np.zeros(3)), leaf(2)
    b[1] = x
    b[2] = x * x
    assert not b.is_leaf
    b.sum().backward()
    assert_close(x.grad, 5.0)


def test_a_constant_becomes_a_result_by_its_view() -> None:
    b, x = plain(np.zeros(3)), leaf([2, 3])
    v = b[1:]
    v.add_(x)
    assert b.requires_grad
    assert v.requires_grad
    (b * b).sum().backward()
    assert_close(x.grad, [4.0, 6.0])


def test_under_no_grad_a_constant_stays_one() -> None:
    b, x = plain(np.zeros(2)), leaf([2, 3])
    with no_grad():
        b.add_(x)
    assert not b.requires_grad
    assert_close(b, [2.0, 3.0])


def test_a_leaf_written_to_and_used_in_one_block() -> None:
    x = leaf([1, 2])
    with no_grad():
        x.mul_(3)
        y = x * 2
        with enable_grad():
            z = (x * x).sum()
        x.mul_(5)
    assert not y.requires_grad
    assert_close(y, [6.0, 12.0])
    z.backward()
    assert_close(x.grad, [6.0, 12.0])
    assert_close(x.detach(), [15.0, 30.0])


def test_writing_through_detach_and_using_at_once() -> None:
    x = leaf([1, 2])
    d = x.detach()
    y = x * x
    d.add_(1)
    z = x * x
    d.add_(1)
    (y + 10 * z).sum().backward()
    assert_close(x.grad, 2 * np.array([1.0, 2.0]) + 20 * np.array([2.0, 3.0]))
    assert_close(x.detach(), [3.0, 4.0])


# ------------------------------------------------------------------------------ views


def test_views_see_writes_to_their_base() -> None:
    y = leaf([[1, 2], [3, 4]]) * 1
    v, w = y[0], y.t()
    y.mul_(10)
    assert_close(v.detach(), [10.0, 20.0])
    assert_close(w.detach(), [[10.0, 30.0], [20.0, 40.0]])


@LOOK
def test_views_of_views(look: bool) -> None:
    x = leaf([[1, 2], [3, 4]])
    h = x * 1
    v = h[0]
    w = h.t()[:, 0]
    u = v[1:]
    u.mul_(10)
    if look:
        w.tolist()
    w.add_(1)
    for seen, expected in ((v, [2.0, 21.0]), (w, [2.0, 21.0]), (u, [21.0])):
        assert_close(seen.detach(), expected)
    assert_close(h.detach(), [[2.0, 21.0], [3.0, 4.0]])
    (h * h).sum().backward()
    assert_close(x.grad, [[4.0, 420.0], [6.0, 8.0]])


@LOOK
def test_the_history_of_a_base_goes_through_its_view(look: bool) -> None:
    a = leaf([1, 2])
    v = a * 1
    if look:
        v.tolist()
    v[0].mul_(3)
    (v * v).sum().backward()
    assert_close(a.grad, [18.0, 4.0])


def test_a_view_that_is_not_read_in_between() -> None:
    x = leaf([1, 2, 3])
    y = x * 1
    v = y[1:]
    for _ in range(3):
        y.mul_(2)
        v.add_(1)
    (y * y).sum().backward()
    value = np.array([8.0, 16 + 7, 24 + 7])
    assert_close(y.detach(), value)
    assert_close(x.grad, 2 * value * 8)


VIEWS: list[tuple[str, Callable[[Any], Any]]] = [
    ("item", lambda y: y[1]),
    ("slice", lambda y: y[:, 1:]),
    ("step", lambda y: y[::2]),
    ("backwards", lambda y: y[::-1]),
    ("ellipsis", lambda y: y[..., 0]),
    ("new axis", lambda y: y[None, :, 0]),
    ("reshape", lambda y: y.reshape(2, 3)),
    ("view", lambda y: y.view(6)),
    ("flatten", lambda y: y.flatten()),
    ("transpose", lambda y: y.transpose(0, 1)),
    ("permute", lambda y: y.permute(1, 0)),
    ("T", lambda y: y.T),
    ("t", lambda y: y.t()),
    ("mT", lambda y: y.mT),
    ("unsqueeze", lambda y: y.unsqueeze(1)),
    ("squeeze", lambda y: y[:, :1].squeeze(1)),
    ("narrow", lambda y: y.narrow(0, 1, 2)),
    ("select", lambda y: y.select(1, 0)),
    ("diagonal", lambda y: y.diagonal()),
    ("movedim", lambda y: y.movedim(0, 1)),
    ("unflatten", lambda y: y.view(6).unflatten(0, (3, 2))),
    ("detached view", lambda y: y[0].view(2)[1:]),
]


@pytest.mark.parametrize("view", [v for _, v in VIEWS], ids=[name for name, _ in VIEWS])
@LOOK
def test_writing_through_a_view(view: Any, look: bool) -> None:
    given, scale = np.arange(6.0).reshape(3, 2) + 1, np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    x = leaf(given)
    y = x * 1
    v = view(y)
    if look:
        v.tolist()
    v.mul_(v)
    (y * scale).sum().backward()
    numbers = np.arange(6).reshape(3, 2)
    inside = np.isin(numbers, np.asarray(view(tensor(numbers)).numpy()))
    assert_close(y.detach(), np.where(inside, given**2, given))
    assert_close(x.grad, np.where(inside, 2 * given, 1.0) * scale)
    assert_close(v.detach(), np.asarray(view(y.detach())))


def test_writing_to_parts_of_complex_numbers() -> None:
    z = leaf([1 + 2j, 3 - 1j], "complex128")
    y = z * 1
    y.real.mul_(3)
    y.imag.zero_()
    assert_close(y.detach(), np.array([3, 9], complex))
    (y * y.conj()).real.sum().backward()
    assert_close(z.grad, np.array([18, 54], complex))


def test_writing_to_complex_numbers_as_pairs_and_to_pairs_as_complex_numbers() -> None:
    z = leaf([1 + 2j, 3 - 1j], "complex128")
    y = z * 1
    pairs = y.view_as_real()
    pairs[:, 1] = 0
    y.mul_(2)
    pairs.add_(1)
    assert y.tolist() == [3 + 1j, 7 + 1j]
    y.real.sum().backward()
    assert_close(z.grad, [2.0 + 0j, 2.0 + 0j])
    x = leaf([[1, 2], [3, 4]])
    y = x * 1
    y.view_as_complex()[1:].mul_(1j)
    assert y.tolist() == [[1.0, 2.0], [-4.0, 3.0]]
    y[1, 0].backward()
    assert_close(x.grad, [[0.0, 0.0], [0.0, -1.0]])


def test_several_elements_that_are_one_in_memory_are_not_written_to() -> None:
    y = (leaf([1]) * 1).expand(3)
    with pytest.raises(MutationError, match="add_"):
        y.add_(1)


def test_overlapping_copies() -> None:
    x = leaf([1, 2, 3])
    y = x * 1
    y[1:] += y[:-1]
    assert_close(y.detach(), [1.0, 3.0, 5.0])
    (y * plain([1, 10, 100])).sum().backward()
    assert_close(x.grad, [11.0, 110.0, 100.0])


@pytest.mark.parametrize(
    "several", [lambda y: y.unbind(), lambda y: y.split(1), lambda y: y.chunk(2)]
)
def test_one_of_several_views_is_not_written_to(several: Any) -> None:
    y = leaf([1, 2]) * 1
    with pytest.raises(RuntimeError, match="cannot be modified inplace"):
        several(y)[0].add_(1)
    assert_close(y.detach(), [1.0, 2.0])


@pytest.mark.parametrize("sizes", [0, -1, [1, 2], [-1, 6]])
def test_parts_make_up_the_dimension(sizes: Any) -> None:
    with pytest.raises(ShapeError, match="do not make up the dimension"):
        plain(np.zeros(5)).split(sizes)
    with pytest.raises(ShapeError, match="do not make up the dimension"):
        plain(np.zeros(5)).chunk(0)
    assert [part.shape for part in plain(np.zeros((0, 3))).split(2)] == [(0, 3)]


@pytest.mark.parametrize("several", [lambda y: y.unbind(), lambda y: y.split(1)])
def test_several_views_see_writes_to_their_base(several: Any) -> None:
    y = leaf([1, 2]) * 1
    first, second = several(y)
    y.mul_(3)
    assert_close(first.detach().sum(), 3.0)
    assert_close(second.detach().sum(), 6.0)


def test_a_view_made_under_no_grad_is_not_written_to_outside() -> None:
    y = leaf([1, 2]) * 1
    with no_grad():
        v = y[0]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being"):
        v.add_(1)
    with no_grad():
        v.add_(1)
    assert_close(y.detach(), [2.0, 2.0])


def test_views_of_what_was_written_in_a_loop() -> None:
    x = leaf([1, 2, 3, 4])
    y = x * 1
    for i in range(1, 4):
        y[i] += y[i - 1]
    assert_close(y.detach(), [1.0, 3.0, 6.0, 10.0])
    y.sum().backward()
    assert_close(x.grad, [4.0, 3.0, 2.0, 1.0])


def test_filling_a_buffer_from_its_own_elements() -> None:
    h0, w = leaf(1), leaf(0.5)
    states = plain(np.zeros(5))
    states[0] = h0
    for i in range(1, 5):
        states[i] = np.tanh(states[i - 1] * w)
    states.sum().backward()

    def f(h: Any, w: Any) -> Any:
        total = h
        for _ in range(4):
            h = np.tanh(h * w)
            total = total + h
        return total

    expected = func.grad(f, argnums=(0, 1))(np.float64(1), np.float64(0.5))
    assert_close(h0.grad, expected[0])
    assert_close(w.grad, expected[1])


def test_a_view_of_a_leaf_after_the_leaf_was_written_to() -> None:
    x = leaf([1, 2, 3])
    v = x[1:]
    with no_grad():
        x.mul_(10)
    assert v.requires_grad
    (v * v).sum().backward()
    assert_close(x.grad, [0.0, 40.0, 60.0])


def test_a_view_of_a_leaf_that_was_read_under_no_grad() -> None:
    x = leaf([1, 2, 3])
    v = x[1:]
    with no_grad():
        x.mul_(10)
        v.clone()
    assert v.requires_grad
    (v * x[1:]).sum().backward()
    assert_close(x.grad, [0.0, 40.0, 60.0])


def test_a_view_of_a_result_that_was_read_under_no_grad() -> None:
    x = leaf([1, 2, 3])
    y = x * 1
    v = y[1:]
    with no_grad():
        y.mul_(10)
        v.tolist()
    assert v.requires_grad
    (v * y[1:]).sum().backward()
    # what is written under no_grad keeps its history: dy/dx is 1
    assert_close(x.grad, [0.0, 40.0, 60.0])


def test_views_that_are_dropped_are_freed() -> None:
    gc.collect()
    gc.disable()
    try:
        y = plain(np.zeros(4))

        def step() -> None:
            y[1:][0].add_(1)
            y.tolist()

        def tensors() -> int:
            return sum(type(x) is Tensor for x in gc.get_objects())

        for _ in range(50):
            step()
        before = tensors()
        for _ in range(500):
            step()
        assert tensors() == before
        assert len(y._metadata().views) < 50
    finally:
        gc.enable()


# ------------------------------------------------------------------------------ writing by index


def test_elements_that_were_overwritten_have_no_gradient() -> None:
    x = leaf(np.arange(6.0).reshape(3, 2))
    y = x + 2
    y[1] = 2.0
    y.sum().backward()
    assert_close(x.grad, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])


def test_values_that_are_written_have_gradients() -> None:
    x, v = leaf([1, 2, 3]), leaf([5, 6])
    y = x * 1
    y[tensor(np.array([True, False, True]))] = v
    assert_close(y.detach(), [5.0, 2.0, 6.0])
    (y * y).sum().backward()
    assert_close(x.grad, [0.0, 4.0, 0.0])
    assert_close(v.grad, [10.0, 12.0])


INDICES: list[tuple[str, Any]] = [
    ("number", 1),
    ("negative", -1),
    ("slice", slice(1, None)),
    ("step", slice(None, None, 2)),
    ("ellipsis", (..., 0)),
    ("pair", (1, 0)),
    ("list", [0, 2]),
    ("array", np.array([2, 0])),
    ("mask", np.array([True, False, True])),
    ("full mask", np.arange(6).reshape(3, 2) % 2 == 0),
    ("mixed", ([0, 1], slice(1, None))),
    ("nothing", slice(0, 0)),
]


@pytest.mark.parametrize("index", [i for _, i in INDICES], ids=[name for name, _ in INDICES])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_writing_by_an_index(index: Any, as_tensor: bool) -> None:
    if as_tensor and not isinstance(index, np.ndarray):
        pytest.skip("it is no array")
    given = np.arange(6.0).reshape(3, 2) + 1
    expected = given.copy()
    expected[index] = 7.5
    x, s = leaf(given), leaf(7.5)
    y = x * 1
    y[tensor(index) if as_tensor else index] = s
    assert_close(y.detach(), expected)
    y.sum().backward()
    assert_close(x.grad, (expected != 7.5).astype("f8"))
    assert_close(s.grad, float((expected == 7.5).sum()))


@pytest.mark.parametrize("write", [lambda y: y.__setitem__(slice(None), 5.0), lambda y: y.zero_()])
def test_what_was_overwritten_as_a_whole_has_a_gradient_of_zero(write: Any) -> None:
    x = leaf([1, 2])
    y = x * 1
    write(y)
    assert y.requires_grad
    y.sum().backward()
    assert_close(x.grad, [0.0, 0.0])


def test_a_tensor_can_be_iterated() -> None:
    x = leaf([[1, 2], [3, 4]])
    found = [(row * k).sum() for k, row in enumerate(x * 1, start=1)]
    sum(found).backward()
    assert_close(x.grad, [[1.0, 1.0], [2.0, 2.0]])


def test_writing_by_a_list_through_a_view() -> None:
    x = leaf([1, 2, 3, 4])
    y = x * 1
    y[1:][[0, 2]] = 0.0
    assert_close(y.detach(), [1.0, 0.0, 3.0, 0.0])
    (y * y).sum().backward()
    assert_close(x.grad, [2.0, 0.0, 6.0, 0.0])


def test_an_index_that_is_written_to_later() -> None:
    x, at = leaf([1, 2, 3]), tensor(np.array([0, 1]))
    y = x[at]
    at.add_(1)
    z = x[at]
    (y + 10 * z).sum().backward()
    assert_close(x.grad, [1.0, 11.0, 10.0])


def test_a_copy_by_a_list_is_no_view() -> None:
    y = leaf([1, 2, 3]) * 1
    y[[0, 1]].zero_()
    assert_close(y.detach(), [1.0, 2.0, 3.0])


def test_an_index_out_of_bounds_changes_nothing() -> None:
    y = leaf([1, 2, 3]) * 1
    with pytest.raises(IndexError):
        y[5] = 0.0
    assert_close(y.detach(), [1.0, 2.0, 3.0])
    assert y._version == 0


def test_a_value_of_another_shape_changes_nothing() -> None:
    y = leaf([1, 2, 3]) * 1
    with pytest.raises(FtransError):
        y[:2] = plain([1, 2, 3])
    assert_close(y.detach(), [1.0, 2.0, 3.0])


# ------------------------------------------------------------------------------ under no_grad


@LOOK
def test_a_result_keeps_its_history_under_no_grad(look: bool) -> None:
    x = leaf([1, 2])
    h = x * x
    if look:
        h.tolist()
    with no_grad():
        h.mul_(3)
    assert h.requires_grad
    assert not h.is_leaf
    (h * h).sum().backward()
    # of h the value is 3 x^2, and the derivative 2 x
    assert_close(x.grad, [12.0, 96.0])


@LOOK
def test_a_result_keeps_its_history_through_detach(look: bool) -> None:
    x = leaf([1, 2])
    h = x * x
    d = h.detach()
    if look:
        h.tolist()
    d.mul_(3)
    (h * h).sum().backward()
    assert_close(x.grad, [12.0, 96.0])


def test_both_values_are_used_under_no_grad() -> None:
    x = leaf([1, 2])
    h = x * x
    with no_grad():
        h.add_(1)
    k = h * h
    with no_grad():
        h.add_(1)
    (k + h * h).sum().backward()
    assert_close(x.grad, [20.0, 88.0])


def test_a_result_is_written_to_through_a_view_under_no_grad() -> None:
    x = leaf([1, 2])
    h = x * x
    with no_grad():
        h[0].mul_(5)
        h[1:] = 7.0
    (h * h).sum().backward()
    # the values are 5 and 7, the derivatives 2 x
    assert_close(x.grad, [2 * 5.0 * 2, 2 * 7.0 * 4])


def test_a_written_result_is_differentiated_twice() -> None:
    x = leaf([1, 2])
    h = x * x
    with no_grad():
        h.add_(1)
    (first,) = grad((h * h).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    assert_close(first.detach(), [8.0, 40.0])
    # first = 2 h 2 x, where dh/dx is 2 x
    assert_close(second, [2 * 2 * 2 + 2 * 2 * 2.0, 2 * 4 * 4 + 2 * 5 * 2.0])


def test_masking_under_no_grad() -> None:
    x = leaf([1, -2, 3])
    h = x * 2
    with no_grad():
        h[h < 0] = 0.0
    h.sum().backward()
    assert_close(x.grad, [2.0, 2.0, 2.0])


# ------------------------------------------------------------------------------ results elsewhere


def test_a_clone_is_not_written_to() -> None:
    x = leaf([1, 2])
    c = x.clone()
    c.mul_(3)
    assert_close(x.detach(), [1.0, 2.0])
    (c * c).sum().backward()
    assert_close(x.grad, [18.0, 36.0])


def test_a_copy_shares_nothing() -> None:
    x, y = leaf([1, 2]), plain([0, 0])
    y.copy_(x)
    y.mul_(2)
    (y * x).sum().backward()
    assert_close(x.grad, [4.0, 8.0])


def test_a_copy_is_broadcast_and_converted() -> None:
    y, x = plain(np.zeros((2, 2)), "float32"), leaf([1, 2])
    y.copy_(x)
    assert y.dtype == np.float32
    (y * y).sum().backward()
    assert_close(x.grad, [4.0, 8.0])


def test_filling_with_a_tensor() -> None:
    x, s = leaf([1, 2]), leaf(3)
    y = x * 1
    y.fill_(s)
    (y * x).sum().backward()
    assert_close(x.grad, [3.0, 3.0])
    assert_close(s.grad, 3.0)


def test_out_is_written_to_or_refused() -> None:
    x, out = leaf([1, 2]), plain([0, 0])
    try:
        np.multiply(x, x, out=out)
    except FtransError:
        return
    assert_close(out.detach(), [1.0, 4.0])


def test_an_array_plus_a_tensor_in_place() -> None:
    array = np.zeros(2)
    try:
        np.add(array, plain([1, 2]), out=array)
    except FtransError:
        return
    assert_close(array, [1.0, 2.0])


def test_inside_a_transform_nothing_is_written_to() -> None:
    y = leaf([1, 2]) * 1

    def f(s: Any) -> Any:
        y.add_(1)
        return s

    with pytest.raises(MutationError, match="cannot be written to inside a transform"):
        func.grad(f)(1.0)
    assert_close(y.detach(), [1.0, 2.0])
    assert y._version == 0


def test_inside_a_transform_no_view_is_written_to() -> None:
    y = leaf([1, 2]) * 1
    v = y[0]

    def f(s: Any) -> Any:
        v.mul_(s)
        return s

    with pytest.raises(MutationError):
        func.grad(f)(1.0)
    assert v._version == 0
    assert y._version == 0


def test_empty_tensors_can_be_written_to() -> None:
    x = leaf(np.zeros((0, 3)))
    y = x * 1
    y.add_(1)
    y[:, 1] = 5.0
    y[1:] *= 2
    y.sum().backward()
    assert x.grad.shape == (0, 3)


def test_scalars_can_be_written_to() -> None:
    x = leaf(3)
    y = x * 1
    y[...] = y * y
    y[()] = y + 1
    y.backward()
    assert_close(x.grad, 6.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "int32", "bool"])
def test_dtypes_can_be_written_to(dtype: str) -> None:
    x = tensor(np.array([0, 1, 1], dtype))
    x[0] = x[1]
    assert x.dtype == np.dtype(dtype)
    assert_close(x, np.array([1, 1, 1], dtype))


# ------------------------------------------------------------------------------ training


def descent(parameters: list[np.ndarray], steps: int) -> list[np.ndarray]:
    """Does in NumPy what the optimiser below does: least squares, with momentum and decay."""
    rng = np.random.default_rng(0)
    data, target = rng.normal(size=(16, 3)), rng.normal(size=16)
    w, b = (p.copy() for p in parameters)
    velocity = [np.zeros_like(w), np.zeros_like(b)]
    for step in range(steps):
        error = data @ w + b - target
        gradients = [2 * data.T @ error / 16, 2 * error.mean()]
        for p, v, g in zip((w, b), velocity, gradients, strict=True):
            v *= 0.9
            v += g + 0.01 * p
            p -= 0.05 / (1 + 0.1 * step) * v
    return [w, b]


@pytest.mark.parametrize("look", ["never", "before", "after", "at times"])
def test_an_optimiser_with_momentum(look: str) -> None:
    rng = np.random.default_rng(0)
    data, target = tensor(rng.normal(size=(16, 3))), tensor(rng.normal(size=16))
    start = [np.array([0.1, -0.2, 0.3]), np.array(0.5)]
    w, b = (leaf(p) for p in start)
    velocity = [plain(np.zeros(3)), plain(0)]
    for step in range(200):
        loss = ((data @ w + b - target) ** 2).mean()
        if look == "before":
            loss.item()
        loss.backward()
        if look == "after" or (look == "at times" and step % 17 == 0):
            loss.item()
        with no_grad():
            for p, v in zip((w, b), velocity, strict=True):
                v.mul_(0.9).add_(p.grad).add_(p, alpha=0.01)
                p.sub_(v, alpha=0.05 / (1 + 0.1 * step))
                p.grad = None
    for p, expected in zip((w, b), descent(start, 200), strict=True):
        assert_close(p.detach(), expected, 1e-9)


def test_an_optimiser_that_zeroes_gradients_in_place() -> None:
    x = leaf([1, 2])
    for _ in range(200):
        (x * x).sum().backward()
        with no_grad():
            x -= 0.01 * x.grad
            x.grad.zero_()
    assert_close(x.detach(), 0.98**200 * np.array([1.0, 2.0]), 1e-10)


def test_an_average_of_parameters() -> None:
    x, mean = leaf([1, 2]), plain([0, 0])
    value, expected = np.array([1.0, 2.0]), np.zeros(2)
    for _ in range(50):
        (x * x).sum().backward()
        with no_grad():
            x -= 0.1 * x.grad
            mean.lerp_(x, 0.1)
        x.grad = None
        value = 0.8 * value
        expected += 0.1 * (value - expected)
    assert_close(mean, expected)
    assert not mean.requires_grad


def test_a_loss_that_is_added_up_in_place() -> None:
    x, total = leaf([1, 2]), plain(0)
    for k in range(1, 6):
        total += (x**k).sum()
    total.backward()
    value = np.array([1.0, 2.0])
    assert_close(x.grad, sum(k * value ** (k - 1) for k in range(1, 6)))


def test_training_makes_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "execution", "interpret")  # a thread that compiles makes some
    x, v = leaf([1, 2]), plain([0, 0])

    def step() -> None:
        h = x * 1
        h[0] *= 2
        h.sum().backward()
        with no_grad():
            v.mul_(0.5).add_(x.grad)
            x.sub_(v, alpha=1e-6)
        x.grad = None

    gc.collect()
    gc.disable()
    try:
        for _ in range(1000):  # until it has been written out
            step()
        before = len(gc.get_objects())
        for _ in range(2000):
            step()
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


# ------------------------------------------------------------------------------ random programs


def _moves(rng: np.random.Generator) -> list[tuple[str, int, int, float]]:
    names = ["mul", "row", "column", "write", "view", "square", "look", "set", "add"]
    return [
        (str(rng.choice(names)), int(rng.integers(3)), int(rng.integers(3)), float(rng.normal()))
        for _ in range(12)
    ]


def _walked(x: Any, moves: list[tuple[str, int, int, float]]) -> Tensor:
    """Writes to a tensor and its views, as told; returns a scalar."""
    y = x * 1
    views, seen = [y], []
    for name, i, j, c in moves:
        v = views[i % len(views)]
        if name == "mul":
            v.mul_(c)
        elif name == "row":
            y[i] = y[j] * c
        elif name == "column":
            y[:, i].add_(y[:, j])
        elif name == "write":
            v.add_(v * c)
        elif name == "view":
            views.append([y[i], y.t()[j], y[i:], y.view(9)[j:]][(i + j) % 4])
        elif name == "square":
            seen.append((v * v).sum())
        elif name == "look":
            v.tolist()
        elif name == "set":
            y[i, j] = c
        else:
            seen.append((v * c).sin().sum())
    return (y * y).sum() + sum(seen)


def _walked_in_numpy(x: np.ndarray, moves: list[tuple[str, int, int, float]]) -> Any:
    """Does the same to an array, whose views share its memory."""
    y = x * 1
    views, total = [y], 0.0
    for name, i, j, c in moves:
        v = views[i % len(views)]
        if name == "mul":
            v *= c
        elif name == "row":
            y[i] = y[j] * c
        elif name == "column":
            y[:, i] += y[:, j].copy()
        elif name == "write":
            v += v * c
        elif name == "view":
            views.append([y[i], y.T[j], y[i:], y.reshape(9)[j:]][(i + j) % 4])
        elif name == "square":
            total += (v * v).sum()
        elif name == "set":
            y[i, j] = c
        elif name == "add":
            total += np.sin(v * c).sum()
    return (y * y).sum() + total


@pytest.mark.parametrize("seed", range(60))
def test_random_writes_against_finite_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moves, given = _moves(rng), rng.normal(size=(3, 3))
    x = leaf(given)
    loss = _walked(x, moves)
    assert_close(loss.detach(), _walked_in_numpy(given, moves), 1e-9)
    loss.backward()
    expected = np.zeros((3, 3))
    for i in np.ndindex(3, 3):
        # complex steps: exact to rounding
        moved = given.astype(complex)
        moved[i] += 1e-30j
        expected[i] = _walked_in_numpy(moved, moves).imag / 1e-30
    assert_close(x.grad, expected, 1e-8)


def test_errors_name_what_was_called() -> None:
    x = leaf([1, 2])
    with pytest.raises(GraphError, match=r"^sub_: "):
        x.sub_(1)
    with pytest.raises(GraphError, match=r"^x\[index\] = value: "):
        x[0] = 1.0


class Shifted(Function):
    """Adds one to its argument in place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x += 1
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return ct * 3


def test_a_function_writes_to_what_it_marks_dirty() -> None:
    a = tensor([1.0, 2.0], requires_grad=True)
    b = a * 1
    view = b[:1]
    out = Shifted.apply(b)
    assert out is b
    assert b._version == 1
    assert b.tolist() == [2.0, 3.0]
    assert view.tolist() == [2.0]
    assert b.grad_fn.name() == "ShiftedBackward"
    (out * b).sum().backward()
    assert_close(a.grad, [12.0, 18.0])


def test_a_function_does_not_write_to_a_leaf() -> None:
    a = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GraphError, match="a leaf Variable that requires grad"):
        Shifted.apply(a)
    assert a.tolist() == [1.0, 2.0]
    with no_grad():
        Shifted.apply(a)
    assert a.tolist() == [2.0, 3.0]


def test_a_function_that_writes_and_has_another_result() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            x *= 2
            ctx.mark_dirty(x)
            ctx.save_for_backward(y)
            return x, y * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2, h * 3

    a, c = tensor([1.0, 2.0], requires_grad=True), tensor([3.0, 4.0], requires_grad=True)
    b = a * 1
    first, second = Both.apply(b, c)
    assert first is b
    (first + second + b).sum().backward()
    assert_close(a.grad, [4.0, 4.0])
    assert_close(c.grad, [3.0, 3.0])


def test_functions_of_numpy_that_write_to_tensors() -> None:
    a = tensor([1.0, 2.0], requires_grad=True)
    b = a * 1
    np.copyto(b[:1], 7.0)
    assert b.tolist() == [7.0, 2.0]
    counts = tensor([1.0, 2.0])
    np.add.at(counts, [0, 0], 1.0)
    assert counts.tolist() == [3.0, 2.0]
    b.sum().backward()
    assert_close(a.grad, [0.0, 1.0])


def test_a_detached_tensor_takes_the_history_of_what_is_written_to_it() -> None:
    """PyTorch: v.requires_grad is True then, x stays a leaf, and both have the new value."""
    x = tensor([1.0, 2.0], requires_grad=True)
    y = tensor([3.0, 4.0], requires_grad=True)
    view = x.detach()
    view += y
    assert view.requires_grad
    assert x.is_leaf
    assert x.tolist() == [4.0, 6.0]
    assert view.tolist() == [4.0, 6.0]
    (view * x).sum().backward()
    assert_close(y.grad, [4.0, 6.0])
    assert_close(x.grad, [4.0, 6.0])


def test_a_part_of_a_detached_tensor_takes_the_history_of_what_is_written_to_it() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = tensor(3.0, requires_grad=True)
    flat = x.detach()
    flat[0] = y * 2
    assert flat.requires_grad
    assert x.tolist() == [6.0, 2.0]
    (flat * tensor([10.0, 1.0])).sum().backward()
    assert y.grad.item() == 20.0
    assert x.grad is None


# ---------------------------------------------------------- writes that leave the history as it is


@pytest.mark.parametrize(
    "write",
    [
        lambda base, view: base.mul_(3),
        lambda base, view: no_grad()(view.fill_)(0.7),
        lambda base, view: no_grad()(base[0].neg_)(),
    ],
)
@LOOK
def test_a_detached_tensor_keeps_its_history_through_writes_that_are_none_of_it(
    write: Any, look: bool
) -> None:
    base, q = plain([1, 2]), leaf([3, 4])
    view = base.detach()
    view.mul_(q)
    if look:
        view.tolist()
    write(base, view)
    assert view.requires_grad
    assert not base.requires_grad
    assert view.tolist() == base.tolist()
    view.sum().backward()
    assert_close(q.grad, [1.0, 2.0])


def test_leaves_that_share_memory_with_what_a_value_is_written_to_that_is_pending() -> None:
    base = plain([1, 2])
    first, second = base.detach().requires_grad_(), base.detach().requires_grad_()
    part = base[1:].detach().requires_grad_()
    base.detach().mul_(base.exp().sum() * 0 + 2)
    ((first * second).sum() + (part * part).sum()).backward()
    assert first.tolist() == second.tolist() == base.tolist() == [2.0, 4.0]
    assert_close(first.grad, [2.0, 4.0])
    assert_close(part.grad, [8.0])


def test_a_detached_tensor_that_keeps_its_gradient_is_written_to() -> None:
    base, q = plain([1, 2]), leaf([3, 4])
    view = base.detach()
    view.mul_(q)
    view.retain_grad()
    view.mul_(3)
    (view * 2).sum().backward()
    assert_close(view.grad, [2.0, 2.0])
    assert_close(q.grad, [6.0, 12.0])


def test_a_leaf_that_is_detached_from_what_is_written_to() -> None:
    base = plain([1, 2])
    whole, part = base.detach().requires_grad_(), base[1:].detach().requires_grad_()
    before = (whole * 2).sum()
    base.mul_(3)
    (before + (whole * whole).sum() + (part * part).sum()).backward()
    assert_close(whole.grad, [8.0, 14.0])
    assert_close(part.grad, [12.0])


@LOOK
def test_detached_tensors_share_memory_when_what_they_were_detached_from_is_gone(
    look: bool,
) -> None:
    result = leaf([1, 2, 3]) * 2
    whole, other, part = result.detach(), result.detach(), result[1:].detach()
    last = whole.detach()
    if look:
        last.tolist()
    del result
    gc.collect()
    whole.mul_(10)
    part.add_(1)
    last[0] = 5.0
    for x in (whole, other, last):
        assert x.tolist() == [5.0, 41.0, 61.0]
    assert part.tolist() == [41.0, 61.0]


def test_detaching_over_and_over_keeps_no_history_and_one_tensor() -> None:
    x, before = leaf([1, 2]) * 2, []
    for _ in range(9):
        before.append(ref(x))
        x = x.detach()
    assert x.tolist() == [2.0, 4.0]
    gc.collect()
    assert before[0]() is None
    assert sum(found() is not None for found in before) <= 1


def test_what_was_detached_before_data_are_assigned_keeps_what_it_saw() -> None:
    x = leaf([1, 2])
    old, frozen, view = x.detach(), x.detach().requires_grad_(), x[1:]
    x.data = x.data * 3
    assert old.tolist() == frozen.tolist() == [1.0, 2.0]
    assert view.tolist() == [2.0]
    old.add_(1)
    x.data.mul_(2)
    assert old.tolist() == [2.0, 3.0]
    assert x.tolist() == [6.0, 12.0]
    whole = plain([1, 2])
    same = whole.detach()
    same.data = plain([5, 6])
    whole.mul_(2)
    assert same.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    ("name", "arguments", "axes"),
    [
        ("t_", (), (1, 0)),
        ("transpose_", (0, 1), (1, 0)),
        ("swapaxes_", (0, -1), (1, 0)),
        ("swapdims_", (1, 0), (1, 0)),
    ],
)
def test_a_tensor_becomes_a_view_of_what_it_was(name: str, arguments: Any, axes: Any) -> None:
    memory = np.arange(6.0).reshape(2, 3)
    x = plain(memory)
    row, same = x[1], x.detach()
    assert getattr(x, name)(*arguments) is x
    assert_close(x, memory.transpose(axes))
    assert x._version == 1
    row.add_(10)
    x[0, 0] = 7
    memory[1] += 10
    memory[0, 0] = 7
    assert_close(x, memory.transpose(axes))
    assert_close(same, memory)
    x.unsqueeze_(1).squeeze_().unsqueeze_(-1)
    assert x.shape == (3, 2, 1)
    same.zero_()
    assert x.abs().sum().item() == row.abs().sum().item() == 0


def test_a_result_that_becomes_a_view_keeps_its_history() -> None:
    w = leaf([1, 2, 3])
    y = w * 2
    tail = y[1:]
    before = y.sum()
    y.unsqueeze_(0)
    first = (y * tensor([[1.0], [2.0]])).sum()
    tail.mul_(3)
    y[0, 0] = 5
    assert y.tolist() == [[5.0, 12.0, 18.0]]
    (before + first + (y**2).sum()).backward()
    assert w.grad.tolist() == [2 + 6, 8 + 2 * 12 * 6, 8 + 2 * 18 * 6]


def test_a_leaf_becomes_a_view_where_no_gradients_are_recorded() -> None:
    w = leaf([1, 2, 3])
    with pytest.raises(GraphError, match=r"unsqueeze_: a leaf Variable that requires grad"):
        w.unsqueeze_(0)
    assert w.shape == (3,)
    element = w[0]
    with no_grad():
        w.unsqueeze_(0)
    assert w.is_leaf
    assert w.requires_grad
    (w * 3).sum().backward()
    assert w.grad.tolist() == [[3.0, 3.0, 3.0]]
    with pytest.raises(GraphError, match="a leaf has another shape than what was computed of it"):
        (element * 2).backward()
    with pytest.raises(MutationError, match="t_: a tensor cannot be written to inside"):
        func.grad(lambda x: w.t_().sum() * x)(1.0)


def test_what_becomes_a_view_keeps_its_history_and_mode_where_none_is_recorded() -> None:
    w = leaf([[1, 2, 3], [4, 5, 6]])
    y = w * 2
    with no_grad():
        y.t_()
    assert y.requires_grad
    (y * tensor([[1.0, 2.0]])).sum().backward()
    assert w.grad.tolist() == [[2.0] * 3, [4.0] * 3]
    with inference_mode():
        c = plain([[1, 2]])
        c.t_()
    assert c.is_inference()
    with no_grad():
        v = y[0]
    with pytest.raises(GraphError, match=r"unsqueeze_: A view was created in no_grad mode"):
        v.unsqueeze_(0)
    with pytest.raises(GraphError, match=r"unsqueeze_: It is one of several views"):
        (w * 2).unbind()[0].unsqueeze_(0)


def test_what_becomes_a_view_keeps_its_tangent() -> None:
    with dual_level():
        x = make_dual(plain([[1, 2, 3], [4, 5, 6]]), plain([[1] * 3] * 2))
        y = x * 2
        y.t_()
        y.mul_(x.t())
        value, tangent = unpack_dual(y)
        assert value.tolist() == [[2.0, 32.0], [8.0, 50.0], [18.0, 72.0]]
        assert tangent.tolist() == [[4.0, 16.0], [8.0, 20.0], [12.0, 24.0]]


def test_a_gradient_that_is_kept_has_the_shape_of_what_has_become_a_view() -> None:
    x = leaf([1, 2, 3])
    y = x * 2
    y.retain_grad()
    y.unsqueeze_(0)
    (y**2).sum().backward()
    assert y.grad.tolist() == [[4.0, 8.0, 12.0]]
    w = leaf([[1, 2, 3], [4, 5, 6]])
    loss = (w**2).sum()
    with no_grad():
        w.t_()
    with pytest.raises(GraphError, match=r"a leaf has another shape(.|\n)*f\w+\[3,2\]"):
        loss.backward()


def test_a_view_made_without_gradients_has_none_after_writes_either() -> None:
    a = leaf([1, 1])
    with no_grad():
        b = a[:1]
        a -= 0.5
    assert b.tolist() == [0.5]
    assert not b.requires_grad
    with no_grad():
        b *= 3
    assert a.tolist() == [1.5, 0.5]
    assert not b.requires_grad
    (a * b).sum().backward()
    assert a.grad.tolist() == [1.5, 1.5]
    with pytest.raises(GraphError, match=r"A view was created in no_grad mode"):
        b.add_(1)


def test_a_tensor_takes_the_data_of_a_view_of_its_own_memory() -> None:
    x = plain([[1, 2], [3, 4]])
    same = x.detach()
    x.data = x.detach()[0]
    x[1] = 5
    same[0, 0] = 7
    assert x.tolist() == [7.0, 5.0]
    assert same.tolist() == [[7.0, 5.0], [3.0, 4.0]]
    row = same[1]
    row.data = same.T
    row[1, 0] = 8
    assert same.tolist() == [[7.0, 8.0], [3.0, 4.0]]
    assert row.tolist() == [[7.0, 3.0], [8.0, 4.0]]


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.clone()])
@pytest.mark.parametrize("size", [1.0, tensor(0.0)])
def test_a_view_keeps_its_gradient_after_a_write_to_its_base_under_no_grad(
    make: Any, size: Any
) -> None:
    base = make(leaf([[1, 2], [3, 4]]))
    view = base.T
    view.retain_grad()
    before = (view * 2).sum()
    with no_grad():
        base.mul_(2.0 if size == 1.0 else size.exp() * 2)
    before.backward()
    assert_close(view.grad, [[2.0, 2.0], [2.0, 2.0]])
    view.grad = None
    (view**2).sum().backward()
    assert_close(view.grad, [[4.0, 12.0], [8.0, 16.0]])


def test_what_is_overwritten_is_multiplied_and_read() -> None:
    for make in (lambda x: x * 0.5, lambda x: -x, lambda x: 1 - x, lambda x: x - x):
        x = leaf([1, 2])
        y = make(x)
        y.fill_(3.0)
        assert_close(y.detach(), [3.0, 3.0])
        z = (y * x).sum()
        assert z.item() == 9.0
        z.backward()
        assert_close(x.grad, [3.0, 3.0])


@pytest.mark.parametrize("alias", ["data", "detach"])
def test_what_requires_grad_is_written_through_an_alias_without_history(alias: str) -> None:
    w, t = leaf([1, 2]), plain([0, 0])
    for _ in range(3):
        target = t.data if alias == "data" else t.detach()
        target.copy_(0.5 * t + 0.5 * w)
        assert not t.requires_grad
        ((w - t) ** 2).sum().backward()
    assert_close(t, [0.875, 1.75])
    assert_close(w.grad, [1.75, 3.5])


def test_the_graph_of_a_graph_after_another_result_was_written_to() -> None:
    x = leaf([1, 2])
    h, s = x + 1, (x**3).sum()
    s.item()
    h.add_(2)
    (slope,) = grad(s, x, create_graph=True)
    slope.sum().backward()
    assert_close(x.grad, [6.0, 12.0])
    x = leaf([1, 2])
    h = x * x
    view = h[:1]
    view.tolist()
    h.add_(2)
    (slope,) = grad((h * x).sum(), x, create_graph=True)
    assert_close(slope.detach(), [5.0, 14.0])


def test_a_write_without_grad_leaves_the_node() -> None:
    w = leaf([1, 2])
    y = w * 2
    node = y.grad_fn
    y.retain_grad()
    z = y * 3
    with no_grad():
        y.mul_(1)
    assert y.grad_fn is node
    (z + y * 5).sum().backward()
    assert_close(y.grad, [8.0, 8.0])

    w = leaf([1, 2])
    y = w * 2
    z = (y * 3).sum()
    y.detach().mul_(2)
    y.register_hook(lambda g: g * 10)
    assert_close(grad(z, y, retain_graph=True)[0], [30.0, 30.0])
    z.backward()
    assert_close(w.grad, [60.0, 60.0])


def test_a_derivative_is_taken_at_the_value_before_the_write() -> None:
    w = leaf([1, 2])
    y = w * w
    z = (y * y).sum()
    with no_grad():
        y.mul_(2)
    assert_close(y.detach(), [2.0, 8.0])
    (slope,) = grad(z, w, create_graph=True)
    assert_close(slope.detach(), [4.0, 32.0])
    slope.sum().backward()
    assert_close(w.grad, [12.0, 48.0])


def test_parts_of_an_alias_without_history_are_written_to() -> None:
    b = leaf([0, 0, 0, 0])
    b.data.chunk(4)[1].fill_(1.0)
    for row in b.data:
        row.add_(1.0)
    with no_grad():
        part = b.detach()[:1]
    part.mul_(5.0)
    assert_close(b.detach(), [5.0, 2.0, 1.0, 1.0])


def test_operands_that_are_none_are_refused() -> None:
    x = leaf([1, 2])
    for method in ("add", "sub", "mul", "add_", "sub_", "mul_"):
        with no_grad(), pytest.raises(DTypeError, match="not NoneType"):
            getattr(x, method)(x.grad)
    with pytest.raises(TypeError):
        x += None


def test_a_gradient_that_requires_grad_is_added_to_in_place() -> None:
    x = leaf([1, 2])
    (x * x).sum().backward()
    first = x.grad
    first.requires_grad_()
    (x * x).sum().backward()
    assert x.grad is first
    assert_close(first.detach(), [4.0, 8.0])
    del x.grad
    assert x.grad is None


def test_what_saves_nothing_is_gone_back_through_again() -> None:
    a = leaf([1, 2])
    h = a + 1
    h.tolist()
    h.sum().backward()
    (h * 2).sum().backward()
    assert_close(a.grad, [3.0, 3.0])


def test_operations_that_fail_leave_nothing() -> None:
    w = tensor(np.zeros(4), requires_grad=True)
    counts = []
    for _ in range(3):
        for _ in range(4500):
            with pytest.raises(FtransError):
                w * plain([0, 0, 0])
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 2000


def test_what_is_written_to_a_conjugate_reaches_its_base() -> None:
    y = tensor(np.array([1 + 2j, 3 - 1j]))
    v = y.conj()
    v.mul_(2j)
    assert_close(v, [4 + 2j, -2 + 6j])
    assert_close(y, [4 - 2j, -2 - 6j])
    z = leaf(np.array([1 + 1j, 2 - 1j]), "complex128")
    w = (z * 2).conj()
    w[0] = 5.0
    (w * w.conj()).real.sum().backward()
    assert_close(z.grad, [0.0, 16 - 8j])
    r = tensor([1.0, 2.0])
    r.conj().add_(1)
    assert r.tolist() == [2.0, 3.0]
