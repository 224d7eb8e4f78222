"""The promises of docs/architecture.md that a program can check: layers, docstrings, rules."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ftrans
import ftrans.interpreters
import ftrans.runtime
from ftrans.primitives.record import LINEAR, Absent, Joint, Primitive, Recursive, registry
from tests.long import listed

ROOT = Path(ftrans.__file__).parent
MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages([str(ROOT)], "ftrans.") if "__main__" not in name
)

# Each package may import those to the right of it, and itself.
LAYERS = [
    {"torch"},
    {"autograd"},
    {"verify"},
    {"custom"},
    {"external"},
    {"scipy"},
    {"func"},
    {"nn"},
    {"random"},
    {"pytree"},
    {"numpy"},
    {"interop"},
    {"runtime"},
    {"interpreters"},
    {"primitives"},
    {"ir"},
    {"traceback"},
    {"config"},
    {"errors"},
]

LONG: dict[str, int] = {}
"""Files that may have more than 450 lines, and how many they may have."""

CEILINGS = {
    "autograd": 6000,
    "custom": 5762,
    "external": 1167,
    "func": 7790,
    "interop": 2573,
    "interpreters": 4102,
    "ir": 2839,
    "nn": 3798,
    "numpy": 12380,
    "primitives": 10244,
    "random": 1513,
    "runtime": 5269,
    "scipy": 905,
    "torch": 858,
    "verify": 3466,
}
"""How many lines a package may have."""


def level(package: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if package in names)


def imported(path: Path, inside: bool | None = None) -> list[tuple[int, str]]:
    """Returns the line and the name of everything that a file imports, in functions too.

    What is imported for annotations only does not count. With `inside`, only what is imported
    inside of functions, or only what is not.
    """
    return [(line, name) for line, name, is_in in imports(path) if inside in (None, is_in)]


@functools.cache
def imports(path: Path) -> list[tuple[int, str, bool]]:
    """Returns for each import its line, its name and whether it is inside of a function."""
    found = []
    tree = ast.parse(path.read_text())
    in_function = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        is_in = id(node) in in_function
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.append((node.lineno, alias.name, is_in))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                found.append((node.lineno, f"{node.module}.{alias.name}", is_in))
    return found


def files() -> Iterator[tuple[Path, str]]:
    """Yields every file of the library with the package that it is in; not `ftrans` itself."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",):
            yield path, parts[0]


# ----------------------------------------------------------------------------------------- layers


