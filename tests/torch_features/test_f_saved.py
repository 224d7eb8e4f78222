"""What operations save, and hooks of several tensors, row by row of PyTorch's documents."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ftrans.torch as torch
from ftrans.autograd import grad, graph
from tests.torch_suite.common import Exponential, constant, leaf, same, twice, unchanged

V = [1.0, 2.0]


class Counted:
    """Counts how often it packs and unpacks."""

    def __init__(self, factor: float = 1.0) -> None:
        self.counts = [0, 0]
        self.packed: list[Any] = []
        self.factor = factor

    def pack(self, value: Any) -> Any:
        self.counts[0] += 1
        self.packed.append(value.tolist())
        return value * self.factor

    def unpack(self, value: Any) -> Any:
        self.counts[1] += 1
        return value


def test_f16_saved_tensor() -> None:
    """Works."""
    x = leaf(V)
    saved = x.pow(2).grad_fn._raw_saved_self
    same(saved.unpack(), V)
    same(saved.data, V)
    saved.register_hooks(twice, unchanged)
    same(saved.data, [2.0, 4.0])
    assert saved.unpack_hook is unchanged
    assert type(saved) is torch.autograd.SavedTensor
    with pytest.raises(RuntimeError, match="create a SavedTensor object from Python is forbidden"):
        torch.autograd.SavedTensor()


def test_f17_register_hooks() -> None:
    """Works."""
    x, by = leaf(V), Counted(4.0)
    y = x.pow(2)
    raw = y.grad_fn._raw_saved_self
    raw.register_hooks(by.pack, by.unpack)
    assert by.counts == [1, 0]
    same(y.grad_fn._saved_self, [4.0, 8.0])
    assert by.counts == [1, 1]
    with pytest.raises(RuntimeError, match="only one pair of hooks is allowed at a time"):
        raw.register_hooks(by.pack, by.unpack)
    y.sum().backward()
    same(x.grad, [8.0, 16.0])
    assert by.counts == [1, 2]
    with pytest.raises(RuntimeError, match="after it has been freed"):
        raw.register_hooks(by.pack, by.unpack)


def test_f18_saved_tensors_hooks() -> None:
    """Differs: `a * b` packs a first, as the documents print; transforms work and pack nothing."""
    x, by = leaf(V), Counted()
    with graph.saved_tensors_hooks(by.pack, by.unpack):
        y = x * x
    assert by.counts == [2, 0]
    same(y.grad_fn._saved_self, V)
    same(y.grad_fn._saved_other, V)
    assert by.counts == [2, 2]

    by = Counted(2.0)
    with graph.saved_tensors_hooks(by.pack, by.unpack):
        leaf(3.0) * leaf(5.0)
        y = Exponential.apply(x)
        found: list[Any] = []
        other = threading.Thread(target=lambda: found.append((x * x).sum()))
        other.start()
        other.join()
        slope = torch.func.grad(lambda t: (t * t).sum())(torch.tensor(V))
    assert by.packed == [3.0, 5.0, y.tolist()]
    y.sum().backward()
    same(x.grad, 2 * np.exp(V))
    x.grad = None
    found[0].backward()
    same(x.grad, [2.0, 4.0])
    assert slope.tolist() == [2.0, 4.0]


def test_f19_hooks_compose() -> None:
    """Differs: blocks inside of each other compose, the inner one packs first."""
    a, b = leaf(V), leaf(V)
    with graph.saved_tensors_hooks(lambda x: 3 * x, lambda x: 3 * x):
        with graph.saved_tensors_hooks(lambda x: 5 * x, lambda x: 5 * x):
            y = a**2
        z = b**2
    y.sum().backward()
    z.sum().backward()
    same(a.grad, 2 * 5 * 5 * 3 * 3 * np.array(V))
    same(b.grad, 2 * 3 * 3 * np.array(V))


def test_f20_unpack_runs_at_each_read() -> None:
    """Works."""
    x, by = leaf(V), Counted()
    with graph.saved_tensors_hooks(by.pack, by.unpack):
        y = x * x
    for _ in range(3):
        same(y.grad_fn._saved_self, V)
    assert by.counts == [2, 3]


def test_f21_writes_in_hooks() -> None:
    """Differs: pack hooks raise as there; no unpack hook can write to the tensor itself."""
    a = leaf(V)
    with (
        graph.saved_tensors_hooks(lambda x: x.mul_(2), unchanged),
        pytest.raises(RuntimeError, match="pack hook is modifying its input in place"),
    ):
        a**2
    with graph.saved_tensors_hooks(lambda x: x.detach(), lambda x: x.mul_(2)):
        y = a**2
    y.sum().backward()
    same(a.grad, [4.0, 8.0])
    same(a, V)


def test_f22_what_unpack_returns_is_checked() -> None:
    """Differs: the shape and the dtype are checked at once, and the error names both types."""

    def goes_back(returned: Any) -> None:
        a = leaf(V)
        with graph.saved_tensors_hooks(unchanged, lambda x: returned):
            y = a**2
        y.sum().backward()

    message = "Output of saved tensor unpack_hook expected to be a Tensor"
    with pytest.raises(TypeError, match=message):
        goes_back(1)
    with pytest.raises(RuntimeError, match=r"saved: f64\[2\]\n  returned: f64\[3\]"):
        goes_back(constant([1.0, 1.0, 1.0]))
    with pytest.raises(RuntimeError, match=r"saved: f64\[2\]\n  returned: f32\[2\]"):
        goes_back(torch.ones(2, dtype=torch.float32))


def test_f23_pack_returns_its_input() -> None:
    """Differs: there is no cycle, so that the documents' example may return its input."""

    def makes() -> weakref.ref[Any]:
        a = leaf(V)
        with graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            y = a.exp()
        same(y, np.exp(V))
        assert y.grad_fn.name() == "ExpBackward0"
        return weakref.ref(y)

    gc.disable()
    try:
        assert makes()() is None
    finally:
        gc.enable()
    a = leaf(V)
    with graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        y = a.exp()
    y.sum().backward()
    same(a.grad, np.exp(V))


