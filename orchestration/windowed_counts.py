"""`windowed_counts` on request: as of a minute, or because the inputs have changed since the last time.

Belongs here: whether it is due, whether it is blocked, and the run. Does not belong here: what it computes
(`assets/rollups`), at which hour (`schedules.py`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.records import of_generation
from assets.rollups.schema import TRAILING_COUNTS, WINDOWED_COUNTS
from assets.trust import against
from orchestration.instance import open_instance
from orchestration.runs import Progress, RunResults, run
from resources.record import Record
from tidemark.event_time.clock import system_clock
from tidemark.model.timegrid import HOUR, MINUTE
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.storage.home import Home
from tidemark.tables.known_table import KnownTableFile, find_break

if TYPE_CHECKING:
    from dagster import DagsterInstance

NAME = WINDOWED_COUNTS.name


@dataclass(frozen=True)
class Standing:
    """How the table compares with its inputs."""

    last: Record | None  # of the stored table
    watermark_us: int | None  # of the inputs
    are_inputs_new: bool  # whether an input was written since

    @property
    def is_due(self) -> bool:
        """Whether computing it again would change it."""
        is_later = self.watermark_us is not None and MINUTE.floor(self.watermark_us) > (self.last_us or 0)
        return self.watermark_us is not None and (self.are_inputs_new or is_later)

    @property
    def is_an_hour_behind(self) -> bool:
        """Whether an hour of event time has begun that it does not contain."""
        return self.watermark_us is not None and (self.last_us is None or self.last_us < HOUR.floor(self.watermark_us))

    @property
    def last_us(self) -> int | None:
        """The time that it is as of."""
        return self.last.as_of_us if self.last else None


def standing(instance: "DagsterInstance", home: Home) -> Standing:
    """Compare the last record with the stored tables; no JVM."""
    from assets.rollups.records import input_watermark

    inputs = [Record.latest_by_partition(instance, spec.name) for spec in TRAILING_COUNTS.values()]
    versions = {
        spec.name: max((record.table_version for record in records.values()), default=-1)
        for spec, records in zip(TRAILING_COUNTS.values(), inputs, strict=True)
    }
    last = _last(instance, home)
    is_new = last is None or any(version > last.input_versions.get(name, -1) for name, version in versions.items())
    ceiling = ceiling_us(home, system_clock())
    if last is not None and ceiling is not None and (last.as_of_us or 0) > ceiling:
        last, is_new = None, True  # it is as of a time that only a wrong clock has seen (C15)
    return Standing(last, input_watermark(inputs, ceiling), is_new)


def wrong_inputs(instance: "DagsterInstance", home: Home) -> dict[str, tuple[str, ...]]:
    """Tiers with partitions that must not be built upon (O4): all data of all time is an input."""
    return against(home, instance, *(spec.name for spec in TRAILING_COUNTS.values()))


def materialize_windowed_counts(home: Home, as_of: str = "", *, progress: Progress | None = None) -> RunResults:
    """Compute it as of a minute; by default as of the last that the watermark has passed, if that changes anything."""
    with open_instance(home) as instance:
        if not as_of and not standing(instance, home).is_due:
            return RunResults()
        if wrong_inputs(instance, home):
            return RunResults(held_back={NAME: ("as a whole",)})
        return RunResults((run(home, instance, [NAME], (), progress, config={"as_of": as_of}),))


def _last(instance: "DagsterInstance", home: Home) -> Record | None:
    """The last record, if it belongs to the stored table."""
    known = KnownTableFile(home.plans, NAME).read()
    found = of_generation(Record.found(instance, NAME), known.generation)
    return found if found and not find_break(home.lake / NAME, known) else None