def test_layers_point_down() -> None:
    wrong = []
    for path, package in files():
        for line, name in imported(path):
            parts = name.split(".")
            if parts[0] != "ftrans":
                continue
            target = parts[1]
            if target not in set().union(*LAYERS):
                wrong.append(f"{path}:{line}: imports {name} from the package itself")
            elif target != package and level(target) <= level(package):
                wrong.append(f"{path}:{line}: {package} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_layers_are_those_that_import_linter_checks() -> None:
    """The tool and this test must not drift apart."""
    text = (ROOT.parent / "pyproject.toml").read_text()
    listed = re.findall(r"(?ms)^layers = \[.*?^\]", text)[0]
    found = [set(re.findall(r"ftrans\.(\w+)", line)) for line in listed.splitlines()[1:-1]]
    assert found == LAYERS


def test_packages_are_those_of_the_architecture() -> None:
    known = set().union(*LAYERS)
    assert {package for _, package in files()} <= known
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    for package in {package for _, package in files()}:
        assert f"`ftrans.{package}`" in page or f"`{package}`" in page, package


def test_the_architecture_names_every_file_by_its_first_line() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    chapter = page[page.index("## Every file") :]
    tables = dict(
        re.findall(r"(?m)^\| `ftrans/?(.*?)` \| \|\n\|---\|---\|\n((?:\|.*\n)+)", chapter)
    )
    expected: dict[str, str] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if path.name != "__init__.py":
            folder = "" if path.parent == ROOT else str(path.parent.relative_to(ROOT))
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            line = docstring.split("\n\n")[0].replace("\n", " ").rstrip(".")
            expected[folder] = expected.get(folder, "") + f"| `{path.name}` | {line} |\n"
    assert tables == expected


def test_the_architecture_names_no_file_that_is_not_there() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    paths = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py")]
    paths += [str(path.relative_to(ROOT.parent)) for path in (ROOT.parent / "tests").rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    assert not {name for name in named if not any(f"/{p}".endswith(f"/{name}") for p in paths)}


def module_of(name: str) -> str:
    """Returns the module that a name is imported from, which may be the name itself."""
    return name if name in MODULES else name.rpartition(".")[0]


def test_no_circles_within_packages() -> None:
    """What is imported inside of functions counts; a package's own `__init__` does not."""
    paths = {name: ROOT.parent / Path(*name.split(".")) for name in MODULES}
    sources = {name: path.with_suffix(".py") for name, path in paths.items() if not path.is_dir()}
    pending = {
        name: {module_of(found) for _, found in imported(source)} & (sources.keys() - {name})
        for name, source in sources.items()
    }
    # what imports none of the others, and what none of them imports, is in no circle
    while free := {
        name
        for name, needed in pending.items()
        if not needed or not any(name in others for others in pending.values())
    }:
        pending = {name: pending[name] - free for name in pending.keys() - free}
    assert not pending, "\n".join(f"{name}: {sorted(pending[name])}" for name in sorted(pending))


OF_ALL_NAMES = {
    "numpy/advice.py",
    "numpy/methods.py",
    "numpy/protocols.py",
    "numpy/torch_counts.py",
    "numpy/torch_formulas.py",
    "numpy/torch_functions.py",
    "numpy/torch_kinds.py",
    "numpy/torch_methods.py",
    "numpy/torch_places.py",
    "numpy/torch_products.py",
    "numpy/torch_spectra.py",
}
"""These look names up in the package that they are in, when they are called."""


def test_modules_do_not_import_the_package_that_they_are_in() -> None:
    found = set()
    for path, _ in files():
        name = path.relative_to(ROOT)
        inside = {".".join(("ftrans", *folder.parts)) for folder in name.parents}
        if path.name != "__init__.py" and inside & {module_of(n) for _, n in imported(path)}:
            found.add(str(name))
    assert found == OF_ALL_NAMES


def test_what_is_imported_above_is_not_imported_in_functions_too() -> None:
    wrong = []
    for path, _ in files():
        above = {module_of(name) for _, name in imported(path, inside=False)}
        wrong += [
            f"{path}:{line}: {name}"
            for line, name in imported(path, inside=True)
            if name.startswith("ftrans.") and module_of(name) in above
        ]
    assert not wrong, "\n".join(wrong)


ARRAY_LIBRARIES = {"jax", "jaxlib", "scipy", "torch"}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("ir", ARRAY_LIBRARIES),
        ("errors", {*ARRAY_LIBRARIES, "numpy"}),
        ("traceback", {*ARRAY_LIBRARIES, "numpy"}),
    ],
)
def test_low_layers_know_no_array_library(package: str, forbidden: set[str]) -> None:
    for path, owner in files():
        if owner == package:
            for line, name in imported(path):
                assert name.split(".")[0] not in forbidden, f"{path}:{line}: {name}"


def test_private_parts_of_jax_are_left_alone() -> None:
    for path, _ in files():
        for line, name in imported(path):
            if name.split(".")[0] == "jax":
                assert "_src" not in name, f"{path}:{line}: {name}"
                if not path.match(WRITES_JAXPRS):
                    assert not name.startswith("jax.interpreters"), f"{path}:{line}: {name}"


LOWERS_WITH_JAX = {"primitives/conv.py", "primitives/namespace.py"}
"""These lower to `jax.lax` from NumPy's road too, and so ask JAX for double precision."""

WRITES_JAXPRS = "runtime/splice.py"
"""It needs `jax.extend` and, where that has no call primitive yet, `jax.interpreters`; what imports
it does without where they are gone."""

