"""Measures ftrans against its peers and prints a table.

    python -m benchmarks [ROW ...] [--list] [--quick] [--markdown] [--json FILE]

Exits with 1 where two libraries disagree about a result. A target that is missed is only reported.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.report import as_json, heading, line, markdown, summary
from benchmarks.result import Disagreement, Result
from benchmarks.row import QUICK, THOROUGH


def main(arguments: list[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    from benchmarks.rows import ROWS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures ftrans against its peers."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows; all without any")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--quick", action="store_true", help="few repetitions: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    options = parser.parse_args(arguments)
    unknown = set(options.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list shows those there are")
    if options.list:
        for row in ROWS:
            print(f"{row.name:14} {row.about}")
        return 0

    settings = QUICK if options.quick else THOROUGH
    chosen = [row for row in ROWS if not options.rows or row.name in options.rows]
    # progress goes beside the table where that is to be pasted
    out = sys.stderr if options.markdown else sys.stdout
    print(heading(), file=out, flush=True)
    results: list[Result] = []
    disagreed = False
    start = time.perf_counter()
    for row in chosen:
        try:
            for result in row.run(row, settings):
                results.append(result)
                print(line(result), file=out, flush=True)
        except Disagreement as error:
            disagreed = True
            print(f"{row.name}: {error}", file=sys.stderr, flush=True)
    print(f"\n{summary(results)} {time.perf_counter() - start:.0f} s", file=out)
    if options.markdown:
        print(markdown(chosen, results))
    if options.json:
        options.json.write_text(as_json(results) + "\n")
    return int(disagreed)


if __name__ == "__main__":
    sys.exit(main())
