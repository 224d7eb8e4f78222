"""What operations save for a backward pass, and the hooks that pack and unpack it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from typing import Any

import numpy as np

from ftrans.autograd.levels import OPEN, tangents_of
from ftrans.autograd.modes import Mode
from ftrans.autograd.segment import Edge, current, passing
from ftrans.autograd.tensor import Tensor, of_array
from ftrans.errors import ArgumentError, GraphError, UnsupportedError
from ftrans.ir import ArrayType, type_of
from ftrans.ir.stack import apart, state
from ftrans.runtime.device import placed
from ftrans.traceback import boundary

Hook = Callable[[Any], Any]


class SavedTensor:
    """Is a value that an operation has saved for its derivative: `node._raw_saved_self`."""

    __slots__ = ("_held", "_moves", "_target", "_type", "_unpack", "name")

    _held: tuple[Any] | None
    _moves: bool  # whether it had a tangent, before it was packed
    _target: Any  # a leaf, an `Edge` or None; of a result its segment, weakly, and which one it is
    _type: ArrayType
    _unpack: tuple[Hook, ...]
    name: str  # which operand of the operation it is, or that it is a result

    @boundary
    def __init__(self, *args: Any):
        raise GraphError(
            "Trying to create a SavedTensor object from Python is forbidden.\n"
            "  Operations make them: look at x.grad_fn._raw_saved_self."
        )

    @boundary
    def register_hooks(self, pack_hook: Hook, unpack_hook: Hook) -> None:
        """Packs the value at once, to be unpacked when it is needed; see `saved_tensors_hooks`.

        Raises:
            GraphError: where the value was freed, or has hooks.
        """
        if self._held is None:
            raise GraphError(
                "Calling register_hooks on a saved tensor after it has been freed.\n"
                "  Pass retain_graph=True to the backward before."
            )
        if self._unpack:
            raise GraphError(
                "Calling register_hooks on a saved tensor whose hooks have already been set.\n"
                "  Hint: only one pair of hooks is allowed at a time."
            )
        self._pack([(pack_hook, unpack_hook)])

    @boundary
    def unpack(self) -> Tensor:
        """Returns the value, with its history."""
        array, target = self.array(), self.target
        is_result = type(self._target) is tuple
        original = None if self._unpack or is_result else self._original()
        if original is not None and original._v is array:
            return original
        x = of_array(array)
        if target is not None:
            is_edge = isinstance(target, Edge)
            x._edge = target if is_edge else Edge(passing([array], [target]), 0)
        return x

    @property
    def target(self) -> Any:
        """What a gradient with respect to it is for: a leaf, an `Edge`, or None."""
        if type(self._target) is not tuple:
            return current(self._target)
        reference, position = self._target  # a result of its own operation, which it must not keep
        segment = reference()
        return None if segment is None else Edge(segment, position)

    @property
    def data(self) -> Any:
        """What the hook that packs has made of the value, or the value."""
        if self._held is None:
            raise freed()
        return self._held[0] if self._unpack else of_array(self._held[0])

    @property
    def unpack_hook(self) -> Hook | None:
        """The hook that unpacks the value, the outermost."""
        return self._unpack[-1] if self._unpack else None

    def array(self) -> Any:
        """Returns the value, as hooks unpack it."""
        if self._held is None:
            raise freed()
        found = self._held[0]
        if not self._unpack:
            return found
        if self._moves and OPEN:
            raise UnsupportedError(
                f"forward_ad: a saved value that hooks have packed has lost its tangent.\n"
                f"  value: {self._type}\n  Go backward after the level, or without the hooks."
            )
        with _plainly():
            for hook in reversed(self._unpack):
                found = hook(found)
            if type(found) is not Tensor:
                raise UnsupportedError(
                    f"Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                    f"type {type(found).__name__}."
                )
            if found._type is not self._type:
                raise GraphError(
                    f"A saved tensor unpack hook has returned a tensor of another type.\n"
                    f"  saved: {self._type}\n  returned: {found._type}"
                )
            return found.detach().numpy()

    def free(self) -> None:
        """Lets go of the value."""
        self._held, self._unpack = None, ()

    def _original(self) -> Tensor | None:
        """Returns the tensor whose value this is, if somebody still has it."""
        target = self.target
        if not isinstance(target, Edge):
            return target  # type: ignore[no-any-return]
        for position, reference in target.segment.results:
            x = reference()
            if position == target.position and x is not None and x._target() == target:
                return x
        return None

    def _pack(self, pairs: Sequence[tuple[Hook, Hook]]) -> None:
        """Has the value packed by hooks, the last ones first, as long as there is a tensor."""
        assert self._held is not None
        found = of_array(self._held[0])
        with _plainly():
            for pack, unpack in reversed(pairs):
                if type(found) is not Tensor:
                    break
                given, version = found, found._version
                found = pack(given)
                if given._version != version:
                    raise GraphError(
                        f"A saved tensor pack hook is modifying its input in place. Tensors "
                        f"provided as input to pack hook can not be modified by in-place "
                        f"operations as this can lead to unexpected side-effects.\n"
                        f"  tensor: {self._type}\n  Write to a copy: x.clone()."
                    )
                self._unpack = (*self._unpack, unpack)
        self._held = (found,)


def save(name: str, array: Any, target: Any) -> SavedTensor:
    """Returns a value that is saved, packed by the hooks of this thread."""
    saved: SavedTensor = object.__new__(SavedTensor)
    saved.name = name
    saved._target = target
    saved._type = type_of(array)
    saved._held = (array,)
    saved._moves = bool(tangents_of(array))
    saved._unpack = ()
    if state.saving:
        saved._pack(state.saving)
    return saved


def freed() -> GraphError:
    """Returns the error for what is asked for after it was freed."""
    return GraphError(
        "Trying to access saved tensors after they have already been freed.\n"
        "  Saved values are freed by backward() or grad(). Specify retain_graph=True there, where "
        "they are to be looked at afterwards."
    )


@contextmanager
def _plainly() -> Iterator[None]:
    """Runs a hook: what it computes is neither differentiated nor saved."""
    with apart(), Mode(False):
        state.saving = ()
        yield


class saved_tensors_hooks(ContextDecorator):
    """Has what operations save for a backward pass packed, and unpacked when it is needed.

    In the block operations on tensors are run one by one. Blocks inside of each other compose: what
    the inner hook has packed, if it is a tensor, is packed by the outer one. The hooks belong to
    the thread.

    Args:
        pack_hook: takes a tensor that is saved, which it must not write to, and returns anything.
            It is called once for each, without gradients.
        unpack_hook: takes what that has returned, and returns a tensor of the same type. It is
            called whenever the value is needed.

    Raises:
        GraphError: inside of `disable_saved_tensors_hooks`; where a pack hook writes to its tensor,
            or an unpack hook returns something else.

    Example:
        >>> from ftrans import tensor
        >>> x = tensor([1.0, 2.0], requires_grad=True)
        >>> with saved_tensors_hooks(lambda t: t.to("float16"), lambda t: t.to("float32")):
        ...     y = (x * x).sum()
        >>> y.backward()
        >>> x.grad
        tensor([2., 4.])
    """

    def __init__(self, pack_hook: Hook, unpack_hook: Hook):
        self._pair = pack_hook, unpack_hook
        if not all(map(callable, self._pair)):
            raise ArgumentError("saved_tensors_hooks: both hooks are functions of one argument.")
        self._before: list[tuple[Any, ...]] = []

    @boundary
    def __enter__(self) -> None:
        if state.unsaving is not None:
            raise GraphError(state.unsaving)
        self._before.append(state.saving)
        _save_by((*state.saving, self._pair))

    def __exit__(self, *error: object) -> None:
        _save_by(self._before.pop())

    def _recreate_cm(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(*self._pair)  # each call of a function has its own


def _save_by(pairs: tuple[Any, ...]) -> None:
    state.saving = pairs
    if state.tape is not None and not state.stack:  # else what is called on the tape goes on there
        state.tape.leave()  # what was recorded before has not these hooks


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved for a backward pass in the memory of the host.

    The arguments are for the sake of code for PyTorch.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(
            lambda x: (np.asarray(x._v), getattr(x._v, "sharding", None)),
            lambda packed: of_array(placed(*packed)),
        )


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Has `saved_tensors_hooks` raise a `GraphError` with this message in the block.

    It raises this itself inside of a block of such hooks.
    """
    if state.saving:
        raise GraphError(error_message)
    before, state.unsaving = state.unsaving, error_message
    try:
        yield
    finally:
        state.unsaving = before
