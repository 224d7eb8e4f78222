"""Tells whether a program is linear in some inputs, and not merely affine."""

from __future__ import annotations

from ftrans.errors import TransposeError
from ftrans.interpreters.simplify import fills
from ftrans.ir import Program

__all__ = ["check_no_constant_terms"]

_JOINTLY_LINEAR = {"add", "sub", "select", "concatenate"}


def check_no_constant_terms(
    program: Program, linear: tuple[bool, ...], known_only: bool = False
) -> None:
    """Raises where a constant that is not zero is added to what is linear.

    Transposition alone would drop the constant without a word.

    Args:
        program: an inlined, simplified program.
        linear: which inputs it should be linear in.
        known_only: whether values that are not known, as those of other inputs, are taken for zero.
    """
    depends = list(linear)
    constants = fills(program)
    for equation, _, location in program.numbered():
        mixed = [type(a) is int and depends[a] for a in equation.operands]
        terms = mixed[1:] if equation.primitive.name == "select" else mixed
        atoms = equation.operands[len(mixed) - len(terms) :]
        if equation.primitive.name in _JOINTLY_LINEAR and any(terms):
            for atom, is_linear in zip(atoms, terms, strict=True):
                known = constants.get(atom)
                if not is_linear and (not known_only if known is None else known.value != 0):
                    raise TransposeError(
                        f"the function is affine, not linear: a constant is part of its result.\n"
                        f"  {equation.primitive.name} at {location or 'an unknown place'}\n"
                        f"  Take the constant away, or write func.vjp(f, x) to transpose the "
                        f"derivative of f at x."
                    )
        depends += [any(mixed)] * len(equation.types)
    for output in program.outputs:
        known = constants.get(output)
        constant = not (type(output) is int and depends[output])
        if constant and (not known_only if known is None else known.value != 0):
            raise TransposeError(
                "the function is affine, not linear: a result is constant.\n"
                "  Return it as it is, outside the function that is transposed."
            )
