"""The API of PyTorch before 0.4: `Variable`, and old names, which warn or say what to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ftrans.autograd.creation import tensor
from ftrans.autograd.tensor import Tensor
from ftrans.custom import guards
from ftrans.custom.context import FunctionCtx
from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.ir.location import warn_user
from ftrans.traceback import boundary

_VOLATILE = (
    "volatile was removed and has no effect (x.volatile is always False). "
    "Write with no_grad(): around what is computed."
)


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
            warn_user(f"Variable: {_VOLATILE}", UserWarning)
        made = data.detach() if isinstance(data, Tensor) else tensor(data)
        return made.requires_grad_(requires_grad)


def variable(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises an `UnsupportedError`, as PyTorch does."""
    raise UnsupportedError("autograd.variable(...) is gone. Write tensor(x, requires_grad=True).")


class Variable(metaclass=_VariableMeta):
    """Returns a tensor: every tensor is what was a variable, and an instance of this class.

    Of a tensor it is another one in the same memory, without its history. `volatile` only warns.

    Example:
        >>> x = Variable([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad, isinstance(x.grad, Variable)
        (tensor([2., 4.]), True)
    """


def renamed(*given: Any) -> Iterator[Any]:
    """Yields `grad_tensors` and `retain_graph` of `backward`, given by these names, then by old."""
    names = ("grad_tensors", "grad_variables"), ("retain_graph", "retain_variables")
    for (name, old_name), value, old in zip(names, given[:2], given[2:], strict=True):
        if value is not None and old is not None:
            raise ArgumentError(
                f"backward(): {name} and {old_name} (its old name) are one argument.\n"
                f"  Pass {name}."
            )
        if old is not None:
            warn_user(
                f"backward(): `{old_name}` is deprecated. Use `{name}` instead.", FutureWarning
            )
        yield value if old is None else old


def _old(text: str, category: type[Warning], result: Any = None) -> Callable[..., Any]:
    """Makes a method that warns, and has a result."""

    def warned(*args: Any) -> Any:
        warn_user(text, category)
        return result(*args) if callable(result) else result

    warned.__doc__ = text
    return warned


_volatile = _old(f"x.volatile: {_VOLATILE}", UserWarning, False)
_SAVED = "'saved_variables' is deprecated; use 'saved_tensors'."
_saved = _old(_SAVED, DeprecationWarning, lambda ctx: ctx.saved_tensors)
_shared = _old("mark_shared_storage is deprecated: outputs never share memory.", FutureWarning)

Tensor.volatile = property(_volatile, _volatile)  # type: ignore[attr-defined]
FunctionCtx.saved_variables = property(_saved)  # type: ignore[attr-defined]
FunctionCtx.mark_shared_storage = _shared  # type: ignore[attr-defined]
FunctionCtx.requires_grad = True  # type: ignore[attr-defined]
guards.CONTEXT = len(vars(FunctionCtx))  # these do not change what was traced
