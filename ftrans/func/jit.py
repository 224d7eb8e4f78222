"""Compilation once per signature: `jit`."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.errors import DTypeError, StaticArgumentError
from ftrans.func.sharing import (
    Code,
    Record,
    Unknown,
    User,
    forget,
    frozen,
    join,
    leave,
    options_key,
    renew,
    verified_code,
)
from ftrans.func.staging import abstract_inputs, apply, name_of, named, stage
from ftrans.func.static import unwrapped, wrapped
from ftrans.func.vjp import array_outputs
from ftrans.interpreters import inline, simplify
from ftrans.ir import Tracer, is_tracing
from ftrans.ir.frame import settled
from ftrans.ir.source import Sampled
from ftrans.ir.types import ArrayType
from ftrans.numpy.promotion import as_array, default_dtype, is_array, is_scalar
from ftrans.pytree import argument_name, describe, leaf_name, split
from ftrans.runtime.faults import is_marked, raised
from ftrans.runtime.jaxlink import foreign, is_jax, is_traced_by_jax, reusable_x64, x64
from ftrans.traceback import boundary, shorten

__all__ = ["jit"]


@boundary
def jit(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Returns a function that traces `func` once per signature and runs it compiled.

    The Python of `func` runs only when shapes, dtypes or static arguments are new, and what it
    closes over is frozen then. A function that is defined again, as when the cell of a notebook is
    run again, is traced again, but compiled only where it does something else than before. In a
    function that another transform traces, `func` is traced along with that, at each call.

    Args:
        func: takes and returns pytrees of arrays. Leaves of the arguments that are no arrays are
            static: with a new value, the function is traced anew.
        options: those of `jax.jit`: `static_argnums`, `static_argnames`, `donate_argnums`,
            `in_shardings`, `out_shardings`, ...

    Returns:
        The compiled function. Results follow the container of the arguments. Its attributes
        `lower` and `clear_cache` are those of `jax.jit`.

    Raises:
        StaticArgumentError: when it is called with a static argument that cannot be hashed.

    Example:
        >>> import numpy as np
        >>> jit(lambda x: x * 2)(np.arange(3.0))
        array([0., 2., 4.])
    """
    if func is None:
        return functools.partial(jit, **options)
    name = f"jit({name_of(func)})"
    shown = getattr(func, "__name__", name_of(func))
    signature = _signature(func)
    numbers, names = _statics(signature, options)
    key_of_options = options_key(shown, options)
    user = User()
    analyse = functools.partial(_analyse, numbers, names)

    def make() -> Code:
        return Code(shown, signature, analyse, options)

    make()  # so that JAX finds fault with options at once

    def prepared(args: Any, kwargs: Any) -> tuple[Callable[..., Any], Any, Any]:
        """Returns what to call, and with which arguments."""
        try:
            key, leaves = analyse(args, kwargs)
            hash(key)
            if Tracer in map(type, leaves):
                args, kwargs = tree.tree_map(settled, (args, kwargs))
        except TypeError:
            _check_arguments(name, func, args, kwargs, numbers, names)
            args, kwargs = wrapped(args, kwargs, numbers, names)
            key, leaves = analyse(args, kwargs)
            user.asks, user.direct = True, None
        if int in map(type, leaves):
            user.integers = True
            _check_integers(leaves)
        code = verified_code(user, key)
        if code is not None:
            return code.call, args, kwargs
        record = _trace(name, func, args, kwargs, key, numbers, names)
        if foreign(record.captured):
            # what belongs to a transformation of JAX is gone with it
            code = make()
            code.records[key] = record
        else:
            record = record._replace(captured=frozen(record.captured))
            code = join(user, key_of_options, key, record, make)
        return code.call, args, kwargs

    def overtaken(direct: Any, args: Any, kwargs: Any) -> bool:
        """Tells whether another thread let `direct` do here what this function may not do."""
        key, _ = analyse(args, kwargs)
        code = verified_code(user, key)
        return code is None or code.call is not direct

    @functools.wraps(func)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        cause = None
        try:
            if is_tracing():
                return _record(name, func, args, kwargs, numbers, names)
            if user.default_dtype is not config.default_dtype:
                renew(user)
            direct, result = user.direct, None
            if direct is not None:
                try:
                    if user.integers:
                        _check_integers(analyse(args, kwargs)[1])
                    code = user.code
                    calls = code is not None and code.calls_host
                    # to make a scope takes as long as to go through it
                    try:
                        scope = x64(calls=True) if calls else _scopes.pop()
                    except IndexError:
                        scope = x64()
                    with scope:
                        result = direct(*args, **kwargs)
                    if not calls:
                        _scopes.append(scope)
                except (Unknown, TypeError, ValueError) as error:
                    if is_marked(error):
                        raise  # it ran, and Python code that it calls has raised
                    direct = None
            if direct is None or (user.direct is not direct and overtaken(direct, args, kwargs)):
                call, given, named = prepared(args, kwargs)
                with x64(calls=True):
                    result = call(*given, **named)
            if not _holds_jax(args, kwargs):
                return _to_host(result)
            code = user.code
            if code is not None and code.calls_host:
                jax.block_until_ready(result)
            return result
        except Exception as error:
            cause = raised(error)
            if cause is None:
                shorten(error)
                raise
        try:
            raise cause
        except BaseException as error:
            shorten(error)
            raise

    def lower(*args: Any, **kwargs: Any) -> Any:
        if user.default_dtype is not config.default_dtype:
            renew(user)
        call, args, kwargs = prepared(args, kwargs)
        with x64():
            return call.lower(*args, **kwargs)  # type: ignore[attr-defined]

    def clear_cache() -> None:
        forget(user.code)
        leave(user)

    jitted.lower = boundary(lower)  # type: ignore[attr-defined]
    jitted.clear_cache = clear_cache  # type: ignore[attr-defined]
    return named(jitted, name)


