"""Planted bugs at the public API: callers' objects and threads, frames, fences and poison. See `planted.py`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tidemark.coordinator import bounds, core, flusher, platform
from tidemark.coordinator.platform import Producer
from tidemark.door import column_door, originals, ownership
from tidemark.log import log_file as log
from tidemark.model.shard_errors import WriteFormatError
from tidemark.shard_state.fence import Fence
from tidemark.storage.disk import RealDisk


def objects_kept() -> AbstractContextManager[Any]:
    """A write keeps the caller's objects, and reads them when it is flushed."""
    return patch.object(platform, "own", lambda deltas: deltas)


def columns_kept() -> AbstractContextManager[Any]:
    """A write in columns stays in the caller's memory."""
    return patch.object(ownership, "_copied_columns", lambda batch: batch)


def producer_unlocked() -> AbstractContextManager[Any]:
    """Threads of one producer choose numbers without waiting for each other."""
    init = Producer.__init__

    class NoLock:
        def acquire(self, **_: Any) -> bool:
            return True

        def release(self) -> None:
            """There is no lock."""

    def unlocked(self: Producer, *arguments: Any) -> None:
        init(self, *arguments)
        self._numbering = NoLock()  # type: ignore[assignment]

    return patch.object(Producer, "__init__", unlocked)


@contextmanager
def fence_not_asked() -> Iterator[None]:
    """A process that was taken over from checks neither its successor nor the file that it writes."""
    with patch.object(Fence, "check", lambda _: None), patch.object(RealDisk, "is_named", lambda *_: True):
        yield


@contextmanager
def frame_unbounded() -> Iterator[None]:
    """A group is logged however large it is; only reading has a limit."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(core, "_refuse_beyond_a_frame", lambda _: None))
        stack.enter_context(patch.object(flusher, "_frames_of", lambda writes: [list(writes)] if writes else []))
        stack.enter_context(patch.object(log, "sum", lambda _: 0, create=True))  # how it measures a frame
        stack.enter_context(patch.object(originals, "RAW_BUDGET", 1 << 62))
        yield


def poison_measured() -> AbstractContextManager[Any]:
    """An object that raises when it is looked at raises at the door, instead of being refused."""
    return patch.object(bounds, "original_bytes", lambda sent: repr(sent).encode())


def poison_shown() -> AbstractContextManager[Any]:
    """A refused delta that cannot be shown stops the writer."""
    return patch.object(originals, "_shown", lambda sent: repr(sent).encode())


def columns_refused_whole() -> AbstractContextManager[Any]:
    """One unproven row refuses a whole write in columns, without an account."""

    def refuse(*_: Any) -> None:
        raise WriteFormatError("A column of the write cannot be read.")

    return patch.object(column_door, "_merged", refuse)


def columns_not_looked_at() -> AbstractContextManager[Any]:
    """Unproven rows of columns are taken as they are."""
    return patch.object(column_door, "either", lambda *_: None)
