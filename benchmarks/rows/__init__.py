"""All rows, in the order of the table."""

from benchmarks.rows import (
    compiled,
    custom,
    distributed,
    drawing,
    eager,
    external,
    folding,
    fresh,
    growing,
    imported,
    lowering,
    matrices,
    memory,
    networks,
    recompiling,
    tensors,
    verifying,
)

__all__ = ["ROWS"]

ROWS = [
    *eager.ROWS,
    *tensors.ROWS,
    *compiled.ROWS,
    *lowering.ROWS,
    *folding.ROWS,
    *fresh.ROWS,
    *recompiling.ROWS,
    *growing.ROWS,
    *custom.ROWS,
    *external.ROWS,
    *imported.ROWS,
    *networks.ROWS,
    *drawing.ROWS,
    *matrices.ROWS,
    *memory.ROWS,
    *verifying.ROWS,
    *distributed.ROWS,
]
