"""Primitives that carry programs: calls, branches and loops."""

from ftrans.primitives.control import block, call, scan, switch, while_  # noqa: F401
