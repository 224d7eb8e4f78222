"""What PyTorch does at the edges of its system, whose numbers and errors these are."""

from __future__ import annotations

import importlib
import inspect
import threading
from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import forward_ad
from tests.torch_suite.common import constant, leaf, same


@pytest.mark.parametrize("enable", [torch.enable_grad, lambda: torch.set_grad_enabled(True)])
def test_inference_mode_records_nothing_whatever_the_grad_mode_is(enable: Any) -> None:
    x = leaf(2.0)
    with torch.inference_mode():
        assert not torch.is_grad_enabled()
        with enable():
            assert torch.is_grad_enabled()
            assert not (x * 2).requires_grad
        assert not torch.is_grad_enabled()
        assert not (x * 2).requires_grad
        with torch.inference_mode(False):
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_a_tensor_is_not_its_own_gradient() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match="not its own gradient"):
        x.grad = x
    (3 * x).sum().backward()
    same(x, [1.0, 2.0])
    same(x.grad, [3.0, 3.0])


def test_gradients_of_nothing() -> None:
    y = leaf(2.0) ** 2
    for inputs in ([], (), {}):
        with pytest.raises(RuntimeError, match="cannot be empty"):
            torch.autograd.grad(y, inputs)


def test_hooks_after_accumulation_say_what_is_wrong() -> None:
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        constant(1.0).register_post_accumulate_grad_hook(print)
    with pytest.raises(RuntimeError, match="non-leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)


def test_out_takes_no_lesser_kind() -> None:
    whole = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="does not fit"):
        torch.add(constant([1.0, 2.5, 3.0]), 1, out=whole)
    narrow = torch.zeros(3, dtype=torch.float32)
    same(torch.add(constant([1.0, 2.5, 3.0]), 1, out=narrow), [2.0, 3.5, 4.0])
    assert narrow.dtype == torch.float32


def test_what_a_pass_is_asked_for_twice_it_returns_twice() -> None:
    x = leaf(3.0)
    first, second = torch.autograd.grad(x * x, [x, x])
    same(first, 6.0)
    same(second, 6.0)


def test_graphs_that_share_what_was_read_go_back_one_by_one() -> None:
    x = leaf([1.0, 2.0])
    s = x + 1
    assert s.tolist() == [2.0, 3.0]
    a, b = s.sum(), (s * 2).sum()
    a.backward()
    b.backward()
    same(x.grad, [3.0, 3.0])


def test_a_block_that_is_entered_twice_restores_the_mode() -> None:
    block = torch.no_grad()
    with block, block:
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_a_gradient_that_is_a_view_is_added_to_where_it_lies() -> None:
    x, whole = leaf([1.0, 1.0]), torch.zeros(4, dtype=torch.float64)
    x.grad = whole[:2]
    x.sum().backward()
    same(whole, [1.0, 1.0, 0.0, 0.0])


def test_a_gradient_with_a_history_is_added_to_where_it_lies() -> None:
    x = leaf([1.0, 2.0])
    (x**3).sum().backward(create_graph=True)
    g = x.grad
    (x * x).sum().backward()
    assert x.grad is g
    assert g.requires_grad
    same(g.detach(), [5.0, 16.0])
    (g * 2).sum().backward()
    same(g.detach(), [17.0, 40.0])


def test_leaves_that_share_a_gradient_have_each_their_own() -> None:
    a, b = leaf(1.0), leaf(2.0)
    (a + b).backward()
    a.grad.mul_(5)
    same(a.grad, 5.0)
    same(b.grad, 1.0)


def test_anomalies_are_nan_alone() -> None:
    x = leaf([0.0])
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        x.sqrt().sum().backward()
    same(x.grad, [float("inf")])


def test_hooks_that_take_themselves_away_run_once() -> None:
    calls: list[int] = []
    x = leaf(2.0)
    y = x * 1

    def hook(grad: Any) -> None:
        calls.append(1)
        handle.remove()

    handle = y.register_hook(hook)
    y.backward(retain_graph=True)
    y.backward()
    assert calls == [1]


