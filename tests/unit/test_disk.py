"""Compiled code on disk: the next process reads it, and no fault of a disk is one of a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ftrans
from ftrans import func
from ftrans import numpy as fnp
from ftrans.config import config
from ftrans.runtime import disk
from tests.helpers import assert_close

X = np.linspace(0.1, 1.0, 7)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Has all that is compiled kept in a directory, however quickly it was."""
    monkeypatch.setattr(disk, "LEAST", 0.0)
    config.execution = "compile"
    config.compilation_cache_dir = tmp_path / "store"
    disk._store.cache_clear()
    disk._told.clear()
    yield tmp_path / "store"
    ftrans.cache_clear()


def total(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * fnp.linalg.norm(x) + fnp.fft.fft(x).real)


def slope() -> Any:
    """Returns a gradient that is compiled, or read, by a process that knows of none."""
    ftrans.cache_clear()
    return func.grad(total)(X)


def expected(x: Any) -> Any:
    """Returns the gradient; the sum over all frequencies is the first element, n times."""
    norm = np.linalg.norm(x)
    return np.cos(x) * norm + np.sin(x).sum() * x / norm + len(x) * (np.arange(len(x)) == 0)


EXPECTED = expected(X)


def files(store: Path) -> list[Path]:
    return sorted(store.glob("*.xla"))


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists what JAX compiles."""
    names: list[str] = []
    compile_ = jax.stages.Lowered.compile

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        names.append("compiled")
        return compile_(self, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    return names


ROADS = {
    "numpy": lambda x: func.grad(total)(x),
    "jax": lambda x: func.grad(total)(jnp.asarray(x)),
    "jit": lambda x: ftrans.jit(func.grad(total))(x),
    "jit of arrays of jax": lambda x: ftrans.jit(func.grad(total))(jnp.asarray(x)),
}


@pytest.mark.parametrize("road", ROADS)
def test_what_is_on_disk_is_not_compiled(road: str, store: Path, compiling: list[str]) -> None:
    x = X.astype("float32")
    first = ROADS[road](x)
    assert compiling
    assert files(store)
    compiling.clear()
    ftrans.cache_clear()
    second = ROADS[road](x)
    assert not compiling
    assert type(second) is type(first)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_allclose(second, expected(x), 1e-5)
    ftrans.cache_clear()
    np.testing.assert_allclose(ROADS[road](2 * x[:3]), expected(2 * x[:3]), 1e-5)
    assert compiling


SCRIPT = """
import sys, time, warnings
import jax, numpy as np, ftrans
from ftrans import func, numpy as fnp
from ftrans.runtime import disk
warnings.simplefilter("error")
disk.LEAST = 0.0
ftrans.config.execution = "compile"
compiled = []
before = jax.stages.Lowered.compile
jax.stages.Lowered.compile = lambda self, *a, **k: compiled.append(0) or before(self, *a, **k)
x = np.linspace(0.1, 1.0, 7)
found = func.hessian(lambda x: fnp.sum(fnp.sin(x) ** 3) + fnp.linalg.det(fnp.outer(x, x)))(x)
print(len(compiled), found.tobytes().hex())
"""


def session(store: Path | str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "FTRANS_CACHE_DIR": str(store), **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = session(tmp_path / "store"), session(tmp_path / "store")
    assert int(first[0])
    assert not int(second[0])
    assert first[1] == second[1]
    # other flags, other code
    assert int(session(tmp_path / "store", XLA_FLAGS="--xla_cpu_prefer_vector_width=128")[0])
    assert len(files(tmp_path / "store")) == 2
    # on several devices an array of JAX's may lie on any
    many = session(tmp_path / "store", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert many[1] == first[1]


FLAGS = """
import os, sys
if sys.argv[1] == "scoped":
    os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"
