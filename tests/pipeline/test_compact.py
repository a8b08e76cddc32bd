"""Compaction on real tables: what could be read still can, what went stays away, no crash matters (K1 to K5)."""

import json
import signal as signals
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets.ingest.drain import drain_all
from assets.ingest.rebuild import rebuild
from assets.ingest.schema import DELTAS
from assets.trust import found_wrong
from assets.vectors.compacted import Compacted, KeptBack, Removed
from assets.vectors.compaction import compact, make_bases, remove_payloads
from assets.vectors.schema import VECTOR_CHECKPOINTS
from orchestration.compact import Wanted
from orchestration.compact import compact as compact_home
from orchestration.instance import open_instance
from orchestration.materialize import drain
from resources.lake import Lake, LakeError
from resources.record import Record
from tests.support.batch import checksums, run, send
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, vector
from tests.support.orchestrator import refuse
from tests.support.vector_oracle import said, table_of
from tests.support.vector_tables import states_in
from tidemark import Platform
from tidemark.model.buckets import BUCKET
from tidemark.model.ranges import Range
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, to_us
from tidemark.observe.status import read_cut
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lineage import LineageFile
from tidemark.vectors.chain import state_of
from tidemark.vectors.checkpoints import CompactionRules, Strategy
from tidemark.vectors.tables import bucket_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUT = TEN_O_CLOCK + 2 * HOUR_US
NOW = CUT + 7 * DAY_US
# The cut, every half hour since, and just after each.
MOMENTS = [CUT + step * HOUR_US // 2 + off for step in range(5) for off in (0, 1)]
FULL = CompactionRules(Strategy.FULL_MERGE)
WHOLE_DAY = Range(TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK + DAY_US)
WRITES = 20
# Everything arrives when it happens.
EDITS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("d1", "create", 0, {"values": [1.0, 2.0, 3.0], "metadata": {"k": "one"}}),
    ("d2", "add_dims", 30, {"values": [0.1], "indices": [1]}),
    ("d3", "add_dims", 40, {"values": [7.0], "indices": [1], "parent_id": "none"}),
    ("d4", "create", 60, {"values": [5.0, 5.0], "vector_id": "v2"}),
    ("d5", "scale", 90, {"factor": 0.1, "parent_id": "d2", "metadata": {"k": "two"}}),
    ("d6", "set_dims", 120, {"values": [9.0], "indices": [0]}),
    ("d7", "add_dims", 150, {"values": [1.0], "indices": [2]}),
    ("d8", "create", 180, {"values": [4.0], "vector_id": "v3"}),
]


pytestmark = pytest.mark.usefixtures("own_home")


def edit(home: Home, name: str, op: str, minute: int, payload: dict[str, Any], came_in_us: int | None = None) -> None:
    at = TEN_O_CLOCK + minute * MINUTE_US
    send(home, [vector(name, op, at=at, **payload)], clock=HandClock(came_in_us or at))


def filled(home: Home) -> Home:
    for each in EDITS:
        edit(home, *each)
    return home


@contextmanager
def going_on(platform: Platform, lake: Lake) -> Iterator[list[str]]:
    """A producer that writes meanwhile, and a drain of what it has written; gives what was acknowledged."""
    written: list[str] = []

    def write() -> None:
        producer = platform.producer("live")
        for number in range(WRITES):
            name = f"live-{number}"
            producer.write([vector(name, "create", values=[1.0], vector_id=name, at=NOW)]).wait()
            written.append(name)
            if number == WRITES // 2:
                platform.seal()
                drain_all(lake)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        yield written
        done.result()


def rows_of(home: Home, table: str) -> list[dict[str, Any]]:
    found = lake_files.open_table(home.lake / table)
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
    return rows


def base_of(home: Home, vector_id: str) -> pa.Table | None:
    found = lake_files.open_table(home.lake / "vector_checkpoints")
    if found is None:
        return None
    rows = found.to_pyarrow_table()
    own = rows.filter(pc.and_(pc.equal(rows["vector_id"], vector_id), rows["is_base"]))
    return states_in(own) if own.num_rows else None


