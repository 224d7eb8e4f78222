"""Calls of `ftrans.nn`, and what PyTorch makes of them, frozen in an `.npz`.

`python -m tests.oracle.pytorch_nn` writes the answers anew; it needs PyTorch, which the tests do
not. A case is a function, its operands, which of them are differentiated, and keywords; `axis` is
PyTorch's `dim`. Answers are results and what the vjp makes of a cotangent, in double precision.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ANSWERS = Path(__file__).with_suffix(".npz")


class Case(NamedTuple):
    """Is a call.

    Attributes:
        name: the function.
        operands: arrays, numbers, tuples.
        smooth: the places of operands that are differentiated.
        options: keywords.
    """

    name: str
    operands: tuple[Any, ...]
    smooth: tuple[int, ...]
    options: dict[str, Any]


CASES: dict[str, Case] = {}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def classes(count: int, *shape: int, ignored: bool = False) -> np.ndarray:
    drawn = np.random.default_rng([count, *shape]).integers(count, size=shape)
    if ignored:
        drawn.reshape(-1)[::3] = -100
    return drawn


def add(
    name: str,
    *operands: Any,
    smooth: tuple[int, ...] | None = None,
    label: str = "",
    **options: Any,
) -> None:
    if smooth is None:
        smooth = tuple(
            i for i, x in enumerate(operands) if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        )
    told = ",".join(f"{k}={v}" for k, v in options.items() if not isinstance(v, np.ndarray))
    key = f"{name}/{label or told}"
    while key in CASES:
        key += "'"
    CASES[key] = Case(name, operands, smooth, options)


# --------------------------------------------------------------------------------- activations

KINKS = np.array([-30.0, -3.0, -1.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 1.0, 3.0, 6.0, 30.0])
for _name in [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
]:
    add(_name, KINKS, label="kinks")
add("celu", KINKS, alpha=0.5)
add("elu", KINKS, alpha=2.0)
add("gelu", KINKS, approximate="tanh")
add("hardtanh", KINKS, min_val=-0.5, max_val=3.0)
add("leaky_relu", KINKS, negative_slope=0.3)
add("softplus", KINKS, beta=2.0, threshold=5.0)
add("prelu", normal(2, 3, 4), np.array([0.1, 0.0, 0.5]))
add("prelu", normal(4), np.array([0.1]))
add("glu", normal(3, 4))
add("glu", normal(4, 3), axis=0)
for _name in ("softmax", "log_softmax", "softmin"):
    add(_name, normal(3, 4), axis=-1)
    add(_name, np.array([[1e4, 0.0, -1e4], [-np.inf, 0.0, 1.0]]), axis=1, label="extreme")

# ------------------------------------------------------------------------ linear maps, distances

add("linear", normal(2, 3), normal(4, 3))
add("linear", normal(2, 5, 3), normal(4, 3), normal(4))
add("linear", normal(3), normal(4, 3), normal(4))
add("normalize", normal(3, 4))
add("normalize", normal(3, 4), p=3.0, axis=0)
add("threshold", normal(3, 4), 0.1, 20.0)
add("bilinear", normal(4, 3), normal(4, 2), normal(5, 3, 2), normal(5))
add("pdist", normal(4, 3))
add("pdist", normal(4, 3), p=3.0)
add("cosine_similarity", normal(3, 4), normal(3, 4, seed=1))
add("cosine_similarity", normal(3, 4), normal(3, 4, seed=1), axis=0)
add("pairwise_distance", normal(3, 4), normal(3, 4, seed=1))
add("pairwise_distance", normal(3, 4), normal(3, 4, seed=1), p=1.0, keepdim=True)
add("embedding", classes(5, 2, 3), normal(5, 2))
add("embedding", classes(5, 2, 3), normal(5, 2), padding_idx=1)
add("one_hot", classes(5, 2, 3))
add("one_hot", classes(5, 2, 3), num_classes=7)

# -------------------------------------------------------------------------------- normalisations

add("layer_norm", normal(2, 3, 4), (4,), normal(4), normal(4, seed=1))
add("layer_norm", normal(2, 3, 4), (3, 4), eps=0.1)
add("rms_norm", normal(2, 3, 4), (4,), normal(4))
add("rms_norm", normal(2, 3, 4), (3, 4), eps=0.1)
add("group_norm", normal(2, 6, 3), 3, normal(6), normal(6, seed=1))
add("group_norm", normal(2, 6, 2, 2), 2)
for _size in (1, 2, 3):
    add("local_response_norm", normal(2, 4, 3), _size, alpha=0.5, beta=0.5, k=2.0)
add("instance_norm", normal(2, 3, 5))
add("instance_norm", normal(2, 3, 2, 2), None, None, normal(3), normal(3, seed=1), smooth=(0, 3, 4))
_STATISTICS = normal(3, seed=2), np.abs(normal(3, seed=3)) + 0.5
add("batch_norm", normal(4, 3), *_STATISTICS, normal(3), normal(3, seed=1), smooth=(0, 3, 4))
add("batch_norm", normal(4, 3, 2), *_STATISTICS, normal(3), normal(3, seed=1), smooth=(0, 3, 4),
    training=True)  # fmt: skip
add("batch_norm", normal(2, 3, 2, 2), *_STATISTICS, smooth=(0,), training=True, momentum=0.4)
add("batch_norm", normal(4, 3), None, None, training=True, eps=0.1)

# ---------------------------------------------------------------------------------- convolutions

for _n in (1, 2, 3):
    _side = (7, 6, 5)[:_n]
    for _options in (
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": "valid", "groups": 2},
        {"stride": 2, "dilation": 2, "padding": 2, "groups": 2},
    ):
        _groups = _options.get("groups", 1)
        _kernel = (3, 2, 3)[:_n]
        add(f"conv{_n}d", normal(2, 4, *_side), normal(6, 4 // _groups, *_kernel), normal(6),
            **_options)  # fmt: skip
    for _options in (
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": 3, "dilation": 2, "groups": 2, "output_padding": 2},
        {"padding": 1, "groups": 2},
    ):
        _groups = _options.get("groups", 1)
        add(f"conv_transpose{_n}d", normal(2, 4, *(4, 3, 3)[:_n]),
            normal(4, 6 // _groups, *(3, 2, 3)[:_n]), normal(6), **_options)  # fmt: skip
add("conv2d", normal(2, 5, 4), normal(3, 2, 3, 3), stride=(2, 1), padding=(0, 1))
add("conv_transpose1d", normal(2, 5), normal(2, 3, 3), label="one example")

# --------------------------------------------------------------------------------------- pooling

TIES = np.round(normal(2, 2, 6, 5) * 1.5)
for _n in (1, 2, 3):
    _x = normal(2, 2, *(7, 6, 5)[:_n])
    for _options in (
        {},
        {"stride": 1, "padding": 1},
        {"stride": 2, "ceil_mode": True},
        {"stride": 2, "padding": 1, "ceil_mode": True},
    ):
        add(f"max_pool{_n}d", _x, 3, **_options)
        add(f"avg_pool{_n}d", _x, 3, **_options)
    add(f"max_pool{_n}d", _x, 2, stride=1, dilation=2, padding=1)
    add(f"max_pool{_n}d", _x, 2, return_indices=True)
    add(f"max_pool{_n}d", _x, 3, stride=2, padding=1, return_indices=True)
    add(f"avg_pool{_n}d", _x, 3, stride=2, padding=1, count_include_pad=False)
    add(f"avg_pool{_n}d", _x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
    for _size in (1, 2, 4):
        add(f"adaptive_avg_pool{_n}d", _x, _size, label=f"{_size}")
        add(f"adaptive_max_pool{_n}d", _x, _size, label=f"{_size}")
    add(f"adaptive_max_pool{_n}d", _x, 3, return_indices=True)
add("avg_pool2d", normal(2, 6, 5), (2, 3), stride=(2, 1), divisor_override=5)
add("adaptive_avg_pool2d", normal(2, 6, 5), (3, None))
add("max_pool2d", TIES, (2, 3), stride=1, return_indices=True, label="ties")
add(
    "max_pool2d", np.zeros((1, 1, 4, 4)), 3, stride=1, padding=1, return_indices=True, label="equal"
)
add("max_pool2d", np.full((1, 1, 4, 4), -np.inf), 2, padding=1, return_indices=True, label="-inf")
add("max_pool1d", np.array([[1.0, np.nan, 3.0, np.nan, 2.0, 5.0]]), 3, return_indices=True,
    label="nan")  # fmt: skip

# -------------------------------------------------------------------------------- rearrangements

for _mode in ("reflect", "replicate", "circular"):
    add("pad", normal(2, 3, 4, 5), (1, 2, 2, 1), mode=_mode)
add("pad", normal(2, 3), (1, 2), value=1.5)
add("pad", normal(2, 5), (-1, 2, 1, 0))
add("pixel_shuffle", normal(2, 8, 3, 2), 2)
add("pixel_unshuffle", normal(2, 4, 6), 2)
add("unfold", normal(2, 3, 5, 4), (2, 3), padding=1, stride=2)
add("unfold", normal(3, 6, 5), 2, dilation=2)

# ---------------------------------------------------------------------------------------- losses

X, Y = normal(4, 3), normal(4, 3, seed=1)
NEAR = np.array([[0.0, 1.0, -1.0], [0.5, 2.0, -0.5]])
CHANCES = np.random.default_rng(7).uniform(0.05, 0.95, (4, 3))
OTHERS = np.random.default_rng(8).uniform(0.05, 0.95, (4, 3))
SIGNS = np.sign(normal(4, 3, seed=5))
for _reduction in ("mean", "sum", "none"):
    _r = {"reduction": _reduction}
    for _name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
        add(_name, X, Y, **_r)
    add("binary_cross_entropy", CHANCES, OTHERS, **_r)
    add("binary_cross_entropy_with_logits", X, OTHERS, **_r)
    add("kl_div", np.log(CHANCES), OTHERS, **_r)
    add("poisson_nll_loss", X, np.round(np.abs(Y) * 3), smooth=(0,), **_r)
    add("gaussian_nll_loss", X, Y, CHANCES, **_r)
    add("soft_margin_loss", X, SIGNS, smooth=(0,), **_r)
    add("hinge_embedding_loss", X, SIGNS, smooth=(0,), **_r)
    add("margin_ranking_loss", X, Y, SIGNS, smooth=(0, 1), margin=0.3, **_r)
    add("cosine_embedding_loss", X, Y, SIGNS[:, 0], smooth=(0, 1), margin=0.1, **_r)
    add("triplet_margin_loss", X, Y, CHANCES, swap=True, **_r)
    add("multilabel_soft_margin_loss", X, (SIGNS > 0) * 1.0, normal(3), smooth=(0,), **_r)
    add("multi_margin_loss", X, classes(3, 4), weight=CHANCES[0], p=2, **_r)
    add("nll_loss", X, classes(3, 4, ignored=True), **_r)
    add("nll_loss", normal(2, 3, 4, 2), classes(3, 2, 4, 2), CHANCES[0], smooth=(0,), **_r)
    add("cross_entropy", X, classes(3, 4), **_r)
    add("cross_entropy", X, classes(3, 4, ignored=True), CHANCES[0], smooth=(0,), **_r)
    add("cross_entropy", X, classes(3, 4, ignored=True), CHANCES[0], smooth=(0,),
        label_smoothing=0.2, **_r)  # fmt: skip
    add("cross_entropy", normal(2, 3, 4), classes(3, 2, 4), label_smoothing=0.2, **_r)
    add("cross_entropy", X, OTHERS, CHANCES[0], smooth=(0, 1), label_smoothing=0.2, **_r)
    add("cross_entropy", normal(2, 3, 4), np.abs(normal(2, 3, 4, seed=1)), **_r)
for _name in ("mse_loss", "l1_loss", "huber_loss"):
    add(_name, X, Y, weight=CHANCES)
for _name in ("l1_loss", "huber_loss", "smooth_l1_loss"):
    add(_name, NEAR, np.zeros((2, 3)), label="kinks")
add("huber_loss", X, Y, delta=0.3)
add("smooth_l1_loss", X, Y, beta=0.3)
add("smooth_l1_loss", X, Y, beta=0.0)
add("binary_cross_entropy", np.array([0.0, 1.0, 0.5]), np.array([1.0, 1.0, 0.0]), smooth=(0,),
    label="ends")  # fmt: skip
add("binary_cross_entropy", CHANCES, OTHERS, weight=CHANCES[0])
add("binary_cross_entropy_with_logits", KINKS, np.ones(13), pos_weight=np.array(3.0), label="far")
add("binary_cross_entropy_with_logits", X, OTHERS, weight=CHANCES, pos_weight=CHANCES[1])
add("kl_div", np.log(CHANCES), OTHERS, reduction="batchmean")
add("kl_div", np.log(CHANCES), np.log(OTHERS), log_target=True)
add("kl_div", X, np.array([[0.0, 1.0, 0.5]] * 4), smooth=(0,), label="zero")
add("poisson_nll_loss", CHANCES, np.round(np.abs(Y) * 3), smooth=(0,), log_input=False, full=True)
add("gaussian_nll_loss", X, Y, CHANCES[:, 0], full=True)
add("gaussian_nll_loss", X, Y, CHANCES[:, :1] * 0.0, label="least")
add("triplet_margin_loss", X, Y, CHANCES, margin=0.5, p=1)
add("multi_margin_loss", X, classes(3, 4), margin=0.5)
add("multi_margin_loss", X[0], np.array(1))
add("cross_entropy", X[0], np.array(1), label="one example")
add("cross_entropy", X, np.full(4, -100), label="all ignored")
add("cross_entropy", X, np.full(4, -100), reduction="sum", label="all ignored, sum")

# ------------------------------------------------------------------------------------- attention

Q, K, V = normal(2, 4, 5, 3), normal(2, 4, 6, 3), normal(2, 4, 6, 2)
SEEN = np.random.default_rng(3).random((2, 1, 5, 6)) < 0.6
SEEN[0, 0, 2] = False
_name = "scaled_dot_product_attention"
add(_name, Q, K, V)
add(_name, Q, K, V, scale=0.3, is_causal=True)
add(_name, Q, K, V, attn_mask=SEEN, label="booleans")
add(_name, Q, K, V, attn_mask=SEEN[1:, :, :1], label="one row")
add(_name, Q, K, V, normal(5, 6), label="numbers")
add(_name, Q[0, 0], K[0, 0], V[0, 0], label="matrices")
add(_name, Q, K[:, :2], V[:, :2], is_causal=True, enable_gqa=True)
add(_name, Q, K[:, :2], V[:, :2], attn_mask=SEEN, enable_gqa=True, label="shared")

# ------------------------------------------------------------------------------------- sequences

_LABELS = np.array([[1, 2, 2, 0], [3, 1, 0, 0], [1, 1, 1, 1]])
_LOGS = normal(7, 3, 5)
LOGS = _LOGS - np.log(np.exp(_LOGS).sum(-1, keepdims=True))
_LENGTHS = np.array([7, 5, 7]), np.array([3, 2, 4])


def ctc(lib: Any, logits: Any, labels: Any, lengths: Any, sizes: Any, **options: Any) -> Any:
    """CTC of logits, behind which PyTorch's gradient is that of the formula."""
    axis = {"axis": -1} if lib.__name__.startswith("ftrans") else {"dim": -1}
    return lib.ctc_loss(lib.log_softmax(logits, **axis), labels, lengths, sizes, **options)