def test_a_hook_closes_over_another_leaf() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * w)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    same(g, 12.0)
    same(torch.autograd.grad(g, w)[0], 4.0)


NOT_THERE = """
    resize_ as_strided set_ data_ptr
"""


@pytest.mark.parametrize("name", NOT_THERE.split())
def test_methods_that_are_not_there_say_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'(.|\n)*(Write|It is not)"):
        getattr(leaf([1.0]), name)


def test_methods_that_write_and_choose() -> None:
    x, index = leaf([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]]), torch.tensor([[0], [2]])
    same(x.kthvalue(2, dim=1)[0], [3.0, 4.0])
    assert [y.shape for y in x.split_with_sizes([1, 2], 1)] == [(2, 1), (2, 2)]
    source = constant([[9.0], [9.0]])
    same(x.scatter(1, index, source), [[9.0, 5.0, 3.0], [4.0, 2.0, 9.0]])
    same(x.index_add(0, index[:, 0] // 2, source.expand(2, 3))[1], [13.0, 11.0, 15.0])


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    ("function", "is_saved"),
    [
        (lambda x: x, False),
        (lambda x: (2 - x.reshape(2, 1)).cumsum(0).mean(), False),
        (lambda x: torch.cat([x + 1, -x]), False),
        (lambda x: x * 2, True),
        (lambda x: x / 2, True),
        (lambda x: x.div(2), True),
        (lambda x: x * constant([1.0, 2.0]), True),
        (lambda x: x.exp(), True),
        (lambda x: x[[0, 1]], True),
        (lambda x: x.sort()[0] * x, True),
        (lambda x: x + x.detach() * 2, False),
    ],
)
def test_only_what_was_saved_is_freed(function: Any, is_saved: bool, is_read: bool) -> None:
    x = leaf([1.0, 2.0])
    y = function(x)
    if is_read:
        y.tolist()
    y = y.sum()
    y.backward()
    once = x.grad.clone()
    if is_saved:
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
    else:
        y.backward()
        same(x.grad, 2 * once)


@pytest.mark.parametrize("is_read", [False, True])
def test_what_saves_nothing_outlives_what_was_made_of_it(is_read: bool) -> None:
    x = leaf([1.0, 2.0])
    y = x.sum()
    z = y * y
    if is_read:
        z.item()
    seen: list[float] = []
    y.register_hook(lambda ct: seen.append(ct.item()))
    z.backward()
    y.backward(create_graph=True)
    same(x.grad, [7.0, 7.0])
    rows = torch.autograd.grad(y, x, constant([1.0, 2.0]), is_grads_batched=True)[0]
    same(rows, [[1.0, 1.0], [2.0, 2.0]])
    assert seen == [6.0, 1.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_numbers_as_factors_are_saved_also_where_they_vary() -> None:
    for factor in (2.0, 3.0, 4.0, 5.0):
        y = (leaf([1.0, 2.0]) * factor).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


def test_results_have_their_numbers_whether_the_others_are_there_or_not() -> None:
    m = leaf([[2.0, 1.0], [1.0, 3.0]])
    numbers = {
        m.unbind(0)[1]: ("UnbindBackward0", 1),
        m.split(1)[1]: ("SplitBackward0", 1),
        torch.linalg.eigh(m)[1]: ("LinalgEighBackward0", 1),
        torch.linalg.svd(m)[2]: ("LinalgSvdBackward0", 2),
        torch.linalg.slogdet(m)[1]: ("LinalgSlogdetBackward0", 1),
        m.sort(0)[0]: ("SortBackward0", 0),
        m.topk(1, 0)[0]: ("TopkBackward0", 0),
        m.max(0)[0]: ("MaxBackward0", 0),
    }
    for x, (name, number) in numbers.items():
        assert (x.grad_fn.name(), x.output_nr) == (name, number)
        assert torch.autograd.graph.get_gradient_edge(x)[:2] == (x.grad_fn, number)
    first, second = m.unbind(0)
    assert (first.output_nr, second.output_nr, first.grad_fn) == (0, 1, second.grad_fn)


def test_hooks_of_nodes_see_a_gradient_for_each_result() -> None:
    m, seen = leaf([[2.0, 1.0], [1.0, 3.0]]), []
    row = m.unbind(0)[1]
    row.grad_fn.register_prehook(seen.append)
    assert [about.shape for about in row.grad_fn._input_metadata] == [(2,), (2,)]
    row.sum().backward()
    assert seen[0][0] is None
    same(seen[0][1], [1.0, 1.0])
    same(m.grad, [[0.0, 0.0], [1.0, 1.0]])
    values, _ = m.flatten().sort()
    values.grad_fn.register_hook(lambda inputs, outputs: seen.append((len(inputs), len(outputs))))
    values.sum().backward()
    assert seen[1] == (1, 1)


@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
def test_a_graph_is_created_under_no_grad_where_one_is_asked_for(name: str) -> None:
    x = leaf([1.0, 2.0])
    v = {"vjp": (constant(1.0),), "jvp": (x.detach(),), "vhp": (x.detach(),), "hvp": (x.detach(),)}
    derivative = getattr(torch.autograd.functional, name)
    found = {}
    with torch.no_grad():
        for create_graph in (False, True):
            result = derivative(lambda x: (x**4).sum(), x, *v.get(name, ()), create_graph)
            found[create_graph] = result[-1] if isinstance(result, tuple) else result
        assert not torch.is_grad_enabled()
    assert not found[False].requires_grad
    (slope,) = torch.autograd.grad(found[True].sum(), x)
    with_history = derivative(lambda x: (x**4).sum(), x, *v.get(name, ()), create_graph=True)
    last = with_history[-1] if isinstance(with_history, tuple) else with_history
    same(slope, torch.autograd.grad(last.sum(), x)[0].detach())


@pytest.mark.parametrize(
    ("write", "tangent"),
    [
        (lambda d: d.zero_(), [0.0, 0.0]),
        (lambda d: d.fill_(3.0), [0.0, 0.0]),
        (lambda d: d.copy_(constant([1.0, 2.0])), [0.0, 0.0]),
        (lambda d: d[:1].zero_(), [0.0, 4.0]),
        (lambda d: d.masked_fill_(torch.tensor([True, False]), 0.0), [0.0, 4.0]),
        (lambda d: d.copy_(2 * d), [6.0, 8.0]),
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_overwrites_a_dual_tensor_has_the_tangent_zero(
    write: Any, tangent: list[float], requires_grad: bool
) -> None:
    x = constant([1.0, 2.0]).requires_grad_(requires_grad)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, constant([3.0, 4.0]))
        d = d * 1
        view = d[1]
        write(d)
        same(forward_ad.unpack_dual(d).tangent, tangent)
        same(forward_ad.unpack_dual(view).tangent, tangent[1])


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    ("name", "function", "at"),
    [
        ("Sqrt", lambda x: x.sqrt() * 0, 0.0),
        ("Sqrt", lambda x: ((x * 2).sqrt() * 3) * 0, 0.0),
        ("Asin", lambda x: torch.asin(x) * 0, 1.0),
        ("Pow", lambda x: x**0.5 * 0, 0.0),
        ("Mul", lambda x: (x - 1) * constant(float("inf")) * 0 + x, 2.0),
    ],
)
def test_anomalies_name_the_operation_whose_slope_was_infinite(
    name: str, function: Any, at: float, is_read: bool
) -> None:
    def run() -> None:
        y = function(leaf([at])).sum()
        if is_read:
            y.item()
        y.backward()

    message = f"Function '{name}Backward0' returned nan values in its 0th"
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match=message):
        run()


def test_anomaly_mode_can_be_imported_from_a_module_of_its_own() -> None:
    module = importlib.import_module("ftrans.torch.autograd.anomaly_mode")
    assert module is torch.autograd.anomaly_mode
    assert module.detect_anomaly is torch.autograd.detect_anomaly
    assert module.set_detect_anomaly is torch.autograd.set_detect_anomaly


def test_nodes_have_saved_what_an_operation_was_told() -> None:
    x, m = leaf([1.0, 4.0]), leaf([[1.0, 2.0], [3.0, 5.0]])
    saved = {
        "exponent": [(x**2, 2), (x**1.5, 1.5), (x.square(), 2), (x.pow(0.5), 0.5)],
        "min": [(x.clamp(0, 1), 0)],
        "max": [(x.clamp(0, 1), 1)],
        "dim": [
            (m.sum(0), (0,)),
            (m.mean(1, keepdim=True), (1,)),
            (m.softmax(1), 1),
            (m.cumsum(1), 1),
            (m.max(1)[0], 1),
            (torch.cat([m, m], 1), 1),
            (m.logsumexp(1), (1,)),
        ],
        "keepdim": [(m.sum(0), False), (m.mean(1, keepdim=True), True)],
    }
    for name, pairs in saved.items():
        for y, expected in pairs:
            assert getattr(y.grad_fn, f"_saved_{name}") == expected
    for y in (x * 2, x / 2):
        same(y.grad_fn._saved_other, 2.0)
    y = x * constant([2.0, 3.0])
    assert y.grad_fn._saved_self is None
    same(y.grad_fn._saved_other, [2.0, 3.0])


def test_nodes_call_what_they_have_saved_as_pytorch_does() -> None:
    x, m = leaf([1.0, 4.0]), leaf([[1.0, 2.0], [3.0, 5.0]])
    for y in (x.exp(), x.sqrt(), x.tanh(), x.sigmoid(), x.reciprocal(), m.softmax(0)):
        same(y.grad_fn._saved_result, y)
    for y in (x**3, x.log(), x.sin(), x.abs(), x * x, x.var()):
        assert y.grad_fn._saved_self is x
    same((m @ x).grad_fn._saved_vec, [1.0, 4.0])
    same((m @ m).grad_fn._saved_mat2, m)
    exponent = leaf([2.0, 3.0])
    assert (x**exponent).grad_fn._saved_exponent is exponent
    target = constant([1.0, 2.0])
    same(torch.nn.functional.mse_loss(x, target).grad_fn._saved_target, target)
    with pytest.raises(AttributeError, match="'_saved_other'"):
        x.exp().grad_fn._saved_other  # noqa: B018


def test_what_a_node_says_of_gradients_has_a_device() -> None:
    x = leaf([1.0, 2.0])
    y = x.exp()
    y.sum().backward()
    for node in (y.grad_fn, y.grad_fn.next_functions[0][0]):
        (about,) = node._input_metadata
        assert (about.shape, about.dtype, about.device) == ((2,), torch.float64, x.device)


def names_behind(x: Any) -> list[str | None]:
    found = [node and node.name() for node, _ in x.grad_fn.next_functions]
    return [name and name.replace("torch::autograd::", "") for name in found]


def test_nodes_of_writes_are_called_as_pytorch_does() -> None:
    x, mask = leaf([1.0, 2.0]), torch.tensor([True, False])
    writes: dict[str, tuple[list[Any], Any]] = {
        "ZeroBackward0": (["MulBackward0"], lambda y: y.zero_()),
        "FillBackward2": (["MulBackward0"], lambda y: y.fill_(3.0)),
        "torch::autograd::CopyBackwards": (["MulBackward0", None], lambda y: y.copy_(x.detach())),
        "torch::autograd::CopySlices": (["MulBackward0", None], lambda y: y.__setitem__(0, 3.0)),
        "IndexPutBackward0": (["MulBackward0", None], lambda y: y.__setitem__(mask, 3.0)),
        "MaskedFillBackward0": (["MulBackward0"], lambda y: y.masked_fill_(mask, 0.0)),
    }
    for name, (behind, write) in writes.items():
        y = x * 1
        write(y)
        assert (y.grad_fn.name(), names_behind(y)) == (name, behind)
        assert type(y.grad_fn).__name__ == name.rpartition(":")[2]


def test_nodes_list_the_operands_that_can_have_gradients() -> None:
    x, places = leaf([1.0, 2.0]), torch.tensor([0])
    for y, behind in (
        (torch.where(x > 1, x, 0.0), ["AccumulateGrad", None]),
        (torch.where(x > 1, 0.0, x), [None, "AccumulateGrad"]),
        (x.clamp(0, 1), ["AccumulateGrad"]),
        (2**x, ["AccumulateGrad"]),
        (2 - x, ["AccumulateGrad"]),
        (x - 2, ["AccumulateGrad", None]),
        (x * places, ["AccumulateGrad", None]),
        (x[places], ["AccumulateGrad"]),
        (x.gather(0, places), ["AccumulateGrad"]),
        (x.reshape(2, 1).sort(0)[0], ["ViewBackward0"]),
    ):
        assert names_behind(y) == behind
    y, seen = torch.where(x > 1, x, 0.0), []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))
    y.sum().backward()
    same(seen[0][0], [0.0, 1.0])
    assert seen[0][1:] == (None,)
    found = torch.where(x > 1, x, 0.0).grad_fn(constant([1.0, 1.0]))
    same(found[0], [0.0, 1.0])
    assert found[1:] == (None,)


