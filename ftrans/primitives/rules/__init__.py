"""Primitives that exist for rules of users: custom rules, external calls, what is missing."""

from ftrans.primitives.rules.custom import custom_p
from ftrans.primitives.rules.custom_spec import Spec
from ftrans.primitives.rules.external import Callee, external_p
from ftrans.primitives.rules.missing import at_hand_p, missing_p, once_p, tied_p

__all__ = [
    "Callee",
    "Spec",
    "at_hand_p",
    "custom_p",
    "external_p",
    "missing_p",
    "once_p",
    "tied_p",
]
