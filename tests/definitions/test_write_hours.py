"""In which order an hour is written: lock, read, compute, replace (O2). Rows and tables are stand-ins: no Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.ingest.schema import DELTAS
from assets.inputs import replace_partitions
from assets.records import Writing
from assets.windows.catalog import derived_tables
from assets.windows.factory import write_hours
from assets.windows.records import window_records
from resources.lake import Lake, LakeError
from tests.support.live import TEN_O_CLOCK
from tests.support.windows import stream, tumbling
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, MINUTE_US
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType
from tidemark.tables.lineage import Input

HOUR = Range(TEN_O_CLOCK, TEN_O_CLOCK + HOUR_US)
PANES = tumbling(10 * MINUTE_US, name="panes")
GAP = WindowSpec(WindowType.SESSION, gap_us=MINUTE_US)
LEFT, RIGHT = stream(GAP, name="lefts"), stream(GAP, name="rights")
STREAMS: dict[str, Stream] = {each.name: each for each in (PANES, LEFT, RIGHT)}
TABLES = {
    each.spec.name: each
    for each in derived_tables(Streams(STREAMS, {"pairs": Join("pairs", "lefts", "rights", JoinForm.SESSIONS)}))
}


class Rows:
    """Stands for a DataFrame, whatever is done to it."""

    def __init__(self, version: int | None = None) -> None:
        self.version = version

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


class BusyLake:
    """Somebody else holds the lock when it is asked for, and every input has a newer version when it is free."""

    def __init__(self) -> None:
        self.versions = {DELTAS.name: 5, **dict.fromkeys(TABLES, 5)}
        self.replaced: dict[str, tuple[int | None, Input]] = {}

    @contextmanager
    def lock(self, table: str) -> Iterator[None]:
        self.versions = dict.fromkeys(self.versions, 6)
        yield

    def version(self, table: str) -> int | None:
        return self.versions.get(table)

    def known(self, table: str) -> Any:
        return SimpleNamespace(generation=1)

    def edits(self, table: str) -> dict[int, Any]:
        return {}

    def settle(self, spec: Any) -> None:
        pass

    def read(self, table: str, version: int, **_: Any) -> Rows:
        return Rows(version)

    def replace(self, spec: Any, rows: Rows, *, hours: Any, made_from: Input) -> None:
        self.replaced[spec.name] = (rows.version, made_from)


@pytest.mark.parametrize("name", TABLES)
def test_every_input_is_read_as_it_is_when_the_lock_was_taken(name: str) -> None:
    """Who waited for the lock has not read before it: older rows would take the place of newer ones, for ever."""
    lake: Any = BusyLake()
    inputs = replace_partitions(lake, TABLES[name], lambda inputs: Rows(inputs[DELTAS.name].version), HOUR)  # type: ignore[arg-type,return-value]
    assert inputs == dict.fromkeys((DELTAS.name, *TABLES[name].inputs), Input(6, 1))
    assert lake.replaced == {name: (6, Input(6, 1))}


def test_panes_are_computed_from_that_version_of_the_deltas() -> None:
    lake: Any = BusyLake()
    assert write_hours(lake, TABLES["panes"], lambda deltas, hours: deltas, HOUR) == {DELTAS.name: Input(6, 1)}
    assert lake.replaced == {"panes": (6, Input(6, 1))}


def test_an_input_that_is_not_there_is_an_error_that_says_what_to_do() -> None:
    lake: Any = BusyLake()
    lake.versions.pop(DELTAS.name)
    with pytest.raises(LakeError, match=r"There is no table deltas yet. Drain first: ./tidemark drain"):
        write_hours(lake, TABLES["panes"], lambda deltas, hours: deltas, HOUR)
    assert lake.replaced == {}


def test_a_record_says_which_inputs_and_which_definition_its_rows_are_of(tmp_path: Path) -> None:
    lake = Lake(Home(tmp_path / "home").create(), lambda: pytest.fail("no JVM is needed for this"))
    lake.ensure(TABLES["pairs"].spec)
    lake.ensure(DELTAS)
    inputs = {DELTAS.name: Input(0, 2), "lefts": Input(7, 1), "rights": Input(8, 3)}
    with dg.DagsterInstance.ephemeral() as instance:
        run = Writing(dg.build_asset_context(instance=instance), lake, lambda: TEN_O_CLOCK)
        [record] = window_records(run, TABLES["pairs"], inputs, [HOUR], sources=[])
    assert record.input_versions == {DELTAS.name: 0, "lefts": 7, "rights": 8}
    assert record.input_generations == {DELTAS.name: 2, "lefts": 1, "rights": 3}
    assert record.definition == TABLES["pairs"].definition is not None
