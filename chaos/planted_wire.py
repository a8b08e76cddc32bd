"""Planted bugs in what reads bytes from strangers: frames, compressed payloads, columns; `planted_beside.py` runs them.

Belongs here: patches of `tidemark/wire` and of the reading of foreign columns. None can be switched on from outside.
"""

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, patch


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

    from tidemark.gateway import write_frames

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