def _signature(func: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):
        return None


def _statics(
    signature: inspect.Signature | None, options: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Returns which arguments are static, by position and by name; JAX infers one by the other."""
    numbers, names = options.get("static_argnums"), options.get("static_argnames")
    if signature is not None and (numbers is None) != (names is None):
        positional = [
            p.name
            for p in signature.parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if numbers is None:
            numbers = tuple(i for i, p in enumerate(positional) if p in _tuple(names))
        else:
            count = len(positional)
            names = tuple(positional[i] for i in _tuple(numbers) if -count <= i < count)
    return _tuple(numbers), _tuple(names)


def _analyse(
    numbers: tuple[int, ...], names: tuple[str, ...], args: Any, kwargs: Any
) -> tuple[Any, list[Any]]:
    """Returns the signature of a call, which is what JAX tells calls apart by, and the arrays.

    Raises:
        DTypeError: where a leaf is no array.
    """
    static: Any = ()
    if numbers or names:
        positions = sorted({n % len(args) for n in numbers if -len(args) <= n < len(args)})
        by_name = [name for name in names if name in kwargs]
        static = (
            tuple((i, type(args[i]), args[i]) for i in positions),
            tuple((name, type(kwargs[name]), kwargs[name]) for name in by_name),
        )
        args = tuple(None if i in positions else arg for i, arg in enumerate(args))
        kwargs = {name: value for name, value in kwargs.items() if name not in by_name}
    leaves, structure = tree.tree_flatten((args, kwargs))
    return (structure, tuple(map(_leaf_type, leaves)), static), leaves


_SCALARS = {
    bool: ((), np.dtype("bool"), False),
    int: ((), np.dtype("int64"), True),
    float: ((), np.dtype("float64"), True),
    complex: ((), np.dtype("complex128"), True),
}
"""How JAX takes Python scalars where it keeps 64 bits."""


def _leaf_type(leaf: Any) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Returns shape, dtype and whether JAX holds the leaf to be a Python scalar."""
    found = _SCALARS.get(type(leaf))
    if found is not None:
        return found
    if is_array(leaf):
        return leaf.shape, leaf.dtype, is_jax(leaf) and leaf.weak_type
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.shape, np.dtype(leaf.dtype), leaf.weak_type
    for kind, found in _SCALARS.items():
        if isinstance(leaf, kind):
            return found
    raise DTypeError(f"{type(leaf).__name__} is no array")  # which the caller makes static


def _check_integers(leaves: Sequence[Any]) -> None:
    """Raises where a Python integer does not fit, which JAX takes at 64 bits and we may cut.

    Raises:
        OverflowError: there, as it is raised without `jit`.
    """
    for leaf in leaves:
        if type(leaf) is int and not -(1 << 31) <= leaf < 1 << 31:
            as_array(leaf)


def _input_type(shape: tuple[int, ...], dtype: np.dtype, weak: bool) -> ArrayType:
    """Returns the type of an argument; Python scalars take our default dtype."""
    if weak and shape == ():
        kind = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]
        return ArrayType((), default_dtype(kind), weak=True)
    return ArrayType(shape, dtype)


