"""PyTorch's own samples of its operations and what it makes of them, frozen in an `.npz`.

`python -m tests.oracle.pytorch` writes the answers anew; it needs PyTorch 2.13 and `expecttest`,
which the tests do not: they read the answers. Of each operation of `pytorch_table.TABLE` a few
samples are kept, in double precision, each with the value, a pullback, a pushforward and the
Hessian applied to a vector.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.pytorch_table import (
    FIRST_ALONE,
    HERMITIAN,
    HERMITIAN_GIVEN,
    HERMITIAN_RESULTS,
    INVARIANTS,
    TABLE,
)

ANSWERS = Path(__file__).with_suffix(".npz")
DTYPES = ("float64", "complex128")
MOST = {"float64": 10, "complex128": 5, "int64": 3}
"""How many samples of an operation are kept."""

LARGEST = 200
"""How many numbers the inputs of a sample may have; the smallest sample is kept anyway."""

# ------------------------------------------------------------------------------------------ packing


class Pack:
    """Puts arrays into one buffer for each dtype, and says where they are."""

    def __init__(self) -> None:
        self.parts: dict[str, list[np.ndarray]] = {}
        self.ends: dict[str, int] = {}

    def __call__(self, array: Any) -> list[Any]:
        """Returns the dtype, the offset and the shape of an array that is put in."""
        array = np.asarray(array)
        name, start = array.dtype.name, self.ends.get(array.dtype.name, 0)
        self.parts.setdefault(name, []).append(array.ravel())
        self.ends[name] = start + array.size
        return [name, start, *array.shape]

    def save(self, meta: Any) -> None:
        """Writes the buffers; bytes of the same weight lie together, which packs better."""
        files = {"meta": np.frombuffer(json.dumps(meta, separators=(",", ":")).encode(), np.uint8)}
        for name, parts in self.parts.items():
            whole = np.concatenate(parts)
            size = whole.dtype.itemsize // (2 if whole.dtype.kind == "c" else 1)
            files[name] = whole.view(np.uint8).reshape(-1, size).T.copy()
        np.savez_compressed(ANSWERS, **files)


def shortened(array: np.ndarray) -> np.ndarray:
    """Drops the last 14 bits of doubles: twelve digits are left, and fewer bytes."""
    if array.dtype.name not in DTYPES or not array.size:
        return array
    words = np.ascontiguousarray(array).view(np.float64).reshape(-1)
    bits = words.view(np.uint64)
    kept = ((bits + np.uint64(1 << 13)) & ~np.uint64((1 << 14) - 1)).view(np.float64)
    kept = np.where(np.isfinite(words), kept, words)
    return kept.view(array.dtype).reshape(array.shape)


# ------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class Sample:
    """One sample of an operation, and PyTorch's answers.

    Attributes:
        name: of the operation.
        number: which sample of it.
        dtype: that of its arrays.
        args: the arguments, arrays being `Slot`s.
        kwargs: the same, by name.
        inputs: the arrays that derivatives are taken by.
        out: the results.
        smooth: which of these are differentiated.
        cts: a cotangent of each of those.
        dots: a tangent of each input.
        pulled: the cotangents of the inputs; None where PyTorch has none.
        pushed: the tangents of the smooth results; None where PyTorch has none.
        twice: the derivative of `pulled` along `dots`; None where PyTorch has none.
    """

    name: str
    number: int
    dtype: str
    args: Any
    kwargs: Any
    inputs: list[np.ndarray]
    out: list[np.ndarray]
    smooth: list[bool]
    cts: list[np.ndarray]
    dots: list[np.ndarray]
    pulled: list[np.ndarray] | None
    pushed: list[np.ndarray] | None
    twice: list[np.ndarray] | None

    def __str__(self) -> str:
        """Names the sample as tests do."""
        return f"{self.name}[{self.number}], {self.dtype}"


@dataclass(frozen=True)
class Slot:
    """Stands for an input in the arguments of a sample."""

    index: int


def load() -> dict[str, list[Sample]]:
    """Returns the frozen samples by the names of the operations."""
    with np.load(ANSWERS) as file:
        meta = json.loads(file["meta"].tobytes())
        buffers = {
            name: np.ascontiguousarray(file[name].T).reshape(-1).view(name)
            for name in file.files
            if name != "meta"
        }

    def array(where: Any) -> np.ndarray:
        name, start, *shape = where
        return buffers[name][start : start + math.prod(shape)].reshape(shape)

    def arrays(many: Any) -> Any:
        return None if many is None else [array(where) for where in many]

    def plain(x: Any) -> Any:
        if isinstance(x, list):
            return [plain(y) for y in x]
        if not isinstance(x, dict):
            return x
        ((kind, held),) = x.items()
        made = {
            "slot": lambda: Slot(held),
            "array": lambda: array(held),
            "tuple": lambda: tuple(plain(held)),
            "slice": lambda: slice(*held),
            "complex": lambda: complex(*held),
            "dtype": lambda: np.dtype(held),
            "ellipsis": lambda: ...,
            "float": lambda: float(held),
        }
        return made[kind]()

    found: dict[str, list[Sample]] = {}
    for name, entries in meta.items():
        for number, (dtype, args, kwargs, smooth, *rest) in enumerate(entries):
            found.setdefault(name, []).append(
                Sample(
                    name,
                    number,
                    dtype,
                    plain(args),
                    {k: plain(v) for k, v in kwargs.items()},
                    arrays(rest[0]),
                    arrays(rest[1]),
                    [bool(s) for s in smooth],
                    *map(arrays, rest[2:]),
                )
            )
    return found


# ------------------------------------------------------------------------------------------ writing


class _Unsaid(Exception):
    """Says that a sample cannot be stored, or not be computed."""


def write() -> None:
    """Asks PyTorch."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pack, meta = Pack(), {}
    for op in op_db:
        if op.full_name not in TABLE:
            continue
        entries = meta.setdefault(op.full_name, [])
        dtypes = [dtype for dtype in DTYPES if getattr(torch, dtype) in op.dtypes]
        for dtype in dtypes or ["int64"]:
            seed = zlib.crc32(f"{op.full_name} {dtype}".encode())
            for seeded in (torch.manual_seed, np.random.seed, random.seed):
                seeded(seed)
            entries += _entries(op, dtype, pack, np.random.RandomState(seed))
    meta = {name: entries for name, entries in meta.items() if entries}
    pack.save(meta)
    print(f"{len(meta)} operations, {sum(map(len, meta.values()))} samples")
    print(f"{ANSWERS.stat().st_size / 2**20:.2f} MiB")


