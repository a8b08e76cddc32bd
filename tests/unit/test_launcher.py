"""The launcher and its set-up, run for real with a fake toolchain (`tests/support/launcher.py`)."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launcher import COORDINATES, OFFLINE, ROOT, STEPS, Checkout, script, the_sentence


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_call_sets_up_then_runs_the_program(checkout: Checkout) -> None:
    done = checkout.run("status", "--json")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "program got <status>\nprogram got <--json>\n"
    assert [line[:5] for line in done.stderr.splitlines() if line.endswith("...")] == list(STEPS)
    assert sorted(jar.name for jar in (checkout.state / "jars").iterdir()) == [
        "org.example_first-1.0.jar",
        "org.example_second_2.13-2.1.jar",
    ]
    assert (checkout.state / "java_home").read_text() == f"{checkout.java}\n"


def test_packages_are_installed_only_by_hash_and_the_project_without_a_download(checkout: Checkout) -> None:
    checkout.run()

    locked, project = [call for call in checkout.calls() if call.startswith("uv ")]
    assert "--require-hashes" in locked
    assert "--build-constraints requirements.lock" in locked
    assert "--no-deps --no-build-isolation -e" in project


def test_a_later_call_runs_nothing_but_the_program(checkout: Checkout, tmp_path: Path) -> None:
    checkout.set_up()
    link = tmp_path / "elsewhere" / "tm"
    link.parent.mkdir()
    link.symlink_to(Path("..") / checkout.root.name / "tidemark")

    done = checkout.run("a b", "", launcher=link)

    assert done.stdout == "program got <a b>\nprogram got <>\n"
    assert done.stderr == ""
    assert checkout.calls() == ["venv-python -m orchestration.cli a b "]


def test_standard_input_and_the_exit_code_belong_to_the_program(checkout: Checkout) -> None:
    assert checkout.run("read", stdin="piped\n").stdout == "piped\n"
    assert checkout.run("wrong", FAKE_EXIT="2").returncode == 2


@pytest.mark.parametrize("name", ["python3.13", "python3.12", "python3.11", "python"])
def test_a_newer_python_is_found_beside_an_old_one(checkout: Checkout, name: str) -> None:
    checkout.has_python("python3", (3, 9))
    checkout.has_python(name, (3, 12))

    checkout.run()

    assert any(call.startswith(f"{name} -m venv") for call in checkout.calls())


@pytest.mark.parametrize("version", [(2, 7), (3, 10), None])
def test_no_python_is_one_sentence(checkout: Checkout, version: tuple[int, int] | None) -> None:
    (checkout.bin / "python3").unlink()
    if version:
        checkout.has_python("python3", version)

    assert "no Python 3.11 or newer" in the_sentence(checkout.run("status"))


def test_the_named_python_is_taken_or_refused_never_replaced(checkout: Checkout) -> None:
    named = checkout.has_python("my-python", (3, 10))
    assert "TIDEMARK_PYTHON" in the_sentence(checkout.run(TIDEMARK_PYTHON=str(named)))
    checkout.calls()

    checkout.has_python("my-python", (3, 13))
    assert checkout.run(TIDEMARK_PYTHON=str(named)).returncode == 0
    assert any(call.startswith("my-python -m venv") for call in checkout.calls())


@pytest.mark.parametrize(
    ("at_java_home", "on_path", "chosen"),
    [(21, 17, 21), (17, None, 17), (25, 17, 17), (None, 21, 21), (25, 25, None), (None, 11, None), (None, None, None)],
)
def test_java_is_taken_from_the_machine_if_spark_runs_on_it(
    checkout: Checkout, at_java_home: int | None, on_path: int | None, chosen: int | None
) -> None:
    (checkout.bin / "java").unlink()
    if on_path:
        checkout.has_java(checkout.bin, on_path)
    java_home = str(checkout.has_java(checkout.fakes / "any", at_java_home)) if at_java_home else ""

    checkout.run(JAVA_HOME=java_home)

    bundled = checkout.state / "java"
    home = checkout.fakes / f"java-{chosen}" if chosen else bundled
    assert (checkout.state / "java_home").read_text() == f"{home}\n"
    assert bundled.exists() == (chosen is None)
    assert any("-r setup/java.lock" in call for call in checkout.calls()) == (chosen is None)


def test_the_bundled_java_drops_only_the_module_that_it_lacks(checkout: Checkout) -> None:
    (checkout.bin / "java").unlink()
    checkout.set_up()

    args = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "-cp", "*", "--add-modules=java.base"]
    said = subprocess.run([checkout.state / "java" / "bin" / "java", *args], capture_output=True, text=True, check=True)

    assert said.stdout.splitlines() == ["-Dx=a b", "-cp", "*", "--add-modules=java.base"]


def test_a_java_that_disappeared_is_replaced_and_nothing_else_is(checkout: Checkout) -> None:
    checkout.set_up()
    shutil.rmtree(checkout.java)
    (checkout.bin / "java").unlink()
    home = checkout.has_java(checkout.bin, 21)

    done = checkout.run("status")

    assert done.stdout == "program got <status>\n"
    assert [line for line in done.stderr.splitlines() if line.endswith("...")] == ["[4/5] Java ..."]
    assert (checkout.state / "java_home").read_text() == f"{home}\n"


def test_uv_is_installed_by_hash_where_there_is_none(checkout: Checkout) -> None:
    (checkout.bin / "uv").unlink()

    assert checkout.run().returncode == 0

    assert any("-m pip install" in call and "--require-hashes -r setup/uv.lock" in call for call in checkout.calls())
    assert (checkout.root / ".venv" / "bin" / "uv").exists()


def test_a_home_that_cannot_be_written_does_not_matter(checkout: Checkout) -> None:
    (checkout.fakes / "home").write_text("not a folder")

    assert checkout.run().returncode == 0

    assert any(f"cache={checkout.state}/uv-cache" in call for call in checkout.calls())
    assert not (checkout.state / "uv-cache").exists()


def test_a_changed_lock_rebuilds_the_environment_and_keeps_the_jars(checkout: Checkout) -> None:
    checkout.set_up()
    left_over = checkout.root / ".venv" / "lib" / "old-package"
    left_over.mkdir(parents=True)
    (checkout.root / "requirements.lock").write_text("one==2\n")

    done = checkout.run("status")

    calls = checkout.calls()
    assert done.stdout == "program got <status>\n"
    assert any("-m venv" in call for call in calls)
    assert not any(call.startswith("spark-submit") for call in calls)
    assert not left_over.exists()


def test_a_changed_project_file_installs_only_the_project_again(checkout: Checkout) -> None:
    checkout.set_up()
    (checkout.root / "pyproject.toml").write_text("[project]\nname = 'other'\n")

    checkout.run()

    calls = checkout.calls()
    assert [" -e " in call for call in calls if call.startswith("uv ")] == [True]
    assert not any("-m venv" in call or call.startswith("spark-submit") for call in calls)


def test_changed_jars_replace_the_old_ones(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.lock_jars(("org.example:first:1.1", COORDINATES[1]))

    checkout.run()

    assert not any("-m venv" in call for call in checkout.calls())
    assert sorted(jar.name for jar in (checkout.state / "jars").iterdir()) == [
        "org.example_first-1.1.jar",
        "org.example_second_2.13-2.1.jar",
    ]


def test_inputs_that_were_taken_back_after_a_failure_do_not_count_as_done(checkout: Checkout) -> None:
    checkout.set_up()
    project = checkout.root / "pyproject.toml"
    before = project.read_text()
    project.write_text("[project]\nname = 'other'\n")
    (checkout.fakes / "offline").touch()
    assert "cannot download Tidemark itself" in the_sentence(checkout.run())
    checkout.calls()

    project.write_text(before)
    (checkout.fakes / "offline").unlink()
    checkout.run()

    assert any(" -e " in call for call in checkout.calls())


def test_a_moved_checkout_is_set_up_again(checkout: Checkout) -> None:
    checkout.set_up()
    moved = checkout.root.rename(checkout.root.with_name("moved"))

    done = checkout.run("status", launcher=moved / "tidemark")

    assert done.stdout == "program got <status>\n"
    assert any(f"-m venv --without-pip {moved}" in call for call in checkout.calls())


@pytest.fixture
def killed(checkout: Checkout) -> Checkout:
    """A set-up that was killed, with everything it had started, while it installed packages."""
    (checkout.fakes / "slow").write_text("60")
    setting_up = checkout.start("status")
    wait_until_called(checkout, "uv pip install")
    os.killpg(setting_up.pid, signal.SIGKILL)
    setting_up.communicate()
    (checkout.fakes / "slow").unlink()
    return checkout


def wait_until_called(checkout: Checkout, start: str) -> None:
    deadline = time.monotonic() + 30
    record = checkout.fakes / "calls"
    while not (record.exists() and any(line.startswith(start) for line in record.read_text().splitlines())):
        assert time.monotonic() < deadline, f"{start} was never called"
        time.sleep(0.02)


def test_a_killed_set_up_is_repaired_by_the_next_call(killed: Checkout) -> None:
    half_installed = killed.root / ".venv" / "lib" / "half"
    half_installed.mkdir(parents=True)

    done = killed.run("status")

    assert done.stdout == "program got <status>\n", done.stderr
    assert "waiting" not in done.stderr
    assert not half_installed.exists()


def test_two_calls_at_once_set_up_once(checkout: Checkout) -> None:
    (checkout.fakes / "slow").write_text("0.5")
    first = checkout.start("first")
    wait_until_called(checkout, "uv pip install")
    second = checkout.start("second")

    first_said, _ = first.communicate(timeout=60)
    second_said, second_progress = second.communicate(timeout=60)

    assert (first_said, second_said) == ("program got <first>\n", "program got <second>\n")
    assert second_progress == "tidemark: another call is setting up; waiting for it ...\n"
    assert sum("-m venv" in call for call in checkout.calls()) == 1


@pytest.mark.parametrize("has_uv", [True, False])
def test_no_network_on_first_use_is_one_sentence_and_the_next_call_repairs(checkout: Checkout, has_uv: bool) -> None:
    if not has_uv:
        (checkout.bin / "uv").unlink()
    (checkout.fakes / "offline").touch()

    sentence = the_sentence(checkout.run("status"))

    assert "the first use needs a network" in sentence
    log = re.search(r"details: (.*)\)", sentence)
    assert log
    assert OFFLINE in Path(log[1]).read_text()
    (checkout.fakes / "offline").unlink()
    assert checkout.run("status").stdout == "program got <status>\n"


def test_when_only_the_jars_are_missing_only_they_are_fetched_later(checkout: Checkout) -> None:
    checkout.set_up()
    shutil.rmtree(checkout.state / "jars")
    (checkout.fakes / "offline").touch()
    assert "cannot download the Delta jars" in the_sentence(checkout.run())
    checkout.calls()
    (checkout.fakes / "offline").unlink()

    assert checkout.run("status").stdout == "program got <status>\n"

    assert not any(call.startswith("uv ") for call in checkout.calls())


def test_a_jar_with_another_checksum_is_refused(checkout: Checkout) -> None:
    checkout.lock_jars(COORDINATES, salt="tampered")

    assert f"{COORDINATES[0]} differs from its checksum" in the_sentence(checkout.run())
    assert not (checkout.state / "jars").exists()

    checkout.lock_jars(COORDINATES)
    assert checkout.run().returncode == 0


def test_too_little_space_is_one_sentence_before_anything_is_downloaded(checkout: Checkout) -> None:
    (checkout.bin / "df").unlink()
    script(
        checkout.bin / "df",
        "#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n"
        "echo '/dev/disk 9999999 9000000 512000 95% /a disk'\n",
    )

    assert "has 500 MB" in the_sentence(checkout.run())
    assert not any(call.startswith("uv ") or "-m venv" in call for call in checkout.calls())


def test_a_full_disk_on_the_way_is_one_sentence(checkout: Checkout) -> None:
    script(checkout.bin / "uv", "#!/bin/sh\n[ \"$1\" = --version ] || { echo 'No space left on device'; exit 1; }\n")

    assert "no space is left" in the_sentence(checkout.run())


def test_java_is_told_of_the_proxy_and_a_bundled_one_of_the_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "download"
    folder.mkdir()

    def options(java_home: Path, **environment: str) -> str:
        command = [sys.executable, str(ROOT / "setup" / "java_network.py"), str(java_home), str(folder)]
        return subprocess.check_output(command, env=environment, text=True)

    assert options(Path("/usr/lib/java")) == ""
    assert options(Path("/usr/lib/java"), https_proxy="http://user:secret@proxy.example:3128") == (
        "-Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128"
    )
    assert ("trustStore" in options(tmp_path / "java")) == (folder / "certificates.jks").exists()


@pytest.mark.parametrize("lock", ["requirements.lock", "setup/uv.lock", "setup/java.lock", "setup/jars.lock"])
def test_locks_name_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()

    assert re.search(r"\b[0-9a-f]{64}\b", text)
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text
