"""Primitives that carry programs: calls, branches and loops."""

from ftrans.primitives.control.call import call_p
from ftrans.primitives.control.scan import scan_p
from ftrans.primitives.control.switch import switch_p
from ftrans.primitives.control.while_ import while_p

__all__ = ["call_p", "scan_p", "switch_p", "while_p"]
