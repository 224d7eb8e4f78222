"""Gradients of tensors made smaller in place: by the norm of all of them, or each element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import ftrans.numpy as fnp
from ftrans.autograd.modes import no_grad
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.config import config
from ftrans.errors import FtransError
from ftrans.traceback import boundary


def _grads_of(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    given = [parameters] if type(parameters) is Tensor else list(parameters)
    return [x.grad for x in given if x.grad is not None]


@boundary
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
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
    grads = _grads_of(parameters)
    if not grads:
        return of_array(np.zeros((), config.default_dtype))
    with no_grad():
        norm: Any = fnp.stack([grad.norm(norm_type) for grad in grads])
        norm = norm.norm(norm_type)
        if error_if_nonfinite and not np.isfinite(norm.item()):
            raise FtransError(
                f"clip_grad_norm_: The total norm of order {norm_type} for gradients from "
                f"`parameters` is non-finite, so it cannot be clipped.\n  norm: {norm.item()}\n"
                f"  Pass error_if_nonfinite=False to scale by it nonetheless."
            )
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale)
    return norm  # type: ignore[no-any-return]


@boundary
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clips each element of the gradients of tensors to between minus a value and that."""
    with no_grad():
        for grad in _grads_of(parameters):
            grad.clamp_(-clip_value, clip_value)
