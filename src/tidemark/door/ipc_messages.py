"""Arrow's IPC messages as they lie in a payload, read far enough to know what reading them for real would take.

Belongs here: the walk over a stream that a stranger sent: its framing, the tables that describe columns and buffers,
and the bounds of all of them. No buffer of a column is looked at, but for the stated size of a compressed one. What
the columns hold is for Arrow to read, once everything here is in order (`foreign_columns.py`).

The metadata are flatbuffers: tables that point forward by offsets, and may point to one thing many times. So every read
is checked, and what has been seen is counted, shared or not.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import Limits

_BEGINNING: Final = struct.Struct("<Ii")
_CONTINUATION: Final = 0xFFFFFFFF
# What `pyarrow.feather` and others write instead of a stream.
_FILE_MAGIC: Final = b"ARROW1"
# The versions whose buffers lie as they do today; unions differ, and are not taken.
_VERSIONS: Final = (3, 4)
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# A delta has thirty fields or so, with all that its payloads can hold.
_MOST_FIELDS: Final = 256
# So many small messages cost more to open than their content can be worth.
_MOST_MESSAGES: Final = 1_000
# The narrowest number in the log; so many values fit into what a write may unpack to.
_NUMBER_BYTES: Final = 4

_DICTIONARY_BUFFERS: Final = 2
_VIEWS: Final = (23, 24)
_FIXED_SIZE = {15: "binary", 16: "lists"}
# Arrow's types by number, with the buffers that each has in a batch.
_BUFFERS: Final = {
    1: 0,  # null
    **dict.fromkeys((2, 3, 6, 7, 8, 9, 10, 11, 15, 18), 2),  # numbers, truth values, times, binary of a fixed size
    **dict.fromkeys((4, 5, 19, 20), 3),  # binary and text, and the large ones
    **dict.fromkeys((12, 17, 21), 2),  # lists, maps, large lists
    **dict.fromkeys((13, 16), 1),  # structs, lists of a fixed size
    **dict.fromkeys(_VIEWS, 2),  # and as many more as the batch says
}
_NOT_TAKEN: Final = {14: "unions", 22: "runs", 25: "views of lists", 26: "views of lists"}


def bad(message: str) -> PayloadError:
    """A payload that is no Arrow stream, or not one that is taken here."""
    return PayloadError(NackReason.BAD_PAYLOAD, message)


def too_large(message: str) -> PayloadError:
    """A stream that holds, or claims to hold, more than a write may."""
    return PayloadError(NackReason.TOO_LARGE, message)


class Layout(NamedTuple):
    """What a batch of some columns consists of."""

    nodes: int  # columns, and columns within columns
    buffers: int  # without those that views have in addition
    views: int
    dictionaries: tuple[tuple[int, "Layout"], ...] = ()


class Found(NamedTuple):
    """What the walk found."""

    rows: int
    batches: int
    has_wrapped: bool  # dictionaries, or views: values that many rows may share


class _Table:
    """A flatbuffers table at a position of the metadata."""

    __slots__ = ("_data", "_fields", "_position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._position = data, position
        start = position - self._read(_I32, position)
        size = self._read(_U16, start)
        if size < 4 or size % 2:
            raise bad("The metadata of an Arrow message are damaged: a table has no fields.")
        self._fields = self._many("H", size // 2 - 2, start + 4, 2)

    def _read(self, form: struct.Struct, position: int) -> int:
        if not 0 <= position <= len(self._data) - form.size:
            raise bad("The metadata of an Arrow message are damaged: they point outside of themselves.")
        return int(form.unpack_from(self._data, position)[0])

    def _many(self, code: str, count: int, position: int, width: int) -> tuple[int, ...]:
        if not 0 <= position <= len(self._data) - count * width:
            raise bad("The metadata of an Arrow message are damaged: a list reaches beyond their end.")
        return struct.unpack_from(f"<{count}{code}", self._data, position)

    def _place(self, slot: int) -> int:
        """Where a field lies; 0 if it is left out."""
        offset = self._fields[slot] if slot < len(self._fields) else 0
        return self._position + offset if offset else 0

    def number(self, slot: int, form: struct.Struct, default: int = 0) -> int:
        place = self._place(slot)
        return self._read(form, place) if place else default

    def _pointed(self, slot: int) -> int:
        place = self._place(slot)
        return place + self._read(_U32, place) if place else 0

    def table(self, slot: int) -> "_Table | None":
        place = self._pointed(slot)
        return _Table(self._data, place) if place else None

    def needed(self, slot: int, what: str) -> "_Table":
        found = self.table(slot)
        if found is None:
            raise bad(f"An Arrow message has no {what}.")
        return found

    def numbers(self, slot: int, each: int = 1) -> tuple[int, ...]:
        """A list of 64-bit numbers, or of structs of so many of them."""
        place = self._pointed(slot)
        return self._many("q", self._read(_U32, place) * each, place + 4, 8) if place else ()

    def tables(self, slot: int) -> Iterator["_Table"]:
        place = self._pointed(slot)
        count = self._read(_U32, place) if place else 0
        for offset in range(place + 4, place + 4 + 4 * count, 4):
            yield _Table(self._data, offset + self._read(_U32, offset))

    def text(self, slot: int) -> bytes:
        place = self._pointed(slot)
        if not place:
            return b""
        size = self._read(_U32, place)
        if place + 4 + size > len(self._data):
            raise bad("The metadata of an Arrow message are damaged: a text reaches beyond their end.")
        return self._data[place + 4 : place + 4 + size]


_U8, _I8, _U16, _I16, _I32, _U32, _I64 = (struct.Struct("<" + code) for code in "BbHhiIq")


class _Message(NamedTuple):
    kind: int
    header: _Table
    metadata: bytes
    body: memoryview


def look_through(payload: memoryview, limits: Limits) -> Found:
    """Walk over the whole stream; raise if anything about it is out of bounds."""
    messages = _messages(payload, limits)
    first = next(messages, None)
    if first is None or first.kind != _SCHEMA:
        raise bad("An Arrow stream begins with its schema, and this payload does not.")
    layout = _layout(first.metadata, limits)
    parts = dict(layout.dictionaries)
    rows = batches = unpacked = values = 0
    for message in messages:
        if message.kind == _BATCH:
            length, batch = _batch(message.header, message.body, layout)
            rows, batches = rows + length, batches + 1
        elif message.kind == _DICTIONARY:
            batch = _dictionary(message, parts)
        else:
            raise bad("An Arrow stream has one schema and then batches; this one holds something else.")
        unpacked, values = unpacked + batch.unpacked, values + batch.values
        _check_sizes(rows, values, unpacked, len(payload), limits)
    return Found(rows, batches, bool(layout.dictionaries or layout.views))


def _check_sizes(rows: int, values: int, unpacked: int, size: int, limits: Limits) -> None:
    if rows > limits.rows:
        raise too_large(f"A write has at most {limits.rows:,} rows, and this one says {rows:,}. Send several.")
    if unpacked > limits.unpacked_bytes:
        raise too_large(
            f"The columns unpack to {unpacked:,} bytes; {limits.unpacked_bytes:,} may be. Send smaller writes."
        )
    if unpacked > limits.ratio * size:
        raise too_large(f"The columns unpack to more than {limits.ratio} times their size. Send them uncompressed.")
    # Values of nothing have no bytes, and each is an object if its row is looked at.
    most = min(limits.unpacked_bytes // _NUMBER_BYTES, limits.ratio * size)
    if values > most:
        raise too_large(f"The columns hold {values:,} values; {most:,} may be. Send smaller writes.")


def _messages(payload: memoryview, limits: Limits) -> Iterator[_Message]:
    position, count = 0, 0
    while position < len(payload):
        if len(payload) - position < _BEGINNING.size:
            raise bad("The Arrow stream ends within a message; was it cut?")
        mark, size = _BEGINNING.unpack_from(payload, position)
        position += _BEGINNING.size
        if mark != _CONTINUATION:
            raise _not_a_stream(payload)
        if size == 0:
            if position != len(payload):
                raise bad("Bytes follow the end of the Arrow stream.")
            return
        if size > limits.message_bytes:
            raise too_large(f"The metadata of an Arrow message have {size:,} bytes; {limits.message_bytes:,} may be.")
        if size < 0 or size % 8:
            raise bad("The metadata of an Arrow message are not padded to eight bytes.")
        if size > len(payload) - position:
            raise bad("The Arrow stream ends within a message; was it cut?")
        metadata = bytes(payload[position : position + size])
        position += size
        message = _message(metadata, payload[position:])
        position += len(message.body)
        count += 1
        if count > _MOST_MESSAGES:
            raise too_large(f"An Arrow stream has at most {_MOST_MESSAGES:,} messages. Combine its batches.")
        yield message


def _not_a_stream(payload: memoryview) -> PayloadError:
    if bytes(payload[: len(_FILE_MAGIC)]) == _FILE_MAGIC:
        return bad("This is Arrow's file format (Feather). Send its stream format.")
    return bad("This is not an Arrow IPC stream: a message begins with FF FF FF FF.")


def _message(metadata: bytes, rest: memoryview) -> _Message:
    table = _root(metadata)
    if table.number(0, _I16) not in _VERSIONS:
        raise bad("The Arrow stream has an old version of the format; write version 5.")
    size = table.number(3, _I64)
    if size < 0 or size % 8:
        raise bad("The body of an Arrow message is not padded to eight bytes.")
    if size > len(rest):
        raise bad("The Arrow stream ends within a message; was it cut?")
    return _Message(table.number(1, _U8), table.needed(2, "header"), metadata, rest[:size])


def _root(metadata: bytes) -> _Table:
    if len(metadata) < _U32.size:
        raise bad("The metadata of an Arrow message are damaged: there are none.")
    return _Table(metadata, _U32.unpack_from(metadata)[0])


# A producer sends one schema with every write. So many of at most `message_bytes` are kept.
@lru_cache(maxsize=64)
def _layout(metadata: bytes, limits: Limits) -> Layout:
    """What the batches of a stream with this schema consist of; raises if there is a type that is not taken."""
    schema = _root(metadata).needed(2, "schema")
    if schema.number(0, _I16):
        raise bad("The Arrow stream is big-endian. Send little-endian columns.")
    walk = _SchemaWalk(limits)
    walk.keys(schema, 2, len(metadata))
    layout = walk.columns(schema, 1, 1, len(metadata))
    return layout._replace(dictionaries=tuple(sorted(walk.dictionaries.items())))


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


class _SchemaWalk:
    """Counts what a schema describes while it is walked."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.dictionaries: dict[int, Layout] = {}
        self.fields = self.text = 0

    def columns(self, parent: _Table, slot: int, depth: int, most_text: int) -> Layout:
        """The layout of the fields in this slot, and of what is in them."""
        found = [self.column(field, depth, most_text) for field in parent.tables(slot)]
        return Layout(
            sum(each.nodes for each in found), sum(each.buffers for each in found), sum(each.views for each in found)
        )

    def column(self, field: _Table, depth: int, most_text: int) -> Layout:
        self.fields += 1
        if self.fields > _MOST_FIELDS:
            raise too_large(f"The Arrow schema has more than {_MOST_FIELDS} fields, all levels together.")
        if depth > self.limits.nesting:
            raise too_large(f"The Arrow schema is nested deeper than {self.limits.nesting}.")
        self.count(name := field.text(0), most_text)
        if not _is_text(name):
            raise bad("The Arrow schema has a name that is not UTF-8.")
        self.keys(field, 6, most_text)
        kind = field.number(2, _U8)
        if kind in _NOT_TAKEN:
            raise bad(f"The Arrow schema has {_NOT_TAKEN[kind]}, which are not taken. Send plain values.")
        if kind not in _BUFFERS:
            raise bad(f"The Arrow schema has a column of a type that is not known here (number {kind}).")
        if kind in _FIXED_SIZE and field.needed(3, "type").number(0, _I32) < 0:
            raise bad(f"The Arrow schema has {_FIXED_SIZE[kind]} of a negative size.")
        inner = self.columns(field, 5, depth + 1, most_text)
        layout = Layout(1 + inner.nodes, _BUFFERS[kind] + inner.buffers, (kind in _VIEWS) + inner.views)
        encoding = field.table(4)
        return layout if encoding is None else self.dictionary(encoding, layout)

    def dictionary(self, encoding: _Table, values: Layout) -> Layout:
        if values.nodes > 1:
            raise bad("The Arrow schema has a dictionary of nested values. Send plain values.")
        if self.dictionaries.setdefault(encoding.number(0, _I64), values) != values:
            raise bad("Two columns of different types have one dictionary.")
        return Layout(1, _DICTIONARY_BUFFERS, 0)

    def keys(self, owner: _Table, slot: int, most_text: int) -> None:
        """The custom metadata of a schema or field."""
        for pair in owner.tables(slot):
            key = pair.text(0)
            self.count(key + pair.text(1), most_text)
            if key == b"ARROW:extension:name":
                raise bad("The Arrow schema has a column of an extension type. Send what it is stored as.")

    def count(self, text: bytes, most: int) -> None:
        """Texts that lie there once and are pointed to a thousand times are a thousand texts for who reads them."""
        self.text += len(text)
        if self.text > most:
            raise bad("The metadata of an Arrow message are damaged: their texts are longer than they are.")


