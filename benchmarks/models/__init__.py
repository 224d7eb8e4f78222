"""The programs that are run, each written once against a library of `benchmarks.libraries`."""
