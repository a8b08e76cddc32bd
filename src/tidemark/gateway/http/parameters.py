"""Queries of URLs, typed.

Belongs here: from the text behind the question mark to a struct, and what is said of one that does not fit.
"""

import re
from typing import TypeVar, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from tidemark.gateway.http.errors import HttpError

_MOST_PARAMETERS = 64
_Query = TypeVar("_Query", bound=Struct)
# How msgspec says where: "… - at `$.level`".
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


def read_query(query: bytes, kind: type[_Query]) -> _Query:
    """The parameters of a request; raises `HttpError` with 400."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            max_num_fields=_MOST_PARAMETERS,
            errors="strict",
        )
    except ValueError as error:
        raise _bad(f"The query cannot be read: {error}.") from error
    hints = get_type_hints(kind)
    found: dict[str, str | list[str]] = {}
    for name, value in pairs:
        if get_origin(hints.get(name)) is tuple:
            values = found.setdefault(name, [])
            assert isinstance(values, list)  # noqa: S101 - only such names get here
            values.append(value)
        elif name in found:
            raise _bad(f"{name}: give it once.")
        else:
            found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(_sentence(str(error))) from error


def _sentence(said: str) -> str:
    place = _PLACE.search(said)
    if place is None:
        return f"{said}."
    return f"{place[1]}: {said[: place.start()]}."


def _bad(message: str) -> HttpError:
    return HttpError(400, "bad_parameter", message, closes=True)
