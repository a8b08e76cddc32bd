"""Windows and lateness in a few lines of plain Python, too simple to be wrong (N1, T4, T5); and deltas to try them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assets.ingest.schema import DELTAS
from resources.session import frame_of
from tests.support.small_lake import Event as Signal
from tests.support.small_lake import signal_row, table_rows
from tidemark.model.deltas import Kind
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to
from tidemark.streams import Aggregate, Function, Lateness, LatePolicy, Stream, WindowSpec, WindowType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ROOT = Path(__file__).resolve().parents[2]


def every_example(folder: Path) -> Path:
    """A folder with all definitions that come along: those of the demo, and more."""
    folder.mkdir(exist_ok=True)
    for path in (*(ROOT / "streams").glob("*.yaml"), *(ROOT / "streams" / "more").glob("*.yaml")):
        (folder / path.name).write_text(path.read_text())
    return folder


class Event(NamedTuple):
    """A delta, as far as windows look at it."""

    at_us: int
    stamp_us: int | None = None
    entity: str = "a"
    amount: int = 1
    received_us: int = 0
    shard: int = 0


DEFAULT = Lateness()


def stream(window: WindowSpec, late: Lateness = DEFAULT, *, name: str = "tried", **more: Any) -> Stream:
    total = Aggregate("total", Function.SUM, "count")
    return Stream(name, "shop", Kind.SIGNAL, window, **{"aggregates": (total,), **more}, late=late)


def tumbling(size_us: int, late: Lateness = DEFAULT, *, offset_us: int = 0, **more: Any) -> Stream:
    return stream(WindowSpec(WindowType.TUMBLING, size_us, size_us, offset_us=offset_us), late, **more)


def sliding(size_us: int, step_us: int, late: Lateness = DEFAULT, *, offset_us: int = 0, **more: Any) -> Stream:
    return stream(WindowSpec(WindowType.SLIDING, size_us, step_us, offset_us=offset_us), late, **more)


def fixed(size_us: int, *, offset_us: int = 0, **more: Any) -> Stream:
    return stream(WindowSpec(WindowType.FIXED, size_us, size_us, offset_us=offset_us), **more)


def policies(allowed_us: int, max_us: int) -> Iterator[Lateness]:
    """Every policy, with and without a bound."""
    yield Lateness(allowed_us=allowed_us)
    yield Lateness(allowed_us=allowed_us, max_us=max_us)
    yield Lateness(LatePolicy.DISCARD, allowed_us)
    yield Lateness(LatePolicy.SIDE_OUTPUT, allowed_us, channel="aside")


def panes_of(event: Event, window: WindowSpec) -> list[int]:
    """Starts of the panes that an event lies in, the first one first."""
    time_us = event.received_us if window.type is WindowType.FIXED else event.at_us
    first, last = (floor_to(moment, window.step_us, window.offset_us) for moment in (time_us - window.size_us, time_us))
    return [start for start in range(first, last + 1, window.step_us) if start + window.size_us > time_us]


def is_late(event: Event, end_us: int, late: Lateness, extra_us: int = 0) -> bool:
    return event.stamp_us is not None and end_us + late.allowed_us + extra_us <= event.stamp_us


def admitted_to(event: Event, of: Stream) -> Iterator[tuple[int, bool]]:
    """The panes that take an event, and whether it was late for each."""
    size_us, late = of.window.size_us, of.late
    for start in panes_of(event, of.window):
        if of.window.type is WindowType.FIXED or not is_late(event, start + size_us, late):
            yield start, False
        elif late.policy is LatePolicy.NEXT_WINDOW:
            yield floor_to((event.stamp_us or 0) - late.allowed_us, size_us, of.window.offset_us), True
        elif late.policy is LatePolicy.REEMIT and (
            late.max_us is None or not is_late(event, start + size_us, late, late.max_us)
        ):
            yield start, True


def windows_of(events: Iterable[Event], of: Stream) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """(entity, start) → deltas, late ones, sum, first and last event, epochs by shard; an epoch is a place."""
    found: dict[tuple[str, int], list[tuple[int, Event, bool]]] = defaultdict(list)
    for epoch, event in enumerate(events, start=1):
        for start, was_late in admitted_to(event, of):
            found[event.entity, start].append((epoch, event, was_late))
    return {
        key: (
            len(held),
            sum(was_late for _, _, was_late in held),
            sum(event.amount for _, event, _ in held),
            min(event.at_us for _, event, _ in held),
            max(event.at_us for _, event, _ in held),
            tuple(_epochs(held)),
        )
        for key, held in found.items()
    }


def _epochs(held: Sequence[tuple[int, Event, bool]]) -> Iterator[tuple[int, int, int]]:
    for shard in sorted({event.shard for _, event, _ in held}):
        epochs = [epoch for epoch, event, _ in held if event.shard == shard]
        yield shard, min(epochs), max(epochs)


def late_of(events: Iterable[Event], of: Stream) -> dict[int, tuple[str, int, int, int, int]]:
    """Epoch → outcome, by how much, panes late, panes missed, hour of effect; of every event that is late at all."""
    words = {LatePolicy.DISCARD: "discarded", LatePolicy.SIDE_OUTPUT: "side_output", LatePolicy.NEXT_WINDOW: "moved"}
    found = {}
    for epoch, event in enumerate(events, start=1):
        ends = [start + of.window.size_us for start in panes_of(event, of.window)]
        late = [end for end in ends if is_late(event, end, of.late)]
        if not late or of.window.type is WindowType.FIXED:
            continue
        taken = dict(admitted_to(event, of))
        missed = [end for end in late if end - of.window.size_us not in taken]
        outcome = words.get(of.late.policy, "too_late" if missed else "reemitted")
        home = min(taken) if outcome == "moved" else ends[0] - of.window.size_us
        by_us = (event.stamp_us or 0) - ends[0] - of.late.allowed_us
        found[epoch] = (outcome, by_us, len(late), len(missed), floor_to(home, HOUR_US))
    return found


def deltas_of(spark: "SparkSession", events: Sequence[Event]) -> "DataFrame":
    """The events as rows of `deltas`."""
    rows = [
        signal_row(
            epoch,
            Signal(event.at_us, event.entity, count=event.amount),
            delta_id=f"d{epoch - 1}",
            shard=event.shard,
            received_ts=event.received_us,
            watermark_ts=event.stamp_us,
        )
        for epoch, event in enumerate(events, start=1)
    ]
    return frame_of(spark, table_rows(DELTAS, rows))


TEN_MINUTES = 10 * MINUTE_US