for _reduction in ("mean", "sum", "none"):
    add("ctc", _LOGS, _LABELS, *_LENGTHS, blank=4, reduction=_reduction)
add("ctc", _LOGS, np.array([1, 2, 2, 3, 1, 1, 1, 1, 1]), *_LENGTHS, blank=0)
add("ctc", _LOGS, _LABELS + 1, np.array([7, 5, 3]), np.array([3, 0, 4]), zero_infinity=True)

# ------------------------------------------------------------------------------------- resampling

add("channel_shuffle", normal(2, 4, 3), 2)
add("lp_pool1d", np.abs(normal(2, 3, 7)), 3.0, 3, stride=2, ceil_mode=True)
add("lp_pool2d", normal(2, 2, 5, 4), 2.0, (2, 3))
add("lp_pool3d", np.abs(normal(1, 2, 4, 2, 3)), 2.0, 2)
for _options in (
    {"scale_factor": 1.7}, {"size": 5, "mode": "nearest-exact"}, {"size": 3, "mode": "area"},
    {"scale_factor": 1.7, "mode": "linear"}, {"size": 11, "mode": "linear", "align_corners": True},
    {"scale_factor": 1.7, "mode": "linear", "recompute_scale_factor": True},
):  # fmt: skip
    add("interpolate", normal(2, 3, 7), **_options)
