"""`from_jax`: functions that are written with JAX, as functions of ours.

A call is traced by JAX once for each signature; the jaxpr becomes a program, and to call it again
is to call that program.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.errors import (
    ArgumentError,
    ConcretizationError,
    LeakedTracerError,
    MissingAttributeError,
    StaticArgumentError,
    UnsupportedError,
)
from ftrans.interop.callee import axes_here, jaxpr_over, static_key
from ftrans.interop.closure import arrays_of
from ftrans.interop.complaints import REFUSALS, asks_for_values, told
from ftrans.ir import Params, Program, Tracer, bind
from ftrans.ir.dtype import NUMERIC, is_float
from ftrans.ir.frame import make_tracer
from ftrans.ir.stack import state, untraced
from ftrans.primitives import call_p, convert_p
from ftrans.primitives.rules.external import Same
from ftrans.runtime import keep, on_clear, run
from ftrans.runtime.jaxlink import is_jax, is_key, is_traced_by_jax, precision, settings_of_jax
from ftrans.traceback import OnTape, boundary

_MOST = 256
"""How many signatures of one function are remembered."""

_WIDE = frozenset(map(np.dtype, ("float64", "complex128", "int64", "uint64")))
_NAMES_OF_WIDE = _WIDE | {np.float64, np.complex128, np.int64, np.uint64}


class _Leaf(NamedTuple):
    """Is an argument that is an array: its value, its type, and whether it is a Python number."""

    value: Any
    shape: tuple[int, ...]
    dtype: Any
    weak: bool

    @property
    def spec(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype, weak_type=self.weak)


class _Traced(NamedTuple):
    """Is a function for one signature.

    Attributes:
        program: takes the arrays among the arguments, and what was captured.
        captured: arrays that the function closes over.
        structure: that of the result.
        leaves: what of it is no array, None in the place of arrays.
        weak: which of the arrays promote as Python scalars do.
        copied: arrays that JAX has copied, since it rounds them or takes them for numbers, with
            what they were.
    """

    program: Program
    captured: list[Any]
    structure: Any
    leaves: list[Any]
    weak: list[bool]
    copied: list[tuple[np.ndarray, np.ndarray]]

    def holds(self) -> bool:
        """Tells whether what was copied is as it was."""
        return all(np.array_equal(now, then, equal_nan=True) for now, then in self.copied)


class _Static(NamedTuple):
    """Is a part of a result that is no array."""

    value: Any


def from_jax(function: Any) -> Any:
    """Returns a function that is written with JAX as one of ours, under every transform.

    JAX traces it once for each signature, as `jax.jit` does, and what comes of that is a program:
    differentiated, batched, printed and compiled as any. Arrays, and numbers of floating point, are
    traced; all other arguments, integers among them, are part of the signature. What has no
    counterpart here is called, and its derivatives are JAX's.

    Args:
        function: takes and returns pytrees; or a module of such functions, as `jax.numpy`.

    Returns:
        The function, or the module with its functions in the same way. Results follow the container
        of the arguments.

    Raises:
        UnsupportedError: at a call, where it has effects, or closes over a value that is traced
            here: pass that as an argument.

    Example:
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> from ftrans import func
        >>> f = from_jax(lambda x: jnp.interp(x, jnp.arange(3.0), jnp.array([0.0, 1.0, 4.0])))
        >>> f(np.array([0.5, 1.5]))
        array([0.5, 2.5])
        >>> func.vmap(func.grad(f))(np.array([0.5, 1.5]))
        array([1., 3.])
    """
    if isinstance(function, ModuleType):
        return Namespace(function)
    if not callable(function) or isinstance(function, type):
        raise ArgumentError(
            f"from_jax: takes a function or a module, not {type(function).__name__}.\n"
            f"  Write from_jax(f)(x), or J = from_jax(jax.numpy); J.sin(x)."
        )
    key = Same(function)
    table: Any = _lasting if _is_of_module(function) else _passing
    return table.get(key) or table.setdefault(key, _imported(function))


_lasting: dict[Same, Callable[..., Any]] = {}
"""Functions of modules, which live as long as these."""

on_clear(_lasting.clear)

_passing: weakref.WeakValueDictionary[Same, Callable[..., Any]] = weakref.WeakValueDictionary()
"""All others, for as long as somebody has what was made of them."""

_traces: weakref.WeakKeyDictionary[Any, dict[Any, _Traced]] = weakref.WeakKeyDictionary()
"""What was traced of each function that is made here."""


def copied_by(function: Any) -> list[np.ndarray] | None:
    """Returns the arrays of which `from_jax` took copies; None for a function it has not made."""
    traces = _traces.get(function)
    return None if traces is None else [x for t in traces.values() for x, _ in t.copied]


def _is_of_module(function: Any) -> bool:
    """Tells whether a function is found by its name in its module."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, getattr(function, "__name__", ""), None) is function


