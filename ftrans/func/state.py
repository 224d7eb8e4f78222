"""Calling an object with other arrays in the place of those that it holds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ftrans.numpy as fnp
from ftrans.errors import ArgumentError, StructureError
from ftrans.ir import type_of
from ftrans.numpy.promotion import is_array
from ftrans.traceback import OnTape, boundary


def named_arrays(module: Any) -> dict[str, Any]:
    """Returns the arrays that an object holds, by name: "layers.0.weight".

    Args:
        module: any object: its attributes are looked through, and lists, dicts, tuples and objects
            in them.

    Returns:
        The arrays; one that is held twice has both names.
    """
    return dict(_walk(module, "", set()))


def _is_array(x: Any) -> bool:
    return type(x) in OnTape.types or is_array(x)


def _parts(x: Any) -> list[tuple[str, Any]]:
    """Returns what an object holds, by name."""
    if isinstance(x, Mapping):
        return [(str(key), value) for key, value in x.items()]
    if isinstance(x, (list, tuple)):
        names = getattr(x, "_fields", range(len(x)))
        return [(str(name), value) for name, value in zip(names, x, strict=True)]
    held = getattr(x, "__dict__", None)
    if held is None or isinstance(x, type) or (callable(x) and hasattr(x, "__code__")):
        return []
    return list(held.items())


def _walk(x: Any, path: str, above: set[int]) -> Iterator[tuple[str, Any]]:
    if _is_array(x):
        yield path, x
    elif id(x) not in above:  # else it holds itself
        for name, value in _parts(x):
            yield from _walk(value, f"{path}.{name}" if path else name, above | {id(x)})


def _with(x: Any, path: str, new: Mapping[str, Any], above: set[int]) -> Any:
    """Returns an object with other arrays; what holds none of them is shared."""
    if path in new:
        return new[path]
    if _is_array(x) or id(x) in above:
        return x
    below = above | {id(x)}
    made = {
        name: _with(value, f"{path}.{name}" if path else name, new, below)
        for name, value in _parts(x)
    }
    if all(made[name] is value for name, value in _parts(x)):
        return x
    if isinstance(x, tuple):
        return type(x)(*made.values()) if hasattr(x, "_fields") else tuple(made.values())
    if isinstance(x, list):
        return list(made.values())
    if isinstance(x, Mapping):
        return type(x)(zip(x, made.values(), strict=True))  # type: ignore[call-arg]
    out = copy.copy(x)
    for name, value in made.items():
        object.__setattr__(out, name, value)  # also where it is frozen
    return out


@boundary
def functional_call(
    module: Callable[..., Any],
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls an object with other arrays in the place of those that it holds.

    The object is not changed: a copy is called that shares what is not replaced. So it can be
    differentiated by what it holds, and batched over ensembles of it.

    Args:
        module: any object that can be called, with arrays in its attributes, or in lists, dicts and
            objects in these.
        parameter_and_buffer_dicts: the arrays, by name, as `stack_module_state` names them; or
            several such dicts.
        args: the positional arguments; one that is no tuple is the only one.
        kwargs: the keyword arguments.
        tie_weights: whether an array that is held under two names is replaced under both.
        strict: whether all arrays must be given.

    Returns:
        What the call returns.

    Raises:
        ArgumentError: where there is no array of a name, where one is missing that must be given,
            or where two are given for one that is tied.

    Example:
        >>> import numpy as np
        >>> from ftrans import func
        >>> class Line:
        ...     def __init__(self):
        ...         self.slope = np.array([2.0, 3.0])
        ...
        ...     def __call__(self, x):
        ...         return (self.slope * x).sum()
        >>> loss = lambda p, x: functional_call(Line(), p, x)
        >>> func.grad(loss)({"slope": np.ones(2)}, np.array([5.0, 7.0]))
        {'slope': array([5., 7.])}
    """
    single = isinstance(parameter_and_buffer_dicts, Mapping)
    dicts = [parameter_and_buffer_dicts] if single else list(parameter_and_buffer_dicts)
    given: dict[str, Any] = {}
    for each in dicts:
        both = given.keys() & each.keys()  # type: ignore[union-attr]
        if both:
            raise ArgumentError(
                f"functional_call: {', '.join(sorted(both))} appears in several of the dicts."
            )
        given.update(each)  # type: ignore[arg-type]
    held = named_arrays(module)
    unexpected = [name for name in given if name not in held]
    missing = [name for name in held if name not in given] if strict else []
    if unexpected or missing:
        raise ArgumentError(
            f"functional_call({type(module).__name__}): the names are not those of its arrays.\n"
            + (f"  Unexpected key(s): {', '.join(map(repr, unexpected))}.\n" if unexpected else "")
            + (f"  Missing key(s): {', '.join(map(repr, missing))}.\n" if missing else "")
            + f"  it holds: {', '.join(held) or 'no arrays'}"
        )
    if tie_weights:
        given = _tied(held, given)
    called = _with(module, "", given, set())
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    return called(*positional, **(kwargs or {}))


