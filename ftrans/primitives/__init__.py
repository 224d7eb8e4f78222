"""The primitives, each declared in one place with every rule that is known of it.

To declare one is to export it: the one that is named "sin" is `sin_p` here.
"""

# ruff: noqa: F401, F403, F405
from typing import TYPE_CHECKING

from ftrans.primitives import (
    collectives,
    control,
    conv,
    dot,
    fourier,
    placing,
    policies,
    random,
    record,
    reduction,
    rows,
    rules,
    special,
    spectral,
    triangular,
    windows,
)
from ftrans.primitives.record import *
from ftrans.primitives.rules.custom_spec import Spec
from ftrans.primitives.rules.external import Callee

if TYPE_CHECKING:

    def __getattr__(name: str) -> Primitive: ...


globals().update({f"{name}_p": primitive for name, primitive in registry.items()})
__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    {*record.__all__, "Callee", "Spec", *(f"{name}_p" for name in registry)}
)
