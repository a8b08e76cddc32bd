"""`POST /v1/deltas` (W8): forms, numbers, keys, levels, and every delta's outcome."""

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
import zstandard

from tests.support.http_served import ARROW, JSON, LINES, HttpServed, error_of, http_door, http_served, view
from tests.support.served import home_at, served
from tidemark.wire.limits import LIMITS


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("http") / "home") as found:
        yield found


def arrow(*deltas: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(list(deltas))
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def lines(*deltas: object) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else msgspec.json.encode(each) for each in deltas)


def test_one_delta_is_accepted_and_the_answer_says_how_safe_it_is(door: HttpServed) -> None:
    answer = door.post_body(msgspec.json.encode(view("one")))
    assert answer.status_code == 200
    said = answer.json()
    assert said.pop("epochs").keys() == {"0"}
    assert said == {
        "level": "flushed",
        "accepted": 1,
        "duplicate": 0,
        "refused": [],
        "refused_count": 0,
        "retry": "by identity",
    }


@pytest.mark.parametrize("form", [JSON, LINES, ARROW])
def test_every_form_brings_the_same_deltas(door: HttpServed, form: str) -> None:
    deltas = [view(f"{form}-{number}") for number in range(3)]
    body = {JSON: msgspec.json.encode(deltas), LINES: lines(*deltas), ARROW: arrow(*deltas)}[form]
    assert door.post_body(body, form).json()["accepted"] == 3
    # The same in another form: they are known by their identity (Q3).
    assert door.post(*deltas).json() | {"epochs": {}} == {
        "level": "flushed",
        "epochs": {},
        "accepted": 0,
        "duplicate": 3,
        "refused": [],
        "refused_count": 0,
        "retry": "by identity",
    }


def test_a_bad_delta_costs_its_neighbours_nothing_and_is_named_by_its_place(door: HttpServed) -> None:
    body = lines(view("n1"), b"{broken", view("n2", kind="none"), b"", view("n3"))
    said = door.post_body(body, LINES).json()
    assert (said["accepted"], said["duplicate"], said["refused_count"]) == (2, 0, 2)
    assert [(each["at"], each["reason"]) for each in said["refused"]] == [(1, "malformed"), (2, "unknown_kind")]
    assert all(each["detail"] for each in said["refused"])


def test_json_with_line_breaks_in_it_is_one_delta_for_each_object(door: HttpServed) -> None:
    body = msgspec.json.format(msgspec.json.encode([view("b1"), view("b2")]), indent=2)
    assert b"\n" in body
    assert door.post_body(body).json()["accepted"] == 2


def test_of_many_refused_deltas_the_first_hundred_are_named_and_all_are_counted(door: HttpServed) -> None:
    said = door.post_body(lines(*[b"{"] * 150), LINES).json()
    assert said["refused_count"] == 150
    assert [each["at"] for each in said["refused"]] == list(range(100))


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress), ("identity", bytes)]
)
def test_a_body_may_be_packed(door: HttpServed, encoding: str, pack: Any) -> None:
    body = pack(msgspec.json.encode(view(encoding)))
    assert door.post_body(body, content_encoding=encoding).json()["accepted"] == 1


def test_a_body_without_a_stated_length_is_taken(door: HttpServed) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"["
        yield msgspec.json.encode(view("chunked"))
        yield b"]"

    answer = door.client.post("/v1/deltas", content=pieces(), headers={"content-type": JSON})
    assert answer.request.headers["transfer-encoding"] == "chunked"
    assert answer.json()["accepted"] == 1


# Numbers (Q2).


def test_a_numbered_write_is_taken_once_and_a_retry_is_answered_with_its_epoch(door: HttpServed) -> None:
    first = door.post(view("p1"), tidemark_producer="retried", tidemark_sequence="1").json()
    again = door.post(view("p1"), tidemark_producer="retried", tidemark_sequence="1").json()
    assert (first["accepted"], first["retry"]) == (1, "by number")
    assert again["is_retry"] is True
    assert again["epochs"] == first["epochs"]
    # What became of it was told once.
    assert again["accepted"] is again["duplicate"] is again["refused_count"] is None


def test_a_gap_is_409_with_the_number_to_send_and_takes_nothing(door: HttpServed) -> None:
    assert door.post(view("g1"), tidemark_producer="gappy", tidemark_sequence="1").status_code == 200
    answer = door.post(view("g3"), tidemark_producer="gappy", tidemark_sequence="3")
    assert answer.status_code == 409
    error = error_of(answer)
    assert (error["reason"], error["expected"]) == ("sequence_gap", 2)
    assert door.post(view("g3"), tidemark_producer="gappy", tidemark_sequence="2").json()["accepted"] == 1


def test_another_write_under_a_used_number_is_409(door: HttpServed) -> None:
    door.post(view("r1"), tidemark_producer="reuser", tidemark_sequence="1")
    answer = door.post(view("r2"), tidemark_producer="reuser", tidemark_sequence="1")
    assert answer.status_code == 409
    assert error_of(answer)["reason"] == "number_reuse"


