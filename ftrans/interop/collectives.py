"""JAX's collectives, over the axes that what is traced here is mapped along."""

from __future__ import annotations

from typing import Any

import ftrans.primitives as p
from ftrans.interop.callee import axes_here
from ftrans.interop.importer import Importer, RefusedError, Rule
from ftrans.ir import Axes


def _over(equation: Any, several: bool = False) -> Axes:
    """Returns the axes that an equation goes over, whose sizes are those here."""
    params = equation.params
    names = params["axes" if "axes" in params else "axis_name"]
    names = names if isinstance(names, tuple) else (names,)
    sizes = dict(axes_here())
    if (
        params.get("axis_index_groups") is not None
        or not all(name in sizes for name in names)
        or (len(names) > 1 and not several)
    ):
        raise RefusedError(
            f"from_jax: {equation.primitive.name} over {', '.join(map(repr, names))} in this way "
            f"has no counterpart.\n  params: {params}\n"
            f"  Go over one axis after the other, without axis_index_groups."
        )
    return Axes(names, tuple([sizes[name] for name in names]))


def _rule(ours: Any, **theirs: str) -> Rule:
    """Makes the rule of a primitive of JAX's, with the names that our params have there."""

    def rule(importer: Importer, equation: Any, *operands: Any) -> Any:
        given = {name: equation.params[other] for name, other in theirs.items()}
        axes = _over(equation, several=not theirs)
        return ours(*map(importer.array, operands), axes=axes, **given)

    return rule


RULES: dict[str, Rule] = {
    "psum": _rule(p.psum_p),
    "pmax": _rule(p.pmax_p),
    "pmin": _rule(p.pmin_p),
    "axis_index": _rule(p.axis_index_p),
    "all_gather": _rule(p.all_gather_p, axis="all_gather_dimension", tiled="tiled"),
    "reduce_scatter": _rule(p.psum_scatter_p, axis="scatter_dimension", tiled="tiled"),
    "ppermute": _rule(p.ppermute_p, perm="perm"),
}


def _all_to_all(importer: Importer, equation: Any, x: Any) -> Any:
    # JAX gives those that are not tiled an axis of size one beforehand
    split, concat = equation.params["split_axis"], equation.params["concat_axis"]
    how = {"split": split, "concat": concat, "tiled": True}
    return p.all_to_all_p(importer.array(x), axes=_over(equation), **how)


RULES["all_to_all"] = _all_to_all
