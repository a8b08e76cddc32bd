"""Where Java and the Delta jars are, and how a process is prepared for a JVM.

Belongs here: the files that `./tidemark` put beside the Python environment, and the three variables that Spark's
launcher reads. Does not belong here: settings of a session (`session.py`). Nothing here needs the network or starts
anything.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tidemark.model.errors import ConfigurationError

PROJECT = Path(__file__).resolve().parent.parent


class ToolchainMissingError(ConfigurationError):
    """Java or the Delta jars are not where the launcher puts them."""

    def __init__(self, what: str, where: Path) -> None:
        self.where = where
        super().__init__(
            f"{what} should be at {where}, but it is not there. Run ./tidemark once: it sets up missing parts."
        )


@dataclass(frozen=True)
class Toolchain:
    """What a session needs from outside Python."""

    java_home: Path
    jars: tuple[Path, ...]


def find_toolchain() -> Toolchain:
    """Java and the jars, after checking that both exist."""
    # The launcher's directory for files that belong to this Python environment but are not Python.
    share = Path(sys.prefix) / "share" / "tidemark"
    jars = tuple(sorted((share / "jars").glob("*.jar")))
    if not jars:
        raise ToolchainMissingError("The set of Delta jars", share / "jars")
    pointer = share / "java_home"
    if not pointer.exists():
        raise ToolchainMissingError("The note of which Java to use", pointer)
    java_home = Path(pointer.read_text().strip())
    if not os.access(java_home / "bin" / "java", os.X_OK):
        raise ToolchainMissingError("Java", java_home / "bin" / "java")
    return Toolchain(java_home, jars)


def activate_toolchain() -> Toolchain:
    """Make this process and its children use the launcher's Java and this interpreter; call before a JVM starts."""
    toolchain = find_toolchain()
    os.environ["JAVA_HOME"] = str(toolchain.java_home)
    binaries = str(toolchain.java_home / "bin")
    path = os.environ.get("PATH", "")
    if binaries not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(part for part in (binaries, path) if part)
    # Without this, Python workers start with any `python3` on the path, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Workers import from the project's folders, which are not installed, and never from the directory in which they
    # start: it may have folders of the same names.
    os.environ["PYTHONSAFEPATH"] = "1"
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(PROJECT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PROJECT), *paths)))
    # Another installation of Spark would bring its own jars, without Delta.
    os.environ.pop("SPARK_HOME", None)
    return toolchain
