"""Pytrees: split into arrays and all else, built again, named. The only place that does.

A `Skeleton` is a pytree without its arrays: with others in their place it is a pytree again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import jax.tree_util as tree
import numpy as np

from ftrans.errors import RuleError
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array, is_scalar
from ftrans.primitives.rules.external import Same

# ------------------------------------------------------------------------------- split and build


class Skeleton:
    """Is a pytree without the arrays among its leaves.

    Attributes:
        structure: the pytree's.
        leaves: None in the place of each array, all other leaves as they are. None itself is no
            leaf but a container of nothing.
        arrays: the number of arrays; it is counted where it is not given.
        orders: the keys of dicts in their order, where JAX would sort them; None if nowhere.
    """

    __slots__ = ("arrays", "leaves", "orders", "structure")

    def __init__(self, structure: Any, leaves: Any, arrays: int | None = None, orders: Any = None):
        self.structure = structure
        self.leaves = tuple(leaves)
        self.arrays = sum([leaf is None for leaf in leaves]) if arrays is None else arrays
        self.orders = orders

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Skeleton)
            and self.structure == other.structure
            and self.leaves == other.leaves
        )

    def __hash__(self) -> int:
        return hash((self.structure, self.leaves))

    @property
    def statics(self) -> list[Any]:
        """The leaves that are no arrays."""
        return [leaf for leaf in self.leaves if leaf is not None]

    def build(self, values: Sequence[Any]) -> Any:
        """Returns the pytree with these values in the place of the arrays."""
        if len(values) < len(self.leaves):
            given = iter(values)
            values = [next(given) if leaf is None else leaf for leaf in self.leaves]
        return _ordered(self.structure.unflatten(values), self.orders)

    def alone(self, values: Sequence[Any]) -> Any:
        """Returns these values in the structure of the pytree, with None for all other leaves."""
        if len(values) < len(self.leaves):
            given = iter(values)
            values = [next(given) if leaf is None else None for leaf in self.leaves]
        return _ordered(self.structure.unflatten(values), self.orders)

    def among(self, leaves: Sequence[Any]) -> list[Any]:
        """Returns, of leaves for the whole pytree, those in the place of the arrays."""
        if self.arrays == len(self.leaves) == len(leaves):
            return list(leaves)
        return [x for x, leaf in zip(leaves, self.leaves, strict=True) if leaf is None]

    def names(self, root: str) -> list[str]:
        """Returns how errors name the arrays."""
        return self.among(leaf_names(root, self.structure))

    def bare(self) -> Skeleton:
        """Returns the same without the leaves that are no arrays, for `alone` and `among`."""
        if self.arrays == len(self.leaves):
            return self
        leaves = [None if leaf is None else ... for leaf in self.leaves]
        return Skeleton(self.structure, leaves, self.arrays, self.orders)

    @property
    def key(self) -> Any:
        """All that it is, in a form that can be compared and hashed."""
        return self._keyed(False)

    @property
    def exact_key(self) -> Any:
        """The same, with objects told apart that are equal since their class says so."""
        return self._keyed(True)

    def _keyed(self, exact: bool) -> Any:
        leaves = [None if leaf is None else _key(leaf, exact) for leaf in self.leaves]
        return structure_key(self.structure, exact), self.orders, *leaves

    @property
    def is_constant(self) -> bool:
        """Whether it can never change."""
        return all(map(is_constant, self.leaves)) and _data_of(self.structure) is None


_CONTAINERS = frozenset({tuple, list, dict})
_ARRAY = Skeleton(tree.tree_structure(0), (None,))


@functools.cache
def tuple_of(count: int) -> Skeleton:
    """Returns the skeleton of a tuple of so many arrays."""
    return Skeleton(tree.tree_structure((0,) * count), (None,) * count)


@functools.lru_cache(1024)
def has_dicts(structure: Any) -> bool:
    """Tells whether there are dicts in a pytree, whose keys have an order."""
    kind, _ = structure.node_data() or (None, None)
    return kind is dict or any(map(has_dicts, structure.children()))


def orders_in(value: Any) -> Any:
    """Returns the keys of dicts in their order, where JAX would sort them; None if nowhere."""
    if type(value) is dict:
        inside = tuple([(key, orders_in(item)) for key, item in value.items()])
        kept = list(value) != sorted(value) or any(order is not None for _, order in inside)
        return inside if kept else None
    items = tuple(map(orders_in, value)) if type(value) in (tuple, list) else ()
    return items if any(order is not None for order in items) else None


def _ordered(value: Any, orders: Any) -> Any:
    """Returns a pytree in which dicts have the orders that they had."""
    if orders is None:
        return value
    if type(value) is dict:
        return {key: _ordered(value[key], order) for key, order in orders}
    return type(value)(map(_ordered, value, orders))


def ordered_like(value: Any, made: Any) -> Any:
    """Returns a pytree that was made of another one, in which dicts have the orders of that."""
    return _ordered(made, orders_in(value))


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to the leaves of a pytree, whose dicts keep their orders."""
    return ordered_like(value, tree.tree_map(function, value))


