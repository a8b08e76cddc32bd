"""Verdicts as they follow from the whole log: too slow for a shard, too simple to be wrong.

Belongs here: the definition (Q3, D9, K4). The shard's way, with a memory that survives restarts, is in
`tidemark/verdicts`.
"""

from collections.abc import Callable, Mapping, Sequence

from chaos.history import Limit
from chaos.stored import Row
from chaos.traffic import Made
from tidemark.model.settings import Settings

Expected = tuple[str, str | None]  # verdict, and the reason if the rule names one


def expected_verdicts(
    rows: Sequence[Row], sent: Sequence[Made], settings: Settings, earliest_us: Callable[[Limit, int], int]
) -> list[Expected]:
    """The right verdict for each delta, in the order of the log. `earliest_us` gives the limits by epoch."""
    verdicts: list[Expected] = []
    passed: list[tuple[Made, bool]] = []  # deltas that passed the checks, and whether they were accepted

    for row, made in zip(rows, sent, strict=True):
        verdict = _by_itself(row, made, settings, {limit: earliest_us(limit, row.epoch) for limit in Limit})
        if verdict is None:
            recent = passed[-settings.recent_identities :] if settings.recent_identities else []
            verdict = _among(made, recent)
            passed.append((made, verdict[0] == "accepted"))
        verdicts.append(verdict)
    return verdicts


def _by_itself(row: Row, made: Made, settings: Settings, earliest_us: Mapping[Limit, int]) -> Expected | None:
    if not made.is_sound:
        return "refused", None
    if made.event_us < max(settings.earliest_event_us, earliest_us[Limit.EVENTS]):
        return "refused", "too_old"
    if made.kind == "vector" and made.event_us < earliest_us[Limit.VECTORS]:
        return "refused", "below_horizon"
    if made.event_us > row.received_us + settings.clock_skew_ms * 1_000:
        return "refused", "from_the_future"
    return None


def _among(made: Made, recent: Sequence[tuple[Made, bool]]) -> Expected:
    """The first of the recent ones that was accepted under this identity decides."""
    for other, is_accepted in recent:
        if is_accepted and other.identity == made.identity:
            return ("duplicate", None) if other.number == made.number else ("refused", "id_reuse")
    return "accepted", None
