"""What `func.checkpoint` saves: policies by JAX's names, the namespace `func.checkpoint_policies`.

A policy is a function `(primitive, *types, **params) -> bool | str` of an equation and the types of
its results, which are saved where it is true, and on the host where it is "host". Equal ones are
equal values, so that programs which differ in nothing else are found again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ftrans.errors import ArgumentError, UnsupportedError
from ftrans.primitives.control.checkpoint import named_p
from ftrans.primitives.conv import conv_p
from ftrans.primitives.dot import dot_p
from ftrans.traceback import boundary

Policy = Callable[..., bool | str]

__all__ = [
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "nothing_saveable",
    "offload_dot_with_no_batch_dims",
    "save_and_offload_only_these_names",
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


def everything_offloaded(primitive: Any, *types: Any, **params: Any) -> str:
    """Saves all that a derivative needs on the host."""
    return "host"


def _dots_offloaded(primitive: Any, *types: Any, **params: Any) -> bool | str:
    return dots_with_no_batch_dims_saveable(primitive, **params) and "host"


checkpoint_dots = dots_saveable
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


@dataclass(frozen=True)
class _Named:
    """Saves what has a name, if it is among `names`, or if it is not."""

    names: tuple[str, ...]
    among: bool
    on_host: tuple[str, ...] = ()

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool | str:
        if primitive is not named_p:
            return False
        name = params["name"]
        return "host" if name in self.on_host else (name in self.names) is self.among


@dataclass(frozen=True)
class _AllBut:
    excluded: tuple[str, ...]

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool:
        return primitive is not named_p or params["name"] not in self.excluded


@dataclass(frozen=True)
class _Either:
    first: Policy
    second: Policy

    def __call__(self, primitive: Any, *types: Any, **params: Any) -> bool | str:
        first = self.first(primitive, *types, **params)
        return first or self.second(primitive, *types, **params)


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


@boundary
def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Sequence[str],
    names_which_can_be_offloaded: Sequence[str],
    offload_src: str = "device",
    offload_dst: str = "pinned_host",
) -> Policy:
    """Saves what has one of these names, the latter on the host, and nothing else."""
    function = "save_and_offload_only_these_names"
    _check_memories(function, offload_src, offload_dst)
    saved = _names(function, (*names_which_can_be_saved,))
    moved = _names(function, (*names_which_can_be_offloaded,))
    if both := {*saved} & {*moved}:
        raise ArgumentError(
            f"checkpoint_policies.{function}: a name is saved on the device or on the host.\n"
            f"  names: {', '.join(sorted(both))}\n  Give each in one of the arguments."
        )
    return _Named(saved, True, moved)


@boundary
def offload_dot_with_no_batch_dims(
    offload_src: str = "device", offload_dst: str = "pinned_host"
) -> Policy:
    """Saves the results of products that have no batch axes, on the host."""
    _check_memories("offload_dot_with_no_batch_dims", offload_src, offload_dst)
    return _dots_offloaded


def _check_memories(function: str, source: str, target: str) -> None:
    if (source, target) != ("device", "pinned_host"):
        raise ArgumentError(
            f"checkpoint_policies.{function}: what is saved goes from 'device' to 'pinned_host'.\n"
            f"  offload_src: {source!r}\n  offload_dst: {target!r}"
        )


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
    if "offload" in name and name in __all__:  # a closure over its arguments
        return globals()[name](**inspect.getclosurevars(policy).nonlocals)
    raise UnsupportedError(
        f"{function}: the policy is one of JAX's, which looks at JAX's primitives.\n"
        f"  policy: jax.checkpoint_policies.{name}\n"
        f"  Take one of func.checkpoint_policies, or a function (primitive, *types, **params) -> "
        f"bool."
    )
