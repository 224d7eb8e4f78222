"""Python functions on arrays as callees: run at once, called from compiled code, batched.

Un-jitted, the function is called on the arrays as they are. Compiled code calls it by the FFI
handler, or by `jax.pure_callback` where that handler does not work. What it returns is held against
the declared types at each call.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftrans.config import config
from ftrans.external.arrays import plain, results
from ftrans.external.shards import by_shard
from ftrans.ir import ArrayType, Literal, type_of
from ftrans.ir.location import here
from ftrans.ir.stack import apart, state
from ftrans.primitives.axes import expand, moveaxis
from ftrans.primitives.namespace import without_derivative
from ftrans.primitives.outside import call_of_the_user
from ftrans.primitives.rules.external import Callee, Same, external_p
from ftrans.primitives.rules.missing import raise_missing
from ftrans.primitives.shape import reshape_p
from ftrans.runtime import native
from ftrans.runtime.cache import Remembered
from ftrans.runtime.faults import keep_raised
from ftrans.runtime.jaxlink import is_jax

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
        function: takes arrays, as `plain` makes them, and returns a sequence of arrays. It must not
            have effects, as it may be called more or less often than it is written.
        types: the types of the results.
        key: what stands for the function when two callees are compared; None compares the functions
            themselves.
        vmap_method: how a batch is computed: "sequential" loops over it in one call; "expand_dims"
            and "broadcast_all" call the function once, on arrays with a further axis in front,
            which has size 1, or that of the batch, where an operand is not mapped. None loops, with
            one warning.
        copies: whether the function is given arrays of its own, to write to.
    """

    calls_host = True
    single: tuple[HostCallee, tuple[bool, ...] | None] | None = None
    """What it is a batch of, and which operands that loops over, as for `batched`."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Sequence[Any]],
        types: Sequence[ArrayType],
        *,
        key: Hashable = None,
        vmap_method: str | None = "sequential",
        copies: bool = False,
    ):
        self.function = function
        self.function_key = Same(function) if key is None else key
        self.vmap_method = vmap_method
        self.copies = copies
        super().__init__(name, types, (self.function_key, vmap_method, copies))

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for arrays of NumPy or JAX.

        A batch that lies on several devices is called part by part, and all else as a whole.
        """
        if self.single is not None and any(map(is_jax, arrays)):
            one, mapped = self.single

            def part(size: int, given: list[Any]) -> Sequence[Any]:
                callee = one.batched(size, list(map(type_of, given)), mapped)
                return callee.call(list(map(plain, given)), callee.types)

            found = by_shard(arrays, mapped or [True] * len(arrays), self.types, part)
            if found is not None:
                return found
        return self.call([plain(array) for array in arrays], self.types)

    def call(
        self, arrays: Sequence[Any], types: Sequence[ArrayType], shared: bool = False
    ) -> list[Any]:
        """Calls the function on arrays that nobody can write to.

        Args:
            arrays: the arguments.
            types: the types of the results: those declared, but in a batch of JAX's.
            shared: whether the results may share memory, as where they are copied at once.
        """
        if state.stack:
            # what the function computes is not part of what is traced at present
            with apart():
                return self.call(arrays, types, shared)
        if self.copies:
            arrays = [np.array(array) for array in arrays]
        try:
            return results(self.name, call_of_the_user(self.function, arrays), types, shared)
        except ValueError as error:
            if "read-only" in str(error) and not self.copies:
                error.add_note(_READ_ONLY.format(name=self.name))
            raise

    def lower(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Returns the results for values that JAX traces."""

        def called(*given: Any) -> Sequence[Any]:
            given = tuple(map(jnp.asarray, given))
            takes = config.host_calls != "callback" and native.takes((*given, *self.types))
            if not takes or native.failure():
                return tuple(self._by_callback(*given))
            if jax.default_backend() == "cpu":
                return tuple(self.by_ffi(*given))
            roads = {"cpu": self.by_ffi, "default": self._by_callback}
            return tuple(jax.lax.platform_dependent(*given, **roads))

        return without_derivative(called, arrays, lambda: raise_missing(self.missing("jvp")))

    def by_ffi(self, *given: Any) -> Sequence[Any]:
        """Records the call by an FFI handler, which works on the CPU."""
        return native.call(self, given, self.types, vmap_method=self.vmap_method or "sequential")

    def _by_callback(self, *given: Any) -> Sequence[Any]:
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in self.types]
        ranks = [array.ndim for array in given]

        def body(*concrete: Any) -> Sequence[Any]:
            try:
                arrays = [plain(np.asarray(array)) for array in concrete]
                # JAX may have put axes in front
                pairs = zip(arrays, ranks, strict=True)
                front = np.broadcast_shapes(*(a.shape[: a.ndim - rank] for a, rank in pairs))
                types = [t.update(shape=(*front, *t.shape)) for t in self.types]
                return [np.asarray(array) for array in self.call(arrays, types)]
            except BaseException as error:
                raise RuntimeError(keep_raised(error)) from None

        return jax.pure_callback(body, specs, *given, vmap_method=self.vmap_method or "sequential")

    def batch(
        self, size: int, operands: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        """Records the call for many examples at once."""
        method = self.vmap_method
        if method is None:
            self.warn(size)
        mapped = tuple(dim is not None for dim in dims)
        pairs = zip(operands, dims, strict=True)
        given = [x if dim is None else moveaxis(x, dim, 0) for x, dim in pairs]
        loops = method not in ("expand_dims", "broadcast_all")
        if not loops:
            widen = _expanded if method == "expand_dims" else lambda x: expand(x, size)
            given = [x if m else widen(x) for x, m in zip(given, mapped, strict=True)]
        callee = self.batched(size, [type_of(x) for x in given], mapped if loops else None)
        outs = external_p(*given, callee=callee)
        return outs, [0] * len(outs)

    def batched(
        self, size: int, inputs: Sequence[ArrayType], mapped: tuple[bool, ...] | None
    ) -> HostCallee:
        """Returns the callee for a batch.

        Args:
            size: that of the batch.
            inputs: the types of the operands.
            mapped: which operands it loops over; None where it calls the same function once.
        """
        types = [t.update(shape=(size, *t.shape)) for t in self.types]
        if mapped is None:
            function, key, method = self.function, self.function_key, self.vmap_method
        else:
            function = functools.partial(_looped, self, size, mapped)
            key, method = ("loop", size, mapped, self.key), "sequential"
        made = type(self)(
            self.name, function, types, key=key, vmap_method=method, copies=self.copies
        )
        made.single = self, mapped
        return made

    def warn(self, size: int) -> None:
        """Warns once that a batch is computed in a loop."""
        self.warn_once(
            "batch",
            f"{self.name}: vmap calls it {size} times, once for each example, since it does not "
            f"say how it takes a batch.\n"
            f'  Write vmap_method="broadcast_all" where it takes arrays with one more axis in\n'
            f'  front, or vmap_method="sequential" where a loop is meant.',
        )

    def warn_once(self, about: str, text: str) -> None:
        """Warns, but not twice about the same of one function."""
        key = self.name, self.function_key, about
        if key in _warned:
            return
        _warned.find(key, lambda: True)
        place = here()
        if place is None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            warnings.warn_explicit(text, RuntimeWarning, place.filename, place.line)

    def missing(self, rule: str) -> str:
        """Returns the error that says that a rule is missing."""
        types = ", ".join(map(str, self.types))
        how = (
            "vjp=lambda primals, out, ct: cotangents,\n"
            "  or jvp=lambda primals, tangents: (out, tangent_out)"
            if rule == "jvp"
            else "transpose=lambda ct: cotangent, where it is linear"
        )
        return (
            f"{self.name}: it has no derivative, since it is not traced ({rule}).\n"
            f"  returns: {types}\n"
            f"  Give ftrans.external a rule: {how}."
        )


_warned = Remembered(256)
"""The functions whose loops the user was told of."""


def _expanded(x: Any) -> Any:
    """Returns an operand with an axis of size 1 in front, which costs less than `expand`."""
    if isinstance(x, Literal):
        return expand(x, 1)
    return reshape_p(x, shape=(1, *type_of(x).shape))


def _looped(
    callee: HostCallee, size: int, mapped: Sequence[bool], *arrays: Any
) -> list[np.ndarray]:
    """Calls a callee for one example after the other."""
    given = [np.asarray(a) if m else a for a, m in zip(arrays, mapped, strict=True)]
    outs = [np.empty((size, *t.shape), t.dtype) for t in callee.types]
    for i in range(size):
        # an element is an array as well where it is a scalar
        one = [a[i, ...] if m else a for a, m in zip(given, mapped, strict=True)]
        for out, found in zip(outs, callee.call(one, callee.types), strict=True):
            out[i] = found
    return outs