def test_calls_from_one_place_that_begin_alike_are_one_node_each() -> None:
    x = leaf([1.0, 2.0])
    for index in (torch.tensor([True, False]), [0], [1, 0], slice(0, 1), torch.tensor([1])):
        y = x * 1
        y[index] = 3.0
        assert y.grad_fn.name() in ("IndexPutBackward0", "torch::autograd::CopySlices")
        assert names_behind(y) == ["MulBackward0", None]


def test_averages_of_events_have_their_times_as_text() -> None:
    util = torch.autograd.profiler_util
    times = [("mul", 0, 5), ("mul", 10, 2010), ("add", 3000, 2003000)]
    events = [
        util.FunctionEvent(id=i, name=name, thread=0, start_us=start, end_us=end)
        for i, (name, start, end) in enumerate(times)
    ]
    assert [event.cpu_time_str for event in events] == ["5.000us", "2.000ms", "2.000s"]
    average = util.FunctionEventAvg()
    average += events[0]
    average += events[1]
    assert (average.key, average.count, average.cpu_children) == ("mul", 2, [])
    assert (average.cpu_time_str, average.cpu_time_total_str) == ("1.002ms", "2.005ms")
    assert (average.self_cpu_time_total_str, average.device_time_str) == ("2.005ms", "0.000us")
    with pytest.raises(ValueError, match="another name"):
        average.add(events[2])
    total = util.EventList(events).total_average()
    assert (total.key, total.count, total.cpu_time_str) == ("Total", 3, "667.335ms")
    grouped = util.EventList(events).key_averages(group_by_input_shapes=True)
    assert [(each.key, each.count) for each in grouped] == [("mul", 2), ("add", 1)]


