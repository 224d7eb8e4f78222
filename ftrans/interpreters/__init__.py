"""Interpreters: pure functions from programs to programs, remembered on the programs."""

from ftrans.interpreters.batch import batch
from ftrans.interpreters.inline import inline
from ftrans.interpreters.jvp import jvp
from ftrans.interpreters.linearize import Linearized, linearize
from ftrans.interpreters.simplify import simplify
from ftrans.interpreters.transpose import transpose

__all__ = ["Linearized", "batch", "inline", "jvp", "linearize", "simplify", "transpose"]
