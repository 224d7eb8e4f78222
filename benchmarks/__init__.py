"""Benchmarks of ftrans against its peers: `python -m benchmarks --help`."""

import os

# what is measured is compiled, not read; processes of their own have it too
os.environ.setdefault("FTRANS_CACHE_DIR", "")
