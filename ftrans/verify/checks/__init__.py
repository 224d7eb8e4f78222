"""The checks: each takes a probe, and records what it finds."""
