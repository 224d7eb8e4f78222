"""Primitives that exist for rules of users: custom rules, external calls, what is missing."""

from ftrans.primitives.rules import custom, external, missing  # noqa: F401
