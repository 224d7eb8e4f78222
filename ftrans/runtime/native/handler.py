"""One FFI handler for all Python functions, made with ctypes: XLA calls Python without a compiler.

A call names its callee by a ticket, an attribute of the call. The arguments are copies, since their
memory is XLA's again after the call, whatever the function keeps of them. What the function raises
is kept for whoever runs the program (`ftrans.runtime.faults`). What XLA hands over is laid out as
the C header `xla/ffi/api/c_api.h` has it, within major version 0, but for fields at the ends.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from struct import Struct
from types import SimpleNamespace
from typing import Any

import jax
import ml_dtypes
import numpy as np

from ftrans.ir import ArrayType
from ftrans.ir.dtype import bfloat16
from ftrans.runtime.faults import keep_raised
from ftrans.runtime.native.interrupts import entries, raise_waiting
from ftrans.runtime.native.lifetime import called, hold, issue

# ------------------------------------------------------------------------ what XLA hands over

_Pointer = ctypes.c_void_p
_handler_type = ctypes.CFUNCTYPE(_Pointer, _Pointer)
"""`XLA_FFI_Error* handler(XLA_FFI_CallFrame*)`."""

_FRAME = Struct("=QQQQ24xq8xQ16xq8xQ40xQ")
"""A call frame: its size, extension, the table of XLA's functions, context; number of arguments and
pointer to them; number of results and pointer to them; pointer to the attributes."""
_BUFFER = Struct("=16xi4xQqQ")
"""A buffer: code of the dtype, address, rank, pointer to the sizes of the axes."""

_DTYPES: dict[int, np.dtype] = {
    1: np.dtype(bool),
    2: np.dtype("int8"),
    3: np.dtype("int16"),
    4: np.dtype("int32"),
    5: np.dtype("int64"),
    6: np.dtype("uint8"),
    7: np.dtype("uint16"),
    8: np.dtype("uint32"),
    9: np.dtype("uint64"),
    10: np.dtype("float16"),
    11: np.dtype("float32"),
    12: np.dtype("float64"),
    15: np.dtype("complex64"),
    16: bfloat16,
    18: np.dtype("complex128"),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e4m3fn),
}
"""The dtypes by XLA's codes."""


def _memory_of(size: int) -> Any:
    """Returns what makes an address the memory of `size` bytes there, a buffer for NumPy."""
    return (ctypes.c_char * size).from_address


_word_at = ctypes.c_uint64.from_address


def _peek(address: int) -> int:
    """Returns the pointer, or the number, that stands at an address."""
    return _word_at(address).value


_OLDEST = (0, 3)
"""The version of the header that is spoken here, and the oldest release of XLA that takes it."""
_METADATA = 1
_ERROR_CREATE, _STATE_SET = 48, 104
"""Where functions stand in the table of XLA's."""


def _check_version(api: int) -> None:
    said = Struct("=32xii").unpack(_memory_of(40)(api))
    if said[0] != _OLDEST[0] or said < _OLDEST:
        raise RuntimeError(f"XLA's FFI has version {said}")


def _check_frame(frame: int) -> None:
    """Raises unless the frame says of itself that it has the layout that is read here."""
    _check_version(_peek(frame + 16))
    whole, *parts = [_peek(frame + offset) for offset in (0, 40, 80, 120)]
    # the structs inside a frame cannot grow without moving what follows them
    if whole < _FRAME.size or parts != [40, 40, 48]:
        raise RuntimeError(f"XLA's FFI has structs of {[whole, *parts]} bytes")


def _answer_metadata(frame: int, extension: int, state: int) -> bool:
    """Answers the question of XLA which version a handler speaks, where the frame asks it.

    Args:
        frame: the call frame.
        extension: its extension, not null as in all other calls.
        state: the id of the type of the handler's state, or 0.
    """
    if _peek(extension + 8) & 0xFFFFFFFF != _METADATA:
        return False
    _check_version(_peek(frame + 16))
    # after size, extension: the version, in a struct of 24 bytes; traits; the id
    answer = Struct("=iiI4xq").pack(*_OLDEST, 0, state)
    ctypes.memmove(_peek(extension + 24) + 24, answer, len(answer))
    return True


def _create_error(api: int, message: str) -> int:
    """Returns a new error of XLA's, which belongs to whoever it is returned to."""
    text = ctypes.create_string_buffer(message.encode(errors="replace").replace(b"\0", b"?"))
    # size, extension, message, code: 13 is INTERNAL
    return _ask(api, _ERROR_CREATE, Struct("=QQQi4x").pack(28, 0, ctypes.addressof(text), 13))


def _ask(api: int, function: int, given: bytes) -> int:
    """Calls a function of the table of XLA's; returns an error of XLA's, or 0."""
    block = ctypes.create_string_buffer(given)
    found: Any = _handler_type(_peek(api + function))(ctypes.addressof(block))
    return found or 0


