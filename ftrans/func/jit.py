"""Compilation once per signature: `jit`.

A function is traced into a program for each signature. What is compiled for that hangs on what
equal programs share, and takes the arrays that the function closes over as arguments: so functions
that do the same share it, and it keeps nothing of theirs alive.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.tree_util as tree

from ftrans.config import config
from ftrans.func.containers import holds_jax, holds_numpy, on_host
from ftrans.func.derivative import array_outputs
from ftrans.func.signature import (
    Chosen,
    check_integers,
    check_static,
    input_type,
    is_given,
    signature_of,
    wrapped,
)
from ftrans.func.staging import abstract_inputs, apply, name_of, named, stage
from ftrans.interpreters import inline, simplify
from ftrans.interpreters.placing import places
from ftrans.ir import Abstract, Program, Tracer, is_tracing
from ftrans.ir.frame import check_alive, settled
from ftrans.ir.stack import FORWARD, state
from ftrans.numpy.promotion import as_array, is_array, is_scalar
from ftrans.primitives.observe import observing
from ftrans.pytree import Skeleton, split
from ftrans.runtime import disk
from ftrans.runtime.anomaly import look_for_nan
from ftrans.runtime.executable import Source, needs_x64
from ftrans.runtime.faults import is_marked, raised
from ftrans.runtime.jaxlink import (
    foreign,
    is_jax,
    is_traced_by_jax,
    reusable_x64,
    to_jax,
    unseen,
    x64,
)
from ftrans.runtime.lower import lower
from ftrans.runtime.meshes import explicit_mesh, mesh_around, on_automatic
from ftrans.traceback import OnTape, boundary, shorten


@boundary
def jit(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Returns a function that traces `func` once per signature and runs it compiled.

    The Python of `func` runs only when shapes, dtypes or static arguments are new, and what it
    closes over is frozen then. A function that is defined again, as when the cell of a notebook is
    run again, is traced again, but compiled only where its program is another one. In a function
    that another transform traces, `func` is traced along with that, at each call.

    Args:
        func: takes and returns pytrees of arrays. Leaves of the arguments that are no arrays are
            static: with a new value, the function is traced anew. An object that equals only
            itself, as `self` often does, has no value to tell; it must be a pytree, or be named.
        options: those of `jax.jit`: `static_argnums`, `static_argnames`, `donate_argnums`,
            `in_shardings`, `out_shardings`, ...

    Returns:
        The compiled function. Results follow the container of the arguments. Its attributes
        `lower` and `clear_cache` are those of `jax.jit`.

    Raises:
        StaticArgumentError: when it is called with a static argument that cannot be hashed, or
            with an object that equals only itself and is not named as static.

    Example:
        >>> import numpy as np
        >>> jit(lambda x: x * 2)(np.arange(3.0))
        array([0., 2., 4.])
    """
    if func is None:
        return functools.partial(jit, **options)
    made = Jitted(func, options)
    jitted = functools.wraps(func)(made.called())
    jitted.lower = boundary(made.lower)  # type: ignore[attr-defined]
    jitted.clear_cache = made.clear  # type: ignore[attr-defined]
    return named(jitted, made.name)


class _Unknown(Exception):
    """Says that what is compiled is for another signature."""