import jax
jax.numpy.ones(1) + 1
os.environ.pop("XLA_FLAGS", None)
import numpy as np, ftrans
from ftrans import numpy as fnp
from ftrans.runtime import disk
disk.LEAST = 0.0
print(ftrans.jit(lambda x: fnp.isnan(x).sum())(np.array([1.0, np.nan] * 500, "f")))
"""


@pytest.mark.slow
def test_flags_count_as_they_are_in_force(tmp_path: Path) -> None:
    def nans(flags: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", FLAGS, flags],
            env={**os.environ, "FTRANS_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    nans("scoped")
    assert nans("none") == "500"
    assert len(files(tmp_path)) == 2


@pytest.mark.slow
def test_processes_that_write_at_once(tmp_path: Path) -> None:
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(session(tmp_path / "store"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({result for _, result in found}) == 1
    assert len(files(tmp_path / "store")) == len(list((tmp_path / "store").iterdir())) == 1
    assert session(tmp_path / "store")[0] == "0"


@pytest.mark.slow
def test_the_environment_names_the_directory(tmp_path: Path) -> None:
    code = "import ftrans; print(ftrans.config.compilation_cache_dir)"

    def setting(**env: str) -> str:
        known = {k: v for k, v in os.environ.items() if k != "FTRANS_CACHE_DIR"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=known | env, capture_output=True, text=True
        )
        assert not done.stderr, done.stderr
        return done.stdout.strip()

    assert setting(FTRANS_CACHE_DIR=str(tmp_path)) == str(tmp_path)
    assert setting(FTRANS_CACHE_DIR="") == "None"
    assert setting(XDG_CACHE_HOME=str(tmp_path)) == str(tmp_path / "ftrans")
    assert not list(tmp_path.iterdir())  # nothing is made before there is something to keep


def test_it_is_the_users_alone(store: Path) -> None:
    assert_close(slope(), EXPECTED)
    assert store.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in files(store))
    for file in files(store):
        file.unlink()
    store.chmod(0o770)
    disk._store.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"others may write to it(.|\n)*chmod 700"):
        assert_close(slope(), EXPECTED)
    assert not files(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slope()


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_damaged_files_are_written_anew(store: Path, content: bytes | None) -> None:
    slope()
    (file,) = files(store)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] if content is None else content)
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert_close(slope(), EXPECTED)
    assert len(file.read_bytes()) > len(whole) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(slope(), EXPECTED)
        file.write_bytes(b"")
        assert_close(slope(), EXPECTED)  # one warning is enough


def test_a_full_disk(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert_close(slope(), EXPECTED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(slope(), EXPECTED)
    assert not list(store.iterdir())


def test_a_directory_that_cannot_be_made(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    config.compilation_cache_dir = tmp_path / "file" / "ftrans"
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert_close(slope(), EXPECTED)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    disk._store.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(slope(), EXPECTED)  # the default, which nobody has asked for


def test_the_least_recently_used_give_way(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slope()
    (read,) = files(store)
    size = read.stat().st_size
    old, older = (store / f"{letter * 64}.xla" for letter in "ab")
    for age, file in enumerate((read, older, old)):
        file.write_bytes(read.read_bytes())
        os.utime(file, (time.time() - 100 + age,) * 2)
    others = [store / "thesis.h5", store / "mine.xla", store / "tmp123"]
    for file in others:
        file.write_bytes(b"of somebody else" * size)
        os.utime(file, (0, 0))
    slope()
    monkeypatch.setattr(disk, "_MOST", 2 * size)
    disk._make_room(store)
    assert files(store) == sorted([read, old, others[1]])
    monkeypatch.setattr(disk, "_MOST", 1)
    assert_close(func.grad(lambda x: fnp.sum(x**9))(X), 9 * X**8)
    assert sorted(store.iterdir()) == sorted(others)


def test_an_interrupt_leaves_nothing_behind(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        slope()
    assert not list(store.iterdir())
    monkeypatch.undo()
    assert_close(slope(), EXPECTED)


def test_a_directory_that_is_deleted_is_made_again(store: Path) -> None:
    slope()
    shutil.rmtree(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(slope(), EXPECTED)
    assert files(store)
    assert store.stat().st_mode & 0o777 == 0o700


def test_relative_directories_stay_where_they_were(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.compilation_cache_dir = "relative"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        slope()
    assert files(tmp_path / "a" / "relative")
    assert not (tmp_path / "b" / "relative").exists()


@pytest.mark.parametrize("path", ["~nobody-of-that-name/x", "a\0b"])
def test_what_is_no_path(path: str, store: Path) -> None:
    config.compilation_cache_dir = path
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert_close(slope(), EXPECTED)
    with pytest.raises(ValueError, match="is no path"):
        config.compilation_cache_dir = 3  # type: ignore[assignment]


def test_the_cache_of_jax_goes_before(store: Path, tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "jax"))
    try:
        assert_close(slope(), EXPECTED)
        assert not files(store)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_what_was_compiled_is_not_read_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return ftrans.jit(lambda x: fnp.sin(x) * 2.0)

    first = make()
    assert_close(first(X), 2.0 * np.sin(X))
    monkeypatch.setattr(jax.stages.Lowered, "as_text", None)
    assert_close(make()(X), 2.0 * np.sin(X))
    assert_close(first(X), 2.0 * np.sin(X))


@pytest.mark.parametrize("road", ["external", "callback", "print"])
def test_what_calls_python_is_not_kept(road: str, store: Path) -> None:
    called: list[int] = []

    def host(x: Any) -> Any:
        called.append(1)
        return np.sin(x)

    if road == "external":
        outside = ftrans.external(host, lambda x: x, vmap_method="sequential")
        f = lambda x: outside(x) * 2.0  # noqa: E731
    elif road == "callback":
        f = ftrans.from_jax(
            lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2.0
        )
    else:

        def f(x: Any) -> Any:
            ftrans.debug.callback(host, x)
            return fnp.sin(x) * 2.0

    for _ in range(2):
        ftrans.cache_clear()
        found = ftrans.jit(f)(X)
        assert_close(found, 2.0 * np.sin(X))
    assert len(called) == 2
    assert all(b"callback" not in file.read_bytes() for file in files(store))


def test_what_is_quick_to_compile_is_not_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LEAST", 1e6)
    assert_close(slope(), EXPECTED)
    assert not files(store)
    monkeypatch.setattr(disk, "LEAST", 0.0)
    config.compilation_cache_dir = None
    assert_close(slope(), EXPECTED)
    assert not files(store)


def test_the_name_says_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = jax.devices()[0]
    names = {disk._key("a program", device), disk._key("another", device)}
    for name, other in (("version", lambda _: "0.0"), ("_processor", lambda: "another one")):
        with monkeypatch.context() as patch:
            patch.setattr(disk, name, other)
            names.add(disk._key("a program", device))
    assert len(names) == 4
    assert disk._key("a program", device) in names


def test_arguments_of_other_types_than_those_of_the_code(store: Path) -> None:
    f = ftrans.jit(lambda x, n: {"a": x * n, "b": [n]})
    for _ in range(2):
        ftrans.cache_clear()
        for n in (2.0, np.float32(3.0), X, jnp.float32(2.0), 4.0, 2.0):
            found = f(X, n)
            np.testing.assert_allclose(found["a"], X * np.asarray(n), 1e-6)
            assert np.shape(found["b"][0]) == np.shape(n)


def test_threads_read_and_write_at_once(store: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        for _ in range(3):
            ftrans.cache_clear()
            found.append(func.grad(total)(X))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 24
    for each in found:
        np.testing.assert_array_equal(each, found[0])
