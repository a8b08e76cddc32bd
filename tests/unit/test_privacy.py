"""What a home holds is readable by its owner alone, whatever the umask; by its group, if the owner wants that."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.session import open_notes, session_settings
from tidemark import Level, Platform
from tidemark.storage import privacy
from tidemark.storage.home import Home
from tidemark.vectors.reading.reads import append_reads

DELTA = {
    "namespace": "shop",
    "kind": "signal",
    "delta_id": "d1",
    "event_ts": "2026-03-02T10:00:00Z",
    "signal": {"entity_id": "a", "signal": "view"},
}
UMASKS = [0o000, 0o002, 0o022, 0o077]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Each test may change it, and what the process withholds."""
    found = os.umask(0o022)
    yield
    os.umask(found)
    privacy._Process.withheld = privacy.PRIVATE


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(root: Path, *, withheld: int = 0o077) -> dict[str, str]:
    """Everything in a home, and the home, that has a permission that it should not have."""
    places = [root, *root.rglob("*")]
    return {str(path): oct(mode(path)) for path in places if not path.is_symlink() and mode(path) & withheld}


def write_one(home: Home) -> None:
    with Platform.open(home) as platform:
        platform.producer("one").write([DELTA]).wait(Level.FLUSHED)
        platform.seal()
        platform.producer("two").write([{**DELTA, "delta_id": "d2"}]).wait(Level.FLUSHED)
        append_reads(home.root, {("shop", "v"): 1}, 1_772_445_600_000_000)
        open_notes(home).close()
        assert not open_to_others(home.root)


@pytest.mark.parametrize("given", UMASKS)
def test_a_program_that_uses_the_library_writes_a_private_home_and_keeps_its_umask(tmp_path: Path, given: int) -> None:
    os.umask(given)
    home = Home(tmp_path / "below" / "home")
    write_one(home)
    assert not open_to_others(home.root)
    assert mode(home.root) == 0o700
    assert mode(home.settings_file) == 0o600
    assert os.umask(given) == given
    assert mode(home.root.parent) == 0o777 & ~given, "a directory that is not the home's follows the user's umask"


@pytest.mark.parametrize("given", UMASKS)
def test_the_command_line_writes_a_private_home(tmp_path: Path, given: int) -> None:
    file, home, page = tmp_path / "day.jsonl", tmp_path / "home", tmp_path / "pages" / "page.html"
    file.write_text(json.dumps(DELTA) + "\n")
    for arguments in (["send", str(file)], ["report"], ["report", "--out", str(page)]):
        done = subprocess.run(
            [sys.executable, "-m", "orchestration.cli", "--home", str(home), *arguments],
            umask=given,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert not open_to_others(home)
    assert (home / "reports" / "report.html").exists()
    assert mode(page) == 0o666 & ~given, "a page that somebody wants elsewhere is theirs"
    assert mode(page.parent) == 0o777 & ~given


@pytest.mark.parametrize("before", [0o755, 0o777, 0o775, 0o770, 0o701, 0o705, 0o711])
def test_a_home_of_before_is_closed_when_it_is_next_opened(tmp_path: Path, before: int) -> None:
    home = Home(tmp_path / "home").create()
    home.root.chmod(before)
    (home.root / "log").chmod(0o755)
    home.create()
    assert mode(home.root) == 0o700


def test_a_home_that_was_opened_to_its_group_stays_so_and_what_is_new_is_readable_there(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    home.root.chmod(0o750)
    with Platform.open(home) as platform:
        platform.producer("one").write([DELTA]).wait(Level.FLUSHED)
        platform.seal()
    assert mode(home.root) == 0o750
    assert mode(home.log(0)) == mode(home.segments(0)) == 0o750
    assert {mode(path) for path in home.segments(0).rglob("*") if path.is_file()} == {0o640}
    assert {mode(path) for path in home.segments(0).iterdir() if path.is_dir()} == {0o750}
    assert not open_to_others(home.root, withheld=0o027)
    assert session_settings(home)["spark.hadoop.fs.permissions.umask-mode"] == "027"


def test_a_process_of_ours_follows_each_home_that_it_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy._Process, "found", None)
    shared, private = (Home(tmp_path / name).create() for name in ("shared", "private"))
    shared.root.chmod(0o750)
    privacy.take_process()
    for home, expected in ((shared, 0o027), (private, 0o077)):
        home.create()
        assert os.umask(expected) == expected


def test_a_directory_that_is_no_home_is_not_closed(tmp_path: Path) -> None:
    """Somebody may name the wrong directory, and others may need what lies in it. What we put there is private."""
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "theirs" / "file").touch()
    everybodys = tmp_path / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    for root in (tmp_path / "theirs", everybodys):
        before = mode(root)
        home = Home(root).create()
        assert mode(root) == before
        assert mode(home.lake) == 0o700
        assert mode(home.settings_file) == 0o600


def test_spark_is_told_to_write_for_the_owner_alone(tmp_path: Path) -> None:
    """Hadoop sets the mode of each file itself, after it was made: the umask of the process does not reach it."""
    home = Home(tmp_path / "home").create()
    assert session_settings(home)["spark.hadoop.fs.permissions.umask-mode"] == "077"
