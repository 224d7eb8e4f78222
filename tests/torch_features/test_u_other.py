"""What else PyTorch's documents name around the engine, row by row."""

from __future__ import annotations

from typing import Any

import pytest

import ftrans.torch as torch
from ftrans.autograd import graph
from ftrans.errors import UnsupportedError
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
    """Differs: in transforms too; what is not traced saves no memory; `context_fn` is declined."""
    again = torch.utils.checkpoint.checkpoint
    w, x = leaf([0.5, 2.0]), leaf([1.0, 2.0])

    def layer(x: Any) -> Any:
        return torch.sin(x * w) * torch.exp(x)

    def f(x: Any, around: Any) -> Any:
        return around(lambda x: around(layer, x).tanh(), layer(x)).sum()

    plain = torch.autograd.grad(f(x, lambda f, x: f(x)), (w, x))
    kept: list[int] = []
    asking = lambda f: lambda x: f(x) if x.requires_grad else x  # noqa: E731
    for around in (lambda f, x: f(x), again, lambda f, x: again(asking(f), x)):
        packed: list[Any] = []
        with graph.saved_tensors_hooks(
            lambda s, packed=packed: (packed.append(s), s)[1], lambda s: s
        ):
            y = f(x, around)
        for found, expected in zip(torch.autograd.grad(y, (w, x)), plain, strict=True):
            same(found, expected)
        kept.append(len(packed))
    assert kept[1] < kept[0] == kept[2]
    inside = torch.func.grad(lambda x: f(x, lambda f, x: again(f, x)))(x.detach())
    same(inside, plain[1])
    with pytest.raises(UnsupportedError, match=r"context_fn(.|\n)*policy="):
        again(layer, x, context_fn=lambda: None)


def test_u5_node_creation_hook() -> None:
    """Declined: it is a proposal that PyTorch 2.13 does not have either, by the same error."""
    with pytest.raises(AttributeError, match=r"graph.*no attribute 'node_creation_hook'"):
        graph.node_creation_hook  # noqa: B018
