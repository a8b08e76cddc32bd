"""The program that is killed: it sends unique deltas, and says what it was told of them.

Belongs here: one life of it. `python -m chaos.sending URL SPOOL LIFE COUNT` prints a line for each call: `spooled
LIFE-NUMBER`, `flushed LIFE-NUMBER`, and in the end `left N`.
"""

import logging
import sys
import threading
import time
from random import Random

import tidemark
from tidemark.client import Sent

# How many calls may wait for their answer before this program waits for the first of them.
_AHEAD = 50
_PATIENCE_S = 120.0


def delta(name: str, now_us: int) -> dict[str, object]:
    """A delta that any server accepts, once."""
    signal = {"entity_id": f"e{now_us % 7}", "signal": "sent"}
    return {"namespace": "chaos", "kind": "signal", "delta_id": name, "event_ts": now_us, "signal": signal}


def main(url: str, spool: str, life: int, count: int) -> None:
    """Send, and print what is known."""
    logging.basicConfig(level=logging.WARNING)
    printing = threading.Lock()

    def say(text: str) -> None:
        with printing:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    random = Random(life)
    client = tidemark.connect(
        url, producer="chaos", spool=spool, rows=7, linger_s=0.001, longest_wait_s=0.1, memory_bytes=100_000
    )
    flushed: list[tuple[str, Sent]] = []
    for number in range(count):
        name = f"{life}-{number}"
        sent = client.send([delta(f"{name}-{part}", time.time_ns() // 1_000) for part in range(random.randint(1, 3))])
        if random.random() < 0.1:
            sent.wait("spooled")
            say(f"spooled {name} {len(sent)}")
        flushed.append((name, sent))
        while flushed and (flushed[0][1].outcome.waiting == 0 or len(flushed) > _AHEAD):
            first, handle = flushed.pop(0)
            handle.wait(timeout=_PATIENCE_S)  # a server that has ended by itself is an error, and no reason to hang
            say(f"flushed {first} {len(handle)}")
    say(f"left {client.close(120).left}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
