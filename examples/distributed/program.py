"""What a compiled program says of itself: its collectives, and what lies on one device."""

import math
import re
from collections import Counter
from typing import NamedTuple

import jax

_COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\(.*"
)
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}


class Collective(NamedTuple):
    """Is one collective: its kind, how many devices take part, the bytes of its result on each."""

    kind: str
    devices: int
    bytes: int


def collectives(function, *args):
    """Returns the collectives of a function that `ftrans.jit` has made, for these arguments."""
    return read(function.lower(*args).compile().as_text())


def read(text):
    """Returns the collectives in the text of a compiled program (HLO)."""
    found = []
    for line in text.splitlines():
        match = _COLLECTIVE.search(line)
        if match:
            sizes = re.findall(r"(\w+)\[([\d,]*)\]", match[1])
            size = sum(
                _BYTES.get(dtype, 4) * math.prod(map(int, filter(None, shape.split(","))))
                for dtype, shape in sizes
            )
            found.append(Collective(match[2], _devices(line), size))
    return found


def _devices(line):
    """Returns how many devices take part, of which XLA writes in one of three ways."""
    if groups := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return groups[1].count(",") + 1
    if groups := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(groups[1])
    if groups := re.search(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", groups[1]))
        return math.prod(int(sizes[name]) for name in re.findall(r"'(\w+)'", groups[2]))
    return jax.device_count()


def show(found):
    """Prints collectives by their kinds and by how many devices take part."""
    count, size = Counter(), Counter()
    for kind, devices, nbytes in found:
        count[kind, devices] += 1
        size[kind, devices] += nbytes
    for (kind, devices), number in sorted(count.items()):
        print(f"  {number:3} {kind} of {devices} devices, {size[kind, devices]:,} bytes")


def bytes_on_device(tree):
    """Returns the bytes of a pytree of arrays on one device."""
    return sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(tree))


def bytes_of(tree):
    """Returns the bytes of a pytree of arrays, each counted once."""
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def expect(what, holds):
    """Ends the program where something is not as expected."""
    if not holds:
        raise SystemExit(f"Not as expected: {what}.")
