"""How tests of `ftrans.numpy` run a function traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ftrans.primitives.control.sampling import program_from
from ftrans.runtime import run
from tests.helpers import types_of


def traced(function: Callable[..., Any], *arrays: Any) -> Any:
    """Returns the result of a function that is traced with abstract inputs, then run."""
    operands = [np.asarray(x) for x in arrays]
    program = program_from(lambda *xs: [function(*xs)], *types_of(operands))
    return run(program, operands)[0]
