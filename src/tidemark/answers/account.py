"""Where every delta went.

Belongs here: the answer's form. How it is computed is in `tidemark/observe/account.py`.
"""

from typing import Any

from msgspec import to_builtins

from tidemark.observe.account import Account


def account_as_json(taken: Account) -> dict[str, Any]:
    """`account` has integers only: `received`, and outcomes that add up to it."""
    return {
        "account": to_builtins(taken.outcomes),
        "reasons": taken.reasons,
        "duplicates": {"at_arrival": taken.duplicates_at_arrival, "at_drain": taken.duplicates_at_drain},
        "disagreements": taken.disagreements,
    }
