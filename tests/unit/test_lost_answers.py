"""The answer to a write can get lost when the write is done. The table decides then, not the error (decision 0052)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from py4j.protocol import Py4JNetworkError

from assets.ingest.schema import DELTAS
from assets.rollups.schema import COUNTS
from resources import lake as lake_module
from resources.lake import Column, Lake, WriteFailedError
from tests.support.small_lake import Event, SmallLake
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lake_commits import delete_partitions
from tidemark.tables.tiers import Tier

HOURLY_COUNTS = COUNTS[Tier.HOUR]
WIDER = replace(
    HOURLY_COUNTS,
    columns=(*HOURLY_COUNTS.columns, Column("more", pa.string(), "one"), Column("most", pa.string(), "another")),
)
NAME = HOURLY_COUNTS.name


class LosesAnswers:
    """A session that does a statement by delta-rs, or does not, and loses the answers to those that begin in a way."""

    def __init__(self, path: Path, *, lost: str, is_done: bool, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._lost, self._is_done = lost, is_done
        self._error = error or Py4JNetworkError("Answer from Java side is empty")
        self._statements: dict[str, Callable[[], object]] = {
            "ALTER": lambda: DeltaTable(path).alter.add_columns(
                [Field(name, PrimitiveType("string"), nullable=True) for name in ("more", "most")]
            ),
            "OPTIMIZE": DeltaTable(path).optimize.compact,
            "VACUUM": lambda: DeltaTable(path).vacuum(168, dry_run=False),
        }

    def sql(self, statement: str) -> "LosesAnswers":
        word = statement.split(maxsplit=1)[0]
        self.asked.append(word)
        if self._is_done or word != self._lost:
            self._statements[word]()
        if word == self._lost:
            raise self._error
        return self

    def collect(self) -> list[Any]:
        return []


@pytest.fixture
def small(tmp_path: Path) -> SmallLake:
    """Two files in one hour of `deltas`, and two hours of counts."""
    small = SmallLake(Home(tmp_path / "home").create())
    small.send([Event(HOUR_US), Event(10 * HOUR_US)])
    small.send([Event(HOUR_US + 1)])
    small.roll_up_everything()
    return small


def with_session(small: SmallLake, session: LosesAnswers) -> Lake:
    return Lake(small.home, lambda: session)  # type: ignore[arg-type,return-value]


def version_of(lake: Lake, table: str) -> int:
    version = lake.version(table)
    assert version is not None
    return version


@pytest.mark.parametrize("error", [OSError("broken pipe"), DeltaError("timed out"), Py4JNetworkError("reset")])
def test_an_answer_that_is_lost_after_columns_were_added_is_no_failure(small: SmallLake, error: Exception) -> None:
    path = small.home.lake / NAME
    lake = with_session(small, LosesAnswers(path, lost="ALTER", is_done=True, error=error))
    assert lake.widen(WIDER).version == lake.version(NAME)
    assert lake_files.columns(path) == list(WIDER.names)
    assert lake.known(NAME) == lake.widen(WIDER), "and there is nothing left to add"
    assert lake.edits(NAME) == {}


def test_columns_that_were_not_added_are_a_failed_write(small: SmallLake) -> None:
    lake = with_session(small, LosesAnswers(small.home.lake / NAME, lost="ALTER", is_done=False))
    before = lake.known(NAME)
    with pytest.raises(WriteFailedError, match=f"Adding columns to the table {NAME} failed, and nothing of it was"):
        lake.widen(WIDER)
    assert lake.known(NAME) == before
    assert "more" not in lake_files.columns(lake.path(NAME))


def test_an_answer_that_is_lost_after_files_were_compacted_is_no_failure(small: SmallLake) -> None:
    session = LosesAnswers(small.home.lake / DELTAS.name, lost="OPTIMIZE", is_done=True)
    lake = with_session(small, session)
    before = version_of(lake, DELTAS.name)
    version = lake.maintain(DELTAS, closed_before_us=100 * HOUR_US)
    assert session.asked == ["OPTIMIZE", "VACUUM"], "it went on"
    assert before < version == lake.known(DELTAS.name).version == lake.version(DELTAS.name)
    assert lake.edits(DELTAS.name) == {}


def test_files_that_were_not_compacted_are_a_failed_write(small: SmallLake) -> None:
    session = LosesAnswers(small.home.lake / DELTAS.name, lost="OPTIMIZE", is_done=False)
    lake = with_session(small, session)
    before = version_of(lake, DELTAS.name)
    with pytest.raises(WriteFailedError, match="Compacting the files of the table deltas failed, and nothing of it"):
        lake.maintain(DELTAS, closed_before_us=100 * HOUR_US)
    assert session.asked == ["OPTIMIZE"]
    assert version_of(lake, DELTAS.name) == before


@pytest.mark.parametrize("is_done", [True, False])
def test_what_was_compacted_before_a_failed_deletion_is_remembered(small: SmallLake, is_done: bool) -> None:
    lake = with_session(small, LosesAnswers(small.home.lake / DELTAS.name, lost="VACUUM", is_done=is_done))
    before = version_of(lake, DELTAS.name)
    with pytest.raises(WriteFailedError, match=r"Deleting old files .* go with the next maintenance"):
        lake.maintain(DELTAS, closed_before_us=100 * HOUR_US)
    assert before < lake.known(DELTAS.name).version == lake.version(DELTAS.name)
    assert lake.edits(DELTAS.name) == {}


@pytest.mark.parametrize("error", [OSError("broken pipe"), DeltaError("the answer was lost")])
def test_r5_a_drop_whose_answer_is_lost_is_no_failure(
    small: SmallLake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def lose_the_answer(*arguments: Any) -> None:
        delete_partitions(*arguments)
        raise error

    monkeypatch.setattr(lake_module, "delete_partitions", lose_the_answer)
    lake = Lake(small.home)
    before = version_of(lake, NAME)
    lake.drop(HOURLY_COUNTS, 5 * HOUR_US)
    assert before < lake.known(NAME).version == version_of(lake, NAME)
    assert list(lake_files.partitions(lake.path(NAME))) == [10 * HOUR_US]
    assert lake.edits(NAME) == {}


def test_r5_a_drop_that_was_not_committed_is_a_failed_write(small: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_the_question(*_arguments: Any) -> None:
        raise DeltaError("the question was lost")

    monkeypatch.setattr(lake_module, "delete_partitions", lose_the_question)
    lake = Lake(small.home)
    before = version_of(lake, NAME)
    with pytest.raises(WriteFailedError, match="nothing of it was committed: the question was lost"):
        lake.drop(HOURLY_COUNTS, 5 * HOUR_US)
    assert version_of(lake, NAME) == before
    assert list(lake_files.partitions(lake.path(NAME))) == [HOUR_US, 10 * HOUR_US]
