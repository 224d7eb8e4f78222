"""Primitives that carry programs: calls, branches, loops, and what runs on many devices."""

from ftrans.primitives.control import (  # noqa: F401
    block,
    call,
    checkpoint,
    scan,
    shard_map,
    switch,
    while_,
)