@pytest.mark.parametrize(
    "name", ["backward", "zero_", "unbind", "detach", "sort", "squeeze", "size"]
)
def test_errors_of_arguments_name_the_tensor(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^Tensor\.{name}\(\)"):
        getattr(leaf(1.0), name)(unknown=1)


def test_second_derivatives_have_tangents() -> None:
    with forward_ad.dual_level():
        d = forward_ad.make_dual(leaf(2.0), constant(1.0))
        (slope,) = torch.autograd.grad(d**3, d, create_graph=True)
        (curvature,) = torch.autograd.grad(slope, d)
        primal, tangent = forward_ad.unpack_dual(curvature)
    same(primal, 12.0)
    same(tangent, 6.0)


def test_tangents_go_through_what_pytorch_has_none_for() -> None:
    q = constant([[[1.0], [2.0]]])
    attention = torch.nn.functional.scaled_dot_product_attention
    with forward_ad.dual_level():
        found = attention(forward_ad.make_dual(q, torch.ones_like(q)), q, q)
        tangent = forward_ad.unpack_dual(found).tangent
    same(tangent, [[[0.19661193324148202], [0.10499358540350653]]])


def test_the_arguments_of_jacobian_are_those_of_pytorch() -> None:
    found = inspect.signature(torch.autograd.functional.jacobian).parameters
    assert {name: x.default for name, x in found.items() if x.default is not x.empty} == {
        "create_graph": False,
        "strict": False,
        "vectorize": False,
        "strategy": "reverse-mode",
    }
    assert [*found][:2] == ["func", "inputs"]


def test_of_threads_that_share_a_graph_one_is_through_at_least() -> None:
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    errors: list[str] = []

    def run() -> None:
        try:
            y.backward()
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) < 4
    assert all("Specify retain_graph=True" in error for error in errors)
    same(x.grad, [2.0 * (4 - len(errors)), 4.0 * (4 - len(errors))])


