"""Rules with and without faults, by family of operations: what `check_rules` is tested against."""
