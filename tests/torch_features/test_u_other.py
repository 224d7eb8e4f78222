"""What else PyTorch's documents name around the engine, row by row."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import graph
from tests.torch_suite.common import leaf, same


def test_u1_region_activation_memory_budget() -> None:
    """Declined: it is for `torch.compile` alone, and an error in PyTorch without that, too."""
    with (
        pytest.raises(RuntimeError, match="region_activation_memory_budget"),
        graph.region_activation_memory_budget(0.5),
    ):
        pass


@pytest.mark.parametrize(
    "name", ["set_warn_on_accumulate_grad_stream_mismatch", "set_override_stale_capture_stream"]
)
def test_u2_streams_of_cuda(name: str) -> None:
    """Declined: there are no streams; the error says to leave the call out."""
    with pytest.raises(AttributeError, match=rf"{name}(.|\n)*no streams\. Leave the call out\."):
        getattr(graph, name)


def test_u3_grad_dtype() -> None:
    """Declined: it is the tensor's dtype; to set another is an error that says what to write."""
    for dtype in (torch.float32, torch.float64):
        x = torch.ones(2, dtype=dtype, requires_grad=True)
        assert x.grad_dtype == dtype
        x.grad_dtype = dtype
    for dtype in (torch.float16, None):
        with pytest.raises(RuntimeError, match=r"Convert the tensor: x\.to\(dtype\)"):
            x.grad_dtype = dtype
    assert x.grad_dtype == torch.float64
    (x * 2).sum().backward()
    same(x.grad.to(torch.float16), [2.0, 2.0])


def test_u4_checkpoint() -> None:
    """Declined: the error says to call the function, and which hooks pack what is saved."""
    with pytest.raises(AttributeError, match=r"Call the function itself(.|\n)*saved_tensors_hooks"):
        torch.utils.checkpoint.checkpoint  # noqa: B018
    packed: list[Any] = []

    def pack(saved: Any) -> Any:
        packed.append(saved)
        return saved.detach().numpy()

    def f(x: Any) -> Any:
        return torch.sin(x * x) * torch.exp(x)

    x = leaf([1.0, 2.0])
    (expected,) = torch.autograd.grad(f(x).sum(), x)
    with graph.saved_tensors_hooks(pack, torch.from_numpy):
        y = f(x).sum()
    same(torch.autograd.grad(y, x)[0], expected)
    assert packed


def test_u5_node_creation_hook() -> None:
    """Declined: it is a proposal that PyTorch 2.13 does not have either, by the same error."""
    with pytest.raises(AttributeError, match=r"graph.*no attribute 'node_creation_hook'"):
        graph.node_creation_hook  # noqa: B018
