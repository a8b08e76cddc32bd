"""The history checker: compares what clients were answered with the rows in the segments, rule by rule.

Belongs here: the rules that hold after every start of a shard, for every reader, and at the very end. Each is written
from the specification, with loops over plain rows; nothing here shares code with the product.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from chaos.history import NEVER_US, History, Limit, must
from chaos.lake import Lake
from chaos.oracle import expected_verdicts
from chaos.scale import FILES, Scale
from chaos.stored import Row, Stored, rows_of
from chaos.traffic import Write
from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.engine import View
from tidemark.coordinator.flusher import LogPart, LogSnapshot
from tidemark.delivery.batching import Batch
from tidemark.log.batch_record import BatchRecord, batch_hours
from tidemark.log.manifest import Totals
from tidemark.model.event_time_rules import parse_stream
from tidemark.model.shard_errors import EpochLostError, EpochNotAssignedError
from tidemark.model.timegrid import MINUTE_US
from tidemark.shard_state.state import STATE_FILE, ShardState, load
from tidemark.storage.disk import Disk

# More than all small corrections of the clock together, and less than any leap.
CORRECTED_US = 2 * MINUTE_US

Writes = dict[int, list[Row]]  # epoch → its rows, in stored order


# At any time.


def check_told(rows: Sequence[Row], history: History, upto: int | None = None) -> Writes:
    """Check everything that clients were told about writes up to an epoch (default: all); return the rows by epoch."""
    found: Writes = {epoch: list(group) for epoch, group in groupby(rows, key=lambda row: row.epoch)}
    for one, other in pairwise(rows):
        what = f"epoch {other.epoch} place {other.ordinal} lies behind epoch {one.epoch} place {one.ordinal}"
        must((one.epoch, one.ordinal) < (other.epoch, other.ordinal), "C7", what)
    for epoch, group in found.items():
        must(epoch in history.given, "C7", f"epoch {epoch} lies there, and nobody was given it")
        _check_whole(history.given[epoch].write, epoch, group)
        what = f"{_name(group[0])} was given back as 'nothing was written', but lies there as epoch {epoch}"
        must(epoch not in history.given_back, "C3", what)
    _check_producers(found, history)
    for write, epoch in history.acknowledged.values():
        if upto is None or epoch <= upto:
            must(epoch in found, "C7", f"{write.name} was acknowledged as epoch {epoch} and is not there", write.name)
            is_same = history.given[epoch].write is write
            must(is_same, "C7", f"{write.name} was acknowledged as epoch {epoch}; another is there", write.name)
    for epoch, (life, write, _) in history.given.items():
        if epoch <= history.flushed.get(life, 0) and (upto is None or epoch <= upto):
            what = f"epoch {epoch} ({write.name}) is not there, but flushed was {history.flushed[life]} in life {life}"
            must(epoch in found, "C3", what, write.name)
    return found


def _check_whole(write: Write, epoch: int, rows: list[Row]) -> None:
    where = f"epoch {epoch} ({write.name})"
    is_it = all((row.producer, row.sequence) == (write.producer, write.sequence) for row in rows)
    must(is_it, "C7", f"{where} holds {_name(rows[0])}", write.name)
    what = f"{where} has {len(rows)} deltas, and {len(write.made)} were sent"
    must(len(rows) == len(write.made), "C7", what, write.name)
    for ordinal, (row, made) in enumerate(zip(rows, write.made, strict=True)):
        must(row.ordinal == ordinal, "Q3", f"{where} has place {row.ordinal} at {ordinal}", write.name)
        if row.verdict == "refused":
            must(row.raw == made.sent, "Q3", f"{where} place {ordinal}: not what was sent", write.name)
        else:
            sent = (made.namespace, made.kind, made.delta_id, made.event_us, made.number)
            lies = (row.namespace, row.kind, row.delta_id, row.event_us, row.number)
            must(sent == lies, "Q3", f"{where} place {ordinal}: sent {sent}, there is {lies}", write.name)


def _check_producers(found: Writes, history: History) -> None:
    """No write twice, and each producer's in its order, without gaps other than final refusals."""
    last: dict[str, int] = {}
    for epoch, rows in found.items():
        producer, sequence = rows[0].producer, rows[0].sequence
        before = last.get(producer, 0)
        name = _name(rows[0])
        must(sequence != before, "Q2", f"{name} is there twice, the second time as epoch {epoch}", name)
        must(sequence > before, "Q1", f"{name} (epoch {epoch}) lies behind {producer}#{before}", name)
        for missing in range(before + 1, sequence):
            what = f"{name} (epoch {epoch}) is there, but {producer}#{missing} before it is not"
            must((producer, missing) in history.refused, "Q2", what, name)
        what = f"{name} was refused for good, and is there as epoch {epoch}"
        must((producer, sequence) not in history.refused, "Q2", what, name)
        last[producer] = sequence


