"""The table of `docs/reference/names.csv` says which library has which name.

To write it anew: `python -m tests.oracle.test_name_table`; the column of PyTorch is kept where that
cannot be imported.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
import scipy

import ftrans.numpy as fnp
from ftrans.errors import MissingAttributeError

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "names.csv"
PAGE = TABLE.with_suffix(".md")
HEADER = ["name", "NumPy", "JAX", "PyTorch", "ftrans", "note"]
HOMES = {
    "": ("numpy", "jax.numpy", "torch", "ftrans.numpy"),
    "linalg.": ("numpy.linalg", "jax.numpy.linalg", "torch.linalg", "ftrans.numpy.linalg"),
    "fft.": ("numpy.fft", "jax.numpy.fft", "torch.fft", "ftrans.numpy.fft"),
    "special.": ("scipy.special", "jax.scipy.special", "torch.special", "ftrans.scipy.special"),
}


def names_in(module: str) -> set[str]:
    """Returns the public names of a module that are no modules."""
    home = importlib.import_module(module)
    listed = getattr(home, "__all__", None)
    names = listed if module.startswith("ftrans") and listed else dir(home)
    return {
        name
        for name in names
        if not name.startswith("_") and not isinstance(getattr(home, name, None), ModuleType)
    }


def note_on(name: str) -> str:
    """Returns what is to be written for a name that is not there."""
    try:
        getattr(fnp, name)
    except MissingAttributeError as error:
        return str(error).partition("\n  ")[2].rstrip(".")
    except AttributeError:
        return ""
    return ""


def rows(torch: dict[str, str]) -> list[list[str]]:
    """Returns the table; `torch` says of each name whether PyTorch has it."""
    found = []
    for prefix, (numpy, jax_home, _, ours) in HOMES.items():
        columns = [names_in(numpy), names_in(jax_home), names_in(ours)]
        for name in sorted(set().union(*columns), key=lambda n: (n.casefold(), n)):
            ticks = ["✓" if name in column else "" for column in columns]
            note = "" if ticks[2] or prefix else note_on(name)
            found.append([prefix + name, *ticks[:2], torch.get(prefix + name, ""), ticks[2], note])
    return found


def frozen() -> list[list[str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def versions() -> str:
    return f"NumPy {np.__version__}, SciPy {scipy.__version__}, JAX {jax.__version__}"


def test_what_is_there_is_listed() -> None:
    listed = {row[0]: row[4] for row in frozen()}
    for prefix, (*_, ours) in HOMES.items():
        there = {prefix + name for name in names_in(ours)}
        ticked = {n for n, tick in listed.items() if tick and n.rpartition(".")[0] == prefix[:-1]}
        if prefix != "special." or versions() in PAGE.read_text():  # these names are JAX's
            assert there == ticked


@pytest.mark.skipif(versions() not in PAGE.read_text(), reason="made with other versions")
def test_the_table_is_up_to_date() -> None:
    torch = {row[0]: row[3] for row in frozen()}
    assert sum(map(bool, torch.values())) > 200
    assert rows(torch) == frozen()


def main() -> None:
    torch: dict[str, str]
    if importlib.util.find_spec("torch"):
        torch = {
            prefix + name: "✓"
            for prefix, (_, _, home, _) in HOMES.items()
            for name in dir(importlib.import_module(home))
        }
    else:
        torch = {row[0]: row[3] for row in frozen()}
    made: list[Any] = [HEADER, *rows(torch)]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(made)


if __name__ == "__main__":
    main()
