"""All that ftrans asks of JAX that JAX does not promise, checked when it is imported."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ftrans.errors import FtransError
from ftrans.ir.dtype import NUMERIC
from ftrans.primitives.namespace import is_traced_by_jax, unseen
from ftrans.primitives.outside import Scope
from ftrans.runtime.native import interrupts

for _owner, _name in ((jax, "enable_x64"), (jax, "Array"), (jax.core, "Tracer")):
    if not hasattr(_owner, _name):
        raise FtransError(
            f"This release of JAX, {jax.__version__}, has no {_owner.__name__}.{_name}; "
            f"ftrans needs JAX 0.10 or later."
        )


def x64(calls: bool = False) -> AbstractContextManager[Any]:
    """Returns the scope in which JAX keeps float64; the user's configuration stays as it is.

    Args:
        calls: whether functions of users may run in it.
    """
    wide = functools.partial(precision, True)
    return _Calling(wide, reusable_x64()) if calls else wide()


def precision(wide: bool) -> AbstractContextManager[Any]:
    """Returns the scope in which JAX keeps float64, or does not."""
    return jax.enable_x64(wide)


class _Calling(Scope):
    """Puts interrupts off, besides, where compiled code calls Python that would lose them."""

    __slots__ = ("_patient",)

    def __enter__(self) -> None:
        super().__enter__()
        self._patient = interrupts.begin()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        interrupts.end(self._patient)


@functools.cache
def reusable_x64() -> bool:
    """Tells whether one scope may be entered again after it was left."""
    scope = precision(True)
    try:
        for _ in range(2):
            with scope:
                pass
    except Exception:  # whatever a context manager for one use raises
        return False
    return True


def is_key(x: Any) -> bool:
    """Tells whether a value of JAX's, or the type of one, is one or more keys of random numbers."""
    dtype = getattr(x, "dtype", bool)
    return not isinstance(dtype, np.dtype) and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def words(x: Any) -> Any:
    """Returns the words of one or more keys of random numbers; anything else as it is."""
    return jax.random.key_data(x) if is_key(x) else x


def is_jax(value: Any) -> bool:
    """Tells whether a value is a `jax.Array`, one that JAX is tracing included."""
    return isinstance(value, jax.Array)


CONCRETE: set[type] = set()
"""The classes of concrete arrays of JAX that were seen: to ask for one is fast."""


def is_concrete(value: Any) -> bool:
    """Tells whether a value is a `jax.Array` that JAX is not tracing."""
    kind = type(value)
    if kind in CONCRETE:
        return True
    if kind is np.ndarray or not is_jax(value) or is_traced_by_jax(value):
        return False
    CONCRETE.add(kind)
    return True


def is_jax_tracing() -> bool:
    """Tells whether a transformation of JAX is under way in this thread."""
    return _trace_state()() != _outside()


@functools.cache
def _trace_state() -> Any:
    # not with this module: `jax.extend` imports Pallas, which takes a fifth of the import of ftrans
    from jax.extend.core import get_opaque_trace_state

    return get_opaque_trace_state


@functools.cache
def _outside() -> Any:
    """Returns the state of JAX where it traces nothing, which is that of a new thread."""
    found: list[Any] = []
    state = _trace_state()
    thread = threading.Thread(target=lambda: found.append(state()))
    thread.start()
    thread.join()
    return found[0]


def settings_of_jax() -> tuple[Any, ...]:
    """Returns what JAX's functions are traced by, beside their arguments."""
    config: Any = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_matmul_precision,
        config.jax_numpy_dtype_promotion,
        config.jax_numpy_rank_promotion,
        config.jax_threefry_partitionable,
        jax.sharding.get_abstract_mesh(),
    )


def run_jaxpr(jaxpr: Any, consts: Any, arrays: Any) -> Any:
    """Returns the outputs of a jaxpr of `jax.make_jaxpr`, a sequence."""
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun  # see above

    return jaxpr_as_fun(ClosedJaxpr(jaxpr, consts))(*arrays)


def on_cpu(values: Any) -> bool:
    """Tells whether all `jax.Array`s among the values lie on the CPU that NumPy stands for.

    That is the first one; where JAX was told to split the host, others are devices like any.
    """
    return all(map(_on_first_cpu, {v.sharding for v in values if is_jax(v)}))


@functools.lru_cache(256)
def _on_first_cpu(sharding: Any) -> bool:
    return sharding.device_set == {_first_cpu()}


@functools.cache
def _first_cpu() -> Any:
    return jax.local_devices(backend="cpu")[0]


def arguments_kept(lowered: Any) -> list[int] | None:
    """Returns which arguments the code takes that JAX has lowered; the others are not used.

    None where it holds what is of this process alone, and where this release does not say.
    """
    try:
        known = lowered._lowering.compile_args
        local = known["host_callbacks"], known["keepalive"], known["mut"]
        return None if any(local) else sorted(known["kept_var_idx"])
    except (AttributeError, KeyError, TypeError):
        return None


