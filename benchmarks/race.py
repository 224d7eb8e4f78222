"""A race: ftrans and its peers do the same work, first compared, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import Task, calls_for, interleave, ratio, timed, warm
from benchmarks.result import Disagreement, Result, Target
from benchmarks.row import Row, Settings

__all__ = ["Against", "agree", "race"]


class Against(NamedTuple):
    """A peer in a race.

    Attributes:
        peer: what it is, as the table says it.
        make: returns its task; `ModuleNotFoundError` says that it is not installed.
        target: what its time is held against.
    """

    peer: str
    make: Callable[[], Task]
    target: Target


def race(
    row: Row,
    settings: Settings,
    case: str,
    make: Callable[[], Task],
    rivals: list[Against],
    tolerance: float = 2e-4,
) -> Iterator[Result]:
    """Compares results, then times all tasks in turns, and yields a result for each rival.

    Args:
        row: the row that is measured.
        settings: how much is measured.
        case: what is run, where the row has several cases.
        make: returns the task of ftrans.
        rivals: the others.
        tolerance: by how much results may differ, relative to the largest element.
    """
    ours = make()
    expected = ours()
    tasks = {"ftrans": ours}
    for rival in rivals:
        try:
            task = rival.make()
        except ModuleNotFoundError:
            continue
        agree(f"{row.name} {case}".strip(), rival.peer, expected, task(), tolerance)
        tasks[rival.peer] = task
    for task in tasks.values():
        warm(task, settings.warm)
    probes = {n: timed(task, calls_for(task, settings.sample)) for n, task in tasks.items()}
    times = interleave(probes, settings.rounds, settings.limit)
    for rival in rivals:
        shown = {"row": row.name, "case": case, "peer": rival.peer, "target": rival.target}
        if rival.peer not in times:
            yield Result(**shown, note="not installed")
        elif rival.target.at_least:
            yield Result.of(ratio(times[rival.peer], times["ftrans"]), **shown)
        else:
            yield Result.of(ratio(times["ftrans"], times[rival.peer]), **shown)


def agree(what: str, peer: str, ours: Any, theirs: Any, tolerance: float = 2e-4) -> None:
    """Raises where two results differ by more than `tolerance` of the largest element."""
    a, b = _leaves(ours), _leaves(theirs)
    shapes = [x.shape for x in a], [x.shape for x in b]
    if shapes[0] != shapes[1]:
        raise Disagreement(f"{what}: ftrans gave shapes {shapes[0]}, {peer} {shapes[1]}.")
    for x, y in zip(a, b, strict=True):
        if not x.size:
            continue
        scale = max(float(np.max(np.abs(y))), 1e-6)
        error = float(np.max(np.abs(x - y))) / scale
        if not error <= tolerance:
            raise Disagreement(f"{what}: ftrans and {peer} differ by {error:.2g} of the largest.")


def _leaves(result: Any) -> list[np.ndarray]:
    """Returns the arrays of a result in order: of tuples, lists and sorted dictionaries."""
    if isinstance(result, dict):
        return [leaf for key in sorted(result) for leaf in _leaves(result[key])]
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _leaves(part)]
    if hasattr(result, "detach"):
        result = result.detach()
    return [np.asarray(result, dtype=np.float64)]
