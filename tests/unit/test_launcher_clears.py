"""The set-up deletes and overwrites only what it made: whatever else lies where it works is refused or left alone."""

from pathlib import Path

import pytest

from tests.support.launcher import Checkout, script, the_sentence


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A directory of somebody's that must not change."""
    folder = tmp_path / "precious"
    for name in ("thesis.txt", ".hidden", "bin/python", "lib/notes", "share/other/notes", "jars/a.jar"):
        script(folder / name, f"mine: {name}")
    return folder


@pytest.mark.parametrize("place", [".venv", ".venv/share", ".venv/share/tidemark"])
def test_a_directory_behind_a_link_is_neither_cleared_nor_written(
    checkout: Checkout, precious: Path, place: str
) -> None:
    before = content(precious)
    link = checkout.root / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(precious)

    said = the_sentence(checkout.run())

    assert f"{link} is a symbolic link" in said
    assert "remove the link" in said
    assert content(precious) == before
    link.unlink()
    assert checkout.run().returncode == 0, "after doing what it said"


def test_a_link_that_leads_nowhere_is_refused_and_nothing_is_made_behind_it(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.root / ".venv").symlink_to(tmp_path / "nowhere")
    assert "is a symbolic link" in the_sentence(checkout.run())
    assert not (tmp_path / "nowhere").exists()


def test_a_set_up_whose_place_became_a_link_is_not_rebuilt_through_it(checkout: Checkout, tmp_path: Path) -> None:
    """Also where the directory behind the link was made by us: what else lies there by now is not ours to judge."""
    checkout.set_up()
    moved = (checkout.root / ".venv").rename(tmp_path / "moved")
    (checkout.root / ".venv").symlink_to(moved)
    (checkout.root / "requirements.lock").write_text("one==2\n")
    before = content(moved)
    assert "is a symbolic link" in the_sentence(checkout.run())
    assert content(moved) == before


@pytest.mark.parametrize(
    "name", ["thesis.txt", ".hidden", "..odd", "bin/python", "share/notes", "share/tidemark/notes"]
)
def test_an_environment_that_somebody_else_made_is_refused(checkout: Checkout, name: str) -> None:
    venv = checkout.root / ".venv"
    script(venv / name, "mine")
    before = content(venv)

    said = the_sentence(checkout.run())

    assert f"{venv} was not made by Tidemark" in said
    assert "move it away or remove it" in said
    assert content(venv) == before
    venv.rename(checkout.root / "elsewhere")
    assert checkout.run().returncode == 0, "after doing what it said"


def test_a_file_where_the_environment_belongs_is_refused(checkout: Checkout) -> None:
    (checkout.root / ".venv").write_text("mine")
    assert "is not a directory: move it away" in the_sentence(checkout.run())
    assert (checkout.root / ".venv").read_text() == "mine"


@pytest.mark.parametrize("made", [".venv", ".venv/share/tidemark", ".venv/lost+found"])
def test_a_place_that_holds_nothing_is_taken(checkout: Checkout, made: str) -> None:
    """An empty volume, or what a set-up that was killed in its first moment has left."""
    (checkout.root / made).mkdir(parents=True)
    assert checkout.run().returncode == 0


def test_a_rebuilt_environment_keeps_what_somebody_put_beside_it(checkout: Checkout) -> None:
    checkout.set_up()
    mine = [checkout.root / ".venv" / name for name in ("notes.txt", ".mine", "data/table", "share/mine")]
    for path in mine:
        script(path, "mine")
    (checkout.root / "requirements.lock").write_text("one==2\n")
    assert checkout.run().returncode == 0
    assert [path.read_text() for path in mine] == ["mine"] * 4


def test_links_inside_the_environment_are_removed_and_not_followed(checkout: Checkout, precious: Path) -> None:
    checkout.set_up()
    before = content(precious)
    (checkout.root / ".venv" / "lib").symlink_to(precious / "lib")
    (checkout.root / ".venv" / "lib64").symlink_to(precious)
    (checkout.state / "download").symlink_to(precious)
    (checkout.state / "java").symlink_to(precious)
    for name in ("stamp.new", "environment.done.new", "java_home.new"):
        (checkout.state / name).symlink_to(precious / "thesis.txt")
    (checkout.state / "setup.log").unlink()
    (checkout.state / "setup.log").symlink_to(precious / ".hidden")
    (checkout.root / "requirements.lock").write_text("one==2\n")
    (checkout.root / "setup" / "java.lock").write_text("java==2\n")
    (checkout.bin / "java").unlink()
    checkout.lock_jars(("org.example:other:1.0",))
    assert checkout.run().returncode == 0
    assert content(precious) == before


def test_an_own_java_is_not_written_through_a_link(checkout: Checkout, precious: Path) -> None:
    checkout.set_up()
    before = content(precious)
    (checkout.state / "java").symlink_to(precious)
    (checkout.bin / "java").unlink()
    (checkout.root / "setup" / "java.lock").write_text("java==2\n")
    assert checkout.run().returncode == 0
    assert content(precious) == before
