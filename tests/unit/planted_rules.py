"""Collects the planted subjects: `WRONG` rules, each with one fault, and `RIGHT` ones."""

from __future__ import annotations

# importing a family registers its subjects
from tests.unit.planted import (  # noqa: F401
    right_callables,
    right_contract,
    right_opaque,
    right_values,
    right_vmap,
    wrong_callables,
    wrong_complex,
    wrong_elementwise,
    wrong_linear,
    wrong_outputs,
    wrong_reductions,
    wrong_state,
    wrong_values,
    wrong_vmap,
)
from tests.unit.planted.subject import RIGHT, WRONG, Subject

__all__ = ["RIGHT", "WRONG", "Subject"]