# After a start.


def check_recovered(core: ShardCore, stored: Stored, history: History, lake: Lake) -> None:
    """Check a shard that has just started, before any client uses it (C7)."""
    engine = core.engine
    # Writes that earlier lives left in the log may be sealed later.
    rows = rows_of(engine.snapshot.read())
    found = check_told(rows, history)
    check_contiguous(stored)
    what = f"the shard goes on behind epoch {engine.applied_epoch}, but {history.applied} was given out before"
    must(engine.applied_epoch >= history.applied, "C7", what)
    must(engine.applied_epoch == engine.flushed_epoch, "C7", "a fresh shard has something to flush")
    for epoch, (_, write, _) in history.given.items():
        answer = _answer(core, epoch)
        expected = None if epoch in found else EpochLostError
        must(answer is expected, "C6", f"epoch {epoch} is answered with {answer}, not {expected}", write.name)
    answer = _answer(core, engine.applied_epoch + 1)
    must(answer is EpochNotAssignedError, "C6", f"an epoch that nobody has is answered with {answer}")
    check_lake(lake, rows)
    check_raised(core, history)
    check_cut(core, history, found)


def check_raised(core: ShardCore, history: History) -> None:
    """Limits stay raised; a group that may have been logged has raised all of its limits or none (D9, R5, K4)."""
    cut = core.flusher.cut
    said = {Limit.EVENTS: core.flusher.raised_us, Limit.VECTORS: None if cut is None else cut.cut_us}
    found = {limit: NEVER_US if earliest_us is None else earliest_us for limit, earliest_us in said.items()}
    before = {limit: history.earliest_us(limit, history.applied + 1) for limit in Limit}
    wanted = before | {each.limit: max(before[each.limit], each.earliest_us) for each in history.raising}
    for limit, rule in ((Limit.EVENTS, "D9"), (Limit.VECTORS, "K4")):
        what = f"the shard refuses {limit} before {found[limit]}, not before {before[limit]} or {wanted[limit]}"
        must(found[limit] in (before[limit], wanted[limit]), rule, what)
    must(found in (before, wanted), "C7", f"of a group that raises limits from {before} to {wanted} is left {found}")
    history.raise_limits(is_logged=found == wanted)


def check_cut(core: ShardCore, history: History, found: Writes) -> None:
    """No write after the epoch of a cut was decided without it, and that epoch can be waited for (K4)."""
    cut = core.flusher.cut
    if cut is not None:
        raised = [each for each in history.raised if each.limit is Limit.VECTORS and each.earliest_us == cut.cut_us]
        first = min(each.from_epoch for each in raised)
        missed = [epoch for epoch in found if cut.behind_epoch < epoch < first]
        what = f"the cut at {cut.cut_us} lies behind epoch {cut.behind_epoch}, but epochs {missed} came before it"
        must(not missed, "K4", what)
        is_there = cut.behind_epoch == 0 or _answer(core, cut.behind_epoch) is None
        must(is_there, "K4", f"the cut at {cut.cut_us} waits for epoch {cut.behind_epoch}, which was lost")


def check_contiguous(stored: Stored) -> None:
    """Data and lost epochs are disjoint and together without a gap (C7)."""
    for entry, rows in stored.parts():
        data = sorted({row.epoch for row in rows})
        lost = [epoch for begin, end in entry.lost for epoch in range(begin, end)]
        what = f"segment {entry.file} has data {data} and lost {entry.lost}"
        must(sorted(data + lost) == list(range(entry.from_epoch, entry.to_epoch)), "C7", what)
        must(entry.rows == len(rows), "C7", f"segment {entry.file} has {len(rows)} rows and says {entry.rows}")


