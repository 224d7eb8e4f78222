"""The names of `torch.autograd`."""

from ftrans.autograd import forward_ad, functional, graph, profiler, profiler_util
from ftrans.autograd import methods as _methods  # noqa: F401
from ftrans.autograd import modes as grad_mode
from ftrans.autograd.creation import as_tensor, from_numpy, tensor
from ftrans.autograd.dispatch import gradcheck, gradgradcheck
from ftrans.autograd.engine import backward, grad
from ftrans.autograd.function import Function, FunctionCtx, once_differentiable
from ftrans.autograd.graph import SavedTensor
from ftrans.autograd.modes import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from ftrans.autograd.tensor import Tensor
from ftrans.autograd.variable import Variable, variable
from ftrans.errors import GradcheckError
from ftrans.runtime import anomaly_mode
from ftrans.runtime.anomaly_mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "SavedTensor", "Tensor", "Variable",
    "anomaly_mode", "as_tensor", "backward", "detect_anomaly", "enable_grad",
    "enforce_grad_layout_policy", "forward_ad", "from_numpy", "functional", "grad", "grad_mode",
    "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled",
    "is_multithreading_enabled", "no_grad", "once_differentiable", "profiler", "profiler_util",
    "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled", "tensor", "variable",
]  # fmt: skip
