"""Lets functions that do the same share what is compiled for them, as when a cell is run again.

A `Code` is one function under `jax.jit` with a record of the program for each signature; it never
runs Python of the user's. Whoever uses it has verified, by tracing its own function, that it gives
the program on record. Only who has verified all records may call without asking first.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.tree_util as tree
import numpy as np

from ftrans.config import config
from ftrans.ir import Program
from ftrans.pytree import Skeleton
from ftrans.runtime.cache import on_clear
from ftrans.runtime.jaxlink import is_jax
from ftrans.runtime.lower import lower

_LIMIT = 256
"""How many records can be found by functions to come."""
_LARGE = 1 << 24
"""A record whose function closes over more bytes than this is not kept for functions to come."""


class Unknown(Exception):
    """Says that a signature is not on record."""


class Record(NamedTuple):
    """Says what a function does at one signature.

    Attributes:
        program: its inputs are the arrays among the arguments, then those captured.
        captured: the arrays that the function closes over, which nobody can write to.
        outputs: how the outputs of the program make the result.
    """

    program: Program
    captured: list[Any]
    outputs: Skeleton

    def same(self, other: Record) -> bool:
        """Tells whether two records do the same with the same arrays."""
        return (
            self.program == other.program
            and self.outputs == other.outputs
            and _same_structure(self.outputs.structure, other.outputs.structure)
            and all(map(_same_array, self.captured, other.captured))
        )


def _same_structure(x: Any, y: Any) -> bool:
    """Tells whether equal structures hold the same static data: 1 and True are equal, too."""
    (kind, data), (_, other) = x.node_data() or (None, None), y.node_data() or (None, None)
    if kind is None:
        return True
    return _same_data(data, other) and all(map(_same_structure, x.children(), y.children()))


def _same_data(x: Any, y: Any) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(_same_data, x, y))
    if isinstance(x, (float, complex)):
        return repr(x) == repr(y)
    return True  # as parts of equal structures they are equal


def _same_array(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        # by their bits: NaN is equal to itself, and 0.0 differs from -0.0
        return x is y or np.array_equal(_bits(x), _bits(y))
    return x is y


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


class Code:
    """Is one function under `jax.jit` that serves functions which do the same.

    Args:
        name: the name that JAX shows.
        signature: that of the user's function, by which JAX tells its arguments; or None.
        analyse: `(args, kwargs) -> signature, arrays`, of arguments that JAX traces too.
        options: those of `jax.jit`.
    """

    def __init__(
        self, name: str, signature: Any, analyse: Callable[..., Any], options: dict[str, Any]
    ):
        self.records: dict[Any, Record] = {}
        self.users: weakref.WeakSet[User] = weakref.WeakSet()
        self.calls_host = False
        records = self.records

        def lowered(*args: Any, **kwargs: Any) -> Any:
            key, arrays = analyse(args, kwargs)
            record = records.get(key)
            if record is None:
                raise Unknown
            return record.outputs.build(lower(record.program, [*arrays, *record.captured]))

        lowered.__name__ = lowered.__qualname__ = name
        if signature is not None:
            lowered.__signature__ = signature  # type: ignore[attr-defined]
        self.call = jax.jit(lowered, **options)


class User:
    """Is what one jitted function knows of the code that it uses.

    Attributes:
        code: the code; None at first.
        verified: the signatures at which the function is known to do what the code does.
        direct: what may be called without asking, since all records of the code are verified.
        asks: whether it always asks, as arguments have to be prepared for JAX.
        integers: whether it was ever given Python integers, whose size is to be looked at.
        default_dtype: the one under which the function was verified.
    """

    __slots__ = ("__weakref__", "asks", "code", "default_dtype", "direct", "integers", "verified")

    def __init__(self) -> None:
        self.code: Code | None = None
        self.verified: set[Any] = set()
        self.direct: Callable[..., Any] | None = None
        self.asks = False
        self.integers = False
        self.default_dtype = config.default_dtype


_codes: OrderedDict[Any, Code] = OrderedDict()
"""By everything in a record but what is captured, and by name and options."""
_lock = threading.RLock()


def join(
    user: User, options: Any, signature: Any, record: Record, make: Callable[[], Code]
) -> Code:
    """Puts a record of a user's where it belongs, and returns the code that has it.

    Args:
        user: whose function gave the record.
        options: name and options of the function, hashable; None keeps it to itself.
        signature: at which it gave it.
        record: what it does there.
        make: makes new code.
    """
    key = None if options is None else (options, signature, record.program.structure)
    with _lock:
        code = user.code
        if code is not None:
            known = code.records.get(signature)
            if known is not None and not known.same(record):
                # the function does not do what others do that share the code
                leave(user)
                code = None
        if code is None:
            code = _found(key, signature, record) or make()
            user.code = code
        if signature not in code.records:
            code.records[signature] = record
            code.calls_host = code.calls_host or record.program.calls_host
            for other in list(code.users):
                if other is not user:
                    other.direct = None
                    code.users.discard(other)
        user.verified.add(signature)
        if len(user.verified) == len(code.records) and not user.asks:
            user.direct = code.call
            code.users.add(user)
        if key is not None and sum(x.nbytes for x in record.captured) <= _LARGE:
            _codes[key] = code
            _codes.move_to_end(key)
            while len(_codes) > _LIMIT:
                _codes.popitem(last=False)
        return code


def verified_code(user: User, signature: Any) -> Code | None:
    """Returns the code of a user where it is known to do what the user's function does."""
    with _lock:
        return user.code if signature in user.verified else None


def _found(key: Any, signature: Any, record: Record) -> Code | None:
    """Returns code that others made and that does the same at this signature."""
    try:
        code = None if key is None else _codes.get(key)
    except TypeError:
        return None
    if code is None or not code.records[signature].same(record):
        return None
    return code


def leave(user: User) -> None:
    """Parts a user from its code."""
    with _lock:
        if user.code is not None:
            user.code.users.discard(user)
        user.code = user.direct = None
        user.verified = set()


def renew(user: User) -> None:
    """Has a user verify anew what its function does, since the default dtype is another one."""
    with _lock:
        leave(user)
        user.default_dtype = config.default_dtype


def forget(code: Code | None) -> None:
    """Keeps functions to come from finding code."""
    with _lock:
        for key in [key for key, value in _codes.items() if value is code]:
            del _codes[key]


def clear() -> None:
    """Forgets all code for functions to come; those that use it keep it."""
    with _lock:
        _codes.clear()


def frozen(arrays: Sequence[Any]) -> list[Any]:
    """Returns arrays that nobody can write to: those of JAX as they are, copies of others."""
    return [x if is_jax(x) else _copy(x) for x in arrays]


def _copy(array: Any) -> np.ndarray:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def options_key(name: str, options: dict[str, Any]) -> Any:
    """Returns name and options as one key; None where an option cannot be hashed."""
    found = []
    for option, value in sorted(options.items()):
        leaves, structure = tree.tree_flatten(value, is_leaf=lambda x: x is None)
        found.append((option, tuple(leaves), structure))
    try:
        hash(key := (name, tuple(found)))
    except TypeError:
        return None
    return key


on_clear(clear)