def check_lake(lake: Lake, rows: Sequence[Row]) -> None:
    """The rows committed to the lake are those of the shard, for ever.

    At a start they may be in the log once more: the lake saw the line of their segment before a power cut lost it.
    """
    committed = lake.durable_epoch()
    same = [row for row in rows if row.epoch <= committed]
    must(lake.rows == same, "C2", f"the lake has other rows up to epoch {committed} than the shard")


def _answer(core: ShardCore, epoch: int) -> type[Exception] | None:
    try:
        core.check_epoch(epoch)
    except (EpochLostError, EpochNotAssignedError) as error:
        return type(error)
    return None


# For readers.


def check_view(view: View[LogPart, LogSnapshot], history: History) -> None:
    """Snapshot and buffers together have every epoch once, and whole (C11)."""
    epoch = view.snapshot.epoch
    for part in view.frozen:
        for write in part.writes:
            what = f"a view of epoch {view.epoch} has epoch {write.epoch} behind epoch {epoch}"
            must(write.epoch == epoch + 1, "C11", what)
            epoch = write.epoch
            given = history.given.get(epoch)
            if given is not None:  # else no client has looked since it got its epoch
                is_whole = list(write.deltas) == given.write.deltas() and write.sequence == given.write.sequence
                must(is_whole, "C11", f"a view has another write as epoch {epoch} than {given.write.name}")
    must(epoch == view.epoch, "C11", f"a view of epoch {view.epoch} ends with epoch {epoch}")


def check_read(rows: list[Row], epoch: int, history: History) -> None:
    """A plain reader sees everything flushed, and nothing else (C2, C6)."""
    must(all(row.epoch <= epoch for row in rows), "C6", f"a snapshot of epoch {epoch} shows epoch {rows[-1:]}")
    check_told(rows, history, upto=epoch)


def check_batch(batch: Batch, core: ShardCore) -> None:
    """A batch has flushed deltas, and its record counts them (C5)."""
    flushed = core.engine.flushed_epoch
    must(batch.to_epoch - 1 <= flushed, "C5", f"batch {batch.number} has epochs beyond {flushed}, which is flushed")
    record = batch.record
    must(record.number == batch.number, "C5", f"batch {batch.number} is recorded as {record.number}")


# At the end.


def check_end(scale: Scale, stored: Stored, history: History, lake: Lake, disk: Disk, sent: Iterable[Write]) -> None:
    """Everything, after a clean stop at the end of the last life."""
    rows = stored.rows()
    found = check_told(rows, history)
    check_contiguous(stored)
    check_lake(lake, rows)
    for write in sent:
        key = (write.producer, write.sequence)
        what = f"{write.name} was neither acknowledged nor refused for good"
        must(key in history.acknowledged or key in history.refused, "C10", what, write.name)
    _check_verdicts(scale, rows, history)
    disorder = _disorder(history)
    _check_stamps(disorder, rows, history)
    _check_leaps(stored, history)
    _check_manifest(disorder, stored, history)
    _check_idleness(stored, history)
    state = load(disk, FILES.log / STATE_FILE, ShardState) or ShardState()
    _check_totals(stored)
    _check_batches([batch for batches in stored.batches() for batch in batches] + state.batches, found)


def _check_verdicts(scale: Scale, rows: list[Row], history: History) -> None:
    """Each verdict is that of a naive reading of the log in its order (Q3, D9, K4)."""
    sent = [history.given[row.epoch].write.made[row.ordinal] for row in rows]
    expected = expected_verdicts(rows, sent, scale.settings, history.earliest_us)
    for row, (verdict, reason) in zip(rows, expected, strict=True):
        where = f"epoch {row.epoch} place {row.ordinal} ({_name(row)})"
        must(row.verdict == verdict, "Q3", f"{where} is {row.verdict} ({row.reason}), not {verdict}", _name(row))
        if reason is not None:
            must(row.reason == reason, "Q3", f"{where} is refused as {row.reason}, not as {reason}", _name(row))


def _disorder(history: History) -> dict[tuple[Any, Any], int]:
    """The least disorder ever in force for a stream: promises made under it still hold."""
    streams = {parse_stream(name) for rules in history.rules.values() for name in rules.streams}
    every = {stream: min(rules.rule(stream).disorder_us for rules in history.rules.values()) for stream in streams}
    least = min((rules.default.disorder_us for rules in history.rules.values()), default=0)
    return defaultdict(lambda: least, every)


