"""Functions of numba as callees: in compiled code they are called without the interpreter's lock.

A *body* is a function that numba compiles: it loops over the mapped axes, calls the kernel, and
writes into the results. A *handler* is an FFI handler in machine code that takes the buffers of a
call for arrays and runs a body on them; it serves all shapes of the same ranks. Whatever goes wrong
in it is left to the handler in Python, which calls the kernel once more and keeps what it raises.
Bodies and handlers stay for as long as the process runs, as all that numba compiles does.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.errors import ArgumentError, RuleError
from ftrans.external.callee import HostCallee
from ftrans.interpreters import batch
from ftrans.ir import ArrayType
from ftrans.primitives.evaluate import evaluate
from ftrans.primitives.rules.external import Same
from ftrans.runtime import native


def is_numba(function: Any) -> bool:
    """Tells whether a function is one of numba's for the CPU: jitted, vectorized or a `cfunc`."""
    module = type(function).__module__
    if not module.startswith("numba.") or module.startswith("numba.cuda"):
        return False
    return _is_pointers(function) or hasattr(function, "py_func") or _is_ufunc(function)


def _is_pointers(function: Any) -> bool:
    return type(function).__name__ == "CFunc"


def _is_ufunc(function: Any) -> bool:
    return type(function).__name__ in ("DUFunc", "GUFunc")


class NumbaCallee(HostCallee):
    """Is a function that numba compiled.

    Args:
        name: how errors and the text of programs call it.
        kernel: takes arrays and returns one, or a tuple of them; or a `cfunc` that takes a pointer
            to the elements of each argument, then of each result.
        inputs: the types of the arguments.
        types: the types of the results.
        key: as for `HostCallee`.
        vmap_method: as for `HostCallee`; None loops, in machine code.
    """

    def __init__(
        self,
        name: str,
        kernel: Any,
        inputs: Sequence[ArrayType],
        types: Sequence[ArrayType],
        *,
        key: Hashable = None,
        vmap_method: Any = None,
        masks: tuple[tuple[bool, ...], ...] = (),
    ):
        self.kernel, self.inputs, self.masks = kernel, tuple(inputs), masks
        pointers = _is_pointers(kernel)
        if pointers:
            _check_pointers(name, kernel, inputs, types, vmap_method)
        # one with fixed signatures takes no arrays that are marked read-only
        copies = pointers or not getattr(kernel, "_can_compile", True)
        shape = _Shape(len(inputs), len(types), masks, copies, pointers)
        self._shape = shape
        method = "sequential" if vmap_method is None else vmap_method
        function = self._by_body if masks or pointers else self._by_kernel
        self.kernel_key = Same(kernel) if key is None else key
        super().__init__(
            name,
            function,
            types,
            key=(self.kernel_key, masks),
            vmap_method=method,
            copies=copies,
        )

    def _by_kernel(self, *arrays: Any) -> Sequence[Any]:
        found = self.kernel(*arrays)
        return found if isinstance(found, tuple) else (found,)

    def _by_body(self, *arrays: Any) -> Sequence[Any]:
        """Runs the loops from Python."""
        outs = [np.empty(t.shape, t.dtype) for t in self.types]
        # pointers are to elements that lie side by side
        given = [np.ascontiguousarray(a).reshape(a.shape) for a in map(np.asarray, arrays)]
        _body(self.kernel, self._shape)(*given, *outs)
        return outs

    def call(
        self, arrays: Sequence[Any], types: Sequence[ArrayType], shared: bool = False
    ) -> list[Any]:
        """Calls the kernel on arrays that nobody can write to."""
        if not self._shape.pointers:
            # numba knows no arrays of JAX
            arrays = [np.asarray(array) for array in arrays]
        return super().call(arrays, types, shared)

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for values that JAX traces."""
        target = self._target()
        if target is None:
            return super().lower(arrays)

        def call(*given: Any) -> Sequence[Any]:
            return native.call(self, given, self.types, target)

        if jax.default_backend() == "cpu":
            return self._mapped_by_rank(arrays, call)
        python = functools.partial(HostCallee.lower, self)
        return jax.lax.platform_dependent(*arrays, cpu=call, default=lambda *xs: python(xs))

    def _mapped_by_rank(self, arrays: Sequence[Any], call: Callable[..., Any]) -> Sequence[Any]:
        """Calls a handler; JAX takes another one for a batch, which has other ranks."""
        program = self.program([ArrayType(array.shape, array.dtype) for array in arrays])
        every = (True,) * len(self.types)
        wrapped = jax.custom_batching.custom_vmap(lambda *given: list(call(*given)))

        @wrapped.def_vmap
        def _(size: int, mapped: Sequence[bool], *given: Any) -> tuple[list[Any], list[bool]]:
            batched, _ = batch(program, size, tuple(0 if m else None for m in mapped), every)
            return evaluate(jnp, batched, given), list(every)

        return wrapped(*arrays)

    def _target(self) -> str | None:
        """Returns the name of the handler; None where Python is to call the kernel."""
        if not self.may_use_ffi(self.inputs):
            return None
        try:
            kinds = [tuple((t.dtype, t.ndim) for t in types) for types in (self.inputs, self.types)]
            given = self._shape, *kinds
            return _once(self.kernel, given, lambda: _handler(self.kernel, *given))[0]
        except Exception as error:
            # whatever numba finds fault with: what the kernel returns, a dtype that it lacks
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.warn_once(
                reason,
                f"{self.name}: compiled programs call it through Python, since numba made no "
                f"handler of it.\n  reason: {reason}",
            )
            return None

    def looped(self, size: int, mapped: tuple[bool, ...]) -> NumbaCallee:
        """Returns the callee that loops over a batch, in machine code."""
        inputs = [
            t.update(shape=(size, *t.shape)) if m else t
            for t, m in zip(self.inputs, mapped, strict=True)
        ]
        return self._like(inputs, size, masks=(mapped, *self.masks))

    def batched(self, size: int, inputs: Sequence[ArrayType]) -> NumbaCallee:
        """Returns the callee that computes a batch by one call of the same kernel."""
        return self._like(inputs, size, vmap_method=self.vmap_method)

    def _like(self, inputs: Sequence[ArrayType], size: int, **options: Any) -> NumbaCallee:
        types = self.batched_types(size)
        key = self.kernel_key
        return NumbaCallee(self.name, self.kernel, inputs, types, key=key, **options)


class _Shape(NamedTuple):
    """Says how a body calls its kernel.

    Attributes:
        inputs: the number of arguments.
        outputs: the number of results.
        masks: for each loop, the outermost first, which arguments have its axis in front.
        copies: whether the kernel is given copies.
        pointers: whether it takes pointers.
    """

    inputs: int
    outputs: int
    masks: tuple[tuple[bool, ...], ...]
    copies: bool
    pointers: bool


_lock = threading.RLock()
_kept: dict[Any, tuple[Any, Any]] = {}
"""Bodies and handlers, or the errors in their places, each with the kernel that it is found by."""
_numbers = itertools.count()


def _once(kernel: Any, rest: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Returns what is made for a kernel, once; raises again what was raised then."""
    key = (id(kernel), *rest)
    with _lock:
        found = _kept.get(key)
        if found is None:
            try:
                made = make()
            except Exception as error:
                made = error
            found = _kept[key] = made, kernel
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _body(kernel: Any, shape: _Shape) -> Any:
    """Returns the function that loops and calls the kernel, compiled when it is first called."""

    def make() -> Any:
        names = {"kernel": kernel, "assign": _tools().assign}
        exec(compile(_source(shape), "<ftrans: loops around a kernel>", "exec"), names)
        return import_module("numba").njit(names["body"], nogil=True)

    return _once(kernel, (shape,), make)


