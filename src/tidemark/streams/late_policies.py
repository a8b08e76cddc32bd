"""The late policies, each declared once: its word, what it does with a late delta, and how a definition says it (T5).

Belongs here: everything about a policy that needs no Spark. `assets/windows/lateness.py` applies it to rows;
`expectations/templates.py` states independently what must then be true of tables.
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from tidemark.model.settings import is_name
from tidemark.streams.nodes import Value
from tidemark.streams.values import one_of, required_duration
from tidemark.streams.windows import WindowSpec, WindowType

WRITTEN = "reemit, discard, next_window, 'reemit: {max_lateness: 7d}' or 'side_output: channel'"


class LatePolicy(StrEnum):
    """What happens to a delta that is late for a pane (T5)."""

    REEMIT = "reemit"  # it is admitted, and the window is emitted again with a higher revision
    DISCARD = "discard"  # it is not admitted, and recorded
    NEXT_WINDOW = "next_window"  # it goes into the earliest pane that was still open under its stamp
    SIDE_OUTPUT = "side_output"  # it is not admitted, and recorded under a channel of its own


class LateRule(NamedTuple):
    """What a policy does with a late delta; by default its windows do not take it."""

    is_admitted: bool = False  # its own windows take it, up to `max_us` where that is set
    is_moved: bool = False  # another pane takes it: the earliest that was open under its stamp


RULES: dict[LatePolicy, LateRule] = {
    LatePolicy.REEMIT: LateRule(is_admitted=True),
    LatePolicy.DISCARD: LateRule(),
    LatePolicy.NEXT_WINDOW: LateRule(is_moved=True),
    LatePolicy.SIDE_OUTPUT: LateRule(),
}


class Lateness(Struct, frozen=True):
    """How long a stream waits, and what happens to later deltas (T5)."""

    policy: LatePolicy = LatePolicy.REEMIT
    allowed_us: int = 0
    max_us: int | None = None  # of reemit: later deltas are discarded; without it none are
    channel: str | None = None  # of side_output

    @property
    def is_admitted(self) -> bool:
        """Whether a window takes its late deltas and is emitted again."""
        return RULES[self.policy].is_admitted

    @property
    def is_moved(self) -> bool:
        """Whether late deltas go into another pane."""
        return RULES[self.policy].is_moved

    @property
    def admitted_up_to_us(self) -> int | None:
        """How late a delta may be and still be admitted to its own windows; None without such a bound."""
        return self.max_us if self.is_admitted else 0


def read_late_policy(late: Value, window: WindowSpec, allowed_us: int) -> Lateness:
    """The policy that a definition names, with its options."""
    name, given = one_of(late, WRITTEN)
    if name not in set(LatePolicy):
        late.refuse(f"there is no policy {name!r} for what is late. Write {WRITTEN}.")
    policy = LatePolicy(name)
    if policy is LatePolicy.NEXT_WINDOW and window.type is not WindowType.TUMBLING:
        late.refuse(
            f"next_window is for tumbling windows, and these are {window.type}. Write reemit, discard or 'side_output: "
            "channel'."
        )
    if policy is LatePolicy.SIDE_OUTPUT:
        channel = given.text("a channel, such as audits") if given else ""
        if not is_name(channel):
            late.refuse("side_output needs a channel with a plain name. Write 'late: {side_output: audits}'.")
        return Lateness(policy, allowed_us, channel=channel)
    if given is None:
        return Lateness(policy, allowed_us)
    if policy is not LatePolicy.REEMIT:
        given.refuse(f"{policy} takes nothing more. Write 'late: {policy}'.")
    parts = given.mapping("'reemit: {max_lateness: 7d}'", {"max_lateness"})
    return Lateness(policy, allowed_us, max_us=required_duration(parts.require("max_lateness", "max_lateness: 7d")))
