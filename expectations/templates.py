"""Suites that are made from a template: those of windows and late deltas, and those of counts that are sums.

They follow from the definitions (`streams/`), and from the chain of tiers (`tidemark/tables/tiers.py`).

Belongs here: filling in a template for a table, and filling words that are declared elsewhere into other suites. The
expectations themselves are in `suites/templates/`, as in `suites/` for every other table. Does not belong here: reading
suite files (`suite.py`).
"""

from collections.abc import Sequence

from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.rollups.schema import COUNTS
from assets.windows.catalog import STREAMS, by_event_time, with_same_windows
from assets.windows.open_schema import open_name, open_table
from assets.windows.schema import LATE_DELTAS, WINDOW_HOUR
from expectations.suite import SUITES, Suite, read_suite
from tidemark.log.batch_record import Trigger
from tidemark.model.deltas import KINDS, PAYLOADS, Reason, listed
from tidemark.streams import Join, JoinForm, LatePolicy, Stream, WindowType
from tidemark.streams.fields import field_of
from tidemark.streams.load import OPEN_SUFFIX
from tidemark.tables.tiers import Tier

TEMPLATES = SUITES / "templates"
# What may become of a late delta under each policy, and the words for it; written again from the rule (T5).
OUTCOMES = {
    LatePolicy.REEMIT: {"reemitted": "re-emitted", "too_late": "found too late for that"},
    LatePolicy.DISCARD: {"discarded": "discarded"},
    LatePolicy.NEXT_WINDOW: {"moved": "moved to the next window"},
    LatePolicy.SIDE_OUTPUT: {"side_output": "put aside"},
}
# Under these policies a late delta has a channel.
WITH_CHANNEL = (LatePolicy.SIDE_OUTPUT,)


def suite_of(table: str) -> Suite:
    """The suite of any table: of a stream or a tier from its template, else from its own file."""
    found = _template_of(table)
    if found is None:
        return read_suite(table, words=tuple(sorted(_own_words(table).items())))
    template, words = found
    return read_suite(table, template=TEMPLATES / f"{template}.yaml", words=tuple(sorted(words.items())))


def _template_of(table: str) -> tuple[str, dict[str, str]] | None:
    """The template of a table, and the words that are filled into it."""
    if tier := next((tier for tier in Tier if tier.table == table and tier.made_from), None):
        return "sums", sum_words(tier)
    if table == LATE_DELTAS.name:
        streams = "\nUNION ALL\n".join(map(_accepted, with_same_windows(by_event_time(STREAMS))))
        return table, {"streams": streams, **late_words()}
    if join := STREAMS.joins.get(table):
        template = "session_pairs" if join.form is JoinForm.SESSIONS else "pairs"
        return template, join_words(join, STREAMS.streams[join.left], STREAMS.streams[join.right])
    if stream := STREAMS.streams.get(table):
        if stream.window.type is WindowType.SESSION:
            return "sessions", session_words(stream)
        return "batches" if stream.window.type is WindowType.ADAPTIVE else "panes", words_of(stream)
    stream = STREAMS.streams.get(table.removesuffix(OPEN_SUFFIX))
    return ("open", session_words(stream)) if stream and stream.window.type is WindowType.SESSION else None


def _own_words(table: str) -> dict[str, str]:
    """The words for the file of a table without a template: they are declared elsewhere."""
    if table == DEAD_LETTERS.name:
        return {"reasons": ", ".join(Reason)}
    if table != DELTAS.name:
        return {}
    fitting = [
        f"WHEN {_literal(kind.value)} THEN "
        + "".join(f"{other} IS NULL AND " for other in PAYLOADS if other != kind)
        + rule.sound
        for kind, rule in KINDS.items()
    ]
    told = listed([rule.name for rule in KINDS.values()])
    return {"kinds": ", ".join(PAYLOADS), "told": told, "fitting": "\n  ".join(fitting)}


def sum_words(tier: Tier) -> dict[str, str]:
    """The word for each name, for a tier that is the sum of a finer one."""
    finer, spec = tier.made_from or Tier.MINUTE, COUNTS[tier]
    is_first = finer is Tier.MINUTE
    return {
        "table": tier.table,
        "bucket": str(tier),
        "title": tier.declared.title,
        "begins": tier.declared.begins,
        "unit": tier.grain.name.upper(),
        "partition": spec.partition_by,
        "finer": str(finer),
        "finer_table": finer.table,
        # Minutes have no columns for their first minute and their lowest count: those are their own.
        "finer_first": "bucket_start" if is_first else "first_minute",
        "finer_lowest": "count" if is_first else "lowest_minute",
    }


def words_of(stream: Stream) -> dict[str, str]:
    """The word for each name in double angle brackets."""
    keys = [field.column for field in stream.key_fields]
    window, late = stream.window, stream.late
    time = "received_ts" if window.type is WindowType.FIXED else "event_ts"
    return {
        "table": stream.name,
        "about": stream.description or f"Windows of {stream.source}.",
        "hour": WINDOW_HOUR,
        "key_list": "".join(f"`{key}`, " for key in keys),
        "key_values": "".join(f"{field.sql} AS `{field.column}`, " for field in stream.key_fields),
        "matching": _matching(stream),
        "time": time,
        "size": str(window.size_us),
        "step": str(window.step_us),
        "offset": str(window.offset_us),
        "allowed": str(late.allowed_us),
        "takes": _takes(stream),
        "pane": _pane(stream),
        "triggers": ", ".join(_literal(trigger.value) for trigger in Trigger),
    }