def _source(shape: _Shape) -> str:
    """Writes the body: one loop for each mapped axis, and in it one call."""
    xs = [f"x{i}" for i in range(shape.inputs)]
    outs = [f"out{i}" for i in range(shape.outputs)]
    lines = [f"def body({', '.join(xs + outs)}):"]
    indent = "    "
    for level, mask in enumerate(shape.masks):
        lines.append(f"{indent}for i{level} in range({outs[0]}.shape[0]):")
        indent += "    "
        for names, mapped in ((xs, mask), (outs, [True] * shape.outputs)):
            for n, (name, m) in enumerate(zip(list(names), mapped, strict=True)):
                if m:
                    names[n] = f"{name}_{level}"
                    lines.append(f"{indent}{names[n]} = {name}[i{level}, ...]")
    if shape.pointers:
        lines.append(f"{indent}kernel({', '.join(f'{name}.ctypes' for name in xs + outs)})")
    else:
        lines.append(f"{indent}found = kernel({', '.join(xs)})")
        if shape.outputs == 1:
            lines.append(f"{indent}assign({outs[0]}, found)")
        else:
            lines.append(f"{indent}if len(found) != {shape.outputs}: raise ValueError")
            lines += [f"{indent}assign({out}, found[{n}])" for n, out in enumerate(outs)]
    return "\n".join(lines)