class _Record(NamedTuple):
    """Is what a function does at one signature.

    Attributes:
        call: takes what is captured, and the arguments; under `jax.jit`.
        captured: the arrays that the function closes over, which nobody can write to.
        function: what `call` compiles.
        calls_host: whether Python code is called.
        program: keeps alive what `call` hangs on.
        is_new: whether `call` was made for this, and not for an equal function before.
    """

    call: Callable[..., Any]
    captured: tuple[Any, ...]
    function: Callable[..., Any]
    calls_host: bool
    program: Program
    is_new: bool

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the scope of double precision, where anything is to be double.

        In that scope a Python number that JAX differentiates would not be what JAX took it for.
        """
        return x64(self.calls_host) if needs_x64(self.program) else nullcontext()


_PLAIN = {"static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused"}
"""Options of `jax.jit` that what is on disk is told apart by."""


class Jitted:
    """Is a function under `jit`.

    Args:
        func: the function.
        options: those of `jax.jit`.

    Attributes:
        records: by signature.
        wary: whether an array was met that JAX has rounded before, see `unseen`.
        direct: what is called without asking for the signature, since it was asked for twice in a
            row; what JAX finds to be another one is `_Unknown`.
        integers: whether there ever were Python integers, whose size is to be looked at.
        default_dtype: the one under which all was traced.
    """

    def __init__(self, func: Callable[..., Any], options: dict[str, Any]):
        self.func = func
        self.options = options
        self.name = f"jit({name_of(func)})"
        self.shown = getattr(func, "__name__", name_of(func))
        try:
            self.signature = inspect.signature(func)
        except (TypeError, ValueError):
            self.signature = None
        self.statics = Chosen.by_option(self.signature, options, "static")
        self.donated = Chosen.by_option(self.signature, options, "donate")
        self.integers = self.wary = False
        self.clear()
        self._under_jax(lambda *args, **kwargs: None)  # so that JAX finds fault with options now

    def clear(self) -> None:
        """Forgets what was traced."""
        self.records: dict[Any, _Record] = {}
        self.direct: _Record | None = None
        self.last: _Record | None = None
        self.default_dtype = config.default_dtype

    def called(self) -> Callable[..., Any]:
        """Returns the function that users call."""

        def jitted(*args: Any, **kwargs: Any) -> Any:
            cause = None
            try:
                if is_tracing():
                    return self.inside(args, kwargs)
                if self.default_dtype is not config.default_dtype:
                    self.clear()
                record, result = self.direct, None
                if args and is_traced_by_jax(args[0]):
                    record = None
                if record is not None:
                    try:
                        if self.integers:
                            check_integers(tree.tree_leaves((args, kwargs)))
                        calls = record.calls_host
                        # to make a scope takes as long as to go through it
                        try:
                            scope = x64(calls=True) if calls else _scopes.pop()
                        except IndexError:
                            scope = x64()
                        by, call = observing.by, record.call
                        if by is not None:
                            call = functools.partial(by.program, self.name, call)
                        with scope:
                            result = call(record.captured, *args, **kwargs)
                        if not calls:
                            _scopes.append(scope)
                    except Exception as error:
                        if is_marked(error):
                            raise  # it ran, and Python code that it calls has raised
                        # else it is another signature, or lies where JAX cannot compute it
                        kinds = _Unknown, TypeError, ValueError
                        leaves = tree.tree_leaves((args, kwargs))
                        self.wary = "INVALID_ARGUMENT" in str(error)
                        known = self.wary or isinstance(error, kinds)
                        if not (known or explicit_mesh(leaves) or mesh_around()):
                            raise
                        record = self.direct = None
                if record is None:
                    record, given, named = self.record_of(args, kwargs)
                    mesh = explicit_mesh(tree.tree_leaves((args, kwargs)))
                    if mesh is None and places(record.program):
                        mesh = mesh_around()
                    if mesh is not None:
                        again = self.called()  # not itself: that would be a cycle
                        on_plain = lambda given: again(*given[0], **given[1])  # noqa: E731
                        result = on_automatic(mesh, on_plain, (args, kwargs))
                        self.direct = None  # what lies on explicit axes is to come here again
                        return result
                    if holds_numpy(args, kwargs):
                        given, named = tree.tree_map(unseen, (given, named))
                    by, call = observing.by, record.call
                    if by is not None:
                        call = functools.partial(by.program, self.name, call)
                    with record.scope() if foreign(tree.tree_leaves(args)) else x64(calls=True):
                        result = call(record.captured, *given, **named)
                if config.check_nan:
                    self._look_for_nan(args, kwargs, result)
                if not holds_jax(args, kwargs):
                    return on_host(result)
                if record.calls_host or holds_numpy(args, kwargs):
                    jax.block_until_ready(result)  # which reads arrays of NumPy where they lie
                return result
            except OnTape:
                pass
            except Exception as error:
                cause = raised(error)
                if cause is None:
                    shorten(error)
                    raise
            if cause is None:
                return OnTape.call(self.called(), *args, **kwargs)
            try:
                raise cause
            except BaseException as error:
                shorten(error)
                raise

        return jitted

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Is `lower` of what `jax.jit` returns; what is captured is part of the code."""
        mesh = explicit_mesh(tree.tree_leaves((args, kwargs))) or mesh_around()
        if mesh is not None:
            on_plain = lambda given: self.lower(*given[0], **given[1])  # noqa: E731
            return on_automatic(mesh, on_plain, (args, kwargs))
        if self.default_dtype is not config.default_dtype:
            self.clear()
        record, args, kwargs = self.record_of(args, kwargs)
        with x64():
            alone = lambda *args, **kwargs: record.function(record.captured, *args, **kwargs)  # noqa: E731
            return self._under_jax(alone).lower(*args, **kwargs)

    def _under_jax(self, function: Callable[..., Any]) -> Any:
        """Returns a function of the arguments of the user's under `jax.jit`, with all options."""
        function.__name__ = function.__qualname__ = self.shown
        if self.signature is not None:
            function.__signature__ = self.signature  # type: ignore[attr-defined]
        return jax.jit(function, **self.options)

    def _look_for_nan(self, args: Any, kwargs: Any, result: Any) -> None:
        """Raises where what was returned is NaN, in part."""
        record, given, named = self.record_of(args, kwargs)
        _, leaves = signature_of(self.statics, given, named)
        types = record.program.inputs
        arrays = [as_array(x, t.dtype) for x, t in zip(leaves, types, strict=False)]
        look_for_nan(record.program, [*arrays, *record.captured], tree.tree_leaves(result))

    # ------------------------------------------------------------------------------- records

    def record_of(self, args: Any, kwargs: Any) -> tuple[_Record, Any, Any]:
        """Returns what is on record for these arguments, and them as JAX takes them."""
        given = args, kwargs
        try:
            key, leaves = signature_of(self.statics, args, kwargs)
            hash(key)
            if Tracer in map(type, leaves):
                given = args, kwargs = tree.tree_map(settled, (args, kwargs))
                leaves = list(map(settled, leaves))
                for leaf in leaves:
                    if type(leaf) is Tracer:
                        check_alive(leaf)  # which raises, as nothing is traced here
        except TypeError:
            args, kwargs = wrapped(self.name, self.func, self.statics, args, kwargs)
            key, leaves = signature_of(self.statics, args, kwargs)
        if int in map(type, leaves):
            self.integers = True
            check_integers(leaves)
        if state.of_tensors:
            key = (key, "of tensors")  # whose methods mean something else
        record = self.records.get(key)
        is_new = record is None
        if record is None:
            record = self._recorded(key, leaves, *given)
        lasts = record is self.last and args is given[0] and not (state.of_tensors or self.wary)
        self.direct = record if lasts else None
        self.last = record
        is_new = is_new and record.is_new and _PLAIN.issuperset(self.options)
        if is_new and not foreign([*leaves, *record.captured]):
            record = record._replace(call=functools.partial(disk.first_call, record.call))
        return record, args, kwargs

    def _recorded(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> _Record:
        """Traces the function, and puts what it does on record."""
        _, run = self._parts(args, kwargs)
        reason = f"an argument of {self.name}"
        inputs = []
        for leaf in leaves:
            t = input_type(leaf)
            known = is_scalar(leaf) or (is_array(leaf) and not is_traced_by_jax(leaf))
            # what cannot be traced, and so must be called to learn what it returns, is given it
            example = as_array(leaf, t.dtype) if known else None
            inputs.append((t.update(), Abstract(reason, example), t.weak))
        staged = stage(self.name, run, inputs, closed=True, once=True, order=FORWARD)
        by_jax = state.by_jax
        program = simplify(inline(staged.program))
        function = _function(self.shown, self.statics, key, program, staged.outputs)
        options = self._options(args, kwargs)
        place = _key(self.shown, key, staged.outputs, options)
        call = None if place is None else program.structure.memo.get(place)
        is_new = call is None
        if call is None:
            call = jax.jit(function, **options)
            if place is not None:
                call = program.structure.memo.setdefault(place, call)
        is_foreign = foreign(staged.captured)
        captured = tuple(staged.captured) if is_foreign else _frozen(staged.captured)
        record = _Record(call, captured, function, program.calls_host, program, is_new)
        if not (is_foreign or by_jax):
            # what belongs to a transformation of JAX, as its axes do, is gone with it
            self.records[key] = record
        return record

    def _options(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Returns the options of `jax.jit` for a function that takes what is captured first."""
        options = dict(self.options)
        for which, chosen in (("static", self.statics), ("donate", self.donated)):
            for option in (f"{which}_argnums", f"{which}_argnames"):
                options.pop(option, None)
            if numbers := chosen.positions(args):
                options[f"{which}_argnums"] = tuple([number + 1 for number in sorted(numbers)])
            if names := [name for name in chosen.names if name in kwargs]:
                options[f"{which}_argnames"] = tuple(names)
        if "in_shardings" in options:
            given = options["in_shardings"]
            if not isinstance(given, (tuple, list)):
                given = [given] * (len(args) - len(self.statics.positions(args)))
            options["in_shardings"] = (None, *given)
        return options

    def _parts(self, args: Any, kwargs: Any) -> tuple[list[Any], Callable[..., Any]]:
        """Returns the arrays among the arguments, and the function as one of these alone."""
        values, rest = split(self.statics.apart(args, kwargs), is_given)
        rest.orders = None  # programs are found by what JAX knows of arguments, which has none

        def run(*tracers: Any) -> Any:
            full, named = self.statics.joined(rest.build(tracers), args, kwargs)
            return array_outputs(self.name, self.func(*full, **named), "Compute it outside.")

        return values, run

    def inside(self, args: Any, kwargs: Any) -> Any:
        """Records the call inside a traced function."""
        check_static(self.name, self.func, self.statics, args, kwargs)
        values, run = self._parts(args, kwargs)
        operands = [as_array(x) for x in values]
        inputs = abstract_inputs([input_type(x) for x in values], f"an argument of {self.name}")
        staged = stage(self.name, run, inputs, closed=True)
        operands += staged.captured
        return staged.outputs.build(apply(staged.program, operands, weak=staged.weak))


# ------------------------------------------------------------------------------- what is compiled


def _function(
    name: str, statics: Chosen, key: Any, program: Program, outputs: Skeleton
) -> Callable[..., Any]:
    """Returns a program as a function of what is captured and of the arguments.

    It keeps nothing alive but what it says: what is compiled of it hangs on the structure of the
    program, and may be found by others after this program is gone.
    """
    source = Source(program)

    def function(captured: Any, *args: Any, **kwargs: Any) -> Any:
        found, arrays = signature_of(statics, args, kwargs)
        if found != key:
            raise _Unknown
        return outputs.build(lower(source.program(), [*arrays, *captured]))

    function.__name__ = function.__qualname__ = name
    return function


def _key(name: str, key: Any, outputs: Skeleton, options: dict[str, Any]) -> Any:
    """Returns by what functions that do the same find what is compiled; None where they do not."""
    found = []
    for option, value in sorted(options.items()):
        leaves, structure = tree.tree_flatten(value, is_leaf=lambda x: x is None)
        found.append((option, tuple(leaves), structure))
    # by its text as well, since 1 and True are equal
    place = ("jit", name, key, outputs, str(outputs.structure), tuple(found))
    try:
        hash(place)
    except TypeError:
        return None
    return place


def _frozen(arrays: list[Any]) -> tuple[Any, ...]:
    """Returns arrays that nobody can write to: those of JAX as they are, copies of others."""
    with x64(), jax.ensure_compile_time_eval():
        return tuple([x if is_jax(x) else to_jax(x) for x in arrays])


_scopes: Any = [] if reusable_x64() else deque(maxlen=0)
"""Scopes that nobody is in."""