def _imported(function: Callable[..., Any]) -> Callable[..., Any]:
    traces: dict[Any, _Traced] = {}
    name = getattr(function, "__name__", type(function).__name__)

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree.tree_flatten((args, kwargs), is_leaf=lambda x: x is None)
        kinds = set(map(type, leaves))
        if not kinds.isdisjoint(OnTape.types):
            raise OnTape
        if Tracer not in kinds and any(map(is_traced_by_jax, leaves)):
            return function(*args, **kwargs)
        wide = _is_wide(leaves)
        given = [_leaf(x, wide) for x in leaves]
        around = structure, wide, config.default_dtype, settings_of_jax(), axes_here()
        key = (*around, *[x[1:] if type(x) is _Leaf else _static_key(name, x) for x in given])
        traced = traces.get(key)
        if traced is None or (traced.copied and not traced.holds()):
            try:
                traced = _trace(name, function, structure, given, wide)
            except REFUSALS as error:
                if not asks_for_values(error):
                    raise told(function, args, kwargs, error) from None
                return _by_value(name, function, structure, leaves, given, wide)
            if len(traces) >= _MOST:
                traces.pop(next(iter(traces)), None)
            traces[key] = traced
        return _call(traced, [x for x in given if type(x) is _Leaf])

    called.__name__ = called.__qualname__ = name
    called.__doc__ = getattr(function, "__doc__", None)
    called.__wrapped__ = function  # type: ignore[attr-defined]
    made = boundary(called)
    _traces[made] = traces
    for method in _OF_UFUNCS:
        if hasattr(type(function), method):
            setattr(made, method, from_jax(getattr(function, method)))
    return made


_OF_UFUNCS = ("accumulate", "at", "outer", "reduce", "reduceat")


def _static_key(name: str, x: Any) -> Any:
    """Returns what stands for an argument that is no array.

    Raises:
        StaticArgumentError: where it has no hash, and so may change unseen.
    """
    if type(x) is slice:
        return slice, x.start, x.stop, x.step
    try:
        hash(x)
    except TypeError:
        raise StaticArgumentError(
            f"from_jax({name}): an argument that is no array must be hashable, not of type "
            f"{type(x).__name__}.\n  argument: {x!r:.60}\n"
            f"  Pass an array, or make it part of the function."
        ) from None
    return static_key(x)


def _is_wide(leaves: Sequence[Any]) -> bool:
    """Tells whether JAX is to keep what is 64 bits wide.

    It is where an argument is, or names such a dtype, or where there are numbers alone, which are
    double here.
    """
    settings: Any = jax.config
    if config.default_dtype == np.float64 or settings.jax_enable_x64:
        return True
    arrays = [x for x in leaves if type(x) in _plain_arrays]
    if any(x.dtype in _WIDE for x in arrays):
        return True
    if len(arrays) == len(leaves) > 0:
        return False
    arrays = [x for x in leaves if _is_array(x) and not (type(x) is Tracer and x.weak)]
    if any(np.dtype(_dtype_of(x)) in _WIDE for x in arrays if not is_key(x)):
        return True
    if any(x in _NAMES_OF_WIDE for x in leaves if isinstance(x, (np.dtype, type))):
        return True
    return not arrays and any(type(x) in (float, complex, Tracer) for x in leaves)


def _dtype_of(x: Any) -> Any:
    return x.type.dtype if type(x) is Tracer else x.dtype