def readable(home: Home, moments: Sequence[int] = MOMENTS) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Every vector's states as of these moments, by the core and from the tables alone."""
    deltas = [
        {
            **row,
            **row["vector"],
            "event_us": to_us(row["event_ts"]),
            "origin": row["origin"] or row["producer"],
            **{name: row["vector"][name] and dict(row["vector"][name]) for name in ("metadata", "clock")},
        }
        for row in rows_of(home, "deltas")
    ]
    return {
        (vector_id, at): said(state_of(table_of(own), base_of(home, vector_id), as_of_us=at))
        for vector_id in ("v1", "v2", "v3")
        for own in [[delta for delta in deltas if delta["key"] == vector_id]]
        for at in moments
    }


def in_all(done: dict[int, Compacted]) -> Compacted:
    """What was done in all buckets together."""
    return sum(done.values(), start=Compacted())


def emptied(home: Home) -> set[str]:
    return {row["delta_id"] for row in rows_of(home, "deltas") if row["removed_bytes"] is not None}


@pytest.mark.slow  # four runs with their suites; the rule itself is in the transform tests
def test_k5_payloads_go_where_a_base_holds_them_and_a_rebuild_does_not_bring_them_back(lake: Lake) -> None:
    home = filled(lake.home)
    drain_all(lake)
    version, before = lake.version("deltas") or 0, readable(home)
    lake.settle(VECTOR_CHECKPOINTS)
    assert remove_payloads(lake).payloads == 0, "there is no base"
    with pytest.raises(LakeError, match="does not refuse"):
        make_bases(lake, version, CUT, compact(lake, version, FULL, now_us=NOW))
    made = compact(lake, version, FULL, now_us=NOW)
    assert in_all(made).checkpoints == 0, "what was due is done"
    assert remove_payloads(lake).payloads == 0, "no checkpoint is a base"

    lineage = LineageFile(home.plans, "deltas").read()
    with open_platform(home, HandClock(NOW)) as platform:
        platform.cut_vectors(CUT)
        with going_on(platform, Lake(home, lambda: lake.spark)) as written:
            made = make_bases(lake, version, CUT, made)
            removed = remove_payloads(lake)
    assert (in_all(made).bases, in_all(made).cut_us) == (2, CUT)
    assert (removed.payloads, removed.hours) == (4, 2)
    assert len(written) == WRITES, "no append failed meanwhile"
    assert removed.bytes_after < removed.bytes_before
    assert emptied(home) == {"d1", "d2", "d4", "d5"}, "not what waits for its parent, nor what happened since the cut"
    assert readable(home) == before
    after = LineageFile(home.plans, "deltas").read()
    changed = {start for start in after.partitions if after.changed(start) != lineage.changed(start)}
    assert changed <= {NOW}, "nothing has changed for whoever is made of it, but where it goes on"
    assert not lake.edits("deltas"), "and it was nobody else"

    kept = checksums(home, "deltas", "vector_checkpoints")
    assert in_all(make_bases(lake, version, CUT, made)).bases == remove_payloads(lake).payloads == 0
    rebuild(lake, DELTAS, WHOLE_DAY)
    assert checksums(home, *kept) == kept
    drain_all(lake)
    assert {row["delta_id"] for row in rows_of(home, "deltas")} >= set(written)

    edit(home, "d9", "add_dims", 115, {"values": [100.0], "indices": [0]}, NOW)
    edit(home, "d10", "add_dims", 121, {"values": [100.0], "indices": [0]}, NOW)
    drain_all(lake)
    assert [(row["delta_id"], row["reason"]) for row in rows_of(home, "dead_letters")] == [("d9", "below_horizon")]
    late = in_all(compact(lake, lake.version("deltas") or 0, FULL, now_us=NOW))
    assert (late.checkpoints, late.thrown_away) == (1, 1), "it stands below the merge, and above the base"
    assert readable(home)["v1", CUT] == before["v1", CUT]


