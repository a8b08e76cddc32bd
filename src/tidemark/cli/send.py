"""`send`: a file of deltas, through the coordinator, resumable.

Belongs here: the producer of a file, how far it has come, and the final report.
"""

import hashlib
import io
import shutil
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidemark.cli import inputs
from tidemark.cli.app import as_json, founding_command
from tidemark.cli.output import answer_json, console, progress, say_error, table
from tidemark.client.client import connect
from tidemark.client.errors import ClientError, RefusedError
from tidemark.client.tally import Tally
from tidemark.gateway.control import Asked, ask
from tidemark.gateway.places import read_serving, w1_socket
from tidemark.log.manifest import Manifest
from tidemark.model.settings import is_name
from tidemark.storage.home import Home

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.door.decode import Sent

# How long the first answer of a server may take.
CONNECT_S = 20.0
# Writes on their way to a server elsewhere. To one on this machine they go one by one, as to a platform.
_AHEAD = 16
# A chunk of large deltas becomes several writes, which fit into a frame as they are. A file that is sent again must
# give the same ones, so this may not change lightly.
_WRITE_BYTES = 8 * 1024 * 1024


@founding_command
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--format", "form", type=click.Choice(inputs.FORMATS), help="Default: by the file's name.")
@click.option("--producer", metavar="NAME", help="Send as this producer, numbering on from its last write.")
@click.option("--to", metavar="URL", help="Send to a server: tidemark://HOST:PORT, tidemarks://… for TLS, unix:PATH.")
@click.option("--token-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="With --to: a token.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="With --to: who has signed the server's certificate, if that is no public authority.",
)
@as_json
def send(
    home: Home,
    file: Path,
    form: str | None,
    producer: str | None,
    to: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    as_json: bool,
) -> None:
    """Send a file of deltas: JSON lines, CSV or Parquet; '-' reads JSON lines from standard input.

    A thousand deltas are one write; the segments are sealed at the end. While `serve` has the home open, they go
    through it; with --to they go to a server elsewhere, and no home is needed here.

    The producer is named after the file's content, so that sending the same file again, after an interruption or by
    mistake, goes on where it stopped and changes nothing that is there. With --producer the writes are numbered on
    from that producer's last one instead: the same deltas sent twice are then received twice, and the duplicates are
    found by their ids.
    """
    if producer is not None and not is_name(producer):
        raise click.BadParameter(
            f"{producer!r} is not a plain name: a lower-case letter, then up to 62 of a-z, 0-9 and _.",
            param_hint="--producer",
        )
    with _readable(file) as path:
        form = form or ("jsonl" if str(file) == "-" else inputs.format_of(file))
        if form is None:
            raise click.BadParameter(
                f"the name of {file} says nothing about its format; add --format.", param_hint="FILE"
            )
        name = producer or name_by_content(path)
        over = producer or name_over(name)
        is_numbered_on = producer is not None
        if to is not None:
            there = destination(to, token_file, ca_file)
            result = _send_over(there, path, form, over, is_numbered_on=is_numbered_on)
        elif token_file is not None or ca_file is not None:
            raise click.BadParameter("they are for a server: add --to.", param_hint="--token-file, --ca-file")
        elif read_serving(home.create()) is not None:
            result = _send_through(home, path, form, over, is_numbered_on=is_numbered_on)
        else:
            result = _send(home, path, form, name, is_numbered_on=is_numbered_on)
    if as_json:
        answer_json(result)
    else:
        _show(result)
    if result["refused"] == result["deltas"] > 0:
        say_error(
            f"nothing of {file} was accepted: every delta was refused. The next drain puts them into dead_letters, "
            "each with its reason. Correct the file and send it again."
        )
        raise click.exceptions.Exit(1)


def name_by_content(path: Path) -> str:
    """The name of the producer for exactly this content."""
    with path.open("rb") as file:
        return f"send_{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


class Destination(NamedTuple):
    """Where a file goes."""

    address: str
    token: str | None = None
    ca_file: Path | None = None
    ahead: int = _AHEAD


def destination(address: str, token_file: Path | None, ca_file: Path | None) -> Destination:
    """A server elsewhere, and who says so."""
    token = None
    if token_file is not None:
        token = token_file.read_text().strip()
        if not token:
            raise click.BadParameter(f"{token_file} is empty; it should hold a token.", param_hint="--token-file")
    return Destination(address, token, ca_file)


