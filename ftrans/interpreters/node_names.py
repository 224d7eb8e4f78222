"""What PyTorch calls the nodes of operations, in its graph and in its errors."""

from __future__ import annotations

import re

from ftrans.interpreters.parts import Part

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
    "true_divide": "Div", "view_as": "View",
}  # fmt: skip
"""PyTorch's names of functions that have others here."""

_WHOLE = {"_put": "torch::autograd::CopySlices", "copy_": "CopyBackwards"}
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
    if name in ("Sum", "Mean", "Prod"):  # of all elements, or along dimensions
        return int(results[0].ndim > 0)
    if name in ("Max", "Min"):  # along a dimension, or of all elements
        return int(not first.startswith("arg"))
    if name == "Pow":  # of a number, of two tensors, of a number to a tensor
        return 2 if part.takes[0] is None else int(part.takes[1:] not in ((), (None,)))
    return int(name == "Clamp" and len(part.program.inputs) == 1)  # between tensors, or numbers
