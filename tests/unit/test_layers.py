"""Imports point down, the library stands alone, and the names of its package are the only ones that are installed."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import tidemark

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ("orchestration", "expectations", "assets", "resources")
# The longest list of files that a reader takes in at once.
FILES_OF_A_PACKAGE = 18
# What must not be needed, whatever of the library is used.
FORBIDDEN = ("dagster", "dagster_pyspark", "pyspark", "delta", "great_expectations")

IMPORT_EVERYTHING = f"""
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)

sys.meta_path.insert(0, NotInstalled())
import tidemark
modules = [each.name for each in pkgutil.walk_packages(tidemark.__path__, "tidemark.") if "__main__" not in each.name]
for name in modules:
    importlib.import_module(name)
print(len(modules), *[getattr(tidemark, name).__name__ for name in tidemark.__all__])
"""


def test_imports_only_point_down() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PROJECT)
def test_a_folder_of_the_project_is_installed_by_nobody(package: str) -> None:
    assert package not in metadata.packages_distributions()


@pytest.mark.parametrize("package", [*PROJECT, "tidemark"])
def test_the_package_that_is_imported_is_the_one_in_this_tree(package: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import {package}; print(list({package}.__path__)[0])"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()) == (ROOT / "src" / package if package == "tidemark" else ROOT / package)


def test_what_is_built_for_others_is_one_package_and_works_without_the_orchestrator_and_spark(tmp_path: Path) -> None:
    tree, wheels, installed = tmp_path / "tree", tmp_path / "wheels", tmp_path / "installed"
    shutil.copytree(ROOT / "src" / "tidemark", tree / "src" / "tidemark", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(wheels)!r})"
    wheels.mkdir()
    subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, check=True)
    [wheel] = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(installed)
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"tidemark"}
    assert "tidemark/py.typed" in names

    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_EVERYTHING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules, *exported = done.stdout.split()
    assert int(modules) == sum(name.endswith(".py") for name in names) - sum("__main__" in name for name in names) - 1
    assert exported == list(tidemark.__all__)


def test_the_library_without_a_checkout_has_its_home_here_and_no_streams(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    shutil.copytree(ROOT / "src" / "tidemark", installed / "tidemark")
    program = (
        "from tidemark import Delta, Home, Platform, Signal\n"
        "with Platform.open(Home.locate()) as platform:\n"
        "    delta = Delta('shop', 'signal', 'o-1', 1763199001000000, signal=Signal('item-7', 'view'))\n"
        "    print(platform.producer('p').write([delta]).wait().epochs)\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "{0: 1}\n"), done.stderr
    assert (tmp_path / ".tidemark" / "log").is_dir()


def test_importing_the_library_imports_neither_arrow_nor_numpy() -> None:
    code = "import sys, tidemark; tidemark.Delta; print({'numpy', 'pyarrow', 'duckdb', 'deltalake'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_is_exported_is_what_type_checkers_see() -> None:
    tree = ast.parse((ROOT / "src" / "tidemark" / "__init__.py").read_text())
    [block] = [each for each in tree.body if isinstance(each, ast.If)]
    seen = {alias.name for each in block.body if isinstance(each, ast.ImportFrom) for alias in each.names}
    assert seen == set(tidemark.__all__)


def test_no_package_of_the_library_has_more_files_than_a_reader_takes_in() -> None:
    packages = [folder.parent for folder in (ROOT / "src" / "tidemark").rglob("__init__.py")]
    sizes = {folder.name: sum(file.name != "__init__.py" for file in folder.glob("*.py")) for folder in packages}
    assert {name: size for name, size in sizes.items() if size > FILES_OF_A_PACKAGE} == {}


def test_every_file_that_the_code_names_is_there() -> None:
    """A docstring that sends the reader to a file has to follow it when it moves."""
    folders = ("src", "resources", "assets", "expectations", "orchestration", "chaos", "benchmarks")
    missing = []
    for source in (file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))):
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", source.read_text()):
            near = (source.parent, ROOT, ROOT / "src", ROOT / "src" / "tidemark")
            # Of the stages, which are built alike, one stands for all.
            alike = source.parent.glob(f"*/{name}") if source.parent == ROOT / "assets" else ()
            if not any((folder / name).is_file() for folder in near) and not any(alike):
                missing.append(f"{source.relative_to(ROOT)}: {name}")
    assert missing == []
