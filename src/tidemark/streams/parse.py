"""One stream, from its file to the model.

Belongs here: the fields of a definition, their defaults, and the errors in each by itself. Does not belong here: what
several definitions must agree on (`load.py`), late policies (`late_policies.py`).
"""

import re

from tidemark.model.deltas import Kind
from tidemark.model.settings import is_name
from tidemark.streams.durations import show_duration
from tidemark.streams.fields import STATISTICS, Field, field_names, find_field
from tidemark.streams.late_policies import Lateness, read_late_policy
from tidemark.streams.model import Aggregate, Function, Stream
from tidemark.streams.nodes import Mapping, Value
from tidemark.streams.values import duration, duration_of, one_of, required_duration
from tidemark.streams.windows import WindowSpec, WindowType

STREAM_FIELDS = {
    "description",
    "namespace",
    "kind",
    "where",
    "key",
    "window",
    "aggregates",
    "allowed_lateness",
    "late",
    "disorder",
    "idle_timeout",
}
JOIN_FIELDS = {"description", "left", "right"}
WINDOWS = (
    "'tumbling: 10m', 'sliding: {size: 1h, step: 5m}', 'session: 30m' (the gap), 'fixed: 10m' (by receipt) "
    "or 'adaptive'; those on a grid may have an offset, as in 'tumbling: {size: 7d, offset: 4d}'"
)
AGGREGATES = "'name: {sum: field}' (or min, max, mean, count), or 'name: count'"
# Names that columns of the windows have already.
OWN_COLUMNS = {*STATISTICS, "window_hour"}
# Column names used while windows are computed: an aggregate of that name would be taken for one of them.
WORKING_COLUMNS = re.compile(
    r"value_.*|.*_(us|ts|hour|epoch|position|end|hash)|"
    r"(own_)?(shard|epoch|ordinal|namespace|key|delta_id|delta_key|position|session_start|batch|trigger|block|of_shard)|"
    r"is_late"
)
# A day of minutes. A delta lies in that many panes, and a slice is added to that many.
MOST_PANES = 1_440


def read_stream(name: str, file: Value) -> Stream:
    """The stream that a file defines."""
    fields = file.mapping("'namespace: shop', 'kind: signal', 'window:' and so on", STREAM_FIELDS)
    namespace = fields.require("namespace", "namespace: shop")
    if not is_name(namespace.text("a namespace, such as shop")):
        namespace.refuse("this is not a plain name. Use a lower-case letter, then up to 62 of a-z, 0-9 and _.")
    kinds = ", ".join(Kind)
    kind_of = fields.require("kind", "kind: signal")
    if kind_of.text(f"one of {kinds}") not in set(Kind):
        kind_of.refuse(f"there is no kind {kind_of.text(kinds)!r}. Write one of {kinds}.")
    kind = Kind(kind_of.text(kinds))
    window = _window(fields.require("window", "window: {tumbling: 10m}"))
    key = _key(fields.get("key"), kind)
    about = fields.get("description")
    return Stream(
        name=name,
        namespace=namespace.text("a namespace"),
        kind=kind,
        window=window,
        key=key,
        where=_where(fields.get("where"), kind),
        aggregates=_aggregates(fields.get("aggregates"), kind, key),
        late=_lateness(fields, window),
        disorder_us=duration(fields.get("disorder"), is_zero_allowed=True),
        idle_us=duration(fields.get("idle_timeout")),
        description=about.text("a sentence") if about else "",
    )


def _window(value: Value) -> WindowSpec:
    name, given = one_of(value, WINDOWS)
    if name not in set(WindowType):
        value.refuse(f"there is no window {name!r}. Write {WINDOWS}.")
    kind = WindowType(name)
    if kind is WindowType.ADAPTIVE:
        if given is not None:
            given.refuse("adaptive windows have no duration of their own: they are the live batches. Write 'adaptive'.")
        return WindowSpec(kind)
    if given is None:
        value.refuse(f"a {kind} window has no duration here. Write {WINDOWS}.")
    if kind is WindowType.SLIDING:
        return _sliding(given)
    if kind is WindowType.SESSION:
        return WindowSpec(kind, gap_us=duration_of(given, {"gap"}))
    size_us = duration_of(given, {"size"}, beside={"offset"})
    return WindowSpec(kind, size_us=size_us, step_us=size_us, offset_us=_offset(given, size_us))


def _sliding(given: Value) -> WindowSpec:
    parts = given.mapping("'sliding: {size: 1h, step: 5m}'", {"size", "step", "offset"})
    size_us = required_duration(parts.require("size", "size: 1h"))
    step = parts.require("step", "step: 5m")
    step_us = required_duration(step)
    if step_us > size_us:
        step.refuse(
            f"the step is {show_duration(step_us)} and the size {show_duration(size_us)}, so deltas between two panes "
            "would be in none. Write a step that is not longer than the size."
        )
    if size_us > MOST_PANES * step_us:
        step.refuse(
            f"every delta would be in {-(-size_us // step_us):,} panes, and {MOST_PANES:,} are the most. Write a "
            "longer step, or a shorter size."
        )
    offset_us = _offset(given, step_us)
    return WindowSpec(WindowType.SLIDING, size_us=size_us, step_us=step_us, offset_us=offset_us)


