"""Replays PyTorch's frozen samples with ftrans, and says where the answers differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ftrans import func
from tests.oracle.pytorch import Sample, Slot
from tests.oracle.pytorch_table import INVARIANTS, TABLE

KINDS = ("out", "vjp", "jvp", "hvp", "vmap")


def filled(x: Any, inputs: Sequence[Any]) -> Any:
    """Returns an argument with inputs in the place of their slots."""
    if isinstance(x, Slot):
        return inputs[x.index]
    if isinstance(x, (tuple, list)):
        return type(x)([filled(y, inputs) for y in x])
    if isinstance(x, dict):
        return {key: filled(y, inputs) for key, y in x.items()}
    return x


def flat(out: Any) -> list[Any]:
    """Returns the arrays of a result, in order."""
    if isinstance(out, (tuple, list)):
        return [y for x in out for y in flat(x)]
    return [out]


def function(sample: Sample) -> Callable[..., tuple[Any, ...]]:
    """Returns the operation as a function of the inputs alone, to what PyTorch's samples have."""

    def called(*inputs: Any) -> tuple[Any, ...]:
        args, kwargs = filled((sample.args, sample.kwargs), inputs)
        out = TABLE[sample.name](*args, **kwargs)
        return tuple(flat(INVARIANTS.get(sample.name, lambda out: out)(out)))

    return called


def smooth(sample: Sample) -> Callable[..., tuple[Any, ...]]:
    """Returns the same with the results that have derivatives alone."""
    f = function(sample)
    return lambda *inputs: tuple([x for x, s in zip(f(*inputs), sample.smooth, strict=True) if s])


def pulled(f: Callable[..., Any], inputs: Sequence[Any], cts: Sequence[Any]) -> Any:
    """Returns the cotangents of the inputs."""
    return func.vjp(f, *inputs)[1](tuple(cts))


def differences(sample: Sample, tolerance: float, kinds: Sequence[str] = KINDS) -> dict[str, str]:
    """Returns by kinds of derivatives how the answers differ, where they do."""
    f, s, inputs, cts, dots = (
        function(sample),
        smooth(sample),
        sample.inputs,
        sample.cts,
        sample.dots,
    )
    moving = any(sample.smooth) and bool(inputs)

    def vmapped() -> tuple[Any, Any]:
        g = (lambda *xs: pulled(s, xs, cts)) if moving and sample.pulled else f
        lanes = [inputs, [x * 0.96875 for x in inputs]]
        batch = [np.stack(lane) for lane in zip(*lanes, strict=True)]
        loop = [
            np.stack([np.asarray(x) for x in xs])
            for xs in zip(*[g(*xs) for xs in lanes], strict=True)
        ]
        return func.vmap(g)(*batch), loop

    asked: dict[str, tuple[Any, Callable[[], tuple[Any, Any]]]] = {
        "out": (True, lambda: (f(*inputs), sample.out)),
        "vjp": (sample.pulled, lambda: (pulled(s, inputs, cts), sample.pulled)),
        "jvp": (
            sample.pushed,
            lambda: (func.jvp(s, tuple(inputs), tuple(dots))[1], sample.pushed),
        ),
        "hvp": (
            sample.twice,
            lambda: (
                func.jvp(lambda *xs: pulled(s, xs, cts), tuple(inputs), tuple(dots))[1],
                sample.twice,
            ),
        ),
        "vmap": (inputs, vmapped),
    }
    found = {}
    for kind in kinds:
        given, answers = asked[kind]
        if given is None or (kind != "out" and not inputs):
            continue
        try:
            found[kind] = compared(*answers(), tolerance)
        except Exception as error:  # which is told with the others
            found[kind] = f"{type(error).__name__}: {error}"
    return {kind: text for kind, text in found.items() if text}


def compared(actual: Any, expected: Any, tolerance: float) -> str:
    """Returns how results differ: in numbers, shapes or values; nothing where they do not."""
    actual = [np.asarray(x) for x in flat(actual)]
    if len(actual) != len(expected):
        return f"{len(actual)} results, not {len(expected)}"
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours.shape != theirs.shape:
            return f"result {i}: shape {ours.shape}, not {theirs.shape}"
        if ours.dtype.kind != theirs.dtype.kind and theirs.dtype.kind in "fcb":
            return f"result {i}: {ours.dtype}, not {theirs.dtype}"
        finite = np.abs(theirs[np.isfinite(theirs)]) if theirs.dtype.kind in "fc" else [0]
        size = max([1.0, *np.ravel(finite)]) if len(np.ravel(finite)) else 1.0
        if theirs.dtype.kind == "c":  # an infinity has no direction here
            ours, theirs = _told(ours), _told(theirs)
        near = np.isclose(ours, theirs, rtol=tolerance, atol=tolerance * size, equal_nan=True)
        if not near.all():
            at = tuple(int(i) for i in np.unravel_index(np.argmin(near), near.shape))
            return (
                f"result {i}: {(~near).sum()} of {near.size} differ, "
                f"{ours[at]} for {theirs[at]} at {at}"
            )
    return ""


def _told(x: np.ndarray) -> np.ndarray:
    """Returns complex numbers with one NaN for all that are none."""
    return np.where(np.isfinite(x), x, np.nan)
