"""Arguments and results of a custom rule, split into the arrays among their leaves and all else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.errors import RuleError
from ftrans.func.staging import describe, leaf_name, shown
from ftrans.ir import ArrayType, Tracer, type_of
from ftrans.numpy.promotion import as_array, cast, is_array, is_scalar, is_weak

__all__ = ["Parts", "chosen", "fit", "is_constant"]


class Parts:
    """Is a tuple of values of which some are arrays, or hold arrays as pytrees.

    Args:
        items: the values.
        is_part: which leaves are taken for arrays; the others are static.

    Attributes:
        values: the leaves that are arrays, in order.
    """

    __slots__ = ("_entries", "values")

    def __init__(self, items: Sequence[Any], is_part: Callable[[Any], bool] = is_array):
        self.values: list[Any] = []
        self._entries: list[Any] = []
        for item in items:
            if is_part(item):
                self._entries.append(_ARRAY)
                self.values.append(item)
                continue
            if item is None or (type(item) in _CONTAINERS and not item):
                self._entries.append(_EMPTY[type(item)])
                continue
            try:
                leaves, structure = tree.tree_flatten(item)
            except (RecursionError, SystemError):
                # the pytrees of JAX are no deeper than the stack
                raise RuleError(
                    f"A {type(item).__name__} holds itself.\n"
                    f"  It cannot be an argument or a result of a rule, nor stand on the context "
                    f"of a method\n  that asks for plain arrays."
                ) from None
            mask = [is_part(leaf) for leaf in leaves]
            if True not in mask and tree.all_leaves([item]):
                self._entries.append(_Static(item))
                continue
            self.values += [leaf for leaf, m in zip(leaves, mask, strict=True) if m]
            entry = _Tree(structure, leaves, mask)
            self._entries.append(entry if True in mask else _Container(entry, item))

    def template(self) -> Parts:
        """Returns the same without the arrays."""
        made = Parts(())
        made._entries = [entry.template() for entry in self._entries]
        return made

    def __len__(self) -> int:
        return len(self._entries)

    def build(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the tuple with these values in the place of the arrays."""
        given = iter(values)
        return tuple([entry.build(given) for entry in self._entries])

    def alone(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns these values in the structure of the tuple, with None for all that is static."""
        given = iter(values)
        return tuple([entry.alone(given) for entry in self._entries])

    def counts(self) -> list[int]:
        """Returns how many arrays each item of the tuple has."""
        return [entry.count for entry in self._entries]

    def statics(self) -> list[Any]:
        """Returns the leaves that are no arrays."""
        return [leaf for entry in self._entries for leaf in entry.statics()]

    @property
    def key(self) -> tuple[Any, ...]:
        """All but the arrays, in a form that can be compared and hashed."""
        return tuple([entry.key for entry in self._entries])

    @property
    def skeleton(self) -> tuple[Any, ...]:
        """As `key`, with types in the place of objects that equal none but themselves."""
        return tuple([entry.skeleton for entry in self._entries])

    @property
    def is_constant(self) -> bool:
        """Whether what is no array can never change."""
        return all(entry.is_constant for entry in self._entries)

    @property
    def is_static(self) -> bool:
        """Whether it holds anything but arrays."""
        return any(entry.is_static for entry in self._entries)

    def names(self, roots: Sequence[str]) -> list[str]:
        """Returns how errors name the arrays, for names of the items."""
        return [
            name
            for entry, root in zip(self._entries, roots, strict=True)
            for name in entry.names(root)
        ]

    def split(self, label: Callable[[], str], items: Sequence[Any]) -> list[Any]:
        """Returns, of another tuple of this structure, what stands in the place of each array.

        Args:
            label: returns what begins the error.
            items: the tuple; None stands for None in the place of all arrays of an item.

        Raises:
            RuleError: where an item has another structure.
        """
        found: list[Any] = []
        for number, (entry, item) in enumerate(zip(self._entries, items, strict=True)):
            if item is None:
                found += [None] * entry.count
            elif entry is _ARRAY:
                found.append(item)
            else:
                found += entry.split(lambda n=number: f"{label()}, number {n}", item)
        return found


class _Array:
    """Is an item that is an array itself."""

    count = 1
    key = skeleton = "array"
    is_static = False
    is_constant = True

    def template(self) -> _Array:
        return self

    def statics(self) -> list[Any]:
        return []

    def build(self, given: Any) -> Any:
        return next(given)

    alone = build

    def names(self, root: str) -> list[str]:
        return [root]

    def split(self, label: Callable[[], str], item: Any) -> list[Any]:
        return [item]


_ARRAY = _Array()


class _Static:
    """Is an item without arrays."""

    count = 0
    is_static = True

    def __init__(self, value: Any):
        self.value = value

    def template(self) -> _Static:
        return self

    def statics(self) -> list[Any]:
        return [self.value]

    @property
    def is_constant(self) -> bool:
        return is_constant(self.value)

    def build(self, given: Any) -> Any:
        return self.value

    def alone(self, given: Any) -> None:
        return None

    @property
    def key(self) -> Any:
        return _key(self.value)

    @property
    def skeleton(self) -> Any:
        return _kind(self.value)

    def names(self, root: str) -> list[str]:
        return []

    def split(self, label: Callable[[], str], item: Any) -> list[Any]:
        if is_scalar(self.value) and is_scalar(item):
            return []  # a Python number has no gradient here that anybody could ask for
        if is_scalar(self.value) and is_array(item):
            return []
        if item is self.value or _key(item) == self.key:
            return []  # it was handed on
        if not tree.tree_leaves(item):
            return []
        raise RuleError(
            f"{label()}: it must be None, since it belongs to what is no array.\n"
            f"  returned: {describe(item)}\n  it belongs to: {describe(self.value)}"
        )


class _Tree:
    """Is an item that is a pytree with arrays in it."""

    def __init__(self, structure: Any, leaves: list[Any], mask: list[bool]):
        self.structure = structure
        self.leaves = [None if m else leaf for leaf, m in zip(leaves, mask, strict=True)]
        self.mask = mask
        self.count = mask.count(True)
        self.is_static = any(
            leaf is not None and not m for leaf, m in zip(leaves, mask, strict=True)
        )

    @property
    def is_constant(self) -> bool:
        return _is_plain(self.structure) and all(map(is_constant, self.leaves))

    def template(self) -> _Tree:
        return self

    def statics(self) -> list[Any]:
        return [leaf for leaf, m in zip(self.leaves, self.mask, strict=True) if not m]

    def build(self, given: Any) -> Any:
        return self.structure.unflatten(
            [next(given) if m else leaf for leaf, m in zip(self.leaves, self.mask, strict=True)]
        )

    def alone(self, given: Any) -> Any:
        return self.structure.unflatten([next(given) if m else None for m in self.mask])

    @property
    def key(self) -> Any:
        return self.structure, tuple(self.mask), *map(_key, self.leaves)

    @property
    def skeleton(self) -> Any:
        return self.structure, tuple(self.mask), *map(_kind, self.leaves)

    def names(self, root: str) -> list[str]:
        skeleton = self.structure.unflatten(range(len(self.mask)))
        paths = [path for path, _ in tree.tree_flatten_with_path(skeleton)[0]]
        return [leaf_name(root, path) for path, m in zip(paths, self.mask, strict=True) if m]

    def split(self, label: Callable[[], str], item: Any) -> list[Any]:
        try:
            found = self.structure.flatten_up_to(item)
        except (ValueError, TypeError):
            raise RuleError(
                f"{label()}: it does not have the structure of what it belongs to.\n"
                f"  returned: {shown(tree.tree_structure(item))}\n"
                f"  it belongs to: {shown(self.structure)}\n"
                f"  Return the same containers; None stands for a zero leaf."
            ) from None
        return [leaf for leaf, m in zip(found, self.mask, strict=True) if m]


class _Container(_Tree):
    """Is an item that is a pytree without arrays: the call itself gets it, others get copies."""

    def __init__(self, entry: _Tree, item: Any):
        super().__init__(entry.structure, entry.leaves, entry.mask)
        self.copied = entry
        self.item = item

    @property
    def is_constant(self) -> bool:
        # what can be written to may be, by the next call
        return type(self.item) is tuple and super().is_constant

    def template(self) -> _Tree:
        return self.copied

    def build(self, given: Any) -> Any:
        return self.item


def is_constant(value: Any) -> bool:
    """Tells whether a value can never change."""
    if type(value) is tuple:
        return all(map(is_constant, value))
    if type(value) is slice:
        return is_constant((value.start, value.stop, value.step))
    return type(value) in _CONSTANTS or isinstance(value, np.dtype)


_CONSTANTS = frozenset({bool, int, float, complex, str, bytes, type(None), type(Ellipsis)})


def _is_plain(structure: Any) -> bool:
    """Tells whether containers are Python's own, and keys are strings."""
    node = structure.node_data()
    if node is None:
        return True  # a leaf
    kind, data = node
    if kind is dict and not all(type(key) is str for key in data):
        return False
    return kind in (tuple, list, dict, type(None)) and all(map(_is_plain, structure.children()))


_CONTAINERS = (tuple, list, dict)
_EMPTY = {
    kind: _Tree(tree.tree_structure(value), [], [])
    for kind, value in ((tuple, ()), (list, []), (dict, {}), (type(None), None))
}
"""The items in which there is nothing."""


def _key(value: Any) -> Any:
    """Returns what stands for a static value: itself, or its identity where it has no hash."""
    if type(value) is slice:
        return slice, _key(value.start), _key(value.stop), _key(value.step)
    try:
        hash(value)
    except TypeError:
        return "id", id(value)
    kind = type(value)
    if isinstance(value, (float, complex)):
        return kind, repr(value)  # NaN, and the sign of zero
    if kind in _CONSTANTS or kind.__eq__ is object.__eq__:
        return kind, value
    return kind, value, repr(value)  # as of dataclasses: 1 and True are equal


def _kind(value: Any) -> Any:
    """Returns what stands for a static value: the type of an object that equals only itself."""
    by_identity = type(value).__eq__ is object.__eq__ or type(value).__hash__ is None
    return ("object", type(value)) if by_identity else _key(value)


def chosen(value: Any, expected: ArrayType, weak: bool) -> Any:
    """Returns a cotangent in the expected dtype where it belongs to a Python number.

    Nobody has chosen the dtype of that.
    """
    inexact = is_scalar(value) or (is_array(value) and type_of(value).is_inexact)
    return cast(as_array(value), expected.dtype) if weak and inexact else value


def fit(label: str, value: Any, expected: ArrayType, like: str, reduced: bool = False) -> Any:
    """Returns what a rule returned as an array of exactly the type that it must have.

    Args:
        label: names what it is, for the error: "F.backward (file:line): the gradient of x".
        value: what was returned.
        expected: its type.
        like: says whose type that is, for the error.
        reduced: whether a value that `expected` broadcasts to is summed to it.

    Raises:
        RuleError: where it is no array, or has another shape or dtype.
    """
    if type(value) is np.ndarray and value.shape == expected.shape:
        if value.dtype == expected.dtype:
            return value
    elif not (is_array(value) or is_scalar(value)):
        value = _from_elsewhere(label, value, expected)
    weak = is_weak(value)
    array = as_array(value)
    t = type_of(array)
    if t.shape != expected.shape:
        if weak and t.shape == ():
            from ftrans.numpy.promotion import broadcast_to

            array = broadcast_to(array, expected.shape)
        elif reduced and _reduces(t.shape, expected.shape):
            array = _summed(array, expected.shape)
        else:
            raise RuleError(
                f"{label} has the wrong shape.\n  returned: {t}\n  {like}: {expected}\n"
                f"  Return an array of shape {expected.shape}."
            )
    if t.dtype != expected.dtype:
        if weak and (expected.is_inexact or not t.is_inexact):
            return cast(array, expected.dtype)
        raise RuleError(
            f"{label} has the wrong dtype.\n  returned: {t}\n  {like}: {expected}\n"
            f"  Convert it: .astype({expected.dtype.name!r})."
        )
    if isinstance(array, Tracer) and array.weak:
        return cast(array, expected.dtype)
    return array


def _from_elsewhere(label: str, value: Any, expected: ArrayType) -> Any:
    if hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
        return as_array(value)
    raise RuleError(
        f"{label} is no array.\n  returned: {describe(value)}\n"
        f"  Return {expected}, or None where it is zero."
    )


def _reduces(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tells whether a sum over axes leads from one shape to another that broadcasts to it."""
    extra = len(shape) - len(target)
    return extra >= 0 and all(n in (1, shape[extra + axis]) for axis, n in enumerate(target))


def _summed(array: Any, target: tuple[int, ...]) -> Any:
    from ftrans.primitives import reshape_p, sum_p

    shape = type_of(array).shape
    extra = len(shape) - len(target)
    axes = (
        *range(extra),
        *(extra + axis for axis, n in enumerate(target) if n == 1 and shape[extra + axis] != 1),
    )
    array = sum_p(array, axes=axes) if axes else array
    return reshape_p(array, shape=target) if type_of(array).shape != target else array
