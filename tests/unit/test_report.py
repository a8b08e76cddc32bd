"""The report: its numbers are those of the home, its page stands alone, and nothing from outside becomes markup."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from orchestration.cli.app import main
from orchestration.instance import open_instance
from orchestration.report import exhibits, plots
from orchestration.report.exhibits import MOST_FAILURES, duration, failures
from orchestration.report.figures import AHEAD, LATENESS_RANGES, Figures, Hourly, Lag, LagPoint
from orchestration.report.gather import MOST_SERIES, OTHERS, gather
from orchestration.report.page import render, write_report
from orchestration.report.timeline import HOUR_WIDTHS_US, MOST_BARS, timeline, width_for
from orchestration.run_status import CheckStatus, FailedCheck, OrchestratorStatus
from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, sample, sealed_rows, signal
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US, floor_to, from_us, to_us
from tidemark.observe import account, home_status
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
NOW_US = TEN_O_CLOCK + 8 * HOUR_US
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def empty_home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "home")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Six hours of two shards: deltas in time and late, copies and refusals. A quote in the path is nobody's SQL."""
    home = new_home(tmp_path / "it's here & there", "shards = 2\n")
    clock = HandClock()
    with open_platform(home, clock) as platform:
        producer = platform.producer("shop_floor")
        for hour in range(6):
            now = clock.now_us
            deltas: list[Any] = [
                *(signal(f"d{hour}-{n}", at=now - n * 7 * SECOND_US, entity=f"item-{n}") for n in range(5)),
                *(sample(f"s{hour}-{n}", 1.0, at=now - n * MINUTE_US, host=f"host-{n}") for n in range(3)),
                signal(f"late{hour}", at=now - 3 * HOUR_US, entity="item-0"),
                signal(f"soon{hour}", at=now + 20 * SECOND_US, entity="item-1"),
                signal(f"d{hour}-0", at=now, entity="item-0"),
                signal("", entity="item-9"),
                {**signal(f"k{hour}", at=now), "kind": HOSTILE},
            ]
            producer.write(deltas).wait()
            clock.advance(3_600)
    return home


def all_rows(home: Home) -> list[dict[str, Any]]:
    return [row for shard in range(home.settings.shards) for row in sealed_rows(home, shard)]


def accepted_rows(home: Home) -> list[dict[str, Any]]:
    return [row for row in all_rows(home) if row["verdict"] == "accepted"]


