"""Coverage-guided fuzzing of everything that reads bytes from strangers (W3): frames, messages, payloads, columns.

Belongs here: one input to all readers, and the seeds. libFuzzer makes the inputs, keeps those that reach new code, and
ends with an error for an exception that is no refusal, for a crash, and for memory above a bound:

    python -m tests.support.fuzz SECONDS FOLDER

The folder keeps the inputs that reached something new, and `crash-…` of one that broke something.
"""

import sys
from pathlib import Path

import atheris
from msgspec import Struct

with atheris.instrument_imports(
    include=["tidemark.wire", "tidemark.door.ipc_messages", "tidemark.door.foreign_columns"]
):
    from tidemark.door import foreign_columns, ipc_messages  # noqa: F401 - they are named to be instrumented
    from tidemark.wire import frames, messages, payloads  # noqa: F401

from tests.support.foreign import streams
from tests.support.golden_bad import bad
from tests.support.golden_frames import good
from tests.support.raw_frames import raw
from tidemark.door.column_door import to_batch
from tidemark.gateway.w1.write_frames import namespaces_of, read_write
from tidemark.model.shard_errors import WriteFormatError
from tidemark.wire.errors import WireError
from tidemark.wire.frames import Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import Limits

# Small, so that what a limit is for is reached by small inputs.
LIMITS = Limits(payload_bytes=64 * 1024, unpacked_bytes=256 * 1024, rows=2_000)
MEMORY_MB = 1_024
LONGEST = 16 * 1024
ONE_INPUT_S = 10
_KINDS: dict[FrameType, tuple[type[Struct], ...]] = {
    FrameType.ACK: (messages.Ack,),
    FrameType.NACK: (messages.Nack,),
    FrameType.BACKPRESSURE: (messages.Backpressure,),
    FrameType.HEARTBEAT: (messages.Hello, messages.Welcome, messages.Heartbeat),
    FrameType.SUBSCRIBE: (messages.Subscribe,),
    FrameType.UNSUBSCRIBE: (messages.DeliveryHead,),
}


def read_all(data: bytes) -> None:
    """Everything that a server or a client does with bytes. The first byte chooses: as they are, or with a checksum."""
    if data[:1] == b"\0":
        stream = data[1:]
    else:
        kind, flags = (data[1:3] + b"\0\0")[:2]
        stream = raw(kind & 7, flags & 15, payload=data[3:])
    reader = FrameReader(LIMITS.payload_bytes)
    try:
        for start in range(0, len(stream), 997):
            for frame in reader.feed(stream[start : start + 997]):
                _read_content(frame)
    except WireError:
        return


def _read_content(frame: Frame) -> None:
    for kind in _KINDS.get(frame.type, ()):
        try:
            messages.encode(messages.decode(frame.payload, kind))
        except WireError:
            continue
    if frame.type in {FrameType.DELTA, FrameType.BATCH}:
        try:
            content = read_write(frame, LIMITS)
            namespaces_of(content)
            if frame.type is FrameType.BATCH:
                to_batch(content).to_pylist()
        except (WireError, WriteFormatError):
            return


def seeds() -> list[bytes]:
    """Where the search begins: the golden frames, and streams of columns."""
    frames_ = [each.frame for each in good()]
    found = [b"\0" + encode_frame(frame) for frame in frames_] + [b"\0" + each.data for each in bad()]
    found += [bytes((1, frame.type, frame.flags)) + frame.payload for frame in frames_]
    return found + [bytes((1, FrameType.BATCH, 8)) + stream for stream in streams().values()]


def main(seconds: int, folder: Path) -> None:
    """Fuzz for so long; libFuzzer ends the process."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = {
        "max_total_time": seconds,
        "max_len": LONGEST,
        "rss_limit_mb": MEMORY_MB,
        "timeout": ONE_INPUT_S,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
    }
    atheris.Setup([sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus)], read_all)
    atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
