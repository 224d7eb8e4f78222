"""Custom rules, calls to what is outside, and the verification of rules."""