def split(value: Any, is_part: Callable[[Any], bool] = is_array) -> tuple[list[Any], Skeleton]:
    """Returns the leaves of a pytree that are taken for arrays, and all else."""
    if type(value) not in _CONTAINERS and is_part(value):
        return [value], _ARRAY
    leaves, structure = tree.tree_flatten(value)
    values, rest = [], []
    for leaf in leaves:
        if is_part(leaf):
            values.append(leaf)
            rest.append(None)
        else:
            rest.append(leaf)
    orders = orders_in(value) if has_dicts(structure) else None
    return values, Skeleton(structure, rest, len(values), orders)


class Parts(Skeleton):
    """Is the arguments or the results of a rule: a tuple of values that are arrays or hold some.

    Containers without arrays are handed on as they are, and can be written to; `template` knows
    but copies of them.

    Attributes:
        values: the leaves that are taken for arrays, in order.
        arrays_alone: whether all items are arrays.
    """

    __slots__ = ("_count", "_whole", "arrays_alone", "values")

    def __init__(self, items: Sequence[Any], is_part: Callable[[Any], bool] = is_array):
        self._whole: list[tuple[int, Any]] = []
        self.orders: Any = None
        self._count = count = len(items)
        self.values = [item for item in items if is_part(item)]
        self.arrays_alone = len(self.values) == count
        if self.arrays_alone:
            # as most often
            row = tuple_of(count)
            self.structure, self.leaves, self.arrays = row.structure, row.leaves, count
            return
        try:
            self.values, made = split(tuple(items), is_part)
        except (RecursionError, SystemError):
            # the pytrees of JAX are no deeper than the stack
            raise _endless(items) from None
        super().__init__(made.structure, made.leaves, made.arrays, made.orders)
        if self.structure.num_nodes != len(self.leaves) + 1:  # there are containers
            children = zip(items, self.counts(), self.structure.children(), strict=True)
            for number, (item, count, child) in enumerate(children):
                if not (count or item is None or tree.treedef_is_leaf(child)):
                    self._whole.append((number, item))

    def template(self) -> Parts:
        """Returns the same without the arrays."""
        made = Parts.__new__(Parts)
        made.structure, made.leaves, made.arrays = self.structure, self.leaves, self.arrays
        made.values, made._whole, made.orders = [], [], self.orders
        made._count, made.arrays_alone = self._count, self.arrays_alone
        return made

    def _keyed(self, exact: bool) -> Any:
        if self.arrays_alone:
            return self.structure, *self.leaves
        return super()._keyed(exact)

    def __len__(self) -> int:
        return self._count

    def build(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the tuple with these values in the place of the arrays."""
        if self.arrays_alone:
            return tuple(values)
        items = list(super().build(values))
        for number, item in self._whole:
            items[number] = item
        return tuple(items)

    def alone(self, values: Sequence[Any]) -> Any:
        """Returns these values in the structure of the tuple, with None for all other leaves."""
        return tuple(values) if self.arrays_alone else super().alone(values)

    def counts(self) -> list[int]:
        """Returns how many arrays each item of the tuple has."""
        given = iter(self.leaves)
        return [
            sum([next(given) is None for _ in range(child.num_leaves)])
            for child in self.structure.children()
        ]

    @property
    def is_constant(self) -> bool:
        """Whether what is no array can never change, as what can be written to may."""
        return self.arrays_alone or (
            super().is_constant and all(type(item) is tuple for _, item in self._whole)
        )

    def item_names(self, roots: Sequence[str]) -> list[str]:
        """Returns how errors name the arrays, for names of the items."""
        pairs = zip(roots, self.structure.children(), strict=True)
        return self.among([name for pair in pairs for name in leaf_names(*pair)])

    def split(self, label: Callable[[], str], items: Sequence[Any]) -> list[Any]:
        """Returns, of another tuple of this structure, what stands in the place of each array.

        None stands for None in the place of all arrays of an item.

        Raises:
            RuleError: where an item has another structure; it begins with the label.
        """
        if self.arrays_alone:
            return list(items)
        found: list[Any] = []
        children = self.structure.children()
        for number, (child, item) in enumerate(zip(children, items, strict=True)):
            if item is None:
                found += [None] * child.num_leaves
                continue
            # None has one node, too
            is_leaf = child.num_leaves and tree.treedef_is_leaf(child)
            value = self.leaves[len(found)] if is_leaf else None
            leaves = flatten_like(child, item)
            if value is not None:
                _check_static(label, number, value, item)
            if leaves is None:
                raise RuleError(
                    f"{label()}, number {number}: it does not have the structure of what it "
                    f"belongs to.\n  returned: {shown(tree.tree_structure(item))}\n"
                    f"  it belongs to: {shown(child)}\n"
                    f"  Return the same containers; None stands for a zero leaf."
                )
            found += leaves
        return self.among(found)


def _endless(items: Sequence[Any]) -> RuleError:
    item: Any = items
    for item in items:
        try:
            tree.tree_flatten(item)
        except (RecursionError, SystemError):
            break
    return RuleError(
        f"A {type(item).__name__} holds itself.\n"
        f"  It cannot be an argument or a result of a rule, nor stand on the context of a method\n"
        f"  that asks for plain arrays."
    )


def _check_static(label: Callable[[], str], number: int, value: Any, item: Any) -> None:
    """Raises where a rule returns something for what is no array."""
    # a Python number has no gradient here that anybody could ask for, and JAX's has dtype float0
    if is_scalar(value) and (is_scalar(item) or is_array(item) or isinstance(item, np.ndarray)):
        return
    # it was handed on, or there is nothing in it
    if item is value or _key(item) == _key(value) or not tree.tree_leaves(item):
        return
    raise RuleError(
        f"{label()}, number {number}: it must be None, since it belongs to what is no array.\n"
        f"  returned: {describe(item)}\n  it belongs to: {describe(value)}"
    )


def is_constant(value: Any) -> bool:
    """Tells whether a value can never change."""
    if type(value) is tuple:
        return all(map(is_constant, value))
    if type(value) is slice:
        return is_constant((value.start, value.stop, value.step))
    return type(value) in _CONSTANTS or isinstance(value, np.dtype)


_CONSTANTS = frozenset({bool, int, float, complex, str, bytes, type(None), type(Ellipsis)})


def structure_key(structure: Any, exact: bool = False) -> Any:
    """Returns a structure with what tells apart equal ones that are not the same: 1 and True.

    Objects that are equal since their class says so are told apart where it is to be `exact`.
    """
    return structure, _data_of(structure, exact)


def _data_of(structure: Any, exact: bool = False) -> Any:
    """Returns what containers say beside their kinds; None where these are Python's own.

    The keys of dicts are strings then.
    """
    node = structure.node_data()
    if node is None:
        return None  # a leaf
    kind, data = node
    own = None
    if kind not in _PLAIN:
        own = tuple([_key(x, exact) for x in (data if isinstance(data, (tuple, list)) else [data])])
    elif kind is dict and not all(type(key) is str for key in data):
        own = tuple(map(_key, data))
    inside = tuple([_data_of(child, exact) for child in structure.children()])
    return None if own is None and not any(inside) else (own, inside)


_PLAIN = frozenset({tuple, list, dict, type(None)})


def has_hash(value: Any) -> bool:
    """Tells whether a value has a hash, so that a key can hold it and not its identity alone."""
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def _key(value: Any, exact: bool = False) -> Any:
    """Returns what stands for a static value: itself, or its identity where it has no hash."""
    kind = type(value)
    if kind is slice:
        return slice, _key(value.start), _key(value.stop), _key(value.step)
    if kind is tuple and exact:
        return kind, *[_key(item, exact) for item in value]
    if not has_hash(value):
        return Same(value) if exact else ("id", id(value))
    if isinstance(value, (float, complex)):
        return kind, repr(value)  # NaN, and the sign of zero
    if kind in _CONSTANTS or kind.__eq__ is object.__eq__:
        return kind, value
    # as of dataclasses: of what they compare 1 and True are equal, and some they may not compare
    return Same(value) if exact else (kind, value, repr(value))


def flatten_like(structure: Any, given: Any) -> list[Any] | None:
    """Returns the leaves of a pytree of this structure, None among them; None if it has another."""
    try:
        return structure.flatten_up_to(given)
    except (ValueError, TypeError):
        return None


# ---------------------------------------------------------------------------------- name and show


def leaf_name(root: str, path: Sequence[Any]) -> str:
    """Returns how an error names a leaf: `carry['w'][0]`."""
    return root + tree.keystr(tuple(path))


def leaf_names(root: str, structure: Any) -> list[str]:
    """Returns how errors name the leaves of a pytree of this structure."""
    skeleton = structure.unflatten([0] * structure.num_leaves)
    return [leaf_name(root, path) for path, _ in tree.tree_flatten_with_path(skeleton)[0]]


def argument_name(function: Callable[..., Any], path: Sequence[Any]) -> str:
    """Returns how an error names a leaf, by its path in a tuple of arguments: `params['w'][0]`."""
    position, rest = path[0].idx, path[1:]
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for number, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return leaf_name(f"{parameter.name}[{position - number}]", rest)
        if number == position and parameter.kind is not parameter.KEYWORD_ONLY:
            return leaf_name(parameter.name, rest)
    return leaf_name(f"args[{position}]", rest)


def holds_arrays(x: Any) -> bool:
    """Tells whether a leaf is a dataclass with arrays, which JAX takes apart if it is told to."""
    own = fields(x) if is_dataclass(x) and not isinstance(x, type) else ()
    return any(map(is_array, tree.tree_leaves([getattr(x, f.name, None) for f in own])))


def describe(x: Any) -> str:
    """Returns how an error shows a value: with types in the place of arrays, else as it is."""
    if is_array(x):
        return str(type_of(x))
    leaves, structure = tree.tree_flatten(x)
    if tree.all_leaves([x]) or not leaves:
        kind = type(x).__name__
        fix = f"no pytree until jax.tree_util.register_dataclass({kind})"
        return f"{_shortened(repr(x))} ({fix if holds_arrays(x) else kind})"
    return shown(structure, [type_of(leaf) if is_array(leaf) else leaf for leaf in leaves])


def shown(structure: Any, leaves: Sequence[Any] | None = None) -> str:
    """Returns how an error shows a pytree: `{'w': (f32[3], leaf)}`."""
    filled = [_LEAF] * structure.num_leaves if leaves is None else list(leaves)
    return _shortened(repr(structure.unflatten(filled)))


_LEAF = type("Leaf", (), {"__repr__": lambda self: "leaf"})()


def _shortened(text: str, most: int = 72) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
