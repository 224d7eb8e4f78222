"""One FFI handler for all Python functions, made with ctypes: XLA calls Python without a compiler.

A call names its callee by a ticket, an attribute of the call. The arguments are copies, since their
memory is XLA's again after the call, whatever the function keeps of them. What the function raises
is kept for whoever runs the program (`ftrans.runtime.faults`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import jax
import numpy as np

from ftrans.ir import ArrayType
from ftrans.runtime.faults import keep_raised
from ftrans.runtime.native.interrupts import entries, raise_waiting
from ftrans.runtime.native.layout import (
    BUFFER,
    DTYPES,
    FRAME,
    Pointer,
    answer_metadata,
    check_frame,
    create_error,
    handler_type,
    memory_of,
    peek,
    set_state,
)
from ftrans.runtime.native.lifetime import called, hold, issue

TARGET = "ftrans_host"
"""The name under which the handler is registered."""

_FORGOTTEN = (
    "ftrans: this executable calls a Python function of another process, or one that is gone. "
    "Compile it anew: ftrans.cache_clear()."
)


def _execute(frame: int) -> int | None:
    """Is the handler: reads the buffers, calls the function, writes the results."""
    try:
        raise_waiting()
        _, extension, api, _, inputs, input_at, outputs, output_at, attributes = FRAME.unpack(
            _frame_at(frame)
        )
        if extension and answer_metadata(frame, extension, 0):
            return None
        callee = called(_number(attributes))
        if callee is None:
            return create_error(api, _FORGOTTEN)
        given = []
        for buffer in _pointers(inputs, input_at):
            (_, shape, dtype, nbytes, memory), data = _buffer(buffer)
            # bytes cannot be written to, and so the array cannot either
            given.append(np.ndarray(shape, dtype, memory(data).raw if nbytes else b""))
        places = [_buffer(buffer) for buffer in _pointers(outputs, output_at)]
        found = callee.call(given, [known[0] for known, _ in places], shared=True)
        for array, ((_, shape, dtype, nbytes, memory), data) in zip(found, places, strict=True):
            if nbytes:
                np.ndarray(shape, dtype, memory(data))[...] = array
    except BaseException as error:
        return create_error(peek(frame + 16), keep_raised(error))
    return None


entries.add(_execute.__code__)


def _instantiate(frame: int) -> int | None:
    """Is called for each executable that is made: holds its callee."""
    try:
        _, extension, api, context, *_, attributes = FRAME.unpack(_frame_at(frame))
        if extension and answer_metadata(frame, extension, _kind.value):
            return None
        check_frame(frame)
        state = hold(_number(attributes))
        if not state:
            return create_error(api, _FORGOTTEN)
        return set_state(api, context, ctypes.addressof(_kind), state)
    except BaseException as error:
        return create_error(peek(frame + 16), keep_raised(error))


def _number(attributes: int) -> int:
    """Returns the ticket, which is the one attribute of the call."""
    return peek(peek(peek(attributes) + 8))


_frame_at = memory_of(168)
_buffer_at = memory_of(48)
_sizes_at = [memory_of(8 * rank) for rank in range(65)]
_types: dict[Any, tuple[ArrayType, tuple[int, ...], np.dtype, int, Any]] = {}
"""By code, rank and the bytes of its sizes all that is asked of a type, which is quicker to look up
than to put together; the last is what makes an address the memory of such an array."""


def _pointers(count: int, address: int) -> Sequence[int]:
    if count == 1:
        return (peek(address),)
    return Struct(f"={count}Q").unpack(memory_of(8 * count)(address)) if count else ()


def _buffer(buffer: int) -> tuple[Any, int]:
    """Returns type and address of an argument or a result."""
    code, data, rank, dims = BUFFER.unpack(_buffer_at(buffer))
    key = code, _sizes_at[rank](dims).raw if rank else b""
    known = _types.get(key)
    if known is None:
        t = ArrayType(Struct(f"={rank}q").unpack(key[1]), DTYPES[code])
        if len(_types) >= 4096:
            _types.clear()
        known = _types[key] = t, t.shape, t.dtype, t.nbytes, memory_of(t.nbytes)
    return known, data


# ------------------------------------------------------------------------------- registration

_kind = ctypes.c_int64(0)
"""The id of the type of the states, which XLA assigns."""
_execute_c = handler_type(_execute)
_instantiate_c = handler_type(_instantiate)


class _TypeInfo(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("extension", Pointer), ("deleter", Pointer))


_lock = threading.RLock()
_state: str | None = None
"""Empty where the handler works, else the reason why it does not; None before it was tried."""


def usable() -> bool:
    """Tells whether this JAX takes the handler; registers and tries it at the first call."""
    global _state
    if _state is None:
        with _lock:
            if _state is None:
                try:
                    _register()
                    _try()
                    _state = ""
                except Exception as error:
                    # whatever a JAX that we have not seen may raise: the other road is always there
                    _state = f"{type(error).__name__}: {error}"
    return not _state


def failure() -> str | None:
    """Returns why the handler is not used; None where it is."""
    usable()
    return _state or None


def takes(types: Iterable[Any]) -> bool:
    """Tells whether the handler takes arrays of these dtypes."""
    return all(np.dtype(t.dtype) in _CODES for t in types)


_CODES = frozenset(DTYPES.values())


def call(
    callee: Any,
    arrays: Sequence[Any],
    types: Iterable[Any],
    target: str = TARGET,
    vmap_method: str | None = None,
) -> Sequence[Any]:
    """Records a call in the program that JAX is tracing.

    Args:
        callee: its method `call(arrays, types, shared)` is given read-only arrays and the types of
            the results; it is kept alive for as long as it may be called.
        arrays: what JAX traces.
        types: those of the results.
        target: the handler.
        vmap_method: what JAX is to do with a batch.
    """
    specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
    made: Any = jax.ffi.ffi_call(target, specs, vmap_method=vmap_method)
    return made(*arrays, ticket=issue(callee))


def address() -> int:
    """Returns the address of the handler, for other handlers that leave a call to it."""
    return ctypes.cast(_execute_c, Pointer).value or 0


def register(target: str, execute: int) -> None:
    """Registers a handler whose calls have a ticket for an attribute.

    Args:
        target: its name.
        execute: the address of what is called.
    """
    stages = {"instantiate": ctypes.cast(_instantiate_c, Pointer).value, "execute": execute}
    capsules = {stage: jax.ffi.pycapsule(at) for stage, at in stages.items()}
    jax.ffi.register_ffi_target(target, capsules, platform="cpu")


def _register() -> None:
    jax.local_devices(backend="cpu")  # before that, XLA only takes note of what is registered
    libc = ctypes.CDLL(None)
    info = _TypeInfo(24, None, ctypes.cast(libc.time, Pointer))
    for forever in (_kind, info, libc, _execute_c, _instantiate_c):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(forever))
    jax.ffi.register_ffi_type(
        "ftrans_held",
        {  # type: ignore[arg-type]
            "type_id": jax.ffi.pycapsule(ctypes.addressof(_kind)),
            "type_info": jax.ffi.pycapsule(ctypes.addressof(info)),
        },
        platform="cpu",
    )
    if not _kind.value:
        raise RuntimeError("XLA gave no id to the type of the states")
    register(TARGET, address())


class _Trial:
    """Adds one, to try the handler."""

    def call(self, arrays: Sequence[Any], types: Sequence[ArrayType], shared: bool) -> list[Any]:
        return [arrays[0] + np.float32(1)]


def _try() -> None:
    spec = jax.ShapeDtypeStruct((2, 3), np.float32)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        compiled = jax.jit(lambda x: call(_Trial(), [x], [spec])).lower(spec).compile()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    if not np.array_equal(np.asarray(compiled(x)[0]), x + 1):
        raise RuntimeError("the handler that was tried gave wrong results")
