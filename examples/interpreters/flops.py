"""What a function costs, line by line: floating-point operations, and bytes read and written.

Nothing runs: arguments may be types. Of a branch the dearest side counts, of a loop whose number of
steps is not known a single step.
"""

from collections import Counter

import ftrans


class Flops(ftrans.Interpreter):
    def __init__(self, times=1):
        self.times, self.flops, self.nbytes = times, Counter(), Counter()

    def lift(self, value):
        return None

    def default(self, operation, *values):
        line = str(operation.location)
        self.flops[line] += self.times * operation.cost.flops
        self.nbytes[line] += self.times * operation.cost.nbytes

    @ftrans.Interpreter.rule("scan", "while")
    def loop(self, operation, *values):
        steps = operation.params.get("length", operation.params.get("bound"))
        for program in operation.params.programs():
            self.add(program, 1 if steps is None else steps)

    @ftrans.Interpreter.rule("switch")
    def branch(self, operation, *values):
        branches = operation.params["branches"]
        self.add(max(branches, key=lambda program: Flops().add(program).flops.total()))

    def add(self, program, steps=1):
        inner = Flops(self.times * steps)
        inner.run(program, *program.inputs)
        self.flops.update(inner.flops)
        self.nbytes.update(inner.nbytes)
        return self
