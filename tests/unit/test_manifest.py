"""The manifest is an unbroken row: a line that is missing, changed or torn is noticed (decision 0052, segments)."""

from pathlib import Path

import pytest

from tests.support.live import HandClock, new_home, open_platform, sealed_rows, signal
from tidemark.log.manifest import Manifest
from tidemark.log.segment_files import verify_segment
from tidemark.model.shard_errors import ManifestDamageError, SegmentDamageError
from tidemark.model.timegrid import hour_key
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Four segments, sealed over two days."""
    home, clock = new_home(tmp_path), HandClock()
    with open_platform(home, clock) as platform:
        producer = platform.producer("web")
        for number in range(4):
            producer.write([signal(f"d{number}", at=clock.now_us), signal("", at=clock.now_us)]).wait()
            platform.seal()
            clock.advance(8 * 3600)
    return home


def lines(home: Home) -> list[tuple[Path, int]]:
    files = sorted(home.segments(0).glob("manifest-*.jsonl"))
    return [(path, number) for path in files for number in range(len(path.read_text().splitlines()))]


def test_an_entry_says_what_its_segment_holds(home: Home) -> None:
    entries = list(Manifest(home.segments(0)).all())
    assert [(entry.number, entry.from_epoch, entry.to_epoch) for entry in entries] == [
        (1, 1, 2),
        (2, 2, 3),
        (3, 3, 4),
        (4, 4, 5),
    ]
    for entry, row in zip(entries, sealed_rows(home)[::2], strict=True):
        key = hour_key(round(row["received_ts"].timestamp()) * 1_000_000)
        assert (entry.rows, entry.verdicts.accepted, entry.verdicts.refused) == (2, 1, 1)
        assert {hour: counts.accepted for hour, counts in entry.event_hours.items()} == {"": 0, key: 1}
        assert entry.receipt_hours[key].refused == 1
        assert entry.producers == {"web": (entry.number, entry.number)}
    assert len({path for path, _ in lines(home)}) == 2


def test_any_missing_line_is_noticed_when_the_whole_row_is_read(home: Home) -> None:
    for path, number in lines(home):
        whole = path.read_text()
        kept = whole.splitlines(keepends=True)
        path.write_text("".join(kept[:number] + kept[number + 1 :]))
        with pytest.raises(ManifestDamageError, match="missing"):
            list(Manifest(home.segments(0)).all())
        path.write_text(whole)


def test_any_changed_line_is_noticed_when_the_whole_row_is_read(home: Home) -> None:
    for path, number in lines(home):
        whole = path.read_text()
        changed = whole.splitlines(keepends=True)
        changed[number] = changed[number].replace('"rows":2', '"rows":3')
        path.write_text("".join(changed))
        with pytest.raises(ManifestDamageError, match="changed"):
            list(Manifest(home.segments(0)).all())
        path.write_text(whole)


def test_a_missing_file_is_noticed(home: Home) -> None:
    for path in {path for path, _ in lines(home)}:
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(ManifestDamageError, match="missing"):
            list(Manifest(home.segments(0)).all())
        path.write_bytes(whole)


def test_half_a_line_at_the_end_is_what_a_crash_leaves_and_is_cut(home: Home) -> None:
    last, _ = lines(home)[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + b'{"shard":0,"num')
    assert Manifest(home.segments(0)).count == 4
    with open_platform(home):
        pass
    assert last.read_bytes() == whole


def test_a_truncated_a_changed_and_a_missing_segment_are_named(home: Home) -> None:
    manifest = Manifest(home.segments(0))
    entry = list(manifest.all())[1]
    path = home.segments(0) / entry.file
    whole = path.read_bytes()
    for damaged, complaint in ((whole[:-1], "truncated"), (whole[:-1] + b"?", "checksum"), (None, "missing")):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(SegmentDamageError, match=complaint) as refused:
            verify_segment(manifest.directory, entry)
        assert path.name in str(refused.value)
        path.write_bytes(whole)
    assert verify_segment(manifest.directory, entry) == path
