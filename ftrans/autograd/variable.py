"""The API of PyTorch before 0.4: `Variable`, and old names, which warn or say what to write."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

from ftrans.autograd.creation import tensor
from ftrans.autograd.tensor import Tensor
from ftrans.custom.context import FunctionCtx
from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.ir.location import user_frame
from ftrans.traceback import boundary

_VOLATILE = "volatile was removed and has no effect. Write with no_grad(): around what is computed."


def _warn(text: str, category: type[Warning]) -> None:
    """Warns of the line of the user's that runs, once, as Python does it by default."""
    frame = user_frame()
    assert frame is not None, "a user calls it"
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, *where, registry)


class _VariableMeta(type):
    """Makes `Variable` another name for tensors."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)

    @boundary
    def __call__(cls, data: Any = (), requires_grad: bool = False, volatile: bool = False) -> Any:
        if requires_grad and volatile:
            raise ArgumentError(
                "Variable: Variable can't be volatile and require_grad at the same time!\n"
                "  Write Variable(data, requires_grad=True), and no_grad() where nothing is to be "
                "differentiated."
            )
        if volatile:
            _warn(f"Variable: {_VOLATILE}", UserWarning)
        made = data.detach() if isinstance(data, Tensor) else tensor(data)
        return made.requires_grad_(requires_grad)


class Variable(metaclass=_VariableMeta):
    """Returns a tensor: every tensor is what was a variable, and an instance of this class.

    Of a tensor it is another one in the same memory, without its history.

    Args:
        data: a tensor, or what `tensor` takes.
        requires_grad: whether gradients are accumulated in it.
        volatile: has no effect, but for a warning.

    Raises:
        ArgumentError: where it is to be volatile and to require grad.

    Example:
        >>> x = Variable([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad, isinstance(x.grad, Variable)
        (tensor([2., 4.]), True)
    """


def renamed(
    grad_tensors: Any, retain_graph: Any, grad_variables: Any, retain_variables: Any
) -> tuple[Any, Any]:
    """Returns the arguments `grad_tensors` and `retain_graph` of `backward`, by either name.

    Raises:
        ArgumentError: where one is given by both.
    """
    if grad_variables is not None:
        grad_tensors = _by("grad_tensors", grad_tensors, "grad_variables", grad_variables)
    if retain_variables is not None:
        retain_graph = _by("retain_graph", retain_graph, "retain_variables", retain_variables)
    return grad_tensors, retain_graph


def _by(name: str, value: Any, old_name: str, old: Any) -> Any:
    if value is not None:
        raise ArgumentError(
            f"backward(): {name} and {old_name} (its old name) are one argument.\n  Pass {name}."
        )
    _warn(f"backward(): `{old_name}` is deprecated. Use `{name}` instead.", FutureWarning)
    return old


def _volatile(self: Any) -> bool:
    """Is False, with a warning: it was removed."""
    _warn("volatile was removed (x.volatile is always False); see no_grad().", UserWarning)
    return False


def _set_volatile(self: Any, value: Any) -> None:
    _warn(f"x.volatile: {_VOLATILE}", UserWarning)


@boundary
def _reinforce(self: Any, reward: Any) -> NoReturn:
    """Raises an `UnsupportedError`: stochastic nodes were removed."""
    raise UnsupportedError(
        f"reinforce() was removed.\n  x: {self._type}\n"
        f"  Write (-log_prob * reward).sum().backward(), log_prob being the logarithm of the "
        f"probability of x."
    )


@property
def _saved_variables(self: Any) -> Any:
    """Is the old name of `saved_tensors`."""
    _warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
    return self.saved_tensors


def _mark_shared_storage(self: Any, *pairs: Any) -> None:
    """Does nothing: outputs are never taken to share memory."""
    _warn(f"mark_shared_storage is deprecated: {_mark_shared_storage.__doc__}", FutureWarning)


FunctionCtx.saved_variables = _saved_variables  # type: ignore[attr-defined]
FunctionCtx.mark_shared_storage = _mark_shared_storage  # type: ignore[attr-defined]
FunctionCtx.requires_grad = True  # type: ignore[attr-defined]
Tensor.volatile = property(_volatile, _set_volatile)  # type: ignore[attr-defined]
Tensor.reinforce = _reinforce  # type: ignore[attr-defined]