def test_numbers_go_on_where_they_stopped_when_the_door_has_forgotten_its_producer(door: HttpServed) -> None:
    for number in (1, 2):
        door.post(view(f"i{number}"), tidemark_producer="idler", tidemark_sequence=str(number))
    with http_door(door.served) as another:  # it opens the producer anew, and fences the first door's connection
        assert another.post(view("i3"), tidemark_producer="idler", tidemark_sequence="3").json()["accepted"] == 1
    assert door.post(view("i4"), tidemark_producer="idler", tidemark_sequence="4").json()["accepted"] == 1


def test_requests_of_one_producer_at_once_are_each_answered_for_themselves(door: HttpServed) -> None:
    """Out of order they find a gap; sent again, each is taken once."""

    def send(number: int) -> dict[str, Any]:
        while True:
            answer = door.post(view(f"c{number}"), tidemark_producer="crowd", tidemark_sequence=str(number))
            if answer.status_code == 200:
                return dict(answer.json())
            assert answer.status_code == 409
            assert error_of(answer)["expected"] <= number

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, [number for number in range(1, 21) for _ in range(2)]))
    taken = [each for each in answers if not each.get("is_retry")]
    assert len(taken) == 20
    assert sum(each["accepted"] for each in taken) == 20


@pytest.mark.parametrize(
    "headers",
    [
        {"tidemark_producer": "alone"},
        {"tidemark_sequence": "1"},
        {"tidemark_producer": "Bad Name", "tidemark_sequence": "1"},
        {"tidemark_producer": "http_7480", "tidemark_sequence": "1"},
        {"tidemark_producer": "fine", "tidemark_sequence": "0"},
        {"tidemark_producer": "fine", "tidemark_sequence": "-1"},
        {"tidemark_producer": "fine", "tidemark_sequence": "18446744073709551616"},
        {"tidemark_producer": "fine", "tidemark_sequence": "1", "idempotency_key": "k"},
        {"idempotency_key": "k" * 257},
        {"idempotency_key": ""},
    ],
)
def test_headers_that_do_not_go_together_are_400(door: HttpServed, headers: dict[str, str]) -> None:
    answer = door.post(view("h"), **headers)
    assert answer.status_code == 400
    assert error_of(answer)["reason"] == "bad_header"


# Keys.


def test_a_request_with_a_key_is_taken_once_also_across_doors(door: HttpServed) -> None:
    first = door.post(view("k1"), view("k2"), idempotency_key="order 17").json()
    assert (first["accepted"], first["retry"]) == (2, "by key")
    with http_door(door.served) as another:
        again = another.post(view("k1"), view("k2"), idempotency_key="order 17").json()
    assert again["is_retry"] is True
    assert again["epochs"] == first["epochs"]


def test_a_key_with_other_deltas_is_409(door: HttpServed) -> None:
    door.post(view("k3"), idempotency_key="order 18")
    answer = door.post(view("k4"), idempotency_key="order 18")
    assert answer.status_code == 409
    assert error_of(answer)["reason"] == "number_reuse"
    assert "Idempotency-Key" in error_of(answer)["message"]
    assert door.post(view("k3"), idempotency_key="order 18").json()["is_retry"] is True


def test_a_key_used_twice_at_once_is_taken_once(door: HttpServed) -> None:
    together = threading.Barrier(6)

    def send(_: int) -> Any:
        together.wait()
        return door.post(view("k5"), idempotency_key="order 19").json()

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(send, range(6)))
    assert sum(each["accepted"] or 0 for each in answers) == 1
    assert sum(each.get("is_retry", False) for each in answers) == 5


# Requests without a number share writes.


def test_each_request_of_a_shared_write_is_told_of_its_own_deltas(door: HttpServed) -> None:
    door.post(view("s-known"))
    kinds = {"good": (1, 0, 0), "known": (0, 1, 0), "bad": (0, 0, 1)}
    together = threading.Barrier(24)

    def send(number: int) -> None:
        kind = list(kinds)[number % 3]
        delta = {"good": view(f"s{number}"), "known": view("s-known"), "bad": {"x": number}}[kind]
        together.wait()
        for _ in range(4):
            said = door.post(delta).json()
            found = (said["accepted"], said["duplicate"], said["refused_count"])
            assert found == (kinds[kind] if kind != "good" or _ == 0 else (0, 1, 0))
            assert [each["at"] for each in said["refused"]] == ([0] if kind == "bad" else [])

    with ThreadPoolExecutor(24) as threads:
        list(threads.map(send, range(24)))


# Levels.


def test_an_applied_write_says_nothing_yet_of_what_is_decided_later(door: HttpServed) -> None:
    said = door.post(view("l1"), query="?level=applied").json()
    assert said["level"] == "applied"
    assert said["accepted"] is said["duplicate"] is said["refused_count"] is None


