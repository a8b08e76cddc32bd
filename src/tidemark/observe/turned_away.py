"""What was turned away before it was numbered, as the manifest, the state and the log of a shard say (A3).

Belongs here: adding up the three, from outside and also while a process writes. It changes nothing.
"""

from pathlib import Path

from tidemark.log.control import TurnedAway
from tidemark.log.log_content import LogContent, read_log
from tidemark.log.manifest import Manifest
from tidemark.model.turned_away import Tally
from tidemark.shard_state.books import Books
from tidemark.shard_state.state import STATE_FILE, ShardState, load
from tidemark.storage.disk import Disk


def read_books(disk: Disk, log: Path, segments: Path) -> Books:
    """Everything that was ever noted, and whether a door is counting as far as the log says."""
    while True:
        before = _state(disk, log)
        # The files before the manifest: what is sealed meanwhile is in one of them.
        contents = _unsealed(disk, log, before.next_file)
        manifest = Manifest(segments, disk)
        if _state(disk, log).next_file == before.next_file:
            break  # else a file was sealed, and may be in both
    is_in_line = manifest.count != before.books.after_segment
    books = Books(
        manifest.totals.turned_away.plus(Tally() if is_in_line else before.books.tally),
        counted_to_us=before.books.counted_to_us,
    )
    for content in contents:
        is_sealed = bool(content.last_epoch) and content.last_epoch < manifest.to_epoch
        for message in _messages(content):
            told = books.noted(message)
            books = Books(books.tally, counted_to_us=told.counted_to_us) if is_sealed else told
    return books


def _state(disk: Disk, log: Path) -> ShardState:
    return load(disk, log / STATE_FILE, ShardState) or ShardState()


def _unsealed(disk: Disk, log: Path, next_file: int) -> list[LogContent]:
    found: list[LogContent] = []
    for name in disk.list(log):
        if name.endswith(".log"):
            try:
                content = read_log(disk, log / name)
            except FileNotFoundError:
                continue
            if content is not None and content.header.number >= next_file:
                found.append(content)
    return found


def _messages(content: LogContent) -> list[TurnedAway]:
    return [message for controls, _ in content.groups() for message in controls if isinstance(message, TurnedAway)]
