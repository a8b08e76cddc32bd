"""Planted bugs in what reads bytes from strangers: frames, compressed payloads, columns.

Belongs here: patches of `tidemark/wire` and of the reading of foreign columns. None can be switched on from outside.
"""

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, patch

from chaos.beside import Beside

FRAMES = "tests/unit/test_wire_frames.py"
COLUMNS = "tests/unit/test_foreign_columns.py"


def checksum_ignored() -> AbstractContextManager[Any]:
    """Any checksum is the right one."""
    from tidemark.wire import frames

    any_checksum = SimpleNamespace(pack=frames.CHECKSUM.pack, unpack=lambda _: (ANY,))
    return patch.object(frames, "CHECKSUM", any_checksum)


def length_not_checked() -> AbstractContextManager[Any]:
    """A payload may have any length."""
    from tidemark.wire.frames import FrameReader

    begin = FrameReader.__init__
    return patch.object(FrameReader, "__init__", lambda reader, *_: begin(reader, 2**32))


def flags_ignored() -> AbstractContextManager[Any]:
    """Every flag is known."""
    from tidemark.wire import frames

    return patch.object(frames, "_KNOWN_FLAGS", 255)


def bombs_unpacked() -> AbstractContextManager[Any]:
    """Zstd may allocate what a frame states."""
    from zstandard import ZstdDecompressor

    from tidemark.gateway.w1 import write_frames

    return patch.object(write_frames, "decompress", lambda payload, _: ZstdDecompressor().decompress(payload))


def columns_believed() -> AbstractContextManager[Any]:
    """Nothing looks at a stream before Arrow does."""
    from tidemark.door import foreign_columns
    from tidemark.door.ipc_messages import Found

    return patch.object(foreign_columns, "look_through", lambda *_: Found(rows=0, batches=0, has_wrapped=True))


def shared_values_not_counted() -> AbstractContextManager[Any]:
    """Dictionaries and views take nothing when they are written out."""
    from tidemark.door import foreign_columns

    return patch.object(foreign_columns, "_shared_bytes", lambda _: 0)


WIRE = (
    Beside(
        "checksum_ignored",
        "W1",
        "a frame that was damaged on the way is believed",
        checksum_ignored,
        f"{FRAMES}::test_w1_every_flipped_bit_of_a_golden_frame_is_refused_with_its_word",
    ),
    Beside(
        "length_not_checked",
        "W3",
        "a frame may be as large as its header says",
        length_not_checked,
        f"{FRAMES}::test_w9_a_bad_golden_frame_is_refused_with_the_word_of_the_file",
    ),
    Beside(
        "flags_ignored",
        "W1",
        "flags that are not known are passed over",
        flags_ignored,
        f"{FRAMES}::test_w1_with_a_right_checksum_only_known_types_and_flags_are_read",
    ),
    Beside(
        "bombs_unpacked",
        "W3",
        "a compressed payload is unpacked to whatever it says",
        bombs_unpacked,
        f"{FRAMES}::test_w9_a_bad_golden_frame_is_refused_with_the_word_of_the_file",
    ),
    Beside(
        "columns_believed",
        "W3",
        "Arrow reads a stranger's columns before anything else has looked at them",
        columns_believed,
        f"{COLUMNS}::test_w3_rows_are_bounded_over_all_batches",
    ),
    Beside(
        "shared_values_not_counted",
        "W3",
        "a long text of a dictionary is written out for each row, however many there are",
        shared_values_not_counted,
        f"{COLUMNS}::test_w3_a_long_text_of_a_dictionary_counts_once_for_each_row",
    ),
)
