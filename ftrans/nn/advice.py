"""What to write in the place of functions of `torch.nn.functional` that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ftrans.numpy.advice import declining

_ACTIVATIONS = "celu elu hardtanh leaky_relu relu rrelu selu threshold"

_INSTEAD = {
    **{f"{name}_": f"Write x = ftrans.nn.{name}(x)." for name in _ACTIVATIONS.split()},
    **{
        f"{name}max_pool{n}d_with_indices": f"Write ftrans.nn.{name}max_pool{n}d(..., "
        f"return_indices=True)."
        for name in ("", "adaptive_")
        for n in (1, 2, 3)
    },
    **{
        f"max_unpool{n}d": "Write ftrans.numpy.put_along_axis(zeros, indices, x, axis=-1) on "
        "arrays f32[n, c, positions]."
        for n in (1, 2, 3)
    },
    **{
        name: "Draw where windows begin, and write ftrans.nn.adaptive_max_pool2d(x, output_size)."
        for n in (2, 3)
        for name in (f"fractional_max_pool{n}d", f"fractional_max_pool{n}d_with_indices")
    },
    "affine_grid": "Write ftrans.numpy.matmul(base, theta.T), base being the grid with ones.",
    "conv_tbc": "Write ftrans.nn.conv1d(x.transpose(1, 2, 0), weight.transpose(2, 1, 0)).",
    "embedding_bag": "Write ftrans.nn.embedding(input, weight).sum(axis=-2), or mean, or max.",
    "grid_sample": "Write ftrans.from_jax(jax.scipy.ndimage.map_coordinates)(x, places, 1).",
    "grouped_mm": "Write ftrans.numpy.einsum('gnk,gkm->gnm', x, y).",
    "interpolate": "Write ftrans.from_jax(jax.image.resize)(x, shape, 'nearest').",
    "linear_cross_entropy": "Write ftrans.nn.cross_entropy(ftrans.nn.linear(x, weight), target).",
    "multi_head_attention_forward": "Write ftrans.nn.linear for the projections, and "
    "ftrans.nn.scaled_dot_product_attention between them.",
    "native_channel_shuffle": "Write ftrans.nn.channel_shuffle(x, groups).",
    "scaled_grouped_mm": "Write ftrans.numpy.einsum('gnk,gkm->gnm', x * scale_x, y * scale_y).",
    "scaled_mm": "Write ftrans.numpy.matmul(x * scale_x, y * scale_y).",
    "logsumexp": "Write ftrans.numpy.logsumexp(x, axis=axis).",
}
_INSTEAD |= dict.fromkeys(
    ("upsample", "upsample_bilinear", "upsample_nearest"),
    "Write ftrans.from_jax(jax.image.resize)(x, shape, 'bilinear').",
)
"""What to write, by the name that is missing."""

_MODULES = (
    "There are no modules: keep parameters in a pytree, such as a dict, and write a function of "
    "them with ftrans.nn.linear, ftrans.nn.conv2d, ..."
)


def _instead(name: str) -> str | None:
    if name in _INSTEAD:
        return _INSTEAD[name]
    is_module = name[:1].isupper() and not name.isupper()
    return _MODULES if is_module or name in ("Module", "Parameter") else None


missing: Callable[[str], Any] = declining("ftrans.nn", _instead)
