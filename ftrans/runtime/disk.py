"""Compiled code on disk: what took long to compile is read by the processes that come after.

A file is named by a hash of all that its code depends on: the text that XLA compiles, which
arguments it takes, the releases of JAX and XLA, their settings and flags, and the processor. Files
are written whole or not at all, and read only where they are whole, so that processes may share the
directory; the least recently used give way. What they hold is code that is run, so the directory
must be the user's alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import stat
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.tree_util as tree

from ftrans.config import config, default_cache_dir
from ftrans.runtime.jaxlink import (
    adopt,
    arguments_kept,
    deserialized,
    is_compiled,
    keeps_compiled,
    only_cpu,
    serialized,
    settings_of_xla,
)

LEAST = 0.5
"""So many seconds it must have taken to compile what is kept."""

_MOST = 1 << 30
"""How many bytes a directory may hold."""

_OURS = "[0-9a-f]" * 64 + ".xla"
"""The names of files, beside which there may be what is somebody else's."""

# What XLA's code may call by name in another process: LAPACK, Fourier transforms, XLA's own. All
# else may be Python's, by an address.
_CALLED = re.compile(r'custom_call @"?([\w.$]+)')
_LASTING = ("lapack_", "ducc_fft", "mhlo.", "chlo.")


def first_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of `jax.jit` for the first time: its code may be on disk."""
    if config.compilation_cache_dir is not None and only_cpu() is not None:
        prepare(function, *args, **kwargs)
    return function(*args, **kwargs)


class _Reading(threading.local):
    done = False
    """Whether this thread has read code since somebody has set this to False."""


reading = _Reading()


def prepare(function: Any, *args: Any, **kwargs: Any) -> None:
    """Compiles a function of `jax.jit` for arguments such as these, or only types of them."""
    lowered = function.lower(*args, **kwargs)
    if not is_compiled(lowered):
        adopt(lowered, compiled(lowered, only_cpu()))


def compiled(lowered: Any, device: Any) -> Any:
    """Returns what JAX has lowered for a CPU as compiled code, read from disk where it is there.

    For other devices, whose code is not kept, `device` is None.
    """
    file = _file_of(lowered, device)
    found = None if file is None else _read(file, lowered, device)
    reading.done |= found is not None
    if found is None:
        start = time.perf_counter()
        found = lowered.compile()
        if file is not None and time.perf_counter() - start >= LEAST:
            _write(file, found)
    return found


def _file_of(lowered: Any, device: Any) -> Path | None:
    """Returns where the code of what JAX has lowered is kept; None where it is not."""
    path = config.compilation_cache_dir
    # what JAX's own cache has read cannot be written once more
    if path is None or device is None or keeps_compiled():
        return None
    store, settings, kept = _store(os.fspath(path)), settings_of_xla(), arguments_kept(lowered)
    if store is None or settings is None or kept is None:
        return None
    text = lowered.as_text()
    if not all(name.startswith(_LASTING) for name in _CALLED.findall(text)):
        return None
    types = [tree.tree_leaves(info) for info in (lowered.args_info, lowered.out_info)]
    return store / f"{_key(f'{settings} {kept} {types} {text}', device)}.xla"


def _key(text: str, device: Any) -> str:
    """Returns what is equal for programs of equal text that run alike."""
    settings: Any = jax.config
    parts = (
        *map(version, ("jax", "jaxlib")),
        # those of caches say where code is, not what it is
        *[f"{k}={v}" for k, v in sorted(settings.values.items()) if "cache" not in k],
        f"{device.platform} {device.device_kind} {device.id}",
        _processor(),
        text,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _processor() -> str:
    """Returns what tells machines apart for which XLA makes other code: also for fewer threads."""
    known = [platform.platform(), platform.machine(), platform.processor()]
    affinity = getattr(os, "sched_getaffinity", None)
    count = os.cpu_count() if affinity is None else len(affinity(0))
    known += [f"{count}", *[os.environ.get(name, "") for name in ("NPROC", "PJRT_NPROC")]]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words = ("model name", "flags", "Features", "CPU part")
        known += sorted({line for line in lines if line.startswith(words)})
    return "\n".join(known)


# --------------------------------------------------------------------------------- the directory


@functools.lru_cache(16)
def _store(path: str) -> Path | None:
    """Returns a directory that is there and is the user's alone; None where it is not to be had."""
    asked = path != default_cache_dir()  # else nobody is told of what is wrong with it
    try:
        store = Path(path).expanduser().resolve()
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = store.stat()
    except (OSError, RuntimeError, ValueError) as error:
        if asked:
            _tell(f"{path} cannot be used: {error}", "Name another directory in FTRANS_CACHE_DIR")
        return None
    if hasattr(os, "getuid") and (
        found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        if asked:
            _tell(
                f"{path} is not used, since others may write to it, and it holds code that is run",
                f"Run `chown $USER {path}; chmod 700 {path}`",
            )
        return None
    return store


def _tell(what: str, fix: str) -> None:
    warnings.warn(
        f"ftrans keeps no compiled code on disk: {what}.\n"
        f"  {fix}; or switch it off: ftrans.config.compilation_cache_dir = None, or "
        f'FTRANS_CACHE_DIR="".',
        RuntimeWarning,
        stacklevel=2,
    )


_told: set[tuple[str, Path]] = set()  # what was told of which directories


def _tell_once(kind: str, store: Path, what: str, fix: str) -> None:
    if (kind, store) not in _told:
        _told.add((kind, store))
        _tell(what, fix)


def _read(file: Path, lowered: Any, device: Any) -> Any:
    """Returns the code in a file; None where there is none, or it is not whole."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, data = content[:32], content[32:]
    try:
        if hashlib.sha256(data).digest() != digest:
            raise EOFError("the file is not whole")
        found = deserialized(data, lowered, device)
    except Exception as error:  # whatever unpickling and XLA may raise: it is compiled anew
        _tell_once(
            "damaged",
            file.parent,
            f"a file in {file.parent} is damaged ({type(error).__name__}), and written anew",
            f"Where that happens again, delete {file.parent}",
        )
        with suppress(OSError):
            file.unlink()
        return None
    with suppress(OSError):
        os.utime(file)  # it was used just now
    return found


def _write(file: Path, made: Any) -> None:
    """Keeps code, where it can be kept."""
    try:
        data = serialized(made)
    except Exception:  # whatever JAX raises of what is for this process alone, as captured arrays
        return
    store, scratch = file.parent, None
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been deleted
        with tempfile.NamedTemporaryFile(dir=store, prefix="ftrans-", delete=False) as scratch:
            scratch.write(hashlib.sha256(data).digest() + data)
        os.replace(scratch.name, file)
        _make_room(store)
    except OSError as error:
        _tell_once("full", store, f"{store} cannot be written to: {error}", "Make room there")
    finally:
        if scratch is not None:
            with suppress(OSError):  # which it is most often: it has become the file
                os.unlink(scratch.name)


def _make_room(store: Path) -> None:
    """Deletes the files that were not used for longest, where there is more than may be."""
    found = []
    for file in store.glob(_OURS):
        with suppress(OSError):  # another process has deleted it
            known = file.stat()
            found.append((known.st_mtime, known.st_size, file))
    total = sum(size for _, size, _ in found)
    for _, size, file in sorted(found):
        if total <= _MOST:
            break
        with suppress(OSError):
            file.unlink()
        total -= size
