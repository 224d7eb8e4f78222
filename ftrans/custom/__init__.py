"""What users add to the library: rules of their own, and calls of what is no program of ours."""
