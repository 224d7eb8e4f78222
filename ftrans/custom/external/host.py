"""Python functions on arrays as callees: run at once, called from compiled code, batched.

Un-jitted, the function is called on the arrays as they are. Compiled code calls it by the FFI
handler, or by `jax.pure_callback` where that handler does not work. What it returns is held against
the declared types at each call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np

from ftrans.config import config
from ftrans.custom.external.batching import by_rule, expanded, moved, repeated, ruled
from ftrans.custom.external.handler import TARGET, message_of, usable
from ftrans.custom.external.layout import CODES
from ftrans.custom.external.lifetime import issue
from ftrans.custom.external.results import results
from ftrans.ir import ArrayType
from ftrans.ir.stack import state
from ftrans.primitives.external import Callee, external_p

__all__ = ["METHODS", "HostCallee"]

METHODS = ("sequential", "expand_dims", "broadcast_all")
"""The words that say how a callee takes a batch."""

_READ_ONLY = (
    "ftrans: the arrays that {name} is given are read-only, since others read them as well.\n"
    "Write into a copy instead, b = a.copy(), or return a new array."
)


class HostCallee(Callee):
    """Is a Python function on arrays.

    Args:
        name: how errors and the text of programs call it.
        function: takes arrays, of NumPy or JAX, and returns a sequence of arrays. It must not have
            effects, as it may be called more or less often than it is written.
        types: the types of the results.
        key: what stands for the function, and for a rule in `vmap_method`, when two callees are
            compared; None compares the functions themselves.
        vmap_method: how a batch is computed: "sequential" loops over it in one call; "expand_dims"
            and "broadcast_all" call the function once, on arrays with a further axis in front,
            which has size 1, or that of the batch, where an operand is not mapped; a rule,
            `(axis_size, in_batched, *args) -> (outs, outs_batched)`, is recorded with traced
            values. None loops, with one warning.
        copies: whether the function is given arrays of its own, to write to.
    """

    is_host = True

    def __init__(
        self,
        name: str,
        function: Callable[..., Sequence[Any]],
        types: Sequence[ArrayType],
        *,
        key: Hashable = None,
        vmap_method: str | Callable[..., Any] | None = "sequential",
        copies: bool = False,
    ):
        self.name = name
        self.function = function
        self.types = types = tuple(types)
        self.vmap_method = vmap_method
        self.copies = copies
        if key is None:
            # the callee keeps both alive, and so their identities to itself
            method = vmap_method if type(vmap_method) is str else id(vmap_method)
            self.identity: Any = (name, ("id", id(function)), types, method, copies)
        else:
            method = vmap_method if type(vmap_method) is str else vmap_method is None
            self.identity = (name, key, types, method, copies)
        self._hash = hash(self.identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is type(self)
            and self._hash == other._hash
            and self.identity == other.identity
        )

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for arrays of NumPy or JAX."""
        return self.call([_view(array) for array in arrays], self.types)

    def call(self, arrays: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
        """Calls the function on arrays that nobody can write to.

        Args:
            arrays: the arguments.
            types: the types of the results: those declared, but in a batch of JAX's.
        """
        if self.copies:
            arrays = [np.array(array) for array in arrays]
        stack = state.stack
        if stack:
            return self._untraced(arrays, types)
        try:
            return results(self.name, self.function(*arrays), types)
        except ValueError as error:
            self._explain(error)
            raise

    def _untraced(self, arrays: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
        """Calls the function as outside of all that is traced at present."""
        before = state.stack, state.place, state.trail, state.began
        state.stack, state.place, state.trail, state.began = [], None, None, None
        try:
            return self.call(arrays, types)
        finally:
            state.stack, state.place, state.trail, state.began = before

    def _explain(self, error: ValueError) -> None:
        if "read-only" in str(error) and not self.copies:
            error.add_note(_READ_ONLY.format(name=self.name))

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for values that JAX traces."""
        if not callable(self.vmap_method):
            return self._lowered(arrays, self.vmap_method or "sequential")
        return by_rule(self, arrays, lambda *given: self._lowered(given, "sequential"))

    def _lowered(self, arrays: Sequence[Any], method: str) -> Sequence[Any]:
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in self.types]
        ranks = [array.ndim for array in arrays]

        def by_ffi(*given: Any) -> Sequence[Any]:
            call: Any = jax.ffi.ffi_call(TARGET, specs, vmap_method=method)
            return call(*given, ticket=issue(self))

        def by_callback(*given: Any) -> Sequence[Any]:
            def body(*concrete: Any) -> Sequence[Any]:
                try:
                    given = [_view(np.asarray(array)) for array in concrete]
                    found = self.call(given, _batched_types(given, ranks, self.types))
                    return [np.asarray(array) for array in found]
                except BaseException as error:
                    raise RuntimeError(message_of(error)) from None

            return jax.pure_callback(body, specs, *given, vmap_method=method)

        road = config.host_calls
        known = all(np.dtype(x.dtype) in CODES for x in (*arrays, *specs))
        if road == "callback" or not (known and usable()):
            return by_callback(*arrays)
        if road == "ffi" or jax.default_backend() == "cpu":
            return by_ffi(*arrays)
        return jax.lax.platform_dependent(*arrays, cpu=by_ffi, default=by_callback)

    def batch(
        self, size: int, operands: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        """Records the call for many examples at once."""
        method = self.vmap_method
        if callable(method):
            return ruled(self.name, method, self.types, size, operands, dims)
        if method is None:
            self._warn(size)
        if method in ("expand_dims", "broadcast_all"):
            align = repeated if method == "broadcast_all" else expanded
            callee = self._batched(size, self.function, method, self.identity[1])
            outs = external_p(*align(size, operands, dims), callee=callee)
        else:
            mapped = tuple(dim is not None for dim in dims)
            loop = _Loop(self, size, mapped)
            callee = self._batched(size, loop, "sequential", ("loop", size, mapped, self.identity))
            outs = external_p(*moved(operands, dims), callee=callee)
        return outs, [0] * len(outs)

    def _batched(self, size: int, function: Any, method: str | None, key: Hashable) -> HostCallee:
        types = [t.update(shape=(size, *t.shape)) for t in self.types]
        return type(self)(
            self.name, function, types, key=key, vmap_method=method, copies=self.copies
        )

    def _warn(self, size: int) -> None:
        key = self.name, self.identity[1]
        if key in _warned:
            return
        if len(_warned) >= 4096:
            _warned.clear()
        _warned.add(key)
        warnings.warn(
            f"{self.name}: vmap calls it {size} times, once for each example, since it does not "
            f"say how it takes a batch.\n"
            f'  Write vmap_method="broadcast_all" where it takes arrays with one more axis in\n'
            f'  front, or vmap_method="sequential" where a loop is meant.',
            RuntimeWarning,
            stacklevel=2,
        )

    def missing(self, rule: str) -> str:
        """Returns the error that says that a rule is missing."""
        types = ", ".join(map(str, self.types))
        how = (
            "jvp=lambda primals, tangents: (out, tangent_out), or vjp=(fwd, bwd)"
            if rule == "jvp"
            else "transpose=lambda ct: cotangent, where it is linear"
        )
        return (
            f"{self.name}: it has no derivative, since it is not traced ({rule}).\n"
            f"  returns: {types}\n"
            f"  Give ftrans.external a rule: {how}."
        )


_warned: set[Any] = set()
"""The callees whose loops the user was told of."""


class _Loop:
    """Calls a callee for one example after the other."""

    def __init__(self, callee: HostCallee, size: int, mapped: Sequence[bool]):
        self.callee = callee
        self.size = size
        self.mapped = mapped

    def __call__(self, *arrays: Any) -> list[Any]:
        callee, mapped = self.callee, self.mapped
        given = [np.asarray(a) if m else a for a, m in zip(arrays, mapped, strict=True)]
        outs = [np.empty((self.size, *t.shape), t.dtype) for t in callee.types]
        for i in range(self.size):
            # an element is an array as well where it is a scalar
            one = [a[i, ...] if m else a for a, m in zip(given, mapped, strict=True)]
            for out, found in zip(outs, callee.call(one, callee.types), strict=True):
                out[i] = found
        return outs


def _view(array: Any) -> Any:
    """Returns an array that cannot be written to, over the same memory."""
    if type(array) is np.ndarray:
        array = array[...]
        array.setflags(False)
        return array
    return array if isinstance(array, jax.Array) else np.asarray(array)


def _batched_types(
    arrays: Sequence[np.ndarray], ranks: Sequence[int], types: Sequence[ArrayType]
) -> list[ArrayType]:
    """Returns the types of the results where JAX has put axes in front of the arguments."""
    fronts = [a.shape[: a.ndim - rank] for a, rank in zip(arrays, ranks, strict=True)]
    front = np.broadcast_shapes(*fronts)
    return [t.update(shape=(*front, *t.shape)) for t in types]
