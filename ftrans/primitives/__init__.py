"""The primitives, each declared in one place with every rule that is known of it."""

# ruff: noqa: F403
from types import ModuleType as _ModuleType

from ftrans.primitives.arithmetic import *
from ftrans.primitives.axes import *
from ftrans.primitives.complex import *
from ftrans.primitives.control import *
from ftrans.primitives.conv import *
from ftrans.primitives.cumulative import *
from ftrans.primitives.dot import *
from ftrans.primitives.elementary import *
from ftrans.primitives.indexing import *
from ftrans.primitives.logic import *
from ftrans.primitives.magnitude import *
from ftrans.primitives.record import *
from ftrans.primitives.reduction import *
from ftrans.primitives.rules import *
from ftrans.primitives.scatter import *
from ftrans.primitives.select import *
from ftrans.primitives.shape import *
from ftrans.primitives.sorting import *
from ftrans.primitives.special import *
from ftrans.primitives.windows import *

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    _name
    for _name, _value in globals().items()
    if not _name.startswith("_") and not isinstance(_value, _ModuleType)
]