def _offset(given: Value, step_us: int) -> int:
    """How far the grid of panes, one every `step_us`, is moved from 1970."""
    found = None if given.is_text else given.mapping("a size and an offset").get("offset")
    offset_us = duration(found, is_zero_allowed=True) or 0
    if found and offset_us >= step_us:
        found.refuse(
            f"windows begin every {show_duration(step_us)}, so an offset of {show_duration(offset_us)} says no more "
            f"than a shorter one. Write less than {show_duration(step_us)}."
        )
    return offset_us


def _lateness(fields: Mapping, window: WindowSpec) -> Lateness:
    allowed, late = fields.get("allowed_lateness"), fields.get("late")
    if window.is_by_arrival and (said := late or allowed):
        said.refuse(
            f"nothing is ever late for {window.type} windows, which follow the clock of the platform. Remove "
            f"{said.name}, or use windows on the time of events."
        )
    allowed_us = duration(allowed, is_zero_allowed=True) or 0
    return Lateness(allowed_us=allowed_us) if late is None else read_late_policy(late, window, allowed_us)


def _key(value: Value | None, kind: Kind) -> tuple[str, ...]:
    if value is None:
        return ("key",)
    names: list[str] = []
    for item in value.items("'key: [entity_id]', or 'key: []' for one row a window"):
        field = _field(item, kind)
        if field.name in names:
            item.refuse(f"{field.name} stands in the key twice. Keep one of them.")
        if field.column in OWN_COLUMNS or field.is_number:
            item.refuse(f"{field.name} is no key: keys are text. Write one of {', '.join(_texts(kind))}.")
        names.append(field.name)
    return tuple(names)


def _where(value: Value | None, kind: Kind) -> tuple[tuple[str, str | int], ...]:
    if value is None:
        return ()
    found: list[tuple[str, str | int]] = []
    for given in value.mapping("'where: {signal: view}'").values():
        field = find_field(kind, given.name)
        if field is None or (field.is_number and not field.is_integral):
            given.refuse(
                f"no delta of kind {kind.value} can be chosen by {given.name!r}. Write one of {_fields(kind)}."
            )
        if not field.is_integral:
            found.append((given.name, given.text("the value that the field has")))
            continue
        number = given.whole_number()
        if number is None:
            given.refuse(f"{given.name} is a whole number. Write one, such as '{given.name}: 1'.")
        found.append((given.name, number))
    return tuple(found)


def _aggregates(value: Value | None, kind: Kind, key: tuple[str, ...]) -> tuple[Aggregate, ...]:
    taken = OWN_COLUMNS | {field.column for name in key if (field := find_field(kind, name))}
    found: list[Aggregate] = []
    for given in value.mapping(f"'aggregates:' and below it {AGGREGATES}").values() if value else ():
        if not is_name(given.name):
            given.refuse(f"{given.name!r} is not a plain name for a column. Use a letter, then a-z, 0-9 and _.")
        function, of = one_of(given, AGGREGATES)
        if function not in set(Function):
            given.refuse(f"there is no function {function!r}. Write {AGGREGATES}.")
        aggregate = Aggregate(given.name, Function(function), _aggregated(given, Function(function), of, kind))
        if clash := taken.intersection(aggregate.columns):
            given.refuse(f"there is a column {min(clash)} already. Give the aggregate another name.")
        if reserved := next(filter(WORKING_COLUMNS.fullmatch, aggregate.columns), None):
            given.refuse(f"{reserved} is the name of something else in windows. Call it {given.name}_of_window, say.")
        taken |= set(aggregate.columns)
        found.append(aggregate)
    return tuple(found)


def _aggregated(given: Value, function: Function, of: Value | None, kind: Kind) -> str | None:
    """The aggregated field; a number, unless it is only counted."""
    is_count = function is Function.COUNT
    if of is None:
        if not is_count:
            given.refuse(f"{given.name} does not say of which field. Write '{given.name}: {{{function}: field}}'.")
        return None
    field = find_field(kind, of.text("a field"))
    if field is None or not (is_count or field.is_number):
        of.refuse(
            f"{of.text('a field')!r} is no {'field' if is_count else 'number'} of a delta of kind {kind.value}. Write "
            f"one of {', '.join(field_names(kind, is_number=not is_count))}."
        )
    return field.name


def _field(item: Value, kind: Kind) -> Field:
    field = find_field(kind, item.text("a field"))
    if field is None:
        item.refuse(
            f"a delta of kind {kind.value} has no field {item.text('a field')!r}. Write one of {_fields(kind)}."
        )
    return field


def _fields(kind: Kind) -> str:
    return ", ".join(field_names(kind))


def _texts(kind: Kind) -> list[str]:
    return [name for name in field_names(kind) if not (field := find_field(kind, name)) or not field.is_number]