@pytest.mark.slow
def test_k5_a_crash_between_any_two_steps_changes_nothing_in_the_end(tmp_path: Path, spark: "SparkSession") -> None:
    options = ["--remove", "--strategy", "full_merge", "--horizon", "0s", "--clock-is-right"]
    steps = [name for name in FAILPOINTS if name.startswith("compact.")]
    killed, straight = (filled(Home(tmp_path / name).create()) for name in ("killed", "straight"))
    for home in (killed, straight):
        assert drain(home).succeeded
    before = readable(killed, [NOW])
    for step in steps:
        assert run(killed, "compact", step, options)[0] == -signals.SIGKILL, f"{step} must be reached"
        assert readable(killed, [NOW]) == before
    for home in (killed, straight):
        code, answer = run(home, "compact", None, options)
        assert code == 0
        assert json.loads(answer)["is_done"]
    assert emptied(killed) == emptied(straight) == {each[0] for each in EDITS} - {"d3"}
    assert checksums(killed, "deltas") == checksums(straight, "deltas")
    assert readable(killed, [NOW]) == readable(straight, [NOW]) == before


@pytest.mark.slow
def test_k5_what_came_in_since_the_horizon_stays_and_no_cut_is_made_for_what_stays(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    home = Home(tmp_path / "home").create()
    for each in EDITS:
        edit(home, *each, NOW)
    removing = Wanted(Strategy.FULL_MERGE, horizon_us=0, is_removing=True)

    soon = compact_home(home, removing, clock=HandClock(NOW + MINUTE_US))
    assert soon.is_done
    assert soon.removed == Removed(kept_back=KeptBack(received_since=len(EDITS)))
    assert (soon.cut_us, read_cut(home)) == (None, None)

    later = compact_home(home, removing, clock=HandClock(NOW + HOUR_US))
    assert later.cut_us == NOW + HOUR_US
    assert later.removed.payloads == len(EDITS) - 1
    assert later.removed.kept_back == KeptBack(in_no_base=1), "it waits for its parent"

    again = compact_home(home, removing, clock=HandClock(NOW + 9 * HOUR_US))
    assert again.removed == Removed(kept_back=KeptBack(in_no_base=1))
    cut = read_cut(home)
    assert cut is not None
    assert cut.cut_us == NOW + HOUR_US, "a later one would serve nothing"


@pytest.mark.slow
def test_o5_a_bucket_of_checkpoints_that_was_changed_is_found_wrong_alone_and_made_again(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    home, table = filled(Home(tmp_path / "home").create()), VECTOR_CHECKPOINTS.name
    keys = {name: BUCKET.key(bucket_of("shop", name)) for name in ("v1", "v2", "v3")}
    assert drain(home).succeeded
    wanted = Wanted(Strategy.FULL_MERGE, is_forced=True)
    made = compact_home(home, wanted, clock=HandClock(NOW))
    assert (made.is_done, made.compacted.vectors, made.compacted.checkpoints) == (True, 3, 3)
    assert set(made.outcome.partitions[table]) == set(keys.values())
    assert {(check.partition, check.passed) for check in made.outcome.checks} == {(key, True) for key in keys.values()}
    with open_instance(home) as instance:
        records = Record.latest_by_partition(instance, table)
    assert {key: (each.rows_in, each.rows_out) for key, each in records.items()} == {
        keys["v1"]: (5, 1),
        keys["v2"]: (1, 1),
        keys["v3"]: (1, 1),
    }
    right = checksums(home, table)

    changed = lake_files.open_table(home.lake / table)
    assert changed is not None
    changed.update(updates={"deltas": "deltas + 1"}, predicate="vector_id = 'v2'")
    found = [check for check in drain(home).checks if check.asset == table]
    assert [(check.partition, check.passed) for check in found] == [(keys["v2"], False)]
    with open_instance(home) as instance:
        assert found_wrong(home, instance, table) == {keys["v2"]}
        # And a bucket of `vectors` that is wrong holds back checkpoints of that bucket, and of no other.
        refuse(instance, "vectors", keys["v1"], "It cannot be judged. Ask again.")
    again = compact_home(home, wanted, clock=HandClock(NOW))
    assert again.outcome.held_back == {table: (keys["v1"],)}
    assert set(again.outcome.partitions[table]) == {keys["v2"], keys["v3"]}
    assert (again.is_done, again.outcome.failed_checks, again.compacted.checkpoints) == (False, (), 1)
    assert checksums(home, table) == right
