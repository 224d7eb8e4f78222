"""Hooks that pack what operations save: the tests of PyTorch's `test_autograd.py`."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import Tensor, tensor
from ftrans.autograd import Function, grad, graph, is_grad_enabled
from ftrans.errors import GraphError
from tests.torch_suite.common import Exponential, constant, leaf, same, twice, unchanged


def to_numpy(value: Tensor) -> np.ndarray:
    return value.numpy().copy()


# -------------------------------------------------------------------------- the hooks of a block


def test_default_saved_tensors_hooks_double_backward() -> None:
    with graph.saved_tensors_hooks(unchanged, unchanged):
        a = leaf(2.0)
        (first,) = grad(a**3, a, create_graph=True)
        (second,) = grad(first, a)
    same(second, 12.0)
    a = leaf(2.0)
    with graph.saved_tensors_hooks(twice, unchanged):
        y = a**3
    y.backward(create_graph=True)
    same(a.grad, 3 * 16.0)
    same(grad(a.grad, a)[0], 6 * 2 * 2.0)


def test_saved_tensor_hooks_custom_function_intermediates() -> None:
    class Intermediate(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            intermediate = x.exp()
            ctx.save_for_backward(intermediate.clone())
            ctx.intermediate = intermediate
            return x.exp()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (intermediate,) = ctx.saved_tensors
            return ct * intermediate

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(to_numpy, tensor):
        y = Intermediate.apply(a)
    y.sum().backward()
    same(a.grad, np.exp([1.0, 2.0]))


def test_saved_tensor_hooks_custom_error_propagation() -> None:
    class CustomError(Exception):
        pass

    def raises(value: Any) -> Any:
        raise CustomError

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(raises, unchanged), pytest.raises(CustomError):
        a * a
    with graph.saved_tensors_hooks(unchanged, raises):
        y = a * a
    with pytest.raises(CustomError):
        y.sum().backward()


def test_saved_tensor_hooks_extra_enter_during_bw_no_leak() -> None:
    def packs_and_goes_back() -> weakref.ref[Any]:
        a = leaf([1.0, 2.0])
        with graph.saved_tensors_hooks(lambda x: x.detach().clone(), unchanged):
            (a * a).sum().backward()
        return weakref.ref(a)

    gc.disable()
    try:
        assert packs_and_goes_back()() is None
    finally:
        gc.enable()


def test_saved_tensor_hooks_extra_exit_during_bw_no_crash() -> None:
    a = leaf([1.0, 2.0])

    def unpack(value: Tensor) -> Tensor:
        with graph.saved_tensors_hooks(unchanged, unchanged):
            value * value
        return value

    with graph.saved_tensors_hooks(unchanged, unpack):
        y = (a * a).sum()
    y.backward()
    same(a.grad, [2.0, 4.0])


def test_saving_variable_to_disk(tmp_path: Path) -> None:
    written: list[Path] = []

    def pack(value: Tensor) -> Path:
        path = tmp_path / f"{len(written)}.npy"
        np.save(path, value.numpy())
        written.append(path)
        return path

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(pack, lambda path: tensor(np.load(path))):
        y = a * a
    same(y.grad_fn._saved_self, a)
    y.sum().backward()
    same(a.grad, [2.0, 4.0])
    assert len(written) == 2


def test_setting_default_saved_variable_hooks_twice_should_use_inner() -> None:
    """PyTorch uses the inner pair alone; here both pack, the inner one first."""
    with graph.saved_tensors_hooks(lambda x: 3 * x, lambda x: 3 * x):
        b = leaf([1.0, 3.0])
        with graph.saved_tensors_hooks(lambda x: 5 * x, lambda x: 5 * x):
            a = leaf([1.0, 2.0])
            y = a * a
        z = b * b
    y.sum().backward()
    z.sum().backward()
    same(a.grad, 2 * 25 * 9 * np.array([1.0, 2.0]))
    same(b.grad, 2 * 9 * np.array([1.0, 3.0]))


def test_setting_default_saved_variable_hooks_twice_should_not_fail() -> None:
    with (
        graph.saved_tensors_hooks(unchanged, unchanged),
        graph.saved_tensors_hooks(unchanged, unchanged),
    ):
        pass


def test_pack_hook_with_inplace_modification_should_fail() -> None:
    def increment(value: Tensor) -> Tensor:
        value += 1
        return value

    message = "A saved tensor pack hook is modifying its input in place"
    a = leaf([1.0, 2.0])
    with (
        graph.saved_tensors_hooks(increment, unchanged),
        pytest.raises(RuntimeError, match=message),
    ):
        a * a
    y = a * a
    with pytest.raises(RuntimeError, match=message):
        y.grad_fn._raw_saved_self.register_hooks(increment, unchanged)
    y.sum().backward()
    same(a.grad, [2.0, 4.0])


def test_saved_tensors_hook_version_counter_not_shared() -> None:
    class Test(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            (x,) = ctx.saved_tensors
            return ct * x.cos()

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(to_numpy, tensor):
        y = Test.apply(a)
    before = a._version
    y.sum().backward()
    assert a._version == before
    same(a.grad, np.cos([1.0, 2.0]))


def test_default_saved_tensors_hooks_count() -> None:
    packed: list[int] = []
    unpacked: list[int] = []

    def pack(value: Tensor) -> Tensor:
        packed.append(1)
        return value

    def unpack(value: Tensor) -> Tensor:
        unpacked.append(1)
        return value

    x, y = leaf(np.ones((2, 5))), leaf(2 * np.ones((2, 5)))
    with graph.saved_tensors_hooks(pack, unpack):
        out = x * y
    assert (len(packed), len(unpacked)) == (2, 0)
    out.sum().backward()
    assert (len(packed), len(unpacked)) == (2, 2)


def test_hooks_see_only_what_the_backward_needs() -> None:
    seen: list[float] = []

    def note(value: Tensor) -> Tensor:
        seen.append(value.item())
        return value

    with graph.saved_tensors_hooks(note, note):
        out = leaf([2.0]) * constant([3.0])
        out.sum().backward()
        with ftrans.no_grad():
            leaf([1.0]) * leaf([2.0])
        constant([1.0]) * constant([2.0])
    assert seen == [3.0, 3.0]


def test_disabling_saved_tensor_hooks() -> None:
    with (
        graph.disable_saved_tensors_hooks("error message"),
        pytest.raises(RuntimeError, match="error message"),
        graph.saved_tensors_hooks(unchanged, unchanged),
    ):
        pass
    with graph.saved_tensors_hooks(unchanged, unchanged):
        pass


def test_disabling_saved_tensor_hooks_nested() -> None:
    with graph.disable_saved_tensors_hooks("outer"):
        with (
            graph.disable_saved_tensors_hooks("inner"),
            pytest.raises(RuntimeError, match="inner"),
            graph.saved_tensors_hooks(unchanged, unchanged),
        ):
            pass
        with (
            pytest.raises(RuntimeError, match="outer"),
            graph.saved_tensors_hooks(unchanged, unchanged),
        ):
            pass
    with graph.saved_tensors_hooks(unchanged, unchanged):
        pass


def test_hooks_and_unpacked_values_do_not_record() -> None:
    modes: list[tuple[bool, bool]] = []

    def note(value: Tensor) -> Tensor:
        modes.append((is_grad_enabled(), value.requires_grad))
        return value

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(note, note):
        y = a * a
    y.sum().backward()
    assert modes == [(False, False)] * 4


def test_graph_save_on_cpu() -> None:
    values = np.linspace(0.1, 1.0, 5)
    for pin in (False, True):
        a = leaf(values)
        with graph.save_on_cpu(pin):
            y = (a.relu() * a.relu() * a).sum()
            (first,) = grad(y, a, create_graph=True)
            (second,) = grad(first.sum(), a)
        same(first, 3 * values**2)
        same(second, 6 * values)


def test_graph_save_on_cpu_as_a_decorator() -> None:
    @graph.save_on_cpu()
    def square(x: Tensor) -> Tensor:
        return (x * x).sum()

    x = leaf([1.0, 2.0])
    square(x).backward()
    same(x.grad, [2.0, 4.0])


def test_default_saved_tensors_hooks_are_of_a_thread() -> None:
    packed: list[int] = []
    found: list[Tensor] = []
    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda x: packed.append(1) or x, unchanged):
        thread = threading.Thread(target=lambda: found.append((a * a).sum()))
        thread.start()
        thread.join()
    found[0].backward()
    same(a.grad, [2.0, 4.0])
    assert not packed


def test_checkpoint_by_hooks() -> None:
    def f(x: Tensor) -> Tensor:
        return ((x * x).sin() * x.exp()).sum()

    def checkpointed(x: Tensor) -> Tensor:
        count = iter(range(100))
        again: list[Tensor] = []
        given = x.detach()

        def pack(value: Tensor) -> int:
            return next(count)

        def keep(value: Tensor) -> Tensor:
            again.append(value.detach())
            return value

        def unpack(number: int) -> Tensor:
            if not again:
                with ftrans.enable_grad(), graph.saved_tensors_hooks(keep, unchanged):
                    f(given.detach().requires_grad_())
            return again[number]

        with graph.saved_tensors_hooks(pack, unpack):
            return f(x)

    a = leaf([1.0, 2.0])
    v = np.array([1.0, 2.0])
    expected = np.exp(v) * (np.sin(v**2) + 2 * v * np.cos(v**2))
    same(grad(checkpointed(a), a)[0], expected)


def test_unpack_that_raises_once_can_be_called_again() -> None:
    calls: list[int] = []

    def unpack(value: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("unpack")
        return value

    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(unchanged, unpack):
        y = (a * a).sum()
    with pytest.raises(KeyError):
        y.backward()
    y.backward()
    same(a.grad, [2.0, 4.0])


def test_unpack_must_return_a_tensor() -> None:
    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda x: 1, lambda x: "no tensor"):
        y = (a * a).sum()
    with pytest.raises((TypeError, GraphError)):
        y.backward()


def test_saved_function_values_are_packed() -> None:
    packed: list[tuple[int, ...]] = []
    a = leaf([1.0, 2.0])
    with graph.saved_tensors_hooks(lambda x: packed.append(x.shape) or x, unchanged):
        y = Exponential.apply(a)
    y.sum().backward()
    assert packed == [(2,)]
    same(a.grad, np.exp([1.0, 2.0]))


@pytest.mark.parametrize("shape", [(0, 3), (), (3, 2), (1, 1, 1)])
def test_packing_of_any_shape(shape: tuple[int, ...]) -> None:
    a = leaf(np.full(shape, 3.0))
    with graph.saved_tensors_hooks(to_numpy, tensor):
        y = (a * a).sum()
    y.backward()
    same(a.grad, np.full(shape, 6.0))