for _mode in ("bilinear", "bicubic"):
    for _corners in (False, True):
        add("interpolate", normal(2, 2, 4, 5), size=(3, 8), mode=_mode, align_corners=_corners)
add("interpolate", normal(1, 2, 3, 4, 2), scale_factor=2.0, mode="trilinear")
_POINTS = 0.8 * normal(2, 3, 4, 2)
for _corners in (False, True):
    add("affine_grid", normal(2, 2, 3), (2, 3, 4, 5), align_corners=_corners)
    for _mode, _smooth in (("bilinear", (0, 1)), ("nearest", (0,))):
        for _padding in ("zeros", "border"):
            _given = {"mode": _mode, "padding_mode": _padding, "align_corners": _corners}
            add("grid_sample", normal(2, 3, 5, 4), _POINTS, smooth=_smooth, **_given)
add("affine_grid", normal(2, 3, 4), (2, 3, 4, 5, 2), align_corners=False)
for _mode, _padding in itertools.product(
    ("bilinear", "bicubic"), ("zeros", "border", "reflection")
):
    if (_mode, _padding) != ("bilinear", "zeros"):
        _given = {"mode": _mode, "padding_mode": _padding, "align_corners": _mode == "bilinear"}
        add("grid_sample", normal(1, 2, 5, 4), 3 * _POINTS[:1], **_given)
