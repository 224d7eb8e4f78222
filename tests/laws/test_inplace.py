"""Writing in place means what it means in NumPy: random programs, by value and by derivative."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ftrans
from ftrans import func
from tests.helpers import sampled
from tests.laws.inplace import FLAGS, program

PROGRAMS = 300
"""By hand: `python -m tests.laws.test_inplace 5000`."""


def check_program(seed: int, roads: bool = False) -> None:
    """Compares value and derivative along a direction with NumPy and differences.

    Args:
        seed: names the program.
        roads: whether compiled, mapped and twice differentiated as well.
    """
    source, plain, traced, x = program(seed)
    direction = np.cos(3.0 * np.arange(x.size) + seed)
    every = list(itertools.product((False, True), repeat=FLAGS))

    def at(step: float, flags: Any) -> Any:
        with np.errstate(all="ignore"):
            return plain(x + step * direction, flags)

    def close(found: Any, expected: Any, tolerance: float, what: str) -> None:
        np.testing.assert_allclose(
            found, expected, rtol=tolerance, atol=tolerance, err_msg=f"{seed}: {what}\n{source}"
        )

    expected = {}
    for flags in every:
        value, slope, finer = (
            at(0.0, flags),
            *((at(h, flags) - at(-h, flags)) / (2 * h) for h in (1e-5, 5e-6)),
        )
        expected[flags] = value, slope
        if not np.isfinite(value) or abs(slope - finer) > 1e-4 * (1 + abs(slope)):
            return  # a kink, or too steep to tell
    before = x.copy()
    for flags in [*every, *every]:
        value, slope = expected[flags]
        gradient, found = func.grad_and_value(traced)(x, flags)
        close(found, value, 1e-9, f"value {flags}")
        close(gradient @ direction, slope, 1e-4, f"gradient {flags}")
    assert (x == before).all()
    if not roads:
        return
    flags = every[seed % len(every)]
    value, slope = expected[flags]
    f = lambda x: traced(x, flags)  # noqa: E731
    out, tangent = func.jvp(f, (x,), (direction,))
    close(out, value, 1e-9, "value of jvp")
    close(tangent, slope, 1e-4, "jvp")
    close(ftrans.jit(f)(x), value, 1e-9, "jit")
    close(func.vmap(f)(np.stack([x, x])), [value, value], 1e-9, "vmap")
    gradient = func.grad(f)(x)
    close(func.vmap(func.grad(f))(np.stack([x, x]))[1], gradient, 1e-9, "vmap of grad")
    close(ftrans.scan(lambda c, v: (c, f(v)), 0.0, x[None])[1], [value], 1e-9, "scan")
    product = func.jvp(func.grad(f), (x,), (direction,))[1]
    step = 1e-5 * direction
    with np.errstate(all="ignore"):
        change = (func.grad(f)(x + step) - func.grad(f)(x - step)) / 2e-5
    close(product, change, 1e-3 * (1 + np.abs(change).max()), "second derivative")


@pytest.mark.slow
@pytest.mark.parametrize("part", sampled(range(10), 3))
def test_programs_that_write_in_place(part: int) -> None:
    each = PROGRAMS // 10
    for seed in range(part * each, (part + 1) * each):
        check_program(seed, roads=seed % 15 == 0)


if __name__ == "__main__":
    import sys

    for number in range(int(sys.argv[1])):
        check_program(number, roads=number % 25 == 0)
        if number % 250 == 0:
            print(number, flush=True)
