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
from collections.abc import Hashable, Sequence
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
from ftrans.runtime import native


def is_numba(function: Any) -> bool:
    """Tells whether a function is one of numba's for the CPU: jitted, vectorized or a `cfunc`."""
    module, name = type(function).__module__, type(function).__name__
    if not module.startswith("numba.") or module.startswith("numba.cuda"):
        return False
    return name in ("CFunc", "DUFunc", "GUFunc") or hasattr(function, "py_func")


class NumbaCallee(HostCallee):
    """Is a function that numba compiled.

    Args:
        name: how errors and the text of programs call it.
        kernel: takes arrays and returns one, or a tuple of them; or a `cfunc` that takes a pointer
            to the elements of each argument, then of each result.
        inputs: the types of the arguments.
        types: the types of the results.
        key: what stands for the kernel when two callees are compared.
        vmap_method: as for `HostCallee`; None loops, in machine code.
    """

    def __init__(
        self,
        name: str,
        kernel: Any,
        inputs: Sequence[ArrayType],
        types: Sequence[ArrayType],
        *,
        key: Hashable,
        vmap_method: Any = None,
        masks: tuple[tuple[bool, ...], ...] = (),
    ):
        self.kernel, self.kernel_key, self.masks = kernel, key, masks
        pointers = type(kernel).__name__ == "CFunc"
        if pointers:
            _check_pointers(name, kernel, (*inputs, *types), vmap_method)
        # one with fixed signatures takes no arrays that are marked read-only
        copies = pointers or not getattr(kernel, "_can_compile", True)
        kinds = [tuple([(t.dtype, t.ndim) for t in kind]) for kind in (inputs, types)]
        self._shape = _Shape(kinds[0], kinds[1], masks, copies, pointers)
        method = "sequential" if vmap_method is None else vmap_method
        function = self._by_body if masks or pointers else self._by_kernel
        super().__init__(name, function, types, key=(key, masks), vmap_method=method, copies=copies)

    def _by_kernel(self, *arrays: Any) -> Sequence[Any]:
        # numba knows no arrays of JAX
        found = self.kernel(*map(np.asarray, arrays))
        return found if isinstance(found, tuple) else (found,)

    def _by_body(self, *arrays: Any) -> Sequence[Any]:
        """Runs the loops from Python."""
        outs = [np.empty(t.shape, t.dtype) for t in self.types]
        # pointers are to elements that lie side by side
        given = [np.ascontiguousarray(a).reshape(a.shape) for a in map(np.asarray, arrays)]
        _body(self.kernel, self._shape)(*given, *outs)
        return outs

    def by_ffi(self, *given: Any) -> Sequence[Any]:
        """Calls a handler in machine code; JAX takes another one for a batch of other ranks."""
        target = _handler(self.kernel, self._shape)
        if not isinstance(target, str):
            reason = (str(target).strip() or type(target).__name__).splitlines()[0]
            self.warn_once(
                reason,
                f"{self.name}: compiled programs call it through Python, since numba made no "
                f"handler of it.\n  reason: {reason}",
            )
            return super().by_ffi(*given)
        program = self.program([ArrayType(array.shape, array.dtype) for array in given])
        every = (True,) * len(self.types)

        @jax.custom_batching.custom_vmap
        def wrapped(*given: Any) -> list[Any]:
            return list(native.call(self, given, self.types, target))

        @wrapped.def_vmap
        def _(size: int, mapped: Sequence[bool], *given: Any) -> tuple[list[Any], list[bool]]:
            batched, _ = batch(program, size, tuple(0 if m else None for m in mapped), every)
            return evaluate(jnp, batched, given), list(every)

        return wrapped(*given)

    def batched(
        self, size: int, inputs: Sequence[ArrayType], mapped: tuple[bool, ...] | None
    ) -> NumbaCallee:
        """Returns the callee for a batch, which loops in machine code where it does."""
        types = [t.update(shape=(size, *t.shape)) for t in self.types]
        options: Any = {"vmap_method": self.vmap_method}
        if mapped is not None:
            options = {"masks": (mapped, *self.masks)}
        return NumbaCallee(self.name, self.kernel, inputs, types, key=self.kernel_key, **options)


class _Shape(NamedTuple):
    """Says how a body calls its kernel.

    Attributes:
        inputs: dtype and rank of each argument.
        outputs: those of each result.
        masks: for each loop, the outermost first, which arguments have its axis in front.
        copies: whether the kernel is given copies.
        pointers: whether it takes pointers.
    """

    inputs: tuple[tuple[np.dtype, int], ...]
    outputs: tuple[tuple[np.dtype, int], ...]
    masks: tuple[tuple[bool, ...], ...]
    copies: bool
    pointers: bool


_numbers = itertools.count()


@functools.cache
def _body(kernel: Any, shape: _Shape) -> Any:
    """Returns the function that loops and calls the kernel, compiled when it is first called."""
    names = {"kernel": kernel, "assign": _tools().assign}
    exec(compile(_source(shape), "<ftrans: loops around a kernel>", "exec"), names)
    return import_module("numba").njit(names["body"], nogil=True)


