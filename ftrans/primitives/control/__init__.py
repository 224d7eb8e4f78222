"""Primitives that carry programs: calls, branches and loops."""

from ftrans.primitives.control import block, call, checkpoint, scan, switch, while_  # noqa: F401
