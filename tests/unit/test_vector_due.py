"""How often vectors are read, and which of them are due, without a JVM (K2, K3)."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.ingest.schema import DELTAS
from assets.vectors.due import find_due
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from orchestration.cli.app import main
from tests.support.small_lake import table_rows
from tests.support.vector_tables import delta_row
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tidemark.storage.home import Home
from tidemark.vectors.checkpoints import CompactionRules, Strategy
from tidemark.vectors.reading.reads import read_rates, reads_file

NOW = 100 * DAY_US
PLACE = {"depth": 0, "origin": "p", "shard": 0}


def tables(home: Home, counts: dict[str, int], held: dict[str, int], *, age_us: int) -> None:
    """Vectors with so many deltas a second apart, the last of them `age_us` ago, and checkpoints that hold so many."""
    deltas, states, checkpoints = [], [], []
    for vector_id, count in counts.items():
        start = NOW - age_us - (count - 1) * SECOND_US
        key = {"namespace": "shop", "vector_id": vector_id, "bucket": 0}
        for number in range(count):
            at = {"event_us": start + number * SECOND_US, "delta_id": f"d{number:04}"}
            place = {"epoch": number + 1, "ordinal": 0, "shard": 0, "origin": "p", "op": "create", "values": [1.0]}
            deltas.append(delta_row({**key, **at, **place}))
            if number + 1 == held.get(vector_id):
                checkpoints.append(
                    key | PLACE | {"eff_ts": at["event_us"], "delta_id": at["delta_id"], "deltas": number + 1}
                )
        states.append(key | {"deltas": count})
    for spec, rows in ((DELTAS, deltas), (VECTORS, states), (VECTOR_CHECKPOINTS, checkpoints)):
        write_deltalake(home.lake / spec.name, table_rows(spec, rows), partition_by=[spec.partition_by])


def test_k3_vectors_are_due_by_number_by_age_and_by_the_hard_limit(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    assert find_due(home, CompactionRules(), NOW).reasons == {}
    tables(home, {"few": 10, "some": 11, "many": 100, "most": 1_000, "done": 500}, {"done": 490}, age_us=0)
    assert find_due(home, CompactionRules(), NOW).reasons == {"threshold": 1, "hard_limit": 1}
    assert find_due(home, CompactionRules(), NOW + MINUTE_US).reasons == {"age": 1, "threshold": 1, "hard_limit": 1}
    assert find_due(home, CompactionRules(keep_recent=9), NOW + MINUTE_US).reasons["age"] == 3


def test_k2_an_interval_that_is_not_over_makes_nothing_due(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    tables(home, {"u": 20}, {"u": 10}, age_us=0)
    rules = CompactionRules(Strategy.TIME_BOUNDARY, interval_us=7 * HOUR_US)
    assert find_due(home, rules, NOW + 2 * MINUTE_US).reasons == {}
    assert find_due(home, rules, NOW + 7 * HOUR_US).reasons == {"age": 1}


def test_a_dry_run_says_what_the_same_command_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path).create()
    tables(home, {"few": 5}, {}, age_us=0)
    for options, due in (([], {}), (["--strategy", "full_merge"], {"age": 1}), (["--force"], {})):
        assert main(["compact", "--dry-run", *options, "--json", "--home", str(home.root)]) == 0
        assert json.loads(capsys.readouterr().out)["due"] == due, options


def test_reads_are_counted_over_a_day_and_what_cannot_be_read_is_no_read(tmp_path: Path) -> None:
    assert read_rates(tmp_path, NOW).num_rows == 0
    read = {"namespace": "shop", "vector_id": "u", "reads": 24}
    lines = [json.dumps({**read, "at_us": at_us}) for at_us in (NOW - HOUR_US, NOW - DAY_US - 1)]
    lines.append('{"namespace": "shop", "vector_id"')
    for at_us in (NOW, NOW - DAY_US):
        reads_file(tmp_path, at_us).parent.mkdir(exist_ok=True)
        reads_file(tmp_path, at_us).write_text("\n".join(lines))
    found = read_rates(tmp_path, NOW)
    assert found.to_pylist() == [{"namespace": "shop", "vector_id": "u", "reads_per_hour": 2.0}]
    assert pa.types.is_float64(found.schema.field("reads_per_hour").type)
