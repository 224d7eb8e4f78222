"""What `func.checkpoint` saves: policies by JAX's names, the namespace `func.checkpoint_policies`.

A policy is a function `(primitive, *types, **params) -> bool` of an equation and the types of its
results. Equal ones are equal values, so that programs which differ in nothing else are found again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.primitives.control.checkpoint import named_p
from ftrans.primitives.conv import conv_p
from ftrans.primitives.dot import dot_p
from ftrans.traceback import boundary

Policy = Callable[..., bool]

__all__ = [
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "nothing_saveable",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_from_both_policies",
    "save_only_these_names",
]


def everything_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Saves all that a derivative needs, as if there were no `checkpoint`."""
    return True


def nothing_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Saves nothing: all is computed again, calls of what is not traced among it."""
    return False


def dots_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Saves the results of products of matrices and of convolutions."""
    return primitive in (dot_p, conv_p)


def dots_with_no_batch_dims_saveable(primitive: Any, *types: Any, **params: Any) -> bool:
    """Saves the results of products that have no batch axes: those with weights, mostly."""
    return primitive is dot_p and not params["batch"][0]


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@dataclass(frozen=True)
class _Named:
    """Saves what has a name, if it is among `names`, or if it is not."""

    names: tuple[str, ...]
    among: bool

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool:
        return primitive is named_p and (params["name"] in self.names) is self.among


@dataclass(frozen=True)
class _AllBut:
    excluded: tuple[str, ...]

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool:
        return primitive is not named_p or params["name"] not in self.excluded


@dataclass(frozen=True)
class _Either:
    first: Policy
    second: Policy

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool:
        return any(policy(primitive, *types, **params) for policy in (self.first, self.second))


def _names(function: str, names: tuple[Any, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(
                f"checkpoint_policies.{function}: names are strings, those of checkpoint_name.\n"
                f"  name: {name!r}\n  Write {function}('x', 'y')."
            )
    return tuple(sorted(set(names)))


@boundary
def save_only_these_names(*names: str) -> Policy:
    """Saves what `checkpoint_name` gave one of these names, and nothing else."""
    return _Named(_names("save_only_these_names", names), True)


@boundary
def save_any_names_but_these(*names: str) -> Policy:
    """Saves what `checkpoint_name` gave a name, unless it is one of these."""
    return _Named(_names("save_any_names_but_these", names), False)


@boundary
def save_anything_except_these_names(*names: str) -> Policy:
    """Saves all that a derivative needs, but for what `checkpoint_name` gave one of these names."""
    return _AllBut(_names("save_anything_except_these_names", names))


@boundary
def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
    """Saves what either of two policies does."""
    return _Either(*[checked("save_from_both_policies", x) for x in (policy_1, policy_2)])


def checked(function: str, policy: Any) -> Policy:
    """Returns a policy; one of JAX's, which knows no primitive of ours, by its name here.

    Raises:
        ArgumentError: where it is no function.
        UnsupportedError: where it is one of JAX's without a counterpart.
    """
    if not callable(policy):
        raise ArgumentError(
            f"{function}: a policy is one of func.checkpoint_policies, or a function.\n"
            f"  policy: {policy!r}\n"
            f"  Write policy=func.checkpoint_policies.dots_saveable, or a function\n"
            f"  (primitive, *types, **params) -> bool."
        )
    if not (getattr(policy, "__module__", None) or "").startswith("jax."):
        return policy  # pyright: ignore[reportReturnType]
    import jax

    for name in __all__:
        if policy == getattr(jax.checkpoint_policies, name, None):
            return globals()[name]
    kind, names = type(policy).__name__, vars(policy) if hasattr(policy, "__dict__") else {}
    if kind == "SaveOnlyTheseNames":
        return save_only_these_names(*names["saveable_names"])
    if kind == "SaveAnyNamesButThese":
        return save_any_names_but_these(*names["names"])
    name = getattr(policy, "__qualname__", kind).partition(".")[0]
    raise UnsupportedError(
        f"{function}: the policy is one of JAX's, which looks at JAX's primitives.\n"
        f"  policy: jax.checkpoint_policies.{name}\n"
        f"  Take one of func.checkpoint_policies, or a function (primitive, *types, **params) -> "
        f"bool."
    )
