"""When a vector is compacted, and after which of its deltas a checkpoint is made (K2, K3).

Belongs here: the strategies, the rules that an operator sets, and why a vector is due. The strategies in DataFrames are
in `assets/vectors/checkpoints.py`. `fold.py` makes a checkpoint; the code that writes tables decides what it allows to
remove, and when (K4, K5).

The strategies:

- `full_merge`: after the last delta.
- `tiered_merge`: after all but the last `keep_recent`, which stay single: late deltas sort between them, and they are
  read most.
- `time_boundary`: after the last delta of each whole interval that has passed, so that a state of every interval can be
  read without folding. An interval without deltas has no checkpoint of its own: the one before it has the same state.
- `adaptive`: one of the three for each vector, from its rates; the first rule that applies is used.
  1. Hardly read (fewer than `rare_reads_per_hour`): `time_boundary`. No reader waits for a fold, and one state for each
     interval is the least work that still answers every `as_of`.
  2. Read much and written rarely (at least `reads_per_write` reads for each write, and fewer than
     `busy_writes_per_hour` writes): `full_merge`. A read finds a checkpoint and nothing to fold.
  3. Otherwise, written much: `tiered_merge`. The next delta is there at once, so a read folds a few in any case; and
     late deltas may still join those few without invalidating a checkpoint.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import CompactionSettings
from tidemark.model.timegrid import DAY_US, HOUR_US, SECOND_US

MILLISECOND_US = 1_000

Numbers = npt.NDArray[np.int64]


class Strategy(StrEnum):
    """Where checkpoints are placed (K2)."""

    FULL_MERGE = "full_merge"
    TIERED_MERGE = "tiered_merge"
    TIME_BOUNDARY = "time_boundary"
    ADAPTIVE = "adaptive"


class DueReason(StrEnum):
    """Why a vector is due for compaction (K3); a column of them has the places in this list."""

    NONE = "none"
    AGE = "age"
    THRESHOLD = "threshold"
    HARD_LIMIT = "hard_limit"


@dataclass(frozen=True)
class CompactionRules:
    """When and how vectors are compacted; the defaults are those of a careful operator."""

    strategy: Strategy = Strategy.TIERED_MERGE
    threshold: int = 100  # pending deltas
    max_age_us: int = 60 * SECOND_US  # of the oldest pending one, by its arrival
    hard_limit: int = 1_000  # pending deltas that force it: bounds the cost of one read
    keep_recent: int = 10  # that stay single with tiered_merge
    interval_us: int = HOUR_US  # of time_boundary: as long as a partition of the tables
    horizon_us: int = 7 * DAY_US  # every state as of a time since then can still be read (K1)
    busy_writes_per_hour: float = 60.0  # adaptive: at one a minute, the next delta follows any merge at once
    rare_reads_per_hour: float = 1.0  # adaptive: hardly ever read, measured by the interval
    reads_per_write: float = 10.0  # adaptive: so many more reads than writes pay for a merge after every write

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= self.hard_limit:
            raise ConfigurationError("compaction needs 0 < threshold <= hard_limit: lower the one or raise the other.")
        if self.keep_recent < 0 or self.max_age_us < 0 or self.horizon_us < 0:
            raise ConfigurationError("keep_recent, max_age_us and horizon_us of compaction may not be negative.")
        if self.keep_recent >= self.hard_limit:
            raise ConfigurationError(
                "compaction would be forced and merge nothing: lower keep_recent below hard_limit."
            )
        if self.interval_us <= 0:
            raise ConfigurationError("interval_us of compaction must be above 0.")

    @classmethod
    def from_settings(cls, settings: CompactionSettings) -> "CompactionRules":
        """The rules that the operator set."""
        return cls(
            strategy=Strategy(settings.strategy),
            threshold=settings.threshold,
            max_age_us=settings.max_age_ms * MILLISECOND_US,
            hard_limit=settings.hard_limit,
            keep_recent=settings.keep_recent,
            interval_us=settings.interval_ms * MILLISECOND_US,
            horizon_us=settings.horizon_ms * MILLISECOND_US,
            busy_writes_per_hour=settings.busy_writes_per_hour,
            rare_reads_per_hour=settings.rare_reads_per_hour,
            reads_per_write=settings.reads_per_write,
        )


DEFAULT_RULES = CompactionRules()


def due_reasons(
    pending: Numbers, oldest_received_us: Numbers, now_us: int, keep_recent: int, rules: CompactionRules = DEFAULT_RULES
) -> npt.NDArray[np.int8]:
    """The strongest reason why each vector is due, by its number in `DueReason` (K3).

    `pending` counts the deltas after the latest checkpoint, `oldest_received_us` is when the first of them arrived, and
    `keep_recent` is the number that the strategy leaves single. If only these are pending, nothing could be merged, and
    the vector would be due for ever: then only the hard limit makes it due.
    """
    has_some = pending > keep_recent
    is_old = has_some & (now_us - oldest_received_us >= rules.max_age_us)
    is_many = has_some & (pending >= rules.threshold)
    order = tuple(DueReason)
    reasons = np.select(
        [pending >= rules.hard_limit, is_many, is_old],
        [order.index(reason) for reason in (DueReason.HARD_LIMIT, DueReason.THRESHOLD, DueReason.AGE)],
        order.index(DueReason.NONE),
    )
    return np.asarray(reasons, np.int8)
