"""What to do about functions of SciPy's that JAX has not."""


def advice(module: str) -> str:
    """Returns what to do about a function of SciPy's that JAX has not."""
    return (
        f".\n  Call SciPy's own, scipy.{module}, on x.detach() where no derivative is wanted;\n"
        f"  else write an autograd.Function around it, with its derivative."
    )
