"""Imports point down, and the names of our packages are ours alone."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("orchestration", "expectations", "assets", "resources")


def test_imports_only_point_down() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_brings_a_package_of_this_name(package: str) -> None:
    owners = set(metadata.packages_distributions().get(package, []))
    assert owners <= {"tidemark"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_that_is_imported_is_the_one_in_this_tree(package: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import {package}; print(list({package}.__path__)[0])"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()) == ROOT / package


def test_the_coordinator_is_imported_without_the_orchestrator_and_without_spark() -> None:
    heavy = {"dagster", "pyspark", "delta", "great_expectations"}
    code = f"import sys, resources.coordinator; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
