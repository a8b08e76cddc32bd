"""Suites that are made from a template: those of windows and of late deltas, which follow from the definitions.

Belongs here: filling in a template for a stream. What must be true stands in `suites/templates/`, as for every other
table. Does not belong here: reading suite files (`suite.py`).
"""

from pathlib import Path

from assets.windows.catalog import STREAMS, by_event_time
from assets.windows.schema import LATE_DELTAS, WINDOW_HOUR
from expectations.suite import SUITES, Suite, read_suite
from resources.streams import LatePolicy, Stream, WindowType
from resources.streams.fields import field_of

TEMPLATES = SUITES / "templates"


def suite_of(table: str, templates: Path = TEMPLATES) -> Suite:
    """The suite of any table: of a stream from its template, else from its own file."""
    if table == LATE_DELTAS.name:
        accepted = "\nUNION ALL\n".join(_accepted(stream) for stream in by_event_time(STREAMS))
        return read_suite(table, template=templates / f"{table}.yaml", words=(("streams", accepted),))
    stream = STREAMS.streams.get(table)
    if stream is None or stream.window.type in (WindowType.SESSION, WindowType.ADAPTIVE):
        return read_suite(table)
    return read_suite(table, template=templates / "panes.yaml", words=tuple(sorted(words_of(stream).items())))


def words_of(stream: Stream) -> dict[str, str]:
    """What stands for each name in braces."""
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
        "allowed": str(late.allowed_us),
        "takes": _takes(stream),
        "pane": _pane(stream),
    }


def _accepted(stream: Stream) -> str:
    """SQL: every accepted delta of a stream, whether it is late (T4), and the moment at which it takes effect."""
    window, allowed = stream.window, stream.late.allowed_us
    at, stamp = "unix_micros(event_ts)", "unix_micros(watermark_ts)"
    if window.type is WindowType.SESSION:
        home = f"{at} + {window.gap_us}"
        is_late = f"{home} + {allowed} < {stamp}"
    else:
        first = f"{at} - {window.size_us}"
        home = f"{first} - pmod({first}, {window.step_us}) + {window.step_us}"
        is_late = f"{home} + {window.size_us + allowed} <= {stamp}"
    effect = home
    if stream.late.policy is LatePolicy.NEXT_WINDOW:
        opened = f"{stamp} - {allowed}"
        effect = f"if(coalesce({is_late}, false), {opened} - pmod({opened}, {window.size_us}), {home})"
    return (
        f"SELECT {_literal(stream.name)} AS stream, event_ts, coalesce({is_late}, false) AS is_late, "
        f"{effect} AS effect FROM deltas WHERE {_matching(stream)}"
    )


def _matching(stream: Stream) -> str:
    conditions = [f"namespace = {_literal(stream.namespace)}", f"kind = {_literal(stream.kind.value)}"]
    conditions += [f"{field_of(stream.kind, name).sql} = {_literal(value)}" for name, value in stream.where]
    return " AND ".join(conditions)


def _takes(stream: Stream) -> str:
    """SQL: whether a pane takes a delta, said anew from the rule (T5) and not from the code that is checked."""
    if stream.window.type is WindowType.FIXED or stream.late.policy is LatePolicy.NEXT_WINDOW:
        return "true"
    if stream.late.policy is LatePolicy.REEMIT:
        extra = stream.late.max_us
        return "true" if extra is None else f"(NOT is_late OR pane_end + {stream.late.allowed_us + extra} > stamp)"
    return "NOT is_late"


def _pane(stream: Stream) -> str:
    """SQL: the pane of a delta that was late and was moved; its own otherwise."""
    if stream.late.policy is not LatePolicy.NEXT_WINDOW:
        return "pane"
    size, allowed = stream.window.size_us, stream.late.allowed_us
    return f"if(is_late, (stamp - {allowed}) - pmod(stamp - {allowed}, {size}), pane)"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
