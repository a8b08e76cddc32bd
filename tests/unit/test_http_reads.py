"""Questions by HTTP: the same answers as those of the command line, typed parameters, and 404 with a sentence."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.http_served import HttpServed, error_of, http_served, view
from tidemark.cli.app import main
from tidemark.gateway.http.questions import reads
from tidemark.model.timegrid import from_us


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("reads") / "home", "[namespaces.shop]\ndimension = 3\n") as found:
        vector = {"vector_id": "v", "op": "create", "values": [1.0, 2.0, 3.0]}
        found.post(*[view(number) for number in range(5)], view("v", kind="vector", signal=None, vector=vector))
        found.post(view("bad", kind="none"))
        found.served.platform.seal()
        yield found


AS_OF = from_us(view(0)["event_ts"] + 3_600_000_000).isoformat()


@pytest.mark.parametrize(
    ("query", "command"),
    [
        (
            f"counts?entity=item-7&namespace=shop&as_of={AS_OF}",
            ["counts", "item-7", "--namespace", "shop", "--as-of", AS_OF],
        ),
        (
            f"counts?entity=item-7&namespace=shop&signal=view&as_of={AS_OF}",
            ["counts", "item-7", "--namespace", "shop", "--signal", "view", "--as-of", AS_OF],
        ),
        (
            f"top?namespace=shop&signal=view&window=7d&n=3&as_of={AS_OF}",
            ["top", "--namespace", "shop", "--signal", "view", "--window", "7d", "-n", "3", "--as-of", AS_OF],
        ),
        ("account", ["account"]),
    ],
)
def test_the_answer_is_that_of_the_command(
    door: HttpServed, query: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = door.client.get(f"/v1/{query.replace('+', '%2B')}")
    assert answer.status_code == 200, answer.text
    assert main(["--home", str(door.home.root), *command, "--json"]) == 0
    assert answer.json() == json.loads(capsys.readouterr().out)


def test_status_and_watermarks_say_how_far_everything_is(door: HttpServed) -> None:
    status = door.client.get("/v1/status").json()
    assert (status["shards"][0]["sealed_epoch"], status["pending"]["rows"]) == (2, 7)
    watermarks = door.client.get("/v1/watermarks").json()
    assert watermarks["watermarks"].keys() == status["watermarks"].keys() == {"shop/signal", "shop/vector"}


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("counts?entity=a&namespace=shpo", "shop"),
        ("top?namespace=none&signal=view", "shop"),
        ("windows?stream=none", "no stream"),
        ("vector?id=none", "none"),
        ("vector?id=v&namespace=none", "v"),
        ("nearest?id=v", "index"),
        ("no/such/thing", "openapi"),
    ],
)
def test_what_is_not_there_is_404_with_a_sentence(door: HttpServed, query: str, known: str) -> None:
    answer = door.client.get(f"/v1/{query}")
    assert answer.status_code == 404, answer.text
    assert known in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("counts?entity=a", "namespace"),
        ("counts?entity=a&namespace=shop&entity=b", "entity"),
        ("counts?entity=a&namespace=shop&as_of=yesterday", "yesterday"),
        ("counts?entity=a&namespace=shop&as_of=2026-03-02T10:00:30Z", "minute"),
        ("top?namespace=shop&signal=view&n=0", "n"),
        ("top?namespace=shop&signal=view&n=many", "n"),
        ("top?namespace=shop&signal=view&window=2h", "2h"),
        ("windows?stream=item_views&last=-1", "last"),
        ("vector?id=v&epoch=-1", "epoch"),
        ("vector?id=v&chain=perhaps", "chain"),
        ("nearest", "id"),
        ("nearest?id=v&values=1,2", "id"),
        ("nearest?values=1,x,3", "1,x,3"),
        ("nearest?id=v&metric=none", "none"),
        ("nearest?id=v&probes=0", "'0'"),
        ("status?verbose=1", "verbose"),
        ("status?%ff=1", "query"),
    ],
)
def test_a_bad_parameter_is_400_and_named(door: HttpServed, query: str, named: str) -> None:
    answer = door.client.get(f"/v1/{query}")
    assert (answer.status_code, error_of(answer)["reason"]) == (400, "bad_parameter"), answer.text
    assert named in error_of(answer)["message"]


def test_questions_beyond_what_may_wait_are_told_to_come_again(
    door: HttpServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MOST_WAITING", 4)
    go = threading.Event()

    def slow(*_: Any) -> object:
        go.wait(20)
        return {"done": True}

    monkeypatch.setattr("tidemark.observe.home_status.home_as_json", slow)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(door.client.get, "/v1/status") for _ in range(8)]
        while sum(each.done() for each in asked) < 4:
            pass
        # A write is answered meanwhile.
        assert door.post(view("meanwhile")).json()["accepted"] == 1
        go.set()
        statuses = sorted(each.result().status_code for each in asked)
    assert statuses == [200] * 4 + [503] * 4


def test_a_question_that_takes_too_long_is_504(door: HttpServed, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(reads, "ANSWER_S", 0.1)
    monkeypatch.setattr("tidemark.observe.home_status.home_as_json", lambda *_: go.wait(20))
    answer = door.client.get("/v1/status")
    go.set()
    assert (answer.status_code, error_of(answer)["reason"]) == (504, "timeout")


def test_metrics_have_both_parts(door: HttpServed) -> None:
    answer = door.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'tidemark_verdicts_total{outcome="accepted",shard="0"}' in answer.text
    assert 'tidemark_http_requests_total{route="/v1/deltas",status="200"}' in answer.text
    from prometheus_client.parser import text_string_to_metric_families

    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"tidemark_epoch", "tidemark_http_requests", "tidemark_http_coordinator_up"} <= names
