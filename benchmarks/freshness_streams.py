"""Many streams of which few are touched: what sixty deltas cost beside a home with only those few.

Belongs here: the definitions, and the two homes. Both hold the same deltas, of as many namespaces as there are streams
that nothing touches; every hour has some of each, so that "this hour has changed" is true for all of them.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks.freshness_home import command, environment, send, send_base
from benchmarks.freshness_ways import FreshnessError, Turn, drain, end_leftovers
from benchmarks.harness import say
from tidemark.storage.home import Home
from tidemark.streams.load import FOLDER, OPEN_SUFFIX

DELTAS = 60
STREAM = """\
description: {about}
namespace: {namespace}
kind: signal
where: {{signal: view}}
key: [entity_id]
window: {window}
aggregates:
  views: {{sum: count}}
"""
TOUCHED = {
    "shop_tens": "{tumbling: 10m}",
    "shop_hours": "{sliding: {size: 1h, step: 10m}}",
    "shop_visits": "{session: 30m}",
}


def stream_turn(root: Path, streams: int, others: int, base: int, number: int) -> Turn:
    """A fresh home with this many streams, drained; then sixty deltas that touch three of them."""
    home = Home(root).create()
    define(home, streams)
    send_base(home, base, [f"other_{each}" for each in range(others)])
    say(f"a home with {streams} streams: the first drain")
    drained = _drain(home)
    if drained:
        raise FreshnessError(f"The first drain of a home with {streams} streams ended with {drained}.")
    turn = drain(f"{DELTAS} deltas, {streams} streams", home, send(home, number, deltas=DELTAS), {})
    end_leftovers(root)
    # Sessions that go on are in a table of their own.
    missing = [name for name in TOUCHED if not {name, name + OPEN_SUFFIX} & turn.commits.keys()]
    if missing:
        raise FreshnessError(f"{turn.way}: {', '.join(missing)} was not refreshed.")
    return turn


def define(home: Home, streams: int) -> None:
    """The streams that are touched, and as many others as it takes, each of a namespace of its own."""
    folder = home.root / FOLDER
    folder.mkdir()
    for name, window in TOUCHED.items():
        text = STREAM.format(about="Views of the shop.", namespace="shop", window=window)
        (folder / f"{name}.yaml").write_text(text)
    for each in range(streams - len(TOUCHED)):
        text = STREAM.format(about="Views elsewhere.", namespace=f"other_{each}", window="{tumbling: 10m}")
        (folder / f"elsewhere_{each}.yaml").write_text(text)


def _drain(home: Home) -> int:
    return subprocess.run(
        command(home, "drain", "--json"), env=environment({}), stdout=sys.stderr, stderr=sys.stderr, check=False
    ).returncode
