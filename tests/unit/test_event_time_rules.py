"""Sources have rules of event time of their own, the log says which were in force, and idle ones hold nothing back."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, sample, sealed_rows, signal
from tidemark.event_time.watermarks import Watermarks
from tidemark.log.control import RulesInForce, decode_controls, encode_controls
from tidemark.log.manifest import Manifest
from tidemark.model.event_time_rules import EventTimeRules, StreamRule
from tidemark.model.settings import Settings
from tidemark.model.timegrid import MINUTE_US, SECOND_US
from tidemark.observe.sealed_log import Log, least, source_watermarks
from tidemark.storage.home import Home
from tidemark.streams.errors import StreamError

SHOP, FLEET = ("shop", "signal"), ("fleet", "sample")
SETTINGS = Settings(disorder_ms=5_000, idle_timeout_ms=30_000, watermark_events=1)
VIEWS = "namespace: shop\nkind: signal\nwindow: {tumbling: 10m}\n"
ONE_SHARD = "shards = 1\nwatermark_events = 1\n"


def rules(**streams: StreamRule) -> EventTimeRules:
    return EventTimeRules.of(SETTINGS, {tuple(name.split("_", 1)): rule for name, rule in streams.items()})  # type: ignore[misc]


def write(home: Home, clock: HandClock, *deltas: dict[str, Any], **options: Any) -> None:
    """One life of a platform with one write for each delta, from a producer for each namespace."""
    with open_platform(home, clock, **options) as platform:
        for delta in deltas:
            platform.producer(f"of_{delta['namespace']}").write([delta]).wait()


def stamps(home: Home, namespace: str) -> list[int | None]:
    """Seconds since ten o'clock."""
    found = [row["watermark_ts"] for row in sealed_rows(home) if row["namespace"] == namespace]
    return [None if each is None else round(each.timestamp() - TEN_O_CLOCK / SECOND_US) for each in found]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with definitions of its own."""
    monkeypatch.delenv("TIDEMARK_STREAMS", raising=False)  # it comes before the home's own
    made = new_home(tmp_path / "home", ONE_SHARD)
    (made.root / "streams").mkdir()
    return made


def test_a_definition_says_how_far_out_of_order_its_source_is_sent_t2(home: Home) -> None:
    (home.root / "streams" / "views.yaml").write_text(f"{VIEWS}disorder: 1m\n")
    clock = HandClock()
    write(home, clock, signal("a"), signal("b"), sample("c", 1.0), sample("d", 2.0))
    assert (stamps(home, "shop"), stamps(home, "fleet")) == ([None, -60], [None, -5])


def test_a_wrong_definition_is_refused_before_anything_is_written(home: Home) -> None:
    (home.root / "streams" / "views.yaml").write_text(f"{VIEWS}disorder: soon\n")
    with pytest.raises(StreamError, match=r"views.yaml:4"):
        open_platform(home)
    assert not list(home.segments(0).glob("*"))


def test_rules_that_changed_are_in_force_from_the_next_life_on_and_take_nothing_back_t2(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", ONE_SHARD), HandClock()
    write(home, clock, signal("a"), signal("b"), rules={SHOP: StreamRule(SECOND_US, MINUTE_US)})
    clock.advance(30)
    write(home, clock, signal("c", at=clock.now_us), signal("d"), rules={SHOP: StreamRule(MINUTE_US, MINUTE_US)})
    clock.advance(120)
    write(home, clock, signal("e", at=clock.now_us), signal("f"), rules={})
    assert stamps(home, "shop") == [None, -1, -1, -1, 25, 145]


def test_more_disorder_moves_no_time_of_receipt_into_the_future_t4(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", ONE_SHARD), HandClock()
    write(home, clock, signal("a"), rules={SHOP: StreamRule(0, MINUTE_US)})
    for _ in range(2):  # the second time the rules are in the log already
        write(home, clock, signal(f"b{clock.now_us}"), rules={SHOP: StreamRule(60 * MINUTE_US, MINUTE_US)})
        clock.advance(1)
    received = [row["received_ts"].timestamp() - TEN_O_CLOCK / SECOND_US for row in sealed_rows(home)]
    assert received == [0, 0, 1]


def test_the_log_tells_of_rules_only_when_they_change(tmp_path: Path) -> None:
    message = RulesInForce(rules(shop_signal=StreamRule(1, 2)))
    assert decode_controls(memoryview(encode_controls([message]))) == [message]
    home, clock = new_home(tmp_path / "home", ONE_SHARD), HandClock()
    sizes = []
    for own in ({}, {}, {SHOP: StreamRule(0, 1)}, {SHOP: StreamRule(0, 1)}):
        platform = open_platform(home, clock, rules=own)
        sizes.append(platform.shards[0].core.flusher._file.end)
        platform.shutdown()
    begun = sizes[1]
    assert sizes[0] > begun
    assert sizes[2] > begun
    assert sizes[3] == begun


RULES = st.builds(
    StreamRule, st.integers(0, 10).map(lambda s: s * SECOND_US), st.integers(1, 40).map(lambda s: s * SECOND_US)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("pqr"), st.integers(-20, 5), st.integers(0, 20)),
        st.tuples(st.just("tick"), st.just(""), st.just(0), st.integers(0, 60)),
        st.tuples(st.just("rules"), st.just(""), st.integers(0, 3), st.just(0)),
    ),
    max_size=25,
)


@given(steps=STEPS, choices=st.lists(RULES, min_size=4, max_size=4), cut=st.integers(0, 25))
def test_a_log_read_again_gives_the_same_state_whatever_rules_were_in_force_when_t2(
    steps: list[tuple[str, str, int, int]], choices: list[StreamRule], cut: int
) -> None:
    marks, now, log = Watermarks(SETTINGS), TEN_O_CLOCK, list[Any]()
    saved = (0, marks.rules, marks.snapshot())
    for number, (what, producer, value, seconds) in enumerate(steps):
        now += seconds * SECOND_US
        if what == "write":
            event = now + value * SECOND_US
            log.append((producer, event, now, marks.stamp(SHOP, now)))
            marks.observe(SHOP, producer, 1, event, now)
        elif what == "tick":
            log.extend(marks.tick(now))
        else:
            message = RulesInForce(rules(shop_signal=choices[value]))
            log.append(message)
            marks.apply(message)
        if number == cut:
            saved = (len(log), marks.rules, marks.snapshot())
    assert replayed(saved, log).snapshot() == marks.snapshot()
    assert replayed((0, EventTimeRules.of(SETTINGS), {}), log).current() == marks.current()


def replayed(saved: tuple[int, EventTimeRules, Any], log: list[Any]) -> Watermarks:
    begin, known, states = saved
    marks = Watermarks(known, states)
    for entry in log[begin:]:
        if isinstance(entry, tuple):
            producer, event, received, stamp = entry
            marks.restore(SHOP, stamp)
            marks.observe(SHOP, producer, 1, event, received)
        else:
            marks.apply(entry)
    return marks


def test_a_source_that_stops_goes_idle_after_its_timeout_and_the_others_go_on_t3(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", ONE_SHARD), HandClock()
    seen = []
    with open_platform(
        home, clock, rules={FLEET: StreamRule(0, 10 * SECOND_US), SHOP: StreamRule(0, MINUTE_US)}
    ) as platform:
        shop, fleet = platform.producer("shop"), platform.producer("fleet")
        fleet.write([sample("f", 1.0, at=clock.now_us)]).wait()
        for second in range(0, 20, 5):
            shop.write([signal(f"s{second}", at=clock.now_us)]).wait()
            platform.seal()
            log = Log(home)
            upto = log.sealed
            seen.append((second, log.sources(upto)["fleet/sample"].is_idle, log.watermark(upto).held_by))
            clock.advance(5)
    assert seen == [
        (0, False, "shard 0, fleet/sample"),
        (5, False, "shard 0, fleet/sample"),
        (10, True, "shard 0, shop/signal"),
        (15, True, "shard 0, shop/signal"),
    ]
    entries = list(Manifest(home.segments(0)).all())
    assert source_watermarks(entries[1:2])["fleet/sample"].is_idle is False, (
        "the same segments say the same, whenever asked"
    )


def test_when_everybody_is_silent_whoever_was_heard_last_decides_t3(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", ONE_SHARD), HandClock()
    write(home, clock, sample("f", 1.0), rules={})
    clock.advance(3_600)
    write(home, clock, signal("s", at=clock.now_us), rules={})
    clock.advance(1_000_000)
    marks = Log(home).sources(Log(home).sealed)
    assert {name: mark.is_idle for name, mark in marks.items()} == {"fleet/sample": True, "shop/signal": False}
    assert least(marks.values()).held_by == "shard 0, shop/signal"
    assert least([marks["fleet/sample"]]).held_by == "shard 0, fleet/sample", "with no other, an idle one counts"
