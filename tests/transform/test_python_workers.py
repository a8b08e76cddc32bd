"""Python workers take pyspark from plain files: an archive on their path would be read again before every task."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from resources.session import start_session
from tidemark import Home

def where(batches):
    import assets
    import pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"place": [assets.__file__]})

session = start_session(Home(Path(sys.argv[2])).create(), is_fast_start=True)
print(session.range(0, 1, 1, 1).mapInArrow(where, "place string").collect()[0]["place"])
"""


def _said(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyspark

    archives = [known for known in sys.path_importer_cache if ".zip" in known or ".jar" in known]
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"archives": [archives], "pyspark": [pyspark.__file__]})


def test_no_archive_is_on_the_path_of_a_worker(spark: "SparkSession") -> None:
    import pyspark

    [said] = spark.range(0, 1, 1, 1).mapInArrow(_said, "archives array<string>, pyspark string").collect()
    assert said["archives"] == []
    assert said["pyspark"] == pyspark.__file__


def test_workers_import_the_project_from_a_directory_with_an_assets_folder_of_its_own(tmp_path: Path) -> None:
    """In a process of its own: the folders of the project are not installed, and others have some of these names."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "__init__.py").write_text("raise AssertionError('of another project')\n")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    hidden = ("TIDEMARK_", "DAGSTER_", "PYTHON", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        [sys.executable, program, ROOT, tmp_path / "home"],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(ROOT / "assets" / "__init__.py")]
