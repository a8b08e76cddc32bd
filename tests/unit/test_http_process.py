"""The HTTP door as a process of its own beside a real `serve`: how it starts and ends, and what the guide shows."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.support.http_served import JSON, view
from tests.support.served import home_at, served
from tidemark.gateway.places import Serving, note_serving
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("pandas", "pyspark", "dagster", "great_expectations", "delta", "polars")


@contextmanager
def door_process(home: Home) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-P", "-m", "tidemark.gateway.http", "--home", str(home.root), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        assert process.wait(20) in {0, -9, -15}


def send(url: str, number: object, **headers: str) -> dict[str, object]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.post(
        f"{url}/v1/deltas",
        content=msgspec.json.encode(view(number)),
        headers={"content-type": JSON, **sent},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_what_was_sent_with_a_key_or_a_number_is_known_after_the_door_was_killed(tmp_path: Path) -> None:
    numbered = {"tidemark_producer": "lasting", "tidemark_sequence": "1"}
    with served(home_at(tmp_path / "home")) as found:
        with door_process(found.home) as (process, url):
            first = [send(url, "k", idempotency_key="lasting"), send(url, "n", **numbered), send(url, "plain")]
            process.kill()
            process.wait()
        with door_process(found.home) as (_, url):
            again = [send(url, "k", idempotency_key="lasting"), send(url, "n", **numbered), send(url, "plain")]
    assert [each["accepted"] for each in first] == [1, 1, 1]
    assert [each.get("is_retry", False) for each in again] == [True, True, False]
    assert [each["epochs"] for each in again[:2]] == [each["epochs"] for each in first[:2]]
    assert again[2]["duplicate"] == 1  # by identity


def test_a_door_needs_neither_spark_nor_the_orchestrator_nor_pandas(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tidemark.arrays.without_pandas import spare_pandas\nspare_pandas()\n"
        "import tidemark.gateway.http.server\n"
        "light = [name for name in ('pyarrow', 'numpy', 'duckdb', 'starlette') if name in sys.modules]\n"
        "import importlib, pkgutil, tidemark.answers, tidemark.gateway.http as http\n"
        "for package in (http, tidemark.answers):\n"
        "    for each in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if '__main__' not in each.name: importlib.import_module(each.name)\n"
        f"print(light, [name for name in {HEAVY!r} if sys.modules.get(name)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    # Arrow comes with the coordinator's own packages; nothing else that is slow is there before it is needed.
    light, heavy = re.findall(r"\[.*?\]", done.stdout)
    assert "duckdb" not in light
    assert heavy == "[]"


def test_a_door_ends_with_the_process_that_served_its_home(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home")) as found:
        command = [sys.executable, "-P", "-m", "tidemark.gateway.http", "--home", str(found.home.root)]
        starter = (
            "import subprocess, time\n"
            f"door = subprocess.Popen({[*command, '--listen', '127.0.0.1:0']!r})\n"
            "print(door.pid, flush=True)\ntime.sleep(60)"
        )
        serving = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
        assert serving.stdout is not None
        note_serving(found.home, Serving(serving.pid, 0, [], []))
        door = int(serving.stdout.readline())
        url = serving.stdout.readline().split()[-1]
        until = time.monotonic() + 30
        while httpx.get(f"{url}/-/healthy").status_code != 200:
            assert time.monotonic() < until
        time.sleep(1.5)  # it looks once a second
        serving.kill()
        serving.wait()
        until = time.monotonic() + 30
        with suppress(ProcessLookupError):
            while Path(f"/proc/{door}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < until
                os.kill(door, 0)
                time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "0.0.0.0:0"], "allow_plain"),
        (["--listen", "7480"], "7480"),
        (["--listen", "256.0.0.1:7480"], "256.0.0.1"),
    ],
)
def test_a_door_that_cannot_be_opened_says_why(tmp_path: Path, options: list[str], said: str) -> None:
    home = home_at(tmp_path / "home")
    command = [sys.executable, "-P", "-m", "tidemark.gateway.http", "--home", str(home.root), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tidemark: ")
    assert said in done.stderr


def test_a_door_speaks_tls(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    cert = authority.issue_cert("localhost", "127.0.0.1")
    chain, key, root = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "root.pem"
    cert.private_key_pem.write_to_path(str(key))
    for place, blob in enumerate(cert.cert_chain_pems):
        blob.write_to_path(str(chain), append=place > 0)
    authority.cert_pem.write_to_path(str(root))
    import ssl

    with (
        served(home_at(tmp_path / "home", f'[serve]\ntls_cert = "{chain}"\ntls_key = "{key}"\n')) as found,
        door_process(found.home) as (_, url),
    ):
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(root))
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"{url}/-/healthy").json() == {"healthy": True}
        old = ssl.create_default_context(cafile=str(root))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with httpx.Client(verify=old) as client, pytest.raises(httpx.ConnectError):
            client.get(f"{url}/-/healthy")


# The guide.


def shown() -> list[tuple[str, str]]:
    """Commands of the guide with what it shows of their output."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs/guide/http.md").read_text(), re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines, command = part.splitlines(), list[str]()
            end = "END" if "<<'END'" in lines[0] else None
            while lines:
                command.append(lines.pop(0))
                text = "\n".join(command)
                if end is not None:
                    if command[-1] == end:
                        break
                elif (
                    not command[-1].endswith("\\")
                    and text.count("'") % 2 == 0
                    and text.count("{ ") <= text.count("; }")
                ):
                    break
            found.append(("\n".join(command), "\n".join(lines)))
    return found


def test_the_commands_of_the_guide_answer_what_it_shows(tmp_path: Path) -> None:
    with served(home_at(tmp_path / "home")) as found, door_process(found.home) as (_, url):
        script = ["set -e", "cd " + str(tmp_path)]
        for command, _ in shown():
            script += [command.replace("http://127.0.0.1:7480", url), "printf '\\n\\036\\n'"]
        done = subprocess.run(["/bin/bash", "-c", "\n".join(script)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs = done.stdout.split("\n\x1e\n")
    for (command, wanted), output in zip(shown(), outputs, strict=False):
        pattern = ".*?".join(re.escape(part) for part in wanted.split("…"))
        assert re.match(pattern, output.strip("\n") + "\n", re.DOTALL), f"{command}\n{output}"
    assert len(shown()) == len(outputs) - 1 >= 9