def _entries(op: Any, dtype: str, pack: Pack, draw: Any) -> Iterator[Any]:
    """Yields what is stored of the samples of one operation that are chosen."""
    import torch

    chosen: dict[Any, Any] = {}
    largest: dict[Any, int] = {}
    for sample in op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False):
        args = (_cut(op, sample.input), *sample.args)
        inputs: list[Any] = []
        with contextlib.suppress(_Unsaid):
            told = json.dumps([_told(x, inputs, None) for x in (*args, *sample.kwargs.values())])
            key = (told, *[tuple(x.shape) for x in inputs])
            if key not in chosen:
                chosen[key] = args, dict(sample.kwargs)
                largest[key] = sum(x.numel() for x in inputs)
    kept = [value for key, value in chosen.items() if largest[key] <= LARGEST]
    kept = kept or [chosen[key] for key in sorted(chosen, key=largest.__getitem__)[:1]]
    entries = (_tried(op, dtype, *kept[i], pack, draw) for i in _spread(len(kept)))
    yield from itertools.islice((entry for entry in entries if entry), MOST[dtype])


def _cut(op: Any, x: Any) -> Any:
    """Returns the first elements of the argument of an elementwise function of one."""
    from torch.testing._internal.opinfo.core import UnaryUfuncInfo

    return (
        x.reshape(-1)[:40].reshape(5, 8) if isinstance(op, UnaryUfuncInfo) and x.numel() > 40 else x
    )


def _tried(op: Any, *rest: Any) -> Any:
    """Returns what is stored of a sample; None where that cannot be, or PyTorch raises."""
    try:
        return _entry(op, *rest)
    except _Unsaid:
        return None


def _spread(n: int) -> list[int]:
    """Returns 0, ..., n - 1 so that the first few are spread evenly: first, last, middle, ..."""
    order = sorted(range(n), key=lambda i: (f"{i:016b}"[::-1], i))
    ends = [0, n - 1]
    return list(dict.fromkeys([*[i for i in ends if 0 <= i < n], *order]))


def _told(x: Any, inputs: list[Any], pack: Pack | None) -> Any:
    """Returns an argument as JSON has it; collects the tensors that are differentiated."""
    import torch

    if isinstance(x, torch.Tensor):
        if x.layout != torch.strided or x.is_quantized:
            raise _Unsaid
        if x.is_floating_point() or x.is_complex():
            inputs.append(x)
            return {"slot": len(inputs) - 1}
        return {"array": pack(x.numpy()) if pack else [str(x.dtype), *x.shape]}
    if isinstance(x, (tuple, list)):
        held = [_told(y, inputs, pack) for y in x]
        return {"tuple": held} if isinstance(x, tuple) else held
    if isinstance(x, slice):
        return {"slice": [x.start, x.stop, x.step]}
    if x is Ellipsis:
        return {"ellipsis": 1}
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, float) and not math.isfinite(x):
        return {"float": str(x)}
    if isinstance(x, torch.dtype):
        return {"dtype": str(x).removeprefix("torch.")}
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    raise _Unsaid


