"""The latest windows of a stream, with their statistics.

Belongs here: the parts of a key as they are given, and the answer's form. How windows are found is in
`tidemark/streams/latest.py`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tidemark.model.timegrid import from_us, to_us
from tidemark.streams.latest import LatestWindows

# How many windows there are, unless a question says otherwise.
WINDOWS = 5


def parse_key(keys: Iterable[str]) -> dict[str, str]:
    """Field → value; a value without a field belongs to the only one. A value may contain a `=`."""
    found: dict[str, str] = {}
    for given in keys:
        name, equals, value = given.partition("=")
        found |= {name: value} if equals and name.replace(".", "_").isidentifier() else {"": given}
    return found


def windows_as_json(found: LatestWindows) -> dict[str, Any]:
    """The windows, the latest first, with the version of the table and the stream's watermark."""
    return {
        "stream": found.stream.name,
        "version": found.version,
        "watermark": None if found.watermark_us is None else _text(found.watermark_us),
        "windows": [
            {
                "state": str(window.state),
                "key": window.key,
                **{name: _value(value) for name, value in window.statistics.items()},
                "aggregates": {name: _value(value) for name, value in window.aggregates.items()},
            }
            for window in found.windows
        ],
    }


def _value(value: Any) -> Any:
    return _text(to_us(value)) if isinstance(value, datetime) else value


def _text(time_us: int) -> str:
    return from_us(time_us).isoformat()