# -------------------------------------------------------------------------------- the handler

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
        _, extension, api, _, inputs, input_at, outputs, output_at, attributes = _FRAME.unpack(
            _frame_at(frame)
        )
        if extension and _answer_metadata(frame, extension, 0):
            return None
        callee = called(_number(attributes))
        if callee is None:
            return _create_error(api, _FORGOTTEN)
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
        return _create_error(_peek(frame + 16), keep_raised(error))
    return None


entries.add(_execute.__code__)


def _instantiate(frame: int) -> int | None:
    """Is called for each executable that is made: holds its callee."""
    try:
        _, extension, api, context, *_, attributes = _FRAME.unpack(_frame_at(frame))
        if extension and _answer_metadata(frame, extension, _kind.value):
            return None
        _check_frame(frame)
        state = hold(_number(attributes))
        if not state:
            return _create_error(api, _FORGOTTEN)
        # size, extension, context, stage: 0 is that of instantiating; the id of the type, the state
        given = Struct("=QQQi4xQQ").pack(48, 0, context, 0, ctypes.addressof(_kind), state)
        return _ask(api, _STATE_SET, given)
    except BaseException as error:
        return _create_error(_peek(frame + 16), keep_raised(error))


def _number(attributes: int) -> int:
    """Returns the ticket, which is the one attribute of the call."""
    return _peek(_peek(_peek(attributes) + 8))


_frame_at = _memory_of(168)
_buffer_at = _memory_of(48)
_sizes_at = [_memory_of(8 * rank) for rank in range(65)]
_types: dict[Any, tuple[ArrayType, tuple[int, ...], np.dtype, int, Any]] = {}
"""By code, rank and the bytes of its sizes all that is asked of a type, which is quicker to look up
than to put together; the last is what makes an address the memory of such an array."""


def _pointers(count: int, address: int) -> Sequence[int]:
    if count == 1:
        return (_peek(address),)
    return Struct(f"={count}Q").unpack(_memory_of(8 * count)(address)) if count else ()


def _buffer(buffer: int) -> tuple[Any, int]:
    """Returns type and address of an argument or a result."""
    code, data, rank, dims = _BUFFER.unpack(_buffer_at(buffer))
    key = code, _sizes_at[rank](dims).raw if rank else b""
    known = _types.get(key)
    if known is None:
        t = ArrayType(Struct(f"={rank}q").unpack(key[1]), _DTYPES[code])
        if len(_types) >= 4096:
            _types.clear()
        known = _types[key] = t, t.shape, t.dtype, t.nbytes, _memory_of(t.nbytes)
    return known, data


# ------------------------------------------------------------------------------- registration

_kind = ctypes.c_int64(0)
"""The id of the type of the states, which XLA assigns."""
_execute_c = _handler_type(_execute)
_instantiate_c = _handler_type(_instantiate)


_lock = threading.RLock()
_state: str | None = None
"""Empty where the handler works, else the reason why it does not; None before it was tried."""


def failure() -> str:
    """Returns why this JAX does not take the handler, "" where it does: tried at the first call."""
    global _state
    with _lock:
        if _state is None:
            try:
                _register()
                _try()
                _state = ""
            except Exception as error:
                # whatever a JAX that we have not seen may raise: the other road is always there
                _state = f"{type(error).__name__}: {error}"
        return _state


def takes(types: Iterable[Any]) -> bool:
    """Tells whether the handler takes arrays of these dtypes."""
    return all(np.dtype(t.dtype) in _CODES for t in types)


_CODES = frozenset(_DTYPES.values())


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
    return ctypes.cast(_execute_c, _Pointer).value or 0


def register(target: str, execute: int) -> None:
    """Registers a handler whose calls have a ticket for an attribute.

    Args:
        target: its name.
        execute: the address of what is called.
    """
    stages = {"instantiate": ctypes.cast(_instantiate_c, _Pointer).value, "execute": execute}
    capsules = {stage: jax.ffi.pycapsule(at) for stage, at in stages.items()}
    jax.ffi.register_ffi_target(target, capsules, platform="cpu")


def _register() -> None:
    jax.local_devices(backend="cpu")  # before that, XLA only takes note of what is registered
    libc = ctypes.CDLL(None)
    # size, extension, the deleter of states
    info = (_Pointer * 3)(24, None, ctypes.cast(libc.time, _Pointer))
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


def _try() -> None:
    add_one = SimpleNamespace(call=lambda arrays, types, shared: [arrays[0] + np.float32(1)])
    spec = jax.ShapeDtypeStruct((2, 3), np.float32)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        compiled = jax.jit(lambda x: call(add_one, [x], [spec])).lower(spec).compile()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    if not np.array_equal(np.asarray(compiled(x)[0]), x + 1):
        raise RuntimeError("the handler that was tried gave wrong results")
