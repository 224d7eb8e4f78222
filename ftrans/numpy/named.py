"""Arrays with PyTorch's names, which opaque methods are given, and plain ones of what they return.

A method that was found to be opaque by `x.cpu().numpy()` is called on arrays from then on, and asks
those in the same words. What it returns may be tensors that it has made. One that goes backward
itself, from `x.detach().requires_grad_()`, is given tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import unwrap
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.interop.closure import codes_in, content, names_in
from ftrans.traceback import OnTape

Give = Callable[[Any], Any]


class NamedArray(np.ndarray):
    """Is an array of NumPy's that answers to what tensors are asked for, too."""

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Returns the plain array."""
        return self.view(np.ndarray)

    def detach(self) -> NamedArray:
        """Returns the array itself: an array has no history."""
        return self

    cpu = contiguous = detach

    def clone(self) -> NamedArray:
        """Returns a copy."""
        return self.copy()

    def dim(self) -> int:
        """Returns the number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Returns the number of elements."""
        return self.size


def named(x: Any) -> Any:
    """Returns an array under PyTorch's names, in the same memory; anything else as it is."""
    return x.view(NamedArray) if type(x) is np.ndarray else x


def tensor_of(x: Any) -> Any:
    """Returns a tensor of a copy of an array; anything else as it is."""
    if type(x) is np.ndarray:
        return OnTape.of_array(x.copy())
    return OnTape.of_array(x) if isinstance(x, jax.Array) else x


def has_graph(x: Any) -> bool:
    """Tells whether a value is a tensor that one may go backward from, or to."""
    return type(x) in OnTape.types and x.requires_grad


class Plain:
    """Makes plain arrays of named ones and of tensors, one of each; `pairs` are known already."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()):
        self._found = {id(x): (x, array) for x, array in pairs}

    def __call__(self, x: Any) -> Any:
        """Returns one value as it was, or as a plain array."""
        if isinstance(x, NamedArray):
            return self._found.setdefault(id(x), (x, x.view(np.ndarray)))[1]
        if type(x) in OnTape.types:
            return self._found.setdefault(id(x), (x, x.numpy(force=True)))[1]
        return x

    def all(self, values: Any) -> Any:
        """Returns a pytree of values so; the same one where that changes nothing."""
        return _changed(self, values)

    def within(self, *held: dict[str, Any]) -> None:
        """Makes plain arrays of the values of dicts, but for tensors that have a graph."""
        for attributes in held:
            for name, value in attributes.items():
                attributes[name] = _changed(lambda x: x if has_graph(x) else self(x), value)


def _changed(plain: Callable[[Any], Any], values: Any) -> Any:
    leaves = tree.tree_leaves(values)
    if not any(isinstance(x, NamedArray) or type(x) in OnTape.types for x in leaves):
        return values
    return tree.tree_map(plain, values)


def called_by_names(
    give: Give | None, call: Callable[[Any], Any], arrays: Any, held: Iterable[dict[str, Any]]
) -> Any:
    """Calls a function of a list of arrays, which gets what it asks for in their place.

    What it returns, and leaves in dicts, are plain arrays then.
    """
    if give is None:
        return call(arrays)
    arrays = list(arrays)
    given = list(map(give, arrays))
    plain = Plain(zip(given, arrays, strict=True))
    output = call(given)
    for x, array in zip(given, arrays, strict=True):
        if type(x) in OnTape.types and x._version:
            array[...] = x.numpy(force=True)
    output = plain.all(output)
    plain.within(*held)
    return output


_NAMES = frozenset({
    *("numpy", "detach", "cpu", "contiguous", "clone", "dim", "numel"),
    *("new", "new_tensor", "tensor", "from_numpy", "as_tensor", "backward"),
})  # fmt: skip
"""What code asks arrays for, or makes tensors by, that was written for PyTorch."""

_GRAPHS = frozenset({"requires_grad", "requires_grad_"})
"""What code asks for that goes backward itself."""

_asked: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def asked(*functions: Any) -> Give | None:
    """Returns what makes of arrays what functions of a user's, or those they call, ask for.

    They may speak of tensors, by the names of their methods or of our modules, or of what requires
    grad; None stands for plain arrays. It looks at the names in their code alone, once for each: to
    give arrays other names takes time.
    """
    return (None, named, tensor_of)[max(map(_asks, functions))]


def is_cut(function: Any) -> bool:
    """Tells whether a method goes backward itself, by a graph that does not outlive it."""
    code = getattr(unwrap(function), "__code__", None)
    if code is None or asked(function) is not tensor_of:
        return False
    consts = [x for inner in codes_in(code) for x in inner.co_consts if type(x) is tuple]
    goes_backward = not {"backward", "grad"}.isdisjoint(names_in(code))
    return goes_backward and not any("create_graph" in names for names in consts)


def needs_tensors(*functions: Any) -> bool:
    """Tells whether functions go backward themselves, or call what does."""
    return asked(*functions) is tensor_of


def give_tensors(function: Any) -> None:
    """Has a function be given tensors by what `asked` returns from here on."""
    _asked[function] = 2


def _asks(function: Any, depth: int = 3) -> int:
    code = getattr(function, "__code__", None)
    if type(code) is not CodeType or not depth:
        return 0
    found = _asked.get(function)
    if found is None:
        _asked[function] = 0  # where it calls itself
        space, names = function.__globals__, set(names_in(code))
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        called = [space[name] for name in names if name in space]
        called += [x for x in (content(cell) for _, cell in cells) if x is not None]
        found = 2 * (not _GRAPHS.isdisjoint(names)) or int(not _NAMES.isdisjoint(names))
        for x in called:
            if type(x) is ModuleType:
                found = max(found, int(x.__name__.startswith(_MODULES)))
            else:
                found = max(found, _asks(x, depth - 1))
        _asked[function] = found
    return found


_MODULES = ("ftrans.torch", "ftrans.autograd")


def asked_by_names(
    method: Callable[..., Any],
    held: Callable[[Any], Iterable[dict[str, Any]]],
    mapped: Callable[[Give, Any], Any],
) -> Callable[..., Any]:
    """Returns a rule, called on arrays, that its method gets under PyTorch's names.

    Args:
        method: takes a context and arrays.
        held: from the context to the dicts in which it has arrays, or pytrees of them.
        mapped: applies a function to the leaves of a pytree.
    """
    give = asked(method)
    if give is None:
        return method

    @functools.wraps(method)
    def called(ctx: Any, *values: Any) -> Any:
        for attributes in held(ctx):
            for name, value in attributes.items():
                attributes[name] = mapped(give, value)
        return Plain().all(method(ctx, *map(give, values)))

    return called
