"""Functions of networks that `torch` has as well, some of which have other arguments there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.traceback import boundary

TOO = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    max_pool1d max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d
    layer_norm group_norm rms_norm cosine_similarity pairwise_distance pdist
    celu selu prelu rrelu hardshrink threshold bilinear
    pixel_shuffle pixel_unshuffle channel_shuffle
"""
"""Functions that `torch` has with the same arguments."""

METHODS = """
    bernoulli cholesky_inverse cholesky_solve hardshrink igamma igammac istft lu_solve matrix_exp
    multinomial mvlgamma polygamma prelu stft triangular_solve
"""
"""Methods of tensors that are functions of this package, of `ftrans.scipy`, or draw."""

IN_PLACE = """
    relu relu6 elu celu selu silu mish rrelu leaky_relu threshold hardtanh hardswish hardsigmoid
    alpha_dropout dropout1d dropout2d dropout3d
"""
"""Functions of networks that take `inplace` last, see `placed`."""


def placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that takes `inplace` by name take it by its place too, after all others."""
    parameters = inspect.signature(function).parameters.values()
    count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if len(args) == count + 1:
            return function(*args[:count], inplace=args[count], **kwargs)
        return function(*args, **kwargs)

    return called


_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def numbered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a loss take its arguments as that of `torch` does.

    Numbers, 0 to 2, mean "none", "mean" and "sum" there; without one it returns all values.
    """
    names = list(inspect.signature(function).parameters)
    place = names.index("reduction")
    if function.__name__ == "binary_cross_entropy_with_logits":
        names = [*names[:3], "pos_weight", "reduction"]

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names[place:], args[place:], strict=False)) | kwargs
        how = given.pop("reduction", "none")
        return function(*args[:place], **given, reduction=_REDUCTIONS.get(how, how))

    return called


LOSSES = """
    binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss hinge_embedding_loss kl_div
    margin_ranking_loss poisson_nll_loss triplet_margin_loss
"""
"""Those that `torch` has, see `numbered`."""

_NORM = "input weight bias running_mean running_var {} momentum eps cudnn_enabled"
ORDERS = {
    "batch_norm": _NORM.format("training"),
    "dropout": "input p training",
    "embedding": "weight input padding_idx scale_grad_by_freq sparse",
    "instance_norm": _NORM.format("use_input_stats"),
}
"""Functions that `torch` has with other orders of arguments: these."""
_OLD_NAMES = {"train": "training", "indices": "input"}


def reordered(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Makes a function of networks take its arguments as that of `torch` does by its name."""
    names = ORDERS[name].split()

    def called(*args: Any, **kwargs: Any) -> Any:
        """Takes the arguments of PyTorch's."""
        if len(args) > len(names):
            raise ArgumentError(f"{name}: takes {', '.join(names)}, not {len(args)} arguments.")
        given = dict(zip(names, args, strict=False))
        given |= {_OLD_NAMES.get(key, key): x for key, x in kwargs.items()}
        if given.pop("scale_grad_by_freq", False):
            raise UnsupportedError(f"{name}: leave scale_grad_by_freq out: gradients are sums.")
        if given.get("padding_idx", 0) == -1:
            del given["padding_idx"]  # which means none here
        given = {key: x for key, x in given.items() if key not in ("cudnn_enabled", "sparse")}
        return function(given.pop("input"), **given)

    called.__name__ = called.__qualname__ = name
    return boundary(called)