READS_JAXPRS = "interop/importer.py"
"""It needs `jax.extend.core`; it is imported when a function of JAX's is first called."""


def test_interpreters_see_programs_only() -> None:
    for path, owner in files():
        if owner == "interpreters":
            for line, target in imported(path):
                assert target.split(".")[0] not in ARRAY_LIBRARIES, f"{path}:{line}: {target}"


# ------------------------------------------------------------------------------------- docstrings


def public() -> Iterator[tuple[str, Any]]:
    """Yields every module, and every class and function that is public in it.

    That is what `__all__` lists or, where there is none, what the module defines under a name
    without an underscore in front.
    """
    yield "ftrans", ftrans
    for name in MODULES:
        module = importlib.import_module(name)
        yield name, module
        listed = getattr(module, "__all__", None)
        for key, member in list(vars(module).items()):
            if not (inspect.isclass(member) or inspect.isfunction(member)):
                continue
            ours = not key.startswith("_") and member.__module__ == name
            if ours if listed is None else key in listed:
                yield f"{name}.{key}", member


def test_all_lists_what_exists() -> None:
    for name in ["ftrans", *MODULES]:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", [])
        assert len(set(exported)) == len(exported), f"{name}: a name is listed twice"
        missing = [entry for entry in exported if not hasattr(module, entry)]
        assert not missing, f"{name}: __all__ lists {missing}"


def test_one_import_is_enough() -> None:
    # in a process of its own, since here other tests import what they need
    packages = ["autograd.function", "errors", "external", "func", "ir", "numpy", "primitives"]
    uses = "; ".join(f"ftrans.{package}.__name__" for package in packages)
    subprocess.run([sys.executable, "-c", f"import ftrans; {uses}"], check=True)


def test_everything_public_has_a_docstring() -> None:
    wrong = []
    for name, member in public():
        if getattr(member, "__module__", "ftrans").split(".")[0] != "ftrans":
            continue  # such as numpy's bool_, exported under a name of ours
        doc = inspect.cleandoc(member.__doc__ or "")
        summary, _, rest = doc.partition("\n")
        if not summary.strip():
            wrong.append(f"{name}: no docstring")
        elif not summary.endswith("."):
            wrong.append(f"{name}: the summary is no sentence on one line: {summary!r}")
        elif rest and not rest.startswith("\n"):
            wrong.append(f"{name}: no blank line after the summary")
    assert not wrong, "\n".join(wrong)


def test_public_methods_have_a_docstring() -> None:
    wrong = []
    for name, member in public():
        if inspect.isclass(member) and member.__module__.startswith("ftrans"):
            for key, value in vars(member).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if key.startswith("_") or not inspect.isfunction(function):
                    continue
                if function.__name__ != "<lambda>" and not inspect.getdoc(function):
                    wrong.append(f"{name}.{key}")
    assert not wrong, "\n".join(sorted(wrong))


# ------------------------------------------------------------------------------------- primitives


def is_reason(rule: Any) -> bool:
    return isinstance(rule, Absent) and len(rule.reason.split()) >= 2