def put_drained(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    """Put tables in place as a drain of everything would have left them."""
    for module in (account, home_status):
        monkeypatch.setattr(module, "durable_epochs", lambda _home: {0: 1_000, 1: 1_000})
    rows, hours = accepted_rows(home), "event_hour"
    table = pa.Table.from_pylist(rows, schema=LOG_SCHEMA).append_column(
        hours, pa.array([from_us(floor_to(to_us(row["event_ts"]), HOUR_US)) for row in rows])
    )
    write_deltalake(home.lake / "deltas", table, partition_by=[hours])
    refused = [row for row in all_rows(home) if row["verdict"] == "refused"]
    letters = pa.Table.from_pylist(refused, schema=LOG_SCHEMA).append_column(
        "received_hour", pa.array([from_us(floor_to(to_us(row["received_ts"]), HOUR_US)) for row in refused])
    )
    write_deltalake(home.lake / "dead_letters", letters, partition_by=["received_hour"])


def put_counts(home: Home, rows: list[tuple[str, int, int]]) -> None:
    """`hourly_counts` with rows of signal, hour and count."""
    hours = [from_us(TEN_O_CLOCK + hour * HOUR_US) for _, hour, _ in rows]
    columns: dict[str, list[Any]] = {
        "signal": [name for name, _, _ in rows],
        "bucket_start": hours,
        "count": [count for _, _, count in rows],
        "bucket_hour": hours,
    }
    write_deltalake(home.lake / "hourly_counts", pa.table(columns), partition_by=["bucket_hour"])


def with_checks(figures: Figures, checks: dict[str, CheckStatus]) -> Figures:
    seen = msgspec.structs.replace(figures.snapshot, orchestrator=OrchestratorStatus(checks=checks))
    return Figures(**{**vars(figures), "snapshot": seen})


class Page(HTMLParser):
    """What a browser would see: elements, what they refer to, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        refers = {"src", "srcset", "href", "xlink:href", "action", "data", "poster", "background"}
        self.references += [value or "" for name, value in attrs if name in refers]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_stands_alone(text: str) -> Page:
    page = Page(text)
    assert all(reference.startswith("#") for reference in page.references), page.references
    assert not page.handlers
    assert not page.tags.keys() & {"script", "link", "iframe", "object", "embed", "img", "base", "image", "use"}
    assert not re.search(r"@import|url\(|https?:|src\s*=", text)
    return page


# --- the page -----------------------------------------------------------------------------------------------------


def test_an_empty_home_has_a_page_that_says_so(empty_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--home", str(empty_home.root)]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == empty_home.reports / "report.html"
    page = assert_stands_alone(path.read_text())
    assert "There is nothing here yet" in page.text
    assert not page.tags["svg"]


def test_a_home_that_is_not_there_gets_no_page(tmp_path: Path) -> None:
    assert main(["report", "--home", str(tmp_path / "home")]) == 1
    assert not list(tmp_path.iterdir())


def test_what_is_sealed_and_not_drained_is_on_the_page(home: Home) -> None:
    page = assert_stands_alone(write_report(home, now_us=NOW_US).read_text())
    # Arrivals, lateness, lag, outcomes, refusals; of late rows there is one in every hour, which is a sentence.
    assert page.tags["svg"] == 5
    assert "Every hour has the same, so there is nothing to draw." in page.text
    for words in ("as it was on 2026-03-02 18:00:00 UTC", "hourly_counts has no rows yet", "fleet/sample", "empty_id"):
        assert words in page.text


def test_the_page_of_a_drained_home_has_all_plots_each_with_title_and_reading(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    put_drained(monkeypatch, home)
    put_counts(home, [("view", 0, 3), ("buy", 1, 1)])
    text = render(with_checks(gather(home, now_us=NOW_US), {"deltas": CheckStatus(6, [], 1)}), again="")
    page = assert_stands_alone(text)
    assert page.tags["svg"] == 7
    assert text.count('role="img" aria-label=') == 7
    # The list of what was said of refusals has no plot, nor have late rows: there is one in every hour.
    assert page.tags["figure"] == page.tags["figcaption"] == page.tags["h3"] - 3 == 9


def test_the_page_says_how_to_make_it_again(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "my page.html"
    page = Page(write_report(home, now_us=NOW_US, out=out).read_text())
    assert f"--out '{out}'" in page.text
    assert "--home" in page.text


def test_json_names_the_file_and_nothing_half_written_is_left(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["report", "--json", "--home", str(home.root)]) == 0
        assert json.loads(capsys.readouterr().out) == {"report": str(home.reports / "report.html")}
    assert [path.name for path in home.reports.iterdir()] == ["report.html"]


def test_the_same_home_at_the_same_time_gives_the_same_page(home: Home) -> None:
    assert render(gather(home, now_us=NOW_US), again="") == render(gather(home, now_us=NOW_US), again="")


def test_an_account_that_does_not_add_up_is_told_first(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    put_drained(monkeypatch, home)
    write_deltalake(home.lake / "deltas", DeltaTable(home.lake / "deltas").to_pyarrow_table(), mode="append")
    assert "The account does not add up" in Page(render(gather(home, now_us=NOW_US), again="")).text


def test_neither_spark_nor_great_expectations_is_loaded_and_the_orchestrator_only_if_it_ran(home: Home) -> None:
    code = (
        "import sys\nfrom orchestration.cli.app import main\n"
        f"code = main(['report', '--home', {str(home.root)!r}])\n"
        "print(*[name for name in ('pyspark', 'great_expectations', 'dagster') if name in sys.modules])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [""]


# --- nothing from outside becomes markup --------------------------------------------------------------------------


def test_a_hostile_signal_detail_and_check_message_are_text(home: Home) -> None:
    put_counts(home, [(HOSTILE, 0, 3), ("view", 0, 1)])
    failed = FailedCheck(f"2026-03-02-10:00{HOSTILE}", f'{HOSTILE} "><img src=x onerror=alert(1)>')
    text = render(with_checks(gather(home, now_us=NOW_US), {HOSTILE: CheckStatus(1, [failed], 0)}), again=HOSTILE)
    assert HOSTILE not in text
    page = Page(text)
    assert not page.tags.keys() & {"script", "img"}
    assert not page.handlers
    # A plot's legend, reading and numbers; a refusal's sentence; a check's table, partition and message; the footer.
    assert page.text.count(HOSTILE) >= 8
    assert f"The kind '{HOSTILE}' is not known" in page.text


def test_a_verdict_of_the_orchestrator_reaches_the_page(home: Home) -> None:
    from tests.support.orchestrator import judge, materialize

    hours = [f"2026-03-02-{hour}:00" for hour in (10, 11, 12)]
    with open_instance(home) as instance:
        materialize(instance, "deltas", hours)
        judge(instance, "deltas", hours[:1])
        judge(instance, "deltas", hours[1:2], passed=False, message=f"2 rows are {HOSTILE}")
    page = Page(render(gather(home, now_us=NOW_US), again=""))
    assert "Of 3 partitions in 1 table, 1 passed their suite, 1 failed and 1 are not checked" in page.text
    assert f"2 rows are {HOSTILE}" in page.text
    assert "Partitions whose check failed: 1." in page.text


def test_many_failures_are_cut_and_their_number_is_told() -> None:
    failed = [FailedCheck(f"hour {n}", "wrong") for n in range(MOST_FAILURES + 3)]
    exhibit = failures({"deltas": CheckStatus(0, failed, 0)})
    assert exhibit is not None
    assert len(exhibit.rows) == MOST_FAILURES
    assert f"of {MOST_FAILURES + 3} partitions" in exhibit.reading


# --- the numbers --------------------------------------------------------------------------------------------------


def test_arrivals_are_all_deltas_by_hour_of_receipt_and_verdict(home: Home) -> None:
    expected = Counter((floor_to(to_us(row["received_ts"]), HOUR_US), row["verdict"]) for row in all_rows(home))
    assert gather(home, now_us=NOW_US).arrivals == expected


@pytest.mark.parametrize("is_drained", [False, True])
def test_lateness_is_receipt_minus_event_of_every_accepted_delta(
    monkeypatch: pytest.MonkeyPatch, home: Home, is_drained: bool
) -> None:
    late = sorted(to_us(row["received_ts"]) - to_us(row["event_ts"]) for row in accepted_rows(home))
    if is_drained:
        put_drained(monkeypatch, home)
    found = gather(home, now_us=NOW_US).lateness
    assert found is not None
    expected = dict.fromkeys([AHEAD, *(name for name, _ in LATENESS_RANGES)], 0)
    for each in late:
        expected[next((name for name, start in reversed(LATENESS_RANGES) if each >= start), AHEAD)] += 1
    assert found.ranges == expected
    assert found.ranges[AHEAD] == 6
    assert (found.deltas, found.most_us) == (len(late), late[-1])
    assert late[(len(late) - 1) // 2] <= found.median_us <= late[len(late) // 2]


@pytest.mark.parametrize("is_drained", [False, True])
def test_late_for_its_hour_is_what_the_watermark_had_left_behind(
    monkeypatch: pytest.MonkeyPatch, home: Home, is_drained: bool
) -> None:
    expected: Counter[tuple[int, str]] = Counter()
    for row in accepted_rows(home):
        hour = floor_to(to_us(row["event_ts"]), HOUR_US)
        is_late = row["watermark_ts"] is not None and to_us(row["watermark_ts"]) >= hour + HOUR_US
        expected[hour, "late" if is_late else "in time"] += 1
    if is_drained:
        put_drained(monkeypatch, home)
    found = gather(home, now_us=NOW_US).lateness
    assert found is not None
    assert found.hours == expected
    assert found.late > 0


def test_the_lag_of_a_stream_is_the_median_of_receipt_minus_watermark(home: Home) -> None:
    lag = gather(home, now_us=NOW_US).lag
    stamped = [row for row in accepted_rows(home) if row["watermark_ts"] is not None]
    by_stretch: dict[tuple[int, str], list[int]] = {}
    for row in stamped:
        key = floor_to(to_us(row["received_ts"]), lag.width_us), f"{row['namespace']}/{row['kind']}"
        by_stretch.setdefault(key, []).append(to_us(row["received_ts"]) - to_us(row["watermark_ts"]))
    assert {(point.start_us, point.stream) for point in lag.points} == by_stretch.keys()
    for point in lag.points:
        values = sorted(by_stretch[point.start_us, point.stream])
        assert values[(len(values) - 1) // 2] <= point.median_us <= values[len(values) // 2]
        assert sum(value <= point.p95_us for value in values) >= 0.95 * len(values)


def test_counts_are_summed_per_signal_and_rare_signals_together(empty_home: Home) -> None:
    common = [(f"s{n}", hour, 100) for n in range(MOST_SERIES) for hour in (0, 0, 1)]
    put_counts(empty_home, [*common, ("rare", 0, 2), ("rarer", 0, -1)])
    counts = gather(empty_home, now_us=NOW_US).counts
    assert counts[TEN_O_CLOCK, "s0"] == 200
    assert counts[TEN_O_CLOCK + HOUR_US, "s0"] == 100
    assert counts[TEN_O_CLOCK, OTHERS] == 1
    assert len({name for _, name in counts}) == MOST_SERIES + 1


def test_every_reason_has_its_sentence(home: Home) -> None:
    figures = gather(home, now_us=NOW_US)
    assert set(figures.details) == set(figures.account.reasons) == {"empty_id", "unknown_kind"}


# --- hours put together -------------------------------------------------------------------------------------------

hourly = st.dictionaries(
    st.tuples(st.integers(0, 40_000).map(lambda hour: hour * HOUR_US), st.sampled_from(["a", "b"])),
    st.integers(-5, 1_000),
    max_size=60,
)


@given(hourly)
def test_a_timeline_loses_nothing_and_has_no_more_bars_than_can_be_seen(numbers: Hourly) -> None:
    found = timeline(numbers)
    assert sum(found.buckets.values()) + found.earlier_total == sum(numbers.values())
    span = max((start for start, _ in found.buckets), default=0) - min((start for start, _ in found.buckets), default=0)
    assert span // found.width_us <= MOST_BARS
    assert found.earlier == len({start for start, _ in numbers if start < found.start_us})


def test_a_straggler_does_not_squeeze_the_day() -> None:
    day = {(TEN_O_CLOCK + hour * HOUR_US, "a"): 100 for hour in range(24)}
    found = timeline({**day, (TEN_O_CLOCK - 9 * DAY_US, "a"): 3})
    assert (found.start_us, found.width_us, found.earlier, found.earlier_total) == (TEN_O_CLOCK, HOUR_US, 1, 3)
    assert timeline(day).earlier == 0


@pytest.mark.parametrize(("days", "width_us"), [(1, HOUR_US), (30, 6 * HOUR_US), (180, DAY_US), (700, 7 * DAY_US)])
def test_longer_times_have_wider_bars(days: int, width_us: int) -> None:
    assert width_for(days * DAY_US, HOUR_WIDTHS_US, most=MOST_BARS) == width_us


@pytest.mark.parametrize(
    ("span_us", "words"),
    [
        (0, "0 s"),
        (9_935_321, "9.94 s"),
        (90 * SECOND_US, "1 min 30 s"),
        (HOUR_US, "1 h"),
        (DAY_US + 5 * HOUR_US, "1 day 5 h"),
        (-3 * MINUTE_US, "−3 min"),
    ],
)
def test_a_duration_reads_as_people_say_it(span_us: int, words: str) -> None:
    assert duration(span_us) == words


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.ranked_bars({}, {}),
        lambda: plots.ranked_bars({"none": 0}, {"none": plots.SEA}),
        lambda: plots.bars_over_time(timeline({(0, "a"): -4}), {"a": plots.SEA}, unit="count"),
    ],
)
def test_a_plot_of_nothing_is_still_a_plot(draw: Callable[[], str]) -> None:
    assert draw().startswith("<svg")


def test_a_constant_is_a_sentence_and_no_plot() -> None:
    flat = tuple(LagPoint(hour * HOUR_US, "shop/signal", 60_000_000 + hour, 60_000_009) for hour in range(24))
    shown = exhibits.lag(Lag(HOUR_US, flat))
    assert shown
    assert shown.svg == ""
    assert "1 min throughout" in shown.reading
    rising = exhibits.lag(Lag(HOUR_US, (*flat, LagPoint(DAY_US, "shop/signal", 70_000_000, 70_000_000))))
    assert rising
    assert rising.svg.startswith("<svg")
    same = {(hour * HOUR_US, "view"): 25 for hour in range(24)}
    assert timeline(same).is_constant
    assert timeline({(0, "view"): 25, (0, "buy"): 1}).is_constant, "one bar"
    assert not timeline({**same, (3 * HOUR_US, "view"): 26}).is_constant
    assert not timeline({(0, "view"): 25, (2 * HOUR_US, "view"): 25}).is_constant, "a gap is something to see"