def settings_of_xla() -> str | None:
    """Returns what XLA compiles by, as its flags are in force; None where it does not say."""
    try:
        from jaxlib.xla_client import CompileOptions

        return CompileOptions().SerializeAsString().hex()
    except Exception:  # whatever a JAX that we have not seen may raise
        return None


def keeps_compiled() -> bool:
    """Tells whether JAX has a cache on disk of its own."""
    settings: Any = jax.config
    return bool(settings.jax_enable_compilation_cache and settings.jax_compilation_cache_dir)


def is_compiled(lowered: Any) -> bool:
    """Tells whether a function of `jax.jit` that was lowered has compiled that before."""
    return getattr(getattr(lowered, "_lowering", None), "_executable", None) is not None


def serialized(code: Any) -> bytes:
    """Returns compiled code as bytes; raises what JAX raises where it is for this process alone."""
    from jax.experimental import serialize_executable  # which takes its time

    return serialize_executable.serialize(code)[0]


def deserialized(data: bytes, lowered: Any, device: Any) -> Any:
    """Returns code from what `serialized` returned for what was lowered alike: trust the bytes."""
    from jax.experimental import serialize_executable  # see above

    # structures of arguments and results are those of the caller
    structures = jax.tree.structure(lowered.args_info), lowered.out_tree
    return serialize_executable.deserialize_and_load(
        data, *structures, backend=device.client, execution_devices=[device]
    )


def adopt(lowered: Any, code: Any) -> None:
    """Has the function of `jax.jit` that was lowered run code, in the place of compiling it.

    Where this release keeps what is compiled elsewhere, the function compiles by itself.
    """
    computation = getattr(lowered, "_lowering", None)
    if getattr(computation, "_executable", code) is None:
        computation._executable = getattr(code, "_executable", None)  # type: ignore[union-attr]


@functools.cache
def only_cpu() -> Any:
    """Returns the one device that JAX has, where that is a CPU; else None."""
    devices = jax.devices()
    return devices[0] if len(devices) == 1 and devices[0].platform == "cpu" else None


@functools.cache
def host_sharding() -> Any:
    """Returns where programs on NumPy arrays run: on the CPU, in the thread that calls them.

    JAX's own client of the CPU hands a program of more than a thousand operations to another
    thread: to wake that takes 20 microseconds, and on a busy machine hundreds. This is a second
    client, which does not; JAX counts it as another device, so what it returns is read at once.

    Returns:
        The sharding to compile for; None where JAX computes on an accelerator, which NumPy arrays
        then go to, and where this release makes no such client.
    """
    if jax.default_backend() != "cpu":
        return None
    try:
        from jaxlib.xla_client import make_cpu_client

        client = make_cpu_client(asynchronous=False, num_devices=1)
        return jax.sharding.SingleDeviceSharding(client.local_devices()[0])
    except Exception:  # whatever a JAX that we have not seen may raise: its own client is there
        return None


def to_jax(array: Any) -> jax.Array:
    """Copies a NumPy array to JAX's default device; call it within `x64()`."""
    put = _put_on_host()
    settings: Any = jax.config
    if put is None or settings.jax_default_device is not None:
        return jnp.array(unseen(array), copy=True)
    return put(_aval(array.shape, array.dtype), array)


def host_view(x: Any, most: int) -> np.ndarray | None:
    """Returns a concrete array of JAX's as one of NumPy's, whose results `to_jax` hands back.

    None where it has more elements than that, or is no array of plain numbers in the memory that
    NumPy reads; and where results lie elsewhere.
    """
    if x.size > most or x.dtype not in NUMERIC or x.weak_type or not _on_first_cpu(x.sharding):
        return None
    settings: Any = jax.config
    stays = _put_on_host() is not None and settings.jax_default_device is None
    return np.asarray(x) if stays else None


@functools.cache
def _put_on_host() -> Any:
    """Returns what `jnp.array` comes to on a CPU, a fifth of its time.

    None where JAX computes elsewhere, and where this release has no such function.
    """
    if jax.default_backend() != "cpu":
        return None
    try:
        from jaxlib.xla_client import batched_device_put

        device = _first_cpu()
        sharding = jax.sharding.SingleDeviceSharding(device)

        def put(aval: Any, array: Any) -> Any:
            return batched_device_put(aval, sharding, [array], [device], False, True)

        tried = np.arange(2.0)
        with x64():
            made = put(_aval(tried.shape, tried.dtype), tried)
        return put if is_jax(made) and np.array_equal(made, tried) else None
    except Exception:  # whatever a JAX that we have not seen may raise: `jnp.array` is there
        return None


@functools.lru_cache(4096)
def _aval(shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns JAX's type of an array; what asks is within `x64()`."""
    return jax.typeof(np.broadcast_to(np.zeros((), dtype), shape))


def foreign(values: Any) -> bool:
    """Tells whether any of the values is traced by JAX."""
    return any(map(is_traced_by_jax, values))


def has_started() -> bool:
    """Tells whether JAX has a client of XLA's, whose threads a fork lacks; if in doubt, it has."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    ask = getattr(bridge, "backends_are_initialized", None)
    return True if ask is None else bool(ask())
