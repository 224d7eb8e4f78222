"""Primitives that carry programs: calls, branches, loops, and what runs on many devices."""

from ftrans.primitives.control import block, call, scan, shard_map, switch, while_  # noqa: F401
