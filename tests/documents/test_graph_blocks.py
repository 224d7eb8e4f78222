"""The code of PyTorch's pages on the graph, saved tensors, modes, the profiler, the old API."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.torch import autograd
from tests.helpers import assert_close


def test_saved_self_is_the_operand() -> None:
    x = torch.randn(5, requires_grad=True)
    y = x.pow(2)
    assert x.equal(y.grad_fn._saved_self)
    assert x is y.grad_fn._saved_self


def test_saved_result_is_another_tensor() -> None:
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    assert y.equal(y.grad_fn._saved_result)
    assert y is not y.grad_fn._saved_result


def test_division_by_zero() -> None:
    """Here a mask that is chosen by is seen: the gradient is 0, where PyTorch has NaN."""
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    div = torch.tensor([0.0, 1.0])
    mask = div != 0
    safe = torch.zeros_like(x)
    safe[mask] = x[mask] / div[mask]
    safe.sum().backward()
    assert_close(x.grad, [0.0, 1.0])


class SelfDeletingTempFile:
    def __init__(self, folder: str) -> None:
        self.name = os.path.join(folder, str(uuid.uuid4()))

    def __del__(self) -> None:
        os.remove(self.name)


def test_saved_tensors_on_a_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def pack_hook(tensor: Any) -> Any:
            temp_file = SelfDeletingTempFile(folder)
            with open(temp_file.name, "wb") as file:
                np.save(file, tensor.numpy())
            return temp_file

        def unpack_hook(temp_file: Any) -> Any:
            with open(temp_file.name, "rb") as file:
                return torch.from_numpy(np.load(file))

        x = torch.randn(5, requires_grad=True)
        y = x.pow(2)
        y.grad_fn._raw_saved_self.register_hooks(pack_hook, unpack_hook)
        assert len(os.listdir(folder)) == 1
        assert torch.equal(y.grad_fn._saved_self, x)
        with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
            z = (x * x).sum()
        assert len(os.listdir(folder)) == 3
        (y.sum() + z).backward()
        assert_close(x.grad.numpy(), 4 * x.detach().numpy())
        del y, z
        assert os.listdir(folder) == []


def test_hooks_for_large_tensors_alone() -> None:
    kept = []

    def pack_hook(x: Any) -> Any:
        if x.numel() < 1000:
            return x
        kept.append(x.shape)
        return x.numpy().copy()

    def unpack_hook(packed: Any) -> Any:
        return packed if isinstance(packed, torch.Tensor) else torch.from_numpy(packed)

    def model(x: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
            return (x * x).sum()

    small, large = torch.randn(5, requires_grad=True), torch.randn(2000, requires_grad=True)
    (model(small) + model(large)).backward()
    assert kept == [(2000,), (2000,)]
    assert_close(large.grad.numpy(), 2 * large.detach().numpy())


def test_pack_hooks_print() -> None:
    log = []

    def pack_hook(x: Any) -> Any:
        log.append(("Packing", x.tolist()))
        return x.detach()

    def unpack_hook(x: Any) -> Any:
        log.append(("Unpacking", x.tolist()))
        return x

    a = torch.ones(5, requires_grad=True)
    b = torch.ones(5, requires_grad=True) * 2
    with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
        y = a * b
    y.sum().backward()
    assert sorted(log[:2]) == [("Packing", [1.0] * 5), ("Packing", [2.0] * 5)]
    assert sorted(log[2:]) == [("Unpacking", [1.0] * 5), ("Unpacking", [2.0] * 5)]


def test_save_on_cpu() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        prod_1 = a * b
        with torch.autograd.graph.save_on_cpu():
            prod_2 = prod_1 * c
        return prod_2 * a

    a = torch.randn(5, requires_grad=True)
    b, c = torch.randn(5), torch.randn(5)
    y = f(a, b, c)
    y.sum().backward()
    assert_close(a.grad.numpy(), (2 * a.detach() * b * c).numpy())


def test_hooks_are_disabled() -> None:
    message = "saved tensors default hooks are disabled"
    with (
        torch.autograd.graph.disable_saved_tensors_hooks(message),
        pytest.raises(RuntimeError, match=message),
        torch.autograd.graph.save_on_cpu(),
    ):
        pass


def test_a_hook_of_several_tensors() -> None:
    a, b = torch.rand(2, 3, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    c, d = a * b, a * b
    calls = []

    def fn(grads: Any) -> None:
        calls.append([g is not None for g in grads])

    torch.autograd.graph.register_multi_grad_hook((a, b, c, d), fn)
    c.sum().backward(retain_graph=True)
    c.sum().backward(inputs=(a,), retain_graph=True)
    assert calls == [[True, True, True, False], [True, False, True, False]]


def test_mutation_of_saved_tensors() -> None:
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = torch.ones(2, 3, requires_grad=True)
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        out.sum().backward()
    assert_close(a.grad.numpy(), np.full((2, 3), 2.0))


def test_metadata_and_names_of_nodes() -> None:
    a = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    b = a.clone()
    assert isinstance(b.grad_fn, torch.autograd.graph.Node)
    assert b.grad_fn.metadata == {}
    assert b.grad_fn.name() == "CloneBackward0"
    assert b.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_hooks_of_nodes() -> None:
    a = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    b = a.clone()
    handle = b.grad_fn.register_hook(lambda gI, gO: (gO[0] * 2,))
    b.sum().backward(retain_graph=True)
    assert_close(a.grad, [2.0, 2.0, 2.0])
    handle.remove()
    a.grad = None
    b.sum().backward(retain_graph=True)
    assert_close(a.grad, [1.0, 1.0, 1.0])
    a.grad = None
    b.grad_fn.register_prehook(lambda gI: (gI[0] * 2,))
    b.sum().backward()
    assert_close(a.grad, [2.0, 2.0, 2.0])


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomalies() -> None:
    class MyFunc(autograd.Function):
        @staticmethod
        def forward(ctx: Any, inp: Any) -> Any:
            return inp.clone()

        @staticmethod
        def backward(ctx: Any, gO: Any) -> Any:
            raise RuntimeError("Some error in backward")

    def run_fn(a: Any) -> Any:
        out = MyFunc.apply(a)
        return out.sum()

    inp = torch.rand(10, 10, requires_grad=True)
    out = run_fn(inp)
    with pytest.raises(RuntimeError, match="Some error in backward"):
        out.backward()
    with autograd.detect_anomaly():
        inp = torch.rand(10, 10, requires_grad=True)
        out = run_fn(inp)
        with pytest.raises(RuntimeError, match="Some error in backward"):
            out.backward()


def test_the_profiler(tmp_path: Path) -> None:
    x = torch.randn((1, 1), requires_grad=True)
    with torch.autograd.profiler.profile() as prof:
        for _ in range(100):
            y = x**2
            y.backward()
    table = prof.key_averages().table(sort_by="self_cpu_time_total")
    assert "integer_pow" in table
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert (tmp_path / "trace.json").stat().st_size > 0


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_variables_of_old() -> None:
    from ftrans.torch.autograd import Variable

    v = Variable(torch.tensor([0.0, 0.0, 0.0]), requires_grad=True)
    h = v.register_hook(lambda grad: grad * 2)
    v.backward(torch.tensor([1.0, 1.0, 1.0]))
    assert_close(v.grad, [2.0, 2.0, 2.0])
    h.remove()
    x = Variable(torch.tensor([1.0, 2.0]), requires_grad=True)
    torch.autograd.backward([x * 2], grad_variables=[torch.tensor([1.0, 1.0])])
    assert_close(x.grad, [2.0, 2.0])


def test_masked_tensors_are_declined() -> None:
    with pytest.raises(AttributeError, match=r"torch\.where"):
        _ = torch.masked.as_masked_tensor


def test_modes() -> None:
    x = torch.tensor([1.0], requires_grad=True)
    with torch.inference_mode():
        y = x * 2
    assert not y.requires_grad
    assert torch.is_inference(y)
    assert not torch.is_inference_mode_enabled()
