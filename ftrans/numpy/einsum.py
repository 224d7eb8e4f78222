"""Products of arrays whose axes carry labels: `einsum`, and the pairwise step below all others.

`opt_einsum` reads the subscripts and chooses the order of the contractions; each is one `dot_p`.
Labels that nothing else needs are summed before they are multiplied.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import opt_einsum
from opt_einsum.parser import parse_einsum_input

from ftrans.errors import ShapeError
from ftrans.ir import type_of
from ftrans.ir.program import Params
from ftrans.numpy.access import Step, taken
from ftrans.numpy.axes import broadcast_to
from ftrans.numpy.promotion import promoted
from ftrans.numpy.rearrangement import diagonal_of
from ftrans.numpy.views import fresh, view_of
from ftrans.primitives import dot_p, mul_p, reshape_p, sum_p, transpose_p

Labels = tuple[Hashable, ...]


# ---------------------------------------------------------------------------------- one product


def contracted(x: Any, of_x: Labels, y: Any, of_y: Labels, out: Labels) -> Any:
    """Multiplies two arrays and sums over the labels that are not in `out`.

    Args:
        x: an operand, of the dtype of `y`.
        of_x: a label for each of its axes, all different.
        y: an operand.
        of_y: a label for each of its axes.
        out: the labels of the result, in order. An axis of size 1 broadcasts.
    """
    sizes = _sizes((x, of_x), (y, of_y))
    shape = tuple(sizes[label] for label in out)
    x, of_x = _narrowed(x, of_x, sizes, {*out, *of_y})
    y, of_y = _narrowed(y, of_y, sizes, {*out, *of_x})
    # what broadcasting dropped from one of them may now be for one alone to sum
    x, of_x = _narrowed(x, of_x, sizes, {*out, *of_y})
    both = [label for label in of_x if label in of_y]
    if not of_x or not of_y or (of_x == of_y == out):
        # nothing to contract: scalars and products element by element
        whole = type_of(x if of_x else y).shape
        product = mul_p(broadcast_to(x, whole), broadcast_to(y, whole))
        return _placed(product, of_x or of_y, out, shape)
    batch = [label for label in both if label in out]
    inner = [label for label in both if label not in out]

    def axes(labels: Labels, chosen: Sequence[Hashable]) -> tuple[int, ...]:
        return tuple(labels.index(label) for label in chosen)

    def order(of_x: Labels, of_y: Labels) -> Labels:
        return (*batch, *(a for a in (*of_x, *of_y) if a not in both))

    left, swapped = order(of_x, of_y), order(of_y, of_x)
    if _agreement(swapped, out) > _agreement(left, out):
        x, of_x, y, of_y, left = y, of_y, x, of_x, swapped
    product = dot_p(
        x,
        y,
        contract=(axes(of_x, inner), axes(of_y, inner)),
        batch=(axes(of_x, batch), axes(of_y, batch)),
    )
    return _placed(product, left, out, shape)


def _agreement(labels: Labels, out: Labels) -> int:
    """Returns how many of the last axes stand where `out` has them: what need not be moved."""
    wanted = [label for label in out if label in labels]
    same = [a == b for a, b in zip(reversed(labels), reversed(wanted), strict=True)]
    return [*same, False].index(False)


def _sizes(*labelled: tuple[Any, Labels]) -> dict[Hashable, int]:
    """Returns the size of each label; axes of size 1 broadcast.

    Raises:
        ShapeError: where axes of one label have different sizes.
    """
    sizes: dict[Hashable, int] = {}
    for x, labels in labelled:
        for label, size in zip(labels, type_of(x).shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                lines = "".join(
                    f"\n  operand {i}: {type_of(z)}" for i, (z, _) in enumerate(labelled)
                )
                raise ShapeError(
                    f"einsum: axes that belong together have sizes {known} and {size}.{lines}"
                )
            if known == 1:
                sizes[label] = size
    return sizes


def _narrowed(
    x: Any, labels: Labels, sizes: dict[Hashable, int], needed: set[Hashable]
) -> tuple[Any, Labels]:
    """Drops axes that broadcast, and sums those that nothing else needs."""
    shape = type_of(x).shape
    kept = [i for i, label in enumerate(labels) if shape[i] != 1 or sizes[label] == 1]
    if len(kept) < len(labels):
        x = reshape_p(x, shape=tuple(shape[i] for i in kept))
        labels = tuple(labels[i] for i in kept)
    alone = tuple(i for i, label in enumerate(labels) if label not in needed)
    if alone:
        x = sum_p(x, axes=alone)
        labels = tuple(label for label in labels if label in needed)
    return x, labels


def _placed(x: Any, labels: Labels, out: Labels, shape: tuple[int, ...]) -> Any:
    """Brings axes into the order of `out`, those that broadcasting dropped from both included."""
    order = tuple(labels.index(label) for label in out if label in labels)
    if order != tuple(range(len(order))):
        x = transpose_p(x, permutation=order)
    return x if type_of(x).shape == shape else reshape_p(x, shape=shape)


# --------------------------------------------------------------------------------------- einsum


def einsum(*operands: Any, optimize: Any = True, dtype: Any = None) -> Any:
    """Evaluates Einstein's summation convention.

    Args:
        *operands: the subscripts, such as "ij,jk->ik", then one array for each of them; or arrays
            and lists of labels in turn, then the labels of the result. A label twice in one
            operand takes its diagonal, one that is not in the result is summed, "..." broadcasts.
        optimize: the order of contraction: True lets `opt_einsum` choose, False goes from left to
            right; else what `opt_einsum.contract_path` takes.
        dtype: in which to compute; promoted where None.

    Raises:
        ValueError: where the subscripts do not fit the operands.

    Example:
        >>> import numpy as np
        >>> einsum("ij,j->i", np.eye(2), np.array([3.0, 4.0]))
        array([3., 4.])
    """
    is_text = isinstance(operands[0], str)
    given = operands[1:] if is_text else operands[: len(operands) // 2 * 2 : 2]
    arrays = promoted(*given, dtype=dtype)
    shapes = [type_of(x).shape for x in arrays]
    inputs, output = _subscripts(operands, shapes, is_text)
    labelled = [
        _without_repeats(x, tuple(labels)) for x, labels in zip(arrays, inputs, strict=True)
    ]
    sizes = _sizes(*labelled)
    shape = tuple(sizes[label] for label in output)
    for positions in _path(inputs, output, tuple(shapes), optimize):
        parts = [labelled.pop(i) for i in sorted(positions, reverse=True)]
        x, of_x = parts.pop()
        while parts:
            y, of_y = parts.pop()
            needed = {*output, *(label for _, labels in [*labelled, *parts] for label in labels)}
            left = tuple(dict.fromkeys(a for a in (*of_x, *of_y) if a in needed))
            if not labelled and not parts:
                left = output
            x, of_x = contracted(x, of_x, y, of_y, left), left
        labelled.append((x, of_x))
    ((x, labels),) = labelled
    if len(arrays) == 1 and set(labels) == set(output):
        # its axes in another order, or a diagonal
        order = tuple(map(labels.index, output))
        step = Step(transpose_p, Params(permutation=order), type_of(x).shape)
        return view_of(arrays[0], x if labels == output else taken(x, (step,)))
    x, labels = _narrowed(x, labels, sizes, set(output))
    return fresh(_placed(x, labels, output, shape))


def _subscripts(
    operands: Sequence[Any], shapes: list[tuple[int, ...]], is_text: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the labels of each operand and of the result, all spelled out."""
    if is_text:
        given = (operands[0], *shapes)
    else:
        lists = operands[1::2]
        given = tuple(item for pair in zip(shapes, lists, strict=False) for item in pair)
        given += (operands[-1],) if len(operands) % 2 else ()
    inputs, output, _ = parse_einsum_input(given, shapes=True)
    terms = tuple(inputs.split(","))
    for i, (labels, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(labels) != len(shape):
            raise ShapeError(
                f"einsum: the subscripts do not fit an operand.\n"
                f"  operand {i}: shape {shape}\n  subscripts: {labels!r}"
            )
    return terms, tuple(output)


def _without_repeats(x: Any, labels: Labels) -> tuple[Any, Labels]:
    """Takes the diagonal wherever a label stands at two axes."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            shape = type_of(x).shape
            if shape[a] != shape[b]:
                raise ShapeError(
                    f"einsum: axes of one label have sizes {shape[a]} and {shape[b]}.\n"
                    f"  operand: {type_of(x)}, label {label!r}"
                )
            x = diagonal_of(x, 0, a, b)
            labels = (*(labels[i] for i in range(len(labels)) if i not in (a, b)), label)
    return x, labels


@lru_cache(maxsize=1024)
def _found_path(expression: str, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> Any:
    path, _ = opt_einsum.contract_path(expression, *shapes, shapes=True, optimize=optimize)
    return path


def _path(
    inputs: tuple[str, ...], output: Labels, shapes: tuple[tuple[int, ...], ...], optimize: Any
) -> Any:
    """Returns which operands to contract with each other, in `opt_einsum`'s form."""
    if len(inputs) < 3 or optimize is False:
        # from left to right: the result of each contraction is the last operand
        n = len(inputs)
        first = [(0, 1)] if n > 1 else []
        return first + [(0, n - 2 - i) for i in range(n - 2)]
    if isinstance(optimize, (list, tuple)):
        return [step for step in optimize if not isinstance(step, str)]
    chosen = "auto" if optimize is True else optimize
    return _found_path(f"{','.join(inputs)}->{''.join(map(str, output))}", shapes, chosen)