def _filled(x: Any, inputs: Sequence[Any]) -> Any:
    """Returns an argument with tensors in the place of those that were there."""
    import torch

    at = iter(inputs)

    def fill(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return next(at) if x.is_floating_point() or x.is_complex() else x
        if isinstance(x, (tuple, list)):
            return type(x)([fill(y) for y in x]) if type(x) in (tuple, list) else x
        if isinstance(x, dict):
            return {key: fill(y) for key, y in x.items()}
        return x

    return fill(x)


def _numbers(tensors: Sequence[Any]) -> list[np.ndarray]:
    return [x.contiguous().numpy(force=True) for x in tensors]


def _entry(op: Any, dtype: str, args: Any, kwargs: Any, pack: Pack, draw: Any) -> Any:
    """Returns what is stored of one sample."""
    import torch

    inputs: list[Any] = []
    for x in (*args, *kwargs.values()):
        _told(x, inputs, None)
    # single precision is enough for an argument, and packs better
    name, double = op.full_name, getattr(torch, dtype)
    short = [x.detach().to(torch.complex64 if x.is_complex() else torch.float32) for x in inputs]
    inputs = [x.to(double if x.is_complex() else torch.float64) for x in short]
    if name in HERMITIAN_GIVEN:
        inputs = [(x + x.mH) / 2 for x in inputs]

    def function(*inputs: Any) -> tuple[Any, ...]:
        given, named = _filled((args, kwargs), [x.clone() for x in inputs])
        out = op.op(*given, **named)
        out = INVARIANTS.get(name, lambda out: out)(out)
        flat = [out] if isinstance(out, torch.Tensor) else _flat(out)
        return tuple(flat[:1] if name in FIRST_ALONE else flat)

    def drawn(like: Any, hermitian: bool = False) -> Any:
        """Returns random multiples of 1/16 below 2."""
        shape, size = tuple(like.shape), max(int(np.prod(like.shape)), 0)
        values = draw.randint(-32, 33, size).reshape(shape) / 16
        if like.is_complex():
            values = values + 1j * draw.randint(-32, 33, size).reshape(shape) / 16
        if hermitian:
            values = (values + values.conj().swapaxes(-1, -2)) / 2
        return torch.as_tensor(values, dtype=like.dtype)

    try:
        out = function(*inputs)
        if sum(x.numel() for x in out) > 2000:
            raise _Unsaid
        leaves = [x.clone().requires_grad_() for x in inputs]
        live = function(*leaves)
    except _Unsaid:
        raise
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:90]}")
        raise _Unsaid from error
    smooth = [bool(x.requires_grad) and bool(op.supports_autograd) for x in live]
    # the factor of Cholesky has a real diagonal, and what is pulled back as well
    cts = [drawn(x, name in HERMITIAN_RESULTS) for x, s in zip(live, smooth, strict=True) if s]
    dots = [drawn(x, name in HERMITIAN) for x in inputs]
    pulled = pushed = twice = None
    if any(smooth):
        ends = [x for x, s in zip(live, smooth, strict=True) if s]
        with _refusals(name, "vjp"):
            first = torch.autograd.grad(
                ends, leaves, cts, create_graph=True, allow_unused=True, materialize_grads=True
            )
            pulled = [x.detach() for x in first]
            moving = [x for x in first if x.requires_grad]
            if op.supports_gradgrad and moving:
                with _refusals(name, "hvp"):
                    v = [d for x, d in zip(first, dots, strict=True) if x.requires_grad]
                    twice = torch.autograd.grad(
                        moving, leaves, v, allow_unused=True, materialize_grads=True
                    )
            elif op.supports_gradgrad:
                twice = [torch.zeros_like(x) for x in inputs]
        if op.supports_forward_ad:
            with _refusals(name, "jvp"), torch.autograd.forward_ad.dual_level():
                duals = [
                    torch.autograd.forward_ad.make_dual(x, d)
                    for x, d in zip(inputs, dots, strict=True)
                ]
                tangents = []
                for x, s in zip(function(*duals), smooth, strict=True):
                    if s:
                        tangent = torch.autograd.forward_ad.unpack_dual(x).tangent
                        tangents.append(torch.zeros_like(x) if tangent is None else tangent)
                pushed = tangents

    if name in HERMITIAN:  # the part of a gradient that no Hermitian argument sees is left out
        pulled, twice = ([(x + x.mH) / 2 for x in xs] if xs else xs for xs in (pulled, twice))

    def packed(tensors: Any) -> Any:
        return None if tensors is None else [pack(shortened(x)) for x in _numbers(tensors)]

    again: list[Any] = []
    told = [_told(x, again, pack) for x in args]
    named = {key: _told(x, again, pack) for key, x in kwargs.items()}
    return [
        dtype, told, named, [int(s) for s in smooth],
        packed(inputs), packed(out), packed(cts), packed(dots), packed(pulled), packed(pushed),
        packed(twice),
    ]  # fmt: skip


def _flat(out: Any) -> list[Any]:
    import torch

    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, (tuple, list)):
        return [y for x in out for y in _flat(x)]
    return [torch.as_tensor(out)]


@contextlib.contextmanager
def _refusals(name: str, what: str) -> Iterator[None]:
    """Says where PyTorch has no answer, and goes on."""
    try:
        yield
    except Exception as error:
        print(f"{name}, {what}: {type(error).__name__}: {str(error)[:90]}")


if __name__ == "__main__":
    write()
