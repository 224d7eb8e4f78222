"""The typed intermediate representation: types, programs, and the tracer that builds them.

This layer knows no primitive and no array library; it sees of a primitive its name, `infer_types`,
`cost` and `is_higher_order`.
"""

from ftrans.ir.axes import Axes
from ftrans.ir.frame import Frame, Tracer, bind, make_tracer, open_frame, type_of
from ftrans.ir.location import Location
from ftrans.ir.program import Atom, Equation, Params, Program, check
from ftrans.ir.source import Abstract
from ftrans.ir.stack import is_tracing
from ftrans.ir.types import ArrayType, Literal

__all__ = [
    "Abstract",
    "ArrayType",
    "Atom",
    "Axes",
    "Equation",
    "Frame",
    "Literal",
    "Location",
    "Params",
    "Program",
    "Tracer",
    "bind",
    "check",
    "is_tracing",
    "make_tracer",
    "open_frame",
    "type_of",
]
