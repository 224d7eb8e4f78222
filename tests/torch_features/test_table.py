"""The table of `docs/reference/torch-features.csv` says what the tests in this folder say.

To write it anew: `python -m tests.torch_features.test_table`.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[1] / "docs" / "reference" / "torch-features.csv"
PAGE = TABLE.with_suffix(".md")
HEADER = ["row", "feature", "verdict", "note"]
LAST = {
    "A": 16, "B": 14, "C": 36, "D": 7, "E": 20, "F": 33, "G": 15, "H": 10, "I": 7, "J": 13,
    "K": 14, "L": 11, "M": 13, "N": 13, "O": 13, "P": 5, "Q": 19, "R": 6, "S": 12, "T": 29, "U": 5,
}  # fmt: skip
ROWS = [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]


def verdicts() -> dict[str, list[str]]:
    """Returns the verdict and the note of each row, as the docstring of its test says them."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if not (named := re.match(r"test_([a-z])(\d+)_", node.name)):
                continue
            row = named[1].upper() + named[2]
            text = " ".join((ast.get_docstring(node) or "").split())
            said = re.fullmatch(r"(Works)\.(?: (.+))?|(Differs|Declined): (.+)", text)
            assert said, f"{path.name}: the docstring of {node.name} does not begin with a verdict"
            assert row not in found, f"{path.name}: {node.name} is a second test of row {row}"
            found[row] = [said[1] or said[3], said[2] or said[4] or ""]
    return found


def table() -> list[list[str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def counted(found: dict[str, list[str]]) -> str:
    counts = Counter(verdict for verdict, _ in found.values())
    return (
        f"{counts['Works']} work, {counts['Differs']} differ and {counts['Declined']} are declined"
    )


def test_every_row_has_a_test() -> None:
    assert len(ROWS) == 311
    assert set(verdicts()) == set(ROWS)


def test_the_table_says_what_the_tests_say() -> None:
    header, *lines = table()
    assert header == HEADER
    assert [line[0] for line in lines] == ROWS
    found = verdicts()
    assert {line[0]: line[2:] for line in lines} == found
    assert all(0 < len(line[1]) <= 60 for line in lines)
    assert counted(found) in " ".join(PAGE.read_text(encoding="utf-8").split())


def write() -> None:
    """Writes verdicts and notes anew; features, and all of the page but its counts, stay."""
    features = {line[0]: line[1] for line in table()[1:]}
    found = verdicts()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows([row, features[row], *found[row]] for row in ROWS)
    page = PAGE.read_text(encoding="utf-8")
    counts = r"\d+\s+work,\s+\d+\s+differ\s+and\s+\d+\s+are\s+declined"
    PAGE.write_text(re.sub(counts, counted(found), page), encoding="utf-8")


if __name__ == "__main__":
    write()
