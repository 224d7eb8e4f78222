"""`torch.utils.checkpoint`: backward passes that compute functions of tensors again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ftrans import func
from ftrans.autograd.tape import recorded
from ftrans.errors import UnsupportedError
from ftrans.ir.stack import state
from ftrans.traceback import boundary

Function = Callable[..., Any]


@boundary
def checkpoint(
    function: Function,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Returns `function(*args, **kwargs)`, of which a backward pass computes the inside again.

    It is `func.checkpoint` for tensors. What is drawn at random inside is kept, and not drawn
    again; tensors that the function closes over get their gradients.

    Args:
        function: takes and returns pytrees of tensors.
        *args: its arguments.
        use_reentrant: PyTorch's, as are the names that follow: without effect here.
        preserve_rng_state: see there.
        context_fn: not supported; None.
        determinism_check: see there.
        debug: see there.
        early_stop: see there.
        **kwargs: further arguments of the function.

    Raises:
        UnsupportedError: where `context_fn` is given.

    Example:
        >>> import ftrans.torch as torch
        >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
        >>> torch.utils.checkpoint.checkpoint(lambda x: x.exp().sum(), x).backward()
        >>> x.grad
        tensor([1.0000, 2.7183])
    """
    if context_fn is not None:
        raise UnsupportedError(
            f"checkpoint: context_fn is not supported.\n  context_fn: {context_fn!r:.60}\n"
            "  To say what is saved, write func.checkpoint(function, policy=...), on values."
        )
    again = func.checkpoint(function)
    return again(*args, **kwargs) if state.stack else recorded(again, *args, **kwargs)


@boundary
def checkpoint_sequential(
    functions: Sequence[Function], segments: int, input: Any, **options: Any
) -> Any:
    """Applies functions one after the other, in so many stretches, each but the last a checkpoint.

    Args:
        functions: each takes what the one before returns.
        segments: how many stretches.
        input: what the first takes.
        **options: those of `checkpoint`.
    """
    size = max(len(functions) // segments, 1)
    ends = [size * i for i in range(1, segments)]
    for start, end in zip([0, *ends], [*ends, len(functions)], strict=True):
        stretch = functions[start:end]

        def run(x: Any, stretch: Sequence[Function] = stretch) -> Any:
            for function in stretch:
                x = function(x)
            return x

        input = run(input) if end == len(functions) else checkpoint(run, input, **options)
    return input