add("grid_sample", normal(1, 2, 3, 4, 3), 0.8 * normal(1, 2, 3, 2, 3), align_corners=False)

# --------------------------------------------------------------------------------------- answers


def function_of(lib: Any, case: Case) -> Any:
    """Returns the function of a case in a namespace, of the operands that are differentiated."""
    options = dict(case.options)
    is_torch = lib.__name__.startswith("torch")
    if is_torch and "axis" in options:
        options["dim"] = options.pop("axis")
    if is_torch:
        import torch

        convert: Any = lambda x: torch.tensor(x) if isinstance(x, np.ndarray) else x  # noqa: E731
    else:
        convert = lambda x: x  # noqa: E731
    options = {k: convert(v) for k, v in options.items()}
    fixed = [convert(x) for x in case.operands]

    def call(*chosen: Any) -> list[Any]:
        operands = list(fixed)
        for place, x in zip(case.smooth, chosen, strict=True):
            operands[place] = x
        if is_torch and case.name == "batch_norm":
            operands[1:3] = [None if x is None else x.clone() for x in operands[1:3]]
        function = ctc if case.name == "ctc" else getattr(lib, case.name)
        out = function(lib, *operands, **options) if case.name == "ctc" else function(
            *operands, **options)  # fmt: skip
        if is_torch and case.name == "batch_norm":
            out = (out, *operands[1:3])
        outs = out if isinstance(out, tuple) else (out,)
        return [x for x in outs if x is not None]

    return call


