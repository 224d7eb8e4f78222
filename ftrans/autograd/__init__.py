"""The names of `torch.autograd`."""

from ftrans.autograd import dispatch as _dispatch  # noqa: F401
from ftrans.autograd import forward_ad, functional, graph, profiler, profiler_util
from ftrans.autograd import methods as _methods  # noqa: F401
from ftrans.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from ftrans.autograd.checked import gradcheck, gradgradcheck
from ftrans.autograd.creation import as_tensor, from_numpy, tensor
from ftrans.autograd.engine import backward, grad
from ftrans.autograd.function import Function, FunctionCtx, once_differentiable
from ftrans.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ftrans.autograd.profiler.collector import is_profiling as _profiler_enabled  # noqa: F401
from ftrans.autograd.tensor import Tensor
from ftrans.autograd.variable import Variable
from ftrans.errors import GradcheckError

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "Tensor",
    "Variable",
    "as_tensor",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "from_numpy",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "profiler",
    "profiler_util",
    "set_detect_anomaly",
    "set_grad_enabled",
    "tensor",
]
