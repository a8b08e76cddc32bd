"""Reading the definitions of a folder: one file is one stream or one join, and the file's name is its name.

Belongs here: from the files to the model, and the rules that several definitions must agree on. The error about an
unusable definition names the file, the line, the mistake and what to write instead. It refuses the whole folder,
because half of a graph is no graph. Does not belong here: the format of a file (`nodes.py`), one stream (`parse.py`).
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import is_name
from tidemark.storage.home import Home, checkout
from tidemark.streams.durations import show_duration
from tidemark.streams.model import FORMS, Join, Stream, Streams
from tidemark.streams.nodes import Value, read_file
from tidemark.streams.parse import JOIN_FIELDS, STREAM_FIELDS, read_stream
from tidemark.streams.windows import WindowSpec, WindowType

STREAMS_VARIABLE = "TIDEMARK_STREAMS"
FOLDER = "streams"
# The table of open sessions, besides that of a stream's closed ones.
OPEN_SUFFIX = "_open"


def find_streams(home: Home | None = None) -> Path | None:
    """The folder of definitions: `TIDEMARK_STREAMS`, else `streams/` of the home, else of the checkout; else None."""
    if chosen := os.environ.get(STREAMS_VARIABLE):
        return Path(chosen).expanduser()
    own, project = (home or Home.locate()).root / FOLDER, checkout()
    if own.is_dir():
        return own
    return project / FOLDER if project else None


def load_streams(folder: Path | None, *, reserved: Collection[str] = ()) -> Streams:
    """All definitions of a folder, none without a folder; `reserved` are the names of other tables."""
    if folder is None:
        return Streams()
    if not folder.is_dir():
        raise ConfigurationError(
            f"There is no folder {folder} to read definitions of streams from. Correct {STREAMS_VARIABLE}, or remove "
            "it; an empty folder defines none."
        )
    files = {path.stem: read_file(path) for path in sorted(folder.glob("*.yaml"))}
    for name, file in files.items():
        _refuse_name(name, file, reserved)
    joins = {name: file for name, file in files.items() if _is_join(file)}
    streams = {name: read_stream(name, file) for name, file in files.items() if name not in joins}
    _refuse_disagreement(streams, files)
    for name, stream in streams.items():
        if stream.window.type is WindowType.SESSION and name + OPEN_SUFFIX in {*files, *reserved}:
            files[name].refuse(
                f"the open sessions of {name} are in the table {name}{OPEN_SUFFIX}, and another table has that name. "
                "Rename one of the two files."
            )
    return Streams(streams, {name: _read_join(name, joins, streams) for name in joins})


def _refuse_name(name: str, file: Value, reserved: Collection[str]) -> None:
    if not is_name(name):
        file.refuse(
            f"{name!r} is not a plain name, and the file's name is the table's. Rename the file: a lower-case letter, "
            "then up to 62 of a-z, 0-9 and _."
        )
    if name in reserved:
        file.refuse(f"there is a table {name} already. Rename the file.")


def _is_join(file: Value) -> bool:
    fields = file.mapping("'namespace: shop' and the rest of a stream, or 'left:' and 'right:' of a join")
    return "left" in fields or "right" in fields


def _read_join(name: str, joins: Mapping[str, Value], streams: Mapping[str, Stream]) -> Join:
    file = joins[name]
    known = JOIN_FIELDS if not set(file.mapping("names and values")) & (STREAM_FIELDS - JOIN_FIELDS) else None
    fields = file.mapping("'left: one_stream' and 'right: another_stream'", known)
    if known is None:
        both = sorted(set(fields) & (STREAM_FIELDS - JOIN_FIELDS))
        file.refuse(
            f"this is a join by its left or right, and has {both[0]} like a stream. Put the stream into a file of its "
            "own, and name it here."
        )
    sides = {side: fields.require(side, f"{side}: the_name_of_a_stream") for side in ("left", "right")}
    names = {side: value.text("the name of a stream") for side, value in sides.items()}
    for side, value in sides.items():
        if cycle := _cycle(name, names[side], joins):
            value.refuse(f"{' is made from '.join(cycle)}: that is a circle. A join is made from two streams.")
        if names[side] in joins:
            value.refuse(f"{names[side]} is a join, and joins are of streams. Name one of {_named(streams)}.")
        if names[side] not in streams:
            value.refuse(f"there is no stream {names[side]!r}. Name one of {_named(streams)}.")
    left, right = streams[names["left"]], streams[names["right"]]
    form = FORMS.get((left.window.type, right.window.type))
    if form is None:
        forms = ", ".join(f"{a} with {b}" for a, b in FORMS)
        sides["left"].refuse(
            f"{left.name} is {left.window.type} and {right.name} is {right.window.type}, and these cannot be joined. "
            f"Join {forms}, left with right."
        )
    if left.window.type is right.window.type is WindowType.TUMBLING and left.window != right.window:
        sides["right"].refuse(
            f"the windows of {right.name} are {_panes(right.window)} and those of {left.name} {_panes(left.window)}, "
            "so they have no panes in common. Join streams of one size and offset."
        )
    if len(left.key) != len(right.key):
        sides["right"].refuse(
            f"{left.name} has the key [{', '.join(left.key)}] and {right.name} [{', '.join(right.key)}]. A join is by "
            "key: give both as many fields, or none: then every two in a window are a pair."
        )
    text = fields.get("description")
    return Join(name, left.name, right.name, form, text.text("a sentence") if text else "")


def _panes(window: WindowSpec) -> str:
    offset = f" with an offset of {show_duration(window.offset_us)}" if window.offset_us else ""
    return f"{show_duration(window.size_us)} long{offset}"


def _cycle(name: str, side: str, joins: Mapping[str, Value]) -> list[str] | None:
    """The path from a join back to itself, if there is one."""
    ways = [[name, side]]
    while ways:
        way = ways.pop()
        if way[-1] == name:
            return way
        if way[-1] in joins and way[-1] not in way[:-1]:
            fields = joins[way[-1]].mapping("names and values")
            inputs = [value for each in ("left", "right") if (value := fields.get(each))]
            ways += [[*way, value.text("the name of a stream")] for value in inputs]
    return None


def _refuse_disagreement(streams: Mapping[str, Stream], files: Mapping[str, Value]) -> None:
    """Watermarks are stored per namespace and kind: settings of one stream apply to all views of its source."""
    settings: dict[tuple[str, str], tuple[str, int]] = {}
    for name, stream in streams.items():
        for what, time_us in (("disorder", stream.disorder_us), ("idle_timeout", stream.idle_us)):
            if time_us is None:
                continue
            other, before_us = settings.setdefault((stream.source, what), (name, time_us))
            if before_us != time_us:
                value = files[name].mapping("names and values").require(what, f"{what}: {show_duration(time_us)}")
                value.refuse(
                    f"{what} is {show_duration(time_us)} here and {show_duration(before_us)} in {other}.yaml, but both "
                    f"are views of {stream.source}, which has one watermark. Write the same in both, or in one only."
                )


def _named(streams: Mapping[str, Stream]) -> str:
    return ", ".join(streams) or "the streams in this folder, of which there are none yet"


__all__ = ["FOLDER", "OPEN_SUFFIX", "find_streams", "load_streams"]
