"""The layout of what XLA hands to an FFI handler, as the C header `xla/ffi/api/c_api.h` has it.

XLA promises that it stays within major version 0 but for fields that are added at the ends. The
sizes that each struct states of itself are held against it before anything else is read.
"""

from __future__ import annotations

import ctypes
from struct import Struct
from typing import Any

import ml_dtypes
import numpy as np

from ftrans.ir.dtype import bfloat16

Pointer = ctypes.c_void_p
handler_type = ctypes.CFUNCTYPE(Pointer, Pointer)
"""`XLA_FFI_Error* handler(XLA_FFI_CallFrame*)`."""

FRAME = Struct("=QQQQ24xq8xQ16xq8xQ40xQ")
"""A call frame: its size, extension, the table of XLA's functions, context; number of arguments and
pointer to them; number of results and pointer to them; pointer to the attributes."""
BUFFER = Struct("=16xi4xQqQ")
"""A buffer: code of the dtype, address, rank, pointer to the sizes of the axes."""

DTYPES: dict[int, np.dtype] = {
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


def memory_of(size: int) -> Any:
    """Returns what makes an address the memory of `size` bytes there, a buffer for NumPy."""
    return (ctypes.c_char * size).from_address


_word_at = ctypes.c_uint64.from_address


def peek(address: int) -> int:
    """Returns the pointer, or the number, that stands at an address."""
    return _word_at(address).value


_OLDEST = (0, 3)
"""The version of the header that is spoken here, and the oldest release of XLA that takes it."""
_METADATA = 1
_ERROR_CREATE, _STATE_SET = 48, 104
"""Where functions stand in the table of XLA's."""


def _check_version(api: int) -> None:
    said = Struct("=32xii").unpack(memory_of(40)(api))
    if said[0] != _OLDEST[0] or said < _OLDEST:
        raise RuntimeError(f"XLA's FFI has version {said}")


def check_frame(frame: int) -> None:
    """Raises unless the frame says of itself that it has the layout that is read here.

    Raises:
        RuntimeError: where the version or the size of a struct is another one.
    """
    _check_version(peek(frame + 16))
    whole, *parts = [peek(frame + offset) for offset in (0, 40, 80, 120)]
    # the structs inside a frame cannot grow without moving what follows them
    if whole < FRAME.size or parts != [40, 40, 48]:
        raise RuntimeError(f"XLA's FFI has structs of {[whole, *parts]} bytes")


def answer_metadata(frame: int, extension: int, state: int) -> bool:
    """Answers the question of XLA which version a handler speaks, where the frame asks it.

    Args:
        frame: the call frame.
        extension: its extension, not null as in all other calls.
        state: the id of the type of the handler's state, or 0.
    """
    if peek(extension + 8) & 0xFFFFFFFF != _METADATA:
        return False
    _check_version(peek(frame + 16))
    # after size, extension: the version, in a struct of 24 bytes; traits; the id
    answer = Struct("=iiI4xq").pack(*_OLDEST, 0, state)
    ctypes.memmove(peek(extension + 24) + 24, answer, len(answer))
    return True


def create_error(api: int, message: str) -> int:
    """Returns a new error of XLA's, which belongs to whoever it is returned to."""
    text = ctypes.create_string_buffer(message.encode(errors="replace").replace(b"\0", b"?"))
    # size, extension, message, code: 13 is INTERNAL
    return _ask(api, _ERROR_CREATE, Struct("=QQQi4x").pack(28, 0, ctypes.addressof(text), 13))


def set_state(api: int, context: int, kind: int, state: int) -> int:
    """Gives the handler that is being instantiated a state; returns an error of XLA's, or 0.

    Args:
        api: the table of XLA's functions.
        context: as the frame has it.
        kind: the address of the id of the type of the state.
        state: the address of the state, which the deleter of the type is called on.
    """
    # size, extension, context, stage: 0 is that of instantiating
    return _ask(api, _STATE_SET, Struct("=QQQi4xQQ").pack(48, 0, context, 0, kind, state))


def _ask(api: int, function: int, given: bytes) -> int:
    block = ctypes.create_string_buffer(given)
    found: Any = handler_type(peek(api + function))(ctypes.addressof(block))
    return found or 0