def test_f24_numbers_are_not_packed() -> None:
    """Works."""

    def never(value: Any) -> Any:
        raise AssertionError("packed a number")

    a = leaf(V)
    with graph.saved_tensors_hooks(never, unchanged):
        y = a * 3 + 3 * a
    y.sum().backward()
    same(a.grad, [6.0, 6.0])


def test_f25_hooks_and_double_backward() -> None:
    """Works."""
    a = leaf(3.0)
    with graph.saved_tensors_hooks(twice, unchanged):
        y = a**3
    (first,) = grad(y, a, create_graph=True)
    same(grad(first, a)[0], 6 * 2 * 3.0)
    with graph.saved_tensors_hooks(twice, unchanged):
        (first,) = grad(a**3, a, create_graph=True)
        (second,) = grad(first, a)
    same(second, 6 * 8 * 3.0)


def test_f26_saved_values_are_new_objects() -> None:
    """Works."""
    x = leaf(V)
    assert x.pow(2).grad_fn._saved_self is x
    with graph.saved_tensors_hooks(unchanged, unchanged):
        y = x.pow(2)
    assert y.grad_fn._saved_self is not x
    same(y.grad_fn._saved_self, V)


class SelfDeletingFile:
    """Is removed with the object that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __del__(self) -> None:
        self.path.unlink()


def test_f27_saved_on_disk(tmp_path: Path) -> None:
    """Differs: pickle, as the error of `torch.save` says, or NumPy writes the files."""

    def pack(x: Any) -> SelfDeletingFile:
        packed = SelfDeletingFile(tmp_path / f"{len(list(tmp_path.iterdir()))}.pickle")
        packed.path.write_bytes(pickle.dumps(x))
        return packed

    a = leaf(V)
    with graph.saved_tensors_hooks(pack, lambda packed: pickle.loads(packed.path.read_bytes())):
        y = a * a
    assert len(list(tmp_path.iterdir())) == 2
    y.sum().backward()
    same(a.grad, [2.0, 4.0])
    gc.collect()
    assert not list(tmp_path.iterdir())
    with pytest.raises(AttributeError, match=r"Write pickle\.dump\(x, file\)"):
        torch.save(a, tmp_path / "a.pt")


@pytest.mark.parametrize("pin_memory", [False, True])
def test_f28_save_on_cpu(pin_memory: bool) -> None:
    """Works."""
    x = leaf(V)
    with graph.save_on_cpu(pin_memory=pin_memory, device_type="cuda"):
        y = (x * x).sum()
        slope = torch.func.grad(lambda t: (t**3).sum())(torch.tensor(V))
    y.backward()
    same(x.grad, [2.0, 4.0])
    assert slope.tolist() == [3.0, 12.0]


def test_f29_disable_saved_tensors_hooks() -> None:
    """Works."""
    with graph.disable_saved_tensors_hooks("no hooks please"):
        with pytest.raises(RuntimeError, match=r"^no hooks please$"), graph.save_on_cpu():
            pass
        with (
            graph.disable_saved_tensors_hooks("none here"),
            pytest.raises(RuntimeError, match=r"^none here$"),
            graph.save_on_cpu(),
        ):
            pass
        with pytest.raises(RuntimeError, match=r"^no hooks please$"), graph.save_on_cpu():
            pass
    with graph.save_on_cpu():
        y = leaf(V) ** 2
    same(y, [1.0, 4.0])


def test_f30_register_multi_grad_hook() -> None:
    """Differs: leaves may have such hooks with `autograd.grad` as well, which is an error there."""
    a, b = leaf(2.0), leaf(3.0)
    c, d = a * b, a * b
    found: list[list[bool]] = []

    def note(gradients: Any) -> None:
        found.append([g is not None for g in gradients])

    handle = graph.register_multi_grad_hook((a, b, c, d), note)
    c.backward(retain_graph=True)
    assert found == [[True, True, True, False]]
    c.backward(inputs=(a,), retain_graph=True)
    assert found[1:] == [[True, False, True, False]]
    handle.remove()

    first: list[float] = []
    with graph.register_multi_grad_hook((a, b), lambda g: first.append(g.item()), mode="any"):
        c.backward(retain_graph=True)
    assert len(first) == 1
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((a,), note, mode="some")

    with graph.register_multi_grad_hook((a, b), note):
        grad(c, (a, b))
    assert found[2:] == [[True, True]]


def test_f31_allow_mutation_on_saved_tensors() -> None:
    """Differs: no copies are kept; blocks nest, and backward works outside of them as well."""
    a = leaf(V)
    with graph.allow_mutation_on_saved_tensors() as context:
        with graph.allow_mutation_on_saved_tensors():
            b = a.clone()
            out = (b**2).sum()
            b.sin_()
        out.backward(retain_graph=True)
        same(a.grad, [2.0, 4.0])
        context.clear()
    out.backward()
    same(a.grad, [4.0, 8.0])
    same(b, np.sin(V))

    @graph.allow_mutation_on_saved_tensors()
    def decorated() -> None:
        a.detach().clone().sin_()

    decorated()