def late_words() -> dict[str, str]:
    """The word for each name in the suite of late deltas: what may become of one."""
    told = {outcome: words for outcomes in OUTCOMES.values() for outcome, words in outcomes.items()}
    return {
        "outcomes": ", ".join(told),
        "told": listed(list(told.values())),
        "fitting": "\n  ".join(_fitting(policy, tuple(outcomes)) for policy, outcomes in OUTCOMES.items()),
        "counted": ", ".join(f"count_if(outcome = {_literal(outcome)}) AS {outcome}" for outcome in told),
    }


def _fitting(policy: LatePolicy, outcomes: Sequence[str]) -> str:
    """SQL: one branch of a CASE, for the outcome under a policy."""
    channel = " AND channel IS NOT NULL" if policy in WITH_CHANNEL else ""
    return f"WHEN {_literal(policy.value)} THEN outcome IN ({', '.join(map(_literal, outcomes))}){channel}"


def session_words(stream: Stream) -> dict[str, str]:
    """The word for each name, for a stream with sessions; written again from the rules (T4, T5)."""
    late, gap = stream.late, stream.window.gap_us
    closed = f"coalesce(unix_micros(event_ts) + {gap} + {late.allowed_us} < unix_micros(watermark_ts), false)"
    beyond = gap + late.allowed_us + (late.max_us or 0)
    too_late = f"coalesce(unix_micros(event_ts) + {beyond} < unix_micros(watermark_ts), false)"
    takes = f"NOT {too_late}" if late.max_us is not None else "true"
    parts = [*(field.column for field in stream.key_fields), "shard"]
    parts += [column.name for column in open_table(stream).columns if column.name == "delta_key"]
    return words_of(stream) | {
        "open": open_name(stream),
        "gap": str(gap),
        "is_late": closed,
        "takes": takes if late.policy is LatePolicy.REEMIT else f"NOT {closed}",
        "part_list": "".join(f"`{name}`, " for name in parts),
    }


def join_words(join: Join, left: Stream, right: Stream) -> dict[str, str]:
    """The word for each name, for a join: the words of each side, and its own."""
    keys = [field.column for field in left.key_fields]
    renamed = zip(right.key_fields, keys, strict=True)
    sides = {f"left_{name}": word for name, word in words_of(left).items()}
    sides |= {f"right_{name}": word for name, word in words_of(right).items()}
    is_sliding = join.form is JoinForm.PANE_AND_SLIDES
    own = {
        "table": join.name,
        "about": join.description or f"{left.name} and {right.name}.",
        "hour": WINDOW_HOUR,
        "left": left.name,
        "right": right.name,
        "key_list": "".join(f"`{key}`, " for key in keys),
        "right_key_values": "".join(f"{field.sql} AS `{key}`, " for field, key in renamed),
        "slides": "size(right_windows) >= 1" if is_sliding else "size(right_windows) = 0",
        "same_key": "".join(
            f"a.`{one.column}` = b.`{other.column}` AND "
            for one, other in zip(left.key_fields, right.key_fields, strict=True)
        ),
    }
    if is_sliding:
        own["right_pane"] = f"at - pmod(at - {left.window.offset_us}, {left.window.size_us})"
    return sides | own


def _accepted(streams: Sequence[Stream]) -> str:
    """SQL: every accepted delta of such streams, whether it is late (T4), and the time at which it takes effect."""
    stream = streams[0]
    window, allowed = stream.window, stream.late.allowed_us
    at, stamp = "unix_micros(event_ts)", "unix_micros(watermark_ts)"
    if window.type is WindowType.SESSION:
        home = f"{at} + {window.gap_us}"
        is_late = f"{home} + {allowed} < {stamp}"
    else:
        first = f"{at} - {window.size_us}"
        home = f"{first} - pmod({first} - {window.offset_us}, {window.step_us}) + {window.step_us}"
        is_late = f"{home} + {window.size_us + allowed} <= {stamp}"
    effect = home
    if stream.late.policy is LatePolicy.NEXT_WINDOW:
        opened = f"{stamp} - {allowed}"
        effect = (
            f"if(coalesce({is_late}, false), {opened} - pmod({opened} - {window.offset_us}, {window.size_us}), {home})"
        )
    names = ", ".join(f"if({_matching(each)}, {_literal(each.name)}, NULL)" for each in streams)
    return (
        f"SELECT stream, event_ts, coalesce({is_late}, false) AS is_late, {effect} AS effect "
        f"FROM deltas LATERAL VIEW explode(array_compact(array({names}))) AS stream"
    )


def _matching(stream: Stream) -> str:
    conditions = [f"namespace = {_literal(stream.namespace)}", f"kind = {_literal(stream.kind.value)}"]
    conditions += [f"{field_of(stream.kind, name).sql} = {_literal(value)}" for name, value in stream.where]
    return " AND ".join(conditions)


def _takes(stream: Stream) -> str:
    """SQL: whether a pane takes a delta, written again from the rule (T5) and not from the checked code."""
    if stream.window.type is WindowType.FIXED or stream.late.policy is LatePolicy.NEXT_WINDOW:
        return "true"
    if stream.late.policy is LatePolicy.REEMIT:
        extra = stream.late.max_us
        return "true" if extra is None else f"(NOT is_late OR pane_end + {stream.late.allowed_us + extra} > stamp)"
    return "NOT is_late"


def _pane(stream: Stream) -> str:
    """SQL: the pane of a delta; if it was late and moved, the pane that it was moved to."""
    if stream.late.policy is not LatePolicy.NEXT_WINDOW:
        return "pane"
    size, offset, opened = stream.window.size_us, stream.window.offset_us, f"(stamp - {stream.late.allowed_us})"
    return f"if(is_late, {opened} - pmod({opened} - {offset}, {size}), pane)"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
