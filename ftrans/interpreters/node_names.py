"""What PyTorch calls the nodes of operations, in its graph and in its errors."""

from __future__ import annotations

import re
from typing import Any

from ftrans.interpreters.parts import Part
from ftrans.ir import Literal
from ftrans.primitives import graft_p, missing_p

_TORCH = {
    "absolute": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh",
    "arctan": "Atan", "arctan2": "Atan2", "arctanh": "Atanh", "astype": "ToCopy",
    "broadcast_to": "Expand", "cholesky": "LinalgCholeskyEx", "clip": "Clamp",
    "concatenate": "Cat", "copy": "Clone", "cross_entropy": "NllLoss", "det": "LinalgDet",
    "divide": "Div", "eig": "LinalgEig", "eigh": "LinalgEigh", "eigvals": "LinalgEig",
    "inv": "LinalgInvEx", "pinv": "LinalgPinv", "qr": "LinalgQr", "slogdet": "LinalgSlogdet",
    "solve": "LinalgSolveEx", "svd": "LinalgSvd", "narrow": "Slice", "expand_dims": "Unsqueeze",
    "flatten": "View", "float_power": "Pow", "getitem": "Index", "log1p": "Log1P",
    "logsigmoid": "LogSigmoid", "matrix_transpose": "Transpose", "multiply": "Mul",
    "negative": "Neg", "norm": "LinalgVectorNorm", "power": "Pow", "reshape": "View",
    "reshape_as": "View", "setitem": "IndexPut", "square": "Pow", "subtract": "Sub",
    "swapaxes": "Transpose", "_T": "Permute", "take_along_axis": "Gather", "tile": "Repeat",
    "true_divide": "Div", "view_as": "View", "x[index] = value": "Fill", "movedim": "Permute",
    "ravel": "View", "unflatten": "View", "expand_as": "Expand", "outer": "Mul", "hstack": "Cat",
    "vstack": "Cat", "dstack": "Cat", "selu": "Elu", "layer_norm": "NativeLayerNorm",
    "pad": "ConstantPadNd", "conv1d": "Convolution", "conv2d": "Convolution",
    "conv3d": "Convolution", "max_pool2d": "MaxPool2DWithIndices", "avg_pool2d": "AvgPool2D",
    "msort": "Sort", "take_along_dim": "Gather", "cross": "LinalgCross", "diagflat": "DiagEmbed",
    "l1_loss": "Mean", "kl_div": "Mean", "normalize": "Div", "broadcast_tensors": "Expand",
    "column_stack": "Cat", "corrcoef": "Clamp", "cosine_embedding_loss": "Mean",
    "cosine_similarity": "Sum", "cov": "Squeeze", "deg2rad": "Deg2Rad", "diff": "Sub",
    "eigvalsh": "LinalgEigh", "fliplr": "Flip", "flipud": "Flip", "gaussian_nll_loss": "Mean",
    "group_norm": "NativeGroupNorm", "hinge_embedding_loss": "Mean", "inner": "View",
    "kron": "UnsafeView", "logdet": "Where", "margin_ranking_loss": "Mean",
    "matrix_exp": "LinalgMatrixExp", "matrix_norm": "LinalgVectorNorm", "matrix_power": "Mm",
    "meshgrid": "Expand", "moveaxis": "Permute", "nanmean": "Div", "poisson_nll_loss": "Mean",
    "rad2deg": "Rad2Deg", "relu6": "Hardtanh", "rms_norm": "Mul", "softmin": "Softmax",
    "softsign": "Div", "sum_to_size": "Sum", "svdvals": "LinalgSvd", "tanhshrink": "Sub",
    "tensordot": "View", "triplet_margin_loss": "Mean", "vecdot": "Sum",
    "vector_norm": "LinalgVectorNorm",
    **dict.fromkeys(("adjoint", "mT", "mH", "H"), "Transpose"),
}  # fmt: skip
"""PyTorch's names of functions that have others here."""

_WHOLE: dict[str, str] = dict.fromkeys(("_put", "set_slices"), "torch::autograd::CopySlices")
_WHOLE |= dict.fromkeys(("copy_", "set_all"), "torch::autograd::CopyBackwards")
_WHOLE |= dict.fromkeys(("quantile", "nanquantile"), "SqueezeBackward4")
_WHOLE |= {"pairwise_distance": "NormBackward1"}
_BY_RANK: dict[tuple[int, ...], str] = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (3, 3): "Bmm"}


def node_name(function: str) -> str:
    """Returns what PyTorch calls an operation in names of nodes: "Mul" of "multiply"."""
    words = [word[:1].upper() + word[1:] for word in re.split(r"\W+|_+", function)]
    return _TORCH.get(function) or "".join(words)


def name_of_part(part: Part) -> str:
    """Returns the name of the node of an operation: "MulBackward0"."""
    equations = part.program.equations
    rules = [e for e in equations if part.name == "apply" and "custom" in e.primitive.tags]
    first = rules[0] if rules else equations[0]
    if "custom" in first.primitive.tags and "spec" in first.params:
        return f"{first.params['spec']}Backward"
    if first.primitive is missing_p:  # it is called, and not run
        return part.name
    if part.name in _WHOLE:
        return _WHOLE[part.name]
    called = first.primitive.name if part.name in ("", "<lambda>") else part.name
    name, inputs = node_name(called), part.program.inputs
    if name == "Matmul":
        name = _BY_RANK.get(tuple([t.ndim for t in inputs[:2]]), name)
    elif name == "Linear" and inputs[0].ndim == 2:
        name = "Addmm" if len(inputs) == 3 else "Mm"
    elif name == "Sub" and part.takes[0] is None:
        return "RsubBackward1"
    return f"{name}Backward{_overload(name, part)}"


