"""The strategies of compaction in NumPy and plain Python: what those in DataFrames are held against (K2, K3)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.model.errors import ConfigurationError
from tidemark.vectors.checkpoints import CompactionRules, DueReason, Numbers, Strategy, due_reasons

DEFAULT_RULES = CompactionRules()
Flags = npt.NDArray[np.bool_]


class Due(NamedTuple):
    """Whether a vector is to be compacted, and why; `none` where it is not."""

    is_due: bool
    reason: DueReason

    @property
    def is_forced(self) -> bool:
        """Whether it may not wait for a better moment."""
        return self.reason is DueReason.HARD_LIMIT


def kept_by(strategy: Strategy, rules: CompactionRules = DEFAULT_RULES) -> int:
    """How many of the last deltas a strategy leaves single whatever happens."""
    return rules.keep_recent if strategy is Strategy.TIERED_MERGE else 0


def is_due(
    pending: int, oldest_received_us: int, now_us: int, keep_recent: int, rules: CompactionRules = DEFAULT_RULES
) -> Due:
    """Whether one vector is to be compacted, and why (K3)."""
    (number,) = due_reasons(np.array([pending]), np.array([oldest_received_us]), now_us, keep_recent, rules)
    reason = tuple(DueReason)[number]
    return Due(reason is not DueReason.NONE, reason)


def choose(writes_per_hour: float, reads_per_hour: float, rules: CompactionRules = DEFAULT_RULES) -> Strategy:
    """The strategy for one vector by the rule of `adaptive`, said once more (K2)."""
    if reads_per_hour < rules.rare_reads_per_hour:
        return Strategy.TIME_BOUNDARY
    if writes_per_hour < rules.busy_writes_per_hour and reads_per_hour >= rules.reads_per_write * writes_per_hour:
        return Strategy.FULL_MERGE
    return Strategy.TIERED_MERGE


def checkpoint_rows(
    vectors: Numbers, eff_us: Numbers, now_us: int, strategy: Strategy, rules: CompactionRules = DEFAULT_RULES
) -> Flags:
    """The rows after which a checkpoint is to stand, for many vectors at once and with one strategy.

    Rows are the pending deltas that have a place: those of a vector (told apart by numbers) together and in canonical
    order. `adaptive` is none of its own: choose for each vector first (`choose`), and ask for those of each strategy.
    """
    is_last = np.ones(len(vectors), np.bool_)
    is_last[:-1] = vectors[1:] != vectors[:-1]
    match strategy:
        case Strategy.FULL_MERGE:
            return is_last
        case Strategy.TIERED_MERGE:
            return _all_but(rules.keep_recent, vectors, is_last)
        case Strategy.TIME_BOUNDARY:
            interval = eff_us // rules.interval_us
            is_end = is_last.copy()
            is_end[:-1] |= interval[1:] != interval[:-1]
            return np.asarray(is_end & ((interval + 1) * rules.interval_us <= now_us))
        case Strategy.ADAPTIVE:
            raise ConfigurationError("adaptive is chosen for each vector: ask for the rows of what `choose` gives.")


def checkpoint_positions(
    eff_us: Numbers, now_us: int, strategy: Strategy, rules: CompactionRules = DEFAULT_RULES
) -> list[int]:
    """The places in one vector's pending deltas after which a checkpoint is to stand."""
    one = np.zeros(len(eff_us), np.int64)
    return np.flatnonzero(checkpoint_rows(one, eff_us, now_us, strategy, rules)).tolist()


def _all_but(keep: int, vectors: Numbers, is_last: Flags) -> Flags:
    """The last row of each vector that has `keep` rows behind it."""
    if keep == 0:
        return is_last
    found = np.zeros(len(vectors), np.bool_)
    ends = np.flatnonzero(is_last)
    places = ends - keep
    begins = np.concatenate([[-1], ends[:-1]]) + 1
    found[places[places >= begins]] = True
    return found