def _is_array(x: Any) -> bool:
    if type(x) is Tracer or is_jax(x):
        return True
    is_numpy = isinstance(x, (np.ndarray, np.generic))
    return is_numpy and (x.dtype.kind in "biufc" or is_float(x.dtype))


_NUMBERS = {
    **{(sort, True): np.dtype(f"{sort}{8 * (1 + (sort == 'c'))}") for sort in "fciu"},
    **{(sort, False): np.dtype(f"{sort}{4 * (1 + (sort == 'c'))}") for sort in "fciu"},
    **{("b", wide): np.dtype(bool) for wide in (False, True)},
}
"""The dtypes of Python's numbers by kind, and by whether JAX keeps what is wide."""

_plain_arrays: set[type] = {np.ndarray}
"""Types of arrays, those of JAX as they come: to ask an abstract class is slow."""


def _leaf(x: Any, wide: bool) -> Any:
    """Returns an argument as an array, where it is one; else as it is."""
    kind = type(x)
    if kind in _plain_arrays and (dtype := x.dtype) in NUMERIC:
        return _Leaf(x, x.shape, dtype, False)
    if kind is Tracer and not x.weak:
        return _Leaf(x, x.type.shape, x.type.dtype, False)
    if kind is float or kind is complex or kind is Tracer:
        sort = "c" if kind is complex else x.type.dtype.kind if kind is Tracer else "f"
        dtype = _NUMBERS[sort, wide]
        if kind is not Tracer:
            x = np.asarray(x, dtype)
        elif x.type.dtype != dtype:
            x = convert_p(x, dtype=dtype)
        return _Leaf(x, (), dtype, True)
    if not _is_array(x):
        return x
    if is_key(x):
        return _Leaf(np.asarray(jax.random.key_data(x)), x.shape, x.dtype, False)
    if is_jax(x):
        _plain_arrays.add(kind)
    else:
        x = np.asarray(x)
    return _Leaf(x, x.shape, x.dtype, False)


def _trace(
    name: str, function: Callable[..., Any], structure: Any, given: Sequence[Any], wide: bool
) -> _Traced:
    """Has JAX trace a function, and returns its program."""
    specs = [x.spec for x in given if type(x) is _Leaf]
    outputs: Any = None

    def flat(*arrays: Any) -> list[Any]:
        nonlocal outputs
        at = iter(arrays)
        args, kwargs = structure.unflatten([next(at) if type(x) is _Leaf else x for x in given])
        result = function(*args, **kwargs)
        leaves, made = tree.tree_flatten(result)
        if not OnTape.types.isdisjoint(map(type, leaves)):
            raise LeakedTracerError(name)  # a tensor that it closes over
        kept = [None if isinstance(x, jax.Array) or _is_array(x) else _Static(x) for x in leaves]
        outputs = made, kept
        return [x for x, static in zip(leaves, kept, strict=True) if static is None]

    try:
        axes = axes_here()
        with untraced(), precision(wide):
            closed = jaxpr_over(name, axes, flat, specs)
    except (LeakedTracerError, TypeError) as error:
        leaks = isinstance(error, (LeakedTracerError, jax.errors.UnexpectedTracerError))
        if not leaks and "ftrans.ir.frame.Tracer" not in str(error):
            raise
        raise UnsupportedError(
            f"from_jax({name}): it closes over a value that is traced here, which JAX does not "
            f"know.\n  Pass it as an argument of the function."
        ) from error
    from ftrans.interop.table import imported  # since it needs `jax.extend`, which takes its time

    program, captured = imported(closed, name)
    made, kept = outputs
    weak = [bool(aval.weak_type) and aval.dtype in _WIDE for aval in closed.out_avals]
    lossy = [x for x in arrays_of(function) if not x.ndim or (x.dtype in _WIDE and not wide)]
    copied = [(x, x.copy()) for x in lossy]
    return _Traced(keep(program), captured, made, kept, weak, copied)


