"""Primitives that carry programs: calls of programs and of custom rules, branches and loops."""

from ftrans.primitives.control.call import call_p
from ftrans.primitives.control.custom import custom_p
from ftrans.primitives.control.custom_spec import BatchRule, Spec
from ftrans.primitives.control.linear_call import linear_call_p
from ftrans.primitives.control.scan import scan_p
from ftrans.primitives.control.switch import switch_p
from ftrans.primitives.control.while_ import while_p

__all__ = [
    "BatchRule",
    "Spec",
    "call_p",
    "custom_p",
    "linear_call_p",
    "scan_p",
    "switch_p",
    "while_p",
]
