"""The interpreters as one value, which rules of primitives that carry programs are handed.

It stands below all of them, since they call such rules; the package fills it in.
"""

from __future__ import annotations

from types import SimpleNamespace

transforms = SimpleNamespace()