class _Sizes(NamedTuple):
    unpacked: int
    values: int


def _dictionary(message: _Message, parts: dict[int, Layout]) -> _Sizes:
    identity = message.header.number(0, _I64)
    if identity not in parts:
        raise bad(f"No column has a dictionary with the number {identity}.")
    if message.header.number(2, _U8):
        raise bad("The Arrow stream adds to a dictionary. Send the whole dictionary instead.")
    return _batch(message.header.needed(1, "dictionary"), message.body, parts[identity])[1]


def _batch(batch: _Table, body: memoryview, layout: Layout) -> tuple[int, _Sizes]:
    """The rows of a batch and the sizes of its content; raises unless its buffers lie within the body, each alone."""
    nodes, buffers = batch.numbers(1, each=2), batch.numbers(2, each=2)
    more = batch.numbers(4)
    if len(more) != layout.views or (more and min(more) < 0):
        raise bad("An Arrow batch does not say how many buffers its views have.")
    if len(nodes) != 2 * layout.nodes or len(buffers) != 2 * (layout.buffers + sum(more)):
        raise bad("An Arrow batch has other columns than its schema.")
    rows, lengths, nulls = batch.number(0, _I64), nodes[::2], nodes[1::2]
    if rows < 0 or any(not 0 <= gaps <= length for length, gaps in zip(lengths, nulls, strict=True)):
        raise bad("An Arrow batch has a column of an impossible length.")
    offsets, sizes = buffers[::2], buffers[1::2]
    if buffers and (min(buffers) < 0 or any(offset % 8 for offset in offsets)):
        raise bad("An Arrow batch has a buffer that is not aligned to eight bytes.")
    if any(offset + size > len(body) for offset, size in zip(offsets, sizes, strict=True)):
        raise bad("An Arrow batch has a buffer that reaches beyond its message.")
    if sum(sizes) > len(body):
        raise bad("An Arrow batch has buffers that overlap.")
    compression = batch.table(3)
    unpacked = sum(sizes) if compression is None else _unpacked(compression, body, offsets, sizes)
    return rows, _Sizes(unpacked, rows + sum(lengths))


def _unpacked(compression: _Table, body: memoryview, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    """What the compressed buffers of a batch say that they unpack to. Arrow allocates as much as they say."""
    if compression.number(0, _I8) not in {0, 1} or compression.number(1, _I8):
        raise bad("An Arrow batch is compressed in a way that is not known here. Use LZ4 or ZSTD, by buffer.")
    total = 0
    for offset, size in zip(offsets, sizes, strict=True):
        if not size:
            continue
        if size < _I64.size:
            raise bad("A compressed buffer of an Arrow batch does not state the size of its content.")
        (stated,) = _I64.unpack_from(body, offset)
        if stated < -1:
            raise bad("A compressed buffer of an Arrow batch states a negative size.")
        total += size - _I64.size if stated == -1 else stated  # -1: this buffer is not compressed after all
    return total
