"""The functions of `torch.nn.init`, which write to a tensor, without gradients, and return it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans import numpy as fnp
from ftrans.errors import ArgumentError, ShapeError
from ftrans.ir import Tracer
from ftrans.nn import init
from ftrans.random.torch_draws import rng_of
from ftrans.traceback import boundary

_DRAWING = """
    kaiming_normal kaiming_uniform normal orthogonal trunc_normal uniform xavier_normal
    xavier_uniform
"""


_OTHERS = "constant_ dirac_ eye_ ones_ sparse_ zeros_"


def _written(tensor: Any, values: Any) -> Any:
    """Writes values to a tensor, as under `no_grad`; returns it."""
    target: Any = tensor if type(tensor) is Tracer else tensor.detach()
    target.copy_(values)
    return tensor


def _writing(name: str) -> Callable[..., Any]:
    """Makes a function that writes what the initialiser by a name draws."""
    draw = getattr(init, name)

    def written(tensor: Any, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
        options = {"rng": rng_of(generator), "dtype": tensor.dtype}
        return _written(tensor, draw(tuple(tensor.shape), *args, **options, **kwargs))

    _, *own = inspect.signature(draw).parameters.values()
    settings = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    doc = str(draw.__doc__).partition("\n")[0].replace("Returns", "Writes")
    written.__name__ = written.__qualname__ = f"{name}_"
    written.__doc__ = f"{doc.removesuffix('.')}, see `ftrans.nn.init.{name}`."
    first = inspect.Parameter("tensor", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    last = inspect.Parameter("generator", inspect.Parameter.KEYWORD_ONLY, default=None)
    written.__signature__ = inspect.Signature([first, *settings, last])  # type: ignore[attr-defined]
    return boundary(written)


def constant_(tensor: Any, val: float) -> Any:
    """Writes one value."""
    return _written(tensor, fnp.full(tensor.shape, val, tensor.dtype))


def ones_(tensor: Any) -> Any:
    """Writes ones."""
    return constant_(tensor, 1)


def zeros_(tensor: Any) -> Any:
    """Writes zeros."""
    return constant_(tensor, 0)


def eye_(tensor: Any) -> Any:
    """Writes ones to the diagonal of a matrix, and else zeros."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: takes a matrix.\n  tensor: shape {tuple(tensor.shape)}")
    return _written(tensor, np.eye(*tensor.shape))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Writes kernels, f32[outputs, inputs, ...], that keep as many channels as they can.

    With groups, each has its channels.
    """
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(
            f"dirac_: takes f32[outputs, inputs, ...], with one to three spatial axes, and as many "
            f"outputs in each group.\n  tensor: shape {shape}\n  groups: {groups}"
        )
    kernels, each = np.zeros(shape), shape[0] // groups
    middle = tuple([size // 2 for size in shape[2:]])
    for group in range(groups):
        for channel in range(min(each, shape[1])):
            kernels[(group * each + channel, channel, *middle)] = 1
    return _written(tensor, kernels)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Writes normal numbers to a matrix, and zeros to a part of each column.

    Reference:
        https://www.cs.toronto.edu/~jmartens/docs/Deep_HessianFree.pdf
    """
    if tensor.ndim != 2 or not 0 <= sparsity <= 1:
        raise ArgumentError(
            f"sparse_: takes a matrix, and the part that is zero.\n"
            f"  tensor: shape {tuple(tensor.shape)}\n  sparsity: {sparsity}"
        )
    rng, shape = rng_of(generator), tuple(tensor.shape)
    drawn = init.normal(shape, 0.0, std, rng=rng, dtype=tensor.dtype)
    order = fnp.argsort(fnp.argsort(rng.random(shape), axis=0), axis=0)
    return _written(tensor, fnp.where(order < int(np.ceil(sparsity * shape[0])), 0.0, drawn))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"{name}_": _writing(name) for name in _DRAWING.split()},
    **{name: boundary(globals()[name]) for name in _OTHERS.split()},
    "calculate_gain": init.calculate_gain,
}
"""All of them, by name."""
