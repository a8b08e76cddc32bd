"""Finds where source code uses parts of a library that are not its public interface, and says what is missing of them.

Belongs here: reading source with `ast`, and comparing signatures. Which parts are used, and why, stands in
`resources/dagster_internals.py` and `resources/spark_internals.py`.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Where the product's source may lie; a folder that is not there has none.
PRODUCT = ("src", "resources", "assets", "expectations", "orchestration", "benchmarks", "chaos")


@dataclass(frozen=True)
class Use:
    """A module of a library that is imported, or named in a text that is a whole module path, at a place."""

    path: Path
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} uses {self.module}"


def sources(*folders: str) -> list[Path]:
    """Every Python file below the folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def modules_used(path: Path, libraries: Collection[str]) -> Iterator[Use]:
    """Every module of the libraries that a file imports or names; of `from a import b`, `a.b` too."""
    name = re.compile(rf"({'|'.join(libraries)})(\.\w+)+")
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and name.fullmatch(node.value):
            found = [node.value]
        for module in found:
            if module.partition(".")[0] in libraries:
                yield Use(path, getattr(node, "lineno", 0), module)


def is_private(module: str) -> bool:
    """Whether a part of the module's path begins with an underscore."""
    return any(part.startswith("_") for part in module.split("."))


def imported_names(path: Path, library: str) -> list[tuple[str, str]]:
    """What a file imports from a library by `from … import …`: module and name."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == library
        for alias in node.names
    ]


def missing(module: str, name: str, parameters: Sequence[str] = (), fields: Sequence[str] = ()) -> str:
    """What is missing of a name in a module, in words; empty if it is there with all parameters and fields.

    The name may have dots: a method of a class.
    """
    found: Any
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        return f"the module {module} is gone ({error})"
    for part in name.split("."):
        if not hasattr(found, part):
            return f"{module} has no {name} any more"
        found = getattr(found, part)
    if gone := [field for field in fields if field not in {*dir(found), *getattr(found, "__annotations__", {})}]:
        return f"{module}.{name} has no {', '.join(gone)} any more"
    if not parameters:
        return ""
    taken = inspect.signature(found).parameters
    if gone := [each for each in parameters if each not in taken]:
        return f"{module}.{name} takes no {', '.join(gone)} any more, but ({', '.join(taken)})"
    return ""