def _trace(
    name: str,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    key: Any,
    numbers: tuple[int, ...],
    names: tuple[str, ...],
) -> Record:
    """Traces the function at the signature `key` of the arguments."""
    structure, leaf_types, _ = key
    positions = {n % len(args) for n in numbers if -len(args) <= n < len(args)}

    def run(*tracers: Any) -> Any:
        inner, inner_kwargs = unwrapped(tree.tree_unflatten(structure, tracers))
        full = [args[i] if i in positions else arg for i, arg in enumerate(inner)]
        static = {k: kwargs[k] for k in names if k in kwargs}
        return array_outputs(name, func(*full, **inner_kwargs, **static), "Compute it outside.")

    reason = f"an argument of {name}"
    inputs = abstract_inputs([_input_type(*t) for t in leaf_types], reason)
    leaves = tree.tree_leaves(wrapped(args, kwargs, numbers, names))
    if len(leaves) == len(inputs):
        # what cannot be traced, and so must be called to learn what it returns, is given these
        pairs = zip(inputs, leaves, strict=True)
        inputs = [
            (t, Sampled(reason, as_array(leaf, t.dtype)) if _is_known(leaf) else source, weak)
            for (t, source, weak), leaf in pairs
        ]
    staged = stage(name, run, inputs, closed=True, once=True, order=4)
    return Record(simplify(inline(staged.program)), staged.captured, staged.outputs)


def _is_known(leaf: Any) -> bool:
    return is_scalar(leaf) or (is_array(leaf) and not is_traced_by_jax(leaf))


def _holds_jax(args: Any, kwargs: Any) -> bool:
    """Tells whether results are to be those of JAX, which the first leaf mostly says."""
    leaf = args
    while type(leaf) in _SEQUENCES and leaf:
        leaf = leaf[0]
    if type(leaf) in _array_classes:
        return True
    for leaf in tree.tree_leaves((args, kwargs)):
        if type(leaf) is not np.ndarray and is_jax(leaf):
            if not is_traced_by_jax(leaf):
                _array_classes.add(type(leaf))
            return True
    return False


_SEQUENCES = (tuple, list)
_array_classes: set[type] = set()
"""The classes of concrete arrays of JAX that were seen: to ask for one is fast."""
_scopes: Any = [] if reusable_x64() else deque(maxlen=0)
"""Scopes that nobody is in."""


def _tuple(option: Any) -> tuple[Any, ...]:
    if option is None:
        return ()
    return (option,) if isinstance(option, (int, str)) else tuple(option)


def _to_host(result: Any) -> Any:
    """Returns a result in arrays of NumPy's."""
    if type(result) in _array_classes:
        return np.array(result)
    # inside a transformation of JAX, results may be traced though no argument was
    return tree.tree_map(lambda x: x if is_traced_by_jax(x) else np.array(x), result)


def _record(
    name: str,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    static_numbers: tuple[int, ...],
    static_names: tuple[str, ...],
) -> Any:
    """Records the call of a jitted function inside a traced one."""
    _check_arguments(name, func, args, kwargs, static_numbers, static_names)
    statics = {number % len(args) for number in static_numbers if -len(args) <= number < len(args)}
    dynamic = [None if i in statics else arg for i, arg in enumerate(args)]
    dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in static_names}
    values, rest = split((tuple(dynamic), dynamic_kwargs), lambda x: is_array(x) or is_scalar(x))
    operands = [as_array(x) for x in values]

    def run(*tracers: Any) -> Any:
        inner, inner_kwargs = rest.build(tracers)
        full = [args[i] if i in statics else arg for i, arg in enumerate(inner)]
        static = {k: kwargs[k] for k in static_names if k in kwargs}
        return array_outputs(name, func(*full, **inner_kwargs, **static), "Compute it outside.")

    types = [
        ArrayType(x.type.shape, x.type.dtype, x.weak)
        if isinstance(x, Tracer)
        else _input_type(*_leaf_type(x))
        for x in operands
    ]
    staged = stage(name, run, abstract_inputs(types, f"an argument of {name}"), closed=True)
    return staged.outputs.build(apply(staged.program, [*operands, *staged.captured]))


def _check_arguments(
    name: str,
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    numbers: tuple[int, ...],
    names: tuple[str, ...],
) -> None:
    """Raises where what is static, an argument or a leaf that is no array, cannot be hashed."""
    statics = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    given = [((tree.SequenceKey(i),), arg, i in statics) for i, arg in enumerate(args)]
    given += [((tree.GetAttrKey(k),), arg, k in names) for k, arg in kwargs.items()]
    for root, value, static in given:
        if static:
            _check_hashable(name, _label(func, root), value)
            continue
        for path, leaf in tree.tree_flatten_with_path(value)[0]:
            if not (is_array(leaf) or is_scalar(leaf)):
                _check_hashable(name, _label(func, (*root, *path)), leaf)


def _label(func: Callable[..., Any], path: Any) -> str:
    first = path[0]
    if isinstance(first, tree.SequenceKey):
        return argument_name(func, path)
    return leaf_name(first.name, path[1:])


def _check_hashable(name: str, label: str, value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise StaticArgumentError(
            f"{name}: a static argument must be hashable, since programs are found by it.\n"
            f"  {label}: {describe(value)}\n"
            f"  Pass a tuple or another immutable value instead."
        ) from None