def name_over(name_by_content: str) -> str:
    """The name of the producer for exactly this content on a connection, where large deltas make other writes."""
    return name_by_content.replace("send_", "send_w1_", 1)


@contextmanager
def sending(to: Destination, producer: str, *, is_numbered_on: bool) -> Iterator[Tally]:
    """A connection for a file; its producer is numbered from the file's start, or on from its last write."""
    client = connect(
        to.address,
        producer=producer,
        token=to.token,
        rows=inputs.CHUNK,
        bytes=_WRITE_BYTES,
        memory_bytes=8 * inputs.CHUNK_BYTES,
        compress=True,
        from_start=not is_numbered_on,
        whole_calls=True,
        ssl=None if to.ca_file is None else ssl.create_default_context(cafile=str(to.ca_file)),
    )
    try:
        if not client.wait_connected(CONNECT_S):
            raise ClientError(f"There was no answer within {CONNECT_S:g} s: {client.stats.state}.")
        yield Tally(client, to.ahead)
    except RefusedError as error:
        raise ClientError(f"{error} What was acknowledged before is kept; send the file again to go on.") from error
    finally:
        client.close(0.0)


@contextmanager
def _readable(file: Path) -> Iterator[Path]:
    """A path that can be read twice; standard input and pipes are copied first: their content names the producer."""
    if file.is_file():
        yield file
        return
    if str(file) != "-" and not file.exists():
        raise click.BadParameter(f"there is no file {file}.", param_hint="FILE")
    with (
        tempfile.NamedTemporaryFile(prefix="tidemark-send-") as copy,
        nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source,
    ):
        shutil.copyfileobj(source, copy)
        copy.flush()
        yield Path(copy.name)


def _send(home: Home, path: Path, form: str, name: str, *, is_numbered_on: bool) -> dict[str, Any]:
    from tidemark.coordinator.platform import Platform
    from tidemark.model.deltas import Level

    counts: Counter[str] = Counter()
    failures: list[inputs.InputError] = []
    epochs: dict[int, set[int]] = {}
    with Platform.open(home) as platform, progress() as bar:
        platform.clock()
        platform.clock.check(None)  # raised at once: a write would wait until an operator sets the clock
        producer = platform.producer(name, from_start=not is_numbered_on)
        task = bar.add_task(f"sending {path.name}", total=path.stat().st_size, note="")
        for chunk, bytes_done in _until_unreadable(_chunks(path, form), failures):
            receipt = producer.write(chunk).wait(Level.FLUSHED)
            received = receipt.accepted + receipt.duplicate + receipt.refused
            counts.update(
                writes=1,
                deltas=len(chunk),
                sent_before=len(chunk) - received,
                accepted=receipt.accepted,
                duplicate=receipt.duplicate,
                refused=receipt.refused,
            )
            for shard, epoch in receipt.epochs.items() if received else ():
                epochs.setdefault(shard, set()).add(epoch)
            bar.update(task, completed=bytes_done, note=f"{counts['deltas']:,} deltas")
        platform.seal()
    _raise(failures, counts, name)
    return _result(name, counts, reasons_of(home, epochs), epochs)


def _send_through(home: Home, path: Path, form: str, name: str, *, is_numbered_on: bool) -> dict[str, Any]:
    """To the process that serves the home, whose segments say why deltas were refused."""
    there = Destination(f"unix:{w1_socket(home)}", ahead=1)
    failures: list[inputs.InputError] = []
    sent = _sent_over(there, path, form, name, failures, is_numbered_on=is_numbered_on)
    ask(home, Asked("seal"))
    _raise(failures, sent.counts, name)
    return _result(name, sent.counts, reasons_of(home, sent.epochs), sent.epochs)


def _send_over(there: Destination, path: Path, form: str, name: str, *, is_numbered_on: bool) -> dict[str, Any]:
    """To a server elsewhere, which names the first refusals."""
    failures: list[inputs.InputError] = []
    sent = _sent_over(there, path, form, name, failures, is_numbered_on=is_numbered_on)
    _raise(failures, sent.counts, name)
    return _result(name, sent.counts, +sent.reasons, sent.epochs)


