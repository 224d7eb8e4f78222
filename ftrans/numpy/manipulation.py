"""All that changes shapes and places of elements: shaping, joining and rearrangement as one."""

from __future__ import annotations

from ftrans.numpy import joining, rearrangement, shaping
from ftrans.numpy.joining import *  # noqa: F403
from ftrans.numpy.rearrangement import *  # noqa: F403
from ftrans.numpy.shaping import *  # noqa: F403

__all__ = [*joining.__all__, *rearrangement.__all__, *shaping.__all__]