def write() -> None:
    """Asks PyTorch."""
    import torch
    import torch.nn.functional as functional

    answers: dict[str, np.ndarray] = {}
    for key, case in CASES.items():
        call = function_of(functional, case)
        xs = [torch.tensor(case.operands[i], requires_grad=True) for i in case.smooth]
        outs = call(*xs)
        for i, out in enumerate(outs):
            answers[f"{key}/out{i}"] = out.detach().numpy()
        if xs:
            ct = torch.tensor(cotangent(outs[0].shape))
            found = torch.autograd.grad(outs[0], xs, ct, allow_unused=True)
            for i, (x, g) in enumerate(zip(xs, found, strict=True)):
                answers[f"{key}/ct{i}"] = (torch.zeros_like(x) if g is None else g).numpy()
    small = {
        k: x.astype("int16") if x.dtype.kind == "i" else x.astype("float32")
        for k, x in answers.items()
    }
    joined = {"signatures": np.array(json.dumps(_signatures(functional)))}
    joined["keys"] = np.array(
        json.dumps([[k, list(x.shape), x.dtype.name] for k, x in small.items()])
    )
    for kind in ("int16", "float32"):
        parts = [x.ravel() for x in small.values() if x.dtype == kind]
        joined[kind] = np.concatenate(parts)
    np.savez_compressed(ANSWERS, **joined)


def read() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the answers by case and place, and PyTorch's signatures."""
    with np.load(ANSWERS) as found:
        joined = dict(found)
    answers, at = {}, {"int16": 0, "float32": 0}
    for key, shape, kind in json.loads(str(joined["keys"])):
        size = int(np.prod(shape))
        answers[key] = joined[kind][at[kind] : at[kind] + size].reshape(shape)
        at[kind] += size
    return answers, json.loads(str(joined["signatures"]))


def cotangent(shape: Any) -> np.ndarray:
    """Returns the cotangent that results of a shape are given."""
    return np.random.default_rng([9, *shape]).normal(size=tuple(shape))


def _signatures(functional: Any) -> dict[str, Any]:
    """Returns the arguments of all functions, by name, with their defaults as text."""
    found: dict[str, Any] = {}
    for name in sorted(dir(functional)):
        function = getattr(functional, name)
        if name.startswith("_") or not callable(function) or name[0].isupper():
            continue
        if "torch_function" in name or name in ("boolean_dispatch", "assert_int_or_pair"):
            continue
        twin = getattr(functional, f"{name}_with_indices", function)  # behind a dispatch
        try:
            parameters = inspect.signature(twin).parameters.values()
            given = [
                [q.name, None if q.default is q.empty else repr(q.default)] for q in parameters
            ]
        except (TypeError, ValueError):
            head = re.search(rf"{name}\((.*?)\) ->", function.__doc__ or "", re.DOTALL)
            parts = re.sub(r"[*\s]", "", head[1]).split(",") if head else []
            given = [[*part.split("="), None][:2] for part in parts if part]
        found[name] = given
    return found


if __name__ == "__main__":
    write()
