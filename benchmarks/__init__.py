"""Benchmarks of ftrans against its peers: `python -m benchmarks --help`."""
