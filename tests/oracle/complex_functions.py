"""Plain functions of complex numbers, and what PyTorch makes of them, frozen in an `.npz`.

`python -m tests.oracle.complex_functions` writes the answers anew; it needs PyTorch, which the
tests do not: they read the answers, to which a Function has to come by its own `backward`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

ANSWERS = Path(__file__).with_suffix(".npz")

_random = np.random.default_rng(4)


def draw(dtype: str) -> np.ndarray:
    """Returns three numbers, not close to zero."""
    values = _random.uniform(0.5, 1.5, 3)
    return values + 1j * _random.uniform(0.5, 1.5, 3) if dtype == "c" else values


INPUTS = {
    "square": ("c",),
    "exp": ("c",),
    "conj": ("c",),
    "abs_squared": ("c",),
    "product": ("c", "r"),
    "polar": ("r", "r"),
    "real": ("c",),
}
"""For each function whether its inputs are complex or real."""


def plain(xp: Any) -> dict[str, Any]:
    """Returns the functions in a namespace of arrays."""
    return {
        "square": lambda z: z * z,
        "exp": lambda z: xp.exp(z),
        "conj": lambda z: z.conj(),
        "abs_squared": lambda z: xp.abs(z) ** 2,
        "product": lambda z, x: z * x,
        "polar": lambda r, phi: r * xp.exp(1j * phi),
        "real": lambda z: z.real,
    }


def write() -> None:
    """Asks PyTorch for gradients, pushforwards and second derivatives."""
    import torch

    answers: dict[str, np.ndarray] = {}
    for name, kinds in INPUTS.items():
        f = plain(torch)[name]
        xs = [draw(kind) for kind in kinds]
        out = f(*map(torch.tensor, xs))
        ct = draw("c" if out.is_complex() else "r")
        dots = [draw(kind) for kind in kinds]
        given = tuple(torch.tensor(x) for x in xs)
        _, pull = torch.func.vjp(f, *given)
        pulled = pull(torch.tensor(ct))
        pushed = torch.func.jvp(f, given, tuple(torch.tensor(t) for t in dots))[1]

        def gradient(*xs: Any, f: Any = f) -> Any:
            argnums = tuple(range(len(xs)))
            return torch.func.grad(lambda *xs: (f(*xs).abs() ** 4).sum(), argnums)(*xs)

        def twice(*xs: Any, gradient: Any = gradient) -> Any:
            return sum((g.abs() ** 2).sum() for g in gradient(*xs))

        second = torch.func.grad(twice, tuple(range(len(xs))))(*given)
        for i, x in enumerate(xs):
            answers[f"{name}/x{i}"] = x
            answers[f"{name}/t{i}"] = dots[i]
            answers[f"{name}/vjp{i}"] = pulled[i].resolve_conj().numpy()
            answers[f"{name}/second{i}"] = second[i].resolve_conj().numpy()
        answers[f"{name}/ct"] = ct
        answers[f"{name}/out"] = out.resolve_conj().numpy()
        answers[f"{name}/jvp"] = pushed.resolve_conj().numpy()
    np.savez_compressed(ANSWERS, **answers)


if __name__ == "__main__":
    write()