def _check_idleness(stored: Stored, history: History) -> None:
    """When a stream goes idle follows from its last accepted write and the rules of that life (T3)."""
    heard: dict[str, int] = {}
    received_us = life = 0
    for entry, rows in stored.parts():
        fallen_us, life = history.fallen_us(life, _life(rows, history)), _life(rows, history)
        heard = {stream: min(at_us, fallen_us) for stream, at_us in heard.items()}
        for row in rows:
            received_us = row.received_us
            if row.verdict == "accepted":
                heard[f"{row.namespace}/{row.kind}"] = row.received_us
        rules = history.rules[entry.incarnation]
        most = {stream: at_us + rules.rule(parse_stream(stream)).idle_us for stream, at_us in heard.items()}
        what = f"segment {entry.file} says that streams are idle from {entry.idle_from}, not {most}"
        must(entry.idle_from == most, "T3", what)
        must(entry.received_us == received_us, "T3", f"segment {entry.file} ends at {entry.received_us}")


def _check_stamps(disorder: Mapping[tuple[Any, Any], int], rows: list[Row], history: History) -> None:
    """Times of receipt follow the epochs; stamps never fall, unless by a reset, and never run ahead (T2, T4, C15)."""
    for one, other in pairwise(rows):
        what = f"epoch {other.epoch} was received before epoch {one.epoch}"
        fallen_us = history.fallen_us(_life([one], history), _life([other], history))
        must(min(one.received_us, fallen_us) <= other.received_us, "T4", what)
    stamps: dict[tuple[Any, Any], int] = {}
    newest, slack_us, life = _newest_events(rows), _most_disorder(history), 0
    for row in rows:
        fallen_us, life = history.fallen_us(life, _life([row], history)) - slack_us, _life([row], history)
        stamps = {stream: min(stamp_us, fallen_us) for stream, stamp_us in stamps.items()}
        if row.verdict != "accepted":
            continue
        stream, where = (row.namespace, row.kind), f"epoch {row.epoch} place {row.ordinal}"
        before = stamps.get(stream)
        if row.stamp_us is None:
            must(before is None, "T2", f"{where} has no stamp, but one before it had {before}")
            continue
        must(before is None or before <= row.stamp_us, "T2", f"{where} is stamped {row.stamp_us}, below {before}")
        what = f"{where}: stamp {row.stamp_us} is less than the disorder below its receipt {row.received_us}"
        must(row.stamp_us <= row.received_us - disorder[stream], "T2", what)
        what = f"{where}: stamp {row.stamp_us} is above what the writes before it can have brought about"
        must(row.stamp_us <= newest[row.epoch][stream] - disorder[stream], "T2", what)
        stamps[stream] = row.stamp_us


def _check_leaps(stored: Stored, history: History) -> None:
    """No time of receipt and no time of a seal can come only from a leap of the clock (C15)."""
    earliest_us = history.begun_us - CORRECTED_US
    for entry, rows in stored.parts():
        for row in rows:
            latest_us = history.given[row.epoch].at_us + CORRECTED_US
            what = f"epoch {row.epoch} was received at {row.received_us}, not from {earliest_us} to {latest_us}"
            must(earliest_us <= row.received_us <= latest_us, "C15", what, _name(row))
        latest_us = max(history.now_us, history.wrong_us)
        what = f"segment {entry.file} was sealed at {entry.sealed_us}, not from {earliest_us} to {latest_us}"
        must(earliest_us <= entry.sealed_us <= latest_us + CORRECTED_US, "C15", what)
        resets = [each for each in history.resets if each.from_life <= _life(rows, history)]
        what = f"segment {entry.file} knows of {entry.resets} resets of the clock, not of {len(resets)}"
        must(entry.resets == len(resets), "C15", what)


def _life(rows: Sequence[Row], history: History) -> int:
    """The life in which rows of one log file were written."""
    return history.given[rows[-1].epoch].life


def _most_disorder(history: History) -> int:
    """How far below it a reset leaves a watermark at most."""
    rules = [rule for each in history.rules.values() for rule in (each.default, *each.streams.values())]
    return max((rule.disorder_us for rule in rules), default=0)


