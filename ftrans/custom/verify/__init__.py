"""Verifies derivatives and rules: against differences, against each other, against a loop."""
