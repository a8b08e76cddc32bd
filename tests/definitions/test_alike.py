"""A refresh, the conditions of tables and `status` say the same of the same home: what is made, what waits, and why.

Somebody adds rows to a partition with delta-rs, as anybody could (decision 0010); then deltas arrive. Both are asked
until nothing more is to be done, each on its own copy of the home (O3, O4). No JVM.
"""

import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from assets.names import HELD_BACK
from assets.records import Writing
from assets.refresh import refresh_asset
from assets.table_asset import TableAsset
from assets.tables import GRAPH, TABLES
from assets.trust import WAITS_ITSELF, blocked
from orchestration import automation
from orchestration.build import build_defs
from orchestration.instance import open_instance
from orchestration.run_status import FailedCheck, read_run_status
from resources.platform import TidemarkResource
from resources.record import Record
from resources.spark import SparkResource
from tests.support.live import TEN_O_CLOCK
from tests.support.recorded_lake import TIERS, RecordedLake
from tests.support.small_lake import SPECS
from tidemark.model.ranges import Range
from tidemark.model.timegrid import DAY_US, HOUR_US, from_us, to_us
from tidemark.storage.home import HOME_VARIABLE, Home
from tidemark.tables import lake_files

NOW = datetime(2026, 3, 25, 10, 30, tzinfo=UTC)
# The edited hour, the one after it, and the same one of another day of the week.
EDITED, BESIDE, TOMORROW = TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US, TEN_O_CLOCK + DAY_US
LATER = WAITS_ITSELF.words
TIER_OF = {spec.name: tier for tier, spec in SPECS.items()}

# Runs, in order: the tables of each, and its partitions. Table → partition → why.
Runs = list[tuple[set[str], list[str]]]
Whys = dict[str, dict[str, str]]


def key(table: str, at_us: int) -> str:
    return TABLES[table].grain.key(at_us)