def test_volatile_stays_false_when_it_is_set() -> None:
    x = leaf(1.0)
    with pytest.warns(UserWarning, match="volatile was removed"):
        x.volatile = True
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert x.volatile is False
    assert (x * 2).requires_grad


def test_hooks_of_a_node_see_what_the_ones_before_returned() -> None:
    x, seen = leaf([1.0, 2.0]), []
    y = x * 3
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, None))
    y.sum().backward()
    ((inputs, outputs),) = seen
    same(inputs[0], [3.0, 3.0])
    assert inputs[1] is None
    same(outputs[0], [1.0, 1.0])
    same(x.grad, [4.0, 4.0])


def test_saved_values_are_packed_at_once_and_unpacked_when_they_are_needed() -> None:
    log: list[str] = []

    def noting(name: str) -> Any:
        return lambda x: log.append(name) or x.clone()

    with torch.autograd.graph.saved_tensors_hooks(noting("pack"), noting("unpack")):
        y = leaf(5.0).exp().sin()
    log.append("backward")
    y.backward()
    assert log == ["pack", "pack", "backward", "unpack", "unpack"]


def test_requires_grad_may_be_said_of_a_result_that_does() -> None:
    y = leaf(1.0) * 2
    assert y.requires_grad_() is y
    y.requires_grad = True
    assert not y.is_leaf
    assert not constant(1.0).requires_grad
    assert torch.nn.Parameter(constant(1.0)).requires_grad


