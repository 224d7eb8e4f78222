"""C functions made of Python ones, which compiled programs call."""
