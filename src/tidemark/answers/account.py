"""Where every delta went.

Belongs here: the answer's form. How it is computed is in `tidemark/observe/account.py`.
"""

from typing import Any

from msgspec import to_builtins

from tidemark.event_time.clock import shown
from tidemark.observe.account import Account


def account_as_json(taken: Account) -> dict[str, Any]:
    """`account` has integers only: `received`, and outcomes that add up to it."""
    return {
        "account": to_builtins(taken.outcomes),
        "reasons": taken.reasons,
        "turned_away": {
            "reasons": taken.turned_away,
            "producers": taken.turned_away_producers,
            "ids": taken.turned_away_ids,
            "unknown": [[shown(start), None if end is None else shown(end)] for start, end in taken.unknown],
        },
        "duplicates": {"at_arrival": taken.duplicates_at_arrival, "at_drain": taken.duplicates_at_drain},
        "disagreements": taken.disagreements,
    }