def test_a_gradient_is_kept_of_a_result_though_another_leaf_is_asked_for() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    y.retain_grad()
    (y * 3).sum().backward(inputs=[x])
    same(y.grad, [3.0, 3.0])
    same(x.grad, [6.0, 6.0])


def test_factories_make_leaves_under_no_grad() -> None:
    with torch.no_grad():
        made = [
            getattr(torch, name)(2, requires_grad=True)
            for name in ["zeros", "ones", "empty", "rand", "randn", "eye"]
        ]
        made += [
            torch.linspace(0, 1, 3, requires_grad=True),
            torch.arange(3.0, requires_grad=True),
            torch.full((2,), 1.0, requires_grad=True),
            torch.zeros_like(constant([1.0]), requires_grad=True),
            torch.tensor([1.0], requires_grad=True),
        ]
    assert all(x.requires_grad and x.is_leaf for x in made)


def test_gradients_of_a_wrong_shape_are_refused_with_both() -> None:
    x = leaf([1.0, 2.0])
    message = r"has a shape of \(3,\) and output\[0\] has a shape of \(2,\)"
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.grad(2 * x, x, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"grad_output\[1\]"):
        torch.autograd.grad([x.sum(), 2 * x], x, [None, torch.ones(3)])


def test_hooks_of_views_whose_base_was_written_to_are_not_called() -> None:
    x, log = leaf([1.0, 2.0]), []
    y = x * 1
    view, other = y[0], y[1]
    view.register_hook(lambda ct: log.append("view"))
    y.register_hook(lambda ct: log.append("base"))
    y.mul_(3)
    (view * 2 + other).backward()
    assert log == ["base"]
    same(x.grad, [6.0, 3.0])