def _overload(name: str, part: Part) -> int:
    """Returns which of the functions of one name it is, in the order of PyTorch's tables."""
    first, results = part.program.equations[0].primitive.name, part.program.output_types
    ranks = [t.ndim for t in part.program.inputs if t.is_inexact]
    if name in ("Sum", "Mean", "Prod"):  # of all elements, or along dimensions
        return int(results[0].ndim > 0)
    if name in ("Max", "Min"):  # along a dimension, or of all elements
        return int(not first.startswith("arg"))
    if name in ("Median", "Nanmedian"):  # of all elements, or along a dimension
        return int(len(getattr(part.location, "returned", ())) > 1)
    if name == "Scatter":  # of a tensor, or of a number
        return int(len(ranks) == 1 or ranks[1] < ranks[0])
    if name in ("Lerp", "Remainder"):  # with a number last, or a tensor
        return int(len(ranks) > 1 + (name == "Lerp"))
    if name == "Pow":  # of a number, of two tensors, of a number to a tensor
        return 2 if part.takes[0] is None else int(part.takes[1:] not in ((), (None,)))
    if name == "Fill":  # by a number, or by a tensor
        return 1 + len(part.takes) if _is_over(part) else 3
    return int(name == "Clamp" and len(part.program.inputs) == 1)  # between tensors, or numbers


_OPERANDS = {
    "Bmm": "self mat2", "Cat": "tensors", "Clamp": "min self max", "Dot": "self tensor",
    "Gather": "self index", "Index": "self indices", "IndexSelect": "self index",
    "MaskedFill": "mask value self", "Matmul": "self mat2", "Mm": "self mat2",
    "MseLoss": "self target", "Mv": "self vec", "Pow": "self exponent",
    "Where": "condition self other",
}  # fmt: skip
"""What PyTorch calls the operands of operations, where not `self` and `other`."""

_OVERWRITING = {"Bernoulli", "Normal", "Uniform", "Zero"}
_PRODUCTS = {"Bmm", "Matmul", "Mm", "Mul", "Mv"}
_ALONG_ONE = {"Cat", "Cumprod", "Cumsum", "LogSoftmax", "Max", "Min", "Prod", "Softmax"}
_ALONG_SEVERAL = {"Amax", "Amin", "LinalgVectorNorm", "Logsumexp", "Mean", "Std", "Sum", "Var"}


def operand_names(part: Part) -> list[str]:
    """Returns what PyTorch calls the operands that an operation takes, numbers among them."""
    names, count = _OPERANDS.get(_base(part), "self other").split(), len(part.takes)
    names = names[::-1] if _is_swapped(part) else names
    return [*names, *[f"operand_{i}" for i in range(len(names), count)]][:count]


def listed(part: Part) -> tuple[int, ...]:
    """Returns which operands PyTorch lists with a node: those that may have gradients.

    They are in its order. Numbers that operators take are among them.
    """
    base, types = _base(part), iter(part.program.inputs)
    of = [None if a is None else next(types) for a in part.takes]
    if base in ("Add", "Div", "Mul", "Sub"):
        return tuple(range(len(of)))[:: -1 if _is_swapped(part) else 1]
    takes_numbers = base in ("IndexPut", "Where", "torch::autograd::CopySlices")
    found = [i for i, t in enumerate(of) if (takes_numbers if t is None else t.is_inexact)]
    if base in _OVERWRITING:
        found = found[-1:]
    is_masked = base == "IndexPut" and of[0] is not None and not of[0].is_inexact
    found = found[::-1] if is_masked or _is_over(part) else found[:2] if takes_numbers else found
    return tuple(found)


def settings(part: Part) -> dict[str, Any]:
    """Returns what PyTorch has saved of an operation besides arrays: numbers, and dimensions.

    Of a product that is None for an operand; if it is saved the other one requires grad.
    """
    base, equations, t = _base(part), part.program.equations, part.program.output_types[0]
    names = operand_names(part)
    found: dict[str, Any] = dict.fromkeys(names if base in _PRODUCTS else ())
    for name, x in zip(names, equations[0].operands, strict=False):
        if type(x) is Literal and base in _PRODUCTS | {"Clamp", "Div", "Pow"}:
            found[name] = x.array if base in ("Mul", "Div") else x.value
    if base == "Pow" and len(names) == 1:
        found["exponent"] = equations[0].params.get("exponent", 0.5)
    if part.takes[:1] != (None,):
        found["self_sym_sizes"] = part.program.inputs[0].shape
    last = equations[-1].params
    if base == "Stack" and "axis" in last:
        found["dim"] = last["axis"]
    moved = [i for i, axis in enumerate(last.get("permutation", ())) if i != axis]
    if base == "Transpose" and len(moved) == 2:
        found["dim0"], found["dim1"] = moved
    several = base in _ALONG_SEVERAL
    if t.ndim and (several or base in _ALONG_ONE):
        along = [e.params.get("axes", e.params.get("axis")) for e in equations]
        dims = next((x for x in along if x is not None), None)
        found["dim"] = dims[0] if type(dims) is tuple and not several else dims
        if several:
            found["keepdim"] = t.ndim == part.program.inputs[0].ndim
    return found


def _is_swapped(part: Part) -> bool:
    """Tells whether it takes a number first, which PyTorch takes second: `2 * x` is `x * 2`."""
    return part.takes[:1] == (None,) and _base(part) in ("Add", "Mul")


def _is_over(part: Part) -> bool:
    """Tells whether it writes over a value, which is the last that it takes."""
    return part.program.equations[-1].primitive is graft_p


def _base(part: Part) -> str:
    return name_of_part(part).partition("Backward")[0]
