"""The names of `torch.autograd.forward_ad`: tensors that carry tangents, inside of levels."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import NamedTuple

from ftrans.autograd.levels import NONE, Tangent, begin, carry, end, entered, tangents_of
from ftrans.autograd.tape import recorded, settle
from ftrans.autograd.tensor import Tensor, check_tensor
from ftrans.autograd.values import check_outside
from ftrans.errors import ArgumentError, DTypeError, GraphError, ShapeError
from ftrans.ir.stack import state
from ftrans.traceback import boundary

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]  # fmt: skip

_INSIDE = ".\n  Write ftrans.func.jvp(f, (x,), (t,)) there."


class UnpackedDualTensor(NamedTuple):
    """Is a tensor without its tangent along a level, and that; None where there is none."""

    primal: Tensor
    tangent: Tensor | None


@boundary
def enter_dual_level() -> int:
    """Opens a level, and returns its number: how many this thread has opened around it.

    Raises:
        GraphError: inside of a transform.
    """
    check_outside("enter_dual_level()", _INSIDE)
    return begin()


@boundary
def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the innermost level: no tensor has a tangent along it any more.

    Raises:
        GraphError: where this thread has opened no level, or `level` is not its number.
    """
    last = len(entered.levels) - 1
    if last < 0:
        raise GraphError(
            "exit_dual_level(): Dual level must be a positive number.\n"
            "  No level is open in this thread. Write with forward_ad.dual_level():"
        )
    if level not in (None, last):
        raise GraphError(
            f"exit_dual_level(): Trying to exit a forward AD level that was not the last one that "
            f"was created. This is not supported.\n  level: {level}\n  the last one: {last}"
        )
    end()


class dual_level(ContextDecorator):
    """Is a level of forward mode, as a block or a decorator: tangents exist inside of it alone.

    Levels nest, other than in PyTorch: an inner one differentiates the derivatives of an outer one.

    Example:
        >>> from ftrans import tensor
        >>> with dual_level():
        ...     x = make_dual(tensor(2.0), tensor(1.0))
        ...     unpack_dual(x**3)
        UnpackedDualTensor(primal=tensor(8.), tangent=tensor(12.))
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: object) -> None:
        exit_dual_level()


@boundary
def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Returns a tensor with the value of another one, that carries a tangent along a level.

    Gradients go through it to `tensor`, and through tangents that are computed of it to both.

    The level is by default the innermost one of this thread; along others both may carry tangents.

    Raises:
        ArgumentError: where one is no tensor, or not of floating point.
        GraphError: where the level is not open, or one has a tangent along it already.
        ShapeError: where the shapes differ.
        DTypeError: where the dtypes differ.

    Example:
        >>> from ftrans import tensor
        >>> x, v = tensor(2.0, requires_grad=True), tensor(1.0)
        >>> with dual_level():
        ...     moved = unpack_dual(make_dual(x, v) ** 3).tangent
        >>> moved.backward()
        >>> moved, x.grad
        (tensor(12., grad_fn=<MulBackward0>), tensor(12.))
    """
    check_outside("make_dual()", _INSIDE)
    for name, x in (("primal", tensor), ("tangent", tangent)):
        check_tensor("make_dual()", name, x, "\n  Write ftrans.tensor(x).")
        if not x._type.is_inexact:
            raise ArgumentError(
                f"make_dual(): Expected {name} to be floating point or complex, but got: "
                f"{x.dtype}.\n  {name}: {x._type}\n  Convert it: x.to('float32')."
            )
    if not entered.levels:
        raise GraphError(
            "make_dual(): Trying to create a dual Tensor for forward AD but no level exists, make "
            "sure to enter_dual_level() first.\n  Write with forward_ad.dual_level():"
        )
    if tensor._type is not tangent._type:
        types = f"\n  primal: {tensor._type}\n  tangent: {tangent._type}"
        if tensor.shape != tangent.shape:
            raise ShapeError(
                f"make_dual(): Trying to set a forward gradient that has a different size than "
                f"that of the original Tensor, this is not supported. Tensor is of size "
                f"{list(tensor.shape)} while the given forward gradient is of size "
                f"{list(tangent.shape)}.{types}"
            )
        raise DTypeError(
            f"make_dual(): a tangent has the dtype of its tensor.{types}\n"
            f"  Convert it: tangent.to({tensor.dtype.name!r})."
        )
    number, shown = _number("make_dual()", level)
    for x, what in (
        (tensor, "Making a dual Tensor based on a Tensor that already"),
        (tangent, "Setting a forward grad that itself"),
    ):
        if any(number in levels for levels in tangents_of(settle(x))):
            raise GraphError(
                f"make_dual(): {what} has a forward gradient at the same level {shown} is not "
                f"supported.\n  {'primal' if x is tensor else 'tangent'}: {x._type}\n"
                f"  Take unpack_dual(x).primal, or open a level within."
            )
    dual = _alias(tensor)
    # a leaf is no result of a segment, but what is the same as it is
    source = _alias(tangent) if tangent._target() is tangent else tangent
    given = {NONE: Tangent(tangent._v, source._target(), tangent), **tangents_of(tangent._v)}
    along = {levels | {number}: x for levels, x in given.items()}
    carry(dual._v, {**tangents_of(dual._v), **along})
    return dual


@boundary
def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns a tensor without its tangent along a level, and that.

    The tangent is None where the tensor carries none, and where this thread has opened no level.
    Both may carry tangents along other levels.

    Raises:
        ArgumentError: where it is no tensor.
        GraphError: where there is no such level, and inside of a transform.
    """
    check_outside("unpack_dual()", _INSIDE)
    check_tensor("unpack_dual()", "tensor", tensor, "\n  Write ftrans.tensor(x).")
    if not entered.levels:
        return UnpackedDualTensor(tensor, None)
    number, _ = _number("unpack_dual()", level)
    tangent = tangents_of(settle(tensor)).get(frozenset({number}))
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    primal = _alias(tensor)
    tangents = tangents_of(primal._v)
    carry(primal._v, {levels: x for levels, x in tangents.items() if number not in levels})
    return UnpackedDualTensor(primal, tangent.tensor())


def _alias(x: Tensor) -> Tensor:
    """Returns a tensor with the value of another one, through which derivatives go."""
    if state.tape is not None:
        state.tape.leave()  # what is pending is no part of the segment, and asks rules for less
    new = recorded(lambda value: value, x)
    settle(new)
    return new


def _number(call: str, level: int | None) -> tuple[int, int]:
    """Returns a level that this thread has opened, and the number that users know it by."""
    count = len(entered.levels)
    shown = count - 1 if level is None else level
    if not 0 <= shown < count:
        raise GraphError(
            f"{call}: there is no level of this number.\n  level: {level}\n"
            f"  open in this thread: {', '.join(map(str, range(count)))}"
        )
    return entered.levels[shown], shown
