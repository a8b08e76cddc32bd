"""Who may send how much, as an operator sets it: the section `[admission]` of `platform.toml` (A2 to A4).

Belongs here: the settings, their defaults and what makes no sense of them. What follows from them for a write is
decided in `admission/`.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from tidemark.model.deltas import Kind

# A number that is 0 where nothing is asked for.
OFF = 0


class Policy(StrEnum):
    """What happens to a write beyond what its stream may send (A3)."""

    STRICT = "strict"  # it is turned away for good, and its number is used up
    PREFER_THROTTLE = "prefer_throttle"  # it is turned away for now: the same write may come again
    BYPASS = "bypass"  # nothing: only the room that the shard has limits it


Rate = Annotated[float, Meta(gt=0.0, le=1_000_000_000.0)]
Burst = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=OFF, le=86_400_000)]
Cost = Annotated[float, Meta(gt=0.0, le=1_000_000.0)]


class ClassSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is agreed with the streams of one class; each stream has it to itself, but for the share."""

    rate: Rate = 1.0  # tokens a second
    burst: Burst = 5  # as many can be saved up while nothing comes
    lag_ms: Milliseconds = 5_000  # events may be this much behind or ahead of the clock; 0: any
    share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.05  # of what the shard can hold, for all its streams together
    # A quiet producer is no fault, so silence is looked at only where somebody wants to hear of it.
    jitter_ms: Milliseconds = OFF
    token_cost: Cost = 1.0  # of one delta
    # A throttled producer loses nothing.
    policy: Policy = Policy.PREFER_THROTTLE


class Classes(Struct, frozen=True, forbid_unknown_fields=True):
    """The four classes. Their shares leave a tenth to streams that are in none."""

    bronze: ClassSettings = ClassSettings()
    silver: ClassSettings = ClassSettings(rate=5.0, burst=20, lag_ms=2_000, share=0.15)
    gold: ClassSettings = ClassSettings(rate=20.0, burst=50, lag_ms=500, share=0.3)
    platinum: ClassSettings = ClassSettings(rate=100.0, burst=200, lag_ms=100, share=0.4)


class ClassName(StrEnum):
    """The classes by name."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PLATINUM = "platinum"


class StreamSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One stream: the class it is in, and values of its own. What is None is as in its class, or not limited."""

    class_: ClassName | None = field(name="class", default=None)
    rate: Rate | None = None
    burst: Burst | None = None
    lag_ms: Milliseconds | None = None
    jitter_ms: Milliseconds | None = None
    token_cost: Cost | None = None
    policy: Policy | None = None


class AdmissionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is turned away before it is numbered. Without streams only the room that the shard has limits anybody."""

    # A twentieth of a second is felt by nobody, and half a second of it is no burst any more (CoDel's proportion).
    queue_target_ms: Milliseconds = 50
    queue_interval_ms: Annotated[int, Meta(ge=1, le=60_000)] = 500
    # Within a few steps a full queue is half empty; producers hear of it once in each.
    step_ms: Annotated[int, Meta(ge=1, le=60_000)] = 100
    # Slow enough for any disk, and everybody still gets through.
    min_rate: Rate = 1_000.0
    # More than a shard can take: at this rate nobody is slowed down.
    max_rate: Rate = 2_000_000.0
    classes: Classes = Classes()
    streams: dict[str, StreamSettings] = {}

    def problem(self) -> str | None:
        """What makes no sense, as a sentence; None if all is well."""
        if self.min_rate > self.max_rate:
            return (
                f"[admission] min_rate is {self.min_rate:g}, above max_rate, which is {self.max_rate:g}. "
                "Lower the one or raise the other."
            )
        shares = sum(getattr(self.classes, name).share for name in ClassName)
        if shares > 1.0 + 1e-9:
            return (
                f"[admission] the shares of the classes add up to {shares:g}, and there is only 1 to share. Lower some."
            )
        for name, stream in self.streams.items():
            namespace, _, kind = name.partition("/")
            if not namespace or kind not in set(Kind):
                kinds = ", ".join(f'"{namespace or "shop"}/{each}"' for each in Kind)
                return f"[admission.streams] {name!r} is no stream. Write the namespace and the kind: {kinds}."
            if stream.class_ is None and stream.rate is None and (stream.burst or stream.token_cost):
                return f'[admission.streams."{name}"] has burst or token_cost, but neither class nor rate. Add one.'
        return None


TEMPLATE = """\
# [admission]                                   # what is turned away before it is numbered
# queue_target_ms = 50                          # when writes wait longer than this for the disk (0: never)
# queue_interval_ms = 500                       # for so long, low priorities make room for higher ones
# step_ms = 100                                 # how often producers are told how fast to send
# min_rate = 1_000.0                            # all together never slower than this, in deltas a second
# max_rate = 2_000_000.0                        # at this rate nobody is slowed down

# [admission.classes.bronze]                    # what is agreed with each stream of a class
# rate = 1.0                                    # deltas a second
# burst = 5                                     # and as many more after a pause
# lag_ms = 5_000                                # events may be this far behind or ahead of the clock; 0: any
# share = 0.05                                  # of what the shard can hold, guaranteed; what is unused is lent
# jitter_ms = 0                                 # the longest pause between two writes; 0: any
# token_cost = 1.0                              # what one delta takes of the rate
# policy = "prefer_throttle"                    # come again later; or strict (gone for good), or bypass (no limit)

# [admission.classes.silver]
# rate = 5.0
# burst = 20
# lag_ms = 2_000
# share = 0.15
# jitter_ms = 0
# token_cost = 1.0
# policy = "prefer_throttle"

# [admission.classes.gold]
# rate = 20.0
# burst = 50
# lag_ms = 500
# share = 0.3
# jitter_ms = 0
# token_cost = 1.0
# policy = "prefer_throttle"

# [admission.classes.platinum]
# rate = 100.0
# burst = 200
# lag_ms = 100
# share = 0.4
# jitter_ms = 0
# token_cost = 1.0
# policy = "prefer_throttle"

# [admission.streams."shop/signal"]             # a stream in a class, with values of its own; nothing limits the others
# class = "gold"
# rate = 1_000.0
"""
