"""What `forward` leaves for the rules of a `Function`: the context of one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ftrans.errors import RuleError
from ftrans.ir import Tracer
from ftrans.numpy.views import fresh


class _State:
    """Is what the methods of a context set, apart from the attributes of the user."""

    for_backward: tuple[Any, ...] = ()
    for_forward: tuple[Any, ...] = ()
    arrays: tuple[Any, ...] = ()  # what those for `backward` were then, where they may change
    rigid: tuple[Any, ...] = ()
    dirty: tuple[Any, ...] = ()
    materialize: bool = True
    needs: Callable[[], tuple[bool, ...]] | tuple[bool, ...] = ()
    which: str = "backward"


def key_of(value: Any) -> Any:
    """Returns what makes an array or a traced value itself: two tracers may denote one value."""
    return (id(value.frame), value.index) if isinstance(value, Tracer) else id(value)


class FunctionCtx:
    """Carries values from `forward` or `setup_context` to `backward` and `jvp`.

    Any attribute can be set on it, arrays too: they are differentiated through, as are those
    saved by `save_for_backward`.

    Example:
        >>> from ftrans.autograd import Function
        >>> class Square(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x**2
        ...
        ...     @staticmethod
        ...     def backward(ctx, ct):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * ct
        >>> from ftrans import grad
        >>> float(grad(grad(Square.apply))(3.0))
        2.0
    """

    __slots__ = ("__dict__", "__state__")

    def __init__(self) -> None:
        self.__state__ = _State()

    def __copied__(self, which: str) -> FunctionCtx:
        """Returns a context for one call of "backward" or "forward", which may change it."""
        made = FunctionCtx()
        made.__state__.__dict__.update(self.__state__.__dict__)
        made.__state__.for_backward = tuple(map(fresh, self.__state__.for_backward))
        made.__state__.for_forward = tuple(map(fresh, self.__state__.for_forward))
        made.__state__.which = which
        made.__dict__.update(_containers_copied(self.__dict__, {}))
        return made

    def __held__(self) -> list[Any]:
        """Returns what it refers to, once for each reference; containers are not looked into."""
        s = self.__state__
        return [*self.__dict__.values(), *s.for_backward, *s.for_forward, *s.rigid, *s.dirty]

    def save_for_backward(self, *tensors: Any) -> None:
        """Saves arrays for `backward`; the last call counts.

        Args:
            tensors: arrays of any kind, or None.

        Raises:
            RuleError: where one is neither, which is a `TypeError`.
        """
        self.__state__.for_backward = _checked("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Any) -> None:
        """Saves arrays for `jvp`, as `save_for_backward` does for `backward`."""
        self.__state__.for_forward = _checked("save_for_forward", tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved for the method that asks."""
        state = self.__state__
        return state.for_backward if state.which == "backward" else state.for_forward

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """For each positional argument of `apply` whether a gradient with respect to it is asked.

        Where that is not known, as under `jit`, it is True.
        """
        state = self.__state__
        if callable(state.needs):
            state.needs = state.needs()
        return state.needs

    def mark_non_differentiable(self, *args: Any) -> None:
        """Says of outputs that they have no gradient; `backward` gets zeros for them."""
        self.__state__.rigid = args

    def mark_dirty(self, *args: Any) -> None:
        """Says of inputs that `forward` has written into them; they must be returned."""
        self.__state__.dirty = args

    def set_materialize_grads(self, value: bool) -> None:
        """Says whether cotangents that are zero are passed as arrays of zeros, or as None."""
        self.__state__.materialize = bool(value)


def attributes_of(ctx: FunctionCtx) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the attributes of the user, and what methods have set."""
    return ctx.__dict__, ctx.__state__.__dict__


def _containers_copied(value: Any, seen: dict[int, Any]) -> Any:
    """Returns the same in containers of its own, as far as these are Python's.

    Traced values are objects of their own as well: a rule that writes to one does so in its call.
    """
    kind = type(value)
    if kind not in (dict, list, set, tuple):
        return fresh(value)
    if id(value) in seen:
        return seen[id(value)]
    if kind is set:
        return set(value)
    if kind is tuple:
        return tuple([_containers_copied(x, seen) for x in value])
    made: Any = kind()
    seen[id(value)] = made
    if kind is list:
        made += [_containers_copied(x, seen) for x in value]
    else:
        made.update({key: _containers_copied(x, seen) for key, x in value.items()})
    return made


def _checked(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    for number, value in enumerate(values):
        is_array = hasattr(value, "__array__") and not isinstance(value, (list, tuple))
        if is_array or value is None or isinstance(value, (float, complex)):
            continue
        raise RuleError(
            f"{name}: it takes arrays and None, but argument {number} is of type "
            f"{type(value).__name__}.\n"
            f"  Set what is no array as an attribute: ctx.name = value."
        )
    return tuple(map(fresh, values))  # which keep what they were


class VmapInfo(NamedTuple):
    """Tells a `vmap` rule what is mapped.

    Attributes:
        batch_size: the number of examples.
        randomness: what `vmap` was told: "error", "same" or "different".
    """

    batch_size: int
    randomness: str
