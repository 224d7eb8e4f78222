"""Tries the three interpreters on one function, with a loop and a branch, and on its gradient."""

import interval_rules  # noqa: F401  teaches Intervals more functions
import numpy as np
from flops import Flops
from intervals import Interval, Intervals
from nan_finder import find_nans

import ftrans
import ftrans.numpy as fnp
from ftrans import func


def distance(forces):
    """Returns how far a damped oscillator, pushed about, ends from where it began."""

    def step(state, force):
        position, speed = state
        bounced = ftrans.cond(position > 1.0, lambda v: -v, lambda v: v, speed)
        speed = 0.9 * bounced + 0.1 * (force - fnp.sin(position))
        return (position + 0.1 * speed, speed), None

    (position, _), _ = ftrans.scan(step, (0.0, 0.0), forces)
    return fnp.sqrt(position * position)


def main():
    forces = np.ones(5)
    around = Interval(forces - 0.01, forces + 0.01)
    print("Bounds, for forces from 0.99 to 1.01:")
    print("  distance", *Intervals()(distance)(around))
    for lower, upper in zip(*Intervals()(func.grad(distance))(around), strict=True):
        print("  gradient", lower, upper)

    costs = Flops()
    costs(func.grad(distance))(forces)
    print(f"The gradient takes {costs.flops.total()} operations, {costs.nbytes.total()} bytes:")
    for line, flops in costs.flops.most_common(4):
        print(f"  {flops:4} at {line}")

    print("Without forces its gradient is", func.grad(distance)(0 * forces), "because of:")
    print(find_nans(func.grad(distance))(0 * forces))


if __name__ == "__main__":
    main()
