"""The words of event time: a stream, the aggregates of its windows, and a join of two streams.

Belongs here: enums and frozen structs without behaviour, all durations in microseconds. Window types are in
`windows.py`, late policies in `late_policies.py`, reading definitions from a file in `load.py`, the fields of a delta
in `fields.py`.
"""

from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from tidemark.model.deltas import Kind
from tidemark.streams.fields import OWN_KEY, Field, field_of
from tidemark.streams.late_policies import Lateness
from tidemark.streams.windows import WindowSpec, WindowType


class Function(StrEnum):
    """How the values of a window become one value (N5)."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


class JoinForm(StrEnum):
    """What a join pairs; it follows from the windows of both sides (N4)."""

    SAME_PANE = "tumbling_tumbling"
    PANE_AND_SLIDES = "tumbling_sliding"
    SESSIONS = "session_session"


# The types of the left and right windows, and the kind of join that they make.
FORMS = {
    (WindowType.TUMBLING, WindowType.TUMBLING): JoinForm.SAME_PANE,
    (WindowType.TUMBLING, WindowType.SLIDING): JoinForm.PANE_AND_SLIDES,
    (WindowType.SESSION, WindowType.SESSION): JoinForm.SESSIONS,
}


class Aggregate(Struct, frozen=True):
    """A column of the windows: a function and its field; a count without a field counts deltas."""

    name: str
    function: Function
    field: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns: a mean also keeps its sum and its count, so that means can be combined."""
        return (self.name, f"{self.name}_sum", f"{self.name}_count") if self.function is Function.MEAN else (self.name,)


class Stream(Struct, frozen=True, dict=True):
    """A view of one namespace and kind, cut into windows. Its name is that of its asset and of its table."""

    name: str
    namespace: str
    kind: Kind
    window: WindowSpec
    key: tuple[str, ...] = ("key",)  # fields of a delta; empty: one row a pane
    where: tuple[tuple[str, str | int], ...] = ()  # field and its value
    aggregates: tuple[Aggregate, ...] = ()
    late: Lateness = Lateness()
    disorder_us: int | None = None  # None: the platform's settings apply
    idle_us: int | None = None
    description: str = ""

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of the key; each is a column of the table."""
        return tuple(field_of(self.kind, name) for name in self.key)

    @property
    def source(self) -> str:
        """The namespace and kind of which it is a view, as the manifest names their watermark."""
        return f"{self.namespace}/{self.kind.value}"

    @property
    def has_one_key(self) -> bool:
        """Whether every window has only one key of deltas, so the keys need no count."""
        return not OWN_KEY[self.kind].isdisjoint(self.key)


class Join(Struct, frozen=True):
    """Pairs of two streams by key (N4). Its name is that of its asset and of its table."""

    name: str
    left: str
    right: str
    form: JoinForm
    description: str = ""


class Streams(Struct, frozen=True):
    """All definitions, in the order of names."""

    streams: dict[str, Stream] = {}
    joins: dict[str, Join] = {}
