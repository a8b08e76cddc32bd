"""JSON objects that repeat a name: a dictionary keeps the last value and forgets the other.

Belongs here: reading JSON so that this is noticed, and refusing it where producers choose the names: in the maps of a
delta. In columns a map may repeat a name, too, and a store of maps could keep only one value.
"""

import json
from collections.abc import Mapping
from typing import Any

from tidemark.door.decoded import RefusedError
from tidemark.model.deltas import KINDS, Delta, Reason

# By payload. The last kind is looked at first: for an object with several payloads the first repeat is reported.
_MAPS = {kind.value: rule.maps for kind, rule in reversed(KINDS.items()) if rule.maps}


class _Object(dict[str, Any]):
    """An object that remembers a repeated name."""

    repeated: str | None = None


def loads(sent: bytes | str) -> Any:
    """JSON as Python reads it, which knows NaN and Infinity, so that these are named and not just "malformed"."""
    try:
        return json.loads(sent, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise RefusedError(Reason.MALFORMED, f"Not JSON: {error}.") from error


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.repeated = next(name for name in names if names.count(name) > 1)
    return made


def refuse_repeats(found: Mapping[str, Any]) -> None:
    """A map with a repeated name has two values for it, and no store of maps could keep both."""
    for payload, fields in _MAPS.items():
        for field in fields if isinstance(found.get(payload), _Object) else ():
            names = found[payload].get(field)
            if isinstance(names, _Object) and names.repeated is not None:
                raise RefusedError(Reason.MALFORMED, f"{payload}.{field} names {names.repeated!r} twice.", found)


def names_each_once(sent: bytes | str, delta: Delta) -> bool:
    """Whether surely no map of a JSON delta repeats a name: each name is in the text only once."""
    maps = [
        getattr(found, field)
        for payload, fields in _MAPS.items()
        if (found := getattr(delta, payload)) is not None
        for field in fields
    ]
    if not any(maps):
        return True
    text = sent if isinstance(sent, str) else sent.decode()
    # An escape could be a second way to write a name.
    return "\\" not in text and all(text.count(f'"{name}"') == 1 for names in maps for name in names or ())
