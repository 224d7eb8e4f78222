"""What to write in the place of functions of `torch`, and its `nn`, that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ftrans.numpy.advice import declining

_FRACTIONAL = "Draw where windows begin, and write ftrans.nn.adaptive_max_pool2d(x, output_size)."

_INSTEAD = {
    "native_channel_shuffle": "Write ftrans.nn.channel_shuffle(x, groups).",
    "conv_tbc": "Write ftrans.nn.conv1d(x.transpose(1, 2, 0), weight.transpose(2, 1, 0)).",
    "feature_alpha_dropout": "Write ftrans.nn.dropout2d(x), or ftrans.nn.alpha_dropout(x).",
    "grouped_mm": "Write ftrans.numpy.einsum('gnk,gkm->gnm', x, y).",
    "linear_cross_entropy": "Write ftrans.nn.cross_entropy(ftrans.nn.linear(x, weight), target).",
    "logsumexp": "Write ftrans.numpy.logsumexp(x, axis=axis).",
    "multi_head_attention_forward": "Write ftrans.nn.linear for the projections, and "
    "ftrans.nn.scaled_dot_product_attention between them.",
    "scaled_grouped_mm": "Write ftrans.numpy.einsum('gnk,gkm->gnm', x * scale_x, y * scale_y).",
    "scaled_mm": "Write ftrans.numpy.matmul(x * scale_x, y * scale_y).",
}
"""What to write, by the name that is missing."""

_OVER_AXES = {
    "max_pool{}d_with_indices": "Write ftrans.nn.max_pool{}d(..., return_indices=True).",
    "adaptive_max_pool{}d_with_indices": "Write "
    "ftrans.nn.adaptive_max_pool{}d(..., return_indices=True).",
    "fractional_max_pool{}d": _FRACTIONAL,
    "fractional_max_pool{}d_with_indices": _FRACTIONAL,
}
_INSTEAD |= {name.format(n): text.format(n) for name, text in _OVER_AXES.items() for n in (1, 2, 3)}

_OF_INIT = {
    **{name: f"Write ftrans.numpy.{name}(shape)." for name in ("zeros", "ones")},
    "constant": "Write ftrans.numpy.full(shape, value).",
    "eye": "Write ftrans.numpy.eye(n, m).",
    "dirac": "Write kernel = numpy.zeros(shape); kernel[range(c), range(c), size // 2] = 1.",
    "sparse": "Write ftrans.numpy.where(rng.random(shape) < sparsity, 0.0, "
    "ftrans.nn.init.normal(shape, std=0.01, rng=rng)).",
}

PARAMETERS = "parameters are tensors in a pytree of your own, such as a dict, layers functions"
OF_TORCH = {
    "Module": f"Write functions: {PARAMETERS}",
    "masked": "Choose before the operation: torch.where(mask, x, 1)",
    "optim": "Update under torch.no_grad(): w -= rate * w.grad. Or write func.grad and use optax",
    "compile": "Write ftrans.jit(f). Tensors need none: what is pending is compiled as it is",
    "jit": "Write ftrans.jit(f)",
    "save": "Write pickle.dump(x, file)",
    "load": "Write pickle.load(file)",
    "cond": "Write ftrans.cond(pred, true_fun, false_fun, *operands)",
    "lstsq": "Write torch.linalg.lstsq(A, B).solution",
    "adaptive_max_pool1d": "Write F.adaptive_max_pool1d(..., return_indices=True)",
    "backends": "There is nothing to set: leave the line out",
    "profiler": "It is torch.autograd.profiler",
}
"""What to write in the place of names of `torch` that are not there."""

OF_KINDS_OF_TORCH = {
    "sparse": "Tensors are dense",
    "_ex": "Without it, what has no such factors or solutions raises torch.linalg.LinAlgError",
    "_jacobian": "Write torch.autograd.functional.jacobian(f, inputs)",
}
"""The same, of all names that have these in them."""

_OF_JAX = {
    "dot_product_attention": "scaled_dot_product_attention", "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish", "hard_swish": "hardswish", "hard_tanh": "hardtanh",
    "initializers": "init", "log_sigmoid": "logsigmoid", "soft_sign": "softsign",
    "standardize": "layer_norm", "swish": "silu",
}  # fmt: skip
"""What is PyTorch's name for what `jax.nn` has by another one."""

_MODULES = (
    "There are no modules: keep parameters in a pytree, such as a dict, and write a function of "
    "them with ftrans.nn.linear, ftrans.nn.conv2d, ..."
)


def instead(name: str) -> str | None:
    """Returns what to write in the place of a name that is not there."""
    if name[:1].isupper():
        return _MODULES
    if name in _OF_JAX:
        return f"Write ftrans.nn.{_OF_JAX[name]}, which is PyTorch's name."
    if name not in _INSTEAD and name[:1] != "_" and hasattr(jax.nn, name):
        return f"Write ftrans.from_jax(jax.nn.{name})."
    plain = name.removesuffix("_")
    in_place = f"Write x = ftrans.nn.{plain}(x)." if plain != name and name[0] != "_" else None
    return _INSTEAD.get(plain, in_place)


missing: Callable[[str], Any] = declining("ftrans.nn", instead)
missing_initialiser: Callable[[str], Any] = declining(
    "ftrans.nn.init", lambda name: _OF_INIT.get(name.removesuffix("_"))
)
