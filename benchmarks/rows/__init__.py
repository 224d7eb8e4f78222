"""All rows, in the order of the table."""

from benchmarks.rows import compiled, eager, fresh, growing, lowering, recompiling, verifying

__all__ = ["ROWS"]

ROWS = [
    *eager.ROWS,
    *compiled.ROWS,
    *lowering.ROWS,
    *fresh.ROWS,
    *recompiling.ROWS,
    *growing.ROWS,
    *verifying.ROWS,
]
