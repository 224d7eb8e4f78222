"""Gradients of tensors made smaller in place: by the norm of all of them, or each element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.config import config
from ftrans.errors import FtransError
from ftrans.traceback import OnTape, boundary


def _gradients_of(parameters: Any) -> list[Any]:
    """Returns the gradients of a tensor, or of several, without histories."""
    given = [parameters] if type(parameters) in OnTape.types else list(parameters)
    grads = [x.grad for x in given if x.grad is not None]
    return [grad.detach() if grad.requires_grad else grad for grad in grads]


@boundary
def clip_grad_norm_(
    parameters: Any | Iterable[Any],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scales the gradients of tensors so that the norm of all their elements is at most so large.

    Args:
        parameters: tensors; those without a gradient do not count.
        max_norm: the largest norm.
        norm_type: which norm, as of `numpy.linalg.norm`: 2, 1, inf, ...
        error_if_nonfinite: whether a norm that is NaN or infinite is an error.
        foreach: has no effect.

    Returns:
        The norm before, f32[].

    Raises:
        FtransError: where the norm is not finite, if that is asked for.
    """
    grads = _gradients_of(parameters)
    if not grads:
        return OnTape.of_array(np.zeros((), config.default_dtype))
    norm: Any = fnp.stack([grad.norm(norm_type) for grad in grads]).norm(norm_type)
    if error_if_nonfinite and not np.isfinite(norm.item()):
        raise FtransError(
            f"clip_grad_norm_: The total norm of order {norm_type} for gradients from "
            f"`parameters` is non-finite, so it cannot be clipped.\n  norm: {norm.item()}\n"
            f"  Pass error_if_nonfinite=False to scale by it nonetheless."
        )
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scale)
    return norm


@boundary
def clip_grad_value_(
    parameters: Any | Iterable[Any], clip_value: float, foreach: bool | None = None
) -> None:
    """Clips each element of the gradients of tensors to between minus a value and that."""
    for grad in _gradients_of(parameters):
        grad.clamp_(-clip_value, clip_value)