def _call(traced: _Traced, given: Sequence[_Leaf]) -> Any:
    """Calls what was traced: records a call of its program, or runs it."""
    operands = [*[x.value for x in given], *traced.captured]
    program = traced.program
    if state.stack or any(type(x) is Tracer for x in operands):
        found: Sequence[Any] = bind(call_p, operands, Params({"program": program}))
        found = [_weakly(x) if w else x for x, w in zip(found, traced.weak, strict=True)]
    else:
        found = run(program, operands)
    at = iter(found)
    leaves = [next(at) if static is None else deepcopy(static.value) for static in traced.leaves]
    return traced.structure.unflatten(leaves)


def _weakly(x: Any) -> Any:
    return make_tracer(x.frame, x.index, x.type, weak=True) if type(x) is Tracer else x


def _by_value(
    name: str,
    function: Callable[..., Any],
    structure: Any,
    leaves: Sequence[Any],
    given: Sequence[Any],
    wide: bool,
) -> Any:
    """Calls a function that asks for values.

    Numbers and whole arrays of integers and booleans have them, wherever they are known; where
    nothing is traced all have.

    Raises:
        FtransError: where a value is asked for that is not known, or that is differentiated.
    """
    state.for_this_call()
    pairs = [*zip(leaves, given, strict=True)]
    if not any(type(x.value) is Tracer for x in given if type(x) is _Leaf):
        with untraced(), precision(wide):
            own = [
                g.value if type(g) is _Leaf and not (g.weak or is_key(x)) else x for x, g in pairs
            ]
            args, kwargs = structure.unflatten(own)
            result = function(*args, **kwargs)
        if any(map(is_jax, leaves)):
            return result
        return tree.tree_map(lambda x: np.array(x) if is_jax(x) else x, result)
    known: list[Any] = []
    for x, leaf in pairs:
        sort = "f" if type(leaf) is not _Leaf or is_key(x) else leaf.dtype.kind
        if type(leaf) is _Leaf and (type(x) is float or sort in "biu"):
            value = leaf.value
            known.append(value.value() if type(value) is Tracer else x if leaf.weak else value)
        else:
            known.append(leaf)
    try:
        traced = _trace(name, function, structure, known, wide)
    except (TypeError, ValueError, IndexError) as error:
        if not asks_for_values(error):
            raise
        raise ConcretizationError(
            f"{name}: it asks for the value of what is traced, for the shape of its result or to "
            f"branch in Python.\n"
            f"  Call it on x.detach(), which no derivative goes through, or before the transform."
        ) from error
    return _call(traced, [x for x in known if type(x) is _Leaf])


class Namespace(ModuleType):
    """Is a module of JAX's whose functions are ours.

    Classes, dtypes and constants are those of the module.

    Args:
        module: the module, or its name, by which it is imported when it is first looked at.
    """

    def __init__(self, module: ModuleType | str):
        super().__init__(module if isinstance(module, str) else module.__name__)
        self._module = module

    def _imported(self) -> ModuleType:
        if isinstance(self._module, str):
            self._module = import_module(self._module)
        return self._module

    def __getattr__(self, name: str) -> Any:
        module = self._imported()
        if not hasattr(module, name):
            home = module.__name__
            advice = _OF_SCIPY.format(home[4:]) if home.startswith("jax.scipy") else ""
            raise MissingAttributeError(f"module {home!r} has no attribute {name!r}{advice}")
        found = getattr(module, name)
        if isinstance(found, type) and module.__name__.startswith("jax.scipy"):
            raise MissingAttributeError(_OF_CLASS.format(f"{module.__name__}.{name}"))
        is_dtype = isinstance(getattr(found, "dtype", None), np.dtype)  # as `jax.numpy.float32` is
        if isinstance(found, ModuleType):
            found = Namespace(found)
        elif callable(found) and not isinstance(found, type) and not is_dtype:
            found = from_jax(found)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        return dir(self._imported())


_OF_CLASS = (
    "{0} is a class: it would compute in single precision, and take no traced value.\n"
    "  Use it in a function: ftrans.from_jax(lambda *args: {0}(...).method(...))(*args)."
)
_OF_SCIPY = (
    ".\n  Call SciPy's own, {}, on x.detach() where no derivative is wanted;\n"
    "  else write an autograd.Function around it, with its derivative."
)