def test_primitives_are_known_above_their_layer_by_tags_and_cost() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] in ("primitives", "ir"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                named = [s for s in sides if re.search(r"(primitive|operation)\.name$", s)]
                assert not named, f"{path}:{node.lineno} asks for a primitive by name: {named}"


@pytest.mark.parametrize("primitive", registry.values(), ids=lambda p: p.name)
def test_every_rule_is_given_or_absent_with_a_reason(primitive: Primitive) -> None:
    p = primitive
    assert re.fullmatch(r"[a-z][a-z0-9_]*", p.name)
    assert p.tags, "no class tag"
    assert callable(p.infer)
    assert callable(p.lower)
    assert callable(p.cost)
    assert p.samples(), "no samples"
    for name in ("linearize", "batch", "prune", "rewrite"):
        rule = getattr(p, name)
        assert is_reason(rule) or isinstance(rule, Recursive) or callable(rule), name
    operands = p.samples()[0].operands
    for name in ("jvp", "transpose"):
        rule = getattr(p, name)
        if is_reason(rule) or isinstance(rule, (Joint, Recursive)):
            continue
        if rule is LINEAR:
            assert name == "jvp"
            continue
        assert len(rule) >= len(operands), f"{name} has {len(rule)} rules"
        for partial in rule:
            assert is_reason(partial) or callable(partial), f"{name}: {partial!r}"
    if p.source is not None:
        assert p.source.startswith(("http", "doi:")) or len(p.source.split()) >= 2
    assert importlib.import_module("ftrans.primitives").__dict__[f"{p.name}_p"] is p


# ---------------------------------------------------------------------------------- importing it

IMPORTS = """
import sys
import jax
before = dict(jax.config.values)
import ftrans, ftrans.numpy as fnp
import numpy as np
gradient = ftrans.func.grad(lambda x: fnp.tanh(x).sum())
assert gradient(np.ones(3)).dtype == np.float64
assert gradient(jax.numpy.ones(3)).dtype == np.float32
assert ftrans.jit(gradient)(np.ones(3)).dtype == np.float64
assert dict(jax.config.values) == before, "JAX's configuration changed"
assert jax.numpy.ones(3).dtype == np.float32
print(*sorted(sys.modules))
"""


def test_importing_brings_in_little_and_leaves_jax_as_it_is() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_ENABLE")}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTS],
        env={**environment, "PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    loaded = set(found.stdout.split())
    for name in (
        "torch", "tensorflow", "matplotlib", "pandas", "sklearn", "optax", "IPython", "pytest",
        "hypothesis", "scipy.stats", "scipy.optimize", "scipy.signal", "scipy.integrate", "tqdm",
    ):  # fmt: skip
        assert name not in loaded, name


def test_nothing_but_jaxlink_reaches_past_the_public_front_of_jax() -> None:
    """`jax.enable_x64`, `jax.core` and the configuration are asked for in one module."""
    wrong = []
    for path, _ in files():
        name = str(path.relative_to(ROOT))
        if name in {"runtime/jaxlink.py", WRITES_JAXPRS, READS_JAXPRS, *LOWERS_WITH_JAX}:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("#")[0]
            if re.search(r"jax\.(core|enable_x64|experimental|extend)\b", code) or (
                "jax.config.update(" in code and '"' not in code
            ):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


# ----------------------------------------------------------------------------------------- rooms


def test_rooms_are_small() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in ROOT.rglob("*.py")
    }
    long = {name: n for name, n in lengths.items() if n > LONG.get(name, 450)}
    assert not long, f"look for the seam: {long}"
    assert not {name for name in LONG if lengths.get(name, 0) <= 450}, "LONG lists a short file"


def test_packages_keep_to_their_size() -> None:
    lengths: dict[str, int] = {}
    for path, package in files():
        if path.parent != ROOT:
            lengths[package] = lengths.get(package, 0) + len(path.read_text().splitlines())
    assert lengths.keys() == CEILINGS.keys()
    long = {name: n for name, n in lengths.items() if n > CEILINGS[name]}
    assert not long, f"delete before adding: {long}"


def test_no_bare_raise_of_a_builtin_in_what_users_call() -> None:
    """Users catch `FtransError`: what `func` and `numpy` raise derives from it."""
    wrong = []
    for path, package in files():
        if package not in ("func", "numpy"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                if name in ("ValueError", "TypeError", "IndexError", "RuntimeError", "KeyError"):
                    wrong.append(f"{path}:{node.lineno}: raise {name}")
    assert not wrong, "\n".join(wrong)


def test_the_version_is_that_of_the_package() -> None:
    text = (ROOT.parent / "pyproject.toml").read_text()
    assert ftrans.__version__ == tomllib.loads(text)["project"]["version"]


def test_long_tests_are_there() -> None:
    assert len(listed()) > 100
    for name in listed():
        path, _, test = name.partition("::")
        function = test.partition("[")[0].rpartition("::")[2]
        assert f"def {function}(" in (ROOT.parent / path).read_text(), name