def _newest_events(rows: list[Row]) -> dict[int, dict[tuple[Any, Any], int]]:
    """The greatest event time accepted in each stream before an epoch: no watermark is above it less the disorder."""
    newest: dict[int, dict[tuple[Any, Any], int]] = {}
    so_far: dict[tuple[Any, Any], int] = {}
    for epoch, group in groupby(rows, key=lambda row: row.epoch):
        newest[epoch] = dict(so_far)
        for row in group:
            if row.verdict == "accepted" and row.event_us is not None:
                stream = (row.namespace, row.kind)
                so_far[stream] = max(row.event_us, so_far.get(stream, row.event_us))
    newest[0] = so_far  # after all of them; 0 is no epoch
    return newest


def _check_manifest(disorder: Mapping[tuple[Any, Any], int], stored: Stored, history: History) -> None:
    """Check event-time watermarks and the counts of verdicts (T2, O4)."""
    watermarks: dict[str, int] = {}
    so_far: list[Row] = []
    slack_us, life = _most_disorder(history), 0
    for entry, rows in stored.parts():
        so_far += rows
        fallen_us, life = history.fallen_us(life, _life(rows, history)) - slack_us, _life(rows, history)
        watermarks = {stream: min(at_us, fallen_us) for stream, at_us in watermarks.items()}
        newest = _newest_events(so_far)[0]
        for stream, at_us in entry.watermarks.items():
            namespace, _, kind = stream.partition("/")
            most = newest.get((namespace, kind), 0) - disorder[namespace, kind]
            what = f"segment {entry.file} says {at_us} for {stream}, but the writes so far give {most} at most"
            must(at_us <= most, "T2", what)
        for stream, before in watermarks.items():
            now = entry.watermarks.get(stream)
            what = f"segment {entry.file} says {now} for {stream}, and the one before it {before}"
            must(now is not None and now >= before, "T2", what)
        watermarks = entry.watermarks
        for row in rows:
            stream = f"{row.namespace}/{row.kind}"
            if row.verdict == "accepted" and row.stamp_us is not None:
                what = f"segment {entry.file} has a stamp above its watermark of {stream}"
                must(row.stamp_us <= watermarks.get(stream, row.stamp_us - 1), "T2", what)
        counts = {name: sum(row.verdict == name for row in rows) for name in ("accepted", "duplicate", "refused")}
        said = {name: getattr(entry.verdicts, name) for name in counts}
        must(counts == said, "Q3", f"segment {entry.file} says {said}, and has {counts}")


def _check_totals(stored: Stored) -> None:
    """Each entry has the totals up to it, whatever had to be read again to know them (C7)."""
    expected = Totals()
    for entry, batches in zip(stored.entries, stored.batches(), strict=True):
        expected = expected.plus(entry, batches)
        must(entry.totals == expected, "C7", f"segment {entry.file} says {entry.totals}, not {expected}")
        hours = batch_hours(batches)
        must(entry.batch_hours == hours, "C5", f"segment {entry.file} says {entry.batch_hours}, not {hours}")


def _check_batches(batches: Sequence[BatchRecord], found: Writes) -> None:
    """Batches follow each other, cover everything, and add up (C5, N3)."""
    numbers = [batch.number for batch in batches]
    must(numbers == list(range(1, len(batches) + 1)), "C5", f"batches are numbered {numbers}")
    for one, other in pairwise(batches):
        what = f"batch {other.number} begins at epoch {other.from_epoch}, before batch {one.number} ends"
        must(one.to_epoch <= other.from_epoch, "C5", what)
    covered: set[int] = set()
    for batch in batches:
        epochs = [epoch for epoch in found if batch.from_epoch <= epoch < batch.to_epoch]
        rows = [row for epoch in epochs for row in found[epoch]]
        counts = tuple(sum(row.verdict == name for row in rows) for name in ("accepted", "duplicate", "refused"))
        said = (batch.deltas, batch.duplicates, batch.refused)
        must(said == counts, "C5", f"batch {batch.number} says {said}, and its epochs have {counts}")
        must(batch.writes == len(epochs), "C5", f"batch {batch.number} says {batch.writes} writes of {len(epochs)}")
        covered |= set(epochs)
    left = sorted(set(found) - covered)
    must(not left, "C5", f"epochs {left} are in no batch")


def _name(row: Row) -> str:
    return f"{row.producer}#{row.sequence}"
