"""What the gate is told of a write, in every form in which it can be sent: how much of which stream, and from when."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.live import TEN_O_CLOCK
from tidemark.admission.arriving import Part
from tidemark.gateway.w1.arriving import by_stream, ids_of, source_of
from tidemark.model.deltas import Source
from tidemark.model.timegrid import SECOND_US, from_us


def deltas(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Two deltas of one stream and one of another, a second apart."""
    streams = [("shop", "signal"), ("fleet", "sample"), ("shop", "signal")]
    return [
        {"namespace": namespace, "kind": kind, "delta_id": f"d{n}", "event_ts": TEN_O_CLOCK + n * SECOND_US}
        | (more[n] if n < len(more) else {})
        for n, (namespace, kind) in enumerate(streams)
    ]


def as_lines(found: list[dict[str, Any]]) -> list[bytes]:
    return [msgspec.json.encode(delta) for delta in found]


FORMS = [as_lines, pa.Table.from_pylist]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_time", [int, from_us])
def test_a2_each_stream_has_its_deltas_its_bytes_and_its_times(form: Any, as_time: Any) -> None:
    content = form([{**delta, "event_ts": as_time(delta["event_ts"])} for delta in deltas()])
    assert by_stream(content, 300) == {
        ("shop", "signal"): Part(2, 200, TEN_O_CLOCK, TEN_O_CLOCK + 2 * SECOND_US),
        ("fleet", "sample"): Part(1, 100, TEN_O_CLOCK + SECOND_US, TEN_O_CLOCK + SECOND_US),
    }
    assert ids_of(content) == ["d0", "d1", "d2"]


def test_a2_what_cannot_be_read_is_of_no_stream_and_counts_all_the_same() -> None:
    found = by_stream([*as_lines(deltas()), b"{", b"[]", b'{"namespace": 3}'], 600)
    assert found["", ""] == Part(3, 300)
    assert sum(part.deltas for part in found.values()) == 6
    assert by_stream(pa.table({"x": [1, 2]}), 10) == {("", ""): Part(2, 10)}
    assert by_stream(pa.table({"namespace": [1, 2], "kind": ["a", "a"], "event_ts": [None, "no"]}), 10) == {
        ("1", "a"): Part(1, 5),
        ("2", "a"): Part(1, 5),
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("said", "source"),
    [
        ((None, None, None), Source.LOCAL),
        (("import", "import", "import"), Source.IMPORT),
        (("replica", "replica", "replica"), Source.REPLICA),
        (("import", "import", None), Source.LOCAL),
        (("import", "replica", "import"), Source.LOCAL),
        (("elsewhere", "elsewhere", "elsewhere"), Source.LOCAL),
    ],
)
def test_a2_a_write_is_an_import_only_if_all_of_it_is(form: Any, said: tuple[str | None, ...], source: Source) -> None:
    found = deltas(*({"source": each} if each else {} for each in said))
    assert source_of(form(found)) is source


def test_times_without_a_zone_are_utc() -> None:
    [part] = by_stream([b'{"event_ts": "2026-03-02T10:00:00"}'], 1).values()
    assert part.oldest_us == round(datetime(2026, 3, 2, 10, tzinfo=UTC).timestamp()) * SECOND_US