@pytest.fixture(scope="module")
def up_to_date(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Three hours of counts, computed and checked."""
    home = Home(tmp_path_factory.mktemp("alike") / "home").create()
    with open_instance(home) as instance:
        lake = RecordedLake(home, instance)
        lake.send([EDITED, BESIDE, TOMORROW])
        for tier in TIERS:
            lake.roll_up(tier, [EDITED, BESIDE, TOMORROW])
    return home


def add_rows(home: Home, table: str) -> int:
    """Every row of the partition once more; gives the version."""
    found, spec = lake_files.open_table(home.lake / table), TABLES[table]
    assert found is not None
    rows = found.to_pyarrow_table()
    rows = rows.filter(pc.equal(rows[spec.partition_by], from_us(spec.grain.floor(EDITED))))
    assert rows.num_rows
    write_deltalake(home.lake / table, rows, mode="append")
    return found.version() + 1


def compute(home: Home, instance: dg.DagsterInstance, assets: Iterable[str], keys: Sequence[str]) -> None:
    """What a run leaves behind."""
    lake = RecordedLake(home, instance)
    for name in sorted(assets, key=list(TIER_OF).index):
        lake.roll_up(TIER_OF[name], map(TABLES[name].grain.start, keys))


def by_refresh(home: Home) -> tuple[Runs, Whys]:
    """What a refresh makes, as commands and the daemon request it; a table is a run of its own here."""
    made: Runs = []

    def table(name: str) -> TableAsset:
        def make(run: Writing, windows: Sequence[Range]) -> list[Record]:
            grain = TABLES[name].grain
            keys = [grain.key(start) for each in windows for start in grain.starts(each.start_us, each.end_us)]
            compute(home, run.instance, [name], keys)
            made.append(({name}, keys))
            return []

        return TableAsset(GRAPH[name], make)

    spark = SparkResource(home=str(home.root))
    with open_instance(home) as instance:
        result = dg.materialize(
            [refresh_asset(map(table, TIER_OF), lambda *_: None)],
            instance=instance,
            resources={"spark": spark, "tidemark": TidemarkResource(spark=spark, root=str(home.root))},
            run_config={"ops": {"refresh": {"config": {"now_us": to_us(NOW)}}}},
        )
    because = result.asset_materializations_for_node("refresh")[-1].metadata[HELD_BACK].value
    assert isinstance(because, dict)
    return made, because


def by_conditions(home: Home, monkeypatch: pytest.MonkeyPatch) -> tuple[Runs, Whys]:
    """What the conditions request, look after look, until one requests nothing; and what waits in the last one.

    As if a refresh had left all of it.
    """
    monkeypatch.setattr(automation, "was_refreshed", lambda *_: True)
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    runs: Runs = []
    waiting: Whys = {}

    def listening(*arguments: Any, **options: Any) -> dict[str, str]:
        found = blocked(*arguments, **options)
        waiting[arguments[2].spec.name] = found
        return found

    monkeypatch.setattr(automation, "blocked", listening)
    defs, now, cursor = build_defs(), NOW, None
    with open_instance(home) as instance:
        for _ in range(10):
            now, waiting = now + timedelta(seconds=10), {}
            look = dg.evaluate_automation_conditions(defs, instance, cursor=cursor, evaluation_time=now)
            cursor = look.cursor
            alike: dict[tuple[str, ...], set[str]] = {}
            for name in TIER_OF:
                if keys := tuple(sorted(map(str, look.get_requested_partitions(dg.AssetKey(name))))):
                    alike.setdefault(keys, set()).add(name)
            if not alike:
                return runs, {name: whys for name, whys in waiting.items() if whys}
            for keys, assets in alike.items():
                compute(home, instance, assets, keys)
                runs.append((assets, list(keys)))
    raise AssertionError(f"it never comes to rest: {runs}")


def failing(home: Home, table: str) -> list[FailedCheck]:
    """As `status` shows it."""
    return read_run_status(home, now_us=to_us(NOW)).checks[table].failed


MINUTES_AND_HOURS, DAYS = ["minute_counts", "hourly_counts"], ["daily_counts"]
WEEKS, MONTHS = ["weekly_counts"], ["monthly_counts"]


@pytest.mark.parametrize(
    ("edited", "sent", "computed", "waits"),
    [
        ("hourly_counts", None, [], ()),
        ("hourly_counts", BESIDE, [MINUTES_AND_HOURS], DAYS),
        ("minute_counts", BESIDE, [MINUTES_AND_HOURS, DAYS, WEEKS, MONTHS], ()),
        ("daily_counts", TOMORROW, [MINUTES_AND_HOURS, DAYS], [*WEEKS, *MONTHS]),
        ("hourly_counts", EDITED, [MINUTES_AND_HOURS, DAYS, WEEKS, MONTHS], ()),
        ("minute_counts", EDITED, [MINUTES_AND_HOURS, DAYS, WEEKS, MONTHS], ()),
    ],
)
def test_o4_a_hand_edit_means_the_same_to_a_refresh_and_to_the_conditions_of_tables(
    up_to_date: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    edited: str,
    sent: int | None,
    computed: list[list[str]],
    waits: Sequence[str],
) -> None:
    """Alone it makes nothing stale; what is made of it waits; a partition that is written anew is edited no more."""
    homes = [Home(tmp_path / name) for name in ("refresh", "conditions")]
    for home in homes:
        shutil.copytree(up_to_date.root, home.root)
        version = add_rows(home, edited)
        if sent is not None:
            with open_instance(home) as instance:
                RecordedLake(home, instance).send([sent])
    what = f"somebody else has changed rows (WRITE in version {version})"
    assert failing(homes[0], edited) == [FailedCheck(key(edited, EDITED), what)]
    made, because = by_refresh(homes[0])
    assert made == [({name}, [key(name, sent or 0)]) for names in computed for name in names]
    assert bool(failing(homes[0], edited)) is (sent != EDITED)
    said = f"{edited} {key(edited, EDITED)}, where {what}"
    why = {name: {key(name, EDITED): said} for name in waits}
    # What is made of what waits, waits as well; conditions find that out without asking what speaks against it.
    late = f"daily_counts {key('daily_counts', EDITED)}, {LATER}"
    later = {name: {key(name, EDITED): late} for name in (*WEEKS, *MONTHS)}
    assert because == why | (later if waits == DAYS else {})
    runs = [(set(names), [key(names[0], sent or 0)]) for names in computed]
    assert by_conditions(homes[1], monkeypatch) == (runs, why)
