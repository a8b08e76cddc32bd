"""What the answers to questions look like, for `/openapi.json`.

Belongs here: the forms. They describe what `tidemark/answers` and `tidemark/observe` make, and tests hold the two
together.
"""

from typing import Any

from msgspec import Struct, field

Epochs = dict[str, int]  # shard → epoch


class TableReach(Struct):
    """The basis of an answer from the tables."""

    versions: dict[str, int | None]  # table → version
    epochs: Epochs  # everything up to these is in it


class CountsReach(TableReach):
    """The basis of counts."""

    watermark: str | None
    recounted_hours: list[str]


class LastDay(Struct):
    """Counts by hour."""

    start: str = field(name="from")
    hours: list[int]


class SignalCounts(Struct):
    """One signal over five windows: 1h, 24h, 7d, 30d, all."""

    as_of: str
    counts: dict[str, int]
    weights_millionths: dict[str, int]
    deltas: dict[str, int]
    velocity_per_hour: dict[str, float]
    first_event: str | None
    last_day: LastDay


class OneSignal(SignalCounts):
    """The counts of one signal."""

    namespace: str
    entity: str
    signal: str
    reach: CountsReach


class AllSignals(Struct):
    """The counts of every signal that the entity has."""

    namespace: str
    entity: str
    as_of: str
    signals: dict[str, SignalCounts]
    reach: CountsReach | None


class Ranked(Struct):
    """One entity."""

    entity: str
    count: int


class LogReach(Struct):
    """The basis of an answer from tables and log."""

    tables: Epochs
    log: Epochs


class Top(Struct):
    """The entities with the highest counts, highest first."""

    namespace: str
    signal: str
    window: str
    as_of: str
    top: list[Ranked]
    reach: LogReach


class Windows(Struct):
    """The latest windows of a stream, with its statistics and aggregates."""

    stream: str
    version: int
    watermark: str | None
    windows: list[dict[str, Any]]


class VectorState(Struct):
    """A vector: its state, and what it was made from."""

    namespace: str
    vector_id: str
    as_of: str | None
    epoch: int | None
    state: str
    values: list[float | str] | None
    metadata: dict[str, str | None]
    clock: dict[str, int]
    last_change: dict[str, Any] | None
    deltas: dict[str, int]
    read_from: dict[str, Any]
    reach: TableReach
    chain: list[dict[str, Any]] = []


class Neighbour(Struct):
    """One vector."""

    vector_id: str
    distance: float | str


class Nearest(Struct):
    """The nearest vectors, nearest first, and how they were searched."""

    namespace: str
    vector_id: str | None
    metric: str
    probes: int
    lists: int
    recall: float | None
    live: int
    changed_since_index: int
    neighbours: list[Neighbour]
    reach: TableReach


class Watermarks(Struct):
    """How far event time has come: by stream, and along the graph of tables."""

    watermarks: dict[str, dict[str, Any]]
    event_time: dict[str, Any]


class Pending(Struct):
    """Sealed segments that are not in the tables yet."""

    segments: int
    rows: int
    bytes: int
    oldest_s: float | None


class Status(Watermarks):
    """How far each shard and each table is."""

    home: str
    at: str
    shards: list[dict[str, Any]]
    pending: Pending
    tables: dict[str, dict[str, Any]]


class Account(Struct):
    """Where every delta went: outcomes that add up to `received`."""

    account: dict[str, int]
    reasons: dict[str, int]
    turned_away: dict[str, Any]  # before it was numbered: by reason and producer, some ids, and times it is unknown of
    duplicates: dict[str, int]
    disagreements: list[str]