def _handler(kernel: Any, shape: _Shape, inputs: Any, outputs: Any) -> tuple[Any, ...]:
    """Compiles a handler and registers it; returns its name, and what it needs to stay alive."""
    numba, tools = import_module("numba"), _tools()
    xs = [f"x{i}" for i in range(len(inputs))]
    outs = [f"out{i}" for i in range(len(outputs))]
    lines = ["def handle(frame):", "    if word(frame + 8): return python(frame)", "    try:"]
    for group, offset, types in ((xs, 72, inputs), (outs, 112, outputs)):
        lines.append(f"        buffers = word(frame + {offset})")
        for n, (name, (_, rank)) in enumerate(zip(group, types, strict=True)):
            sizes = "".join(f"word(dims + {8 * axis}), " for axis in range(rank))
            lines.append(f"        buffer = word(buffers + {8 * n})")
            lines.append("        dims = word(buffer + 40)")
            lines.append(f"        {name} = array_{name}(word(buffer + 24), ({sizes}))")
            if group is xs:
                lines.append(f"        {name} = {'copy' if shape.copies else 'frozen'}({name})")
    lines.append(f"        body({', '.join(xs + outs)})")
    lines.append("    except Exception: return python(frame)")
    lines.append("    return 0")
    names: dict[str, Any] = {
        "word": tools.word,
        "frozen": tools.frozen,
        "copy": tools.copy,
        "body": _body(kernel, shape),
        "python": ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address()),
    }
    for name, (dtype, rank) in zip(xs + outs, (*inputs, *outputs), strict=True):
        names[f"array_{name}"] = tools.array(numba.from_dtype(dtype), rank)
    exec(compile("\n".join(lines), "<ftrans: a handler around a kernel>", "exec"), names)
    made = numba.cfunc("int64(int64)", nopython=True)(names["handle"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))  # XLA may call it when Python has ended
    target = f"ftrans_numba_{next(_numbers)}"
    native.register(target, made.address)
    return target, made, names


@functools.cache
def _tools() -> SimpleNamespace:
    """Returns functions that numba compiles into bodies and handlers."""
    numba, extending = import_module("numba"), import_module("numba.extending")
    types, ir = numba.types, import_module("llvmlite.ir")
    borrowed = import_module("numba.core.imputils").impl_ret_borrowed

    @extending.intrinsic
    def word(context: Any, address: Any) -> Any:
        """Reads 64 bits at an address."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
            return builder.load(pointer)

        return types.int64(types.int64), generate

    @extending.intrinsic
    def frozen(context: Any, array: Any) -> Any:
        """Marks an array read-only for the compiler."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return borrowed(context, builder, signature.return_type, args[0])

        return array.copy(readonly=True)(array), generate

    @numba.njit
    def copy(array: Any) -> Any:
        return array.copy()

    @functools.cache
    def array(dtype: Any, rank: int) -> Any:
        @extending.intrinsic
        def pointer(context: Any, address: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                kind = context.get_value_type(signature.return_type)
                return builder.inttoptr(args[0], kind)

            return types.CPointer(dtype)(types.int64), generate

        carray = numba.carray

        @numba.njit
        def make(address: Any, sizes: Any) -> Any:
            return carray(pointer(address), sizes)

        return make

    def assign(out: Any, found: Any) -> None:
        raise NotImplementedError  # numba takes the overload

    @extending.overload(assign)
    def _(out: Any, found: Any) -> Any:
        if isinstance(found, types.Array):
            if found.ndim != out.ndim or found.dtype != out.dtype:
                raise numba.TypingError(f"the kernel returns {found}, not {out}")

            def write(out: Any, found: Any) -> None:
                if out.shape != found.shape:
                    raise ValueError
                out[...] = found

            return write
        if out.ndim or found != out.dtype:
            raise numba.TypingError(f"the kernel returns {found}, not {out}")

        def fill(out: Any, found: Any) -> None:
            out[...] = found

        return fill

    return SimpleNamespace(word=word, frozen=frozen, copy=copy, array=array, assign=assign)


def _check_pointers(
    name: str,
    kernel: Any,
    inputs: Sequence[ArrayType],
    types: Sequence[ArrayType],
    vmap_method: Any,
) -> None:
    """Raises unless a `cfunc` takes pointers to such elements, which nothing else would notice."""
    numba = import_module("numba")
    given = kernel._sig
    needed = [numba.types.CPointer(numba.from_dtype(t.dtype)) for t in (*inputs, *types)]
    if list(given.args) != needed or given.return_type != numba.void:
        pointers = ", ".join(str(p) for p in needed)
        raise RuleError(
            f"{name}: a cfunc takes a pointer to each argument, then to each result, and returns "
            f"nothing.\n  its signature: {given}\n  needed here: ({pointers}) -> none\n"
            f"  For a function of arrays, write numba.njit in the place of numba.cfunc."
        )
    if vmap_method in ("expand_dims", "broadcast_all"):
        raise ArgumentError(
            f"{name}: a cfunc is not told sizes, and so cannot take a batch.\n"
            f"  vmap_method: {vmap_method!r}\n"
            f"  Leave it out: a batch is a loop in machine code."
        )