def _source(shape: _Shape) -> str:
    """Writes the body: one loop for each mapped axis, and in it one call."""
    xs = [f"x{i}" for i in range(len(shape.inputs))]
    outs = [f"out{i}" for i in range(len(shape.outputs))]
    lines = [f"def body({', '.join(xs + outs)}):"]
    indent = "    "
    for level, mask in enumerate(shape.masks):
        lines.append(f"{indent}for i{level} in range({outs[0]}.shape[0]):")
        indent += "    "
        for names, mapped in ((xs, mask), (outs, [True] * len(outs))):
            for n, (name, m) in enumerate(zip(list(names), mapped, strict=True)):
                if m:
                    names[n] = f"{name}_{level}"
                    lines.append(f"{indent}{names[n]} = {name}[i{level}, ...]")
    if shape.pointers:
        lines.append(f"{indent}kernel({', '.join(f'{name}.ctypes' for name in xs + outs)})")
    else:
        lines.append(f"{indent}found = kernel({', '.join(xs)})")
        if len(outs) == 1:
            lines.append(f"{indent}assign({outs[0]}, found)")
        else:
            lines.append(f"{indent}if len(found) != {len(outs)}: raise ValueError")
            lines += [f"{indent}assign({out}, found[{n}])" for n, out in enumerate(outs)]
    return "\n".join(lines)


@functools.cache
def _handler(kernel: Any, shape: _Shape) -> str | Exception:
    """Compiles a handler and registers it; returns its name, or why numba makes none."""
    xs = [f"x{i}" for i in range(len(shape.inputs))]
    outs = [f"out{i}" for i in range(len(shape.outputs))]
    lines = ["def handle(frame):", "    if word(frame + 8): return python(frame)", "    try:"]
    for group, offset, types in ((xs, 72, shape.inputs), (outs, 112, shape.outputs)):
        lines.append(f"        buffers = word(frame + {offset})")
        for n, (name, (_, rank)) in enumerate(zip(group, types, strict=True)):
            sizes = "".join(f"word(dims + {8 * axis}), " for axis in range(rank))
            lines.append(f"        buffer = word(buffers + {8 * n})")
            lines.append("        dims = word(buffer + 40)")
            made = f"carray(pointer(word(buffer + 24)), ({sizes}), dtype_{name})"
            if group is xs:
                made = f"{made}.copy()" if shape.copies else f"frozen({made})"
            lines.append(f"        {name} = {made}")
    lines.append(f"        body({', '.join(xs + outs)})")
    lines.append("    except Exception: return python(frame)")
    lines.append("    return 0")
    try:
        numba = import_module("numba")
        python = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(native.address())
        names = {**vars(_tools()), "body": _body(kernel, shape), "python": python}
        for name, (dtype, _) in zip(xs + outs, (*shape.inputs, *shape.outputs), strict=True):
            names[f"dtype_{name}"] = numba.from_dtype(dtype)
        exec(compile("\n".join(lines), "<ftrans: a handler around a kernel>", "exec"), names)
        made = numba.cfunc("int64(int64)", nopython=True)(names["handle"])
    except Exception as error:
        # whatever numba finds fault with: what the kernel returns, a dtype that it lacks
        return error
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))  # XLA may call it when Python has ended
    target = f"ftrans_numba_{next(_numbers)}"
    native.register(target, made.address)
    return target


@functools.cache
def _tools() -> SimpleNamespace:
    """Returns functions that numba compiles into bodies and handlers."""
    numba, extending = import_module("numba"), import_module("numba.extending")
    types, carray, int64 = numba.types, numba.carray, numba.int64
    borrowed = import_module("numba.core.imputils").impl_ret_borrowed

    @extending.intrinsic
    def pointer(context: Any, address: Any) -> Any:
        """Returns an address as a pointer."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.voidptr(types.int64), generate

    @numba.njit
    def word(address: Any) -> Any:
        """Reads 64 bits at an address."""
        return carray(pointer(address), 1, int64)[0]

    @extending.intrinsic
    def frozen(context: Any, array: Any) -> Any:
        """Marks an array read-only for the compiler."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return borrowed(context, builder, signature.return_type, args[0])

        return array.copy(readonly=True)(array), generate

    def assign(out: Any, found: Any) -> None:
        raise NotImplementedError  # numba takes the overload

    @extending.overload(assign)
    def _(out: Any, found: Any) -> Any:
        is_array = isinstance(found, types.Array)
        rank, dtype = (found.ndim, found.dtype) if is_array else (0, found)
        if (rank, dtype) != (out.ndim, out.dtype):
            raise numba.TypingError(f"the kernel returns {found}, not {out}")

        def write(out: Any, found: Any) -> None:
            if out.shape != found.shape:
                raise ValueError
            out[...] = found

        def fill(out: Any, found: Any) -> None:
            out[...] = found

        return write if is_array else fill

    return SimpleNamespace(word=word, frozen=frozen, pointer=pointer, carray=carray, assign=assign)


def _check_pointers(name: str, kernel: Any, types: Sequence[ArrayType], vmap_method: Any) -> None:
    """Raises unless a `cfunc` takes pointers to such elements, which nothing else would notice."""
    numba = import_module("numba")
    given = kernel._sig
    needed = [numba.types.CPointer(numba.from_dtype(t.dtype)) for t in types]
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