def _sent_over(
    there: Destination,
    path: Path,
    form: str,
    name: str,
    failures: list[inputs.InputError],
    *,
    is_numbered_on: bool,
) -> Tally:
    with sending(there, name, is_numbered_on=is_numbered_on) as sent, progress() as bar:
        task = bar.add_task(f"sending {path.name}", total=path.stat().st_size, note="")
        for chunk, bytes_done in _until_unreadable(_chunks(path, form), failures):
            for _ in sent.send(chunk):
                bar.update(task, note=sent.note)
            bar.update(task, completed=bytes_done, note=f"{sent.counts['deltas']:,} deltas")
        for _ in sent.finish():
            bar.update(task, note=sent.note)
    return sent


def _raise(failures: list[inputs.InputError], counts: Counter[str], name: str) -> None:
    if failures:
        raise inputs.InputError(f"{failures[0]} {_sent_so_far(counts, name)}") from failures[0]


def _result(name: str, counts: Counter[str], reasons: Counter[str], epochs: dict[int, set[int]]) -> dict[str, Any]:
    return {
        "producer": name,
        **{key: counts[key] for key in ("writes", "deltas", "sent_before", "accepted", "duplicate", "refused")},
        "reasons": dict(reasons),
        "epochs": {str(shard): {"from": min(found), "to": max(found) + 1} for shard, found in sorted(epochs.items())},
    }


def _until_unreadable(
    chunks: "Iterator[tuple[list[Sent] | pa.RecordBatch, int]]", failures: list[inputs.InputError]
) -> "Iterator[tuple[list[Sent] | pa.RecordBatch, int]]":
    """Chunks up to the unreadable place: the deltas sent until then are sealed before the error is raised."""
    try:
        yield from chunks
    except inputs.InputError as error:
        failures.append(error)


def _sent_so_far(counts: Counter[str], name: str) -> str:
    if not counts["deltas"]:
        return "Nothing of it was sent."
    return (
        f"The {counts['deltas']:,} deltas before that were sent (producer {name}) and are kept. Send the corrected "
        "file as a whole: these are known by their ids, and are not counted twice."
    )


def reasons_of(home: Home, epochs: dict[int, set[int]]) -> Counter[str]:
    """Why deltas of these sealed epochs were refused, by shard, according to the segments."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    reasons: Counter[str] = Counter()
    for shard, wanted in epochs.items():
        first, last = min(wanted), max(wanted)
        for entry in Manifest(home.segments(shard)).between(first, last + 1):
            if entry.verdicts.refused:
                with pq.ParquetFile(home.segments(shard) / entry.file) as segment:
                    found = segment.read(columns=["epoch", "reason"])
                found = found.filter(pc.is_in(found["epoch"], pa.array(sorted(wanted), pa.int64())))
                reasons.update(found["reason"].drop_null().to_pylist())
    return reasons


def _chunks(path: Path, form: str) -> "Iterator[tuple[list[Sent] | pa.RecordBatch, int]]":
    """Writes, each with the number of bytes of the file that are done."""
    if form == "parquet":
        size = path.stat().st_size
        yield from ((chunk, int(done * size)) for chunk, done in inputs.read_parquet(path))
        return
    inputs.refuse_packed(path)
    with path.open("rb") as raw:
        if form == "jsonl":
            for lines in inputs.chunks(inputs.read_json_lines(raw), weigh=len):
                yield list(lines), raw.tell()
            return
        # Referenced until the end: a text wrapper without a reference closes the file under it.
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        rows = inputs.read_csv(inputs.CsvLines(text), str(path))
        for chunk in inputs.chunks(rows, weigh=lambda found: found[1]):
            yield [row for row, _ in chunk], raw.tell()


def _show(result: dict[str, Any]) -> None:
    rows = table(f"Sent as producer {result['producer']}", "outcome", "deltas", numbers=("deltas",))
    for outcome in ("accepted", "duplicate", "refused"):
        rows.add_row(outcome, f"{result[outcome]:,}")
        if outcome == "refused":
            for reason, count in sorted(result["reasons"].items(), key=lambda item: -item[1]):
                rows.add_row(f"  {reason}", f"{count:,}")
    if result["sent_before"]:
        rows.add_row("sent before, unchanged", f"{result['sent_before']:,}")
    rows.add_row("in all", f"{result['deltas']:,}")
    out = console()
    out.print(rows)
    for shard, epochs in result["epochs"].items():
        out.print(f"Shard {shard}: epochs {epochs['from']} to {epochs['to'] - 1}.")
    if not result["deltas"]:
        out.print("The file has no deltas: nothing was sent.")
    else:
        out.print("Next: ./tidemark drain" if result["epochs"] else "Everything was sent before: nothing changed.")