@pytest.mark.parametrize("headers", [{}, {"tidemark_producer": "patient", "tidemark_sequence": "1"}])
def test_what_does_not_become_durable_in_time_is_answered_with_the_level_that_it_has(
    door: HttpServed, headers: dict[str, str]
) -> None:
    said = door.post(view(f"l2{len(headers)}"), query="?level=durable&timeout=0.5", **headers).json()
    assert (said["level"], said["accepted"]) == ("flushed", 1)


# What is not numbered (W8).


@pytest.mark.parametrize(
    ("body", "form", "query", "status", "reason"),
    [
        (b"", JSON, "", 400, "bad_payload"),
        (b"nonsense", JSON, "", 400, "bad_payload"),
        (b"17", JSON, "", 400, "bad_payload"),
        (b"[]", JSON, "", 400, "bad_payload"),
        (b"\n \n", LINES, "", 400, "bad_payload"),
        (b"", ARROW, "", 400, "bad_payload"),
        (b"{}", JSON, "?level=best", 400, "bad_parameter"),
        (b"{}", JSON, "?timeout=0", 400, "bad_parameter"),
        (b"{}", JSON, "?timeout=nan", 400, "bad_parameter"),
        (b"{}", JSON, "?levle=flushed", 400, "bad_parameter"),
        (b"{}", JSON, "?level=flushed&level=flushed", 400, "bad_parameter"),
        (b"{}", "text/plain", "", 415, "bad_content_type"),
        (b"{}", "", "", 415, "bad_content_type"),
    ],
)
def test_what_cannot_be_numbered_is_refused_with_the_reason(
    door: HttpServed, body: bytes, form: str, query: str, status: int, reason: str
) -> None:
    answer = door.post_body(body, form, query)
    assert answer.status_code == status
    assert error_of(answer)["reason"] == reason


def test_columns_that_are_cut_are_400_and_take_no_number(door: HttpServed) -> None:
    sent = {"tidemark_producer": "broken", "tidemark_sequence": "1"}
    answer = door.post_body(arrow(view("a"))[:-40], ARROW, **sent)
    assert answer.status_code == 400
    assert "is_number_used" not in error_of(answer)
    assert door.post(view("a2"), **sent).json()["accepted"] == 1


def test_columns_with_damaged_values_are_400_and_their_number_is_used(door: HttpServed) -> None:
    sent = {"tidemark_producer": "damaged", "tidemark_sequence": "1"}
    body = arrow(view("good"))
    answer = door.post_body(body.replace(b"item-7", b"\xff" * 6), ARROW, **sent)
    assert answer.status_code == 400, answer.text
    assert error_of(answer)["is_number_used"] is True
    assert door.post(view("a3"), tidemark_producer="damaged", tidemark_sequence="2").json()["accepted"] == 1


def test_an_unknown_encoding_is_415(door: HttpServed) -> None:
    answer = door.post_body(b"{}", content_encoding="br")
    assert (answer.status_code, error_of(answer)["reason"]) == (415, "bad_encoding")


def test_more_rows_than_a_write_may_have_are_413(door: HttpServed) -> None:
    for body, form in ((b"[" + b"0," * LIMITS.rows + b"0]", JSON), (b"0\n" * (LIMITS.rows + 2), LINES)):
        answer = door.post_body(body, form)
        assert (answer.status_code, error_of(answer)["reason"]) == (413, "too_large")


def test_another_method_is_405_and_names_the_one_that_there_is(door: HttpServed) -> None:
    answer = door.client.get("/v1/deltas")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# A coordinator that goes away.


def test_without_a_coordinator_nothing_is_taken_and_the_answer_says_when_to_come_again(tmp_path: Any) -> None:
    with served(home_at(tmp_path / "home")) as found, http_door(found) as door:
        assert door.post(view("x1")).status_code == 200
        assert door.client.get("/-/ready").status_code == 200
        found.call(found.door.drain(10))
        answer = door.post(view("x2"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["reason"] == "stopped"
        answer = door.post(view("x2"), tidemark_producer="lonely", tidemark_sequence="1")
        assert (answer.status_code, error_of(answer)["reason"]) == (503, "stopped")


def test_a_full_shard_is_429_with_the_time_to_wait(tmp_path: Any) -> None:
    settings = "[bounds]\nbytes = 65_536\ndeltas = 100\n"
    with http_served(tmp_path / "home", settings) as door:
        answer = door.post(*[view(number) for number in range(101)])
        assert (answer.status_code, error_of(answer)["is_number_used"]) == (413, True)


def test_a_caller_who_goes_away_changes_nothing(door: HttpServed) -> None:
    with httpx.Client(base_url=door.url, timeout=0.001) as hasty:
        for number in range(20):
            with suppress(httpx.TimeoutException):
                body = msgspec.json.encode(view(f"gone{number}"))
                hasty.post("/v1/deltas", content=body, headers={"content-type": JSON})
    said = [door.post(view(f"gone{number}")).json() for number in range(20)]
    # Whatever of it had arrived is there once.
    assert all(each["accepted"] + each["duplicate"] == 1 for each in said)
    assert all(door.post(view(f"gone{number}")).json()["duplicate"] == 1 for number in range(20))