def test_generators_in_a_mode_take_values_and_errors() -> None:
    @torch.no_grad()
    def generate() -> Any:
        given = yield torch.is_grad_enabled()
        try:
            yield given, torch.is_grad_enabled()
        except ValueError:
            yield "caught", torch.is_grad_enabled()
        return 7

    running = generate()
    found = [next(running), running.send(5), running.throw(ValueError())]
    assert found == [False, (5, False), ("caught", False)]
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == 7
    assert torch.is_grad_enabled()


def test_tangents_go_through_views_in_both_directions() -> None:
    with forward_ad.dual_level():
        base = forward_ad.make_dual(constant([1.0, 2.0]), constant([1.0, 1.0]))
        view = base[0]
        base.mul_(3)
        same(forward_ad.unpack_dual(view).tangent, 3.0)
        view.copy_(constant(5.0))
        same(forward_ad.unpack_dual(base).tangent, [0.0, 3.0])
        plain = constant([1.0, 2.0])
        plain[1].copy_(forward_ad.make_dual(constant(1.0), constant(7.0)))
        same(forward_ad.unpack_dual(plain).tangent, [0.0, 7.0])


def test_numbers_of_results_stay_where_other_values_were_dropped() -> None:
    a = leaf([1.0, 2.0])
    dropped = (a * 2).sum()
    del dropped
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    v = x.unbind(0)[1]
    assert v.output_nr == 1
    assert len(v.grad_fn._input_metadata) == 2
    v.grad_fn.register_prehook(lambda gs: (gs[0], gs[1] * 10))
    v.sum().backward()
    same(x.grad, [[0.0, 0.0], [10.0, 10.0]])


def test_cross_products_are_along_the_first_axis_of_three() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    expected = [[54.0, 84.0, 120.0], [0.0, -42.0, -96.0], [0.0, 12.0, 30.0]]
    same(torch.cross(x, x**2), expected)
    same(torch.cross(x, x**2, dim=1)[0], [2.0, 0.0, 0.0])
    same(torch.cross(torch.ones((3, 4)), torch.arange(12.0).reshape(3, 4))[0], [4.0] * 4)
    same(torch.linalg.cross(x, x**2)[0], [2.0, 0.0, 0.0])


def test_nodes_of_layers_have_the_names_that_pytorch_gives_them() -> None:
    x, nn = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 10.0]]), torch.nn.functional
    named = {
        "AvgPool2DBackward0": nn.avg_pool2d(x[None], 2),
        "CatBackward0": torch.vstack([x, x]),
        "ConstantPadNdBackward0": nn.pad(x, (1, 1)),
        "ConvolutionBackward0": nn.conv2d(x[None, None], x[None, None]),
        "EluBackward0": nn.selu(x),
        "ExpandBackward0": x.expand_as(torch.zeros(2, 3, 3)),
        "MaxPool2DWithIndicesBackward0": nn.max_pool2d(x[None], 2),
        "NativeLayerNormBackward0": nn.layer_norm(x, (3,)),
        "PermuteBackward0": x.movedim(0, 1),
        "ViewBackward0": x.ravel(),
    }
    for name, y in named.items():
        assert y.grad_fn.name() == name
