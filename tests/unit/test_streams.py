"""Definitions of streams and joins (N1, N4, T5): what is read, and what is refused with the line and what to write."""

from pathlib import Path

import pytest

from tests.support.live import TEN_O_CLOCK
from tests.support.windows import every_example
from tidemark.model.deltas import Kind
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, floor_to, from_us
from tidemark.storage.home import Home
from tidemark.streams import (
    Aggregate,
    Function,
    JoinForm,
    Lateness,
    LatePolicy,
    StreamError,
    WindowSpec,
    WindowType,
    find_streams,
    load_streams,
)
from tidemark.streams.durations import parse_duration, show_duration
from tidemark.streams.fields import PLAIN_FIELDS, field_of, find_field

EXAMPLES = Path(__file__).resolve().parents[2] / "streams"
GOOD = "namespace: shop\nkind: signal\n"
TUMBLING = GOOD + "window: {tumbling: 10m}\n"


def load(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    load_streams(folder, reserved={"deltas", "drain"})


def test_every_example_loads_and_together_they_show_every_window_policy_and_join(tmp_path: Path) -> None:
    assert load_streams(EXAMPLES).joins, "those of the demo stand for themselves"
    found = load_streams(every_example(tmp_path))
    assert {stream.window.type for stream in found.streams.values()} == set(WindowType)
    assert {stream.late.policy for stream in found.streams.values()} >= {
        LatePolicy.REEMIT,
        LatePolicy.NEXT_WINDOW,
        LatePolicy.SIDE_OUTPUT,
    }
    assert {join.form for join in found.joins.values()} == set(JoinForm)


def test_a_definition_is_read_whole(tmp_path: Path) -> None:
    text = """
description: Heat.
namespace: fleet
kind: sample
where: {labels.sensor: temperature}
key: [labels.van, producer]
window: {sliding: {size: 1h, step: 5m}}
aggregates:
  warm: {mean: value}
  readings: count
allowed_lateness: 30s
late: {reemit: {max_lateness: 7d}}
disorder: 0
idle_timeout: 500ms
"""
    (tmp_path / "heat.yaml").write_text(text)
    [stream] = load_streams(tmp_path).streams.values()
    assert (stream.name, stream.source, stream.kind) == ("heat", "fleet/sample", Kind.SAMPLE)
    assert stream.where == (("labels.sensor", "temperature"),)
    assert [field.column for field in stream.key_fields] == ["labels_van", "producer"]
    assert stream.window == WindowSpec(WindowType.SLIDING, size_us=HOUR_US, step_us=5 * MINUTE_US)
    assert stream.aggregates == (Aggregate("warm", Function.MEAN, "value"), Aggregate("readings", Function.COUNT))
    assert stream.aggregates[0].columns == ("warm", "warm_sum", "warm_count")
    assert stream.late == Lateness(LatePolicy.REEMIT, 30 * SECOND_US, max_us=7 * DAY_US)
    assert (stream.disorder_us, stream.idle_us) == (0, 500_000)


def test_the_fields_that_may_be_named_are_those_of_the_payload_that_are_texts_and_numbers() -> None:
    """They are written out, so that reading a definition costs no Arrow."""
    import pyarrow as pa

    from tidemark.model.log_schema import SAMPLE, SIGNAL, VECTOR

    for kind, payload in {Kind.VECTOR: VECTOR, Kind.SAMPLE: SAMPLE, Kind.SIGNAL: SIGNAL}.items():
        plain = {each.name: each.type for each in payload if not pa.types.is_nested(each.type)}
        assert {name: field_of(kind, name).type for name in PLAIN_FIELDS[kind]} == plain
        for name, type_ in plain.items():
            is_integral, is_float = pa.types.is_integer(type_), pa.types.is_floating(type_)
            found = field_of(kind, name)
            assert (found.is_integral, found.is_number) == (is_integral, is_integral or is_float)


def test_what_is_left_out_has_the_defaults_of_the_specification(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(TUMBLING)
    [stream] = load_streams(tmp_path).streams.values()
    assert stream.key == ("key",)
    assert stream.late == Lateness(LatePolicy.REEMIT, 0, None, None)
    assert (stream.disorder_us, stream.idle_us) == (None, None)


REFUSED = [
    (GOOD, 1, "window is missing. Add 'window: {tumbling: 10m}'."),
    ("kind: signal\nwindow: adaptive\n", 1, "namespace is missing. Add 'namespace: shop'."),
    (GOOD + "window: {tumbling: 0m}\n", 3, "tumbling: 0m is no time at all. Write how long it is: 30s, 10m, 1h or 7d."),
    (GOOD + "window: {tumbling: -5m}\n", 3, "tumbling: -5m is below zero. Write how long it is"),
    (GOOD + "window: {tumbling: soon}\n", 3, "tumbling: 'soon' is no duration. Write a number and a unit"),
    (GOOD + "window: {tumbling: 5}\n", 3, "tumbling: '5' is no duration. Write a number and a unit"),
    (GOOD + "window: {tumbling: 400d}\n", 3, "tumbling: 400d is more than a year"),
    (GOOD + "window: {session: 0s}\n", 3, "session: 0s is no time at all"),
    (GOOD + "window:\n  sliding:\n    size: 5m\n    step: 10m\n", 6, "the step is 10m and the size 5m, so deltas"),
    (
        GOOD + "window: {tumbling: {size: 7d, offset: 11d}}\n",
        3,
        "windows begin every 7d, so an offset of 11d says no",
    ),
    (GOOD + "window: {sliding: {size: 1h, step: 5m, offset: 5m}}\n", 3, "Write less than 5m."),
    (GOOD + "window: {session: {gap: 1h, offset: 5m}}\n", 3, "there is no 'offset' in session"),
    (GOOD + "window: {sliding: {size: 1h, step: 0s}}\n", 3, "step: 0s is no time at all"),
    (GOOD + "window: {sliding: {size: 1h}}\n", 3, "step is missing in sliding. Add 'step: 5m'."),
    (GOOD + "window: {sliding: {size: 30d, step: 1m}}\n", 3, "every delta would be in 43,200 panes"),
    (GOOD + "window: {hopping: 1h}\n", 3, "there is no window 'hopping'. Write 'tumbling: 10m'"),
    (GOOD + "window: tumbling\n", 3, "a tumbling window has no duration here. Write 'tumbling: 10m'"),
    (GOOD + "window: {adaptive: 5s}\n", 3, "adaptive windows have no duration of their own"),
    (GOOD + "window: {tumbling: 1m, fixed: 1m}\n", 3, "window says 2 things, and means one"),
    ("namespace: Shop\nkind: signal\nwindow: adaptive\n", 1, "this is not a plain name"),
    ('namespace: "shop\\n"\nkind: signal\nwindow: adaptive\n', 1, "this is not a plain name"),
    (TUMBLING + 'late: {side_output: "audits\\n"}\n', 4, "side_output needs a channel with a plain name"),
    (TUMBLING + 'aggregates:\n  "n\\n": count\n', 5, "is not a plain name for a column"),
    (
        "namespace: shop\nkind: signals\nwindow: adaptive\n",
        2,
        "there is no kind 'signals'. Write one of vector, sample",
    ),
    (TUMBLING + "key: [entity]\n", 4, "a delta of kind signal has no field 'entity'. Write one of entity_id, signal"),
    (TUMBLING + "key: [count]\n", 4, "count is no key: keys are text. Write one of entity_id, signal"),
    (TUMBLING + "key: [signal, signal]\n", 4, "signal stands in the key twice"),
    (TUMBLING + "key: entity_id\n", 4, "key is not a list. Write 'key: [entity_id]'"),
    (TUMBLING + "where: {colour: red}\n", 4, "no delta of kind signal can be chosen by 'colour'"),
    (TUMBLING + "where: {count: many}\n", 4, "count is a whole number"),
    (
        TUMBLING + "aggregates:\n  n: {sum: signal}\n",
        5,
        "'signal' is no number of a delta of kind signal. Write one of",
    ),
    (TUMBLING + "aggregates:\n  n: sum\n", 5, "n does not say of which field. Write 'n: {sum: field}'."),
    (TUMBLING + "aggregates:\n  n: {median: count}\n", 5, "there is no function 'median'"),
    (TUMBLING + "aggregates:\n  late: count\n", 5, "there is a column late already"),
    (TUMBLING + "aggregates:\n  m: {mean: count}\n  m_sum: count\n", 6, "there is a column m_sum already"),
    (
        TUMBLING + "aggregates:\n  pane_us: count\n",
        5,
        "pane_us is the name of something else in windows. Call it pane_us_of",
    ),
    (TUMBLING + "aggregates:\n  shard: count\n", 5, "shard is the name of something else"),
    (TUMBLING + "where: {count: 010}\n", 4, "count is a whole number"),
    (TUMBLING + "late: drop\n", 4, "there is no policy 'drop' for what is late. Write reemit, discard"),
    (TUMBLING + "late: side_output\n", 4, "side_output needs a channel with a plain name"),
    (TUMBLING + "late: {discard: 5m}\n", 4, "discard takes nothing more. Write 'late: discard'."),
    (TUMBLING + "late: {reemit: {max: 5m}}\n", 4, "there is no 'max' in reemit."),
    (TUMBLING + "late: {reemit: {max_lateness: 0s}}\n", 4, "max_lateness: 0s is no time at all"),
    (TUMBLING + "allowed_lateness: -1s\n", 4, "allowed_lateness: -1s is below zero"),
    (
        GOOD + "window: {session: 5m}\nlate: next_window\n",
        4,
        "next_window is for tumbling windows, and these are session",
    ),
    (GOOD + "window: {fixed: 5m}\nlate: discard\n", 4, "nothing is ever late for fixed windows"),
    (TUMBLING + "idle_timeout: 0s\n", 4, "idle_timeout: 0s is no time at all"),
    (TUMBLING + "windw: 5\n", 4, "there is no 'windw'. Did you mean window?"),
    (TUMBLING + "kind: sample\n", 4, "kind stands here twice. Keep one of them."),
    (TUMBLING + "key: [\n", 5, "this is not YAML"),
    ("", 1, "the file is empty"),
    ("- a\n", 1, "is not a mapping of names to values"),
]


@pytest.mark.parametrize(("text", "line", "problem"), REFUSED)
def test_a_wrong_definition_is_refused_with_its_line_and_what_to_write(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    with pytest.raises(StreamError) as refused:
        load(tmp_path, wrong=text)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'wrong.yaml'}:{line}: "), said
    assert problem in said


SESSION = GOOD + "window: {session: 10m}\n"
JOINS = [
    ({"j": "left: a\nright: nobody\n", "a": TUMBLING}, "j.yaml:2: there is no stream 'nobody'. Name one of a."),
    ({"j": "left: a\n", "a": TUMBLING}, "j.yaml:1: right is missing"),
    ({"j": "left: a\nright: b\n", "a": TUMBLING, "b": SESSION}, "a is tumbling and b is session, and these cannot be"),
    (
        {"j": "left: a\nright: b\n", "a": TUMBLING, "b": GOOD + "window: {tumbling: 5m}\n"},
        "the windows of b are 5m long and those of a 10m long, so they have no panes in common",
    ),
    (
        {"j": "left: a\nright: b\n", "a": TUMBLING, "b": TUMBLING + "key: [entity_id, signal]\n"},
        "give both as many fields, or none",
    ),
    ({"j": "left: j\nright: a\n", "a": TUMBLING}, "j.yaml:1: j is made from j: that is a circle"),
    (
        {"i": "left: j\nright: a\n", "j": "left: a\nright: i\n", "a": TUMBLING},
        "i.yaml:1: i is made from j is made from i: that is a circle",
    ),
    ({"i": "left: j\nright: a\n", "j": "left: a\nright: a\n", "a": TUMBLING}, "j is a join, and joins are of streams"),
    ({"j": TUMBLING + "left: a\nright: a\n", "a": TUMBLING}, "this is a join by its left or right, and has kind like"),
]
NAMES_AND_WATERMARKS: list[tuple[dict[str, str], str]] = [
    ({"Views": TUMBLING}, "'Views' is not a plain name, and the file's name is the table's. Rename the file"),
    ({"views\n": TUMBLING}, "is not a plain name, and the file's name is the table's. Rename the file"),
    ({"deltas": TUMBLING}, "there is a table deltas already. Rename the file."),
    (
        {"a": SESSION, "a_open": TUMBLING},
        "the open sessions of a are in the table a_open, and another table has that name",
    ),
    (
        {"a": TUMBLING + "disorder: 5s\n", "b": TUMBLING + "disorder: 7s\n", "c": TUMBLING},
        "b.yaml:4: disorder is 7s here and 5s in a.yaml, but both are views of shop/signal, which has one",
    ),
]


def test_a_label_is_a_plain_name_to_its_very_end() -> None:
    """It becomes part of an SQL expression."""
    assert find_field(Kind.SAMPLE, "labels.van")
    assert not find_field(Kind.SAMPLE, "labels.van\n")


@pytest.mark.parametrize(("files", "problem"), [*JOINS, *NAMES_AND_WATERMARKS])
def test_what_does_not_fit_the_others_is_refused(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    """T3, N4: cycles, unknown inputs and windows that do not fit are refused when definitions load; so are names."""
    with pytest.raises(StreamError) as refused:
        load(tmp_path, **files)
    assert problem in str(refused.value)


def test_n1_windows_on_a_grid_may_begin_at_an_offset(tmp_path: Path) -> None:
    """Weeks begin on Monday, and 1970 did on a Thursday."""
    load(
        tmp_path,
        weeks=GOOD + "window: {tumbling: {size: 7d, offset: 4d}}\n",
        slides=GOOD + "window: {sliding: {size: 1h, step: 10m, offset: 5m}}\n",
        shifts=GOOD + "window: {fixed: {size: 8h, offset: 6h}}\n",
        plain=GOOD + "window: {tumbling: {size: 7d, offset: 0s}}\n",
    )
    found = load_streams(tmp_path).streams
    offsets = {name: stream.window.offset_us for name, stream in found.items()}
    assert offsets == {"weeks": 4 * DAY_US, "slides": 5 * MINUTE_US, "shifts": 6 * HOUR_US, "plain": 0}
    monday = floor_to(TEN_O_CLOCK, found["weeks"].window.size_us, offsets["weeks"])
    assert from_us(monday).isoweekday() == 1


def test_n4_streams_without_a_key_can_be_joined(tmp_path: Path) -> None:
    """An empty key is a key, too: one for all deltas."""
    without = TUMBLING + "key: []\n"
    load(tmp_path, j="left: a\nright: b\n", a=without, b=without)
    assert set(load_streams(tmp_path).joins) == {"j"}


def test_streams_come_from_the_variable_the_home_or_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create()
    monkeypatch.delenv("TIDEMARK_STREAMS")
    assert find_streams(home) == EXAMPLES
    (home.root / "streams").mkdir()
    assert find_streams(home) == home.root / "streams"
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path / "mine"))
    assert find_streams(home) == tmp_path / "mine"
    with pytest.raises(ConfigurationError, match=r"There is no folder .*mine to read definitions"):
        load_streams(find_streams(home))


@pytest.mark.parametrize("text", ["30s", "10m", "1h", "7d", "250ms"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert show_duration(parse_duration(text)) == text