def _tied(held: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is given, under all names of what it replaces."""
    by_identity: dict[int, str] = {}
    for name in given:
        other = by_identity.setdefault(id(held[name]), name)
        if given[other] is not given[name]:
            raise ArgumentError(
                f"functional_call: {other!r} and {name!r} are one array; two are given for it.\n"
                f"  Give one of them, or pass tie_weights=False."
            )
    found = {name: by_identity.get(id(x)) for name, x in held.items()}
    return {name: given[source] for name, source in found.items() if source is not None}


@boundary
def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stacks the arrays that several objects hold, to call them all by `vmap`.

    Args:
        models: objects of one class, with arrays of the same names and types.

    Returns:
        Two dicts of arrays by name, with an axis more in front: those of floating point, or tensors
        that require grad, and all others.

    Raises:
        StructureError: where the objects differ.

    Example:
        >>> import numpy as np
        >>> from ftrans import func
        >>> class Scale:
        ...     def __init__(self, by):
        ...         self.by = np.array([by, by])
        ...
        ...     def __call__(self, x):
        ...         return self.by * x
        >>> models = [Scale(1.0), Scale(2.0)]
        >>> params, buffers = stack_module_state(models)
        >>> call = lambda params, x: functional_call(models[0], params, x)
        >>> func.vmap(call, in_dims=(0, None))(params, np.array([1.0, 5.0]))
        array([[ 1.,  5.],
               [ 2., 10.]])
    """
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise StructureError(
            "stack_module_state: Expected all models to be of the same class.\n"
            f"  classes: {', '.join(dict.fromkeys(type(m).__name__ for m in models))}"
        )
    held = [named_arrays(model) for model in models]
    for index, others in enumerate(held):
        there = {name: _kind(x) for name, x in others.items()}
        expected = {name: _kind(x) for name, x in held[0].items()}
        if there != expected:
            name = next(n for n in {**expected, **there} if expected.get(n) != there.get(n))
            raise StructureError(
                f"stack_module_state: the models hold different arrays.\n"
                f"  {name} of model 0: {_shown(expected.get(name))}\n"
                f"  {name} of model {index}: {_shown(there.get(name))}"
            )
    params: dict[str, Any] = {}
    buffers: dict[str, Any] = {}
    for name, first in held[0].items():
        stacked = fnp.stack([others[name] for others in held])
        if type(first) in OnTape.types:
            is_param = first.requires_grad
            stacked = stacked.detach().requires_grad_(is_param)
        else:
            is_param = type_of(first).is_inexact
        (params if is_param else buffers)[name] = stacked
    return params, buffers


def _kind(x: Any) -> Any:
    return x.shape, x.dtype, bool(getattr(x, "requires_grad", False))


def _shown(kind: Any) -> str:
    if kind is None:
        return "none"
    return f"{kind[1]}{list(kind[0])}" + (", requires grad" if kind[2] else "")
